//! Finds what limits a chain: its slowest function, and the place of contention with the largest share of its drop.

use forebay_models::placement::{Problem, Sensitivity, Way};

use super::{Binding, ContentionPlace, SeatAnswer};

/// A place of contention is reported only if its share of the drop is at least this.
const SMALLEST_DROP: f64 = 0.005;

/// Returns the slowest function of the chain `at` and the place of contention that slows it most. `rates` and `seats`
/// are the rates and the seats of this chain. The chain must be placed.
pub(super) fn binding(problem: &Problem, placement: &[Way], at: usize, rates: &[f64], seats: &[SeatAnswer]) -> Binding {
    let slowest = (0..rates.len()).min_by(|a, b| rates[*a].total_cmp(&rates[*b])).unwrap_or(0);
    let way = &placement[at];
    let domain = way.domains()[slowest];
    // The drop is computed once for each part of the sensitivity, with the other parts set to 0.
    let drop_with = |keep: fn(&Sensitivity) -> Sensitivity| {
        let mut changed = problem.clone();
        for function in &mut changed.chains[at].functions {
            (function.local, function.remote) = (keep(&function.local), keep(&function.remote));
        }
        let alone = match way {
            Way::Split(_) => problem.chains[at].functions[slowest].rates[domain],
            Way::Whole(domains) => problem.chains[at].whole().rates[domain] * domains.len() as f64,
        };
        let rates = changed.rates_of(at, placement).unwrap_or_default();
        1.0 - rates.get(slowest).map_or(0.0, |rate| rate / alone)
    };
    let drop = drop_with(|drop| *drop);
    let is_local = domain == problem.chains[at].home;
    let second = if is_local { ContentionPlace::Memory } else { ContentionPlace::Link };
    let parts = [
        (ContentionPlace::Cache, drop_with(|drop| Sensitivity { cache: drop.cache, ..Sensitivity::default() })),
        (second, drop_with(|drop| Sensitivity { memory: drop.memory, ..Sensitivity::default() })),
        (
            ContentionPlace::Constant,
            drop_with(|drop| Sensitivity { constant: drop.constant, ..Sensitivity::default() }),
        ),
    ];
    let most = parts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, share)| *share >= SMALLEST_DROP);
    Binding {
        function: seats[slowest].functions.join(", "),
        drop: drop.clamp(0.0, 1.0),
        place: most.map(|(place, _)| place),
        domain,
        share: most.map_or(0.0, |(_, share)| share),
    }
}

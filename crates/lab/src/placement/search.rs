//! Fig. 9: the time of the search and the quality of its results, by the number of chains and of domains.

use std::time::Instant;

use forebay_contention::mix::Random;
use forebay_models::placement::{self, Effort, Problem, baselines, exact};
use serde::{Deserialize, Serialize};

use super::basis::Basis;
use super::{PlacementSettings, step};
use crate::{LabError, Progress};

/// The results for random placement problems (instances) of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Searched {
    /// The number of domains. Each has ten cores.
    pub domains: usize,
    /// The number of chains. Each has three functions.
    pub chains: usize,
    /// The number of instances that have a placement.
    pub instances: usize,
    /// The milliseconds of `exact`: median and maximum.
    pub exact_ms: [f64; 2],
    /// The nodes of the search tree that `exact` examined: median and maximum.
    pub nodes: [f64; 2],
    /// The largest certified gap of `exact`. If it is 0, all results are proved to be optimal.
    pub gap: f64,
    /// The milliseconds of `octans`: median and maximum.
    pub octans_ms: [f64; 2],
    /// The number of instances on which `octans` was run. It is smaller than `instances` if a run takes seconds.
    pub octans_instances: usize,
    /// The share of these instances in which `octans` finds a best placement.
    pub octans_optimal: f64,
    /// The mean of `1 − value / best` of `octans` in the other instances. An instance for which `octans` finds no
    /// placement counts as 1. `None` if there are no other instances.
    pub octans_gap: Option<f64>,
    /// The milliseconds of enumeration: median and maximum. `None` if enumeration would take too long.
    pub brute_force_ms: Option<[f64; 2]>,
    /// The number of instances that were enumerated, and the number of those in which `exact` has the same value.
    pub enumerated: [usize; 2],
}

/// The paper's times for the largest size, by domains: its heuristic and its enumeration, in milliseconds.
pub(super) const PAPER_MS: [(usize, f64, f64); 2] = [(2, 17.0, 31_500.0), (4, 5_300.0, 1_858_000.0)];

/// `exact` runs this many times on an instance, and the shortest time counts, because it is the least disturbed. Other
/// methods run once.
const REPEATS: usize = 3;
/// The approximate number of placements that are enumerated for one size, over all its instances.
const BUDGET: f64 = 3e6;
/// The same number for a short experiment.
const SHORT_BUDGET: f64 = 2e4;
/// The approximate number of placements that `exact` may examine before it stops with a gap.
const NODES: u64 = 5_000_000;
/// `octans` starts from every placement of whole chains. It runs on so few instances of one size that it starts about
/// this many times in total.
const BEGINNINGS: f64 = 60_000.0;
/// The relative difference below which two values are equal, because of rounding.
const SAME: f64 = 1e-9;

/// Measures all sizes.
pub(super) fn measure(
    basis: &Basis,
    settings: &PlacementSettings,
    progress: &mut dyn Progress,
) -> Result<Vec<Searched>, LabError> {
    let most = if settings.short { 4 } else { 6 };
    progress.begin(2 * most);
    progress.expect(if settings.short { 5.0 } else { 240.0 });
    let mut rows = Vec::new();
    for domains in [2, 4] {
        for chains in 1..=most {
            step(progress, &format!("{domains} domains, {chains} chains"))?;
            rows.push(of_size(basis, settings, domains, chains, progress)?);
        }
    }
    Ok(rows)
}

/// Measures random instances of one size. `exact` runs on all of them, `octans` and enumeration on as many as their
/// budgets allow.
fn of_size(
    basis: &Basis,
    settings: &PlacementSettings,
    domains: usize,
    chains: usize,
    progress: &mut dyn Progress,
) -> Result<Searched, LabError> {
    let instances = if settings.short { 10 } else { 100 };
    let mut random = Random::new(settings.seed.wrapping_add((domains * 10 + chains) as u64));
    let ways = (domains as f64).powi(3 * chains as i32);
    let budget = if settings.short { SHORT_BUDGET } else { BUDGET };
    let enumerated = ((budget / ways) as usize).min(instances);
    let by_octans = ((BEGINNINGS / (domains as f64).powi(chains as i32)) as usize).min(instances);
    let (mut exact_ms, mut octans_ms, mut brute_ms, mut nodes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut gap, mut same) = (0.0_f64, 0);
    let mut octans_gaps = Vec::new();
    for instance in 0..instances {
        if progress.is_stopped() {
            return Err(LabError::Interrupted);
        }
        let problem = instance_of(basis, domains, chains, &mut random);
        let effort = Effort { nodes: NODES, is_over: &|| false };
        let (best, ms) = timed(REPEATS, || exact(&problem, &effort))?;
        let Some(best) = best else { continue };
        exact_ms.push(ms);
        nodes.push(best.nodes as f64);
        gap = gap.max(best.gap());
        if instance < by_octans {
            let (octans, ms) = timed(1, || baselines::octans(&problem, &|| false))?;
            octans_ms.push(ms);
            octans_gaps.push(1.0 - octans.map_or(0.0, |found| found.value) / best.value);
        }
        if instance < enumerated {
            let ((all, _), ms) = timed(1, || baselines::brute_force(&problem, &|| false))?;
            brute_ms.push(ms);
            let value = all.map_or(0.0, |found| found.value);
            same += usize::from((value / best.value - 1.0).abs() <= SAME);
        }
    }
    let worse: Vec<_> = octans_gaps.iter().copied().filter(|gap| *gap > SAME).collect();
    Ok(Searched {
        domains,
        chains,
        instances: exact_ms.len(),
        exact_ms: median_and_most(&mut exact_ms),
        nodes: median_and_most(&mut nodes),
        gap,
        octans_ms: median_and_most(&mut octans_ms),
        octans_instances: octans_gaps.len(),
        octans_optimal: 1.0 - worse.len() as f64 / octans_gaps.len().max(1) as f64,
        octans_gap: (!worse.is_empty()).then(|| worse.iter().sum::<f64>() / worse.len() as f64),
        enumerated: [brute_ms.len(), same],
        brute_force_ms: (!brute_ms.is_empty()).then(|| median_and_most(&mut brute_ms)),
    })
}

/// Returns a problem: chains of random functions on a server of domains with ten cores. All domains but the home domain
/// are equal.
fn instance_of(basis: &Basis, domains: usize, chains: usize, random: &mut Random) -> Problem {
    let home = basis.profile.bench.home;
    let limits = basis.fitted.limits[home];
    let function = |number: usize| {
        let mut function = basis.fitted.function(&basis.profile.bench, number);
        let [local, remote] = basis.profile.rates[number];
        function.rates = (0..domains).map(|domain| if domain == home { local } else { remote }).collect();
        function
    };
    let chain = |random: &mut Random| placement::Chain {
        functions: (0..3).map(|_| function(random.index(basis.profile.network))).collect(),
        home,
        rate: f64::INFINITY,
        weight: 1.0,
        least: 0.0,
        copies: 0,
    };
    let domain = |at| placement::Domain { cores: 10, class: usize::from(at != home), limits };
    Problem { domains: (0..domains).map(domain).collect(), chains: (0..chains).map(|_| chain(random)).collect() }
}

/// Runs a function several times. Returns its result and the minimum time in milliseconds.
fn timed<T, E>(repeats: usize, mut run: impl FnMut() -> Result<T, E>) -> Result<(T, f64), E> {
    let mut once = || {
        let start = Instant::now();
        run().map(|found| (found, start.elapsed().as_secs_f64() * 1e3))
    };
    let (found, mut least) = once()?;
    for _ in 1..repeats {
        least = least.min(once()?.1);
    }
    Ok((found, least))
}

/// Returns the median and the maximum, or 0 without values. For an even number of values, the median is the larger of
/// the two in the middle. Sorts the values.
fn median_and_most(values: &mut [f64]) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    let at = |at: usize| values.get(at).copied().unwrap_or_default();
    [at(values.len() / 2), at(values.len().saturating_sub(1))]
}

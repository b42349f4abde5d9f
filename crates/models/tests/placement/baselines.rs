//! Baselines place functions as published, and the exact search is never below them.

use forebay_models::placement::baselines::{Found, brute_force, node_balancing, node_first, octans, random};
use forebay_models::placement::{Effort, Way, exact};

use crate::instances::{Mix, Random, of_bars};

fn domains(found: &Found) -> Vec<Vec<usize>> {
    found.placement.iter().map(|way| way.domains().to_vec()).collect()
}

#[test]
fn baselines_place_functions_as_published() {
    let problem = of_bars(3, [2, 4, 2, 3], Mix::Any);
    let balanced = node_balancing(&problem).expect("a valid problem").expect("it fits");
    assert_eq!(domains(&balanced), [[0, 1, 0], [1, 0, 1]]);
    let first = node_first(&problem).expect("a valid problem").expect("it fits");
    assert_eq!(domains(&first), [[0, 0, 0], [0, 1, 1]]);
    let mut numbers = [7, 0, 5, 0, 0, 2].into_iter();
    let drawn =
        random(&problem, &mut |_| numbers.next().expect("six functions")).expect("a valid problem").expect("it fits");
    assert_eq!(domains(&drawn), [[1, 0, 1], [0, 0, 1]]);
}

/// `exact` is not below `octans`, and `octans` is not below its own starting placements of whole chains.
#[test]
fn no_baseline_is_above_the_exact_search() {
    let mut optimal = 0;
    for (seed, kind) in (0..20).flat_map(|seed| Mix::ALL.map(|kind| (seed, kind))) {
        let problem = of_bars(seed, [2, 6, 4, 3], kind);
        let effort = Effort { nodes: u64::MAX, is_over: &|| false };
        let best = exact(&problem, &effort).expect("a valid problem").expect("it fits").value;
        let mut draw = Random::new(seed);
        let found = [
            octans(&problem, &|| false),
            node_balancing(&problem),
            node_first(&problem),
            random(&problem, &mut |end| draw.below(end)),
        ];
        let values = found.map(|found| found.expect("a valid problem").map_or(0.0, |found| found.value));
        assert!(values.iter().all(|value| *value <= best * (1.0 + 1e-9)), "{kind:?} {seed}: {values:?} {best}");
        optimal += usize::from(values[0] >= best * (1.0 - 1e-9));
        for number in 0..16 {
            let wholes: Vec<_> = (0..4).map(|chain| Way::Split(vec![number >> chain & 1; 3])).collect();
            if let Ok(rates) = problem.rates(&wholes) {
                let value: f64 = rates.iter().map(|(rate, _)| rate).sum();
                assert!(
                    value <= values[0] * (1.0 + 1e-9),
                    "{kind:?} {seed}: a start is worth {value}, octans {}",
                    values[0]
                );
            }
        }
    }
    // The paper reports 58 to 70 %.
    assert!((10..90).contains(&optimal), "{optimal} of 100");
}

#[test]
fn brute_force_agrees_with_the_exact_search() {
    for (seed, kind) in (0..4).flat_map(|seed| Mix::ALL.map(|kind| (seed, kind))) {
        let problem = of_bars(seed, [2, 6, 3, 3], kind);
        let best = brute_force(&problem, &|| false).expect("a valid problem").0.expect("it fits").value;
        let effort = Effort { nodes: u64::MAX, is_over: &|| false };
        let found = exact(&problem, &effort).expect("a valid problem").expect("it fits").value;
        assert!((best - found).abs() <= 1e-9 * best, "{kind:?} {seed}: {best} {found}");
    }
}

/// The published form starts from whole chains only.
#[test]
fn octans_finds_nothing_for_a_chain_that_fits_on_no_domain() {
    let problem = of_bars(1, [2, 2, 1, 3], Mix::Any);
    assert_eq!(octans(&problem, &|| false), Ok(None));
    assert!(node_first(&problem).is_ok_and(|found| found.is_some()));
}

/// When the time is over, the searches return their best placement so far, and report whether all placements were
/// examined.
#[test]
fn listings_end_when_the_time_is_over() {
    let problem = of_bars(3, [3, 4, 2, 3], Mix::Any);
    let looks = std::cell::Cell::new(0);
    let soon = || looks.replace(looks.get() + 1) >= 5;
    let (some, has_all) = brute_force(&problem, &soon).expect("a valid problem");
    let (all, has_really_all) = brute_force(&problem, &|| false).expect("a valid problem");
    let (some, all) = (some.expect("it fits").value, all.expect("it fits").value);
    assert!(!has_all && has_really_all && some <= all, "{some} {all}");
    looks.set(0);
    let some = octans(&problem, &soon).expect("a valid problem").expect("it fits").value;
    let all = octans(&problem, &|| false).expect("a valid problem").expect("it fits").value;
    assert!(some <= all && looks.get() >= 5, "{some} {all}");
}

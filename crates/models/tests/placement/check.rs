//! Three exact methods agree, correct certificates are accepted, and wrong certificates are refuted.

use forebay_models::placement::baselines::brute_force;
use forebay_models::placement::counting::by_counts;
use forebay_models::placement::{Certificate, Checked, Effort, Refuted, Wanted, check, exact};

use crate::instances::{Mix, any, enumerate, of_bars, value};

const ALL: Effort<'_> = Effort { nodes: u64::MAX, is_over: &|| false };

fn is_same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-8 * a.abs().max(b.abs())
}

#[test]
fn branch_and_bound_counting_and_enumeration_agree() {
    let (mut checked, mut proved) = (0, 0);
    for seed in 2_000..3_500 {
        let problem = any(seed);
        if problem.check().is_err() {
            continue;
        }
        let best = enumerate(&problem);
        let counted = by_counts(&problem, u64::MAX).expect("a valid problem").expect("it fits");
        let own = value(&problem, &counted.placement).expect("its own placement fits");
        let found = exact(&problem, &ALL).expect("a valid problem").expect("it fits");
        assert!(
            is_same(best, counted.value) && is_same(own, best) && is_same(found.value, best),
            "seed {seed}: {best} {} {own} {}",
            counted.value,
            found.value
        );
        // The check is limited to fewer steps than the largest problems need.
        let verdict = check(&problem, &Wanted::default(), &found);
        assert!(verdict.is_ok(), "seed {seed}: {verdict:?}");
        proved += usize::from(verdict == Ok(Checked::Proved));
        checked += 1;
    }
    assert!(checked > 1_000 && proved > 9 * checked / 10, "{proved} of {checked}");
}

#[test]
fn counting_finds_the_optimum_of_all_types_of_instances() {
    for (seed, kind) in (0..4).flat_map(|seed| Mix::ALL.map(|kind| (seed, kind))) {
        let problem = of_bars(seed, [2, 6, 4, 2], kind);
        let counted = by_counts(&problem, u64::MAX).expect("a valid problem").expect("it fits").value;
        let best = brute_force(&problem, &|| false).expect("a valid problem").0.expect("it fits").value;
        assert!(is_same(counted, best), "{kind:?} {seed}: {counted} {best}");
    }
    // Equal chains share states: the size of the paper's servers.
    let problem = of_bars(3, [2, 10, 6, 3], Mix::NearTies);
    let counted = by_counts(&problem, 20_000_000).expect("a valid problem").expect("few states").value;
    assert!(is_same(counted, exact(&problem, &ALL).expect("a valid problem").expect("it fits").value));
    assert_eq!(by_counts(&problem, 100), Ok(None));
}

#[test]
fn no_certificate_is_refuted() {
    for (size, nodes, seeds) in [([2, 10, 6, 3], u64::MAX, 10), ([4, 10, 6, 3], 2_000, 5), ([8, 8, 16, 4], 30, 1)] {
        for (seed, kind) in (500..500 + seeds).flat_map(|seed| Mix::ALL.map(|kind| (seed, kind))) {
            let problem = of_bars(seed, size, kind);
            let found = exact(&problem, &Effort { nodes, ..ALL }).expect("a valid problem").expect("it fits");
            let checked = check(&problem, &Wanted::default(), &found);
            assert!(checked.is_ok(), "{size:?} {kind:?} {seed}: {checked:?}");
        }
    }
}

#[test]
fn wrong_certificates_are_refuted() {
    let problem = of_bars(1, [2, 6, 4, 2], Mix::Any);
    let right = exact(&problem, &ALL).expect("a valid problem").expect("it fits");
    let refuted = |change: fn(&mut Certificate)| {
        let mut wrong = right.clone();
        change(&mut wrong);
        check(&problem, &Wanted::default(), &wrong).expect_err("it is wrong")
    };
    assert!(matches!(refuted(|it| it.value *= 1.01), Refuted::Value { .. }));
    assert!(matches!(refuted(|it| it.bound = it.value * 0.99), Refuted::Bound { .. }));
    assert!(matches!(refuted(|it| _ = it.placement.pop()), Refuted::Problem(_)));
    // A worse placement that is claimed to be the best.
    let baseline =
        forebay_models::placement::baselines::node_balancing(&problem).expect("a valid problem").expect("it fits");
    let worse = Certificate { value: baseline.value, bound: baseline.value, placement: baseline.placement, nodes: 1 };
    assert!(matches!(check(&problem, &Wanted::default(), &worse), Err(Refuted::Bound { .. })));
    let mut least = problem.clone();
    least.chains[2].least = 1e12;
    assert!(matches!(check(&least, &Wanted::default(), &right), Err(Refuted::Least { chain: 2, .. })));
}

//! The fixed point of rates and contention.

use forebay_models::placement::coupled::{Damping, coupled};
use forebay_models::placement::{Effort, Way, exact};

use crate::instances::{Mix, of_bars};

fn best(seed: u64, kind: Mix) -> (forebay_models::placement::Problem, Vec<Way>) {
    let problem = of_bars(seed, [2, 6, 4, 3], kind);
    let effort = Effort { nodes: u64::MAX, is_over: &|| false };
    let placement = exact(&problem, &effort).expect("a valid problem").expect("it fits").placement;
    (problem, placement)
}

/// Functions that wait compete for less: no chain is slower than in the fixed-rate model.
#[test]
fn no_chain_is_slower_than_at_fixed_rates() {
    for (seed, kind) in (0..20).flat_map(|seed| Mix::ALL.map(|kind| (seed, kind))) {
        let (problem, placement) = best(seed, kind);
        let fixed = problem.rates(&placement).expect("a placement");
        let found = coupled(&problem, &placement, Damping::default()).expect("a placement");
        assert!(found.is_converged && found.residual <= 1e-6, "{kind:?} {seed}: {found:?}");
        for (coupled, (fixed, _)) in found.rates.iter().zip(&fixed) {
            assert!(*coupled >= fixed * (1.0 - 1e-9), "{kind:?} {seed}: {coupled} {fixed}");
        }
    }
}

/// If all functions are as fast as their chain, nothing changes. A chain with little traffic does not slow the others.
#[test]
fn demands_follow_rates() {
    let (mut problem, placement) = best(3, Mix::Any);
    let fixed = problem.rates(&placement).expect("a placement");
    let busy = coupled(&problem, &placement, Damping::default()).expect("a placement");
    problem.chains.iter_mut().skip(1).for_each(|chain| chain.rate = 1.0);
    let quiet = coupled(&problem, &placement, Damping::default()).expect("a placement");
    assert!(quiet.rates[0] >= busy.rates[0] * (1.0 - 1e-6) && quiet.rates[0] > fixed[0].0, "{quiet:?} {busy:?}");
    assert!(quiet.rates[1..].iter().all(|rate| *rate == 1.0));
    // One round is the fixed-rate model.
    let one = coupled(&problem, &placement, Damping { rounds: 1, ..Damping::default() }).expect("a placement");
    assert!(!one.is_converged && one.functions == problem.function_rates(&placement).expect("a placement"));
    assert!(coupled(&problem, &placement[1..].to_vec(), Damping::default()).is_err());
}

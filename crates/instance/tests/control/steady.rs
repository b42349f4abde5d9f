//! A steady load has a steady control: what a flow was too slow with is not tried again every few periods.

use std::collections::BTreeMap;

use forebay_protocol::ChangeReason;

use crate::driving::{Case, Run};

/// Periods for which what was taken back is not given again, at least.
const RESTS: usize = 30;

/// By change that took from a trigger because a flow was too slow: the period, and the one in which the module was given more again.
fn given_back(run: &Run) -> Vec<(usize, Option<usize>)> {
    let (mut cut, mut all) = (BTreeMap::<usize, usize>::new(), Vec::new());
    for (at, period) in run.periods.iter().enumerate() {
        for change in &period.actions.changes {
            if change.to > change.from
                && let Some(was) = cut.remove(&change.module)
            {
                all.push((was, Some(at)));
            }
            if change.reason == ChangeReason::Recovery {
                cut.insert(change.module, at);
            }
        }
    }
    all.extend(cut.into_values().map(|was| (was, None)));
    all
}

#[test]
fn what_a_flow_was_too_slow_with_is_not_tried_again_at_once() {
    for (controller, slo) in [("gradient", "300us"), ("on-off", "330us")] {
        let run = Case::new("gw", "n=8 fold=off rate=1Mpps control.period=10ms")
            .with(&format!("control.batching={controller} slo={slo} ports.in.generator.arrivals=poisson"))
            .run(3_000, &[]);
        let cuts = given_back(&run);
        assert!(!cuts.is_empty(), "{controller} never took anything back");
        assert!(cuts.iter().any(|(_, given)| given.is_some()), "{controller} never gave anything back");
        let soon: Vec<_> = cuts.iter().filter(|(was, given)| given.is_some_and(|given| given < was + RESTS)).collect();
        assert!(soon.is_empty(), "{controller}: {soon:?}");
    }
}

//! Tests that control is steady under a steady load: a trigger that made a flow too slow is not tried again soon.

use std::collections::BTreeMap;

use forebay_protocol::ChangeReason;

use crate::driving::{Case, Run};

/// The least number of periods before a reduced trigger is raised again.
const LEAST_PERIODS: usize = 30;

/// Returns the reductions of triggers because of slow flows: the period, and the period in which the trigger was raised
/// again.
fn reductions(run: &Run) -> Vec<(usize, Option<usize>)> {
    let (mut cut, mut all) = (BTreeMap::<usize, usize>::new(), Vec::new());
    for (number, period) in run.periods.iter().enumerate() {
        for change in &period.actions.changes {
            if change.to > change.from
                && let Some(was) = cut.remove(&change.module)
            {
                all.push((was, Some(number)));
            }
            if change.reason == ChangeReason::Recovery {
                cut.insert(change.module, number);
            }
        }
    }
    all.extend(cut.into_values().map(|was| (was, None)));
    all
}

#[test]
fn a_trigger_that_made_a_flow_too_slow_is_not_tried_again_soon() {
    for (controller, slo) in [("gradient", "300us"), ("on-off", "330us")] {
        let run = Case::new("gw", "n=8 fold=off rate=1Mpps control.period=10ms")
            .with(&format!("control.batching={controller} slo={slo} ports.in.generator.arrivals=poisson"))
            .run(3_000, &[]);
        let cuts = reductions(&run);
        assert!(!cuts.is_empty(), "{controller} never reduced a trigger");
        assert!(cuts.iter().any(|(_, raised)| raised.is_some()), "{controller} never raised a trigger again");
        let is_soon =
            |(cut, raised): &&(usize, Option<usize>)| raised.is_some_and(|raised| raised < cut + LEAST_PERIODS);
        let soon: Vec<_> = cuts.iter().filter(is_soon).collect();
        assert!(soon.is_empty(), "{controller}: {soon:?}");
    }
}

//! Finds the best triggers, both when objectives leave workers enough time and when they do not.

use forebay_models::batching::{
    Flow, Model, Module,
    waiting::{Arrivals, Predicted},
};
use forebay_protocol::Layout;

use crate::outlook::busiest;

/// The largest lateness to try, as a fraction of the objective, of flows that are in time without batches.
const LATEST: f64 = 1.0;
/// The first lateness to try.
const FIRST: f64 = 0.125;
/// A sufficient lateness ([`relieve`]) is multiplied by this factor to get the next lateness to try.
const LESS: f64 = 0.8;
/// The largest lateness to try of flows that are late even without batches. It is used if `LATEST` is not sufficient.
const HOPELESS: f64 = 1024.0;
/// A lateness that is not sufficient is multiplied by this factor to get the next lateness to try.
const MORE: f64 = 4.0;

/// Packets count as always arriving in groups of n, a whole number, if the mean number of packets that arrive at once
/// differs from n by at most this.
const ALWAYS: f64 = 0.05;

/// Triggers and their predicted effect.
pub(super) struct Solution {
    /// By module: the trigger.
    pub(super) triggers: Vec<usize>,
    pub(super) predicted: Predicted,
    /// The lateness that flows may have, as a fraction of their objectives.
    pub(super) late: f64,
}

/// Returns the triggers with the least load within all objectives.
pub(super) fn solve(model: &Model, arrivals: &Arrivals) -> Solution {
    let solution =
        |triggers: Vec<usize>| Solution { predicted: model.predict(arrivals, &triggers), triggers, late: 0.0 };
    let best = solution(model.best_triggers(arrivals));
    let whole = whole_arrivals(model, arrivals, &best.triggers);
    if whole == best.triggers {
        return best;
    }
    let whole = solution(whole);
    // A smaller batch at one module means fewer packets at once for the later modules, whose packets may then wait
    // longer. The reduced triggers are used if no flow exceeds its limit because of them.
    let delays = best.predicted.delays.iter().zip(&whole.predicted.delays);
    let kept = |(flow, (was, is)): (&Flow, (&Option<f64>, &Option<f64>))| {
        is.is_none_or(|is| is <= was.unwrap_or(0.0).max(flow.slo))
    };
    if model.flows().iter().zip(delays).all(kept) { whole } else { best }
}

/// Returns triggers with which the workers have spare time. Called if the workers have none with the triggers that keep
/// all objectives. Packets for a worker that is always busy queue without limit, and are then later than with any
/// batch.
///
/// The solution lets all flows be late by the same fraction of their objectives, the lateness. A lateness is sufficient
/// if the workers have spare time with it (`leaves_time`). `last` is the lateness in the last period; 0 if no flow was
/// late. If `last` is sufficient, a slightly smaller lateness is tried. Otherwise, a lateness between `last` and a
/// larger sufficient one is tried. The smallest sufficient lateness is thus found within a few periods. If `LATEST` is
/// not sufficient, only flows that are late even without batches get a lateness above `LATEST`.
pub(super) fn relieve(
    layout: &Layout,
    model: &Model,
    arrivals: &Arrivals,
    last: f64,
    leaves_time: impl Fn(&Predicted) -> bool,
) -> Solution {
    let none = model.predict(arrivals, &vec![0; model.modules().len()]);
    let lost: Vec<bool> = late(model, &none).collect();
    let with = |late: f64| {
        let longer = layout.flows.iter().zip(model.flows()).zip(&lost).map(|((flow, of), lost)| {
            let part = if *lost { late } else { late.min(LATEST) };
            Flow { slo: of.slo + part * flow.slo_s.unwrap_or(0.0), ..of.clone() }
        });
        let longer = Model::new(model.modules().to_vec(), longer.collect(), model.largest())
            .expect("the parts come from a valid model");
        let longer = longer.with_turn(model.turn()).with_rates(model.rates().iter().copied());
        Solution { late, ..solve(&longer, arrivals) }
    };
    let farthest = if lost.contains(&true) { HOPELESS } else { LATEST };
    let first = with(if last > 0.0 { last.min(farthest) } else { FIRST });
    let (most, next) = if leaves_time(&first.predicted) {
        let less = first.late * LESS;
        (first, less)
    } else {
        let later = |late: f64| with((late * MORE).clamp(LATEST, farthest));
        let (mut low, mut latest) = (first.late, later(first.late));
        while !leaves_time(&latest.predicted) {
            if latest.late >= farthest {
                return latest;
            }
            (low, latest) = (latest.late, later(latest.late));
        }
        let between = (low * latest.late).sqrt();
        (latest, between)
    };
    let less = with(next);
    if leaves_time(&less.predicted) { less } else { most }
}

/// Returns, for each flow, whether it exceeds its limit.
fn late<'m>(model: &'m Model, predicted: &'m Predicted) -> impl Iterator<Item = bool> + 'm {
    let flows = model.flows().iter().zip(&predicted.delays);
    flows.map(|(flow, delay)| delay.is_some_and(|delay| delay > flow.slo))
}

/// Returns whether workers can process all packets if no packet waits for a batch, and are then busy for at most the
/// fraction `busy` of their time. Batches at ports count as full, because a worker that is behind finds large batches
/// there.
pub(super) fn carries(layout: &Layout, model: &Model, arrivals: &Arrivals, busy: f64) -> bool {
    let full = |(of, module): (&forebay_protocol::ModuleLayout, &Module)| {
        let ingress = if of.entry { model.largest() } else { module.ingress };
        Module { ingress, ..*module }
    };
    let modules = layout.modules.iter().zip(model.modules()).map(full).collect();
    let full = Model::new(modules, model.flows().to_vec(), model.largest()).expect("the parts come from a valid model");
    let full = full.with_rates(model.rates().iter().copied());
    busiest(layout, &full, &full.predict(arrivals, &vec![0; layout.modules.len()])) <= busy
}

/// Returns the triggers, reduced to multiples of the number of packets that always arrive together. Any other trigger
/// makes packets wait for the next group. A smaller trigger costs one more call, but no packet waits for the rest of
/// its group. Configured triggers do not change.
fn whole_arrivals(model: &Model, arrivals: &Arrivals, triggers: &[usize]) -> Vec<usize> {
    let (mut fewer, mut batches) = (triggers.to_vec(), vec![1.0; triggers.len()]);
    for (at, trigger) in fewer.iter_mut().enumerate() {
        let arrives = match arrivals.before[at] {
            Some(before) => (arrivals.kept[at] * batches[before]).clamp(1.0, model.largest()),
            None => model.modules()[at].ingress,
        };
        let (together, stated) = (arrives.round(), arrivals.stated[at]);
        if stated == 0 && *trigger > 0 && together >= 2.0 && (arrives - together).abs() <= ALWAYS {
            *trigger -= *trigger % together as usize;
            if *trigger as f64 <= arrives {
                *trigger = 0;
            }
        }
        batches[at] = arrives.max(stated.max(*trigger) as f64);
    }
    fewer
}

#[cfg(test)]
mod tests {
    use forebay_models::batching::Line;

    use super::*;
    use crate::testing::{flow, layout};

    /// Regression test: while more packets arrived than a worker can process, the lateness grew fourfold each period,
    /// and took as long to fall again.
    #[test]
    fn lateness_is_limited_however_long_the_overload_lasts() {
        let cost = Line { fixed: 1e-6, each: 1e-7 };
        for (slo, most) in [(1e-3, LATEST), (1e-9, HOPELESS)] {
            let layout = layout(Vec::new(), vec![flow("f", &[0], Some(slo))]);
            let module = Module { cpu: cost, delay: cost, ingress: 1.0 };
            let model = Model::new(vec![module], vec![Flow { path: vec![0], rate: 1e6, slo }], 32.0).expect("a model");
            let arrivals = Arrivals {
                before: vec![None],
                kept: vec![1.0],
                buffers: vec![1.0],
                stated: vec![0],
                held: 0.0,
                again: 0.0,
            };
            let last = (0..600).fold(0.0, |last, _| relieve(&layout, &model, &arrivals, last, |_| false).late);
            assert_eq!(last, most, "an objective of {slo} s");
        }
    }
}

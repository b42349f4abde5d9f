//! Which triggers are best, where objectives leave workers time and where they do not.

use forebay_graph::Layout;
use forebay_models::batching::waiting::{Arrivals, Predicted};
use forebay_models::batching::{Flow, Model, Module};

use crate::outlook::busiest;

/// The most that flows may be late where objectives leave a worker no time, in parts of their objectives; what is tried first; and what
/// is tried where as much as before is enough.
const LATEST: f64 = 1.0;
const FIRST: f64 = 0.125;
const LESS: f64 = 0.8;
/// How much later those may be that are late whatever triggers are, where that is not enough; and by how much more at a time.
const HOPELESS: f64 = 1024.0;
const MORE: f64 = 4.0;

/// How near to a whole number packets that come together are, where it is always so many.
const ALWAYS: f64 = 0.05;

/// Triggers, and what they lead to.
pub(super) struct Solution {
    pub(super) triggers: Vec<usize>,
    pub(super) predicted: Predicted,
    /// By how much of their objectives flows may be above them.
    pub(super) late: f64,
}

/// The least load within all objectives.
pub(super) fn solve(model: &Model, arrivals: &Arrivals) -> Solution {
    let solution =
        |triggers: Vec<usize>| Solution { predicted: model.predict(arrivals, &triggers), triggers, late: 0.0 };
    let best = solution(model.best_triggers(arrivals));
    let whole = whole_arrivals(model, arrivals, &best.triggers);
    if whole == best.triggers {
        return best;
    }
    let whole = solution(whole);
    // A smaller batch at one module is less that comes to those behind it.
    let delays = best.predicted.delays.iter().zip(&whole.predicted.delays);
    let kept = |(flow, (was, is)): (&Flow, (&Option<f64>, &Option<f64>))| {
        is.is_none_or(|is| is <= was.unwrap_or(0.0).max(flow.slo))
    };
    if model.flows().iter().zip(delays).all(kept) { whole } else { best }
}

/// Triggers that leave a worker time, where those that keep all objectives do not: packets that come while it is busy all the time
/// queue without end, which is later than any batch. All flows are late by the same part of their objectives: a little less than it was
/// last where that will do, or between that and the most, so that the least that will do is come to within a few periods. Where the most
/// will not do, those are later that are late even if they wait for no batch.
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
        let longer = layout.flows.iter().zip(model.flows()).zip(&lost).map(|((flow, told), lost)| {
            let part = if *lost { late } else { late.min(LATEST) };
            Flow { slo: told.slo + part * flow.slo_s.unwrap_or(0.0), ..told.clone() }
        });
        let longer = Model::new(model.modules().to_vec(), longer.collect(), model.largest()).expect("of a model");
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

/// By flow: whether it is above what it may take.
fn late<'m>(model: &'m Model, predicted: &'m Predicted) -> impl Iterator<Item = bool> + 'm {
    let flows = model.flows().iter().zip(&predicted.delays);
    flows.map(|(flow, delay)| delay.is_some_and(|delay| delay > flow.slo))
}

/// Whether workers that are busy for so much of their time at most can do all that comes with no packet waiting: who is behind finds large
/// batches at its ports.
pub(super) fn carries(layout: &Layout, model: &Model, arrivals: &Arrivals, busy: f64) -> bool {
    let full = |(of, module): (&forebay_graph::ModuleLayout, &Module)| {
        let ingress = if of.entry { model.largest() } else { module.ingress };
        Module { ingress, ..*module }
    };
    let modules = layout.modules.iter().zip(model.modules()).map(full).collect();
    let full = Model::new(modules, model.flows().to_vec(), model.largest()).expect("of a model");
    let full = full.with_rates(model.rates().iter().copied());
    busiest(layout, &full, &full.predict(arrivals, &vec![0; layout.modules.len()])) <= busy
}

/// Where packets come so many at a time, and always so many, a trigger that is no multiple of that waits for more than it takes: a
/// smaller one costs a call more, and keeps nobody waiting for the rest of what came together.
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

    /// While more came than a worker can do, flows were to be four times as late each period, and it took as many again until they were
    /// not.
    #[test]
    fn flows_are_late_by_so_much_at_most_however_long_there_is_no_time() {
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

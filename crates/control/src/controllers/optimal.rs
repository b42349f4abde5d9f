//! `optimal`: the least load within all objectives, each period from the present snapshot.

use forebay_graph::{Actions, Controller, DeclareController, Layout, SetupError, Snapshot, Unkept, Why, register};
use forebay_models::batching::waiting::{Arrivals, Predicted};
use forebay_models::batching::{Flow, Model};

use super::{NoParams, set_buffers};
use crate::outlook::{Outlook, busiest, queues};

/// By how much less load triggers are changed at all: a steady load has a steady control.
const WORTH: f64 = 0.02;

/// The rate up to which no packets come to a module, in packets a second: that of flows that are only kept in mind.
const IDLE: f64 = 1.0;

/// The share of its time from which on a worker may have had more to do than it did; what is believed of a period; the most that
/// may be learnt.
const FULL: f64 = 0.98;
const LEARN: f64 = 0.25;
const MOST_STRAINED: f64 = 2.0;

/// The most that flows may be late where objectives leave a worker no time, in parts of their objectives; what is tried first; what
/// is tried where as much as before is enough; and by how much more than the least that was found it may be.
const LATEST: f64 = 1.0;
const FIRST: f64 = 0.125;
const LESS: f64 = 0.8;
const LENIENT: f64 = 0.25;

/// The part of the reserve that present triggers may touch before they are changed.
const TOUCHED: f64 = 0.5;

/// How near to a whole number packets that come together are, where it is always so many.
const ALWAYS: f64 = 0.02;

/// Solves the model to its optimum.
#[derive(Default)]
pub(crate) struct Optimal {
    outlook: Outlook,
    strain: Strain,
    /// By how much flows were to be late last, in parts of their objectives.
    late: f64,
}

impl Controller for Optimal {
    fn decide(&mut self, layout: &Layout, snapshot: &Snapshot, guard: f64, actions: &mut Actions) {
        let (model, arrivals) = self.outlook.model(layout, snapshot, guard);
        if self.outlook.asks(snapshot) {
            return;
        }
        let present: Vec<usize> = snapshot.modules.iter().map(|module| module.trigger).collect();
        let now = model.predict(&arrivals, &present);
        let spare = self.strain.learn(snapshot, busiest(layout, &model, &now), guard);
        let leaves_time = |predicted: &Predicted| !queues(snapshot) || busiest(layout, &model, predicted) <= spare;
        let mut plan = solve(&model, &arrivals);
        if !leaves_time(&plan.predicted) {
            plan = relieve(layout, &model, &arrivals, self.late, leaves_time);
        }
        self.late = plan.late;
        // What has been relieved is as much too late as it has to be, and a little more makes no difference; what keeps objectives by a
        // little less than the reserve keeps them: a steady load has a steady control.
        let enough = plan.late * (1.0 + LENIENT) + TOUCHED * guard;
        let stays = lateness(layout, &model, &now) <= enough
            && leaves_time(&now)
            && (now.load <= plan.predicted.load * (1.0 + WORTH) || plan.late > 0.0);
        self.tell_unkept(layout, &model, &plan.predicted, actions);
        let (best, then) = if stays { (present, now) } else { (plan.triggers, plan.predicted) };
        let holds = model.holds(&arrivals, &best);
        let idle = |at: usize| model.rates()[at] <= IDLE;
        set_buffers(layout, snapshot, actions, |at| {
            (best[at], Some(holds[at]), if idle(at) { Why::Idle } else { Why::Optimum })
        });
        if !actions.changes.is_empty() {
            let nearest = nearest(layout, &model, &then.delays);
            actions.changes.iter_mut().for_each(|change| change.flow = nearest[change.module]);
        }
    }
}

impl Optimal {
    /// Tells the objectives that the best triggers do not keep. What present ones take of the reserve is none.
    fn tell_unkept(&self, layout: &Layout, model: &Model, best: &Predicted, actions: &mut Actions) {
        for (flow, delay) in best.delays.iter().enumerate() {
            let Some(slo_s) = layout.flows[flow].slo_s else { continue };
            if let Some(delay) = delay.filter(|delay| *delay > model.flows()[flow].slo) {
                let least_s = delay + self.outlook.rest(flow).unwrap_or(0.0);
                actions.unkept.push(Unkept { flow, least_s, slo_s });
            }
        }
    }
}

/// By module: the flow through it that is nearest to its objective, where one has any.
fn nearest(layout: &Layout, model: &Model, delays: &[Option<f64>]) -> Vec<Option<usize>> {
    let mut nearest: Vec<(f64, Option<usize>)> = vec![(0.0, None); layout.modules.len()];
    for (flow, (told, delay)) in model.flows().iter().zip(delays).enumerate() {
        let part = delay.unwrap_or(0.0) / told.slo;
        for &at in told.path.iter().filter(|_| layout.flows[flow].slo_s.is_some()) {
            if part > nearest[at].0 {
                nearest[at] = (part, Some(flow));
            }
        }
    }
    nearest.into_iter().map(|(_, flow)| flow).collect()
}

/// How much busier workers are than the model says: batches that irregular arrivals and hold limits keep from becoming whole.
struct Strain(f64);

impl Default for Strain {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Strain {
    /// Learns from a period in which the worker with the most to do was to be busy for this share of the time; how busy the model may
    /// say that one is, with a part of the time in reserve.
    fn learn(&mut self, snapshot: &Snapshot, predicted: f64, guard: f64) -> f64 {
        let busy = snapshot.workers.iter().map(|worker| worker.busy_s / snapshot.period_s).fold(0.0, f64::max);
        if predicted > 0.0 {
            let seen = (busy / predicted).clamp(1.0, MOST_STRAINED);
            // Whoever is busy all the time may be as much too slow again.
            self.0 = if busy < FULL { self.0 + LEARN * (seen - self.0) } else { self.0.max(seen) };
        }
        (1.0 - guard) / self.0
    }
}

/// Triggers, and what they lead to.
struct Solved {
    triggers: Vec<usize>,
    predicted: Predicted,
    /// By how much of their objectives flows may be above them.
    late: f64,
}

fn solve(model: &Model, arrivals: &Arrivals) -> Solved {
    let mut triggers = model.best_triggers(arrivals);
    whole_arrivals(model, arrivals, &mut triggers);
    let predicted = model.predict(arrivals, &triggers);
    Solved { triggers, predicted, late: 0.0 }
}

/// By how much of its objective the latest flow is above what it may take.
fn lateness(layout: &Layout, model: &Model, predicted: &Predicted) -> f64 {
    let late =
        |(flow, delay): (usize, &Option<f64>)| Some(((*delay)? - model.flows()[flow].slo) / layout.flows[flow].slo_s?);
    predicted.delays.iter().enumerate().filter_map(late).fold(0.0, f64::max)
}

/// Triggers that leave a worker time, where those that keep all objectives do not: packets that come while it is busy all the time
/// queue without end, which is later than any batch. All flows are late by the same part of their objectives: a little less than it was
/// last where that will do, or between that and the most, so that the least that will do is come to within a few periods.
fn relieve(
    layout: &Layout,
    model: &Model,
    arrivals: &Arrivals,
    last: f64,
    leaves_time: impl Fn(&Predicted) -> bool,
) -> Solved {
    let with = |late: f64| {
        let longer = layout.flows.iter().zip(model.flows());
        let flows =
            longer.map(|(flow, told)| Flow { slo: told.slo + late * flow.slo_s.unwrap_or(0.0), ..told.clone() });
        let longer = Model::new(model.modules().to_vec(), flows.collect(), model.largest());
        Solved { late, ..solve(&longer.expect("of a model").with_turn(model.turn()), arrivals) }
    };
    let first = with(if last > 0.0 { last } else { FIRST });
    let (most, next) = if leaves_time(&first.predicted) {
        let less = first.late * LESS;
        (first, less)
    } else {
        let latest = with(LATEST);
        if !leaves_time(&latest.predicted) {
            return latest;
        }
        (latest, (first.late * LATEST).sqrt())
    };
    let less = with(next);
    if leaves_time(&less.predicted) { less } else { most }
}

/// Where packets come so many at a time, and always so many, a trigger that is no multiple of that waits for more than it takes: a
/// smaller one costs a call more, and keeps nobody waiting for the rest of what came together.
fn whole_arrivals(model: &Model, arrivals: &Arrivals, triggers: &mut [usize]) {
    let batches = model.predict(arrivals, triggers).batches;
    for (at, trigger) in triggers.iter_mut().enumerate() {
        let arrives = match arrivals.before[at] {
            Some(before) => arrivals.kept[at] * batches[before],
            None => model.modules()[at].ingress,
        };
        let together = arrives.round();
        if *trigger > 0 && together >= 2.0 && (arrives - together).abs() <= ALWAYS * together {
            *trigger -= *trigger % together as usize;
        }
    }
}

impl DeclareController for Optimal {
    type Params = NoParams;
    const NAME: &'static str = "optimal";
    const SUMMARY: &'static str = "the least load within all delay objectives, solved each period";
    const HELP: &'static str = "Waits for batches where that saves most, as long as every flow keeps its objective.";
    const EXAMPLE: &'static str = "{}";

    fn new(_: NoParams) -> Result<Self, SetupError> {
        Ok(Self::default())
    }
}

register!(controller Optimal);

//! `optimal`: the least load within all objectives, each period from the present snapshot.

use forebay_graph::{
    Actions, Controller, DeclareController, Layout, SetupError, Snapshot, Unkept, UnkeptCause, Why, register,
};
use forebay_models::batching::Model;
use forebay_models::batching::waiting::{Arrivals, Predicted};

use super::{NoParams, set_buffers};
use crate::outlook::{Outlook, busiest};
use crate::period::{delays, full, queues, rate};

mod bare;
mod solution;

use bare::Bare;
use solution::{Solution, carries, relieve, solve};

/// By how much less load triggers are changed at all: a steady load has a steady control.
const WORTH: f64 = 0.02;

/// The rate up to which no packets come to a module, in packets a second: that of flows that are only kept in mind.
const IDLE: f64 = 1.0;

/// What is believed of a period; the most that may be learnt.
const LEARN: f64 = 0.25;
const MOST_STRAINED: f64 = 2.0;

/// The part of its time that a worker is to have in reserve.
const IN_RESERVE: f64 = 0.05;

/// By how much later than need be flows that are late may be, in parts of that.
const LENIENT: f64 = 0.25;

/// The part of the reserve that present triggers may touch before they are changed.
const TOUCHED: f64 = 0.5;

/// Solves the model to its optimum.
#[derive(Default)]
pub(crate) struct Optimal {
    outlook: Outlook,
    strain: Strain,
    /// By how much flows were to be late last, in parts of their objectives.
    late: f64,
    bare: Bare,
}

impl Controller for Optimal {
    fn decide(&mut self, layout: &Layout, snapshot: &Snapshot, guard: f64, actions: &mut Actions) {
        let stalled = self.outlook.learn(layout, snapshot);
        if self.outlook.asks(snapshot) {
            return;
        }
        let (model, arrivals) = self.outlook.model(layout, snapshot, guard);
        let present: Vec<usize> = snapshot.modules.iter().map(|module| module.trigger).collect();
        let now = model.predict(&arrivals, &present);
        let predicted = busiest(layout, &model, &now);
        let spare = self.strain.learn(snapshot, predicted, stalled);
        let leaves_time = |predicted: &Predicted| !queues(snapshot) || busiest(layout, &model, predicted) <= spare;
        let mut plan = solve(&model, &arrivals);
        if !leaves_time(&plan.predicted) {
            plan = relieve(layout, &model, &arrivals, self.late, leaves_time);
        }
        self.late = plan.late;
        let told = delays(layout, snapshot);
        let time = leaves_time(&plan.predicted);
        actions.unkept = self.unkept((layout, snapshot), (&model, &arrivals), (&plan, time), &told);
        let worst = layout
            .flows
            .iter()
            .zip(&told)
            .filter_map(|(flow, delay)| Some((*delay)? / flow.slo_s?))
            .fold(0.0, f64::max);
        let bare = self.bare.pass((worst, rate(snapshot)), !actions.unkept.is_empty(), || {
            carries(layout, &model, &arrivals, 1.0 - IN_RESERVE)
        });
        // What has been relieved is as much too late as it has to be, and a little more makes no difference; what keeps objectives by a
        // little less than the reserve keeps them: a steady load has a steady control.
        let enough = plan.late * (1.0 + LENIENT) + TOUCHED * guard;
        let stays = lateness(layout, &model, &now) <= enough
            && leaves_time(&now)
            && (now.load <= plan.predicted.load * (1.0 + WORTH) || plan.late > 0.0);
        let (best, then) = if bare {
            let none = vec![0; present.len()];
            let then = model.predict(&arrivals, &none);
            (none, then)
        } else if stays {
            (present, now)
        } else {
            (plan.triggers, plan.predicted)
        };
        let holds = model.holds(&arrivals, &best);
        let why = |at: usize| match bare {
            true => Why::Bare,
            false if model.rates()[at] <= IDLE => Why::Idle,
            false => Why::Optimum,
        };
        set_buffers(layout, snapshot, actions, |at| (best[at], Some(holds[at]), why(at)));
        if !actions.changes.is_empty() {
            let nearest = nearest(layout, &model, &then.delays);
            actions.changes.iter_mut().for_each(|change| change.flow = nearest[change.module]);
        }
    }
}

impl Optimal {
    /// The objectives that the best triggers do not keep, of flows that are late in fact; `time`: these leave workers time. What present
    /// ones take of the reserve is none.
    fn unkept(
        &self,
        (layout, snapshot): (&Layout, &Snapshot),
        (model, arrivals): (&Model, &Arrivals),
        (best, time): (&Solution, bool),
        told: &[Option<f64>],
    ) -> Vec<Unkept> {
        let late = |flow: &usize| {
            let (of, beyond) = (&layout.flows[*flow], model.flows()[*flow].slo);
            // Packets that have not left may be late as well.
            let waits = of.slo_s.is_some_and(|slo| snapshot.flows[*flow].packets == 0 && told[*flow] > Some(slo));
            (snapshot.flows[*flow].missed(of) || waits)
                && best.predicted.delays[*flow].is_some_and(|delay| !time || delay > beyond)
        };
        let late: Vec<usize> = (0..layout.flows.len()).filter(late).collect();
        if late.is_empty() {
            return Vec::new();
        }
        let none = model.predict(arrivals, &vec![0; model.modules().len()]);
        let unkept = |flow: usize| {
            let (slo_s, takes) = (layout.flows[flow].slo_s?, told[flow]?);
            let alone = none.delays[flow]? + self.outlook.rest(flow).unwrap_or(0.0);
            let stated = layout.flows[flow].path.iter().filter(|at| layout.modules[**at].fixed);
            let stated: f64 = stated.map(|at| snapshot.modules[*at].hold_s).sum();
            let (least_s, cause) = if stated > 0.0 && takes - stated <= slo_s {
                (takes, UnkeptCause::Stated)
            } else if none.delays[flow]? > model.flows()[flow].slo {
                (alone.min(takes), UnkeptCause::Slow)
            } else {
                (takes, if time { UnkeptCause::Time } else { UnkeptCause::Load })
            };
            Some(Unkept { flow, least_s, slo_s, cause })
        };
        late.into_iter().filter_map(unkept).collect()
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
    /// say that one is, with a part of the time in reserve. A time in which the machine was elsewhere teaches nothing.
    fn learn(&mut self, snapshot: &Snapshot, predicted: f64, stalled: bool) -> f64 {
        let busy = snapshot.workers.iter().map(|worker| worker.busy_s / snapshot.period_s).fold(0.0, f64::max);
        if predicted > 0.0 && !stalled {
            let seen = (busy / predicted).clamp(1.0, MOST_STRAINED);
            // Whoever is busy all the time may be as much too slow again.
            self.0 = if !snapshot.workers.iter().any(|worker| full(worker, snapshot)) {
                self.0 + LEARN * (seen - self.0)
            } else {
                self.0.max(seen)
            };
        }
        let there = snapshot.workers.iter().map(|worker| worker.there_s(snapshot.period_s) / snapshot.period_s);
        (1.0 - IN_RESERVE) / self.0 * there.fold(1.0, f64::min)
    }
}

/// By how much of its objective the latest flow is above what it may take.
fn lateness(layout: &Layout, model: &Model, predicted: &Predicted) -> f64 {
    let late =
        |(flow, delay): (usize, &Option<f64>)| Some(((*delay)? - model.flows()[flow].slo) / layout.flows[flow].slo_s?);
    predicted.delays.iter().enumerate().filter_map(late).fold(0.0, f64::max)
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

#[cfg(test)]
mod tests {
    use forebay_graph::snapshot::{DelaySnapshot, FlowSnapshot, ModuleSnapshot, WorkerSnapshot};

    use super::*;
    use crate::testing;

    /// The trigger after some periods in which packets come one by one, a packet a microsecond, and take this long at
    /// their percentile; `away`: what the machine took of the half of the time that turns of 3 ms are seen to have
    /// taken.
    fn trigger(
        delay_s: impl Fn(usize) -> f64,
        undisturbed_s: impl Fn(usize) -> Option<f64>,
        away: Option<f64>,
    ) -> usize {
        let layout = testing::layout(vec![testing::module("entry", &[])], vec![testing::flow("f", &[0], Some(200e-6))]);
        let (mut optimal, mut trigger) = (Optimal::default(), 0);
        for _ in 0..40 {
            let chosen = delay_s(trigger);
            let delay = DelaySnapshot { mean: chosen, p95: chosen, p99: chosen, chosen };
            let (packets, hold_s) = (100_000, if trigger > 0 { 200e-6 } else { 0.0 });
            let module = ModuleSnapshot {
                packets,
                came: packets,
                calls: packets / trigger.max(1) as u64,
                arrived: (packets, packets),
                trigger,
                hold_s,
                cost_s: (100e-9, 10e-9),
                ..ModuleSnapshot::default()
            };
            let violations = if chosen > 200e-6 { packets / 2 } else { 0 };
            let undisturbed_s = undisturbed_s(trigger);
            let flow =
                FlowSnapshot { packets, delay_s: Some(delay), violations, undisturbed_s, ..FlowSnapshot::default() };
            let mut worker = WorkerSnapshot { busy_s: 0.01, busy_turns: 100_000, away_s: away, ..<_>::default() };
            if delay_s(0) > 1e-3 {
                (worker.long_s, worker.long_turns[5]) = (0.05, 17);
            }
            let snapshot = Snapshot {
                period_s: 0.1,
                modules: vec![module],
                flows: vec![flow],
                workers: vec![worker],
                ..<_>::default()
            };
            let mut actions = Actions::default();
            optimal.decide(&layout, &snapshot, 0.05, &mut actions);
            actions.changes.iter().for_each(|change| trigger = change.to);
        }
        trigger
    }

    /// Beside a busy process on its core packets cost as much as with no controller: half of them were later than any
    /// batch makes them, and smaller batches were to mend it.
    #[test]
    fn what_the_machine_takes_makes_no_batch_smaller() {
        let own = |trigger: usize| 5e-6 + trigger as f64 * 1e-6;
        let alone = trigger(own, |_| None, Some(0.0));
        assert!(alone >= 30, "{alone}");
        let beside = trigger(|_| 3e-3, |trigger| Some(own(trigger)), Some(0.05));
        assert_eq!(beside, alone);
        let untold = trigger(|_| 3e-3, |_| None, None);
        assert!(untold < 8, "nobody tells whose doing it is: {untold}");
    }
}

//! `optimal`: the least load within all objectives, computed each period from the current snapshot.

use forebay_graph::{Controller, DeclareController, SetupError, register};
use forebay_models::batching::{
    Model,
    waiting::{Arrivals, Predicted},
};
use forebay_protocol::{ChangeReason, Decision, Layout, Snapshot, UnkeptCause, UnkeptObjective};

use super::{NoParams, set_buffers};
use crate::outlook::{Outlook, busiest};
use crate::period::{delays, full, queues, rate};

mod bare;
mod solution;

use bare::Bare;
use solution::{Solution, carries, relieve, solve};

/// The current triggers are kept if their load exceeds the least load by at most this fraction, and if they keep delays
/// as well as the best triggers do. A steady load thus has steady triggers.
const WORTH: f64 = 0.02;

/// A module counts as idle up to this rate, in packets per second. In the model, a flow without packets has a rate
/// below this one, but not 0.
const IDLE: f64 = 1.0;

/// The weight of the last period in the learnt [`Strain`].
const LEARN: f64 = 0.25;
/// The largest strain that is learnt.
const MOST_STRAINED: f64 = 2.0;

/// The share of a worker's time to keep in reserve.
const IN_RESERVE: f64 = 0.05;

/// The current triggers are kept if their [`lateness`] exceeds the smallest possible one by at most this fraction.
const LENIENT: f64 = 0.25;

/// The current triggers are kept if flows use at most this fraction of the reserve (`guard`) of their objectives.
const TOUCHED: f64 = 0.5;

/// Solves the model to its optimum.
#[derive(Default)]
pub(crate) struct Optimal {
    outlook: Outlook,
    strain: Strain,
    /// The planned lateness of flows in the last period, as a fraction of their objectives; 0 if none was planned.
    late: f64,
    /// Decides whether to run without any waiting for batches.
    bare: Bare,
}

impl Controller for Optimal {
    fn decide(&mut self, layout: &Layout, snapshot: &Snapshot, guard: f64, actions: &mut Decision) {
        let stalled = self.outlook.learn(layout, snapshot);
        // The cost of packets without holding must be measured first. All triggers are 0 now, and stay 0.
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
        let delays = delays(layout, snapshot);
        let time = leaves_time(&plan.predicted);
        actions.unkept = self.unkept((layout, snapshot), (&model, &arrivals), (&plan, time), &delays);
        let worst = layout
            .flows
            .iter()
            .zip(&delays)
            .filter_map(|(flow, delay)| Some((*delay)? / flow.slo_s?))
            .fold(0.0, f64::max);
        let bare = self.bare.pass((worst, rate(snapshot)), !actions.unkept.is_empty(), || {
            carries(layout, &model, &arrivals, 1.0 - IN_RESERVE)
        });
        // The current triggers are kept if flows are at most slightly later than necessary. A flow that uses a part of
        // the reserve still keeps its objective. A steady load thus has steady triggers.
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
            true => ChangeReason::Bare,
            false if model.rates()[at] <= IDLE => ChangeReason::Idle,
            false => ChangeReason::Optimum,
        };
        set_buffers(layout, snapshot, actions, |at| (best[at], Some(holds[at]), why(at)));
        if !actions.changes.is_empty() {
            let nearest = nearest(layout, &model, &then.delays);
            actions.changes.iter_mut().for_each(|change| change.flow = nearest[change.module]);
        }
    }
}

impl Optimal {
    /// Returns the objectives that the best triggers do not keep, with the causes. Only flows that are actually late
    /// are reported. `time` is true if the best triggers leave workers enough time. `delays` are the measured delays by
    /// flow, in seconds.
    fn unkept(
        &self,
        (layout, snapshot): (&Layout, &Snapshot),
        (model, arrivals): (&Model, &Arrivals),
        (best, time): (&Solution, bool),
        delays: &[Option<f64>],
    ) -> Vec<UnkeptObjective> {
        let late = |flow: &usize| {
            let (of, beyond) = (&layout.flows[*flow], model.flows()[*flow].slo);
            // Packets that have not departed may be late as well.
            let waits = of.slo_s.is_some_and(|slo| snapshot.flows[*flow].packets == 0 && delays[*flow] > Some(slo));
            (snapshot.flows[*flow].missed(of) || waits)
                && best.predicted.delays[*flow].is_some_and(|delay| !time || delay > beyond)
        };
        let late: Vec<usize> = (0..layout.flows.len()).filter(late).collect();
        if late.is_empty() {
            return Vec::new();
        }
        let none = model.predict(arrivals, &vec![0; model.modules().len()]);
        let unkept = |flow: usize| {
            let (slo_s, takes) = (layout.flows[flow].slo_s?, delays[flow]?);
            let alone = none.delays[flow]? + self.outlook.residual(flow).unwrap_or(0.0);
            let stated = layout.flows[flow].path.iter().filter(|at| layout.modules[**at].fixed);
            let stated: f64 = stated.map(|at| snapshot.modules[*at].hold_s).sum();
            let (least_s, cause) = if stated > 0.0 && takes - stated <= slo_s {
                (takes, UnkeptCause::Stated)
            } else if none.delays[flow]? > model.flows()[flow].slo {
                (alone.min(takes), UnkeptCause::Slow)
            } else {
                (takes, if time { UnkeptCause::Time } else { UnkeptCause::Load })
            };
            Some(UnkeptObjective { flow, least_s, slo_s, cause })
        };
        late.into_iter().filter_map(unkept).collect()
    }
}

/// Returns, for each module, the flow through the module whose delay is the largest fraction of the flow's objective.
/// Returns `None` for a module if no flow through it has an objective. `delays` are the predicted delays by flow, in
/// seconds.
fn nearest(layout: &Layout, model: &Model, delays: &[Option<f64>]) -> Vec<Option<usize>> {
    let mut nearest: Vec<(f64, Option<usize>)> = vec![(0.0, None); layout.modules.len()];
    for (flow, (of, delay)) in model.flows().iter().zip(delays).enumerate() {
        let part = delay.unwrap_or(0.0) / of.slo;
        for &at in of.path.iter().filter(|_| layout.flows[flow].slo_s.is_some()) {
            if part > nearest[at].0 {
                nearest[at] = (part, Some(flow));
            }
        }
    }
    nearest.into_iter().map(|(_, flow)| flow).collect()
}

/// The factor by which workers are busier than the model predicts, at least 1. Irregular arrivals and hold limits keep
/// batches from becoming full.
struct Strain(f64);

impl Default for Strain {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Strain {
    /// Learns from a period for which the model predicts the load `predicted` of the busiest worker. A period in which
    /// the machine stalled is ignored. Returns the largest predicted load with which the real load still leaves the
    /// reserve, `IN_RESERVE`.
    fn learn(&mut self, snapshot: &Snapshot, predicted: f64, stalled: bool) -> f64 {
        let busy = snapshot.workers.iter().map(|worker| worker.busy_s / snapshot.period_s).fold(0.0, f64::max);
        if predicted > 0.0 && !stalled {
            let seen = (busy / predicted).clamp(1.0, MOST_STRAINED);
            // A worker that is busy all the time may need much more time than it has, and its load does not show how
            // much. So the strain does not decrease then.
            self.0 = if !snapshot.workers.iter().any(|worker| full(worker, snapshot)) {
                self.0 + LEARN * (seen - self.0)
            } else {
                self.0.max(seen)
            };
        }
        let available = snapshot.workers.iter().map(|worker| worker.there_s(snapshot.period_s) / snapshot.period_s);
        (1.0 - IN_RESERVE) / self.0 * available.fold(1.0, f64::min)
    }
}

/// Returns the largest excess of a flow's predicted delay over its limit, as a fraction of the flow's objective; 0 if
/// no flow exceeds its limit.
fn lateness(layout: &Layout, model: &Model, predicted: &Predicted) -> f64 {
    let late =
        |(flow, delay): (usize, &Option<f64>)| Some(((*delay)? - model.flows()[flow].slo) / layout.flows[flow].slo_s?);
    predicted.delays.iter().enumerate().filter_map(late).fold(0.0, f64::max)
}

impl DeclareController for Optimal {
    type Params = NoParams;
    const NAME: &'static str = "optimal";
    const SUMMARY: &'static str = "the least load within all delay objectives, solved each period";
    const HELP: &'static str =
        "Modules wait for batches where waiting saves the most, as long as every flow keeps its delay objective.";
    const EXAMPLE: &'static str = "{}";

    fn new(_: NoParams) -> Result<Self, SetupError> {
        Ok(Self::default())
    }
}

register!(controller Optimal);

#[cfg(test)]
mod tests {
    use forebay_protocol::snapshot::{DelaySnapshot, FlowSnapshot, ModuleSnapshot, WorkerSnapshot};

    use super::*;
    use crate::testing;

    /// Returns the trigger after 40 periods in which packets arrive one by one, one per microsecond. `delay_s` returns
    /// their delay at the percentile for a trigger. If it is above 1 ms, long turns of 3 ms seem to have taken half of
    /// the period; `away` is the part of this time, in seconds, that the machine took according to the system.
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
            let mut actions = Decision::default();
            optimal.decide(&layout, &snapshot, 0.05, &mut actions);
            actions.changes.iter().for_each(|change| trigger = change.to);
        }
        trigger
    }

    /// Regression test: on a core shared with a busy process, a packet cost as much as without a controller. Half of
    /// the packets were later than any batch makes them, and the controller reduced batches without effect.
    #[test]
    fn time_taken_by_the_machine_makes_no_batch_smaller() {
        let own = |trigger: usize| 5e-6 + trigger as f64 * 1e-6;
        let alone = trigger(own, |_| None, Some(0.0));
        assert!(alone >= 30, "{alone}");
        let beside = trigger(|_| 3e-3, |trigger| Some(own(trigger)), Some(0.05));
        assert_eq!(beside, alone);
        let unreported = trigger(|_| 3e-3, |_| None, None);
        assert!(unreported < 8, "the cause is unknown: {unreported}");
    }
}

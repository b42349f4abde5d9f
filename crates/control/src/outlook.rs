//! Builds the batch model of the next period from a snapshot.
//!
//! A packet's delay consists of its waits for batches, the calls on its path, and the residual: waits for a turn and in
//! queues at ports. The residual cannot be chosen; it is [learnt](Learning).

use forebay_models::batching::{
    Flow, Line, Model, Module,
    waiting::{Arrivals, Predicted},
};
use forebay_protocol::{
    Layout, Snapshot,
    snapshot::{ModuleSnapshot, WorkerSnapshot},
};

use crate::holding::Holding;
use crate::learning::Learning;
use crate::period::stalled;

/// The assumed rate of a flow without packets, in packets per second. It is not 0, because the flow's objective applies
/// to its next packet.
const SLOWEST: f64 = 1e-3;
/// The largest number of successive periods spent on measuring the cost of packets without holding.
const ASKED: u32 = 8;
/// The limit that the model gets for a flow, in seconds, if no time remains for waits and calls.
const SHORTEST_S: f64 = 1e-12;

/// Builds models of the next period.
#[derive(Clone, Debug, Default)]
pub struct Outlook {
    learning: Learning,
    holding: Holding,
    /// The number of successive periods in which the cost without holding was to be measured.
    asked: u32,
}

/// Returns the number of packets that arrive at once at each module.
fn arrivals(layout: &Layout, snapshot: &Snapshot) -> Vec<f64> {
    (0..layout.modules.len()).map(|at| ingress(layout, snapshot, at)).collect()
}

/// Returns the number of packets that arrive at once at a module.
///
/// At a module behind a port, packets that came together only because they waited for a turn are not counted. Their
/// number depends on the length of turns, and so on the triggers: triggers that were chosen from it would change it
/// again. The number is calculated from the mean wait at ports: packets that arrive evenly wait half a turn on average.
fn ingress(layout: &Layout, snapshot: &Snapshot, at: usize) -> f64 {
    let (module, of) = (&snapshot.modules[at], &layout.modules[at]);
    let waits = of.workers.iter().filter_map(|worker| Some(snapshot.workers[*worker].port_wait_s?.mean));
    let gathered = match of.entry {
        true => {
            2.0 * waits.fold(0.0, f64::max) * module.came as f64 / snapshot.period_s / of.workers.len().max(1) as f64
        }
        false => 0.0,
    };
    (module.ingress().unwrap_or(1.0) - gathered).clamp(1.0, layout.batch as f64)
}

/// Returns the modules of the model. `arrives` is, by module, the number of packets that arrive at once.
fn modules(snapshot: &Snapshot, arrives: &[f64]) -> Vec<Module> {
    let module = |(module, arrives): (&ModuleSnapshot, &f64)| {
        let cost = Line { fixed: module.cost_s.0, each: module.cost_s.1 };
        Module { cpu: cost, delay: cost, ingress: *arrives }
    };
    snapshot.modules.iter().zip(arrives).map(module).collect()
}

/// Returns the packets per second that arrived at each module, from all flows.
fn rates(snapshot: &Snapshot) -> impl Iterator<Item = f64> {
    snapshot.modules.iter().map(|module| module.came as f64 / snapshot.period_s)
}

/// Returns a flow without a delay limit.
fn flow(layout: &Layout, snapshot: &Snapshot, at: usize) -> Flow {
    let rate = snapshot.flows[at].packets as f64 / snapshot.period_s;
    Flow { path: layout.flows[at].path.clone(), rate: rate.max(SLOWEST), slo: f64::INFINITY }
}

/// Returns the time, in seconds, that waits and calls may take for the packet that waits longest. `remaining` is the
/// time that they may take at the flow's percentile, or on average if the objective is a mean. A mean includes half of
/// the longest wait and all of the calls. For a mean, the result is therefore twice `remaining`, less the time of the
/// calls with the largest batches.
fn longest_within(layout: &Layout, snapshot: &Snapshot, at: usize, remaining: f64) -> f64 {
    let of = &layout.flows[at];
    let longest = of.percentile.longest();
    if longest == 1.0 {
        return remaining;
    }
    let call = |at: &usize| snapshot.modules[*at].cost_s.0 + snapshot.modules[*at].cost_s.1 * layout.batch as f64;
    longest * remaining - (longest - 1.0) * of.path.iter().map(call).sum::<f64>()
}

/// Returns the predicted load of the busiest worker. Several workers share a module's load evenly.
pub(crate) fn busiest(layout: &Layout, model: &Model, predicted: &Predicted) -> f64 {
    let mut loads = vec![0.0; layout.workers];
    for (at, module) in layout.running() {
        let batch = predicted.batches[at];
        let load = model.rates()[at] / batch * model.modules()[at].cpu.at(batch);
        module.workers.iter().for_each(|worker| loads[*worker] += load / module.workers.len() as f64);
    }
    loads.into_iter().fold(0.0, f64::max)
}

impl Outlook {
    /// Learns from a period. Must be called once per period, before [`model`](Self::model). Returns whether the machine
    /// stalled in the period.
    pub fn learn(&mut self, layout: &Layout, snapshot: &Snapshot) -> bool {
        let stalled = stalled(layout, snapshot);
        self.learning.pass(layout, snapshot, &arrivals(layout, snapshot), stalled);
        if !stalled {
            self.holding.learn(layout, snapshot);
        }
        stalled
    }

    /// Returns the model of the next period, and the arrivals at its modules. Rates, ingress batches and costs are
    /// those of this period. The limit of a flow is the time that remains for waits and calls: its objective without
    /// the part `guard` and without the residual delay.
    #[must_use]
    pub fn model(&self, layout: &Layout, snapshot: &Snapshot, guard: f64) -> (Model, Arrivals) {
        let arrives = arrivals(layout, snapshot);
        let flows = (0..layout.flows.len()).map(|at| {
            let slo = match layout.flows[at].slo_s {
                Some(slo) => {
                    let remaining = (1.0 - guard) * slo - self.learning.residual(at).unwrap_or(0.0);
                    longest_within(layout, snapshot, at, remaining).max(SHORTEST_S)
                }
                None => f64::INFINITY,
            };
            Flow { slo, ..flow(layout, snapshot, at) }
        });
        let flows = flows.collect();
        let model = Model::new(modules(snapshot, &arrives), flows, layout.batch as f64);
        let model = model.expect("a snapshot's figures are in order").with_turn(0.0).with_rates(rates(snapshot));
        let before = |at: usize| match layout.modules[at].before[..] {
            [before] if !layout.modules[at].entry => Some(before),
            _ => None,
        };
        let kept = |at: usize| {
            let batch = before(at).and_then(|before| snapshot.modules[before].batch());
            batch.map_or(1.0, |batch| (arrives[at] / batch).clamp(0.0, 1.0))
        };
        let stated = layout.modules.iter().zip(&snapshot.modules);
        let stated = stated.map(|(of, module)| if of.fixed { module.trigger } else { 0 });
        let modules = 0..layout.modules.len();
        let arrivals = Arrivals {
            before: modules.clone().map(before).collect(),
            kept: modules.map(kept).collect(),
            buffers: layout.modules.iter().map(|module| module.workers.len().max(1) as f64).collect(),
            stated: stated.collect(),
            held: self.holding.each(),
            again: self.holding.again(),
        };
        (model, arrivals)
    }

    /// Returns the model in the form of the paper (Batchy equations 11 to 13): objectives as declared, and the measured
    /// time of a turn.
    #[must_use]
    pub fn written(&self, layout: &Layout, snapshot: &Snapshot) -> Model {
        let turn = |worker: &WorkerSnapshot| worker.busy_s / worker.busy_turns.max(1) as f64;
        let turn = snapshot.workers.iter().map(turn).fold(0.0, f64::max);
        // In this model, a buffer adds the wait of its first packet, the longest one. `longest_delays` converts
        // measured delays in the same way, so the objective is converted, too.
        let slo = |flow: usize| {
            let of = &layout.flows[flow];
            of.slo_s.map_or(f64::INFINITY, |slo| slo * of.percentile.longest())
        };
        let flows = (0..layout.flows.len()).map(|at| Flow { slo: slo(at), ..flow(layout, snapshot, at) });
        let modules = modules(snapshot, &arrivals(layout, snapshot));
        let model = Model::new(modules, flows.collect(), layout.batch as f64);
        model.expect("a snapshot's figures are in order").with_turn(turn).with_rates(rates(snapshot))
    }

    /// Returns whether the cost of packets without holding must be measured before packets are held. Must be called
    /// once per period. The number of attempts is limited, because a machine that stalls in every period never shows
    /// the cost.
    pub(crate) fn asks(&mut self, snapshot: &Snapshot) -> bool {
        let asks = self.holding.asks(snapshot);
        self.asked = if asks { self.asked.saturating_add(1) } else { 0 };
        asks && self.asked <= ASKED
    }

    /// Returns the residual delay of a flow in seconds, if known.
    #[must_use]
    pub fn residual(&self, flow: usize) -> Option<f64> {
        self.learning.residual(flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: on a machine that stalled for a moment in every period, packets were never held.
    #[test]
    fn attempts_to_measure_the_base_cost_are_limited() {
        let layout = crate::testing::layout(Vec::new(), Vec::new());
        let mut worker = WorkerSnapshot { busy_s: 0.1, busy_turns: 10, ..WorkerSnapshot::default() };
        worker.long_turns[5] = 1;
        let snapshot = Snapshot { period_s: 0.1, workers: vec![worker], ..Snapshot::default() };
        let mut outlook = Outlook::default();
        let asks = (0..100).filter(|_| {
            outlook.learn(&layout, &snapshot);
            outlook.asks(&snapshot)
        });
        assert_eq!(asks.count(), ASKED as usize);
    }
}

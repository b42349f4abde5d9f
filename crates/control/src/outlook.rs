//! What a snapshot means for the next period, as the batch model takes it.
//!
//! A packet's delay is what it waits for batches, what the calls on its way take, and the rest: its wait for a turn, and in queues
//! at ports. The rest is nobody's to choose, and is [learnt](Learning).

use forebay_graph::snapshot::{ModuleSnapshot, WorkerSnapshot};
use forebay_graph::{Layout, Snapshot};
use forebay_models::batching::waiting::{Arrivals, Predicted};
use forebay_models::batching::{Flow, Line, Model, Module};

use crate::holding::Holding;
use crate::learning::Learning;
use crate::period::stalled;

/// The rate of a flow that no packets came of, in packets a second: its objective holds for the next one.
const SLOWEST: f64 = 1e-3;
/// For so many periods it is waited at most to see what packets cost that nobody holds.
const ASKED: u32 = 8;
/// The shortest time that a flow is given to the model, in seconds: one that has none left.
const NONE: f64 = 1e-12;

/// Makes models of what will be out of what was.
#[derive(Clone, Debug, Default)]
pub struct Outlook {
    learning: Learning,
    holding: Holding,
    /// For how many periods in a row it was asked what packets cost that nobody holds.
    asked: u32,
}

/// By module: packets that come to it together.
fn arrivals(layout: &Layout, snapshot: &Snapshot) -> Vec<f64> {
    (0..layout.modules.len()).map(|at| ingress(layout, snapshot, at)).collect()
}

/// Packets that come to a module together.
///
/// At a module behind a port those do not count that were there together only because they waited for a turn: how many that are
/// follows from how long turns take, and triggers that are chosen by it change it. Packets that come evenly wait half a turn in the
/// mean.
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

fn modules(snapshot: &Snapshot, arrives: &[f64]) -> Vec<Module> {
    let module = |(module, arrives): (&ModuleSnapshot, &f64)| {
        let cost = Line { fixed: module.cost_s.0, each: module.cost_s.1 };
        Module { cpu: cost, delay: cost, ingress: *arrives }
    };
    snapshot.modules.iter().zip(arrives).map(module).collect()
}

/// By module: packets a second that came to it, of whatever flow.
fn rates(snapshot: &Snapshot) -> impl Iterator<Item = f64> {
    snapshot.modules.iter().map(|module| module.came as f64 / snapshot.period_s)
}

/// A flow that may take for ever.
fn flow(layout: &Layout, snapshot: &Snapshot, at: usize) -> Flow {
    let rate = snapshot.flows[at].packets as f64 / snapshot.period_s;
    Flow { path: layout.flows[at].path.clone(), rate: rate.max(SLOWEST), slo: f64::INFINITY }
}

/// Returns how long the packet that waits longest for batches may take in waits and calls, if the flow's own
/// percentile, or its mean, may take `left`. A mean has half of the wait and all of the calls. Of the calls as much is left out as
/// the largest batches take.
fn longest_within(layout: &Layout, snapshot: &Snapshot, at: usize, left: f64) -> f64 {
    let of = &layout.flows[at];
    let longest = of.percentile.longest();
    if longest == 1.0 {
        return left;
    }
    let call = |at: &usize| snapshot.modules[*at].cost_s.0 + snapshot.modules[*at].cost_s.1 * layout.batch as f64;
    longest * left - (longest - 1.0) * of.path.iter().map(call).sum::<f64>()
}

/// The share of its time that the worker with the most to do is busy; a module of several workers is shared by them evenly.
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
    /// Learns from a period, once; whether the machine was elsewhere for long meanwhile.
    pub fn learn(&mut self, layout: &Layout, snapshot: &Snapshot) -> bool {
        let stalled = stalled(layout, snapshot);
        self.learning.pass(layout, snapshot, &arrivals(layout, snapshot), stalled);
        if !stalled {
            self.holding.learn(layout, snapshot);
        }
        stalled
    }

    /// The model of the next period: rates, ingress batches and costs as in this one; for each flow the time that waits and calls
    /// may take of its objective less `guard`.
    #[must_use]
    pub fn model(&self, layout: &Layout, snapshot: &Snapshot, guard: f64) -> (Model, Arrivals) {
        let arrives = arrivals(layout, snapshot);
        let flows = (0..layout.flows.len()).map(|at| {
            let slo = match layout.flows[at].slo_s {
                Some(slo) => {
                    let left = (1.0 - guard) * slo - self.learning.rest(at).unwrap_or(0.0);
                    longest_within(layout, snapshot, at, left).max(NONE)
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

    /// The model as the paper writes it (Batchy equations 11 to 13): objectives are as declared, and a turn takes what it does.
    #[must_use]
    pub fn written(&self, layout: &Layout, snapshot: &Snapshot) -> Model {
        let turn = |worker: &WorkerSnapshot| worker.busy_s / worker.busy_turns.max(1) as f64;
        let turn = snapshot.workers.iter().map(turn).fold(0.0, f64::max);
        // As measured delays are: what a buffer adds is told of the packet that waits longest.
        let slo = |flow: usize| {
            let of = &layout.flows[flow];
            of.slo_s.map_or(f64::INFINITY, |slo| slo * of.percentile.longest())
        };
        let flows = (0..layout.flows.len()).map(|at| Flow { slo: slo(at), ..flow(layout, snapshot, at) });
        let modules = modules(snapshot, &arrivals(layout, snapshot));
        let model = Model::new(modules, flows.collect(), layout.batch as f64);
        model.expect("a snapshot's figures are in order").with_turn(turn).with_rates(rates(snapshot))
    }

    /// Whether it is to be seen first what packets cost that nobody holds. A machine that is elsewhere in every period never shows it.
    pub(crate) fn asks(&mut self, snapshot: &Snapshot) -> bool {
        let asks = self.holding.asks(snapshot);
        self.asked = if asks { self.asked.saturating_add(1) } else { 0 };
        asks && self.asked <= ASKED
    }

    /// What packets of a flow take beside waits and calls, in seconds, as far as is known.
    #[must_use]
    pub fn rest(&self, flow: usize) -> Option<f64> {
        self.learning.rest(flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a machine that is elsewhere for a moment in every period nothing was ever held.
    #[test]
    fn what_no_period_shows_is_not_waited_for_for_ever() {
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

//! What flows' packets take beside waits for batches and calls: waits for a turn, and in queues at ports. It cannot be modelled where
//! machines and traffic are real; it is what is left of measured delays.
//!
//! What buffers had of a delay is between nothing and the sum of their hold limits. So is what is learnt of the rest: mostly that
//! buffers had what the model says. Where an objective was missed all the same, nothing is taken back for a while, and each further
//! time for twice as long: a steady load comes to a steady control.

use forebay_graph::snapshot::WorkerSnapshot;
use forebay_graph::{Layout, Snapshot};

use crate::outlook::ingress;

/// The part of an objective that queues at ports may take: beyond, packets cost too much, and larger batches are the cure.
const QUEUES: f64 = 0.5;
/// The part of an objective that the rest is presumed to take at most, before there are periods to say.
const PRESUMED: f64 = 0.1;
/// How much of what a period says is believed.
const LEARN: f64 = 0.5;
/// For how many periods nothing is taken back after an objective was missed for the first time.
const REMEMBERED: u32 = 8;
const LONGEST: u32 = 1 << 14;
/// A turn of at least so many seconds, and so many times longer than the longest that there should be, is the machine's doing.
const STALL_S: f64 = 100e-6;
const STALL_TURNS: f64 = 2.0;
/// Where the rate of all packets changes by more than this part it is other traffic: what was missed is forgotten.
const ANOTHER: f64 = 0.25;

/// What has been learnt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Learning {
    /// By flow: seconds beside waits and calls.
    rests: Vec<Option<f64>>,
    /// For how many periods nothing is taken back, and for how many it was the last time.
    kept: u32,
    kept_last: u32,
    /// Packets a second, when an objective was last missed.
    packets: f64,
}

/// What a period says of a flow.
struct Told {
    flow: usize,
    /// The most that the rest may be, in seconds; what the model says that buffers had of it, and what they may have had.
    most: f64,
    waits: f64,
    holds: f64,
    /// The most that is presumed where nothing is known.
    first: f64,
    /// Packets wait so long at ports that larger batches are the cure: what the rest is without that.
    overloaded: Option<f64>,
    missed: bool,
}

impl Learning {
    /// Learns from a period.
    pub(crate) fn pass(&mut self, layout: &Layout, snapshot: &Snapshot) {
        self.rests.resize(layout.flows.len(), None);
        let packets = snapshot.flows.iter().map(|flow| flow.packets).sum::<u64>() as f64 / snapshot.period_s;
        if (packets - self.packets).abs() > ANOTHER * self.packets {
            (self.kept, self.kept_last, self.packets) = (0, 0, packets);
        }
        let turn = full_turn(layout, snapshot);
        let stall = STALL_S.max(STALL_TURNS * turn);
        let stalled = snapshot.workers.iter().any(|worker| worker.had_turn_of(stall));
        let mut all: Vec<Told> = (0..layout.flows.len()).filter_map(|flow| tell(layout, snapshot, flow)).collect();
        // No trigger helps against a machine that is elsewhere, and none is to be blamed for it.
        all.iter_mut().for_each(|told| told.missed &= !stalled);
        // What no buffer had a part in is not to be mended here.
        if all.iter().any(|told| told.missed && told.overloaded.is_none() && told.holds > 0.0) {
            self.kept_last = (2 * self.kept_last).clamp(REMEMBERED, LONGEST);
            (self.kept, self.packets) = (self.kept_last, packets);
        } else {
            self.kept = self.kept.saturating_sub(1);
        }
        for told in all {
            let (most, least) = (told.most, (told.most - told.holds).max(0.0));
            let seen = (most - told.waits).clamp(least, most);
            // Nothing is known of what triggers do to turns that nobody has set yet.
            let known = self.rests[told.flow].unwrap_or_else(|| most.max(turn.min(told.first)));
            self.rests[told.flow] = Some(match told.overloaded {
                Some(without) => known.min(without),
                None if told.missed => known.max(seen),
                None if self.kept > 0 => known.max(least),
                None => known + LEARN * (seen - known),
            });
        }
    }

    /// What packets of a flow take beside waits and calls, in seconds, as far as is known.
    pub(crate) fn rest(&self, flow: usize) -> Option<f64> {
        self.rests.get(flow).copied().flatten()
    }
}

/// What the longest turn takes in which each module of a worker is called with the largest batch, in seconds (Batchy section 4.1).
fn full_turn(layout: &Layout, snapshot: &Snapshot) -> f64 {
    let call = |at: usize| snapshot.modules[at].cost_s.0 + snapshot.modules[at].cost_s.1 * layout.batch as f64;
    let turn = |worker: usize| {
        let on_it = layout.running().filter(|(_, module)| module.workers.contains(&worker));
        on_it.map(|(at, _)| call(at)).sum::<f64>()
    };
    (0..layout.workers).map(turn).fold(0.0, f64::max)
}

fn tell(layout: &Layout, snapshot: &Snapshot, flow: usize) -> Option<Told> {
    let (of, seen) = (&layout.flows[flow], &snapshot.flows[flow]);
    let (slo, delay) = (of.slo_s?, seen.delay_s?);
    let (mut holds, mut waits, mut calls, mut oldest) = (0.0, 0.0, 0.0, 0.0_f64);
    for &at in &of.path {
        let module = &snapshot.modules[at];
        calls += module.batch().map_or(0.0, |batch| module.cost_s.0 + module.cost_s.1 * batch);
        // The oldest packet that waits is a lower bound of its delay.
        oldest = oldest.max(module.oldest_s);
        if module.trigger > 0 && module.came > 0 {
            holds += module.hold_s;
            let missing = (module.trigger as f64 - ingress(layout, snapshot, at)).max(0.0);
            waits += (missing / module.came as f64 * snapshot.period_s).min(module.hold_s);
        }
    }
    let most = (delay.chosen.max(oldest) - calls).max(0.0);
    let (queues, turn) = at_ports(snapshot, of.percentile);
    // What packets wait at ports because they cost too much must not forbid what makes them cheaper.
    let overloaded = (queues > QUEUES * slo).then(|| (most - queues).max(turn));
    Some(Told { flow, most, waits, holds, first: PRESUMED * slo, overloaded, missed: seen.missed(of) })
}

/// What packets wait at ports, at about this percentile, and what a turn takes, in seconds: of the worker that they wait longest for.
fn at_ports(snapshot: &Snapshot, percentile: f64) -> (f64, f64) {
    let of_worker = |worker: &WorkerSnapshot| {
        let wait = worker.port_wait_s?;
        let wait = if percentile >= 99.0 {
            wait.p99
        } else if percentile >= 95.0 {
            wait.p95
        } else {
            wait.mean
        };
        Some((wait, worker.busy_s / worker.busy_turns.max(1) as f64))
    };
    snapshot.workers.iter().filter_map(of_worker).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default()
}

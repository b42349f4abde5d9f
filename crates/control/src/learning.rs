//! The residual delay of flows' packets: their delay without the waits for batches and without the calls. It consists
//! of waits for a turn and of waits in queues at ports. These waits cannot be modelled for real machines and traffic.
//! So the residual is learnt, as the measured delay minus the modelled parts.
//!
//! The part of a delay that comes from buffers is between 0 and the sum of their hold limits. The residual thus has an
//! upper and a lower bound. Between these bounds, it is the delay minus the calls and the modelled wait in buffers.
//! After an objective was missed, the residual is not reduced for some time as long as any flow is near its objective.
//! This time becomes longer with each further miss. A steady load thus has steady triggers.

use forebay_protocol::{Layout, Snapshot, snapshot::WorkerSnapshot};
use forebay_units::Percentile;

use crate::memory::Memory;
use crate::period::{chosen, full_turns, is_another, rate};

/// The fraction of an objective that the wait at ports may take if a worker's load is at least `BUSY`. A longer wait
/// shows that packets cost too much time and that larger batches are needed. The wait at ports is then not counted as
/// residual, although the queue remains for one more period. Exception: if a turn with the largest batches takes as
/// long as the wait, packets wait for turns, and the wait is counted.
const QUEUES: f64 = 0.5;
/// A worker's queues show that packets cost too much time only if its load is at least this fraction. If the load is
/// lower, packets queue because they arrive in bursts.
const BUSY: f64 = 0.9;
/// The largest fraction of an objective that the residual is assumed to take before any trigger is set.
const PRESUMED: f64 = 0.15;
/// The weight of the last period in a residual.
const LEARN: f64 = 0.5;
/// While a miss is remembered, residuals are reduced only if the delay of each flow is below this fraction of its
/// objective.
const EASY: f64 = 0.75;
/// The weight of a period in such a reduction is this number, divided by the number of periods for which the miss is
/// remembered.
const EASED: f64 = 1.0;

/// The learnt residual delays.
#[derive(Clone, Debug, Default)]
pub(crate) struct Learning {
    /// By flow: the residual delay in seconds. `None` until packets of a flow with an objective have departed.
    residuals: Vec<Option<f64>>,
    /// By module: its trigger in the last period.
    before: Vec<usize>,
    /// By worker: true if its load was at least `BUSY` in the last period.
    busy: Vec<bool>,
    /// The memory of missed objectives. As long as a miss is remembered, residuals are not reduced, or are reduced
    /// slowly.
    missed: Memory,
    /// The packets per second when an objective was last missed. With other traffic, the miss is forgotten.
    packets: f64,
}

/// The load of a worker.
struct WorkerLoad {
    /// The time of a turn with the largest batches, in seconds.
    full_turn: f64,
    /// True if the load was at least `BUSY` in this period or in the last one.
    busy: bool,
}

/// The figures of a flow in a period.
struct FlowSample {
    /// The number of the flow.
    flow: usize,
    /// The largest possible residual, in seconds: the delay without the calls.
    most: f64,
    /// The modelled wait in buffers, in seconds. It is a part of `most`.
    waits: f64,
    /// The largest possible wait in buffers, in seconds: the sum of the hold limits.
    holds: f64,
    /// The largest residual, in seconds, that is assumed without measurement if no trigger is set.
    first: f64,
    /// The residual without the wait at ports, in seconds, if this wait is so long that larger batches are needed
    /// (`QUEUES`). Otherwise `None`.
    overloaded: Option<f64>,
    /// The flow's delay, divided by its objective.
    part: f64,
    /// True if the flow missed its objective.
    missed: bool,
    /// True in the first period in which no trigger is set on the flow's path. Packets that departed in this period may
    /// have waited for the trigger that was removed.
    freed: bool,
}

impl Learning {
    /// Learns from a period. `arrives` is, by module, the number of packets that arrive at once. `stalled` is true if
    /// the machine stalled in the period (`period::stalled`). Must be called once per period.
    pub(crate) fn pass(&mut self, layout: &Layout, snapshot: &Snapshot, arrives: &[f64], stalled: bool) {
        self.residuals.resize(layout.flows.len(), None);
        let packets = rate(snapshot);
        if is_another(self.packets, packets) {
            (self.missed, self.packets) = (Memory::default(), packets);
        }
        let busy: Vec<bool> =
            snapshot.workers.iter().map(|worker| worker.busy_s >= BUSY * worker.there_s(snapshot.period_s)).collect();
        let loaded = |worker: usize| [&busy, &self.busy].iter().any(|busy| busy.get(worker) == Some(&true));
        let loads: Vec<WorkerLoad> = full_turns(layout, snapshot)
            .enumerate()
            .map(|(worker, full_turn)| WorkerLoad { full_turn, busy: loaded(worker) })
            .collect();
        let turn = loads.iter().map(|load| load.full_turn).fold(0.0, f64::max);
        let mut all: Vec<FlowSample> =
            (0..layout.flows.len()).filter_map(|flow| sample_of(layout, snapshot, arrives, &loads, flow)).collect();
        // If the machine stalled, triggers did not cause the miss and cannot prevent it.
        all.iter_mut().for_each(|flow| flow.missed &= !stalled);
        for sample in &mut all {
            let path = &layout.flows[sample.flow].path;
            let before = path.iter().any(|at| self.before.get(*at).is_some_and(|trigger| *trigger > 0));
            sample.freed = before && path.iter().all(|at| snapshot.modules[*at].trigger == 0);
        }
        self.busy = busy;
        self.before.clear();
        self.before.extend(snapshot.modules.iter().map(|module| module.trigger));
        if !stalled {
            self.missed.pass();
        }
        // A miss without buffers cannot be corrected by triggers.
        if all.iter().any(|flow| flow.missed && flow.overloaded.is_none() && flow.holds > 0.0) {
            self.missed.fails();
            self.packets = packets;
        }
        let kept = self.missed.lasts();
        let easy = all.iter().all(|flow| flow.part < EASY);
        for sample in all {
            let (most, least) = (sample.most, (sample.most - sample.holds).max(0.0));
            let seen = (most - sample.waits).clamp(least, most);
            // The effect of triggers on turns is unknown until the first trigger is set. Until then, the residual is
            // presumed to include one turn with the largest batches, up to `first`.
            let presumed = if sample.holds > 0.0 { 0.0 } else { turn.min(sample.first) };
            let known = self.residuals[sample.flow].unwrap_or(most);
            let learnt = match sample.overloaded {
                Some(without) => known.min(without),
                None if sample.freed => known,
                None if sample.missed => known.max(seen),
                None if kept && easy => (known + EASED / f64::from(self.missed.periods()) * (seen - known)).max(least),
                None if kept => known.max(least),
                None => known + LEARN * (seen - known),
            };
            self.residuals[sample.flow] = Some(learnt.max(presumed));
        }
    }

    /// Returns the residual delay of a flow in seconds, if known.
    pub(crate) fn residual(&self, flow: usize) -> Option<f64> {
        self.residuals.get(flow).copied().flatten()
    }
}

/// Returns the figures of a flow in a period. `arrives` and `loads` are by module and by worker. `None` if the flow has
/// no objective, or if none of its packets departed.
fn sample_of(
    layout: &Layout,
    snapshot: &Snapshot,
    arrives: &[f64],
    loads: &[WorkerLoad],
    flow: usize,
) -> Option<FlowSample> {
    let (of, seen) = (&layout.flows[flow], &snapshot.flows[flow]);
    let (slo, delay) = (of.slo_s?, seen.delay_s?);
    let (mut holds, mut waits, mut calls, mut oldest) = (0.0, 0.0, 0.0, 0.0_f64);
    for &at in &of.path {
        let module = &snapshot.modules[at];
        calls += module.batch().map_or(0.0, |batch| module.cost_s.0 + module.cost_s.1 * batch);
        // The age of the oldest waiting packet is a lower bound of its delay.
        oldest = oldest.max(module.oldest_s);
        if module.trigger > 0 && module.came > 0 {
            holds += module.hold_s;
            let missing = (module.trigger as f64 - arrives[at]).max(0.0);
            let buffers = layout.modules[at].workers.len().max(1) as f64;
            let longest = (missing * buffers / module.came as f64 * snapshot.period_s).min(module.hold_s);
            waits += longest / of.percentile.longest();
        }
    }
    let takes = chosen(seen, delay, oldest);
    let most = (takes - calls).max(0.0);
    let (queues, turn, full_turn, busy) = at_ports(snapshot, loads, of.percentile);
    // Larger batches make packets cheaper. If packets wait at ports because they cost too much time, this wait must not
    // prevent larger batches.
    let overloaded = (busy && queues > full_turn.max(QUEUES * slo)).then(|| (most - queues).max(turn));
    let part = takes / slo;
    Some(FlowSample {
        flow,
        most,
        waits,
        holds,
        first: PRESUMED * slo,
        overloaded,
        part,
        // Without the time that the machine took, the flow may have kept its objective.
        missed: seen.undisturbed_s.map_or_else(|| seen.missed(of), |takes| takes > slo),
        freed: false,
    })
}

/// Returns the figures of the worker with the longest wait at its ports: this wait at about the percentile, the time of
/// a turn, the time of a turn with the largest batches, and whether the worker is busy. Times are in seconds. If no
/// worker has packets that waited, all are 0 and false.
fn at_ports(snapshot: &Snapshot, loads: &[WorkerLoad], percentile: Percentile) -> (f64, f64, f64, bool) {
    let of_worker = |(worker, load): (&WorkerSnapshot, &WorkerLoad)| {
        let wait = worker.port_wait_s?;
        let wait = match percentile {
            Percentile::Of(99.0..) => wait.p99,
            Percentile::Of(95.0..) => wait.p95,
            Percentile::Of(_) | Percentile::Mean => wait.mean,
        };
        Some((wait, worker.busy_s / worker.busy_turns.max(1) as f64, load.full_turn, load.busy))
    };
    snapshot.workers.iter().zip(loads).filter_map(of_worker).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use forebay_protocol::snapshot::{DelaySnapshot, FlowSnapshot, ModuleSnapshot};

    use super::*;
    use crate::testing::{flow, layout, module};

    /// Returns a flow with an objective of 1 ms through a module that holds packets. The flow takes this part of its
    /// objective.
    fn period(part: f64) -> (Layout, Snapshot) {
        let layout = layout(vec![module("one", &[])], vec![flow("f", &[0], Some(1e-3))]);
        let delay = DelaySnapshot { mean: part * 1e-3, p95: part * 1e-3, p99: part * 1e-3, chosen: part * 1e-3 };
        let violations = if part > 1.0 { 1_000 } else { 0 };
        let snapshot = Snapshot {
            period_s: 0.01,
            modules: vec![ModuleSnapshot {
                packets: 1_000,
                came: 1_000,
                calls: 100,
                trigger: 10,
                hold_s: 1e-3,
                ..ModuleSnapshot::default()
            }],
            flows: vec![FlowSnapshot { packets: 1_000, delay_s: Some(delay), violations, ..FlowSnapshot::default() }],
            ..Snapshot::default()
        };
        (layout, snapshot)
    }

    /// Regression test: packets that had waited for a trigger when it was removed made their flow seem slow without it.
    /// They were never held again.
    #[test]
    fn waits_for_a_removed_trigger_are_not_residual() {
        let mut learning = Learning::default();
        let (layout, held) = period(0.5);
        learning.pass(&layout, &held, &[1.0], false);
        let residual = learning.residual(0);
        let (mut after, mut pass) = (period(1.2).1, |after: &Snapshot| {
            learning.pass(&layout, after, &[1.0], false);
            learning.residual(0)
        });
        (after.modules[0].trigger, after.modules[0].hold_s) = (0, 0.0);
        assert_eq!(pass(&after), residual);
        assert!(pass(&after) > Some(1.1e-3), "a period later nothing waits");
    }

    /// Regression test: on a core shared with a busy process, half of all packets were late, and batches were reduced
    /// without effect.
    #[test]
    fn time_taken_by_the_machine_is_not_residual() {
        let (layout, held) = period(0.5);
        let mut learning = Learning::default();
        let mut pass = |snapshot: &Snapshot, stalled: bool| {
            learning.pass(&layout, snapshot, &[1.0], stalled);
            learning.residual(0).expect("a flow with packets")
        };
        let residual = (0..50).map(|_| pass(&held, false)).last().expect("some");
        let mut disturbed = period(3.0).1;
        disturbed.flows[0].undisturbed_s = Some(0.5e-3);
        let still = (0..50).map(|_| pass(&disturbed, false)).last().expect("some");
        assert!((still - residual).abs() < 1e-9, "{still} s, after {residual} s");
        // If the delay exceeds the objective even without the machine's part, the residual grows.
        disturbed.flows[0].undisturbed_s = Some(1.2e-3);
        assert!(pass(&disturbed, false) > residual);
    }

    /// Regression test: after a miss, the residual stayed high for a long time, even if other triggers kept the
    /// objective easily.
    #[test]
    fn residuals_fall_when_objectives_are_kept_easily() {
        let learnt = |parts: &[f64]| {
            let mut learning = Learning::default();
            for part in parts {
                let (layout, snapshot) = period(*part);
                learning.pass(&layout, &snapshot, &[1.0], false);
            }
            learning.residual(0).expect("a flow with packets")
        };
        let missed = learnt(&[1.4]);
        assert_eq!(learnt(&[1.4, 0.9, 0.9, 0.9]), missed, "near the objective, the residual is not reduced");
        let eased = |misses: &[f64]| learnt(&[misses, &[0.5; 24]].concat());
        let once = eased(&[1.4]);
        assert!(once < 0.85 * missed && once > 0.5 * missed, "{once} of {missed}");
        // Each further miss is remembered for longer. Successive misses count once.
        let again = [&[1.4][..], &[0.9; 20]].concat().repeat(2);
        let often = eased(&[&again[..], &[1.4]].concat());
        assert!(often > 1.1 * once && often < missed, "{once}, {often}");
        assert_eq!(eased(&[1.4; 600]), once);
    }
}

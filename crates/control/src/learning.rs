//! What flows' packets take beside waits for batches and calls: waits for a turn, and in queues at ports. It cannot be modelled where
//! machines and traffic are real; it is what is left of measured delays.
//!
//! What buffers had of a delay is between nothing and the sum of their hold limits. So is what is learnt of the rest: mostly that
//! buffers had what the model says. Where an objective was missed all the same, nothing is taken back for a while as long as any flow is
//! near to its own, and each further time for longer: a steady load comes to a steady control.

use forebay_graph::snapshot::WorkerSnapshot;
use forebay_graph::{Layout, Percentile, Snapshot};

use crate::memory::Memory;
use crate::period::{chosen, full_turns, is_another, rate};

/// The part of an objective that queues at ports may take where a worker is busy for so much of its time: beyond, packets cost too much,
/// and larger batches are the cure; the queue is there for a period more. Unless a turn takes so long: then that is what packets wait for.
/// With more time to spare they queue because they come in bursts.
const QUEUES: f64 = 0.5;
const BUSY: f64 = 0.9;
/// The part of an objective that the rest is presumed to take at most, before there are buffers to say.
const PRESUMED: f64 = 0.15;
/// How much of what a period says is believed.
const LEARN: f64 = 0.5;
/// Unless no flow takes more than this part of its objective: then this much of it in as many periods as nothing is taken back for.
const EASY: f64 = 0.75;
const EASED: f64 = 1.0;

/// What has been learnt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Learning {
    /// By flow: seconds beside waits and calls.
    rests: Vec<Option<f64>>,
    /// By module: its trigger in the last period.
    before: Vec<usize>,
    /// By worker: whether it was busy in the last period.
    busy: Vec<bool>,
    /// Of objectives that were missed: meanwhile nothing is taken back.
    missed: Memory,
    /// Packets a second, when an objective was last missed: of other traffic that is forgotten.
    packets: f64,
}

/// A worker: what its turn takes with the largest batches, in seconds, and whether it is busy or has just been.
struct Load {
    full_turn: f64,
    busy: bool,
}

/// What a period says of a flow.
struct Told {
    flow: usize,
    /// The most that the rest may be, in seconds; what the model says that buffers had of it, and what they may have had.
    most: f64,
    waits: f64,
    holds: f64,
    /// The most that is presumed where no buffer is set.
    first: f64,
    /// Packets wait so long at ports that larger batches are the cure: what the rest is without that.
    overloaded: Option<f64>,
    /// The part of its objective that it takes.
    part: f64,
    missed: bool,
    /// No trigger is left on its way, and packets that waited for one until then are among those that left.
    freed: bool,
}

impl Learning {
    /// Learns from a period in which so many packets came together at each module; `stalled`: the machine was elsewhere meanwhile.
    pub(crate) fn pass(&mut self, layout: &Layout, snapshot: &Snapshot, arrives: &[f64], stalled: bool) {
        self.rests.resize(layout.flows.len(), None);
        let packets = rate(snapshot);
        if is_another(self.packets, packets) {
            (self.missed, self.packets) = (Memory::default(), packets);
        }
        let busy: Vec<bool> =
            snapshot.workers.iter().map(|worker| worker.busy_s >= BUSY * worker.there_s(snapshot.period_s)).collect();
        let loaded = |worker: usize| [&busy, &self.busy].iter().any(|busy| busy.get(worker) == Some(&true));
        let loads: Vec<Load> = full_turns(layout, snapshot)
            .enumerate()
            .map(|(worker, full_turn)| Load { full_turn, busy: loaded(worker) })
            .collect();
        let turn = loads.iter().map(|load| load.full_turn).fold(0.0, f64::max);
        let mut all: Vec<Told> =
            (0..layout.flows.len()).filter_map(|flow| tell(layout, snapshot, arrives, &loads, flow)).collect();
        // No trigger helps against a machine that is elsewhere, and none is to be blamed for it.
        all.iter_mut().for_each(|told| told.missed &= !stalled);
        for told in &mut all {
            let path = &layout.flows[told.flow].path;
            let before = path.iter().any(|at| self.before.get(*at).is_some_and(|trigger| *trigger > 0));
            told.freed = before && path.iter().all(|at| snapshot.modules[*at].trigger == 0);
        }
        self.busy = busy;
        self.before.clear();
        self.before.extend(snapshot.modules.iter().map(|module| module.trigger));
        if !stalled {
            self.missed.pass();
        }
        // What no buffer had a part in is not to be mended here.
        if all.iter().any(|told| told.missed && told.overloaded.is_none() && told.holds > 0.0) {
            self.missed.fails();
            self.packets = packets;
        }
        let kept = self.missed.lasts();
        let easy = all.iter().all(|told| told.part < EASY);
        for told in all {
            let (most, least) = (told.most, (told.most - told.holds).max(0.0));
            let seen = (most - told.waits).clamp(least, most);
            // Nothing is known of what triggers do to turns that nobody has set yet.
            let presumed = if told.holds > 0.0 { 0.0 } else { turn.min(told.first) };
            let known = self.rests[told.flow].unwrap_or(most);
            let learnt = match told.overloaded {
                Some(without) => known.min(without),
                None if told.freed => known,
                None if told.missed => known.max(seen),
                None if kept && easy => (known + EASED / f64::from(self.missed.periods()) * (seen - known)).max(least),
                None if kept => known.max(least),
                None => known + LEARN * (seen - known),
            };
            self.rests[told.flow] = Some(learnt.max(presumed));
        }
    }

    /// What packets of a flow take beside waits and calls, in seconds, as far as is known.
    pub(crate) fn rest(&self, flow: usize) -> Option<f64> {
        self.rests.get(flow).copied().flatten()
    }
}

fn tell(layout: &Layout, snapshot: &Snapshot, arrives: &[f64], loads: &[Load], flow: usize) -> Option<Told> {
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
            let missing = (module.trigger as f64 - arrives[at]).max(0.0);
            let buffers = layout.modules[at].workers.len().max(1) as f64;
            let longest = (missing * buffers / module.came as f64 * snapshot.period_s).min(module.hold_s);
            waits += longest / of.percentile.longest();
        }
    }
    let takes = chosen(seen, delay, oldest);
    let most = (takes - calls).max(0.0);
    let (queues, turn, full_turn, busy) = at_ports(snapshot, loads, of.percentile);
    // What packets wait at ports because they cost too much must not forbid what makes them cheaper.
    let overloaded = (busy && queues > full_turn.max(QUEUES * slo)).then(|| (most - queues).max(turn));
    let part = takes / slo;
    Some(Told {
        flow,
        most,
        waits,
        holds,
        first: PRESUMED * slo,
        overloaded,
        part,
        // More may have been late because of the machine.
        missed: seen.undisturbed_s.map_or_else(|| seen.missed(of), |takes| takes > slo),
        freed: false,
    })
}

/// What packets wait at ports, at about this percentile, and what a turn takes, and may take, in seconds, and whether it is busy: of the
/// worker that they wait longest for.
fn at_ports(snapshot: &Snapshot, loads: &[Load], percentile: Percentile) -> (f64, f64, f64, bool) {
    let of_worker = |(worker, load): (&WorkerSnapshot, &Load)| {
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
    use forebay_graph::snapshot::{DelaySnapshot, FlowSnapshot, ModuleSnapshot};

    use super::*;
    use crate::testing::{flow, layout, module};

    /// A flow of 1 ms through a module that holds, which takes this part of it.
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

    /// Packets that had waited for a trigger when it was taken away made its flow seem slow without one: it was never held again.
    #[test]
    fn what_packets_waited_for_the_last_trigger_is_no_rest() {
        let mut learning = Learning::default();
        let (layout, held) = period(0.5);
        learning.pass(&layout, &held, &[1.0], false);
        let rest = learning.rest(0);
        let (mut after, mut pass) = (period(1.2).1, |after: &Snapshot| {
            learning.pass(&layout, after, &[1.0], false);
            learning.rest(0)
        });
        (after.modules[0].trigger, after.modules[0].hold_s) = (0, 0.0);
        assert_eq!(pass(&after), rest);
        assert!(pass(&after) > Some(1.1e-3), "a period later nothing waits");
    }

    /// Beside a busy process on its core half of all packets were late, and batches became smaller, as if that helped.
    #[test]
    fn what_the_machine_takes_is_no_rest_and_no_trigger_is_blamed_for_it() {
        let (layout, held) = period(0.5);
        let mut learning = Learning::default();
        let mut pass = |snapshot: &Snapshot, stalled: bool| {
            learning.pass(&layout, snapshot, &[1.0], stalled);
            learning.rest(0).expect("a flow with packets")
        };
        let rest = (0..50).map(|_| pass(&held, false)).last().expect("some");
        let mut disturbed = period(3.0).1;
        disturbed.flows[0].undisturbed_s = Some(0.5e-3);
        let still = (0..50).map(|_| pass(&disturbed, false)).last().expect("some");
        assert!((still - rest).abs() < 1e-9, "{still} s, after {rest} s");
        // More than the objective without the machine's part is more.
        disturbed.flows[0].undisturbed_s = Some(1.2e-3);
        assert!(pass(&disturbed, false) > rest);
    }

    /// What had been learnt from triggers that missed once stood in the way for long, however easily others kept the objective.
    #[test]
    fn what_was_missed_is_taken_back_where_objectives_are_kept_with_ease() {
        let learnt = |parts: &[f64]| {
            let mut learning = Learning::default();
            for part in parts {
                let (layout, snapshot) = period(*part);
                learning.pass(&layout, &snapshot, &[1.0], false);
            }
            learning.rest(0).expect("a flow with packets")
        };
        let missed = learnt(&[1.4]);
        assert_eq!(learnt(&[1.4, 0.9, 0.9, 0.9]), missed, "near to its objective nothing is taken back");
        let eased = |misses: &[f64]| learnt(&[misses, &[0.5; 24]].concat());
        let once = eased(&[1.4]);
        assert!(once < 0.85 * missed && once > 0.5 * missed, "{once} of {missed}");
        // Each further time it takes longer; misses in a row are one.
        let again = [&[1.4][..], &[0.9; 20]].concat().repeat(2);
        let often = eased(&[&again[..], &[1.4]].concat());
        assert!(often > 1.1 * once && often < missed, "{once}, {often}");
        assert_eq!(eased(&[1.4; 600]), once);
    }
}

//! What calls of modules cost: as was known before, put right by what the running modules take.

use forebay_graph::Snapshot;
use forebay_models::batching::Line;
use forebay_models::online::Online;

/// What a function's calls cost, as was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profiled {
    /// Seconds a call and a packet.
    pub line: Line,
    /// The part of a call that the engine's stopwatch does not count.
    pub dispatch: f64,
}

/// What is assumed of a function that nobody has measured.
const ASSUMED: Profiled = Profiled { line: Line { fixed: 40e-9, each: 10e-9 }, dispatch: 5e-9 };

/// Packets for each that enters, at most, that wait for a batch where nobody does; and how much of what a period says is believed.
const NOBODY: f64 = 0.01;
const LEARN: f64 = 0.5;
/// What calls take beside their packets is at least this part of what is timed of it.
const LEAST: f64 = 0.1;

/// Each module's cost.
#[derive(Clone, Debug)]
pub enum Costs {
    /// Learnt from what is timed.
    Learnt(Learnt),
    /// By module: known for sure.
    Known(Vec<Line>),
    /// As snapshots say: of what was recorded.
    Recorded,
}

impl Costs {
    /// To be learnt, from what was measured before, by module; `None` where it was not.
    #[must_use]
    pub fn learnt(profiles: impl IntoIterator<Item = Option<Profiled>>) -> Self {
        let online = |profile: Option<Profiled>| {
            let Profiled { line, dispatch } = profile.unwrap_or(ASSUMED);
            Online::new(line, dispatch)
        };
        Self::Learnt(Learnt { modules: profiles.into_iter().map(online).collect(), counts: None })
    }

    /// Learns from a period, and writes what is known into its snapshot.
    pub fn account(&mut self, snapshot: &mut Snapshot) {
        match self {
            Self::Learnt(learnt) => learnt.account(snapshot),
            Self::Known(lines) => {
                for (line, module) in lines.iter().zip(&mut snapshot.modules) {
                    module.cost_s = (line.fixed, line.each);
                }
            }
            Self::Recorded => {}
        }
    }
}

/// Costs that are learnt.
///
/// A call that is timed shares no cycle with the one before it and the one after, as calls do otherwise: many short ones are timed at up to
/// twice what workers take for all of them together. What calls take beside their packets counts for no more than there is room for.
#[derive(Clone, Debug)]
pub struct Learnt {
    /// By module: what is timed of its calls.
    modules: Vec<Online>,
    /// The part of that that counts, of what calls take beside their packets.
    counts: Option<f64>,
}

impl Learnt {
    fn account(&mut self, snapshot: &mut Snapshot) {
        let (mut fixed, mut each, mut waiting, mut most) = (0.0, 0.0, 0, 0);
        for (online, module) in self.modules.iter_mut().zip(&mut snapshot.modules) {
            let (calls, packets, seconds) = module.timed;
            online.note(calls, packets, seconds);
            let line = online.line();
            fixed += line.fixed * module.calls as f64;
            each += line.each * module.packets as f64;
            waiting += if module.trigger > 0 { module.packets } else { 0 };
            most = most.max(module.packets);
            module.cost_s = (line.fixed, line.each);
        }
        let busy: f64 = snapshot.workers.iter().map(|worker| worker.busy_s).sum();
        if fixed > 0.0 {
            let room = ((busy - each) / fixed).clamp(LEAST, 1.0);
            // Where packets wait calls are few, and there may be more room than they need.
            let counts = self.counts.unwrap_or(room);
            let tells = room < counts || waiting as f64 <= NOBODY * most as f64;
            self.counts = Some(if tells { counts + LEARN * (room - counts) } else { counts });
        }
        let counts = self.counts.unwrap_or(1.0);
        snapshot.modules.iter_mut().for_each(|module| module.cost_s.0 *= counts);
    }
}

#[cfg(test)]
mod tests {
    use forebay_graph::snapshot::{ModuleSnapshot, WorkerSnapshot};

    use super::*;

    /// Two modules whose calls are timed at 30 ns and 2 ns a packet, for batches of this size, on a worker that is busy for so long.
    fn period(batch: u64, trigger: usize, busy_s: f64) -> Snapshot {
        let calls = 100_000 / batch;
        let timed = (calls, 100_000, 30e-9 * calls as f64 + 2e-9 * 100_000.0);
        let module = ModuleSnapshot { packets: 100_000, calls, trigger, timed, ..ModuleSnapshot::default() };
        let worker = WorkerSnapshot { busy_s, ..WorkerSnapshot::default() };
        Snapshot { modules: vec![module; 2], workers: vec![worker], ..Snapshot::default() }
    }

    fn fixed(costs: &mut Costs, mut snapshot: Snapshot) -> f64 {
        costs.account(&mut snapshot);
        snapshot.modules[1].cost_s.0
    }

    fn costs() -> Costs {
        Costs::learnt(vec![Some(Profiled { line: Line { fixed: 30e-9, each: 2e-9 }, dispatch: 0.0 }); 2])
    }

    /// Calls of single packets, timed one by one, were more than workers were busy: what holding saved was overrated threefold, and
    /// so was its price, so that triggers of less than half a batch seemed worth nothing.
    #[test]
    fn calls_cost_together_no_more_than_workers_are_busy() {
        let mut costs = costs();
        // A packet takes 24 ns: 20 for its two calls.
        for _ in 0..30 {
            assert!((fixed(&mut costs, period(1, 0, 2.4e-3)) - 10e-9).abs() < 1e-12);
        }
        // Few calls leave room, and say nothing of what many cost; where they are many and there is room, they cost more.
        for _ in 0..30 {
            assert!((fixed(&mut costs, period(16, 16, 2.4e-3)) - 10e-9).abs() < 1e-12);
        }
        let mut more = 0.0;
        (0..30).for_each(|_| more = fixed(&mut costs, period(1, 0, 3.4e-3)));
        assert!((more - 15e-9).abs() < 1e-12, "{more}");
        (0..30).for_each(|_| more = fixed(&mut costs, period(16, 16, 0.5e-3)));
        assert!((more - 8e-9).abs() < 1e-12, "less than before, where packets are held, too: {more}");
    }

    #[test]
    fn where_there_is_room_what_is_timed_counts_in_whole() {
        let mut costs = costs();
        (0..3).for_each(|_| assert!((fixed(&mut costs, period(1, 0, 1e-2)) - 30e-9).abs() < 1e-12));
        let none = Snapshot { modules: vec![ModuleSnapshot::default(); 2], ..Snapshot::default() };
        assert!((fixed(&mut costs, none) - 30e-9).abs() < 1e-12, "a period without packets says nothing");
    }
}

//! What calls of modules cost: as was known before, put right by what the running modules take.

use forebay_graph::{Layout, Snapshot};
use forebay_models::batching::Line;
use forebay_models::online::Online;

use crate::period::stalled;

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

/// How much is believed of what a period says about time that calls share.
const LEARN: f64 = 0.5;
/// The part of T0 that is left of it, at least.
const LEAST: f64 = 0.1;
/// Periods after which lines say what calls took in a period: what becomes dearer later is not shared.
const SETTLES: u32 = 16;
/// A period with at least this part of the calls for each packet tells as much as the one before it that told most.
const AS_MANY: f64 = 0.75;

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
        Self::Learnt(Learnt { modules: profiles.into_iter().map(online).collect(), most: None, shared: None })
    }

    /// Learns from a period, and writes what is known into its snapshot.
    pub fn account(&mut self, layout: &Layout, snapshot: &mut Snapshot) {
        match self {
            Self::Learnt(learnt) => learnt.account(layout, snapshot),
            Self::Known(lines) => {
                for (line, module) in lines.iter().zip(&mut snapshot.modules) {
                    module.cost_s = (line.fixed, line.each);
                }
                snapshot.exact = true;
            }
            Self::Recorded => {}
        }
    }
}

/// Costs that are learnt.
///
/// A call that is timed by itself shares no time with the one before it and the one after. Calls do otherwise, as a processor begins with
/// what comes next before it has ended: many short ones are timed at up to twice what workers take for all of them. So they are said to
/// share as much time, each the same, as brings all together down to what workers were busy for, ports included.
#[derive(Clone, Debug)]
pub struct Learnt {
    /// By module: what is timed of its calls.
    modules: Vec<Online>,
    /// The period that said most: where many packets are in a call, ports and caches hide what calls share.
    most: Option<Told>,
    /// Seconds of each call that it shares with others.
    shared: Option<f64>,
}

/// What there was in a period.
#[derive(Clone, Debug)]
struct Told {
    /// By module: calls and packets, and what each cost, as far as could be told so many periods later.
    modules: Vec<(f64, f64)>,
    lines: Vec<Line>,
    later: u32,
    calls: f64,
    packets: f64,
    /// Seconds of all workers.
    busy_s: f64,
}

impl Told {
    fn new(snapshot: &Snapshot, lines: &[Line]) -> Self {
        let modules: Vec<_> =
            snapshot.modules.iter().map(|module| (module.calls as f64, module.packets as f64)).collect();
        let (calls, packets) = modules.iter().fold((0.0, 0.0), |sum, module| (sum.0 + module.0, sum.1 + module.1));
        let busy_s = snapshot.workers.iter().map(|worker| worker.busy_s).sum();
        Self { modules, lines: lines.to_vec(), later: 0, calls, packets, busy_s }
    }

    /// Lines as they are a period later.
    fn settle(&mut self, lines: &[Line]) {
        self.later = (self.later + 1).min(SETTLES);
        for ((line, now), (calls, packets)) in self.lines.iter_mut().zip(lines).zip(&self.modules) {
            let cost = |line: &Line| line.fixed * calls + line.each * packets;
            if self.later < SETTLES || cost(now) < cost(line) {
                *line = *now;
            }
        }
    }

    /// What each call shared at least, in seconds, if calls of modules take as long as lines say one by one.
    fn shared(&self) -> f64 {
        let parts = self.lines.iter().zip(&self.modules);
        let all = parts.map(|(line, (calls, packets))| line.fixed * calls + line.each * packets);
        ((all.sum::<f64>() - self.busy_s) / self.calls).max(0.0)
    }
}

impl Learnt {
    fn account(&mut self, layout: &Layout, snapshot: &mut Snapshot) {
        for (online, module) in self.modules.iter_mut().zip(&snapshot.modules) {
            let (calls, packets, seconds) = module.timed;
            online.note(calls, packets, seconds);
        }
        let lines: Vec<Line> = self.modules.iter().map(Online::line).collect();
        for (line, module) in lines.iter().zip(&mut snapshot.modules) {
            module.cost_s = (line.fixed, line.each);
        }
        self.most.iter_mut().for_each(|most| most.settle(&lines));
        let now = Told::new(snapshot, &lines);
        if now.calls > 0.0 && !stalled(layout, snapshot) {
            let least = now.shared();
            let as_many = |most: &Told| now.calls * most.packets >= AS_MANY * most.calls * now.packets;
            if self.most.as_ref().is_none_or(as_many) {
                self.most = Some(now);
            }
            let most = self.most.as_ref().map_or(0.0, Told::shared);
            let seen = most.max(least);
            self.shared = Some(self.shared.map_or(seen, |shared| shared + LEARN * (seen - shared)));
        }
        let shared = self.shared.unwrap_or(0.0);
        for module in &mut snapshot.modules {
            module.cost_s.0 = (module.cost_s.0 - shared).max(LEAST * module.cost_s.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_graph::snapshot::{ModuleSnapshot, WorkerSnapshot};

    use super::*;
    use crate::testing::layout;

    /// Two modules whose calls are timed at 30 ns and 2 ns a packet, for batches of this size, on a worker that is busy for so long.
    fn period(batch: u64, trigger: usize, busy_s: f64) -> Snapshot {
        let calls = 100_000 / batch;
        let timed = (calls, 100_000, 30e-9 * calls as f64 + 2e-9 * 100_000.0);
        let module = ModuleSnapshot { packets: 100_000, calls, trigger, timed, ..ModuleSnapshot::default() };
        let worker = WorkerSnapshot { busy_s, ..WorkerSnapshot::default() };
        Snapshot { modules: vec![module; 2], workers: vec![worker], ..Snapshot::default() }
    }

    /// What a call of the second module costs, and a packet of it.
    fn cost(costs: &mut Costs, mut snapshot: Snapshot) -> (f64, f64) {
        costs.account(&layout(Vec::new(), Vec::new()), &mut snapshot);
        assert!(!snapshot.exact);
        snapshot.modules[1].cost_s
    }

    fn costs(fixed: f64, each: f64) -> Costs {
        Costs::learnt(vec![Some(Profiled { line: Line { fixed, each }, dispatch: 0.0 }); 2])
    }

    #[track_caller]
    fn near(is: (f64, f64), fixed: f64) {
        assert!((is.0 - fixed).abs() < 1e-12 && (is.1 - 2e-9).abs() < 1e-12, "{is:?}, not {fixed}");
    }

    /// Calls of single packets, timed one by one, were more than workers were busy: what holding saved was overrated threefold, and
    /// so was its price, so that triggers of less than half a batch seemed worth nothing.
    #[test]
    fn calls_cost_together_no_more_than_workers_are_busy() {
        let mut costs = costs(30e-9, 2e-9);
        // A packet takes 24 ns: 20 for its two calls.
        near(cost(&mut costs, period(1, 0, 2.4e-3)), 10e-9);
        // Few calls say nothing of what many share, held or not; nor does a period with a long turn or without packets.
        (0..30).for_each(|_| near(cost(&mut costs, period(16, 16, 2.4e-3)), 10e-9));
        (0..30).for_each(|_| near(cost(&mut costs, period(16, 0, 2.4e-3)), 10e-9));
        let mut stalled = period(1, 0, 9e-3);
        stalled.workers[0].long_turns[5] = 1;
        near(cost(&mut costs, stalled), 10e-9);
        near(cost(&mut costs, Snapshot { modules: vec![ModuleSnapshot::default(); 2], ..Snapshot::default() }), 10e-9);
        let mut last = (0.0, 0.0);
        (0..30).for_each(|_| last = cost(&mut costs, period(1, 0, 3.4e-3)));
        near(last, 15e-9);
        // Where they are more than there is time for all the same, they share more.
        (0..30).for_each(|_| last = cost(&mut costs, period(16, 16, 0.5e-3)));
        near(last, 8e-9);
        (0..30).for_each(|_| last = cost(&mut costs, period(1, 0, 0.2e-3)));
        near(last, 3e-9);
    }

    /// Calls that became dearer while packets were held were said to share all of it with others.
    #[test]
    fn what_becomes_dearer_later_is_not_shared() {
        let mut costs = costs(30e-9, 2e-9);
        near(cost(&mut costs, period(1, 0, 2.4e-3)), 10e-9);
        (0..30).for_each(|_| near(cost(&mut costs, period(16, 16, 2.4e-3)), 10e-9));
        let mut dearer = period(16, 16, 2.4e-3);
        dearer.modules.iter_mut().for_each(|module| module.timed.2 += 30e-9 * module.timed.0 as f64);
        let mut last = (0.0, 0.0);
        (0..60).for_each(|_| last = cost(&mut costs, dearer.clone()));
        let call = last.0 + 16.0 * last.1;
        assert!((call - (60e-9 + 16.0 * 2e-9 - 20e-9)).abs() < 1e-9, "a call of 16 packets: {call}");
    }

    #[test]
    fn a_long_call_is_not_taken_for_many_short_ones() {
        let line = |fixed| Some(Profiled { line: Line { fixed, each: 2e-9 }, dispatch: 0.0 });
        let mut costs = Costs::learnt(vec![line(5e-6), line(30e-9)]);
        let mut snapshot = period(1, 0, 0.0);
        // One call in a thousand packets.
        (snapshot.modules[0].calls, snapshot.modules[0].timed) = (100, (100, 100_000, 5e-6 * 100.0 + 2e-9 * 100_000.0));
        snapshot.workers[0].busy_s = 5e-6 * 100.0 + 2.0 * 2e-9 * 100_000.0 + 10e-9 * 100_000.0;
        costs.account(&layout(Vec::new(), Vec::new()), &mut snapshot);
        assert!(snapshot.modules[0].cost_s.0 > 4.9e-6, "{:?}", snapshot.modules[0].cost_s);
        near(snapshot.modules[1].cost_s, 10e-9 + 20e-9 * 100.0 / 100_100.0);
    }

    /// Otherwise one early period would stand for ever, whatever traffic comes later.
    #[test]
    fn what_calls_share_is_told_by_the_last_of_periods_with_about_as_many() {
        let told = |packets: u64| {
            let mut costs = costs(30e-9, 2e-9);
            near(cost(&mut costs, period(1, 0, 2.4e-3)), 10e-9);
            // As many calls, of more packets.
            let mut other = period(1, 0, 0.0);
            other.modules.iter_mut().for_each(|module| {
                (module.packets, module.timed) = (packets, (100_000, packets, 30e-9 * 1e5 + 2e-9 * packets as f64));
            });
            other.workers[0].busy_s = 2.0 * (15e-9 * 1e5 + 2e-9 * packets as f64);
            let mut last = (0.0, 0.0);
            (0..30).for_each(|_| last = cost(&mut costs, other.clone()));
            last
        };
        near(told(125_000), 15e-9);
        near(told(150_000), 10e-9);
    }

    #[test]
    fn what_is_known_for_sure_is_said_to_be() {
        let mut snapshot = period(1, 0, 1e-2);
        let mut costs = Costs::Known(vec![Line { fixed: 7e-9, each: 2e-9 }; 2]);
        costs.account(&layout(Vec::new(), Vec::new()), &mut snapshot);
        assert!(snapshot.exact);
        near(snapshot.modules[1].cost_s, 7e-9);
    }

    /// Else calls would seem to cost nothing.
    #[test]
    fn what_becomes_cheaper_later_is_shared_less() {
        let mut costs = costs(30e-9, 2e-9);
        near(cost(&mut costs, period(1, 0, 2.4e-3)), 10e-9);
        (0..30).for_each(|_| near(cost(&mut costs, period(16, 16, 2.4e-3)), 10e-9));
        let mut cheaper = period(16, 16, 2.4e-3);
        cheaper.modules.iter_mut().for_each(|module| module.timed.2 -= 15e-9 * module.timed.0 as f64);
        let mut last = (0.0, 0.0);
        (0..60).for_each(|_| last = cost(&mut costs, cheaper.clone()));
        let call = last.0 + 16.0 * last.1;
        assert!(call > 25e-9, "a call of 16 packets that took 62 ns, and takes 47, was said to be {call}");
    }

    #[test]
    fn cost_estimates_do_not_grow_with_every_period() {
        let mut costs = costs(40e-9, 1e-9);
        let mut after = |periods: usize| {
            let mut last = (0.0, 0.0);
            (0..periods).for_each(|at| last = cost(&mut costs, period([1, 32, 4, 16][at % 4], 0, 1e-2)));
            last
        };
        for (call, packet) in [after(60), after(4_000)] {
            assert!((call - 30e-9).abs() < 1e-10 && (packet - 2e-9).abs() < 1e-11, "{call} {packet}");
        }
    }

    #[test]
    fn where_there_is_room_what_is_timed_counts_in_whole() {
        let mut costs = costs(30e-9, 2e-9);
        (0..3).for_each(|_| near(cost(&mut costs, period(1, 0, 1e-2)), 30e-9));
    }
}

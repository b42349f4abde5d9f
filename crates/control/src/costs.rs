//! The cost of modules' calls: earlier measurements, corrected by the times of the running modules.

use forebay_models::{batching::Line, online::Online};
use forebay_protocol::{Layout, Snapshot};

use crate::period::stalled;

/// The measured cost of a function's calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profiled {
    /// The seconds per call and per packet. The seconds per call include `dispatch`.
    pub line: Line,
    /// The part of a call that the engine's stopwatch does not measure, in seconds. [`Online`] adds it to the measured
    /// time of each call.
    pub dispatch: f64,
}

/// The assumed cost of a function without measurements.
const ASSUMED: Profiled = Profiled { line: Line { fixed: 40e-9, each: 10e-9 }, dispatch: 5e-9 };

/// The weight of the last period in the estimate of the time that calls share ([`Learnt`]).
const LEARN: f64 = 0.5;
/// At least this fraction of T0, the time per call, remains when the shared time is subtracted.
const LEAST: f64 = 0.1;
/// For this number of periods, newer estimates of costs replace the costs in a period's totals. After that, only lower
/// estimates replace them. Calls that become slower later are thus not counted as shared time.
const SETTLES: u32 = 16;
/// A period replaces the most informative period ([`Learnt::most`]) if it has at least this fraction of that period's
/// calls per packet.
const AS_MANY: f64 = 0.75;

/// The cost of each module.
#[derive(Clone, Debug)]
pub enum Costs {
    /// Learnt from measured times.
    Learnt(Learnt),
    /// Known exactly, by module.
    Known(Vec<Line>),
    /// Taken from the snapshots of a recording.
    Recorded,
}

impl Costs {
    /// Creates costs to be learnt, starting from earlier measurements by module; `None` for a module without any.
    #[must_use]
    pub fn learnt(profiles: impl IntoIterator<Item = Option<Profiled>>) -> Self {
        let online = |profile: Option<Profiled>| {
            let Profiled { line, dispatch } = profile.unwrap_or(ASSUMED);
            Online::new(line, dispatch)
        };
        Self::Learnt(Learnt { modules: profiles.into_iter().map(online).collect(), most: None, shared: None })
    }

    /// Learns from a period, and writes the costs of modules into `cost_s` of its snapshot. Must be called once per
    /// period, before a controller uses the snapshot.
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

/// Learnt costs.
///
/// A call that is timed alone shares no time with the previous and the next call. Other calls share time, because a
/// processor starts later work before earlier work has ended: the times of many short calls can add up to twice the
/// workers' busy time. So the same shared time is subtracted from each call. The sum of the reduced times is about the
/// workers' busy time, ports included.
#[derive(Clone, Debug)]
pub struct Learnt {
    /// The measured times of calls, by module.
    modules: Vec<Online>,
    /// The most informative period: a recent one with few packets per call. With many packets per call, the effects of
    /// ports and caches make the shared time invisible. `None` before the first period with calls.
    most: Option<PeriodTotals>,
    /// Shared time per call, in seconds. `None` before the first period with calls.
    shared: Option<f64>,
}

/// The totals of a period.
#[derive(Clone, Debug)]
struct PeriodTotals {
    /// By module: the numbers of calls and of packets.
    modules: Vec<(f64, f64)>,
    /// By module: the cost of calls, as estimated `later` periods after this period.
    lines: Vec<Line>,
    /// The number of periods since this period, up to `SETTLES`.
    later: u32,
    /// The calls of all modules.
    calls: f64,
    /// The sum of the packets of all modules.
    packets: f64,
    /// The busy time of all workers, in seconds.
    busy_s: f64,
}

impl PeriodTotals {
    /// Returns the totals of a period. `lines` are the costs of calls by module, as estimated now.
    fn new(snapshot: &Snapshot, lines: &[Line]) -> Self {
        let modules: Vec<_> =
            snapshot.modules.iter().map(|module| (module.calls as f64, module.packets as f64)).collect();
        let (calls, packets) = modules.iter().fold((0.0, 0.0), |sum, module| (sum.0 + module.0, sum.1 + module.1));
        let busy_s = snapshot.workers.iter().map(|worker| worker.busy_s).sum();
        Self { modules, lines: lines.to_vec(), later: 0, calls, packets, busy_s }
    }

    /// Updates the lines one period later. After `SETTLES` periods, only lower costs are accepted.
    fn settle(&mut self, lines: &[Line]) {
        self.later = (self.later + 1).min(SETTLES);
        for ((line, now), (calls, packets)) in self.lines.iter_mut().zip(lines).zip(&self.modules) {
            let cost = |line: &Line| line.fixed * calls + line.each * packets;
            if self.later < SETTLES || cost(now) < cost(line) {
                *line = *now;
            }
        }
    }

    /// Returns the least shared time per call, in seconds: the excess of the calls' times over the busy time, divided
    /// by the number of calls.
    fn shared(&self) -> f64 {
        let parts = self.lines.iter().zip(&self.modules);
        let all = parts.map(|(line, (calls, packets))| line.fixed * calls + line.each * packets);
        ((all.sum::<f64>() - self.busy_s) / self.calls).max(0.0)
    }
}

impl Learnt {
    /// Learns from a period, and writes the costs into its snapshot. A period in which the machine stalled does not
    /// change the shared time.
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
        let now = PeriodTotals::new(snapshot, &lines);
        if now.calls > 0.0 && !stalled(layout, snapshot) {
            let least = now.shared();
            let as_many = |most: &PeriodTotals| now.calls * most.packets >= AS_MANY * most.calls * now.packets;
            if self.most.as_ref().is_none_or(as_many) {
                self.most = Some(now);
            }
            let most = self.most.as_ref().map_or(0.0, PeriodTotals::shared);
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
    use forebay_protocol::snapshot::{ModuleSnapshot, WorkerSnapshot};

    use super::*;
    use crate::testing::layout;

    /// Returns a period of two modules whose calls are timed at 30 ns plus 2 ns per packet, with batches of this size,
    /// on a worker with this busy time.
    fn period(batch: u64, trigger: usize, busy_s: f64) -> Snapshot {
        let calls = 100_000 / batch;
        let timed = (calls, 100_000, 30e-9 * calls as f64 + 2e-9 * 100_000.0);
        let module = ModuleSnapshot { packets: 100_000, calls, trigger, timed, ..ModuleSnapshot::default() };
        let worker = WorkerSnapshot { busy_s, ..WorkerSnapshot::default() };
        Snapshot { modules: vec![module; 2], workers: vec![worker], ..Snapshot::default() }
    }

    /// Returns the cost of the second module per call and per packet.
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

    /// Regression test: the times of single-packet calls added up to more than the workers' busy time. The saving of
    /// held packets was overestimated threefold, and so was its price, so that triggers below half a batch seemed
    /// useless.
    #[test]
    fn calls_cost_together_no_more_than_workers_are_busy() {
        let mut costs = costs(30e-9, 2e-9);
        // A packet takes 24 ns: 20 ns for its two calls.
        near(cost(&mut costs, period(1, 0, 2.4e-3)), 10e-9);
        // A few calls show nothing about the shared time of many calls, held or not. Neither does a period with a long
        // turn or without packets.
        (0..30).for_each(|_| near(cost(&mut costs, period(16, 16, 2.4e-3)), 10e-9));
        (0..30).for_each(|_| near(cost(&mut costs, period(16, 0, 2.4e-3)), 10e-9));
        let mut stalled = period(1, 0, 9e-3);
        stalled.workers[0].long_turns[5] = 1;
        near(cost(&mut costs, stalled), 10e-9);
        near(cost(&mut costs, Snapshot { modules: vec![ModuleSnapshot::default(); 2], ..Snapshot::default() }), 10e-9);
        let mut last = (0.0, 0.0);
        (0..30).for_each(|_| last = cost(&mut costs, period(1, 0, 3.4e-3)));
        near(last, 15e-9);
        // If the calls still exceed the busy time, they share more.
        (0..30).for_each(|_| last = cost(&mut costs, period(16, 16, 0.5e-3)));
        near(last, 8e-9);
        (0..30).for_each(|_| last = cost(&mut costs, period(1, 0, 0.2e-3)));
        near(last, 3e-9);
    }

    /// Regression test: calls that became slower while packets were held were counted entirely as shared time.
    #[test]
    fn calls_that_become_slower_later_share_no_more_time() {
        let mut costs = costs(30e-9, 2e-9);
        near(cost(&mut costs, period(1, 0, 2.4e-3)), 10e-9);
        (0..30).for_each(|_| near(cost(&mut costs, period(16, 16, 2.4e-3)), 10e-9));
        let mut slower = period(16, 16, 2.4e-3);
        slower.modules.iter_mut().for_each(|module| module.timed.2 += 30e-9 * module.timed.0 as f64);
        let mut last = (0.0, 0.0);
        (0..60).for_each(|_| last = cost(&mut costs, slower.clone()));
        let call = last.0 + 16.0 * last.1;
        assert!((call - (60e-9 + 16.0 * 2e-9 - 20e-9)).abs() < 1e-9, "a call of 16 packets: {call}");
    }

    #[test]
    fn a_long_call_is_not_taken_for_many_short_ones() {
        let line = |fixed| Some(Profiled { line: Line { fixed, each: 2e-9 }, dispatch: 0.0 });
        let mut costs = Costs::learnt(vec![line(5e-6), line(30e-9)]);
        let mut snapshot = period(1, 0, 0.0);
        // One call per thousand packets.
        (snapshot.modules[0].calls, snapshot.modules[0].timed) = (100, (100, 100_000, 5e-6 * 100.0 + 2e-9 * 100_000.0));
        snapshot.workers[0].busy_s = 5e-6 * 100.0 + 2.0 * 2e-9 * 100_000.0 + 10e-9 * 100_000.0;
        costs.account(&layout(Vec::new(), Vec::new()), &mut snapshot);
        assert!(snapshot.modules[0].cost_s.0 > 4.9e-6, "{:?}", snapshot.modules[0].cost_s);
        near(snapshot.modules[1].cost_s, 10e-9 + 20e-9 * 100.0 / 100_100.0);
    }

    /// Without this, an early period would be used forever, even if the later traffic is different.
    #[test]
    fn shared_time_comes_from_the_last_informative_period() {
        let after = |packets: u64| {
            let mut costs = costs(30e-9, 2e-9);
            near(cost(&mut costs, period(1, 0, 2.4e-3)), 10e-9);
            // The same number of calls, with more packets.
            let mut other = period(1, 0, 0.0);
            other.modules.iter_mut().for_each(|module| {
                (module.packets, module.timed) = (packets, (100_000, packets, 30e-9 * 1e5 + 2e-9 * packets as f64));
            });
            other.workers[0].busy_s = 2.0 * (15e-9 * 1e5 + 2e-9 * packets as f64);
            let mut last = (0.0, 0.0);
            (0..30).for_each(|_| last = cost(&mut costs, other.clone()));
            last
        };
        near(after(125_000), 15e-9);
        near(after(150_000), 10e-9);
    }

    #[test]
    fn known_costs_are_marked_as_exact() {
        let mut snapshot = period(1, 0, 1e-2);
        let mut costs = Costs::Known(vec![Line { fixed: 7e-9, each: 2e-9 }; 2]);
        costs.account(&layout(Vec::new(), Vec::new()), &mut snapshot);
        assert!(snapshot.exact);
        near(snapshot.modules[1].cost_s, 7e-9);
    }

    /// Otherwise calls would seem to cost nothing.
    #[test]
    fn calls_that_become_faster_later_share_less_time() {
        let mut costs = costs(30e-9, 2e-9);
        near(cost(&mut costs, period(1, 0, 2.4e-3)), 10e-9);
        (0..30).for_each(|_| near(cost(&mut costs, period(16, 16, 2.4e-3)), 10e-9));
        let mut cheaper = period(16, 16, 2.4e-3);
        cheaper.modules.iter_mut().for_each(|module| module.timed.2 -= 15e-9 * module.timed.0 as f64);
        let mut last = (0.0, 0.0);
        (0..60).for_each(|_| last = cost(&mut costs, cheaper.clone()));
        let call = last.0 + 16.0 * last.1;
        assert!(call > 25e-9, "a call of 16 packets that took 62 ns, and now takes 47 ns, is estimated at {call} s");
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
    fn with_spare_time_measured_times_count_in_full() {
        let mut costs = costs(30e-9, 2e-9);
        (0..3).for_each(|_| near(cost(&mut costs, period(1, 0, 1e-2)), 30e-9));
    }
}

//! Takes snapshots from the workers' counters. A period costs about as many reads as there are counters, and no allocation.

use std::sync::Arc;

use forebay_measure::{Away, Counter, Values, Window};
use forebay_protocol::snapshot::{DelaySnapshot, LONG_CLASSES, ModuleSnapshot, Snapshot, WorkerSnapshot};
use forebay_units::{Frequency, Nanos, Percentile, Ticks};

use crate::telemetry::Telemetry;

/// Packets above the chosen percentile without which it says nothing; of any, where it is the mean.
const ENOUGH: f64 = 1.0;
/// Periods after which the packets that there are must do.
const WIDEST: u32 = 10;

/// The most that the machine may have taken before a turn shows it, in seconds: what the host took is told in
/// hundredths.
const MOST_OWED: f64 = 0.1;

/// Takes one snapshot after the other.
pub struct Sampler {
    telemetries: Vec<Arc<Telemetry>>,
    /// By flow.
    percentiles: Vec<Percentile>,
    /// By module: whether it runs on each worker.
    here: Vec<Vec<bool>>,
    frequency: Frequency,
    began: Ticks,
    last: Ticks,
    snapshot: Snapshot,
    /// What all counters together said at the last snapshot.
    modules: Vec<Counted>,
    flows: Vec<Delays>,
    workers: Vec<(Turns, Window)>,
    /// By worker: what the machine has taken, as the system told last, and the part of it that no turn has shown.
    away: Vec<(Away, f64)>,
    /// A flow's delays over all workers.
    delays: Values,
}

#[derive(Clone, Copy, Default)]
struct Counted {
    packets: u64,
    calls: u64,
    /// Packets that had come: those processed, turned away, and those that waited.
    came: u64,
    arrived: (u64, u64),
    timed: (u64, u64, u64),
}

#[derive(Clone, Copy, Default)]
struct Turns {
    busy: u64,
    turns: u64,
    long: [u64; LONG_CLASSES],
    /// Ticks of long turns, and of those of them in which there was something to do.
    long_ticks: [u64; 2],
}

/// A flow's delays since the first of the last periods that had too few.
struct Delays {
    /// By worker.
    windows: Vec<Window>,
    /// Those of the periods before this one.
    few: Values,
    periods: u32,
    violations: u64,
    bytes: u64,
}

impl Sampler {
    /// Of these workers of one pipeline, at least one; what has been counted until now is the past. `began`: when the run did.
    #[must_use]
    pub fn new(telemetries: Vec<Arc<Telemetry>>, began: Ticks, now: Ticks) -> Self {
        let first = &telemetries[0];
        let (modules, flows) = (first.modules.len(), first.flows.len());
        let frequency = first.frequency;
        let delays = |_| Delays {
            windows: telemetries.iter().map(|_| Window::default()).collect(),
            few: Values::default(),
            periods: 0,
            violations: 0,
            bytes: 0,
        };
        let here = |module: usize| telemetries.iter().map(|told| told.modules[module].here).collect();
        let mut sampler = Self {
            percentiles: first.flows.iter().map(|flow| flow.plan.percentile).collect(),
            here: (0..modules).map(here).collect(),
            frequency,
            began,
            last: now,
            snapshot: Snapshot::default(),
            modules: vec![Counted::default(); modules],
            flows: (0..flows).map(delays).collect(),
            workers: vec![<(Turns, Window)>::default(); telemetries.len()],
            away: vec![<(Away, f64)>::default(); telemetries.len()],
            delays: Values::default(),
            telemetries,
        };
        sampler.snapshot.modules.resize(modules, ModuleSnapshot::default());
        sampler.snapshot.flows.resize_with(flows, Default::default);
        sampler.snapshot.workers.resize(sampler.workers.len(), WorkerSnapshot::default());
        sampler.take(now, &[]);
        sampler.flows.iter_mut().for_each(Delays::begin);
        sampler
    }

    /// Takes a snapshot of the time since the last one. `away` is the time that the machine took from each worker so
    /// far, where the system reports it.
    pub fn take(&mut self, now: Ticks, away: &[Away]) -> &mut Snapshot {
        self.take_workers(now, away);
        let disturbed = self.disturbed(now);
        let snapshot = &mut self.snapshot;
        snapshot.at_s = self.frequency.seconds(now.since(self.began));
        snapshot.period_s = self.frequency.seconds(now.since(self.last));
        self.last = now;
        for (at, (before, told)) in self.modules.iter_mut().zip(&mut snapshot.modules).enumerate() {
            take_module(&self.telemetries, &self.here[at], at, before, told);
        }
        for (at, (flow, told)) in self.flows.iter_mut().zip(&mut snapshot.flows).enumerate() {
            let (mut left, mut violations, mut bytes) = (0, 0, 0_u64);
            self.delays.clear();
            for (telemetry, window) in self.telemetries.iter().zip(&mut flow.windows) {
                let telemetry = &telemetry.flows[at];
                left += window.take(&telemetry.delay, &mut self.delays);
                violations += telemetry.violations.get();
                bytes = bytes.wrapping_add(telemetry.bytes.get());
            }
            told.packets = left;
            // A port that refuses packets takes back what was counted as sent.
            told.bytes = bytes.saturating_sub(std::mem::replace(&mut flow.bytes, bytes));
            told.violations = violations.saturating_sub(std::mem::replace(&mut flow.violations, violations));
            flow.periods += 1;
            self.delays.add(&flow.few);
            let percentile = self.percentiles[at];
            told.delay_s = delays(&self.delays, percentile, self.frequency);
            // Most packets that the machine kept waiting are later than the others, so that these are the first of all.
            // Of a mean the median stands for it.
            let share = if let Percentile::Of(percent) = percentile { percent / 100.0 } else { 0.5 };
            let rest = [share * (1.0 - disturbed)];
            let undisturbed = (disturbed > 0.0).then(|| self.delays.quantiles(rest)).flatten();
            told.undisturbed_s = undisturbed.map(|[ticks]| self.frequency.seconds(Ticks(ticks)));
            if percentile.samples_above(self.delays.samples()) >= ENOUGH || flow.periods >= WIDEST {
                flow.begin();
            } else {
                flow.few.clear();
                flow.few.add(&self.delays);
            }
        }
        snapshot
    }

    /// Takes the counters of workers.
    fn take_workers(&mut self, now: Ticks, away: &[Away]) {
        let span = self.frequency.seconds(now.since(self.last));
        let workers = self.telemetries.iter().zip(&mut self.workers).zip(&mut self.snapshot.workers);
        for (at, ((telemetry, (before, window)), told)) in workers.enumerate() {
            let worker = &telemetry.worker;
            let long = worker.long.busy_turns.each_ref().map(Counter::get);
            let long_ticks = [&worker.long.ticks, &worker.long.busy].map(|of| of.iter().map(Counter::get).sum());
            let now = Turns { busy: worker.busy.get(), turns: worker.busy_turns.get(), long, long_ticks };
            let was = std::mem::replace(before, now);
            let seconds = |ticks: u64| self.frequency.seconds(Ticks(ticks));
            told.busy_s = seconds(now.busy - was.busy);
            told.busy_turns = now.turns - was.turns;
            let [long_s, long_busy_s] = std::array::from_fn(|of| seconds(now.long_ticks[of] - was.long_ticks[of]));
            told.long_s = long_s;
            told.away_s = away.get(at).and_then(|away| take_away(&mut self.away[at], *away, long_s.min(span)));
            // Idle turns lose time as well.
            let taken = told.away_s.filter(|_| long_s > 0.0).map_or(0.0, |away| away * long_busy_s / long_s);
            told.busy_s = (told.busy_s - taken).max(0.0);
            self.delays.clear();
            window.take(&worker.port_wait, &mut self.delays);
            told.port_wait_s = delays(&self.delays, Percentile::Of(99.0), self.frequency);
            told.long_turns = std::array::from_fn(|class| now.long[class] - was.long[class]);
        }
    }

    /// The share of the period that the machine took from the worker that it took most from.
    fn disturbed(&self, now: Ticks) -> f64 {
        let span = self.frequency.seconds(now.since(self.last));
        let shares = self.snapshot.workers.iter().filter_map(|worker| Some(worker.away_s? / span));
        if span > 0.0 { shares.fold(0.0, f64::max).min(1.0) } else { 0.0 }
    }

    /// The last snapshot.
    #[must_use]
    pub fn last(&self) -> &Snapshot {
        &self.snapshot
    }
}

/// Seconds that the machine took by what the system tells now, no more than `long` turns show: what a period of turns
/// does not show another may, as the system tells of some time only afterwards. `None` where it tells nothing.
fn take_away((before, owed): &mut (Away, f64), now: Away, long: f64) -> Option<f64> {
    let since = now.since(before);
    *before = now;
    let told = [since.wait, since.steal].into_iter().flatten().reduce(|sum, more| Nanos(sum.0 + more.0))?;
    let all = *owed + told.0 as f64 / 1e9;
    let taken = all.min(long);
    *owed = (all - taken).min(MOST_OWED);
    Some(taken)
}

fn take_module(
    telemetries: &[Arc<Telemetry>],
    here: &[bool],
    at: usize,
    before: &mut Counted,
    told: &mut ModuleSnapshot,
) {
    let frequency = telemetries[0].frequency;
    let mut all = Counted::default();
    (told.queued, told.oldest_s) = (0, 0.0);
    for (telemetry, _) in telemetries.iter().zip(here).filter(|(_, here)| **here) {
        let counters = &telemetry.counters[at];
        let (packets, queued) = (counters.packets.get(), counters.queued.get());
        all.packets += packets;
        all.calls += counters.batches();
        // Only where time is shared out packets are turned away.
        let away = if counters.weight.get() > 0 { telemetry.modules[at].turned_away.get() } else { 0 };
        all.came += packets + queued + away;
        all.arrived.0 += counters.arrived.get();
        all.arrived.1 += counters.arrivals.get();
        all.timed.0 += counters.timed.calls.get();
        all.timed.1 += counters.timed.packets.get();
        all.timed.2 = all.timed.2.wrapping_add(counters.timed.ticks.get());
        told.trigger = counters.trigger.get() as usize;
        told.hold_s = frequency.seconds(Ticks(counters.hold.get()));
        told.weight = counters.weight.get() as u32;
        told.queued += queued;
        if queued > 0 && counters.trigger.get() > 0 {
            told.oldest_s = told.oldest_s.max(frequency.seconds(Ticks(counters.oldest.get())));
        }
    }
    let was = std::mem::replace(before, all);
    (told.packets, told.calls) = (all.packets - was.packets, all.calls - was.calls);
    // What is queued is looked at now and then only.
    told.came = all.came.saturating_sub(was.came);
    told.arrived = (all.arrived.0 - was.arrived.0, all.arrived.1 - was.arrived.1);
    let ticks = all.timed.2.wrapping_sub(was.timed.2).cast_signed().max(0);
    let seconds = frequency.seconds(Ticks(ticks.cast_unsigned()));
    told.timed = (all.timed.0 - was.timed.0, all.timed.1 - was.timed.1, seconds);
}

impl Delays {
    /// Forgets what has been seen of this flow.
    fn begin(&mut self) {
        self.few.clear();
        self.periods = 0;
    }
}

fn delays(seen: &Values, percentile: Percentile, frequency: Frequency) -> Option<DelaySnapshot> {
    let seconds = |ticks: u64| frequency.seconds(Ticks(ticks));
    let chosen = percentile.share();
    let mut shares = [0.95, 0.99, chosen.unwrap_or(0.99)];
    shares.sort_by(f64::total_cmp);
    let found = seen.quantiles(shares)?;
    let of =
        |share: f64| shares.iter().zip(found).find(|(known, _)| **known == share).map_or(0.0, |(_, at)| seconds(at));
    let mean = frequency.micros(seen.mean()?) / 1e6;
    Some(DelaySnapshot { mean, p95: of(0.95), p99: of(0.99), chosen: chosen.map_or(mean, of) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(wait_ms: u64, steal_ms: Option<u64>) -> Away {
        let nanos = |millis: u64| Nanos(millis * 1_000_000);
        Away { wait: Some(nanos(wait_ms)), steal: steal_ms.map(nanos) }
    }

    /// The system reports stolen time in hundredths of a second, and long after the turn that it made long.
    #[test]
    fn the_machine_takes_what_the_system_tells_and_long_turns_show() {
        let mut known = (told(0, Some(0)), 0.0);
        let mut take = |wait, steal, long| take_away(&mut known, told(wait, steal), long).map(|s| (s * 1e3).round());
        assert_eq!(take(3, Some(0), 0.02), Some(3.0), "more than the machine took is work");
        assert_eq!(take(3, Some(10), 0.004), Some(4.0));
        assert_eq!(take(3, Some(10), 0.004), Some(4.0), "the rest of a hundredth");
        assert_eq!(take(3, Some(10), 0.1), Some(2.0));
        assert_eq!(take(3, Some(500), 0.0), Some(0.0));
        assert_eq!(take(3, Some(500), 9.0), Some(MOST_OWED * 1e3), "nothing is owed for ever");
        assert_eq!(take(5, None, 9.0), Some(2.0));
        assert_eq!(take_away(&mut (Away::default(), 0.0), Away::default(), 1.0), None);
    }
}

//! Takes snapshots of the workers' counters, for controllers. A snapshot reads each counter about once, and allocates
//! no memory.

use std::sync::Arc;

use forebay_measure::{Away, Counter, Values, Window};
use forebay_protocol::snapshot::{DelaySnapshot, LONG_CLASSES, ModuleSnapshot, Snapshot, WorkerSnapshot};
use forebay_units::{Frequency, Nanos, Percentile, Ticks};

use crate::telemetry::Telemetry;

/// A percentile counts as known if at least this number of packets is above it. The mean counts as known with this
/// number of packets.
const ENOUGH: f64 = 1.0;
/// If a period has too few packets, its delays are added to those of the next periods. At most this number of periods
/// is put together.
const WIDEST: u32 = 10;

/// The system may report more time as taken than the long turns so far can explain. The excess is kept for later
/// periods: at most this number of seconds. The system reports stolen time in hundredths of a second.
const MOST_OWED: f64 = 0.1;

/// Takes consecutive snapshots.
pub struct Sampler {
    telemetries: Vec<Arc<Telemetry>>,
    /// By flow.
    percentiles: Vec<Percentile>,
    /// By module, then by worker: whether the worker runs the module.
    here: Vec<Vec<bool>>,
    frequency: Frequency,
    /// When the run began.
    began: Ticks,
    /// When the last snapshot was taken.
    last: Ticks,
    /// The last snapshot. Its memory is reused for the next one.
    snapshot: Snapshot,
    /// By module: the sums of all workers' counters at the last snapshot.
    modules: Vec<Counted>,
    flows: Vec<Delays>,
    /// By worker: its turns at the last snapshot, and the window of its waits at ports.
    workers: Vec<(Turns, Window)>,
    /// By worker: the time that the machine has taken, as last reported by the system, and the seconds of this time
    /// that exceed the worker's long turns so far.
    away: Vec<(Away, f64)>,
    /// A flow's delays over all workers.
    delays: Values,
}

/// A module's counters, summed over workers.
#[derive(Clone, Copy, Default)]
struct Counted {
    packets: u64,
    calls: u64,
    /// Packets that had come: processed, turned away, or waiting.
    came: u64,
    /// The packets that came while there was a trigger, and the turns in which they came.
    arrived: (u64, u64),
    /// The timed calls, their packets, and their ticks.
    timed: (u64, u64, u64),
}

/// A worker's turns.
#[derive(Clone, Copy, Default)]
struct Turns {
    /// The ticks of busy turns.
    busy: u64,
    /// The number of busy turns.
    turns: u64,
    /// The number of long busy turns, by class.
    long: [u64; LONG_CLASSES],
    /// Ticks of all long turns, and of the busy turns among them.
    long_ticks: [u64; 2],
}

/// A flow's counters at the last snapshot, and its delays in the last periods if these periods had too few packets.
struct Delays {
    /// By worker: the position in the histogram of delays.
    windows: Vec<Window>,
    /// The delays of the last `periods` periods, if these periods had too few packets. Otherwise empty.
    few: Values,
    /// The number of periods whose delays are in `few`.
    periods: u32,
    violations: u64,
    bytes: u64,
}

impl Sampler {
    /// Creates a sampler for the workers of one pipeline, at least one. The counts until now are ignored. `began` is
    /// the start of the run.
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
        let here = |module: usize| telemetries.iter().map(|telemetry| telemetry.modules[module].here).collect();
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

    /// Takes a snapshot of the time since the last one. `away` is, by worker, the time that the machine has taken from
    /// it so far. It is empty if the system does not report this time.
    pub fn take(&mut self, now: Ticks, away: &[Away]) -> &mut Snapshot {
        self.take_workers(now, away);
        let disturbed = self.disturbed(now);
        let snapshot = &mut self.snapshot;
        snapshot.at_s = self.frequency.seconds(now.since(self.began));
        snapshot.period_s = self.frequency.seconds(now.since(self.last));
        self.last = now;
        for (at, (before, module)) in self.modules.iter_mut().zip(&mut snapshot.modules).enumerate() {
            take_module(&self.telemetries, &self.here[at], at, before, module);
        }
        for (at, (flow, flow_snapshot)) in self.flows.iter_mut().zip(&mut snapshot.flows).enumerate() {
            let (mut samples, mut violations, mut bytes) = (0, 0, 0_u64);
            self.delays.clear();
            for (telemetry, window) in self.telemetries.iter().zip(&mut flow.windows) {
                let telemetry = &telemetry.flows[at];
                samples += window.take(&telemetry.delay, &mut self.delays);
                violations += telemetry.violations.get();
                bytes = bytes.wrapping_add(telemetry.bytes.get());
            }
            flow_snapshot.packets = samples;
            // When a port refuses packets, their bytes are subtracted again, so the count may be smaller than before.
            flow_snapshot.bytes = bytes.saturating_sub(std::mem::replace(&mut flow.bytes, bytes));
            flow_snapshot.violations = violations.saturating_sub(std::mem::replace(&mut flow.violations, violations));
            flow.periods += 1;
            self.delays.add(&flow.few);
            let percentile = self.percentiles[at];
            flow_snapshot.delay_s = delays(&self.delays, percentile, self.frequency);
            // Packets that the machine kept waiting mostly have larger delays than the others. So the packets with the
            // smallest delays are taken as undisturbed. If the objective is for the mean, the median of the undisturbed
            // packets is used.
            let share = if let Percentile::Of(percent) = percentile { percent / 100.0 } else { 0.5 };
            let rest = [share * (1.0 - disturbed)];
            let undisturbed = (disturbed > 0.0).then(|| self.delays.quantiles(rest)).flatten();
            flow_snapshot.undisturbed_s = undisturbed.map(|[ticks]| self.frequency.seconds(Ticks(ticks)));
            if percentile.samples_above(self.delays.samples()) >= ENOUGH || flow.periods >= WIDEST {
                flow.begin();
            } else {
                flow.few.clear();
                flow.few.add(&self.delays);
            }
        }
        snapshot
    }

    /// Takes the workers' counters.
    fn take_workers(&mut self, now: Ticks, away: &[Away]) {
        let span = self.frequency.seconds(now.since(self.last));
        let workers = self.telemetries.iter().zip(&mut self.workers).zip(&mut self.snapshot.workers);
        for (at, ((telemetry, (before, window)), worker_snapshot)) in workers.enumerate() {
            let worker = &telemetry.worker;
            let long = worker.long.busy_turns.each_ref().map(Counter::get);
            let long_ticks = [&worker.long.ticks, &worker.long.busy].map(|of| of.iter().map(Counter::get).sum());
            let now = Turns { busy: worker.busy.get(), turns: worker.busy_turns.get(), long, long_ticks };
            let was = std::mem::replace(before, now);
            let seconds = |ticks: u64| self.frequency.seconds(Ticks(ticks));
            worker_snapshot.busy_s = seconds(now.busy - was.busy);
            worker_snapshot.busy_turns = now.turns - was.turns;
            let [long_s, long_busy_s] = std::array::from_fn(|of| seconds(now.long_ticks[of] - was.long_ticks[of]));
            worker_snapshot.long_s = long_s;
            worker_snapshot.away_s =
                away.get(at).and_then(|away| take_away(&mut self.away[at], *away, long_s.min(span)));
            // The machine also takes time from idle turns. Of the time that it took, only a part is subtracted: the
            // share of busy turns in the ticks of all long turns.
            let taken = worker_snapshot.away_s.filter(|_| long_s > 0.0).map_or(0.0, |away| away * long_busy_s / long_s);
            worker_snapshot.busy_s = (worker_snapshot.busy_s - taken).max(0.0);
            self.delays.clear();
            window.take(&worker.port_wait, &mut self.delays);
            worker_snapshot.port_wait_s = delays(&self.delays, Percentile::Of(99.0), self.frequency);
            worker_snapshot.long_turns = std::array::from_fn(|class| now.long[class] - was.long[class]);
        }
    }

    /// Returns the fraction of the period that the machine took from a worker, 0 to 1: the largest of all workers.
    fn disturbed(&self, now: Ticks) -> f64 {
        let span = self.frequency.seconds(now.since(self.last));
        let shares = self.snapshot.workers.iter().filter_map(|worker| Some(worker.away_s? / span));
        if span > 0.0 { shares.fold(0.0, f64::max).min(1.0) } else { 0.0 }
    }

    /// Returns the last snapshot.
    #[must_use]
    pub fn last(&self) -> &Snapshot {
        &self.snapshot
    }
}

/// Returns the seconds that the machine took from a worker since the last call. This is the time that the system
/// reports, but at most `long`, the seconds of long turns. The excess is kept for later periods, because the system
/// reports some of the time late. Returns `None` if the system does not report this time.
fn take_away((before, owed): &mut (Away, f64), now: Away, long: f64) -> Option<f64> {
    let since = now.since(before);
    *before = now;
    let reported = [since.wait, since.steal].into_iter().flatten().reduce(|sum, more| Nanos(sum.0 + more.0))?;
    let all = *owed + reported.0 as f64 / 1e9;
    let taken = all.min(long);
    *owed = (all - taken).min(MOST_OWED);
    Some(taken)
}

/// Fills the snapshot of the module `at` with its counts since `before`, and updates `before`. `here`: by worker,
/// whether it runs the module.
fn take_module(
    telemetries: &[Arc<Telemetry>],
    here: &[bool],
    at: usize,
    before: &mut Counted,
    snapshot: &mut ModuleSnapshot,
) {
    let frequency = telemetries[0].frequency;
    let mut all = Counted::default();
    (snapshot.queued, snapshot.oldest_s) = (0, 0.0);
    for (telemetry, here) in telemetries.iter().zip(here) {
        let counters = &telemetry.counters[at];
        // A worker without the module turns packets away if the ring to the module's worker is full. These packets
        // count, too. With a weight of 0, the scheduler does not share time, and such packets do not count.
        if counters.weight.get() > 0 {
            all.came += telemetry.modules[at].turned_away.get();
        }
        if !here {
            continue;
        }
        let (packets, queued) = (counters.packets.get(), counters.queued.get());
        all.packets += packets;
        all.calls += counters.batches();
        all.came += packets + queued;
        all.arrived.0 += counters.arrived.get();
        all.arrived.1 += counters.arrivals.get();
        all.timed.0 += counters.timed.calls.get();
        all.timed.1 += counters.timed.packets.get();
        all.timed.2 = all.timed.2.wrapping_add(counters.timed.ticks.get());
        snapshot.trigger = counters.trigger.get() as usize;
        snapshot.hold_s = frequency.seconds(Ticks(counters.hold.get()));
        snapshot.weight = counters.weight.get() as u32;
        snapshot.queued += queued;
        if queued > 0 && counters.trigger.get() > 0 {
            snapshot.oldest_s = snapshot.oldest_s.max(frequency.seconds(Ticks(counters.oldest.get())));
        }
    }
    let was = std::mem::replace(before, all);
    (snapshot.packets, snapshot.calls) = (all.packets - was.packets, all.calls - was.calls);
    // The count of queued packets is updated only from time to time, so `came` may seem to decrease.
    snapshot.came = all.came.saturating_sub(was.came);
    snapshot.arrived = (all.arrived.0 - was.arrived.0, all.arrived.1 - was.arrived.1);
    let ticks = all.timed.2.wrapping_sub(was.timed.2).cast_signed().max(0);
    let seconds = frequency.seconds(Ticks(ticks.cast_unsigned()));
    snapshot.timed = (all.timed.0 - was.timed.0, all.timed.1 - was.timed.1, seconds);
}

impl Delays {
    /// Discards the flow's delays.
    fn begin(&mut self) {
        self.few.clear();
        self.periods = 0;
    }
}

/// Returns the mean and percentiles of delays, in seconds. `percentile` is that of the flow's objective. `None` if
/// there are no delays.
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

    fn away(wait_ms: u64, steal_ms: Option<u64>) -> Away {
        let nanos = |millis: u64| Nanos(millis * 1_000_000);
        Away { wait: Some(nanos(wait_ms)), steal: steal_ms.map(nanos) }
    }

    /// The system reports stolen time in hundredths of a second, long after the turn that it made long.
    #[test]
    fn the_machine_takes_the_reported_time_that_long_turns_show() {
        let mut known = (away(0, Some(0)), 0.0);
        let mut take = |wait, steal, long| take_away(&mut known, away(wait, steal), long).map(|s| (s * 1e3).round());
        assert_eq!(take(3, Some(0), 0.02), Some(3.0), "the excess over the reported time is work");
        assert_eq!(take(3, Some(10), 0.004), Some(4.0));
        assert_eq!(take(3, Some(10), 0.004), Some(4.0), "the rest of a hundredth");
        assert_eq!(take(3, Some(10), 0.1), Some(2.0));
        assert_eq!(take(3, Some(500), 0.0), Some(0.0));
        assert_eq!(take(3, Some(500), 9.0), Some(MOST_OWED * 1e3), "the excess is bounded");
        assert_eq!(take(5, None, 9.0), Some(2.0));
        assert_eq!(take_away(&mut (Away::default(), 0.0), Away::default(), 1.0), None);
    }
}

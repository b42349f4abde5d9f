//! Takes snapshots from the workers' counters. A period costs about as many reads as there are counters, and no allocation.

use std::sync::Arc;

use forebay_measure::{Counter, Frequency, Values, Window};
use forebay_packet::Ticks;

use super::{DelaySnapshot, ModuleSnapshot, Snapshot, WorkerSnapshot};
use crate::percentile::Percentile;
use crate::telemetry::{LONG_CLASSES, Telemetry};

/// Packets above the chosen percentile without which it says nothing; of any, where it is the mean.
const ENOUGH: f64 = 1.0;
/// Periods after which the packets that there are must do.
const WIDEST: u32 = 10;

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
}

/// A flow's delays since the first of the last periods that had too few.
struct Delays {
    /// By worker.
    windows: Vec<Window>,
    /// Those of the periods before this one.
    few: Values,
    periods: u32,
    violations: u64,
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
            delays: Values::default(),
            telemetries,
        };
        sampler.snapshot.modules.resize(modules, ModuleSnapshot::default());
        sampler.snapshot.flows.resize_with(flows, Default::default);
        sampler.snapshot.workers.resize(sampler.workers.len(), WorkerSnapshot::default());
        sampler.take(now);
        sampler.flows.iter_mut().for_each(Delays::begin);
        sampler
    }

    /// What has happened since the last snapshot.
    pub fn take(&mut self, now: Ticks) -> &mut Snapshot {
        let snapshot = &mut self.snapshot;
        snapshot.at_s = self.frequency.seconds(now.since(self.began));
        snapshot.period_s = self.frequency.seconds(now.since(self.last));
        self.last = now;
        for (at, (before, told)) in self.modules.iter_mut().zip(&mut snapshot.modules).enumerate() {
            take_module(&self.telemetries, &self.here[at], at, before, told);
        }
        for (at, (flow, told)) in self.flows.iter_mut().zip(&mut snapshot.flows).enumerate() {
            let (mut left, mut violations) = (0, 0);
            self.delays.clear();
            for (telemetry, window) in self.telemetries.iter().zip(&mut flow.windows) {
                let telemetry = &telemetry.flows[at];
                left += window.take(&telemetry.delay, &mut self.delays);
                violations += telemetry.violations.get();
            }
            told.packets = left;
            // A port that refuses packets takes back what was counted as sent.
            told.violations = violations.saturating_sub(std::mem::replace(&mut flow.violations, violations));
            flow.periods += 1;
            self.delays.add(&flow.few);
            let percentile = self.percentiles[at];
            told.delay_s = delays(&self.delays, percentile, self.frequency);
            if percentile.telling(self.delays.samples()) >= ENOUGH || flow.periods >= WIDEST {
                flow.begin();
            } else {
                flow.few.clear();
                flow.few.add(&self.delays);
            }
        }
        let workers = self.telemetries.iter().zip(&mut self.workers).zip(&mut snapshot.workers);
        for ((telemetry, (before, window)), told) in workers {
            let worker = &telemetry.worker;
            let long = worker.long.busy_turns.each_ref().map(Counter::get);
            let now = Turns { busy: worker.busy.get(), turns: worker.busy_turns.get(), long };
            let was = std::mem::replace(before, now);
            told.busy_s = self.frequency.seconds(Ticks(now.busy - was.busy));
            told.busy_turns = now.turns - was.turns;
            self.delays.clear();
            window.take(&worker.port_wait, &mut self.delays);
            told.port_wait_s = delays(&self.delays, Percentile::Of(99.0), self.frequency);
            told.long_turns = std::array::from_fn(|class| now.long[class] - was.long[class]);
        }
        snapshot
    }

    /// The last snapshot.
    #[must_use]
    pub fn last(&self) -> &Snapshot {
        &self.snapshot
    }
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

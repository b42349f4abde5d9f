//! The difference between two readings.

use std::collections::{BTreeMap, HashMap};

use forebay_measure::Distribution;
use forebay_protocol::{
    Census,
    report::{
        Delay, FlowReport, MachineTime, ModuleReport, Packets, PortReport, Report, Spent, Stalls, Timing, WorkerReport,
    },
    snapshot::{LONG, LONG_CLASSES},
};
use forebay_units::{Frequency, Nanos, Ticks};

use super::machine::mark_machine_misses;
use super::reading::{FlowReading, Metered, ModuleReading, PortReading, Reading, Timed, WorkerReading};
use super::{FlowFigures, RunFacts};
use crate::port::OVERSIZE;

/// A long turn counts as a stall, which the machine caused because it ran something else, if it takes at least this
/// many times the usual length of a busy turn.
const STALL: f64 = 8.0;

impl Reading {
    /// Returns the report of the span since `earlier`, a reading of the same workers. The report has the modules, flows
    /// and ports of `self`.
    #[must_use]
    pub fn report_since(&self, earlier: &Self, origin: &RunFacts) -> Report {
        let later = self;
        let frequency = later.frequency;
        let duration_s = frequency.seconds(later.at.since(earlier.at));
        let clocks = [(1, "poll"), (2, "intended"), (4, "kernel")];
        let workers = pairs(&earlier.workers, &later.workers, |worker| worker.id);
        let workers: Vec<_> = workers.map(|(before, now)| worker(before, now, origin, frequency)).collect();
        let before: u64 = earlier.workers.iter().map(|worker| worker.all).sum();
        let span = later.workers.iter().map(|worker| worker.all).sum::<u64>().saturating_sub(before);
        let of_module = |(before, now)| module(before, now, (span, duration_s), frequency);
        let mut modules: Vec<_> =
            pairs(&earlier.modules, &later.modules, |module| module.name.as_str()).map(of_module).collect();
        unfold(&mut modules);
        let modules: Vec<_> = modules.into_iter().map(|(module, _)| module).collect();
        let of_flow = |(before, now)| flow(before, now, duration_s, frequency);
        let ports = pairs(&earlier.ports, &later.ports, |port| port.name.as_str()).map(port);
        let ports: Vec<_> = ports.collect();
        let (lost_lines, lost) = later.losses().since(&earlier.losses());
        let mut report = Report {
            pipeline: later.pipeline.clone(),
            forebay: env!("CARGO_PKG_VERSION").into(),
            kind: origin.kind,
            cpu: origin.cpu.clone(),
            duration_s,
            packets: Packets { lost, ..packets(earlier, later) },
            lost_lines,
            modules,
            flows: pairs(&earlier.flows, &later.flows, |flow| flow.name.as_str()).map(of_flow).collect(),
            workers,
            ports,
            arrival_clocks: clocks
                .iter()
                .filter(|(bit, _)| later.clocks & bit != 0)
                .map(|(_, name)| (*name).into())
                .collect(),
            removed_flows: later.removed.flows_since(&earlier.removed),
            pool_exhausted: later.exhausted.saturating_sub(earlier.exhausted),
            control: None,
        };
        mark_machine_misses(&mut report);
        // The counters are the sums of all workers. If one meter has failed, the sums of the meters do not match them,
        // so no meter figures are reported.
        if later.workers.iter().any(|worker| worker.meter_failed) {
            remove_meters(&mut report);
        }
        report
    }
}

/// Removes the figures of meters.
fn remove_meters(report: &mut Report) {
    report.modules.iter_mut().for_each(|module| module.metered = None);
    report.ports.iter_mut().for_each(|port| (port.receiving.metered, port.sending.metered) = (None, None));
    for worker in &mut report.workers {
        (worker.metered, worker.metered_residue, worker.handover.metered) = (None, None, None);
    }
}

/// Pairs each item of `later` with its earlier state, or with the default if there was none.
pub(super) fn pairs<'r, T: Clone + Default, K: Eq + std::hash::Hash>(
    earlier: &'r [T],
    later: &'r [T],
    key: impl Fn(&'r T) -> K,
) -> impl Iterator<Item = (T, &'r T)> {
    let before: HashMap<K, &T> = earlier.iter().map(|item| (key(item), item)).collect();
    later.iter().map(move |item| (before.get(&key(item)).map_or_else(T::default, |before| (*before).clone()), item))
}

fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// Reports a module between two readings. `seconds` passed between them. `span` is the number of ticks that all workers
/// together had in this time. Also returns the number of packets in its calls. If the module runs for a whole fold,
/// these are the packets of all modules of the fold.
fn module(
    before: ModuleReading,
    now: &ModuleReading,
    (span, seconds): (u64, f64),
    frequency: Frequency,
) -> (ModuleReport, u64) {
    let mut sizes = now.sizes;
    // If a module was removed and added again between the readings, its later count has started from 0 and may be
    // smaller.
    sizes.iter_mut().zip(before.sizes).for_each(|(count, before)| *count = count.saturating_sub(before));
    let batches: u64 = sizes.iter().sum();
    // The packets of a folded module derive from counters that are not written together, so their number may seem to
    // decrease.
    let packets = now.packets.saturating_sub(before.packets);
    let all = if now.of_fold > 0 { now.of_fold.saturating_sub(before.of_fold) } else { packets };
    let timed = now.timed.since(&before.timed);
    let mut counters = now.own.clone();
    for (heading, counts) in &mut counters {
        let earlier = before.own.get(heading);
        for (name, count) in counts {
            *count = count.wrapping_sub(earlier.and_then(|earlier| earlier.get(name)).copied().unwrap_or(0));
        }
    }
    let batch_mean = (batches > 0).then(|| all as f64 / batches as f64);
    let [arrived, arrivals] = [(now.arrived.0, before.arrived.0), (now.arrived.1, before.arrived.1)]
        .map(|(now, before)| now.saturating_sub(before));
    let report = ModuleReport {
        name: now.name.clone(),
        function: now.kind.into(),
        workers: now.workers.clone(),
        packets,
        rate_pps: rate(packets, seconds),
        batches,
        batch_mean,
        ingress_mean: if arrivals > 0 { Some(arrived as f64 / arrivals as f64) } else { batch_mean },
        batch_sizes: sizes,
        trigger: now.trigger,
        weight: Some(now.weight).filter(|weight| *weight > 0),
        hold_us: (now.trigger > 0).then(|| frequency.micros(now.hold as f64)),
        ticks_per_packet: timed.ticks_per_packet,
        ticks_per_batch: timed.ticks_per_batch,
        metered: timed.metered,
        share: timed.ticks_per_batch.filter(|_| span > 0).map(|ticks| ticks * batches as f64 / span as f64),
        folded: now.folded.clone(),
        dropped: now.dropped.saturating_sub(before.dropped),
        counters,
    };
    (report, all)
}

/// Gives each folded module its part of the calls and times of the module that runs for it, in proportion to its
/// packets. Each report comes with the packets of the module's calls.
fn unfold(modules: &mut [(ModuleReport, u64)]) {
    let leads = |module: &&(ModuleReport, u64)| module.0.folded.as_ref() == Some(&module.0.name);
    let leaders: HashMap<String, (ModuleReport, u64)> =
        modules.iter().filter(leads).map(|module| (module.0.name.clone(), module.clone())).collect();
    for (module, _) in modules {
        let Some((leader, all)) = module.folded.as_ref().and_then(|leader| leaders.get(leader)) else { continue };
        let share = if *all > 0 { (module.packets as f64 / *all as f64).min(1.0) } else { 0.0 };
        let part = |count: u64| (count as f64 * share).round() as u64;
        let some = |value: Option<f64>| value.filter(|_| module.packets > 0);
        (module.batches, module.batch_sizes) = (part(leader.batches), leader.batch_sizes.map(part));
        (module.batch_mean, module.ingress_mean) = (some(leader.batch_mean), some(leader.ingress_mean));
        (module.ticks_per_packet, module.ticks_per_batch) =
            (some(leader.ticks_per_packet), some(leader.ticks_per_batch));
        module.metered = leader.metered.filter(|_| module.packets > 0);
        module.share = leader.share.map(|all| all * share);
    }
}

/// Reports a flow between two readings, with `seconds` between them.
pub(super) fn flow(before: FlowReading, now: &FlowReading, seconds: f64, frequency: Frequency) -> FlowReport {
    let delays = now.delays.since(&before.delays);
    let figures = FlowFigures {
        name: &now.name,
        seconds,
        delays: &delays,
        // When a port refuses packets, they are subtracted again, so the count may be smaller than before.
        violations: now.violations.saturating_sub(before.violations),
        bytes: now.bytes.saturating_sub(before.bytes),
        slo: now.slo,
        percentile: now.percentile,
        min_rate: now.min_rate,
        turned_away: now.turned_away().saturating_sub(before.turned_away()),
    };
    figures.report(frequency)
}

/// Reports a worker between two readings.
fn worker(before: WorkerReading, now: &WorkerReading, origin: &RunFacts, frequency: Frequency) -> WorkerReport {
    let (span, busy) = (now.all.saturating_sub(before.all), now.busy.saturating_sub(before.busy));
    // If a worker left and joined again between the readings, its later counts have started from 0 and may be smaller.
    let busy_turns = now.busy_turns.saturating_sub(before.busy_turns);
    let timed_turns = now.timed_turns.saturating_sub(before.timed_turns);
    WorkerReport {
        id: now.id,
        core: origin.cores.get(now.id).copied().flatten(),
        // `busy` and `span` are read while the worker writes, so they may be a turn apart.
        busy: if span > 0 { (busy as f64 / span as f64).min(1.0) } else { 0.0 },
        timing_share: timing_share(&before, now, span),
        turns: now.turns.saturating_sub(before.turns),
        busy_turns,
        residue_ticks_per_turn: residue(&before.residue, &now.residue, timed_turns),
        metered: now.metered.since(&before.metered),
        metered_residue: now.metered_residue.since(&before.metered_residue),
        handover: now.handover.since(&before.handover),
        machine_stalls: stalls(&before, now, frequency),
        machine_time: machine_time(&before, now, frequency.seconds(Ticks(span))),
        handed: now.handed.saturating_sub(before.handed),
        taken: now.taken.saturating_sub(before.taken),
        stalls: now.stalls.saturating_sub(before.stalls),
    }
}

/// Returns the mean residue of the `turns` timed turns, in ticks. Only some stretches of residue in these turns were
/// timed. Their mean is taken as the mean of all stretches. `None` if no stretch was timed, or if `turns` is 0.
fn residue(before: &Timed, now: &Timed, turns: u64) -> Option<f64> {
    let stretches = now.packets.saturating_sub(before.packets) as f64;
    let ticks = now.since(before).ticks_per_batch?;
    (turns > 0).then(|| ticks * stretches / turns as f64)
}

/// Returns the share of `span` ticks that timing added to turns, 0 to 1. If few turns were timed, the sum may be
/// negative, and then counts as 0.
fn timing_share(before: &WorkerReading, now: &WorkerReading, span: u64) -> f64 {
    let ticks = now.timing.wrapping_sub(before.timing).cast_signed().max(0);
    if span > 0 { (ticks as f64 / span as f64).min(1.0) } else { 0.0 }
}

/// Returns the fractions of a worker's time that the machine took, 0 to 1. `seconds` is the worker's time: the length
/// of all turns between the two readings.
fn machine_time(before: &WorkerReading, now: &WorkerReading, seconds: f64) -> MachineTime {
    let share = |now: Option<Nanos>, before: Option<Nanos>| {
        let taken = now?.0.saturating_sub(before.map_or(0, |before| before.0));
        (seconds > 0.0).then(|| (taken as f64 / 1e9 / seconds).min(1.0))
    };
    MachineTime { steal: share(now.away.steal, before.away.steal), wait: share(now.away.wait, before.away.wait) }
}

/// Returns the long turns that the machine must have caused: they take at least [`STALL`] times the mean of the other
/// busy turns. The rule does not depend on the pipeline.
fn stalls(before: &WorkerReading, now: &WorkerReading, frequency: Frequency) -> Stalls {
    let [turns, long_busy_turns, ticks, busy]: [[u64; LONG_CLASSES]; 4] = std::array::from_fn(|of| {
        std::array::from_fn(|class| now.long[of][class].saturating_sub(before.long[of][class]))
    });
    let [span, all_busy, busy_turns] =
        [(now.all, before.all), (now.busy, before.busy), (now.busy_turns, before.busy_turns)]
            .map(|(now, before)| now.saturating_sub(before) as f64);
    let long = frequency.ticks(LONG).0 as f64;
    // The classes are checked from the longest turns down. Turns that count as stalls are left out of the mean.
    // Otherwise they would raise the mean, and shorter stalls would not be found. A class that has most of the turns
    // determines the mean, so its turns are no stalls.
    let mut stalls = Stalls::default();
    let (mut stalled, mut stalled_busy, mut stalled_busy_turns) = (0.0, 0.0, 0.0);
    for class in (0..LONG_CLASSES).rev().filter(|class| turns[*class] > 0) {
        let usual = (all_busy - stalled_busy).max(0.0) / (busy_turns - stalled_busy_turns).max(1.0);
        if long * f64::from(1u32 << class) < usual * STALL {
            break;
        }
        stalls.turns += turns[class];
        stalled += ticks[class] as f64;
        stalled_busy += busy[class] as f64;
        stalled_busy_turns += long_busy_turns[class] as f64;
    }
    if span > 0.0 {
        (stalls.share, stalls.busy_share) = ((stalled / span).min(1.0), (stalled_busy / span).min(1.0));
    }
    stalls
}

/// Reports a port between two readings.
fn port((before, now): (PortReading, &PortReading)) -> PortReport {
    let [received, sent, dropped, refused, errors] =
        std::array::from_fn(|at| now.counts[at].saturating_sub(before.counts[at]));
    let receiving = now.receiving.since(&before.receiving);
    let sending = now.sending.since(&before.sending);
    let (name, kind) = (now.name.clone(), now.kind.into());
    let since = |(reason, count): (&String, &u64)| {
        let count = count.saturating_sub(*before.skipped.get(reason).unwrap_or(&0));
        (count > 0).then(|| (reason.clone(), count))
    };
    let skipped: BTreeMap<_, _> = now.skipped.iter().filter_map(since).collect();
    // `af_xdp` counts such frames without their lengths, so `longest` may be 0.
    let longest_oversize = skipped.contains_key(OVERSIZE).then_some(now.longest).filter(|longest| *longest > 0);
    let unread = now.unread;
    PortReport {
        name,
        kind,
        received,
        sent,
        dropped,
        skipped,
        longest_oversize,
        refused,
        errors,
        unread,
        receiving,
        sending,
    }
}

/// Reports where the packets are, without reasons that have no packets. The caller sets `lost`.
fn packets(earlier: &Reading, later: &Reading) -> Packets {
    let Census { queued, held, in_flight, handed, taken, .. } = later.census;
    let difference = |later: &BTreeMap<String, u64>, earlier: &BTreeMap<String, u64>| {
        let counts = later.iter().map(|(name, count)| (name.clone(), count - earlier.get(name).unwrap_or(&0)));
        counts.filter(|(_, count)| *count > 0).collect()
    };
    Packets {
        entered: later.census.entered - earlier.census.entered,
        lost: 0,
        created: difference(&later.created, &earlier.created),
        out: later.census.out.saturating_sub(earlier.census.out),
        dropped: difference(&later.dropped, &earlier.dropped),
        consumed: difference(&later.consumed, &earlier.consumed),
        queued: queued + handed.saturating_sub(taken),
        held,
        in_flight,
    }
}

/// Returns the figures of delays in ticks; `micros` converts ticks to microseconds.
pub(super) fn delay(delays: &Distribution, micros: impl Fn(f64) -> f64) -> Delay {
    let at = |quantile| delays.quantile(quantile).map(|ticks| micros(ticks as f64));
    Delay {
        mean: delays.mean().map(&micros),
        p50: at(0.5),
        p95: at(0.95),
        p99: at(0.99),
        p999: at(0.999),
        max: delays.max().map(|ticks| micros(ticks as f64)),
        samples: delays.samples(),
    }
}

impl Metered {
    /// Returns the counts per packet, or per turn, since `before`; `None` if nothing was metered.
    fn since(&self, before: &Self) -> Option<Spent> {
        let times = self.times.saturating_sub(before.times) as f64;
        let each = |now, before| signed(now, before) / times;
        (times > 0.0).then(|| Spent {
            instructions: each(self.instructions, before.instructions),
            cycles: each(self.cycles, before.cycles),
        })
    }
}

impl Timed {
    /// Returns the times of sampled calls since `before`.
    pub(super) fn since(&self, before: &Self) -> Timing {
        let ticks = signed(self.ticks, before.ticks);
        let [packets, calls] = [(self.packets, before.packets), (self.calls, before.calls)]
            .map(|(now, before)| now.saturating_sub(before) as f64);
        let ratio = |of: f64, over: f64| (over > 0.0).then(|| of / over);
        Timing {
            ticks_per_packet: ratio(ticks, packets),
            ticks_per_batch: ratio(ticks, calls),
            batch_mean: ratio(packets, calls),
            metered: self.metered.since(&before.metered),
        }
    }
}

/// Returns the increase of a sum of spans. Short spans may be measured as negative, so a sum of few spans may decrease.
/// A decrease counts as 0.
fn signed(now: u64, before: u64) -> f64 {
    (now.wrapping_sub(before).cast_signed() as f64).max(0.0)
}

//! What a run has come to, as one plain value: for people's tables, for programs as JSON, for whoever decides.
//!
//! A [`Reading`] is what the counters say at one instant. A [`Report`] is the difference between two readings, so that
//! a whole run and its last second are told by the same code.

mod reading;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use forebay_measure::machine::Cpu;
use forebay_measure::{Distribution, Frequency};
use serde::{Deserialize, Serialize};

use reading::{FlowReading, Metered, ModuleReading, PortReading, Timed, WorkerReading};

pub use reading::Reading;

use crate::telemetry::{LONG, LONG_CLASSES, SIZE_CLASSES};
use crate::worker::Census;

/// How figures came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// On this machine's clock.
    Measured,
    /// In simulated time, with costs that were given.
    Simulated,
}

/// What happened between two readings. What cannot be told is `None`, never 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The pipeline's name.
    pub pipeline: String,
    /// The version of Forebay.
    pub forebay: Cow<'static, str>,
    /// How the figures came to be.
    pub kind: Kind,
    /// The machine and its clock; in simulated time the clock's ticks.
    pub cpu: Cpu,
    /// How long it took, in seconds of the worker's clock.
    pub duration_s: f64,
    /// Where every packet is.
    pub packets: Packets,
    /// By module, in topological order.
    pub modules: Vec<ModuleReport>,
    /// By flow.
    pub flows: Vec<FlowReport>,
    /// By worker.
    pub workers: Vec<WorkerReport>,
    /// By port.
    pub ports: Vec<PortReport>,
    /// Clocks that packets' arrival times are of (`poll`, `intended`, `kernel`): they say what delays include.
    pub arrival_clocks: Vec<Cow<'static, str>>,
    /// How often the packet pool had no packet to give.
    pub pool_exhausted: u64,
}

/// Where every packet is: `in + created = out + dropped + consumed + queued + held + in_flight` over a whole run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packets {
    /// Entered by ports.
    #[serde(rename = "in")]
    pub entered: u64,
    /// Created by functions: `module.reason` and how many.
    pub created: BTreeMap<String, u64>,
    /// Left by ports.
    pub out: u64,
    /// Dropped: `module.reason`, `module.backpressure` (one further on is overloaded), `port.refused`, `unwanted` (the configuration sends them nowhere), `no_gate` (a defect
    /// of a function), `wound_up` (still held at the end), and how many.
    pub dropped: BTreeMap<String, u64>,
    /// Ended in functions: `module.reason` and how many.
    pub consumed: BTreeMap<String, u64>,
    /// Wait in modules' queues or between workers now.
    pub queued: u64,
    /// Held by functions now.
    pub held: u64,
    /// Given to a kernel or device that has not finished with them now.
    pub in_flight: u64,
}

impl Packets {
    /// Created, for whatever reason.
    #[must_use]
    pub fn all_created(&self) -> u64 {
        self.created.values().sum()
    }

    /// Dropped, for whatever reason.
    #[must_use]
    pub fn all_dropped(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Consumed, for whatever reason.
    #[must_use]
    pub fn all_consumed(&self) -> u64 {
        self.consumed.values().sum()
    }

    /// Puts the totals right by an exact count that was taken after the rest; what came to be or to its end in between, and
    /// is under no reason yet, is under `since`.
    pub fn place(&mut self, census: &Census) {
        (self.entered, self.out) = (census.entered, census.left);
        self.queued = census.queued + census.handed.saturating_sub(census.taken);
        (self.held, self.in_flight) = (census.held, census.in_flight);
        for (reasons, exact) in [
            (&mut self.created, census.created),
            (&mut self.dropped, census.dropped),
            (&mut self.consumed, census.consumed),
        ] {
            let more = exact.saturating_sub(reasons.values().sum());
            if more > 0 {
                *reasons.entry("since".to_owned()).or_insert(0) += more;
            }
        }
    }

    /// How many packets are unaccounted for: 0 over a whole run, or there is a defect.
    #[must_use]
    pub fn missing(&self) -> i128 {
        let there = [self.out, self.all_dropped(), self.all_consumed(), self.queued, self.held, self.in_flight];
        let sum = |counts: &[u64]| counts.iter().map(|count| i128::from(*count)).sum::<i128>();
        sum(&[self.entered, self.all_created()]) - sum(&there)
    }
}

/// A module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModuleReport {
    /// Its name.
    pub name: String,
    /// Its function.
    pub function: Cow<'static, str>,
    /// The workers that run it.
    pub workers: Vec<usize>,
    /// Packets processed.
    pub packets: u64,
    /// Packets processed, a second.
    pub rate_pps: f64,
    /// Calls.
    pub batches: u64,
    /// Packets a call.
    pub batch_mean: Option<f64>,
    /// Calls by their number of packets: 1, 2, 3–4, 5–8, … 129–256.
    pub batch_sizes: [u64; SIZE_CLASSES],
    /// The trigger now in force.
    pub trigger: u64,
    /// The hold limit now in force, where there is a trigger.
    pub hold_us: Option<f64>,
    /// The weight now in force, where the scheduler shares time out.
    pub weight: Option<u64>,
    /// Ticks a packet, of the calls that were timed.
    pub ticks_per_packet: Option<f64>,
    /// Ticks a call, of the calls that were timed.
    pub ticks_per_batch: Option<f64>,
    /// Instructions and core cycles a packet, of the calls that were metered; left out where there is no meter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metered: Option<Spent>,
    /// Share of all workers' time, estimated from the calls that were timed.
    pub share: Option<f64>,
    /// Packets dropped here, for whatever reason.
    pub dropped: u64,
    /// The function's own counters: heading, name, count.
    pub counters: BTreeMap<String, BTreeMap<String, u64>>,
}

/// A flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowReport {
    /// Its name.
    pub name: String,
    /// Packets that left.
    pub packets: u64,
    /// Packets that left, a second.
    pub rate_pps: f64,
    /// From arrival to departure, in microseconds.
    pub delay_us: Delay,
    /// The delay objective.
    pub slo_us: Option<f64>,
    /// The percentile of packets that must keep it.
    pub percentile: Option<f64>,
    /// Packets above the objective.
    pub violations: Option<u64>,
    /// Whether the objective was kept; `None` without one or without packets.
    pub kept: Option<bool>,
}

/// A distribution of delays in microseconds. Percentiles are at most 1/16 above the true ones, and never below.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    /// The mean.
    pub mean: Option<f64>,
    /// The median.
    pub p50: Option<f64>,
    /// The 95th percentile.
    pub p95: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
    /// The 99.9th percentile.
    pub p999: Option<f64>,
    /// The largest of the whole run.
    pub max: Option<f64>,
    /// How many.
    pub samples: u64,
}

impl Delay {
    fn of(delays: &Distribution, micros: impl Fn(f64) -> f64) -> Self {
        let at = |quantile| delays.quantile(quantile).map(|ticks| micros(ticks as f64));
        Self {
            mean: delays.mean().map(&micros),
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: delays.max().map(|ticks| micros(ticks as f64)),
            samples: delays.samples(),
        }
    }
}

/// What a meter counted, for each packet or turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// Instructions.
    pub instructions: f64,
    /// Core cycles.
    pub cycles: f64,
}

impl Spent {
    /// For each packet, or turn; `None` where none was metered.
    fn between(before: &Metered, now: &Metered) -> Option<Self> {
        let times = now.times.saturating_sub(before.times) as f64;
        let each = |now, before| signed(now, before) / times;
        (times > 0.0).then(|| Self {
            instructions: each(now.instructions, before.instructions),
            cycles: each(now.cycles, before.cycles),
        })
    }

    /// Instructions per core cycle.
    #[must_use]
    pub fn ipc(&self) -> Option<f64> {
        (self.cycles > 0.0).then(|| self.instructions / self.cycles)
    }
}

/// What was timed of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Ticks a packet, of the calls that were timed.
    pub ticks_per_packet: Option<f64>,
    /// Ticks a call.
    pub ticks_per_batch: Option<f64>,
    /// Packets a call.
    pub batch_mean: Option<f64>,
    /// Instructions and core cycles a packet, of the calls that were metered; left out where there is no meter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metered: Option<Spent>,
}

impl Timing {
    fn between(before: &Timed, now: &Timed) -> Self {
        let ticks = signed(now.ticks, before.ticks);
        let [packets, calls] = [now.packets - before.packets, now.calls - before.calls].map(|count| count as f64);
        let ratio = |of: f64, over: f64| (over > 0.0).then(|| of / over);
        Self {
            ticks_per_packet: ratio(ticks, packets),
            ticks_per_batch: ratio(ticks, calls),
            batch_mean: ratio(packets, calls),
            metered: Spent::between(&before.metered, &now.metered),
        }
    }
}

/// What was added to a sum of spans, of which short ones may be negative; the sum is not but for want of many.
fn signed(now: u64, before: u64) -> f64 {
    (now.wrapping_sub(before).cast_signed() as f64).max(0.0)
}

/// Turns so long that the machine must have been elsewhere: longer than 50 us, and than eight usual ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stalls {
    /// How many.
    pub turns: u64,
    /// Their share of the time.
    pub share: f64,
    /// The share of the time that they have of the turns in which there was something to do.
    pub busy_share: f64,
}

/// How many times a usual turn one takes in which the machine must have been elsewhere.
const STALL: f64 = 8.0;

/// A worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Its number.
    pub id: usize,
    /// The core that it is bound to.
    pub core: Option<usize>,
    /// Share of its time in turns in which there was something to do.
    pub busy: f64,
    /// Turns.
    pub turns: u64,
    /// Turns in which there was something to do.
    pub busy_turns: u64,
    /// Ticks of such a turn that are no module's, no port's and no hand-over's, of those that were timed: scheduling,
    /// polling, looking after timers.
    pub residue_ticks_per_turn: Option<f64>,
    /// Instructions and core cycles of such a turn, of those that were metered; left out where there is no meter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metered: Option<Spent>,
    /// The same of what is no module's, no port's and no hand-over's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metered_residue: Option<Spent>,
    /// What packets to and from other workers cost.
    pub handover: Timing,
    /// Turns in which the machine was elsewhere.
    pub machine_stalls: Stalls,
    /// Packets given to other workers.
    pub handed: u64,
    /// Packets taken from other workers.
    pub taken: u64,
    /// Batches that another worker had no room for: they waited.
    pub stalls: u64,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortReport {
    /// Its name.
    pub name: String,
    /// What kind of port it is.
    pub kind: Cow<'static, str>,
    /// Packets that entered by it.
    pub received: u64,
    /// Packets that left by it.
    pub sent: u64,
    /// Packets lost before they entered.
    pub dropped: u64,
    /// Packets that it would not send.
    pub refused: u64,
    /// Things that went wrong.
    pub errors: u64,
    /// What taking packets from it costs the worker.
    pub receiving: Timing,
    /// What giving packets to it costs the worker, their flows' accounts included.
    pub sending: Timing,
}

/// What the counters do not know: whose clock and core it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// How the figures come to be.
    pub kind: Kind,
    /// The machine; in simulated time the clock's ticks.
    pub cpu: Cpu,
    /// By worker: the core that it is bound to.
    pub cores: Vec<Option<usize>>,
}

impl Report {
    /// What happened from `earlier` to `later`, two readings of the same workers. Modules, flows and ports are those of
    /// `later`.
    #[must_use]
    pub fn between(earlier: &Reading, later: &Reading, origin: &Origin) -> Self {
        let frequency = later.frequency;
        let duration_s = frequency.seconds(later.at.since(earlier.at));
        let clocks = [(1, "poll"), (2, "intended"), (4, "kernel")];
        let workers = pairs(&earlier.workers, &later.workers, |worker| worker.id);
        let workers: Vec<_> = workers.map(|(before, now)| worker(before, now, origin, frequency)).collect();
        let before: u64 = earlier.workers.iter().map(|worker| worker.all).sum();
        let span = later.workers.iter().map(|worker| worker.all).sum::<u64>().saturating_sub(before);
        let of_module = |(before, now)| module(before, now, (span, duration_s), frequency);
        let of_flow = |(before, now)| flow(before, now, duration_s, frequency);
        let report = Self {
            pipeline: later.pipeline.clone(),
            forebay: env!("CARGO_PKG_VERSION").into(),
            kind: origin.kind,
            cpu: origin.cpu.clone(),
            duration_s,
            packets: packets(earlier, later),
            modules: pairs(&earlier.modules, &later.modules, |module| module.name.as_str()).map(of_module).collect(),
            flows: pairs(&earlier.flows, &later.flows, |flow| flow.name.as_str()).map(of_flow).collect(),
            workers,
            ports: pairs(&earlier.ports, &later.ports, |port| port.name.as_str()).map(port).collect(),
            arrival_clocks: clocks
                .iter()
                .filter(|(bit, _)| later.clocks & bit != 0)
                .map(|(_, name)| (*name).into())
                .collect(),
            pool_exhausted: later.exhausted.saturating_sub(earlier.exhausted),
        };
        // Of all workers, or not at all.
        if later.workers.iter().any(|worker| worker.meter_failed) { report.without_meters() } else { report }
    }

    fn without_meters(mut self) -> Self {
        self.modules.iter_mut().for_each(|module| module.metered = None);
        self.ports.iter_mut().for_each(|port| (port.receiving.metered, port.sending.metered) = (None, None));
        for worker in &mut self.workers {
            (worker.metered, worker.metered_residue, worker.handover.metered) = (None, None, None);
        }
        self
    }
}

/// Each of `later` with what it was in `earlier`, where it was there.
fn pairs<'r, T: Clone + Default, K: Eq + std::hash::Hash>(
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

/// A module between two readings, in which `span` ticks of all workers' time, or `seconds`, passed.
fn module(
    before: ModuleReading,
    now: &ModuleReading,
    (span, seconds): (u64, f64),
    frequency: Frequency,
) -> ModuleReport {
    let mut sizes = now.sizes;
    sizes.iter_mut().zip(before.sizes).for_each(|(count, before)| *count -= before);
    let batches: u64 = sizes.iter().sum();
    let packets = now.packets - before.packets;
    let timed = Timing::between(&before.timed, &now.timed);
    let mut counters = now.own.clone();
    for (heading, counts) in &mut counters {
        let earlier = before.own.get(heading);
        for (name, count) in counts {
            *count = count.wrapping_sub(earlier.and_then(|earlier| earlier.get(name)).copied().unwrap_or(0));
        }
    }
    ModuleReport {
        name: now.name.clone(),
        function: now.kind.into(),
        workers: now.workers.clone(),
        packets,
        rate_pps: rate(packets, seconds),
        batches,
        batch_mean: (batches > 0).then(|| packets as f64 / batches as f64),
        batch_sizes: sizes,
        trigger: now.trigger,
        weight: Some(now.weight).filter(|weight| *weight > 0),
        hold_us: (now.trigger > 0).then(|| frequency.micros(now.hold as f64)),
        ticks_per_packet: timed.ticks_per_packet,
        ticks_per_batch: timed.ticks_per_batch,
        metered: timed.metered,
        share: timed.ticks_per_batch.filter(|_| span > 0).map(|ticks| ticks * batches as f64 / span as f64),
        dropped: now.dropped - before.dropped,
        counters,
    }
}

fn flow(before: FlowReading, now: &FlowReading, seconds: f64, frequency: Frequency) -> FlowReport {
    let delays = now.delays.since(&before.delays);
    // A port that refuses packets takes back what was counted as sent.
    let violations = now.violations.saturating_sub(before.violations);
    let packets = delays.samples();
    // Counted packet by packet: not subject to the histogram's buckets.
    let allowed = packets as f64 * (100.0 - now.percentile) / 100.0;
    FlowReport {
        name: now.name.clone(),
        packets,
        rate_pps: rate(packets, seconds),
        delay_us: Delay::of(&delays, |ticks| frequency.micros(ticks)),
        slo_us: now.slo.map(|slo| slo.0 as f64 / 1e3),
        percentile: now.slo.map(|_| now.percentile),
        violations: now.slo.map(|_| violations),
        kept: now.slo.filter(|_| packets > 0).map(|_| violations as f64 <= allowed),
    }
}

fn worker(before: WorkerReading, now: &WorkerReading, origin: &Origin, frequency: Frequency) -> WorkerReport {
    let (span, busy) = (now.all.saturating_sub(before.all), now.busy.saturating_sub(before.busy));
    let (busy_turns, timed_turns) = (now.busy_turns - before.busy_turns, now.timed_turns - before.timed_turns);
    WorkerReport {
        id: now.id,
        core: origin.cores.get(now.id).copied().flatten(),
        // Read while the worker writes, the two may be a turn apart.
        busy: if span > 0 { (busy as f64 / span as f64).min(1.0) } else { 0.0 },
        turns: now.turns.saturating_sub(before.turns),
        busy_turns,
        residue_ticks_per_turn: (timed_turns > 0).then(|| signed(now.residue, before.residue) / timed_turns as f64),
        metered: Spent::between(&before.metered, &now.metered),
        metered_residue: Spent::between(&before.metered_residue, &now.metered_residue),
        handover: Timing::between(&before.handover, &now.handover),
        machine_stalls: stalls(&before, now, frequency),
        handed: now.handed.saturating_sub(before.handed),
        taken: now.taken.saturating_sub(before.taken),
        stalls: now.stalls.saturating_sub(before.stalls),
    }
}

/// Long turns that are no usual ones: the rule is fixed, whatever is measured.
fn stalls(before: &WorkerReading, now: &WorkerReading, frequency: Frequency) -> Stalls {
    let [turns, long_busy_turns, ticks, busy]: [[u64; LONG_CLASSES]; 4] =
        std::array::from_fn(|of| std::array::from_fn(|class| now.long[of][class] - before.long[of][class]));
    let (span, all_busy) = ((now.all - before.all) as f64, (now.busy - before.busy) as f64);
    let busy_turns = (now.busy_turns - before.busy_turns) as f64;
    let long = frequency.ticks(LONG).0 as f64;
    // The longest first: what they take makes no other turn look usual. A class that has most turns is usual itself.
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

fn port((before, now): (PortReading, &PortReading)) -> PortReport {
    let [received, sent, dropped, refused, errors] =
        std::array::from_fn(|at| now.counts[at].saturating_sub(before.counts[at]));
    let receiving = Timing::between(&before.receiving, &now.receiving);
    let sending = Timing::between(&before.sending, &now.sending);
    let (name, kind) = (now.name.clone(), now.kind.into());
    PortReport { name, kind, received, sent, dropped, refused, errors, receiving, sending }
}

/// Where the packets are. Reasons that nothing happened for are left out.
fn packets(earlier: &Reading, later: &Reading) -> Packets {
    let Census { queued, held, in_flight, handed, taken, .. } = later.census;
    let difference = |later: &BTreeMap<String, u64>, earlier: &BTreeMap<String, u64>| {
        let counts = later.iter().map(|(name, count)| (name.clone(), count - earlier.get(name).unwrap_or(&0)));
        counts.filter(|(_, count)| *count > 0).collect()
    };
    Packets {
        entered: later.census.entered - earlier.census.entered,
        created: difference(&later.created, &earlier.created),
        out: later.census.left.saturating_sub(earlier.census.left),
        dropped: difference(&later.dropped, &earlier.dropped),
        consumed: difference(&later.consumed, &earlier.consumed),
        queued: queued + handed.saturating_sub(taken),
        held,
        in_flight,
    }
}

#[cfg(test)]
mod tests;

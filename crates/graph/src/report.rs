//! What a run has come to, as one plain value: for people's tables, for programs as JSON, for whoever decides.
//!
//! A [`Reading`] is what the counters say at one instant. A [`Report`] is the difference between two readings, so that
//! a whole run and its last second are told by the same code.

mod reading;

use std::collections::BTreeMap;

use forebay_measure::Distribution;
use forebay_measure::machine::Cpu;
use serde::Serialize;

pub use reading::Reading;

use crate::telemetry::{SIZE_CLASSES, Telemetry};
use crate::worker::Census;

/// How figures came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// On this machine's clock.
    Measured,
    /// In simulated time, with costs that were given.
    Simulated,
}

/// What happened between two readings. What cannot be told is `None`, never 0.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The pipeline's name.
    pub pipeline: String,
    /// The version of Forebay.
    pub forebay: &'static str,
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
    pub arrival_clocks: Vec<&'static str>,
    /// How often the packet pool had no packet to give.
    pub pool_exhausted: u64,
}

/// Where every packet is: `in + created = out + dropped + consumed + queued + held + in_flight` over a whole run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    /// Wait in modules' queues now.
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

    /// How many packets are unaccounted for: 0 over a whole run, or there is a defect.
    #[must_use]
    pub fn missing(&self) -> i128 {
        let there = [self.out, self.all_dropped(), self.all_consumed(), self.queued, self.held, self.in_flight];
        let sum = |counts: &[u64]| counts.iter().map(|count| i128::from(*count)).sum::<i128>();
        sum(&[self.entered, self.all_created()]) - sum(&there)
    }
}

/// A module.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModuleReport {
    /// Its name.
    pub name: String,
    /// Its function.
    pub function: &'static str,
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
    /// Share of the worker's time, estimated from the calls that were timed.
    pub share: Option<f64>,
    /// Packets dropped here, for whatever reason.
    pub dropped: u64,
    /// The function's own counters: heading, name, count.
    pub counters: BTreeMap<String, BTreeMap<String, u64>>,
}

/// A flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
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

/// A worker.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkerReport {
    /// Its number.
    pub id: usize,
    /// The core that it is bound to.
    pub core: Option<usize>,
    /// Share of its time in turns in which there was something to do.
    pub busy: f64,
    /// Turns.
    pub turns: u64,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PortReport {
    /// Its name.
    pub name: String,
    /// What kind of port it is.
    pub kind: &'static str,
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
}

/// What the counters do not know: whose clock and core it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// How the figures come to be.
    pub kind: Kind,
    /// The machine; in simulated time the clock's ticks.
    pub cpu: Cpu,
    /// The core that the worker is bound to.
    pub core: Option<usize>,
}

impl Report {
    /// What happened from `earlier` to `later`, two readings of the same worker's `telemetry`.
    #[must_use]
    pub fn between(telemetry: &Telemetry, earlier: &Reading, later: &Reading, origin: &Origin) -> Self {
        let frequency = telemetry.frequency;
        let duration_s = frequency.seconds(later.at.since(earlier.at));
        let span = later.all.wrapping_sub(earlier.all);
        let per_second = |count: u64| if duration_s > 0.0 { count as f64 / duration_s } else { 0.0 };
        let micros = |ticks: f64| frequency.micros(ticks);
        let busy = later.busy.wrapping_sub(earlier.busy);
        let clocks = [(1, "poll"), (2, "intended"), (4, "kernel")];
        Self {
            pipeline: telemetry.pipeline.clone(),
            forebay: env!("CARGO_PKG_VERSION"),
            kind: origin.kind,
            cpu: origin.cpu.clone(),
            duration_s,
            packets: packets(telemetry, earlier, later),
            modules: (0..telemetry.modules.len())
                .map(|module| reading::module(telemetry, module, earlier, later, (span, duration_s)))
                .collect(),
            flows: telemetry
                .flows
                .iter()
                .enumerate()
                .map(|(flow, told)| {
                    let delays = later.flows[flow].0.since(&earlier.flows[flow].0);
                    // A port that refuses packets takes back what was counted as sent.
                    let violations = later.flows[flow].1.saturating_sub(earlier.flows[flow].1);
                    let packets = delays.samples();
                    let (slo, percentile) = (told.plan.slo, told.plan.percentile);
                    // Counted packet by packet: not subject to the histogram's buckets.
                    let allowed = packets as f64 * (100.0 - percentile) / 100.0;
                    FlowReport {
                        name: told.plan.name.clone(),
                        packets,
                        rate_pps: per_second(packets),
                        delay_us: Delay::of(&delays, micros),
                        slo_us: slo.map(|slo| slo.0 as f64 / 1e3),
                        percentile: slo.map(|_| percentile),
                        violations: slo.map(|_| violations),
                        kept: slo.filter(|_| packets > 0).map(|_| violations as f64 <= allowed),
                    }
                })
                .collect(),
            workers: vec![WorkerReport {
                id: 0,
                core: origin.core,
                // Read while the worker writes, the two may be a turn apart.
                busy: if span > 0 { (busy as f64 / span as f64).min(1.0) } else { 0.0 },
                turns: later.turns - earlier.turns,
            }],
            ports: telemetry
                .ports
                .iter()
                .zip(later.ports.iter().zip(&earlier.ports))
                .map(|(told, (later, earlier))| PortReport {
                    name: told.name.clone(),
                    kind: told.kind,
                    received: later[0] - earlier[0],
                    sent: later[1] - earlier[1],
                    dropped: later[2] - earlier[2],
                    refused: later[3] - earlier[3],
                    errors: later[4] - earlier[4],
                })
                .collect(),
            arrival_clocks: clocks.iter().filter(|(bit, _)| later.clocks & bit != 0).map(|(_, name)| *name).collect(),
            pool_exhausted: later.exhausted.wrapping_sub(earlier.exhausted),
        }
    }
}

/// Where the packets are. Reasons that nothing happened for are left out.
fn packets(telemetry: &Telemetry, earlier: &Reading, later: &Reading) -> Packets {
    let Census { queued, held, in_flight, .. } = later.census;
    let difference = |later: &[(String, u64)], earlier: &[(String, u64)]| {
        let counts = later.iter().zip(earlier).map(|((name, count), (_, before))| (name.clone(), count - before));
        let mut named = BTreeMap::new();
        counts.filter(|(_, count)| *count > 0).for_each(|(name, count)| *named.entry(name).or_insert(0) += count);
        named
    };
    debug_assert_eq!(telemetry.modules.len(), later.modules.len(), "readings are of this telemetry");
    Packets {
        entered: later.census.entered - earlier.census.entered,
        created: difference(&later.created, &earlier.created),
        out: later.census.left.saturating_sub(earlier.census.left),
        dropped: difference(&later.dropped, &earlier.dropped),
        consumed: difference(&later.consumed, &earlier.consumed),
        queued,
        held,
        in_flight,
    }
}

#[cfg(test)]
mod tests;

//! The report of a run as one plain value, for tables and for programs.
//!
//! A report covers a span between two readings of the counters: the whole run, or its last second.

mod control;
mod delay_counts;
mod lost;
mod rounding;

use std::borrow::Cow;
use std::collections::BTreeMap;

use forebay_units::Percentile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use control::{ChangeReport, ControlReport, MoveReason, MoveReport, ShortCauseReport, ShortReport, UnkeptReport};
pub use delay_counts::DelayCounts;
pub use lost::LostLines;

use crate::census::Census;

/// The number of classes in which batch sizes are counted: 1, 2, 3–4, 5–8, …, 129–256 packets.
pub const SIZE_CLASSES: usize = 9;

/// The machine of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cpu {
    /// The CPU model, as it names itself.
    pub model: String,
    /// Ticks of the time-stamp counter per nanosecond.
    pub tsc_ghz: f64,
}

/// How the figures of a report were obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FigureSource {
    /// Measured with the clock of the machine.
    Measured,
    /// Simulated, with given costs.
    Simulated,
}

/// The report of the span between two readings. A value that does not exist is `None`, never 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// The pipeline's name.
    pub pipeline: String,
    /// The version of Forebay.
    pub forebay: Cow<'static, str>,
    /// How the figures were obtained.
    pub kind: FigureSource,
    /// The machine and its clock; in simulated time the clock's ticks.
    pub cpu: Cpu,
    /// The length of the span, in seconds of the worker's clock.
    pub duration_s: f64,
    /// Where every packet is.
    pub packets: Packets,
    /// The modules, in topological order.
    pub modules: Vec<ModuleReport>,
    /// The flows.
    pub flows: Vec<FlowReport>,
    /// The workers.
    pub workers: Vec<WorkerReport>,
    /// The ports.
    pub ports: Vec<PortReport>,
    /// The clocks of the packets' arrival times (`poll`, `intended`, `kernel`). They determine which part of a packet's
    /// way is in its delay.
    pub arrival_clocks: Vec<Cow<'static, str>>,
    /// The number of times that the packet pool was empty.
    pub pool_exhausted: u64,
    /// The lines of logs and alerts, and the copied packets, that are missing in their files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_lines: Vec<LostLines>,
    /// The flows that had missed an objective before a reload removed the flow or the objective.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed_flows: Vec<FlowReport>,
    /// The controller, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<ControlReport>,
}

/// Where every packet is: `in + created = out + dropped + consumed + queued + held + in_flight` over a whole run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Packets {
    /// Packets that entered through ports.
    #[serde(rename = "in")]
    pub entered: u64,
    /// Packets that ports lost before they entered. No other count includes them.
    #[serde(default)]
    pub lost: u64,
    /// Packets that functions created, by `module.reason`.
    pub created: BTreeMap<String, u64>,
    /// Packets that left through ports.
    pub out: u64,
    /// Dropped packets, by reason: `module.reason`, `module.backpressure` (a module further on is overloaded),
    /// `port.refused`, `unwanted` (the configuration sends them nowhere), `no_gate` (a defect of a function),
    /// `held_at_close` (still held when its function was closed).
    pub dropped: BTreeMap<String, u64>,
    /// Packets that functions consumed, by `module.reason`.
    pub consumed: BTreeMap<String, u64>,
    /// Packets that are in queues of modules or between workers now.
    pub queued: u64,
    /// Packets that functions hold now.
    pub held: u64,
    /// Packets given to a kernel or device that has not finished with them now.
    pub in_flight: u64,
}

impl Packets {
    /// Returns the created packets of all reasons.
    #[must_use]
    pub fn all_created(&self) -> u64 {
        self.created.values().sum()
    }

    /// Returns the dropped packets of all reasons.
    #[must_use]
    pub fn all_dropped(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Returns the consumed packets of all reasons.
    #[must_use]
    pub fn all_consumed(&self) -> u64 {
        self.consumed.values().sum()
    }

    /// Replaces the totals by those of `census`, an exact census that was taken after this report. Packets that were
    /// created, dropped or consumed between the two have no known reason: they are counted under the reason `since`.
    pub fn correct(&mut self, census: &Census) {
        (self.entered, self.out) = (census.entered, census.out);
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

    /// Returns the number of packets that are unaccounted for. Over a whole run, any value but 0 is a defect.
    #[must_use]
    pub fn missing(&self) -> i128 {
        let there = [self.out, self.all_dropped(), self.all_consumed(), self.queued, self.held, self.in_flight];
        let sum = |counts: &[u64]| counts.iter().map(|count| i128::from(*count)).sum::<i128>();
        sum(&[self.entered, self.all_created()]) - sum(&there)
    }
}

/// A module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModuleReport {
    /// Its name.
    pub name: String,
    /// Its function.
    pub function: Cow<'static, str>,
    /// The workers that run it.
    pub workers: Vec<usize>,
    /// Packets processed.
    pub packets: u64,
    /// Packets processed per second.
    pub rate_pps: f64,
    /// The number of calls.
    pub batches: u64,
    /// Packets per call; `None` without calls.
    pub batch_mean: Option<f64>,
    /// The mean number of packets that arrive together. With a trigger, it is per turn in which packets arrive; without
    /// a trigger, per call.
    #[serde(default)]
    pub ingress_mean: Option<f64>,
    /// Calls by class of batch size: 1, 2, 3–4, 5–8, … 129–256 packets.
    pub batch_sizes: [u64; SIZE_CLASSES],
    /// The present trigger.
    pub trigger: u64,
    /// The present hold limit, in microseconds, if there is a trigger.
    pub hold_us: Option<f64>,
    /// The present weight, if the scheduler has weights.
    pub weight: Option<u64>,
    /// Ticks per packet, of the timed calls.
    pub ticks_per_packet: Option<f64>,
    /// Ticks per call, of the timed calls.
    pub ticks_per_batch: Option<f64>,
    /// Instructions and core cycles per packet, measured in the metered calls; left out without a meter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metered: Option<Spent>,
    /// The share of all workers' time that the module's calls take, estimated from the timed calls.
    pub share: Option<f64>,
    /// If equal branches run as one: the name of the module that runs for this module. Calls and their costs are
    /// measured for all branches together, and are divided in proportion to packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folded: Option<String>,
    /// Packets dropped by the module, for any reason.
    pub dropped: u64,
    /// The function's own counters, by heading and name. Headings with a counter per rule or table entry are included
    /// only if they were requested.
    pub counters: BTreeMap<String, BTreeMap<String, u64>>,
}

/// A flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowReport {
    /// Its name.
    pub name: String,
    /// Packets that left.
    pub packets: u64,
    /// Packets that left per second.
    pub rate_pps: f64,
    /// The delay from arrival to departure, in microseconds.
    pub delay_us: Delay,
    /// The distribution of these delays. It is included only if it was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_counts: Option<DelayCounts>,
    /// The delay objective.
    pub slo_us: Option<f64>,
    /// The delay that must keep the objective: a percentile, or the mean.
    pub percentile: Option<Percentile>,
    /// The delay for which the objective is stated (`percentile`), in microseconds.
    #[serde(default)]
    pub at_percentile_us: Option<f64>,
    /// The number of packets with a delay above the objective.
    pub violations: Option<u64>,
    /// Whether the objective was kept; `None` without an objective or without packets.
    pub kept: Option<bool>,
    /// The rate objective, in packets per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rate_pps: Option<f64>,
    /// The rate objective in bits per second, of frames without the overhead of the wire, if it is stated in bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rate_bps: Option<f64>,
    /// The rate of the flow's packets that left, in bits per second, if the rate objective is in bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<f64>,
    /// The number of packets that were refused on the flow's path or lost before they entered, if the flow has a rate
    /// objective. Packets of other flows with the same path are included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turned_away: Option<u64>,
    /// Whether the flow reached its rate objective within 1 %, or got through everything that it offered. `None`
    /// without a rate objective or without packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_kept: Option<bool>,
    /// Whether the flow missed its objectives only because the machine ran other work on a worker's core.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub missed_by_machine: bool,
}

impl FlowReport {
    /// Returns whether the flow missed its objective of delay or of rate.
    #[must_use]
    pub fn is_missed(&self) -> bool {
        self.kept == Some(false) || self.rate_kept == Some(false)
    }
}

/// A distribution of delays in microseconds. A percentile is never below the true value, and is at most 1/16 above it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// The maximum of the whole run.
    pub max: Option<f64>,
    /// The number of delays.
    pub samples: u64,
}

/// The counts of a meter, per packet or per turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spent {
    /// Instructions.
    pub instructions: f64,
    /// Core cycles.
    pub cycles: f64,
}

impl Spent {
    /// Returns the instructions per core cycle.
    #[must_use]
    pub fn ipc(&self) -> Option<f64> {
        (self.cycles > 0.0).then(|| self.instructions / self.cycles)
    }
}

/// The times of sampled calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timing {
    /// Ticks per packet, of the timed calls.
    pub ticks_per_packet: Option<f64>,
    /// Ticks per call.
    pub ticks_per_batch: Option<f64>,
    /// Packets per call.
    pub batch_mean: Option<f64>,
    /// Instructions and core cycles per packet, of the metered calls; left out without a meter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metered: Option<Spent>,
}

/// The turns in which the machine must have had the core: turns of more than 50 µs that also took more than eight usual
/// turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stalls {
    /// The number of such turns.
    pub turns: u64,
    /// The share of the time that these turns took.
    pub share: f64,
    /// The share of the time that those of these turns took in which the worker had work.
    pub busy_share: f64,
}

/// The shares of a worker's time in which it was ready to run and had no core. `None` if the system does not report
/// the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineTime {
    /// The share of the time in which the hypervisor had the worker's core.
    pub steal: Option<f64>,
    /// The share of the time in which another thread had the worker's core.
    pub wait: Option<f64>,
}

/// A worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerReport {
    /// Its number.
    pub id: usize,
    /// The core that it is bound to.
    pub core: Option<usize>,
    /// The share of its time in turns that had something to do (busy turns).
    pub busy: f64,
    /// The share of its time by which the timing of calls made its turns longer.
    #[serde(default)]
    pub timing_share: f64,
    /// The number of turns.
    pub turns: u64,
    /// The number of busy turns.
    pub busy_turns: u64,
    /// The ticks of a busy turn outside modules, ports and hand-over: for scheduling, polling and timers. Measured in
    /// the timed turns.
    pub residue_ticks_per_turn: Option<f64>,
    /// The instructions and core cycles of a busy turn, measured in the metered turns; left out without a meter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metered: Option<Spent>,
    /// The instructions and core cycles of a busy turn outside modules, ports and hand-over, measured in the metered
    /// turns; left out without a meter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metered_residue: Option<Spent>,
    /// The cost of packets to and from other workers.
    pub handover: Timing,
    /// Turns in which the machine had the core.
    pub machine_stalls: Stalls,
    /// The shares of its time in which the worker had no core, as the system reports them.
    #[serde(default)]
    pub machine_time: MachineTime,
    /// Packets handed over to other workers.
    pub handed: u64,
    /// Packets taken from other workers.
    pub taken: u64,
    /// Batches that waited because the ring to another worker was full.
    pub stalls: u64,
}

impl WorkerReport {
    /// Returns the share of its time in which the machine had the worker's core. This is the larger of two values: the
    /// system's count, and the worker's own long turns. The reason is that the system may not count this time, and
    /// never counts interrupts of the firmware.
    #[must_use]
    pub fn without_core(&self) -> f64 {
        let counted = self.machine_time.steal.unwrap_or(0.0) + self.machine_time.wait.unwrap_or(0.0);
        self.machine_stalls.share.max(counted).min(1.0)
    }
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PortReport {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Cow<'static, str>,
    /// Packets that entered through it.
    pub received: u64,
    /// Packets that left through it.
    pub sent: u64,
    /// Packets lost before they entered.
    pub dropped: u64,
    /// The part of `dropped` that was skipped, by reason: for example a link type that is not supported, or a frame
    /// longer than `pool.frame` (`oversize`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub skipped: BTreeMap<String, u64>,
    /// The length in bytes of the longest `oversize` frame, if there was one and the port knows its length (`af_xdp`
    /// does not).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_oversize: Option<u64>,
    /// Packets that it refused to send.
    pub refused: u64,
    /// The number of errors.
    pub errors: u64,
    /// Whether the run ended before the port's last packet. Always false for a port without a last packet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unread: bool,
    /// The cost of receiving packets from it.
    pub receiving: Timing,
    /// The cost of sending packets through it, including the accounting of their flows.
    pub sending: Timing,
}

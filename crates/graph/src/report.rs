//! What a run has come to, as one plain value: for people's tables, for programs as JSON, for whoever decides.
//!
//! A [`Reading`] is what the counters say at one instant. A [`Report`] is the difference between two readings, so that
//! a whole run and its last second are told by the same code.

mod control;
mod difference;
mod flow;
mod graph;
mod lost;
mod machine;
mod reading;

use std::borrow::Cow;
use std::collections::BTreeMap;

use forebay_measure::machine::Cpu;
use serde::{Deserialize, Serialize};

pub use control::{ChangeReport, ControlReport, MoveReport, ShortCauseReport, ShortReport, UnkeptReport, WhyMoved};
pub use flow::FlowFigures;
pub use graph::{GraphEdge, GraphFlow, GraphModule, GraphPort, GraphReport, GraphWorker};
pub use lost::{COPY_COUNTERS, LINE_COUNTERS, LostLines};
pub use reading::Reading;

use crate::telemetry::SIZE_CLASSES;
use crate::worker::Census;
use forebay_units::Percentile;

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
    /// Lines of logs, alerts and copies that are not in their files; left out where all are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_lines: Vec<LostLines>,
    /// Flows that had missed an objective when a reload removed them, or the objective; left out where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed_flows: Vec<FlowReport>,
    /// What sets the triggers, where something does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<ControlReport>,
}

/// Where every packet is: `in + created = out + dropped + consumed + queued + held + in_flight` over a whole run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packets {
    /// Entered by ports.
    #[serde(rename = "in")]
    pub entered: u64,
    /// Lost at ports before they entered: in no other of these counts.
    #[serde(default)]
    pub lost: u64,
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
    /// Packets that come together: in a turn, where there is a trigger; without one they run as they come.
    #[serde(default)]
    pub ingress_mean: Option<f64>,
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
    /// The module that runs for it and its like, where equal branches run as one: calls, and what they take, are all of theirs, here in the
    /// proportion of packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folded: Option<String>,
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
    /// Which of its delays must keep it: a percentile, or the mean.
    pub percentile: Option<Percentile>,
    /// That delay, in microseconds.
    #[serde(default)]
    pub at_percentile_us: Option<f64>,
    /// Packets above the objective.
    pub violations: Option<u64>,
    /// Whether the objective was kept; `None` without one or without packets.
    pub kept: Option<bool>,
    /// The rate objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rate_pps: Option<f64>,
    /// The rate objective where it is in bits a second, of frames without what the wire adds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rate_bps: Option<f64>,
    /// Bits a second that left, where the rate objective is in bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<f64>,
    /// Packets that were turned away on the flow's way, or lost before they entered, where it has a rate objective; those of other
    /// flows with the same way are among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turned_away: Option<u64>,
    /// Whether the flow had that rate within 1 %, or all that it offered; `None` without the objective or without packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_kept: Option<bool>,
    /// Whether it missed its objectives only because the machine ran something else on a worker's core.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub missed_by_machine: bool,
}

impl FlowReport {
    /// Whether the flow missed an objective, of delay or of rate.
    #[must_use]
    pub fn is_missed(&self) -> bool {
        self.kept == Some(false) || self.rate_kept == Some(false)
    }
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

/// What a meter counted, for each packet or turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// Instructions.
    pub instructions: f64,
    /// Core cycles.
    pub cycles: f64,
}

impl Spent {
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

/// The shares of a worker's time in which it could have run and had no core. `None` is what the system does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineTime {
    /// The host of this virtual machine had its core.
    pub steal: Option<f64>,
    /// It waited in a run queue: another thread had its core.
    pub wait: Option<f64>,
}

/// A worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Its number.
    pub id: usize,
    /// The core that it is bound to.
    pub core: Option<usize>,
    /// Share of its time in turns in which there was something to do.
    pub busy: f64,
    /// Share of its time by which timed turns were longer than untimed ones.
    #[serde(default)]
    pub timing_share: f64,
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
    /// The shares of its time that the machine took, as the system reports them.
    #[serde(default)]
    pub machine_time: MachineTime,
    /// Packets given to other workers.
    pub handed: u64,
    /// Packets taken from other workers.
    pub taken: u64,
    /// Batches that another worker had no room for: they waited.
    pub stalls: u64,
}

impl WorkerReport {
    /// The share of its time in which the machine had its core: as the system counts it, or as its own long turns
    /// show, whichever is more. The system may not count it, and counts no interrupts of the firmware.
    #[must_use]
    pub fn without_core(&self) -> f64 {
        let counted = self.machine_time.steal.unwrap_or(0.0) + self.machine_time.wait.unwrap_or(0.0);
        self.machine_stalls.share.max(counted).min(1.0)
    }
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
    /// Of these, packets that were passed over, by reason: of a link type that is not read, for example, or longer than
    /// `pool.frame` (`oversize`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub skipped: BTreeMap<String, u64>,
    /// The length in bytes of the longest frame that was `oversize`, where one was and the port knows its length
    /// (`af_xdp` does not).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_oversize: Option<u64>,
    /// Packets that it would not send.
    pub refused: u64,
    /// Things that went wrong.
    pub errors: u64,
    /// Whether the run ended before its last packet; never of a port that has no last packet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unread: bool,
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

#[cfg(test)]
mod tests;

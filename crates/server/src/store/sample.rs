//! The samples of an instance: the figures of one interval, and the names that they belong to.

use serde::{Deserialize, Serialize};

/// The names of an instance's modules and flows. A change of the configuration makes a new layout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleLayout {
    /// The names of the modules.
    pub modules: Vec<String>,
    /// The names of the flows.
    pub flows: Vec<String>,
}

/// The figures of one interval.
///
/// The store rounds: the interval to milliseconds, shares of time to ten-thousandths, and ticks and delays to
/// hundredths. It reduces larger values to its limits: 49 days, 6.5 for a share, 42 million ticks, and 42 seconds of
/// delay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The length of the interval, in seconds.
    pub interval_s: f32,
    /// The modules, in the order of the layout.
    pub modules: Vec<ModulePoint>,
    /// The flows, in the order of the layout.
    pub flows: Vec<FlowPoint>,
    /// For each worker, the share of the interval in which it had something to do (0 to 1).
    pub busy: Vec<f32>,
    /// Packets that entered the pipeline.
    pub entered: u64,
    /// Packets that left the pipeline.
    pub out: u64,
    /// Packets that the pipeline dropped, and those that were lost before they entered.
    pub dropped: u64,
}

/// The figures of a module.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModulePoint {
    /// Packets processed.
    pub packets: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Calls.
    pub batches: u64,
    /// Ticks per packet. `None` if no call was timed.
    pub ticks_per_packet: Option<f32>,
}

/// The figures of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlowPoint {
    /// Packets that left.
    pub packets: u64,
    /// Packets above the delay objective.
    pub violations: u64,
    /// The median delay, in microseconds. `None` without packets.
    pub p50_us: Option<f32>,
    /// The 99th percentile of the delay, in microseconds. `None` without packets.
    pub p99_us: Option<f32>,
    /// The delay at the percentile of the objective, in microseconds. `None` without packets or objective.
    pub chosen_us: Option<f32>,
}

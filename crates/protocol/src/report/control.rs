//! The controller of a running pipeline and its decisions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decision::{ChangeReason, UnkeptCause};

/// The controller of a running pipeline and its last decisions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ControlReport {
    /// The controller's name.
    pub controller: String,
    /// The time between two decisions, in milliseconds.
    pub period_ms: f64,
    /// The share of each delay objective that it keeps in reserve.
    pub guard: f64,
    /// Periods since the run began, or since the last change of the configuration.
    pub periods: u64,
    /// Periods in which more packets of a flow were above its objective than its percentile allows.
    pub violated: u64,
    /// The violated periods in which a turn took at least half of the shortest missed objective: the machine had the
    /// core, or the turn had too much to do.
    #[serde(default)]
    pub stalled: u64,
    /// The time of a decision, from the first counter read to the last action written, in microseconds: median and
    /// maximum.
    pub took_us: Option<(f64, f64)>,
    /// The last change of each module's trigger.
    pub changes: Vec<ChangeReport>,
    /// Objectives that no trigger keeps at present.
    pub unkept: Vec<UnkeptReport>,
    /// Flows that do not get their rates at present.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub short: Vec<ShortReport>,
    /// The last moves between workers, oldest first: at most [`MOVES`](Self::MOVES).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<MoveReport>,
    /// Why modules that should move to another worker do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmoved: Option<String>,
    /// The error of the last decision, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl ControlReport {
    /// The number of moves that are kept.
    pub const MOVES: usize = 32;
}

/// A move of modules to another worker, or back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MoveReport {
    /// When, in seconds since the run began.
    pub at_s: f64,
    /// The modules.
    pub modules: Vec<String>,
    /// The worker that ran them, by its number at that time.
    pub from: usize,
    /// The worker that runs them now, by its number after the move.
    pub to: usize,
    /// The reason.
    pub why: MoveReason,
    /// The flow whose objective allows the shortest turn, if any flow has an objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
    /// The longest turn of the worker `from` if it ran all these modules, in microseconds.
    pub turn_us: f64,
    /// The time in which no packets were taken from ports, in microseconds.
    pub pause_us: f64,
}

/// Why modules move to another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MoveReason {
    /// A flow cannot keep its objective if all modules are on one worker, with any triggers.
    Apart,
    /// With all modules on one worker, all flows keep their objectives again.
    Together,
}

/// A trigger that a controller has changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeReport {
    /// When, in seconds since the run began.
    pub at_s: f64,
    /// The module.
    pub module: String,
    /// The trigger before.
    pub from: usize,
    /// The trigger after.
    pub to: usize,
    /// The reason.
    pub why: ChangeReason,
    /// The flow whose objective is the reason, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
}

/// A delay objective that no trigger keeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnkeptReport {
    /// The flow.
    pub flow: String,
    /// The delay of its packets at its percentile, in microseconds. `cause` states the conditions of this value.
    pub least_us: f64,
    /// Its objective, in microseconds.
    pub slo_us: f64,
    /// The cause.
    pub cause: UnkeptCause,
}

/// A flow that does not get its rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShortReport {
    /// The flow.
    pub flow: String,
    /// Its present rate, in packets per second.
    pub rate_pps: f64,
    /// Its rate objective, in packets per second. An objective in bits is converted with the present packet length.
    pub min_rate_pps: f64,
    /// The objective in bits per second, if it is stated in bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rate_bps: Option<f64>,
    /// The cause.
    pub cause: ShortCauseReport,
}

/// Why a flow does not get its rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShortCauseReport {
    /// All rate objectives together need more time of a worker than modules have.
    Time {
        /// The worker.
        worker: usize,
        /// The share of the worker's time that the objectives need: above 1.
        load: f64,
    },
    /// Another flow passes all modules of this flow, so that the worker cannot separate the two flows.
    Together {
        /// The other flow.
        with: String,
        /// The module where both flows separate from further flows.
        module: String,
    },
    /// The flow's packets wait at a port behind packets of other flows. One of the other flows offers too many packets.
    Held {
        /// The module behind the port.
        module: String,
    },
}

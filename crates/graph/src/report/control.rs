//! What a controller has done, for people and programs.

use serde::{Deserialize, Serialize};

/// The controller of a running pipeline and its last decisions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ControlReport {
    /// The controller's name.
    pub controller: String,
    /// How often it decides, in milliseconds.
    pub period_ms: f64,
    /// The part of each delay objective that it keeps in reserve.
    pub guard: f64,
    /// Periods since the run began, or since the last change of the configuration.
    pub periods: u64,
    /// Periods in which more packets of a flow were above its objective than its percentile allows.
    pub violated: u64,
    /// Those of them with a turn of half the shortest objective that was missed: the machine was elsewhere, or a turn had too much to do.
    #[serde(default)]
    pub stalled: u64,
    /// Of how long a decision takes, from the first counter read to the last action written, in microseconds: the median and the most.
    pub took_us: Option<(f64, f64)>,
    /// By module, the last change of its trigger.
    pub changes: Vec<ChangeReport>,
    /// Objectives that nothing keeps at present.
    pub unkept: Vec<UnkeptReport>,
    /// Flows that do not have their rates at present.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub short: Vec<ShortReport>,
    /// What has gone to other workers and come back, last things last: not more than [`MOVES`](Self::MOVES).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<MoveReport>,
    /// Why modules that should go to another worker do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmoved: Option<String>,
    /// What went wrong with the last decision, where something did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl ControlReport {
    /// How many moves are remembered.
    pub const MOVES: usize = 32;
}

/// Modules that have gone to another worker, or have come back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoveReport {
    /// When, in seconds since the run began.
    pub at_s: f64,
    /// The modules.
    pub modules: Vec<String>,
    /// The worker that they were on, by its number then.
    pub from: usize,
    /// The worker that they are on since, by its number since.
    pub to: usize,
    /// Why.
    pub why: WhyMoved,
    /// The flow whose objective leaves the least time for a turn, where one has an objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
    /// What a turn takes at most with all of them on one worker, in microseconds.
    pub turn_us: f64,
    /// For how long no packets were taken from ports, in microseconds.
    pub pause_us: f64,
}

/// Why modules change their worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhyMoved {
    /// A flow cannot keep its objective beside them, whatever triggers are.
    Apart,
    /// All flows fit on one worker again.
    Together,
}

/// A trigger that a controller has changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangeReport {
    /// When, in seconds since the run began.
    pub at_s: f64,
    /// The module.
    pub module: String,
    /// Its trigger before.
    pub from: usize,
    /// Its trigger since.
    pub to: usize,
    /// Why.
    pub why: crate::Why,
    /// The flow on account of which, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
}

/// An objective that is not kept whatever triggers are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnkeptReport {
    /// The flow.
    pub flow: String,
    /// What its packets take, in microseconds, at its percentile, as `cause` says.
    pub least_us: f64,
    /// Its objective, in microseconds.
    pub slo_us: f64,
    /// Why.
    pub cause: crate::UnkeptCause,
}

/// A flow that does not have its rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShortReport {
    /// The flow.
    pub flow: String,
    /// Packets a second that it has.
    pub rate_pps: f64,
    /// Its rate objective; of one in bits, at the length that its packets have.
    pub min_rate_pps: f64,
    /// The objective where it is in bits a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rate_bps: Option<f64>,
    /// Why.
    pub cause: ShortCauseReport,
}

/// Why a flow does not have its rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShortCauseReport {
    /// All rate objectives together take more of a worker's time than there is for modules.
    Time {
        /// The worker.
        worker: usize,
        /// What they would take of it: above 1.
        load: f64,
    },
    /// Another flow passes all its modules: what comes first is run first.
    Together {
        /// That flow.
        with: String,
        /// The module where they are told apart from the others.
        module: String,
    },
    /// Its packets wait at a port with those of other flows, of which one has too many.
    Held {
        /// The module behind the port.
        module: String,
    },
}

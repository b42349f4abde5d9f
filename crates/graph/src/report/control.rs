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
    /// Those of them with a turn of half the shortest objective that was missed: no batches would have kept it. The machine was
    /// elsewhere, or a turn has too much to do.
    #[serde(default)]
    pub stalled: u64,
    /// Of how long a decision takes, from the first counter read to the last action written, in microseconds: the median and the most.
    pub took_us: Option<(f64, f64)>,
    /// By module, the last change of its trigger.
    pub changes: Vec<ChangeReport>,
    /// Objectives that nothing keeps at present.
    pub unkept: Vec<UnkeptReport>,
    /// What went wrong with the last decision, where something did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
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
    /// What its packets take without any buffer, in microseconds, at its percentile.
    pub least_us: f64,
    /// Its objective, in microseconds.
    pub slo_us: f64,
}

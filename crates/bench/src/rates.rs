//! Searches for the non-drop rate and the partial drop rate of a pipeline on this machine.

use std::sync::Arc;
use std::time::Duration;

use forebay_graph::Plan;
use forebay_instance::{ControlInputs, Cores, StartError};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::PipelineParts;
use serde::{Deserialize, Serialize};

use crate::search::{GoalResult, Limits, NON_DROP, Outcome, PARTIAL_DROP, SearchProgress, search};
use crate::trial::{Load, Measured, TrialError};

/// The smallest load that is tried, in packets per second. With a smaller load, a trial of some tenths of a second has
/// too few packets to measure the share of lost ones.
const LEAST_PPS: f64 = 1_000.0;
/// The search assumes that a packet costs a worker at least this many ticks. This gives the greatest load that is
/// tried.
const LEAST_TICKS: f64 = 16.0;
/// The search is complete when lower and upper bound differ by at most this share of the upper bound.
const WIDTH: f64 = 0.005;

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// The rate without loss.
    pub ndr: GoalResult,
    /// The rate with at most 0.5 % loss.
    pub pdr: GoalResult,
    /// The number of trials whose results were used.
    pub trials: u64,
    /// The number of trials that were repeated, because a worker was without its core for a part of the trial and
    /// packets were lost.
    pub voids: u64,
    /// The duration of the search, in seconds.
    pub seconds: f64,
    /// The allowed duration, in seconds.
    pub time_s: f64,
    /// True if the rates are not reliable, because workers were without their cores too often: more trials were void
    /// than valid, or the result of a void trial had to be used.
    pub void: bool,
}

impl Rates {
    /// Converts the outcome of a search for [`NON_DROP`] and [`PARTIAL_DROP`], in this order. `time` is the allowed
    /// duration.
    fn of(outcome: &Outcome, time: Duration) -> Self {
        let found = |at: usize| outcome.found.get(at).copied().unwrap_or_default();
        Self {
            ndr: found(0),
            pdr: found(1),
            trials: outcome.trials,
            voids: outcome.voids,
            seconds: outcome.seconds,
            time_s: time.as_secs_f64(),
            void: outcome.taken_void > 0 || outcome.voids > outcome.trials,
        }
    }

    /// Returns the non-drop and the partial drop rate, in packets per second. A rate is `None` if the search did not
    /// find it; both are `None` if the search is void.
    #[must_use]
    pub fn rates(&self) -> (Option<f64>, Option<f64>) {
        if self.void { (None, None) } else { (self.ndr.pps, self.pdr.pps) }
    }
}

/// The search cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum RatesError {
    /// The pipeline cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A trial cannot be run.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// Ports or functions failed: each with its error.
    #[error("{}", .0.iter().map(|(part, trouble)| format!("{part}: {trouble}")).collect::<Vec<_>>().join("\n"))]
    Troubles(Vec<(String, String)>),
}

/// Checks that the rates of these plans can be searched for.
///
/// # Errors
/// [`TrialError`]: the sources do not allow it.
pub fn check(plans: &mut [Plan]) -> Result<(), TrialError> {
    Load::of(plans).map(|_| ())
}

/// Runs `plans` on `cores` and searches for both rates. `time` limits the duration of the search; the last trial may
/// exceed it. Calls `report` before every trial. The pipeline has ended when this returns.
///
/// # Errors
/// [`RatesError`].
pub fn find(
    mut plans: Vec<Plan>,
    cores: impl Into<Cores>,
    made: PipelineParts,
    time: Duration,
    report: &mut dyn FnMut(&SearchProgress<'_>),
) -> Result<Rates, RatesError> {
    let (load, workers) = (Load::of(&mut plans)?, plans.len() as f64);
    let instance = forebay_instance::start(plans, cores, made, Box::new(|_| None), ControlInputs::default())?;
    let most_pps = Tsc.frequency().hertz() / LEAST_TICKS * workers;
    let limits = Limits { least_pps: LEAST_PPS, most_pps, time, width: WIDTH };
    let mut trials = Measured::new(Arc::clone(&instance), load);
    let outcome = search(&mut trials, &[NON_DROP, PARTIAL_DROP], &limits, report);
    let ended = instance.end();
    let outcome = outcome?;
    if ended.troubles.is_empty() { Ok(Rates::of(&outcome, time)) } else { Err(RatesError::Troubles(ended.troubles)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_void_search_has_no_rates() {
        let found = GoalResult { pps: Some(1e6), lower_pps: Some(1e6), upper_pps: Some(1.004e6), settled: true };
        let outcome = Outcome { found: vec![found; 2], trials: 40, voids: 12, taken_void: 0, seconds: 20.0 };
        let rates = |outcome: Outcome| Rates::of(&outcome, Duration::from_secs(30)).rates();
        assert_eq!(rates(outcome.clone()), (Some(1e6), Some(1e6)));
        assert_eq!(rates(Outcome { voids: 41, ..outcome.clone() }), (None, None));
        assert_eq!(rates(Outcome { taken_void: 1, ..outcome }), (None, None));
    }
}

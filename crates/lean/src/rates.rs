//! The non-drop and the partial drop rate of a pipeline, searched for on this machine.

use std::sync::Arc;
use std::time::Duration;

use forebay_graph::Plan;
use forebay_instance::{Cores, StartError, Steer};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::Made;
use serde::{Deserialize, Serialize};

use crate::search::{Found, Limits, NON_DROP, Outcome, PARTIAL_DROP, Progress, search};
use crate::trial::{Load, Measured, TrialError};

/// The least load that is tried, in packets a second: below it a trial of some tenths of a second has too few packets to tell
/// shares of them.
const LEAST_PPS: f64 = 1_000.0;
/// What a packet costs at least, in ticks: no worker takes more in a second than its ticks by these.
const LEAST_TICKS: f64 = 16.0;
/// How far apart the bounds may be in the end.
const WIDTH: f64 = 0.005;

/// What a search has found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// No loss.
    pub ndr: Found,
    /// At most 0.5 % lost.
    pub pdr: Found,
    /// Trials that count.
    pub trials: u64,
    /// Trials that were repeated, because a worker had no core for a part of them and packets were lost.
    pub voids: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// How long it might take.
    pub time_s: f64,
    /// Whether the machine left the workers so little of their cores that the rates say nothing: more trials were void than
    /// were not, or some that were void had to be taken.
    pub void: bool,
}

impl Rates {
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

    /// The non-drop and the partial drop rate, where they could be told.
    #[must_use]
    pub fn rates(&self) -> (Option<f64>, Option<f64>) {
        if self.void { (None, None) } else { (self.ndr.pps, self.pdr.pps) }
    }
}

/// Why there is no search.
#[derive(Debug, thiserror::Error)]
pub enum RatesError {
    /// The pipeline cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A trial cannot be run.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// Ports or functions failed: which, and why.
    #[error("{}", .0.iter().map(|(place, trouble)| format!("{place}: {trouble}")).collect::<Vec<_>>().join("\n"))]
    Troubles(Vec<(String, String)>),
}

/// Whether the rates of these plans can be searched for at all.
///
/// # Errors
/// [`TrialError`]: what the sources are.
pub fn check(plans: &[Plan]) -> Result<(), TrialError> {
    Load::of(plans).map(|_| ())
}

/// Runs plans on these cores, and searches for `time`; `told` hears of every trial.
///
/// # Errors
/// [`RatesError`].
pub fn find(
    plans: Vec<Plan>,
    cores: impl Into<Cores>,
    made: Made,
    time: Duration,
    told: &mut dyn FnMut(&Progress<'_>),
) -> Result<Rates, RatesError> {
    let (load, workers) = (Load::of(&plans)?, plans.len() as f64);
    let instance = forebay_instance::start(plans, cores, made, Box::new(|_| None), Steer::default())?;
    let most_pps = Tsc.frequency().hertz() / LEAST_TICKS * workers;
    let limits = Limits { least_pps: LEAST_PPS, most_pps, time, width: WIDTH };
    let mut trials = Measured::new(Arc::clone(&instance), load);
    let outcome = search(&mut trials, &[NON_DROP, PARTIAL_DROP], &limits, told);
    let ended = instance.end();
    let outcome = outcome?;
    if ended.troubles.is_empty() { Ok(Rates::of(&outcome, time)) } else { Err(RatesError::Troubles(ended.troubles)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_that_the_machine_spoilt_tells_no_rates() {
        let found = Found { pps: Some(1e6), lower_pps: Some(1e6), upper_pps: Some(1.004e6), settled: true };
        let outcome = Outcome { found: vec![found; 2], trials: 40, voids: 12, taken_void: 0, seconds: 20.0 };
        let rates = |outcome: Outcome| Rates::of(&outcome, Duration::from_secs(30)).rates();
        assert_eq!(rates(outcome.clone()), (Some(1e6), Some(1e6)));
        assert_eq!(rates(Outcome { voids: 41, ..outcome.clone() }), (None, None));
        assert_eq!(rates(Outcome { taken_void: 1, ..outcome }), (None, None));
    }
}

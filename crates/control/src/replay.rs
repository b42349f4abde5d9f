//! Replays a recording with another controller.
//!
//! The replay does not change the recorded snapshots. Each period, the other controller sees the triggers that were in
//! force during the recording, not the triggers that it would have set in earlier periods. The batch model predicts the
//! effect of both decisions: the load of the workers, and the largest delay of a flow as a fraction of its objective.
//! The report also contains the measured figures of the recording, which may differ much from the model.

use forebay_graph::SetupError;
use forebay_protocol::{Decision, Layout, Snapshot, TriggerChange};
use serde::Serialize;

use crate::controller_runner::{ControllerRunner, Settings};
use crate::costs::Costs;
use crate::outlook::Outlook;
use crate::recording::{Begin, Period};

/// A period counts as one of full length if it has at least this fraction of the configured length. The first periods
/// are shorter.
const FULL: f64 = 0.95;

/// A period with both decisions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replayed {
    /// Time in seconds since the start of the run.
    pub at_s: f64,
    /// True for each period after the first period of full length. Up to that period, triggers do not yet have the
    /// values that a controller wants.
    pub settled: bool,
    /// The measured figures.
    pub measured: Measured,
    /// The recorded decisions.
    pub recorded: ReplayedDecision,
    /// The decisions of the replay.
    pub replayed: ReplayedDecision,
    /// True if both decisions are the same, including hold limits and weights.
    pub same: bool,
}

/// The measured figures of a period.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The busy time of all workers together, divided by the length of the period.
    pub busy: f64,
    /// True if a flow missed its objective: more packets were late than the flow's percentile allows, or the mean delay
    /// was too long.
    pub missed: bool,
}

/// The decisions after a period, and their effect according to the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayedDecision {
    /// Changed triggers.
    pub changes: Vec<TriggerChange>,
    /// The load of all modules together, in workers. With a load above the number of workers, packets would queue and
    /// arrive in larger batches, which would reduce the load. The model does not include this effect.
    pub load: f64,
    /// The flow whose delay is the largest fraction of its objective; `None` without objectives or packets.
    pub worst: Option<Worst>,
}

/// The flow whose delay is the largest fraction of its objective.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// The flow.
    pub flow: usize,
    /// The flow's delay, divided by its objective. Above 1, the flow misses its objective.
    pub part: f64,
}

/// A summary of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Number of periods.
    pub periods: usize,
    /// Number of periods with different decisions.
    pub different: usize,
    /// Number of periods that are excluded from means, because they are not [settled](Replayed::settled).
    pub first: usize,
    /// Summary of the measured figures.
    pub measured: Measure,
    /// Summary of the recorded decisions.
    pub recorded: Total,
    /// Summary of the replay's decisions.
    pub replayed: Total,
}

/// The measured figures of all periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Measure {
    /// The mean of [`Measured::busy`] in [settled](Replayed::settled) periods; `None` without such periods.
    pub busy: Option<f64>,
    /// Periods in which a flow missed its objective.
    pub missed: usize,
}

/// The summary of one controller's decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Total {
    /// The mean load of all modules in [settled](Replayed::settled) periods; `None` without such periods.
    pub load: Option<f64>,
    /// Periods in which a flow would miss its objective.
    pub missed: usize,
    /// Number of changed triggers.
    pub changes: usize,
}

impl Summary {
    /// Summarises these periods.
    #[must_use]
    pub fn of(periods: &[Replayed]) -> Self {
        let settled = || periods.iter().filter(|period| period.settled);
        let mean = |of: &dyn Fn(&Replayed) -> f64| {
            let count = settled().count();
            (count > 0).then(|| settled().map(of).sum::<f64>() / count as f64)
        };
        let total = |of: fn(&Replayed) -> &ReplayedDecision| {
            let decided = || periods.iter().map(of);
            Total {
                load: mean(&|period| of(period).load),
                missed: decided().filter(|decided| decided.worst.is_some_and(|worst| worst.part > 1.0)).count(),
                changes: decided().map(|decided| decided.changes.len()).sum(),
            }
        };
        Self {
            periods: periods.len(),
            different: periods.iter().filter(|period| !period.same).count(),
            first: periods.len() - settled().count(),
            measured: Measure {
                busy: mean(&|period| period.measured.busy),
                missed: periods.iter().filter(|period| period.measured.missed).count(),
            },
            recorded: total(|period| &period.recorded),
            replayed: total(|period| &period.replayed),
        }
    }
}

/// Lets the controller of `settings` decide on a recorded run. `begin` and `periods` are one part of a recording.
/// Returns one result per period.
///
/// # Errors
/// Returns an error if the controller does not accept the parameters.
pub fn replay(begin: &Begin, periods: &[Period], settings: &Settings) -> Result<Vec<Replayed>, SetupError> {
    let mut runner = ControllerRunner::new(settings, begin.layout.clone(), Costs::Recorded)?;
    let mut outlook = Outlook::default();
    let short = periods.iter().take_while(|period| period.snapshot.period_s < FULL * begin.period_s).count();
    let periods = periods.iter().enumerate().map(|(number, period)| {
        let mut snapshot = period.snapshot.clone();
        let actions = runner.decide(&mut snapshot);
        outlook.learn(&begin.layout, &snapshot);
        let decided = |actions: &Decision| decided(&outlook, &begin.layout, &snapshot, actions);
        let (recorded, replayed, same) = (decided(&period.actions), decided(actions), period.actions == *actions);
        let measured = measured(&begin.layout, &snapshot);
        Replayed { at_s: snapshot.at_s, settled: number > short, measured, recorded, replayed, same }
    });
    Ok(periods.collect())
}

/// Returns the measured figures of a period.
fn measured(layout: &Layout, snapshot: &Snapshot) -> Measured {
    let busy = snapshot.workers.iter().map(|worker| worker.busy_s).sum::<f64>();
    let mut flows = layout.flows.iter().zip(&snapshot.flows);
    Measured {
        busy: if snapshot.period_s > 0.0 { busy / snapshot.period_s } else { 0.0 },
        missed: flows.any(|(flow, seen)| seen.missed(flow)),
    }
}

/// Returns the decision `actions`, and its effect according to the model. `outlook` must have learnt from the snapshot.
fn decided(outlook: &Outlook, layout: &Layout, snapshot: &Snapshot, actions: &Decision) -> ReplayedDecision {
    let (model, arrivals) = outlook.model(layout, snapshot, 0.0);
    let mut triggers: Vec<usize> = snapshot.modules.iter().map(|module| module.trigger).collect();
    actions.changes.iter().for_each(|change| triggers[change.module] = change.to);
    let predicted = model.predict(&arrivals, &triggers);
    let part = |(flow, delay): (usize, &Option<f64>)| {
        let slo = layout.flows[flow].slo_s?;
        Some(Worst { flow, part: ((*delay)? + outlook.residual(flow).unwrap_or(0.0)) / slo })
    };
    let worst = predicted.delays.iter().enumerate().filter_map(part).max_by(|a, b| a.part.total_cmp(&b.part));
    ReplayedDecision { changes: actions.changes.clone(), load: predicted.load, worst }
}

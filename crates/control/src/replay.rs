//! Another controller's decisions on what was recorded.
//!
//! What was recorded stays as it was: each period the other controller sees the triggers that were in force then, and not those that it would
//! have set before. What both decide is told by the batch model: the share of a worker that modules would take, and how near the
//! slowest flow would be to its objective.

use forebay_graph::{Actions, Change, Layout, SetupError, Snapshot};
use serde::Serialize;

use crate::costs::Costs;
use crate::outlook::Outlook;
use crate::pilot::{Pilot, Settings};
use crate::recording::{Begin, Period};

/// A period, decided twice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replayed {
    /// When, in seconds since the run began.
    pub at_s: f64,
    /// What was decided then.
    pub recorded: Decided,
    /// What is decided now.
    pub replayed: Decided,
    /// Whether that is the same, hold limits and weights included.
    pub same: bool,
}

/// What was decided after a period, and what the model says of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decided {
    /// Triggers that change.
    pub changes: Vec<Change>,
    /// The share of a worker that all modules take.
    pub load: f64,
    /// The flow that takes the largest part of its objective; `None` without objectives or packets.
    pub worst: Option<Worst>,
}

/// How near a flow comes to its objective.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// The flow.
    pub flow: usize,
    /// The part of its objective that it takes: above 1 it misses it.
    pub part: f64,
}

/// What a replay comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Periods.
    pub periods: usize,
    /// Periods in which the two do not decide the same.
    pub different: usize,
    /// Of what was decided then.
    pub recorded: Total,
    /// Of what is decided now.
    pub replayed: Total,
}

/// What all decisions of one controller come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Total {
    /// The mean share of a worker that all modules take; `None` without periods.
    pub load: Option<f64>,
    /// Periods in which a flow would miss its objective.
    pub missed: usize,
    /// Triggers that were changed.
    pub changes: usize,
}

impl Summary {
    /// Of these periods.
    #[must_use]
    pub fn of(periods: &[Replayed]) -> Self {
        let total = |of: fn(&Replayed) -> &Decided| {
            let decided = || periods.iter().map(of);
            let load = decided().map(|decided| decided.load).sum::<f64>() / periods.len() as f64;
            Total {
                load: (!periods.is_empty()).then_some(load),
                missed: decided().filter(|decided| decided.worst.is_some_and(|worst| worst.part > 1.0)).count(),
                changes: decided().map(|decided| decided.changes.len()).sum(),
            }
        };
        Self {
            periods: periods.len(),
            different: periods.iter().filter(|period| !period.same).count(),
            recorded: total(|period| &period.recorded),
            replayed: total(|period| &period.replayed),
        }
    }
}

/// Has the controller of `settings` decide on a recorded run.
///
/// # Errors
/// Parameters that the controller does not take.
pub fn replay(begin: &Begin, periods: &[Period], settings: &Settings) -> Result<Vec<Replayed>, SetupError> {
    let mut pilot = Pilot::new(settings, begin.layout.clone(), Costs::Recorded)?;
    let mut outlook = Outlook::default();
    let periods = periods.iter().map(|period| {
        let mut snapshot = period.snapshot.clone();
        let actions = pilot.decide(&mut snapshot);
        let decided = |actions: &Actions| decided(&mut outlook.clone(), &begin.layout, &snapshot, actions);
        let (recorded, replayed, same) = (decided(&period.actions), decided(actions), period.actions == *actions);
        // What it learns from a period it learns once.
        drop(outlook.model(&begin.layout, &snapshot, 0.0));
        Replayed { at_s: snapshot.at_s, recorded, replayed, same }
    });
    Ok(periods.collect())
}

fn decided(outlook: &mut Outlook, layout: &Layout, snapshot: &Snapshot, actions: &Actions) -> Decided {
    let (model, arrivals) = outlook.model(layout, snapshot, 0.0);
    let mut triggers: Vec<usize> = snapshot.modules.iter().map(|module| module.trigger).collect();
    actions.changes.iter().for_each(|change| triggers[change.module] = change.to);
    let told = model.predict(&arrivals, &triggers);
    let part = |(flow, delay): (usize, &Option<f64>)| {
        let slo = layout.flows[flow].slo_s?;
        let rest = slo - model.flows()[flow].slo;
        Some(Worst { flow, part: ((*delay)? + rest) / slo })
    };
    let worst = told.delays.iter().enumerate().filter_map(part).max_by(|a, b| a.part.total_cmp(&b.part));
    Decided { changes: actions.changes.clone(), load: told.load, worst }
}

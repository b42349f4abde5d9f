//! Another controller's decisions on what was recorded.
//!
//! What was recorded stays as it was: each period the other controller sees the triggers that were in force then, and not those that it would
//! have set before. What both decide is told by the batch model: the share of a worker that modules would take, and how near the
//! slowest flow would be to its objective. Beside that stands what was measured then, which the model may be far from.

use forebay_graph::{Actions, Change, Layout, SetupError, Snapshot};
use serde::Serialize;

use crate::costs::Costs;
use crate::outlook::Outlook;
use crate::pilot::{Pilot, Settings};
use crate::recording::{Begin, Period};

/// A period with less than this part of its length is one of the first, which are short.
const FULL: f64 = 0.95;

/// A period, decided twice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replayed {
    /// When, in seconds since the run began.
    pub at_s: f64,
    /// Whether it is none of the first: of the short ones and the first of full length, in which triggers are not yet what a controller wants
    /// them to be.
    pub settled: bool,
    /// What was measured in it.
    pub measured: Measured,
    /// What was decided then.
    pub recorded: Decided,
    /// What is decided now.
    pub replayed: Decided,
    /// Whether that is the same, hold limits and weights included.
    pub same: bool,
}

/// What was measured in a period.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The share of a worker's time in turns with something to do, of all workers together.
    pub busy: f64,
    /// Whether more packets of a flow were above its objective than its percentile allows, as they were counted.
    pub missed: bool,
}

/// What was decided after a period, and what the model says of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decided {
    /// Triggers that change.
    pub changes: Vec<Change>,
    /// The share of a worker that all modules take. With more than there are workers, packets would wait and come in larger batches, so
    /// that it would be less: the model does not follow that.
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
    /// The first of them, which means are without: see [`Replayed::settled`].
    pub first: usize,
    /// Of what was measured then.
    pub measured: Measure,
    /// Of what was decided then.
    pub recorded: Total,
    /// Of what is decided now.
    pub replayed: Total,
}

/// What was measured in all periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Measure {
    /// The mean share of a worker's time in turns with something to do, without the first periods; `None` where there are no others.
    pub busy: Option<f64>,
    /// Periods in which a flow missed its objective.
    pub missed: usize,
}

/// What all decisions of one controller come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Total {
    /// The mean share of a worker that all modules take, without the first periods; `None` where there are no others.
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
        let settled = || periods.iter().filter(|period| period.settled);
        let mean = |of: &dyn Fn(&Replayed) -> f64| {
            let count = settled().count();
            (count > 0).then(|| settled().map(of).sum::<f64>() / count as f64)
        };
        let total = |of: fn(&Replayed) -> &Decided| {
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

/// Has the controller of `settings` decide on a recorded run.
///
/// # Errors
/// Parameters that the controller does not take.
pub fn replay(begin: &Begin, periods: &[Period], settings: &Settings) -> Result<Vec<Replayed>, SetupError> {
    let mut pilot = Pilot::new(settings, begin.layout.clone(), Costs::Recorded)?;
    let mut outlook = Outlook::default();
    let short = periods.iter().take_while(|period| period.snapshot.period_s < FULL * begin.period_s).count();
    let periods = periods.iter().enumerate().map(|(number, period)| {
        let mut snapshot = period.snapshot.clone();
        let actions = pilot.decide(&mut snapshot);
        outlook.learn(&begin.layout, &snapshot);
        let decided = |actions: &Actions| decided(&outlook, &begin.layout, &snapshot, actions);
        let (recorded, replayed, same) = (decided(&period.actions), decided(actions), period.actions == *actions);
        let measured = measured(&begin.layout, &snapshot);
        Replayed { at_s: snapshot.at_s, settled: number > short, measured, recorded, replayed, same }
    });
    Ok(periods.collect())
}

fn measured(layout: &Layout, snapshot: &Snapshot) -> Measured {
    let busy = snapshot.workers.iter().map(|worker| worker.busy_s).sum::<f64>();
    let mut flows = layout.flows.iter().zip(&snapshot.flows);
    Measured {
        busy: if snapshot.period_s > 0.0 { busy / snapshot.period_s } else { 0.0 },
        missed: flows.any(|(flow, told)| told.missed(flow)),
    }
}

fn decided(outlook: &Outlook, layout: &Layout, snapshot: &Snapshot, actions: &Actions) -> Decided {
    let (model, arrivals) = outlook.model(layout, snapshot, 0.0);
    let mut triggers: Vec<usize> = snapshot.modules.iter().map(|module| module.trigger).collect();
    actions.changes.iter().for_each(|change| triggers[change.module] = change.to);
    let told = model.predict(&arrivals, &triggers);
    let part = |(flow, delay): (usize, &Option<f64>)| {
        let slo = layout.flows[flow].slo_s?;
        Some(Worst { flow, part: ((*delay)? + outlook.rest(flow).unwrap_or(0.0)) / slo })
    };
    let worst = told.delays.iter().enumerate().filter_map(part).max_by(|a, b| a.part.total_cmp(&b.part));
    Decided { changes: actions.changes.clone(), load: told.load, worst }
}

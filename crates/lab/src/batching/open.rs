//! Traffic that comes when it comes: packets keep to a schedule whether the worker is there or not, from light load to more than it
//! can do.

use serde::Serialize;

use super::figures::{Figures, Told};
use super::place::{Place, Run};
use super::scenario::{Pipeline, Rule, fold};
use super::{Extents, basis};
use crate::{LabError, Progress};

/// Every flow's objective.
pub(super) const OBJECTIVE: &str = "slo=1ms";
/// Of what the worker does under `max`; the last is more than it can do, and what it does then must not suffer.
const LOADS: &[f64] = &[0.3, 0.6, 0.9, 1.2];
/// Those of a short run.
const SHORT: &[f64] = &[0.6, 1.2];
const ARRIVALS: &[(&str, &str)] = &[
    ("constant", "constant"),
    ("poisson", "poisson"),
    ("bursts, 100 µs of 400 µs", "{ on_off: { on: 100us, off: 300us } }"),
];
/// The percentile that must keep objectives.
pub(super) const PERCENTILE: f64 = 99.0;
/// Periods of a run whose violations are counted: 2 000 of it count even where the machine was elsewhere in as many as a run may have.
const MANY: u32 = 2_250;
/// The same in simulated time, which knows no such.
const MANY_SIMULATED: u32 = 2_000;
/// Of the others, which are there to be compared with.
const FEW: u32 = 100;
/// The part of objectives that is kept in reserve, and the paper's careful one.
const GUARD: f64 = 0.05;
const CAREFUL: f64 = 0.2;
/// Controllers, each with its guard.
const CONTENDERS: &[(&str, f64)] = &[
    ("null", GUARD),
    ("max", GUARD),
    ("on-off", GUARD),
    ("gradient", GUARD),
    ("optimal", GUARD),
    ("optimal", CAREFUL),
];

/// Traffic that a use case is offered.
pub(super) struct Offered {
    pub(super) pipeline: Pipeline,
    /// Where packets come from, and how they are spread over time.
    pub(super) settings: Vec<String>,
    /// What tables call that.
    pub(super) arrivals: String,
    pub(super) share: f64,
    pub(super) rate_pps: f64,
    pub(super) fold: bool,
    /// Whether packets come as chance or somebody else will have it: that is where objectives are hard to keep.
    pub(super) uneven: bool,
}

impl Offered {
    /// How many periods of a run count. Many are needed to tell that few are violated. A simulated second takes seconds, so that they
    /// are had there only where there is something to wait for and something to go wrong; above what can be done violations say nothing.
    fn periods(&self, controller: &str, simulated: bool) -> u32 {
        let judged = controller == "optimal" && self.share <= 1.0;
        match simulated {
            true if judged && self.uneven && !self.fold => MANY_SIMULATED,
            false if judged => MANY,
            _ => FEW,
        }
    }
}

/// A run with such traffic.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Open {
    /// The use case with its sizes.
    pub usecase: String,
    /// How packets are spread over time; of recorded ones the capture's name.
    pub arrivals: String,
    /// The load, in parts of what the worker does under `max` of a source that always has packets.
    pub share: f64,
    /// Packets a second that were due.
    pub offered_pps: f64,
    /// The share of them that found the source's queue full.
    pub lost: f64,
    /// The share of time that the worker was busy.
    pub busy: f64,
    /// The controller.
    pub controller: &'static str,
    /// The part of objectives that it keeps in reserve.
    pub guard: f64,
    /// Whether equal branches ran as one.
    pub fold: bool,
    /// Figures.
    #[serde(flatten)]
    pub told: Told,
    /// The worst flow's percentile in the worst period that counts, in parts of its objective; at most 1 where none was violated.
    pub worst: Option<f64>,
}

impl Open {
    fn of(run: &Run, place: &Place, offered: &Offered, controller: &'static str, guard: f64) -> Self {
        let figures = Figures::of(run, place.hertz());
        Self {
            usecase: offered.pipeline.name.clone(),
            arrivals: offered.arrivals.clone(),
            share: offered.share,
            offered_pps: offered.rate_pps,
            lost: lost(run),
            busy: run.report.workers.iter().map(|worker| worker.busy).sum(),
            controller,
            guard,
            fold: offered.fold,
            told: figures.told(),
            worst: figures.worst.iter().copied().max_by(f64::total_cmp),
        }
    }
}

/// Makes all runs.
pub(super) fn measure(place: &Place, extents: &Extents, progress: &mut dyn Progress) -> Result<Vec<Open>, LabError> {
    let pipeline = Pipeline::new("gw", &[if extents.short { "n=4" } else { "n=16" }]).keeping(PERCENTILE);
    let folds = [false, true];
    let full: Vec<_> = folds.map(|on| (pipeline.clone(), vec![fold(on)])).into();
    let full = capacities(&full, place, extents, progress)?;
    let mut all = Vec::new();
    for (on, full) in folds.into_iter().zip(full) {
        for (name, arrivals) in ARRIVALS {
            let of = |share: &f64| Offered {
                pipeline: pipeline.clone(),
                settings: vec![format!("ports.in.generator.arrivals={arrivals}")],
                arrivals: (*name).to_owned(),
                share: *share,
                rate_pps: (full * share).max(1.0),
                fold: on,
                uneven: *name == "poisson",
            };
            all.extend(if extents.short { SHORT } else { LOADS }.iter().map(of));
        }
    }
    under_all(&all, place, extents, progress)
}

/// What the worker does of each under `max`, packets a second, where the source always has packets.
pub(super) fn capacities(
    all: &[(Pipeline, Vec<String>)],
    place: &Place,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<f64>, LabError> {
    let of = |(pipeline, settings): &(Pipeline, Vec<String>)| {
        let settings = [settings.clone(), vec!["rate=max".to_owned()]].concat();
        pipeline.under(&Rule::new("max"), &settings, extents.lasting(FEW))
    };
    let scenarios = all.iter().map(of).collect::<Result<Vec<_>, _>>()?;
    let full = basis::measure(place, &scenarios, progress, |run| [Figures::of(run, place.hertz()).rate_pps])?;
    Ok(full.into_iter().map(|[full]| full).collect())
}

/// Runs of each under every controller.
pub(super) fn under_all(
    all: &[Offered],
    place: &Place,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<Open>, LabError> {
    let (mut wanted, mut scenarios) = (Vec::new(), Vec::new());
    for offered in all {
        for (controller, guard) in CONTENDERS {
            let span = extents.lasting(offered.periods(controller, place.simulated));
            let mut settings = offered.settings.clone();
            settings.extend([OBJECTIVE.to_owned(), fold(offered.fold), format!("control.guard={guard}")]);
            settings.push(format!("rate={:.0}pps", offered.rate_pps));
            scenarios.push(offered.pipeline.under(&Rule::new(controller), &settings, span)?);
            wanted.push((offered, *controller, *guard));
        }
    }
    let runs = place.all(&scenarios, progress, |run| run)?;
    let told = wanted.into_iter().zip(&runs);
    Ok(told.map(|((offered, controller, guard), run)| Open::of(run, place, offered, controller, guard)).collect())
}

fn lost(run: &Run) -> f64 {
    let (received, dropped) =
        run.report.ports.iter().fold((0, 0), |sum, port| (sum.0 + port.received, sum.1 + port.dropped));
    dropped as f64 / (received + dropped).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run with more than that many stalled periods is void.
    #[test]
    fn two_thousand_periods_count_of_a_run_that_is_not_void() {
        assert!(f64::from(MANY) * (1.0 - super::super::VOID) >= 2_000.0);
    }
}

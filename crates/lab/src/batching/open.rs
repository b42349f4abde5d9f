//! Open-loop traffic: packets keep to a schedule regardless of the worker, from light load to overload.

use serde::Serialize;

use super::figures::{Figures, Summary};
use super::scenario::{Pipeline, Rule, fold};
use super::testbed::{Run, Testbed};
use super::{Extents, basis};
use crate::{LabError, Progress};

/// The objective of every flow.
pub(super) const OBJECTIVE: &str = "slo=1ms";
/// The loads, as shares of the rate that the worker reaches under `max`. The last one is an overload, under which
/// throughput must not drop.
const LOADS: &[f64] = &[0.3, 0.6, 0.9, 1.2];
/// The loads of a short run.
const SHORT: &[f64] = &[0.6, 1.2];
/// The distributions of packets over time: a name, and the setting of the generator.
const ARRIVALS: &[(&str, &str)] = &[
    ("constant", "constant"),
    ("poisson", "poisson"),
    ("bursts, 100 µs of 400 µs", "{ on_off: { on: 100us, off: 300us } }"),
];
/// The percentile of packets that must keep objectives.
pub(super) const PERCENTILE: f64 = 99.0;
/// The number of periods of a run whose violations are counted. In a valid run, the machine may be busy elsewhere in up
/// to a tenth of the periods. Even then, at least 2 000 periods count.
const MANY: u32 = 2_250;
/// The number of these periods in simulated time, which has no stalls.
const MANY_SIMULATED: u32 = 2_000;
/// The number of periods of the other runs, which serve for comparison.
const FEW: u32 = 100;
/// The share of each delay objective that a controller keeps in reserve (its guard).
const GUARD: f64 = 0.05;
/// The larger guard that the paper uses.
const CAREFUL: f64 = 0.2;
/// The controllers, each with its guard.
const CONTENDERS: &[(&str, f64)] = &[
    ("null", GUARD),
    ("max", GUARD),
    ("on-off", GUARD),
    ("gradient", GUARD),
    ("optimal", GUARD),
    ("optimal", CAREFUL),
];

/// The traffic that a use case is offered.
pub(super) struct Offered {
    pub(super) pipeline: Pipeline,
    /// The settings of the sources: their packets, and the distribution of the packets over time.
    pub(super) settings: Vec<String>,
    /// The name of the traffic in tables.
    pub(super) arrivals: String,
    /// The load, as a share of the capacity under `max`.
    pub(super) share: f64,
    /// The load, in packets per second.
    pub(super) rate_pps: f64,
    /// Whether equal branches run as one.
    pub(super) fold: bool,
    /// Whether packets arrive at random or as recorded. Then objectives are hard to keep.
    pub(super) uneven: bool,
}

impl Offered {
    /// Returns the number of periods of a run that count. Many periods are needed to show that few of them are
    /// violated. A simulated second takes seconds, so simulated runs have many periods only if packets wait and
    /// objectives are hard to keep. In overload, violations carry no meaning.
    fn periods(&self, controller: &str, simulated: bool) -> u32 {
        let judged = controller == "optimal" && self.share <= 1.0;
        match simulated {
            true if judged && self.uneven && !self.fold => MANY_SIMULATED,
            false if judged => MANY,
            _ => FEW,
        }
    }
}

/// A run with open-loop traffic.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Open {
    /// The use case with its sizes.
    pub usecase: String,
    /// The distribution of packets over time, or the name of the capture.
    pub arrivals: String,
    /// The load, as a share of the rate that the worker reaches under `max` from a source that always has packets.
    pub share: f64,
    /// The packets per second that were due.
    pub offered_pps: f64,
    /// The share of the due packets that found the source's queue full.
    pub lost: f64,
    /// The share of time in which the worker was busy.
    pub busy: f64,
    /// The controller.
    pub controller: &'static str,
    /// The share of each delay objective that the controller keeps in reserve.
    pub guard: f64,
    /// Whether equal branches ran as one.
    pub fold: bool,
    /// The summary of the run.
    #[serde(flatten)]
    pub summary: Summary,
    /// The delay of the worst flow in the worst period that counts, as a multiple of its objective. The delay is taken
    /// at the objective's percentile. At most 1 if no period was violated. `None` if no period has such a delay.
    pub worst: Option<f64>,
}

impl Open {
    /// Evaluates a run. The last arguments are copied into the result.
    fn of(run: &Run, testbed: &Testbed, offered: &Offered, controller: &'static str, guard: f64) -> Self {
        let figures = Figures::of(run, testbed.hertz());
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
            summary: figures.summary(),
            worst: figures.worst.iter().copied().max_by(f64::total_cmp),
        }
    }
}

/// Performs all runs.
pub(super) fn measure(
    testbed: &Testbed,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<Open>, LabError> {
    let pipeline = Pipeline::new("gw", &[if extents.short { "n=4" } else { "n=16" }]).keeping(PERCENTILE);
    let folds = [false, true];
    let full: Vec<_> = folds.map(|on| (pipeline.clone(), vec![fold(on)])).into();
    let full = capacities(&full, testbed, extents, progress)?;
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
    under_all(&all, testbed, extents, progress)
}

/// Returns the packets per second that the worker processes under `max`, for each pipeline, when its source always has
/// packets.
pub(super) fn capacities(
    all: &[(Pipeline, Vec<String>)],
    testbed: &Testbed,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<f64>, LabError> {
    let of = |(pipeline, settings): &(Pipeline, Vec<String>)| {
        let settings = [settings.clone(), vec!["rate=max".to_owned()]].concat();
        pipeline.under(&Rule::new("max"), &settings, extents.lasting(FEW))
    };
    let scenarios = all.iter().map(of).collect::<Result<Vec<_>, _>>()?;
    let full = basis::measure(testbed, &scenarios, progress, |run| [Figures::of(run, testbed.hertz()).rate_pps])?;
    Ok(full.into_iter().map(|[full]| full).collect())
}

/// Runs each use case under every controller.
pub(super) fn under_all(
    all: &[Offered],
    testbed: &Testbed,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<Open>, LabError> {
    let (mut wanted, mut scenarios) = (Vec::new(), Vec::new());
    for offered in all {
        for (controller, guard) in CONTENDERS {
            let span = extents.lasting(offered.periods(controller, testbed.simulated));
            let mut settings = offered.settings.clone();
            settings.extend([OBJECTIVE.to_owned(), fold(offered.fold), format!("control.guard={guard}")]);
            settings.push(format!("rate={:.0}pps", offered.rate_pps));
            scenarios.push(offered.pipeline.under(&Rule::new(controller), &settings, span)?);
            wanted.push((offered, *controller, *guard));
        }
    }
    let runs = testbed.all(&scenarios, progress, |run| run)?;
    let runs = wanted.into_iter().zip(&runs);
    Ok(runs.map(|((offered, controller, guard), run)| Open::of(run, testbed, offered, controller, guard)).collect())
}

/// Returns the share of the due packets that found the queue of their source full.
fn lost(run: &Run) -> f64 {
    let (received, dropped) =
        run.report.ports.iter().fold((0, 0), |sum, port| (sum.0 + port.received, sum.1 + port.dropped));
    dropped as f64 / (received + dropped).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run with more stalled periods than that is void.
    #[test]
    fn two_thousand_periods_count_of_a_run_that_is_not_void() {
        assert!(f64::from(MANY) * (1.0 - super::super::VOID) >= 2_000.0);
    }
}

//! Traffic that comes when it comes: packets keep to a schedule whether the worker is there or not, from light load to more than it
//! can do.

use serde::Serialize;

use super::figures::{Figures, Told};
use super::place::{Place, Run};
use super::scenario::{Pipeline, Rule, Span, fold};
use super::{Extents, basis};
use crate::{LabError, Progress};

/// Every flow's objective.
pub(super) const OBJECTIVE: &str = "slo=1ms";
/// Of what the worker does under `max`; the last is more than it can do, and what it does then must not suffer.
const LOADS: &[f64] = &[0.3, 0.6, 0.9, 1.2];
/// Those of a short run.
const FEW: &[f64] = &[0.6, 1.2];
const ARRIVALS: &[(&str, &str)] = &[
    ("constant", "constant"),
    ("poisson", "poisson"),
    ("bursts, 100 µs of 400 µs", "{ on_off: { on: 100us, off: 300us } }"),
];
pub(super) const CONTROLLERS: &[&str] = &["null", "max", "on-off", "gradient", "optimal"];
/// Periods of a run that count at most.
pub(super) const PERIODS: u32 = 200;

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
    /// Whether equal branches ran as one.
    pub fold: bool,
    /// Figures.
    #[serde(flatten)]
    pub told: Told,
}

impl Open {
    /// What came of a run at this load and rate, under this controller, folded or not.
    pub(super) fn of(
        run: &Run,
        place: &Place,
        usecase: String,
        arrivals: String,
        (share, offered_pps): (f64, f64),
        (controller, fold): (&'static str, bool),
    ) -> Self {
        let busy = run.report.workers.iter().map(|worker| worker.busy).sum();
        let told = Figures::of(run, place.hertz()).told();
        Self { usecase, arrivals, share, offered_pps, lost: lost(run), busy, controller, fold, told }
    }
}

/// Makes all runs.
pub(super) fn measure(place: &Place, extents: &Extents, progress: &mut dyn Progress) -> Result<Vec<Open>, LabError> {
    let pipeline = Pipeline::new("gw", &[if extents.short { "n=4" } else { "n=16" }]);
    let span = Span { periods: PERIODS.min(extents.span.periods), ..extents.span };
    let folds = [false, true];
    let full = folds.map(|on| pipeline.under(&Rule::new("max"), &["rate=max".to_owned(), fold(on)], span));
    let full: Vec<_> = full.into_iter().collect::<Result<_, _>>()?;
    let full = basis::measure(place, &full, progress, |run| [Figures::of(run, place.hertz()).rate_pps])?;
    let (mut wanted, mut scenarios) = (Vec::new(), Vec::new());
    for (on, [full]) in folds.into_iter().zip(full) {
        for (name, arrivals) in ARRIVALS {
            for share in if extents.short { FEW } else { LOADS } {
                for controller in CONTROLLERS {
                    let rate = (full * share).max(1.0);
                    let settings = [
                        OBJECTIVE.to_owned(),
                        fold(on),
                        format!("rate={rate:.0}pps"),
                        format!("ports.in.generator.arrivals={arrivals}"),
                    ];
                    scenarios.push(pipeline.under(&Rule::new(controller), &settings, span)?);
                    wanted.push((on, *name, *share, rate, *controller));
                }
            }
        }
    }
    let runs = place.all(&scenarios, progress, |run| run)?;
    let told = wanted.into_iter().zip(&runs).map(|((fold, arrivals, share, rate, controller), run)| {
        Open::of(run, place, pipeline.name.clone(), arrivals.to_owned(), (share, rate), (controller, fold))
    });
    Ok(told.collect())
}

fn lost(run: &Run) -> f64 {
    let (received, dropped) =
        run.report.ports.iter().fold((0, 0), |sum, port| (sum.0 + port.received, sum.1 + port.dropped));
    dropped as f64 / (received + dropped).max(1) as f64
}

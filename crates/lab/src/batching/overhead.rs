//! What deciding takes: from the first counter read to the last action written (Batchy, Table 1). Of this machine's clock, also where a
//! pipeline runs in simulated time.

use serde::Serialize;

use super::Extents;
use super::place::Place;
use super::scenario::{Pipeline, Rule, Span};
use crate::{LabError, Progress};

const CONTROLLERS: &[&str] = &["null", "max", "on-off", "gradient", "optimal"];
/// Periods of a run.
const PERIODS: u32 = 100;

/// What a controller's decisions take for a pipeline, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Took {
    /// The use case with its sizes.
    pub usecase: String,
    /// Flows.
    pub flows: usize,
    /// Modules that run.
    pub modules: usize,
    /// The controller.
    pub controller: &'static str,
    /// The median.
    pub median: f64,
    /// The longest: where the machine was elsewhere meanwhile, that is in it.
    pub max: f64,
}

/// Makes runs, one at a time.
pub(super) fn measure(place: &Place, extents: &Extents, progress: &mut dyn Progress) -> Result<Vec<Took>, LabError> {
    let short = extents.short;
    let mut pipelines: Vec<_> = if short { &[4][..] } else { &[2, 8, 16, 32, 64][..] }
        .iter()
        .map(|n| Pipeline::robot(*n, 0).with(&["slo=100us"]))
        .collect();
    if !short {
        // About 300 modules, and 5 000.
        pipelines.extend(["n=64", "n=1024"].map(|n| Pipeline::new("gw", &[n]).with(&["slo=1ms"])));
    }
    let span = Span { periods: PERIODS.min(extents.span.periods), ..extents.span };
    let runs = pipelines.len() * CONTROLLERS.len();
    progress.begin(runs);
    if !place.simulated {
        progress.expect(runs as f64 * span.end().0 as f64 / 1e9);
    }
    let mut all = Vec::new();
    for pipeline in &pipelines {
        for controller in CONTROLLERS {
            let scenario =
                pipeline.under(&Rule::new(controller), &["rate=max".to_owned(), "fold=off".to_owned()], span)?;
            progress.step(&scenario.name);
            if progress.is_stopped() {
                return Err(LabError::Interrupted);
            }
            let run = place.run(&scenario)?;
            let Some((median, max)) = run.report.control.as_ref().and_then(|control| control.took_us) else { continue };
            let (flows, modules) = (run.report.flows.len(), run.modules);
            all.push(Took { usecase: pipeline.name.clone(), flows, modules, controller, median, max });
        }
    }
    Ok(all)
}

//! Measures the time of a decision, from the first counter read to the last action written (Batchy, Table 1). The time
//! is that of this machine's clock, even if the pipeline runs in simulated time.

use serde::Serialize;

use super::Extents;
use super::scenario::{Pipeline, Rule, Span};
use super::testbed::Testbed;
use crate::{LabError, Progress};

const CONTROLLERS: &[&str] = &["null", "max", "on-off", "gradient", "optimal"];
/// The number of periods of a run.
const PERIODS: u32 = 100;

/// The time that a controller's decisions take for a pipeline, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DecisionTime {
    /// The use case with its sizes.
    pub usecase: String,
    /// The number of flows.
    pub flows: usize,
    /// The number of modules that run.
    pub modules: usize,
    /// The controller.
    pub controller: &'static str,
    /// The median.
    pub median: f64,
    /// The maximum. It includes time in which the machine was busy elsewhere.
    pub max: f64,
}

/// Performs the runs, one at a time.
pub(super) fn measure(
    testbed: &Testbed,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<DecisionTime>, LabError> {
    let short = extents.short;
    let mut pipelines: Vec<_> = if short { &[4][..] } else { &[2, 8, 16, 32, 64][..] }
        .iter()
        .map(|n| Pipeline::robot(*n, 0).with(&["slo=100us"]))
        .collect();
    if !short {
        // Pipelines of about 300 and 5 000 modules.
        pipelines.extend(["n=64", "n=1024"].map(|n| Pipeline::new("gw", &[n]).with(&["slo=1ms"])));
    }
    let span = Span { periods: PERIODS.min(extents.span.periods), ..extents.span };
    let runs = pipelines.len() * CONTROLLERS.len();
    progress.begin(runs);
    if !testbed.simulated {
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
            let run = testbed.run(&scenario)?;
            let Some((median, max)) = run.report.control.as_ref().and_then(|control| control.took_us) else { continue };
            let (flows, modules) = (run.report.flows.len(), run.modules);
            all.push(DecisionTime { usecase: pipeline.name.clone(), flows, modules, controller, median, max });
        }
    }
    Ok(all)
}

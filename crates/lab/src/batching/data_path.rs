//! Measures the cost of observation for the data path: the workers' time per packet with a controller that changes
//! nothing, relative to the time without a controller. Decisions are applied between turns; `cargo bench -p
//! forebay-instance --bench decide` measures their cost.

use forebay_protocol::report::WorkerReport;
use forebay_units::Nanos;
use serde::Serialize;

use super::Extents;
use super::figures::{Figures, VOID};
use super::interval::Ratio;
use super::scenario::{Pipeline, Rule, Scenario, Span};
use super::testbed::{Run, Testbed};
use crate::trial::median;
use crate::{LabError, Progress};

/// The control periods that are tried.
const PERIODS: [Nanos; 2] = [Nanos(100_000_000), Nanos(10_000_000)];
/// The duration of a run, after it has settled.
const DURATION: Nanos = Nanos(1_000_000_000);

/// The workers' time per packet with a controller, relative to the time without one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataPath {
    /// The use case with its sizes.
    pub usecase: String,
    /// The control period, in milliseconds.
    pub period_ms: f64,
    /// The ticks per packet without a controller. `None` if all runs without a controller are void.
    pub ticks_per_packet: Option<f64>,
    /// The ticks per packet with a controller, relative to those without one. `None` if there is no pair of valid runs.
    pub to_none: Option<Ratio>,
}

/// Performs the runs one at a time, in turn. In simulated time observation costs nothing, so nothing is run there.
pub(super) fn measure(
    testbed: &Testbed,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<DataPath>, LabError> {
    if testbed.simulated {
        return Ok(Vec::new());
    }
    let pipelines = [Pipeline::new("gw", &["n=16"]), Pipeline::new("gw", &["n=64"])];
    let mut scenarios = Vec::new();
    for seed in 1..=extents.runs {
        for pipeline in &pipelines {
            scenarios.extend(in_turn(pipeline, seed)?);
        }
    }
    let hertz = testbed.hertz();
    let ticks = |run: Run| is_sound(&run.report.workers).then(|| Figures::of(&run, hertz).ticks_per_packet);
    let ticks = testbed.all(&scenarios, progress, ticks)?;
    let runs = 1 + PERIODS.len();
    let of = |pipeline: usize, run: usize| -> Vec<Option<f64>> {
        ticks.chunks(pipelines.len() * runs).map(|turn| turn[pipeline * runs + run]).collect()
    };
    let row = |(at, pipeline): (usize, &Pipeline)| {
        let without = of(at, 0);
        let of_period = |(number, period): (usize, &Nanos)| DataPath {
            usecase: pipeline.name.clone(),
            period_ms: period.0 as f64 / 1e6,
            ticks_per_packet: median(without.iter().copied().flatten().collect()),
            to_none: Ratio::of(&of(at, 1 + number), &without),
        };
        PERIODS.iter().enumerate().map(of_period).collect::<Vec<_>>()
    };
    Ok(pipelines.iter().enumerate().flat_map(row).collect())
}

/// Returns whether a run is valid. A run without a controller has no periods that could be counted, so the check uses
/// the time in which the machine was busy elsewhere.
fn is_sound(workers: &[WorkerReport]) -> bool {
    workers.iter().all(|worker| worker.machine_stalls.share <= VOID)
}

/// Returns a run without a controller, and a run with each period.
fn in_turn(pipeline: &Pipeline, seed: usize) -> Result<Vec<Scenario>, LabError> {
    let settings = ["rate=max".to_owned(), "fold=off".to_owned(), format!("seed={seed}")];
    let mut all = Vec::new();
    for period in PERIODS {
        let span = Span { period, periods: u32::try_from(DURATION.0 / period.0).unwrap_or(u32::MAX) };
        if all.is_empty() {
            all.push(pipeline.uncontrolled(&settings, span)?);
        }
        all.push(pipeline.under(&Rule::new("null"), &settings, span)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use forebay_protocol::report::Stalls;

    use super::*;

    /// Regression: all runs without a controller were void because they have no periods, so the report had no results.
    #[test]
    fn a_run_without_periods_is_void_only_if_the_machine_was_busy_elsewhere() {
        let run =
            |share| [WorkerReport { machine_stalls: Stalls { share, ..Stalls::default() }, ..WorkerReport::default() }];
        assert!(is_sound(&run(0.0)) && is_sound(&run(VOID)) && !is_sound(&run(VOID + 0.01)));
    }
}

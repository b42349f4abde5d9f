//! Objectives and loads that change while a pipeline runs (Batchy, Fig. 9).

use forebay_pipeline::Source;
use forebay_units::Nanos;
use serde::Serialize;

use super::Extents;
use super::figures::Soundness;
use super::scenario::{Change, Pipeline, Rule, Scenario, Span, fold};
use super::testbed::Testbed;
use super::watch::Moment;
use crate::{LabError, Progress};

/// The controllers that are compared.
const CONTROLLERS: &[&str] = &["null", "max", "gradient", "optimal"];
/// The objectives, in microseconds, one after the other.
const OBJECTIVES: &[f64] = &[150.0, 100.0, 200.0, 300.0, 125.0, 60.0];
/// The objectives of a short run. Its pipeline is small and its packets wait less, so the objectives of a full run
/// would never be missed.
const TIGHT: &[f64] = &[30.0, 20.0, 40.0, 60.0, 22.0, 17.0];
/// The loads, in thousand packets per second.
const LOADS: &[f64] = &[100.0, 3_500.0, 200.0, 3_000.0, 10.0, 50.0];
/// The loads of the first bearer in each direction, in thousand packets per second.
const BEARER: &[f64] = &[10.0, 20.0, 5.0, 50.0, 15.0, 1.0];
/// The number of periods of each value, in a full and in a short run.
const PERIODS: [u32; 2] = [60, 12];

/// A run during which a quantity changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// The pipeline.
    pub usecase: String,
    /// The controller.
    pub controller: String,
    /// Whether equal branches ran as one.
    pub fold: bool,
    /// The quantity that changes.
    pub quantity: &'static str,
    /// The values, each with the time at which it begins.
    pub steps: Vec<Stage>,
    /// The periods of the run.
    pub moments: Vec<Moment>,
    /// How reliable the figures are.
    #[serde(flatten)]
    pub soundness: Soundness,
}

/// The time after a change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stage {
    /// The time at which it began, in seconds.
    pub at_s: f64,
    /// The value from then on.
    pub value: f64,
    /// The number of whole periods that ended in it and in which the machine was not busy elsewhere.
    pub periods: usize,
    /// The number of these periods in which an objective was missed.
    pub violated: usize,
    /// The number of periods until the last period in which an objective was missed; 0 if there is none. It includes
    /// the short periods with which a controller starts.
    pub until_kept: usize,
}

/// An experiment: its runs, and the quantity that changes.
struct SeriesPlan {
    quantity: &'static str,
    values: &'static [f64],
    scenarios: Vec<PlannedRun>,
}

/// A run to perform.
struct PlannedRun {
    usecase: String,
    controller: &'static str,
    fold: bool,
    scenario: Scenario,
}

/// Performs the runs with changing objectives.
pub(super) fn objectives(
    testbed: &Testbed,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<Series>, LabError> {
    let pipeline = virtual_routers(extents);
    let objectives = if extents.short { TIGHT } else { OBJECTIVES };
    let first = format!("slo={}us", objectives[0]);
    let change = |value, _| Change::Objective(micros(value));
    let plan =
        plan("objective, µs", objectives, change, &pipeline, &["rate=max".to_owned(), first], "acl1_0", extents)?;
    plan.run(testbed, extents, progress)
}

/// Performs the runs with changing loads.
pub(super) fn loads(
    testbed: &Testbed,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<Series>, LabError> {
    let pipeline = virtual_routers(extents);
    let rate = format!("rate={}kpps", LOADS[0]);
    let settings = ["slo=1ms".to_owned(), rate];
    let plan = plan("offered, thousand packets per second", LOADS, factor, &pipeline, &settings, "acl1_0", extents)?;
    plan.run(testbed, extents, progress)
}

/// Runs a mobile gateway with two bearers for each user. The first bearer has an objective and a changing load; the
/// second bearer takes the remaining time. With `rate=max`, the use case writes no rates. So [`two_bearers`] can write
/// the first value as the rate of the first bearer, and changes of the load do not affect the second bearer. The
/// recorded trigger is that of `down_service0_0`: user 0, bearer 0, to the user.
pub(super) fn bearer(
    testbed: &Testbed,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<Series>, LabError> {
    let users = if extents.short { 2 } else { 16 };
    let pipeline = Pipeline::new("mgw", &[&format!("m={users}"), "n=2"]);
    let settings = ["rate=max".to_owned(), "sessions=256".to_owned()];
    let quantity = "offered to bearer 0, thousand packets per second";
    let mut plan = plan(quantity, BEARER, factor, &pipeline, &settings, "down_service0_0", extents)?;
    for planned in &mut plan.scenarios {
        planned.scenario.source = two_bearers(&planned.scenario.source, users);
    }
    plan.run(testbed, extents, progress)
}

fn virtual_routers(extents: &Extents) -> Pipeline {
    if extents.short { Pipeline::new("vrf", &["m=2", "n=2"]) } else { Pipeline::new("vrf", &["m=4", "n=8"]) }
}

fn micros(value: f64) -> Nanos {
    Nanos((value * 1e3) as u64)
}

/// Returns the change to the load `value`, if the configured load is `first`.
fn factor(value: f64, first: f64) -> Change {
    Change::Offer(value / first)
}

/// Plans a run for each controller, with unfolded and with folded branches. `change` returns the change to a value; its
/// arguments are the value and the first value. The first value must be set by `settings`, or later by the caller in
/// the sources of the scenarios. `module` is the module whose trigger is recorded.
fn plan(
    quantity: &'static str,
    values: &'static [f64],
    change: fn(f64, f64) -> Change,
    pipeline: &Pipeline,
    settings: &[String],
    module: &str,
    extents: &Extents,
) -> Result<SeriesPlan, LabError> {
    let stage = PERIODS[usize::from(extents.short)];
    let span = Span { periods: stage * values.len() as u32, ..extents.span };
    let scenario = |on: bool, name: &'static str| {
        let settings: Vec<_> = settings.iter().cloned().chain([fold(on)]).collect();
        let mut scenario = pipeline.under(&Rule::new(name), &settings, span)?;
        scenario.module = Some(module.to_owned());
        let entry = |(at, value): (usize, &f64)| (begins(span, stage, at), change(*value, values[0]));
        scenario.changes = values.iter().enumerate().skip(1).map(entry).collect();
        Ok::<_, LabError>(PlannedRun { usecase: pipeline.name.clone(), controller: name, fold: on, scenario })
    };
    let both = [false, true].into_iter().flat_map(|on| CONTROLLERS.iter().map(move |name| (on, *name)));
    let scenarios = both.map(|(on, name)| scenario(on, name)).collect::<Result<_, _>>()?;
    Ok(SeriesPlan { quantity, values, scenarios })
}

/// Returns the time at which the value with this index begins.
fn begins(span: Span, stage: u32, at: usize) -> Nanos {
    Nanos(span.settled().0 + span.period.0 * u64::from(stage) * at as u64)
}

impl SeriesPlan {
    /// Performs the runs and evaluates each stage.
    fn run(self, testbed: &Testbed, extents: &Extents, progress: &mut dyn Progress) -> Result<Vec<Series>, LabError> {
        let scenarios: Vec<_> = self.scenarios.iter().map(|planned| planned.scenario.clone()).collect();
        let runs = testbed.all(&scenarios, progress, |run| run)?;
        let stage = PERIODS[usize::from(extents.short)];
        let series = runs.into_iter().zip(&self.scenarios).map(|(run, planned)| {
            let begun = |at: usize| if at == 0 { 0.0 } else { begins(planned.scenario.span, stage, at).0 as f64 / 1e9 };
            let begun: Vec<_> = (0..self.values.len()).map(begun).collect();
            Series {
                usecase: planned.usecase.clone(),
                controller: planned.controller.to_owned(),
                fold: planned.fold,
                quantity: self.quantity,
                steps: stages(&run.moments, &begun, self.values),
                soundness: Soundness::of(&run),
                moments: run.moments,
            }
        });
        Ok(series.collect())
    }
}

/// Evaluates the periods of a run by stage. `begun` has the time at which each of `values` begins.
fn stages(moments: &[Moment], begun: &[f64], values: &[f64]) -> Vec<Stage> {
    let stage = |(at, (at_s, value)): (usize, (&f64, &f64))| {
        let end = begun.get(at + 1).copied().unwrap_or(f64::INFINITY);
        // A period belongs to the stage in which it ended.
        let within = |moment: &&Moment| moment.at_s > at_s + 1e-6 && moment.at_s <= end + 1e-6 && !moment.stalled;
        let all: Vec<_> = moments.iter().filter(within).collect();
        let moments: Vec<_> = all.iter().filter(|moment| moment.counts()).collect();
        Stage {
            at_s: *at_s,
            value: *value,
            periods: moments.len(),
            violated: moments.iter().filter(|moment| moment.violated).count(),
            until_kept: all.iter().rposition(|moment| moment.violated).map_or(0, |last| last + 1),
        }
    };
    begun.iter().zip(values).enumerate().map(stage).collect()
}

/// Returns the mobile gateway with separate sources for each bearer. The sources of the first bearer keep to a rate.
/// The sources of the second bearer send as many packets as the pipeline accepts. Only the flows of the first bearer
/// have an objective.
fn two_bearers(source: &Source, users: usize) -> Source {
    let mut text = source.text().to_owned();
    for way in ["down", "up"] {
        let block = block(&text, &format!("  {way}:\n"));
        let ports = "destination_port: 5000-5001";
        let bulk = block.replace(ports, "destination_port: 5001");
        let rated = format!("    generator:\n      rate: {}kpps", BEARER[0]);
        let urgent = block.replace(ports, "destination_port: 5000").replace("    generator:", &rated);
        let urgent = urgent.replacen(&format!("  {way}:"), &format!("  {way}_urgent:"), 1);
        text = text.replacen(&block, &format!("{bulk}{urgent}"), 1);
        let line = format!("  - {way} -> l2\n");
        text = text.replacen(&line, &format!("{line}  - {way}_urgent -> l2\n"), 1);
    }
    let sets = source.sets().to_vec();
    let named = Source::new(text, source.file(), "");
    let source = sets.into_iter().fold(named, Source::set);
    // In each direction the flows of the first bearer come first.
    let urgent = (0..users).chain(2 * users..3 * users);
    urgent.fold(source, |source, flow| source.set(format!("flows.{flow}.slo=1ms")))
}

/// Returns the lines of a port in a configuration, starting with the line `name`. Empty if there is no such port.
pub(super) fn block(text: &str, name: &str) -> String {
    let Some(start) = text.find(name) else { return String::new() };
    let lines = text[start..].split_inclusive('\n').enumerate();
    lines.take_while(|(at, line)| *at == 0 || line.starts_with("    ")).map(|(_, line)| line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: after a reload a controller starts with 1, 2 and 4 ms, and these were counted as periods.
    #[test]
    fn short_and_stalled_periods_do_not_count() {
        let moment = |at_s, brief, stalled| Moment { at_s, brief, stalled, violated: true, ..Moment::default() };
        let moments = [
            moment(0.01, false, false),
            moment(0.011, true, false),
            moment(0.013, true, false),
            moment(0.02, false, false),
            moment(0.03, false, true),
        ];
        let stages = super::stages(&moments, &[0.0, 0.01], &[1.0, 2.0]);
        assert_eq!(stages[0], Stage { at_s: 0.0, value: 1.0, periods: 1, violated: 1, until_kept: 1 });
        assert_eq!(
            stages[1],
            Stage { at_s: 0.01, value: 2.0, periods: 1, violated: 1, until_kept: 3 },
            "short periods count until the objective is kept"
        );
    }

    #[test]
    fn each_bearer_has_its_own_sources_and_the_first_has_an_objective() {
        let pipeline = Pipeline::new("mgw", &["m=2", "n=2", "rate=max"]);
        let source = two_bearers(&pipeline.source(&[]).expect("a use case"), 2);
        let ports: Vec<_> = source.text().lines().filter(|line| line.contains("destination_port")).collect();
        let [first, second] = ["      destination_port: 5001", "      destination_port: 5000"];
        assert_eq!(ports, [first, second, first, second], "{}", source.text());
        let conditions =
            forebay_pipeline::Conditions { frequency: forebay_instance::Simulation::frequency(), simulated: true };
        let loaded = forebay_pipeline::load(&source, conditions).unwrap_or_else(|problems| panic!("{problems}"));
        let urgent = loaded.plans[0].flows.iter().filter(|flow| flow.slo.is_some());
        let names: Vec<_> = urgent.map(|flow| flow.name.as_str()).collect();
        assert_eq!(names, ["down0_0", "down1_0", "up0_0", "up1_0"]);
    }
}

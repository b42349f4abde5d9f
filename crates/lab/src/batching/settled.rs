//! The static experiment: every use case under every controller, with steady traffic, folded and not (Batchy, section 6, Fig. 7
//! and Table 2).
//!
//! The objective is four fifths of the mean delay that `max` has here, branches as they are written. All controllers run in turn, and again and again, so that each
//! run has a partner that was made under the same conditions.

use forebay_measure::Nanos;
use serde::Serialize;

use super::Extents;
use super::figures::{Figures, Told, mean_delay_us, quantiles};
use super::interval::Ratio;
use super::place::{Place, Run};
use super::scenario::{Pipeline, Rule, Scenario, Span};
use crate::{LabError, Progress};

/// The part of the mean delay of `max` that is the objective.
const PART: f64 = 0.8;
/// The share of periods that the best constant may miss its objective in.
const KEPT: f64 = 0.05;
/// Periods of a run that only looks for something.
const LOOK: u32 = 20;
/// Constants that are tried.
const CONSTANTS: &[usize] = &[0, 1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32];

/// Controllers that are compared, besides the best constant.
const CONTROLLERS: &[&str] = &["null", "max", "on-off", "gradient", "optimal", "wfq", "nfvnice"];

/// A use case under a controller.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The use case with its sizes.
    pub usecase: String,
    /// The controller.
    pub controller: String,
    /// Whether equal branches ran as one.
    pub fold: bool,
    /// Figures.
    #[serde(flatten)]
    pub told: Told,
    /// Runs.
    pub runs: usize,
    /// The constant, where there is one.
    pub trigger: Option<usize>,
    /// Packets a second against those of `null`.
    pub to_null: Option<Ratio>,
    /// Packets a second against those of `optimal`.
    pub to_optimal: Option<Ratio>,
    /// Packets a call in parts of those of `max`.
    pub batch_of_max: Option<f64>,
    /// By period, how near the worst flow came to its objective, in parts of it: from the least to the most, evenly.
    pub worst: Vec<f64>,
}

/// The use cases.
fn pipelines(extents: &Extents) -> Vec<Pipeline> {
    if extents.short {
        return vec![Pipeline::new("l2l3", &["n=4"]), Pipeline::new("gw", &["n=8"]), Pipeline::robot(8, 0)];
    }
    vec![
        Pipeline::new("l2l3", &["n=16"]),
        Pipeline::new("l2l3", &["n=64"]),
        Pipeline::new("gw", &["n=16"]),
        Pipeline::new("gw", &["n=64"]),
        Pipeline::new("vrf", &["m=16", "n=4"]),
        // The paper has 4 users of 1 to 16 bearers.
        Pipeline::new("mgw", &["m=4", "n=16"]),
        Pipeline::robot(16, 0),
        Pipeline::robot(16, 100),
    ]
}

/// A use case, folded or not, with its objective and its best constant.
struct Case {
    pipeline: Pipeline,
    fold: bool,
    slo: Nanos,
    constant: usize,
}

impl Case {
    fn settings(&self, seed: usize) -> Vec<String> {
        settings(self.fold, Some(self.slo), seed)
    }

    fn rules(&self) -> Vec<Rule> {
        let mut rules: Vec<_> = CONTROLLERS.iter().map(|name| Rule::new(name)).collect();
        rules.insert(2, Rule::constant(self.constant));
        rules
    }
}

fn settings(fold: bool, slo: Option<Nanos>, seed: usize) -> Vec<String> {
    let fold = format!("fold={}", if fold { "on" } else { "off" });
    let slo = slo.map(|slo| format!("slo={}ns", slo.0));
    ["rate=max".to_owned(), fold, format!("seed={seed}")].into_iter().chain(slo).collect()
}

/// The objective of a pipeline: a part of the mean delay that `max` has in this run.
pub(super) fn objective(run: &Run, urgent: bool) -> Nanos {
    Nanos(((mean_delay_us(run, urgent) * 1e3 * PART) as u64).max(1))
}

/// Makes the table.
pub(super) fn measure(place: &Place, extents: &Extents, progress: &mut dyn Progress) -> Result<Vec<Row>, LabError> {
    let cases = cases(place, extents, progress)?;
    let mut scenarios = Vec::new();
    for seed in 1..=extents.runs {
        for case in &cases {
            let made =
                case.rules().into_iter().map(|rule| case.pipeline.under(&rule, &case.settings(seed), extents.span));
            scenarios.extend(made.collect::<Result<Vec<_>, _>>()?);
        }
    }
    let hertz = place.hertz();
    let runs = place.all(&scenarios, progress, |run| Figures::of(&run, hertz))?;
    let rules = CONTROLLERS.len() + 1;
    let of = |case: usize, rule: usize| {
        let turns = runs.chunks(cases.len() * rules);
        turns.map(|turn| turn[case * rules + rule].clone()).collect::<Vec<_>>()
    };
    let rows = cases.iter().enumerate().flat_map(|(at, case)| {
        let all: Vec<_> = case.rules().into_iter().enumerate().map(|(rule, told)| (told, of(at, rule))).collect();
        table(case, &all, place.simulated)
    });
    Ok(rows.collect())
}

/// Finds objectives, then best constants. The objective is that of the pipeline as it is written, folded or not: `max` has nothing to
/// wait for where branches have been folded, and 80 % of no waiting is what no controller can keep.
fn cases(place: &Place, extents: &Extents, progress: &mut dyn Progress) -> Result<Vec<Case>, LabError> {
    let look = Span { periods: LOOK.min(extents.span.periods), ..extents.span };
    let pipelines = pipelines(extents);
    let max = |pipeline: &Pipeline| pipeline.under(&Rule::new("max"), &settings(false, None, 1), look);
    let max = pipelines.iter().map(max).collect::<Result<Vec<_>, _>>()?;
    // Of all flows, and of the first alone.
    let max = place.all(&max, progress, |run| [false, true].map(|urgent| objective(&run, urgent)))?;
    let both = pipelines.iter().zip(&max).flat_map(|(pipeline, objectives)| {
        let slo = objectives[usize::from(pipeline.urgent)];
        [true, false].map(|fold| Case { pipeline: pipeline.clone(), fold, slo, constant: 0 })
    });
    let mut cases: Vec<Case> = both.collect();
    let constants = constants(extents);
    let mut scenarios: Vec<Scenario> = Vec::new();
    for case in &cases {
        for trigger in constants {
            scenarios.push(case.pipeline.under(&Rule::constant(*trigger), &case.settings(1), look)?);
        }
    }
    let swept = place.all(&scenarios, progress, |run| Figures::of(&run, place.hertz()))?;
    for (case, runs) in cases.iter_mut().zip(swept.chunks(constants.len())) {
        let figures = runs.iter().zip(constants);
        let kept = figures.filter(|(run, _)| run.tally.violated() <= KEPT);
        let best = kept.max_by(|(one, _), (other, _)| one.rate_pps.total_cmp(&other.rate_pps));
        case.constant = best.map_or(0, |(_, trigger)| *trigger);
    }
    Ok(cases)
}

fn constants(extents: &Extents) -> &'static [usize] {
    if extents.short { &[0, 8, 16, 24] } else { CONSTANTS }
}

/// The rows of a use case. In simulated time costs are as they are known, so that `optimal` is the oracle.
fn table(case: &Case, all: &[(Rule, Vec<Figures>)], simulated: bool) -> Vec<Row> {
    let rates = |name: &str| {
        let runs = all.iter().find(|(rule, _)| rule.name == name).map(|(_, runs)| runs.as_slice());
        runs.unwrap_or_default().iter().map(|run| run.rate_pps).collect::<Vec<_>>()
    };
    let (null, optimal) = (rates("null"), rates("optimal"));
    let max = all.iter().find(|(rule, _)| rule.name == "max").map(|(_, runs)| Figures::together(runs).batch_mean);
    let row = |(rule, runs): &(Rule, Vec<Figures>)| {
        let told = Figures::together(runs);
        let rates: Vec<_> = runs.iter().map(|run| run.rate_pps).collect();
        Row {
            usecase: case.pipeline.name.clone(),
            controller: rule.name.to_owned(),
            fold: case.fold,
            told: told.told(),
            runs: runs.len(),
            trigger: rule.trigger,
            to_null: Ratio::of(&rates, &null),
            to_optimal: Ratio::of(&rates, &optimal),
            batch_of_max: max.filter(|max| *max > 0.0).map(|max| told.batch_mean / max),
            worst: quantiles(told.worst),
        }
    };
    let mut rows: Vec<_> = all.iter().map(row).collect();
    let oracle = rows.iter().find(|row| row.controller == "optimal" && simulated).cloned();
    rows.extend(oracle.map(|row| Row { controller: "oracle".to_owned(), ..row }));
    rows
}

//! The static experiment: every use case under every controller, with steady traffic, folded and not (Batchy, section 6, Fig. 7
//! and Table 2).
//!
//! The objective is four fifths of the mean delay that `max` has here, branches as they are written. All controllers run in turn, and
//! again and again, so that each run has a partner that was made under the same conditions. What folds nothing has no folded runs: they
//! would be those of before once more.

mod constant;

use forebay_measure::Nanos;
use serde::Serialize;

use constant::Constant;

use super::figures::{Figures, Told, mean_delay_us, quantiles};
use super::interval::Ratio;
use super::place::Place;
use super::scenario::{Pipeline, Rule, Span, fold};
use super::{Extents, basis};
use crate::{LabError, Progress};

/// The part of the mean delay of `max` that is the objective.
const PART: f64 = 0.8;
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
    /// Of `static`: the best constant; `None` where none keeps the objective, or all that were tried were void.
    pub trigger: Option<usize>,
    /// Where none keeps it: the constant that misses it in the fewest periods, which these figures are of.
    pub nearest: Option<usize>,
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
    constant: Constant,
}

impl Case {
    fn settings(&self, seed: usize) -> Vec<String> {
        settings(self.fold, Some(self.slo), seed)
    }

    /// Controllers that are compared on it, those left out that fold nothing where it is folded.
    fn rules(&self) -> Vec<Rule> {
        let mut rules: Vec<_> = CONTROLLERS.iter().map(|name| Rule::new(name)).collect();
        rules.insert(2, Rule::constant(self.constant.trigger));
        rules.retain(|rule| !(self.fold && rule.is_weighted()));
        rules
    }
}

fn settings(on: bool, slo: Option<Nanos>, seed: usize) -> Vec<String> {
    let slo = slo.map(|slo| format!("slo={}ns", slo.0));
    ["rate=max".to_owned(), fold(on), format!("seed={seed}")].into_iter().chain(slo).collect()
}

/// The objective of a pipeline: a part of the mean delay that `max` has.
pub(super) fn objective(mean_us: f64) -> Nanos {
    Nanos(((mean_us * 1e3 * PART) as u64).max(1))
}

/// Makes the table.
pub(super) fn measure(place: &Place, extents: &Extents, progress: &mut dyn Progress) -> Result<Vec<Row>, LabError> {
    let cases = cases(place, extents, progress)?;
    let wanted: Vec<(usize, Rule)> =
        cases.iter().enumerate().flat_map(|(at, case)| case.rules().into_iter().map(move |rule| (at, rule))).collect();
    let mut scenarios = Vec::new();
    for seed in 1..=extents.runs {
        for (case, rule) in &wanted {
            let case = &cases[*case];
            scenarios.push(case.pipeline.under(rule, &case.settings(seed), extents.span)?);
        }
    }
    let hertz = place.hertz();
    let runs = place.all(&scenarios, progress, |run| Figures::of(&run, hertz))?;
    let of = |number: usize| runs.chunks(wanted.len()).map(|turn| turn[number].clone()).collect::<Vec<_>>();
    let rows = cases.iter().enumerate().flat_map(|(at, case)| {
        let own = wanted.iter().enumerate().filter(|(_, (case, _))| *case == at);
        let all: Vec<_> = own.map(|(number, (_, rule))| (rule.clone(), of(number))).collect();
        table(case, &all, place.simulated)
    });
    Ok(rows.collect())
}

/// Finds objectives, then best constants. The objective is that of the pipeline as it is written, folded or not: `max` has nothing to
/// wait for where branches have been folded, and 80 % of no waiting is what no controller can keep.
fn cases(place: &Place, extents: &Extents, progress: &mut dyn Progress) -> Result<Vec<Case>, LabError> {
    let look = Span { periods: LOOK.min(extents.span.periods), ..extents.span };
    let (rule, pipelines) = (Rule::new("max"), pipelines(extents));
    let max = |pipeline: &Pipeline| pipeline.under(&rule, &settings(false, None, 1), look);
    let max = pipelines.iter().map(max).collect::<Result<Vec<_>, _>>()?;
    // Of all flows, and of the first alone.
    let max = basis::measure(place, &max, progress, |run| [false, true].map(|urgent| mean_delay_us(run, urgent)))?;
    let mut cases = Vec::new();
    for (pipeline, means) in pipelines.into_iter().zip(max) {
        let slo = objective(means[usize::from(pipeline.urgent)]);
        let folds = pipeline.under(&rule, &settings(true, None, 1), look)?.folds()?;
        let constant = Constant::default();
        cases.extend(folds.then(|| Case { pipeline: pipeline.clone(), fold: true, slo, constant }));
        cases.push(Case { pipeline, fold: false, slo, constant });
    }
    let constants = constants(extents);
    let coarse = sweep(place, &cases, &vec![constants.to_vec(); cases.len()], look, progress)?;
    let near: Vec<_> = coarse.iter().map(|tried| constant::around(constants, constant::best(tried).trigger)).collect();
    let fine = sweep(place, &cases, &near, look, progress)?;
    for ((case, mut tried), fine) in cases.iter_mut().zip(coarse).zip(fine) {
        tried.extend(fine);
        case.constant = constant::best(&tried);
    }
    Ok(cases)
}

/// Runs of each case with each of its constants.
fn sweep(
    place: &Place,
    cases: &[Case],
    constants: &[Vec<usize>],
    look: Span,
    progress: &mut dyn Progress,
) -> Result<Vec<Vec<(usize, Figures)>>, LabError> {
    let mut scenarios = Vec::new();
    for (case, constants) in cases.iter().zip(constants) {
        for trigger in constants {
            scenarios.push(case.pipeline.under(&Rule::constant(*trigger), &case.settings(1), look)?);
        }
    }
    let mut runs = place.all(&scenarios, progress, |run| Figures::of(&run, place.hertz()))?.into_iter();
    // As many runs as were asked for come, in their order.
    Ok(constants.iter().map(|constants| constants.iter().copied().zip(runs.by_ref()).collect()).collect())
}

fn constants(extents: &Extents) -> &'static [usize] {
    if extents.short { &[0, 8, 16, 24] } else { CONSTANTS }
}

/// The rows of a use case. In simulated time costs are as they are known, so that `optimal` is the oracle.
fn table(case: &Case, all: &[(Rule, Vec<Figures>)], simulated: bool) -> Vec<Row> {
    let rates = |name: &str| {
        let runs = all.iter().find(|(rule, _)| rule.name == name).map(|(_, runs)| runs.as_slice());
        runs.unwrap_or_default().iter().map(|run| run.sound(|run| run.rate_pps)).collect::<Vec<_>>()
    };
    let (null, optimal) = (rates("null"), rates("optimal"));
    let max = all.iter().find(|(rule, _)| rule.name == "max").map(|(_, runs)| Figures::together(runs).batch_mean);
    let row = |(rule, runs): &(Rule, Vec<Figures>)| {
        let told = Figures::together(runs);
        let rates: Vec<_> = runs.iter().map(|run| run.sound(|run| run.rate_pps)).collect();
        let Constant { kept, .. } = case.constant;
        Row {
            usecase: case.pipeline.name.clone(),
            controller: rule.name.to_owned(),
            fold: case.fold,
            told: told.told(),
            runs: runs.len(),
            trigger: rule.trigger.filter(|_| kept == Some(true)),
            nearest: rule.trigger.filter(|_| kept == Some(false)),
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

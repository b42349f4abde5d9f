//! The static experiment: every use case under every controller, with steady traffic, folded and not (Batchy, section 6, Fig. 7
//! and Table 2).
//!
//! The objective is four fifths of the mean delay that `max` has here, branches as they are written. All controllers run in turn, and
//! again and again, so that each run has a partner that was made under the same conditions. What folds nothing has no folded runs: they
//! would be those of before once more.
//!
//! The grid is the same for all sizes of the paper's Table 2, with branches as they are written.

mod constant;
mod oracle;

use forebay_measure::Nanos;
use serde::Serialize;

use constant::Constant;
use oracle::Oracle;

use super::costs::BATCH;
use super::figures::{Figures, Told, mean_delay_us, quantiles};
use super::interval::{Ratio, of_runs};
use super::place::Place;
use super::scenario::{Pipeline, Rule, Span, fold};
use super::{Extents, Part, Settings, basis, captures};
use crate::{LabError, Progress};

/// The part of the mean delay of `max` that is the objective.
const PART: f64 = 0.8;
/// Periods of a run that only looks for something. With 20 on a busy machine chance chose the constant.
const LOOK: u32 = 60;
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
    /// Of `static`: the best constant; `None` where none keeps the objective, or all that were tried were void. Of `oracle`: the
    /// constant, if nothing else carries more.
    pub trigger: Option<usize>,
    /// Where none keeps it: the constant that misses it in the fewest periods, which these figures are of.
    pub nearest: Option<usize>,
    /// Of `oracle`: how many times those of `optimal` its triggers are; `None` where the best constant carries more.
    pub multiple: Option<f64>,
    /// Packets a second against those of `null`.
    pub to_null: Option<Ratio>,
    /// Packets a second against those of `optimal`.
    pub to_optimal: Option<Ratio>,
    /// Packets a second against those of `on-off`.
    pub to_on_off: Option<Ratio>,
    /// Packets a call in parts of those of `max`.
    pub batch_of_max: Option<f64>,
    /// By period, how near the worst flow came to its objective, in parts of it: from the least to the most, evenly.
    pub worst: Vec<f64>,
}

/// The use cases of the static experiment.
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

/// Sizes in the grid: next hops, VRFs with their next hops, bearers, and branches of robot control (the paper's Table
/// 2).
struct Sizes {
    hops: &'static [usize],
    routers: &'static [(usize, usize)],
    bearers: &'static [usize],
    robots: &'static [usize],
    /// Next hops of the router whose traffic is recorded.
    recorded: usize,
}

const SIZES: Sizes = Sizes {
    hops: &[1, 2, 4, 8, 16, 32, 64],
    routers: &[(1, 1), (2, 4), (4, 8), (12, 8), (16, 4)],
    bearers: &[1, 2, 4, 8, 16],
    robots: &[16],
    recorded: 16,
};
const FEW_SIZES: Sizes = Sizes { hops: &[1, 4], routers: &[(2, 2)], bearers: &[1], robots: &[4], recorded: 4 };
/// Users of the mobile gateway.
const USERS: &str = "m=4";
/// How often each run of the grid is made: as often as in the paper.
const GRID_RUNS: usize = 3;

/// The use cases of the grid.
fn grid_pipelines(extents: &Extents) -> Result<Vec<Pipeline>, LabError> {
    let sizes = if extents.short { FEW_SIZES } else { SIZES };
    let hops = |name| sizes.hops.iter().map(move |n| Pipeline::new(name, &[&format!("n={n}")]));
    let mut all: Vec<_> = hops("l2l3").chain(hops("gw")).collect();
    all.extend(sizes.routers.iter().map(|(m, n)| Pipeline::new("vrf", &[&format!("m={m}"), &format!("n={n}")])));
    all.extend(sizes.bearers.iter().map(|n| Pipeline::new("mgw", &[USERS, &format!("n={n}")])));
    all.extend(sizes.robots.iter().map(|n| Pipeline::robot(*n, 0)));
    if let Some(folder) = &extents.captures {
        for file in captures::files(folder)? {
            let n = format!("n={}", sizes.recorded);
            let settings = captures::recorded(&file, &["in"])?;
            let mut pipeline = Pipeline::new("l2l3", &[&n]);
            pipeline.name = format!("*{} {}", pipeline.name, captures::name(&file));
            all.push(settings.iter().fold(pipeline, |pipeline, setting| pipeline.with(&[setting])));
        }
    }
    Ok(all)
}

/// A use case, folded or not, with its objective, its best constant and its best triggers.
struct Case {
    pipeline: Pipeline,
    fold: bool,
    slo: Nanos,
    constant: Constant,
    /// `None` where no triggers that were tried keep the objective.
    oracle: Option<Oracle>,
}

impl Case {
    fn settings(&self, seed: usize) -> Vec<String> {
        settings(self.fold, Some(self.slo), seed)
    }

    /// What is compared on it. Controllers are left out that fold nothing where it is folded.
    fn contenders(&self) -> Vec<Contender> {
        let of = |name| Contender { name, rule: Rule::new(name), settings: Vec::new() };
        let mut all: Vec<_> = CONTROLLERS.iter().map(|name| of(name)).collect();
        all.insert(2, Contender { rule: Rule::constant(self.constant.trigger), ..of("static") });
        all.retain(|contender| !(self.fold && contender.rule.is_weighted()));
        all.extend(self.oracle.as_ref().map(|oracle| Contender {
            name: "oracle",
            rule: oracle.rule(),
            settings: oracle.settings.clone(),
        }));
        all
    }
}

/// A controller with what is stated for it besides.
#[derive(Clone)]
struct Contender {
    name: &'static str,
    rule: Rule,
    settings: Vec<String>,
}

fn settings(on: bool, slo: Option<Nanos>, seed: usize) -> Vec<String> {
    let slo = slo.map(|slo| format!("slo={}ns", slo.0));
    ["rate=max".to_owned(), fold(on), format!("seed={seed}")].into_iter().chain(slo).collect()
}

/// The objective of a pipeline: a part of the mean delay that `max` has.
pub(super) fn objective(mean_us: f64) -> Nanos {
    Nanos(((mean_us * 1e3 * PART) as u64).max(1))
}

/// Whether the parts that are asked for have a use case of this name.
///
/// # Errors
/// [`LabError::UseCase`], with those that there are; and what [`grid_pipelines`] says of captures.
pub(super) fn known(asked: &str, settings: &Settings, extents: &Extents) -> Result<(), LabError> {
    let mut all = if settings.has(Part::Static) { pipelines(extents) } else { Vec::new() };
    all.extend(if settings.has(Part::Grid) { grid_pipelines(extents)? } else { Vec::new() });
    let one = Extents { usecases: vec![asked.to_owned()], ..extents.clone() };
    if all.iter().any(|pipeline| one.has(&pipeline.name)) {
        return Ok(());
    }
    let mut names: Vec<_> = all.into_iter().map(|pipeline| pipeline.name).collect();
    names.dedup();
    let of_short = if settings.short { "; without `--short` there are larger ones" } else { "" };
    Err(LabError::UseCase { asked: asked.to_owned(), names: names.join(", "), of_short })
}

/// Makes the table.
pub(super) fn measure(place: &Place, extents: &Extents, progress: &mut dyn Progress) -> Result<Vec<Row>, LabError> {
    table_of((pipelines(extents), true, extents.runs), place, extents, progress)
}

/// Makes the table of the grid.
pub(super) fn grid(place: &Place, extents: &Extents, progress: &mut dyn Progress) -> Result<Vec<Row>, LabError> {
    // In simulated time further runs are copies, but for robot control's.
    let runs = extents.stated_runs.unwrap_or(if extents.short { 1 } else { GRID_RUNS });
    table_of((grid_pipelines(extents)?, false, runs), place, extents, progress)
}

/// Makes a table of these pipelines, folded too or only as they are written, from so many runs each.
fn table_of(
    (mut pipelines, folded, runs): (Vec<Pipeline>, bool, usize),
    place: &Place,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<Row>, LabError> {
    pipelines.retain(|pipeline| extents.has(&pipeline.name));
    let cases = cases((pipelines, folded), place, extents, progress)?;
    let wanted: Vec<(usize, Contender)> = cases
        .iter()
        .enumerate()
        .flat_map(|(at, case)| case.contenders().into_iter().map(move |contender| (at, contender)))
        .collect();
    let mut scenarios = Vec::new();
    for seed in 1..=runs {
        for (case, contender) in &wanted {
            let case = &cases[*case];
            let settings = [case.settings(seed), contender.settings.clone()].concat();
            scenarios.push(case.pipeline.under(&contender.rule, &settings, extents.span)?);
        }
    }
    let hertz = place.hertz();
    let runs = place.all(&scenarios, progress, |run| Figures::of(&run, hertz))?;
    let of = |number: usize| runs.chunks(wanted.len().max(1)).map(|turn| turn[number].clone()).collect::<Vec<_>>();
    let rows = cases.iter().enumerate().flat_map(|(at, case)| {
        let own = wanted.iter().enumerate().filter(|(_, (case, _))| *case == at);
        let all: Vec<_> = own.map(|(number, (_, contender))| (contender.clone(), of(number))).collect();
        table(case, &all)
    });
    Ok(rows.collect())
}

/// Finds objectives, then best constants, then the best triggers. The objective is that of the pipeline as it is written, folded or not: `max` has nothing to
/// wait for where branches have been folded, and 80 % of no waiting is what no controller can keep.
fn cases(
    (pipelines, folded): (Vec<Pipeline>, bool),
    place: &Place,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<Case>, LabError> {
    let look = Span { periods: LOOK.min(extents.span.periods), ..extents.span };
    let rule = Rule::new("max");
    let max = |pipeline: &Pipeline| pipeline.under(&rule, &settings(false, None, 1), look);
    let max = pipelines.iter().map(max).collect::<Result<Vec<_>, _>>()?;
    // Of all flows, and of the first alone.
    let max = basis::measure(place, &max, progress, |run| [false, true].map(|urgent| mean_delay_us(run, urgent)))?;
    let mut cases = Vec::new();
    for (pipeline, means) in pipelines.into_iter().zip(max) {
        let slo = objective(means[usize::from(pipeline.urgent)]);
        let folds = folded && pipeline.under(&rule, &settings(true, None, 1), look)?.folds()?;
        let constant = Constant::default();
        cases.extend(folds.then(|| Case { pipeline: pipeline.clone(), fold: true, slo, constant, oracle: None }));
        cases.push(Case { pipeline, fold: false, slo, constant, oracle: None });
    }
    let constants = constants(extents);
    let coarse = sweep(place, &cases, &vec![constants.to_vec(); cases.len()], look, progress)?;
    let near: Vec<_> = coarse.iter().map(|tried| constant::around(constants, constant::best(tried).trigger)).collect();
    let fine = sweep(place, &cases, &near, look, progress)?;
    let constants: Vec<_> = coarse.into_iter().zip(fine).map(|(coarse, fine)| [coarse, fine].concat()).collect();
    let tried = multiples(place, &cases, look, extents.short, progress)?;
    for ((case, constants), tried) in cases.iter_mut().zip(&constants).zip(&tried) {
        case.constant = constant::best(constants);
        case.oracle = oracle::best(tried, constants);
    }
    Ok(cases)
}

/// Runs of each case with multiples of the triggers that `optimal` comes to rest at. What is told of one of several equal modules keeps it
/// apart, so that nothing would be folded: there constants are all that is tried.
fn multiples(
    place: &Place,
    cases: &[Case],
    look: Span,
    short: bool,
    progress: &mut dyn Progress,
) -> Result<Vec<Vec<(Oracle, Figures)>>, LabError> {
    let rule = Rule::new("optimal");
    let apart = cases.iter().filter(|case| !case.fold);
    let rests = apart.map(|case| case.pipeline.under(&rule, &case.settings(1), look));
    let rests = place.all(&rests.collect::<Result<Vec<_>, _>>()?, progress, |run| run.triggers)?;
    let mut rests = rests.iter().map(|triggers| oracle::around(triggers, BATCH, short));
    let tried = cases.iter().map(|case| if case.fold { Vec::new() } else { rests.next().unwrap_or_default() });
    let tried: Vec<_> = tried.collect();
    let mut scenarios = Vec::new();
    for (case, tried) in cases.iter().zip(&tried) {
        for oracle in tried {
            let settings = [case.settings(1), oracle.settings.clone()].concat();
            scenarios.push(case.pipeline.under(&oracle.rule(), &settings, look)?);
        }
    }
    let mut runs = place.all(&scenarios, progress, |run| Figures::of(&run, place.hertz()))?.into_iter();
    Ok(tried.into_iter().map(|tried| tried.into_iter().zip(runs.by_ref()).collect()).collect())
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

/// The rows of a use case.
fn table(case: &Case, all: &[(Contender, Vec<Figures>)]) -> Vec<Row> {
    let rates = |name: &str| {
        let runs = all.iter().find(|(contender, _)| contender.name == name).map(|(_, runs)| runs.as_slice());
        runs.unwrap_or_default().iter().map(|run| run.sound(|run| run.rate_pps)).collect::<Vec<_>>()
    };
    let (null, optimal, on_off) = (rates("null"), rates("optimal"), rates("on-off"));
    let max =
        all.iter().find(|(contender, _)| contender.name == "max").map(|(_, runs)| Figures::together(runs).batch_mean);
    let row = |(contender, runs): &(Contender, Vec<Figures>)| {
        let told = Figures::together(runs);
        let rates: Vec<_> = runs.iter().map(|run| run.sound(|run| run.rate_pps)).collect();
        let kept = if contender.name == "oracle" { Some(true) } else { case.constant.kept };
        let constant = contender.rule.trigger;
        let oracle = case.oracle.as_ref().filter(|_| contender.name == "oracle");
        Row {
            usecase: case.pipeline.name.clone(),
            controller: contender.name.to_owned(),
            fold: case.fold,
            told: told.told(),
            runs: runs.len(),
            trigger: constant.filter(|_| kept == Some(true)),
            nearest: constant.filter(|_| kept == Some(false)),
            multiple: oracle.and_then(|oracle| oracle.multiple),
            to_null: of_runs(&rates, &null),
            to_optimal: of_runs(&rates, &optimal),
            to_on_off: of_runs(&rates, &on_off),
            batch_of_max: max.filter(|max| *max > 0.0).map(|max| told.batch_mean / max),
            worst: quantiles(told.worst),
        }
    };
    all.iter().map(row).collect()
}

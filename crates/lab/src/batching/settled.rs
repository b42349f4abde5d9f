//! The static experiment: every use case under every controller, with steady traffic, folded and unfolded (Batchy,
//! section 6, Fig. 7 and Table 2).
//!
//! The objective is four fifths of the mean delay that `max` has on this machine with unfolded branches. All
//! controllers run in turn, repeatedly, so that each run has a partner under the same conditions. Use cases without
//! equal branches have no folded runs, because nothing would be folded.
//!
//! The grid is the same experiment for all sizes of the paper's Table 2, with unfolded branches.

mod constant;
mod oracle;

use forebay_units::Nanos;
use serde::Serialize;

use constant::Constant;
use oracle::Oracle;

use super::costs::BATCH;
use super::figures::{Figures, Summary, mean_delay_us, quantiles};
use super::interval::{Ratio, of_runs};
use super::scenario::{Pipeline, Rule, Span, fold};
use super::testbed::Testbed;
use super::{BatchingPart, BatchingSettings, Extents, basis, captures};
use crate::{LabError, Progress};

/// The objective, as a share of the mean delay of `max`.
const OBJECTIVE_SHARE: f64 = 0.8;
/// The number of periods of a run that searches for a trigger. With 20 periods on a busy machine, chance decided which
/// constant was best.
const SEARCH_PERIODS: u32 = 60;
/// The constant triggers that are tried.
const CONSTANTS: &[usize] = &[0, 1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32];

/// The controllers that are compared, besides the best constant.
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
    /// The summary of the runs.
    #[serde(flatten)]
    pub summary: Summary,
    /// The number of runs.
    pub runs: usize,
    /// For `static`: the best constant. `None` if no constant keeps the objective, or all tried runs were void. For
    /// `oracle`: the constant, if no other triggers carry more packets.
    pub trigger: Option<usize>,
    /// For `static`, if no constant keeps the objective: the constant that misses it in the fewest periods. The row
    /// then has the figures of this constant. Otherwise `None`.
    pub nearest: Option<usize>,
    /// For `oracle`: its triggers as a multiple of those of `optimal`. `None` if the best constant carries more
    /// packets.
    pub multiple: Option<f64>,
    /// The packets per second relative to those of `null`.
    pub to_null: Option<Ratio>,
    /// The packets per second relative to those of `optimal`.
    pub to_optimal: Option<Ratio>,
    /// The packets per second relative to those of `on-off`.
    pub to_on_off: Option<Ratio>,
    /// The packets per call as a share of those of `max`.
    pub batch_of_max: Option<f64>,
    /// The delay of the worst flow in each period, as a multiple of its objective: evenly spaced quantiles over the
    /// periods that count. The delay is taken at the objective's percentile.
    pub worst: Vec<f64>,
}

/// Returns the use cases of the static experiment.
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
        // The paper has 4 users with 1 to 16 bearers.
        Pipeline::new("mgw", &["m=4", "n=16"]),
        Pipeline::robot(16, 0),
        Pipeline::robot(16, 100),
    ]
}

/// The sizes in the grid: next hops, VRFs with their next hops, bearers, and branches of robot control (the paper's
/// Table 2).
struct Sizes {
    hops: &'static [usize],
    routers: &'static [(usize, usize)],
    bearers: &'static [usize],
    robots: &'static [usize],
    /// The number of next hops of the router with recorded traffic.
    recorded: usize,
}

/// The sizes of the paper.
const SIZES: Sizes = Sizes {
    hops: &[1, 2, 4, 8, 16, 32, 64],
    routers: &[(1, 1), (2, 4), (4, 8), (12, 8), (16, 4)],
    bearers: &[1, 2, 4, 8, 16],
    robots: &[16],
    recorded: 16,
};
/// The sizes of a short run.
const FEW_SIZES: Sizes = Sizes { hops: &[1, 4], routers: &[(2, 2)], bearers: &[1], robots: &[4], recorded: 4 };
/// The users of the mobile gateway.
const USERS: &str = "m=4";
/// The number of runs of each row of the grid, as in the paper.
const GRID_RUNS: usize = 3;

/// Returns the use cases of the grid.
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

/// A use case, folded or unfolded, with its objective, its best constant and its best triggers.
struct Case {
    pipeline: Pipeline,
    fold: bool,
    slo: Nanos,
    constant: Constant,
    /// `None` if no tried triggers keep the objective.
    oracle: Option<Oracle>,
}

impl Case {
    /// Returns the settings of a run of this case with this seed.
    fn settings(&self, seed: usize) -> Vec<String> {
        settings(self.fold, Some(self.slo), seed)
    }

    /// Returns the contenders. In a folded use case, controllers that fold nothing are left out.
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

/// A controller with its additional settings.
#[derive(Clone)]
struct Contender {
    name: &'static str,
    rule: Rule,
    settings: Vec<String>,
}

/// Returns the settings of a run. `on` folds equal branches. Without `slo`, the default of the use case applies.
fn settings(on: bool, slo: Option<Nanos>, seed: usize) -> Vec<String> {
    let slo = slo.map(|slo| format!("slo={}ns", slo.0));
    ["rate=max".to_owned(), fold(on), format!("seed={seed}")].into_iter().chain(slo).collect()
}

/// Returns the objective of a pipeline, at least 1 ns. `mean_us` is the mean delay of `max`, in microseconds.
pub(super) fn objective(mean_us: f64) -> Nanos {
    Nanos(((mean_us * 1e3 * OBJECTIVE_SHARE) as u64).max(1))
}

/// Checks that the selected parts contain a use case of this name.
///
/// # Errors
/// Returns [`LabError::UseCase`] with the available names if no selected part contains such a use case, and the errors
/// of [`grid_pipelines`].
pub(super) fn known(requested: &str, settings: &BatchingSettings, extents: &Extents) -> Result<(), LabError> {
    let mut all = if settings.has(BatchingPart::Static) { pipelines(extents) } else { Vec::new() };
    all.extend(if settings.has(BatchingPart::Grid) { grid_pipelines(extents)? } else { Vec::new() });
    let one = Extents { usecases: vec![requested.to_owned()], ..extents.clone() };
    if all.iter().any(|pipeline| one.has(&pipeline.name)) {
        return Ok(());
    }
    let mut names: Vec<_> = all.into_iter().map(|pipeline| pipeline.name).collect();
    names.dedup();
    let of_short = if settings.short { "; without `--short` there are larger ones" } else { "" };
    Err(LabError::UseCase { requested: requested.to_owned(), names: names.join(", "), of_short })
}

/// Performs the static experiment.
pub(super) fn measure(testbed: &Testbed, extents: &Extents, progress: &mut dyn Progress) -> Result<Vec<Row>, LabError> {
    table_of((pipelines(extents), true, extents.runs), testbed, extents, progress)
}

/// Performs the experiment of the grid.
pub(super) fn grid(testbed: &Testbed, extents: &Extents, progress: &mut dyn Progress) -> Result<Vec<Row>, LabError> {
    // A short experiment is in simulated time. There, further runs give the same figures (except for robot control), so
    // one run is enough.
    let runs = extents.stated_runs.unwrap_or(if extents.short { 1 } else { GRID_RUNS });
    table_of((grid_pipelines(extents)?, false, runs), testbed, extents, progress)
}

/// Performs the selected runs of these pipelines, `runs` times each, unfolded and, if `folded` is set, folded as well.
/// Returns the rows of all use cases.
fn table_of(
    (mut pipelines, folded, runs): (Vec<Pipeline>, bool, usize),
    testbed: &Testbed,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<Row>, LabError> {
    pipelines.retain(|pipeline| extents.has(&pipeline.name));
    let cases = cases((pipelines, folded), testbed, extents, progress)?;
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
    let hertz = testbed.hertz();
    let runs = testbed.all(&scenarios, progress, |run| Figures::of(&run, hertz))?;
    let of = |number: usize| runs.chunks(wanted.len().max(1)).map(|turn| turn[number].clone()).collect::<Vec<_>>();
    let rows = cases.iter().enumerate().flat_map(|(at, case)| {
        let own = wanted.iter().enumerate().filter(|(_, (case, _))| *case == at);
        let all: Vec<_> = own.map(|(number, (_, contender))| (contender.clone(), of(number))).collect();
        table(case, &all)
    });
    Ok(rows.collect())
}

/// Finds the objectives, then the best constants, then the best triggers. The objective of a folded pipeline is that of
/// the unfolded pipeline. In a folded pipeline, the delay of `max` contains no waiting, so no controller could keep an
/// objective of 80 % of this delay.
fn cases(
    (pipelines, folded): (Vec<Pipeline>, bool),
    testbed: &Testbed,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<Case>, LabError> {
    let search = Span { periods: SEARCH_PERIODS.min(extents.span.periods), ..extents.span };
    let rule = Rule::new("max");
    let max = |pipeline: &Pipeline| pipeline.under(&rule, &settings(false, None, 1), search);
    let max = pipelines.iter().map(max).collect::<Result<Vec<_>, _>>()?;
    // The mean delay of all flows, and of the first flow only.
    let max = basis::measure(testbed, &max, progress, |run| [false, true].map(|urgent| mean_delay_us(run, urgent)))?;
    let mut cases = Vec::new();
    for (pipeline, means) in pipelines.into_iter().zip(max) {
        let slo = objective(means[usize::from(pipeline.urgent)]);
        let folds = folded && pipeline.under(&rule, &settings(true, None, 1), search)?.folds()?;
        let constant = Constant::default();
        cases.extend(folds.then(|| Case { pipeline: pipeline.clone(), fold: true, slo, constant, oracle: None }));
        cases.push(Case { pipeline, fold: false, slo, constant, oracle: None });
    }
    let constants = constants(extents);
    let coarse = sweep(testbed, &cases, &vec![constants.to_vec(); cases.len()], search, progress)?;
    let near: Vec<_> = coarse.iter().map(|tried| constant::around(constants, constant::best(tried).trigger)).collect();
    let fine = sweep(testbed, &cases, &near, search, progress)?;
    let constants: Vec<_> = coarse.into_iter().zip(fine).map(|(coarse, fine)| [coarse, fine].concat()).collect();
    let tried = multiples(testbed, &cases, search, extents.short, progress)?;
    for ((case, constants), tried) in cases.iter_mut().zip(&constants).zip(&tried) {
        case.constant = constant::best(constants);
        case.oracle = oracle::best(tried, constants);
    }
    Ok(cases)
}

/// Runs each case with multiples of the triggers to which `optimal` converges. Returns, for each case, the multiples
/// with their figures. For a folded case the list is empty, because a setting for one of several equal modules would
/// prevent folding.
fn multiples(
    testbed: &Testbed,
    cases: &[Case],
    search: Span,
    short: bool,
    progress: &mut dyn Progress,
) -> Result<Vec<Vec<(Oracle, Figures)>>, LabError> {
    let rule = Rule::new("optimal");
    let unfolded = cases.iter().filter(|case| !case.fold);
    let settled = unfolded.map(|case| case.pipeline.under(&rule, &case.settings(1), search));
    let settled = testbed.all(&settled.collect::<Result<Vec<_>, _>>()?, progress, |run| run.triggers)?;
    let mut settled = settled.iter().map(|triggers| oracle::around(triggers, BATCH, short));
    let tried = cases.iter().map(|case| if case.fold { Vec::new() } else { settled.next().unwrap_or_default() });
    let tried: Vec<_> = tried.collect();
    let mut scenarios = Vec::new();
    for (case, tried) in cases.iter().zip(&tried) {
        for oracle in tried {
            let settings = [case.settings(1), oracle.settings.clone()].concat();
            scenarios.push(case.pipeline.under(&oracle.rule(), &settings, search)?);
        }
    }
    let mut runs = testbed.all(&scenarios, progress, |run| Figures::of(&run, testbed.hertz()))?.into_iter();
    Ok(tried.into_iter().map(|tried| tried.into_iter().zip(runs.by_ref()).collect()).collect())
}

/// Runs each case with each of its constants. Returns, for each case, the constants with their figures.
fn sweep(
    testbed: &Testbed,
    cases: &[Case],
    constants: &[Vec<usize>],
    search: Span,
    progress: &mut dyn Progress,
) -> Result<Vec<Vec<(usize, Figures)>>, LabError> {
    let mut scenarios = Vec::new();
    for (case, constants) in cases.iter().zip(constants) {
        for trigger in constants {
            scenarios.push(case.pipeline.under(&Rule::constant(*trigger), &case.settings(1), search)?);
        }
    }
    let mut runs = testbed.all(&scenarios, progress, |run| Figures::of(&run, testbed.hertz()))?.into_iter();
    // `all` returns as many runs as it was given, in the same order.
    Ok(constants.iter().map(|constants| constants.iter().copied().zip(runs.by_ref()).collect()).collect())
}

/// Returns the constants of the coarse search, in ascending order.
fn constants(extents: &Extents) -> &'static [usize] {
    if extents.short { &[0, 8, 16, 24] } else { CONSTANTS }
}

/// Returns the rows of a use case. `all` has the runs of each contender; runs with the same index are partners.
fn table(case: &Case, all: &[(Contender, Vec<Figures>)]) -> Vec<Row> {
    let rates = |name: &str| {
        let runs = all.iter().find(|(contender, _)| contender.name == name).map(|(_, runs)| runs.as_slice());
        runs.unwrap_or_default().iter().map(|run| run.sound(|run| run.rate_pps)).collect::<Vec<_>>()
    };
    let (null, optimal, on_off) = (rates("null"), rates("optimal"), rates("on-off"));
    let max =
        all.iter().find(|(contender, _)| contender.name == "max").map(|(_, runs)| Figures::together(runs).batch_mean);
    let row = |(contender, runs): &(Contender, Vec<Figures>)| {
        let combined = Figures::together(runs);
        let rates: Vec<_> = runs.iter().map(|run| run.sound(|run| run.rate_pps)).collect();
        let kept = if contender.name == "oracle" { Some(true) } else { case.constant.kept };
        let constant = contender.rule.trigger;
        let oracle = case.oracle.as_ref().filter(|_| contender.name == "oracle");
        Row {
            usecase: case.pipeline.name.clone(),
            controller: contender.name.to_owned(),
            fold: case.fold,
            summary: combined.summary(),
            runs: runs.len(),
            trigger: constant.filter(|_| kept == Some(true)),
            nearest: constant.filter(|_| kept == Some(false)),
            multiple: oracle.and_then(|oracle| oracle.multiple),
            to_null: of_runs(&rates, &null),
            to_optimal: of_runs(&rates, &optimal),
            to_on_off: of_runs(&rates, &on_off),
            batch_of_max: max.filter(|max| *max > 0.0).map(|max| combined.batch_mean / max),
            worst: quantiles(combined.worst),
        }
    };
    all.iter().map(row).collect()
}

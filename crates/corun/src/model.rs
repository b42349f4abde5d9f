//! Fits models of functions to records: the competing levels, the fit, its intervals, and its errors on runs to which
//! it was not fitted. A competing level is the load of the competitors on the cache or on memory, as a fraction of the
//! largest load ([`Models::limits`]).

use std::collections::BTreeMap;

use forebay_models::placement::fit::{CoRun, Fitted, by_held_out_error, least_mean_squares, non_negative, saturating};
use forebay_models::placement::{Sensitivity, Shape};
use forebay_placement::Registry;
use forebay_placement::registry::{
    DropModel, FitMethod, FunctionModel, LoadLimits, ModelOrigin, SharingCores, SoloRates,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::metric::{Choice, METRICS, Metric, Values, Verdict, choose, memory_share, test};
use crate::record::{Competitor, FunctionRecord, Load, Records, Sample};
use crate::statistics::{mean, median, student, variance};

/// The number of groups of co-runs. Each group is left out in turn.
const GROUPS: usize = 5;
/// The step of least mean squares.
const STEP: f64 = 0.1;
/// The number of passes of least mean squares over all co-runs.
const PASSES: usize = 1_000;
/// The standard deviation of a normal distribution, divided by the median of its absolute values.
const OF_MEDIAN: f64 = 1.4826;
/// The standard error of a median, as a multiple of the standard error of the mean of the same values.
const MEDIAN_OVER_MEAN: f64 = 1.2533;
/// A spread or an effect counts only if it is more than this many times the noise.
const ABOVE: f64 = 2.0;

/// The results of co-runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Models {
    /// The results of the two tests for each metric.
    pub verdicts: Vec<Verdict>,
    /// The chosen metric.
    pub metric: Metric,
    /// The reason for the choice.
    pub choice: Choice,
    /// The loads at which a competing level is 1. `None` if no run beside synthetic competitors on all cores is known.
    pub limits: Option<LoadLimits>,
    /// The model of each function, with its figures.
    pub functions: BTreeMap<String, Fit>,
}

/// The model of a function, and its validation.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// The model.
    pub model: FunctionModel,
    /// The validation.
    pub trial: Trial,
}

/// The validation of a model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Trial {
    /// The standard deviation of a measured λ, estimated from the differences between solo spans.
    pub noise: f64,
    /// The standard deviation of λ over all sets of competitors.
    pub spread: f64,
    /// λ beside the strongest synthetic competitor: the mean of λ beside the one with the largest load on the cache and
    /// the one with the largest load on memory.
    pub strongest: Option<f64>,
    /// Whether this is above twice the noise.
    pub is_above_noise: bool,
    /// The number of co-runs that were left out of the fit and then predicted. 0 if the spread is below twice the
    /// noise.
    pub held_out: usize,
    /// The number of these co-runs whose rate was in the predicted 95 % interval.
    pub inside: usize,
}

/// Returns the models of all functions with enough co-runs in `records`. `shared` is the size of the last-level cache
/// in bytes, and `method` the method of the fit.
#[must_use]
pub fn models(records: &Records, shared: u64, method: FitMethod) -> Models {
    let known: BTreeMap<_, _> = records.functions.iter().filter(|(_, record)| !record.samples.is_empty()).collect();
    let values = |metric: Metric| -> Vec<Values> {
        known.values().filter_map(|record| metric.values(record, records.hertz)).collect()
    };
    let simulation = records.unavailable.get("simulated").map(String::as_str);
    let verdicts: Vec<_> = METRICS
        .into_iter()
        .map(|metric| {
            let is_simulated = metric.is_simulated() || metric == Metric::TicksPerSharedLine;
            let why = records.unavailable.get(metric.name()).map(String::as_str);
            let why = why.or(if is_simulated { simulation } else { None });
            (metric, test(metric, &values(metric), why))
        })
        .collect();
    let (metric, choice) = choose(&verdicts, known.len());
    let demands: BTreeMap<&str, f64> = known
        .iter()
        .filter_map(|(key, record)| Some((key.as_str(), metric.demand(metric.values(record, records.hertz)?.alone))))
        .collect();
    let loads = Loads { metric, hertz: records.hertz, shared, demands: &demands };
    let limits = loads.limits(records);
    let fitted = known.iter().filter_map(|(key, record)| {
        let fit = fit(record, *demands.get(key.as_str())?, &loads, limits.as_ref()?, method)?;
        Some(((*key).clone(), fit))
    });
    let functions = fitted.collect();
    Models { verdicts: verdicts.into_iter().map(|(_, verdict)| verdict).collect(), metric, choice, limits, functions }
}

impl Models {
    /// Returns the registry of these models, for a CPU model and a build. `None` if there are no limits.
    #[must_use]
    pub fn registry(&self, cpu: &str, build: &str) -> Option<Registry> {
        let mut registry = Registry::new(cpu, build, ModelOrigin::Measured, self.metric.name(), self.limits?);
        let models = self.functions.iter().map(|(key, fit)| (key.clone(), fit.model.clone()));
        registry.functions.extend(models);
        Some(registry)
    }

    /// Returns the number of held-out co-runs inside the predicted interval, and of all held-out co-runs. Functions
    /// whose λ spreads over less than twice the noise have none.
    #[must_use]
    pub fn held_out(&self) -> (usize, usize) {
        let trials = self.functions.values().map(|fit| fit.trial);
        trials.fold((0, 0), |(inside, all), trial| (inside + trial.inside, all + trial.held_out))
    }
}

/// Computes the load of competitors on shared resources.
struct Loads<'a> {
    metric: Metric,
    /// The ticks per second.
    hertz: f64,
    /// The size of the last-level cache, in bytes.
    shared: u64,
    /// The x of each function (7).
    demands: &'a BTreeMap<&'a str, f64>,
}

impl Loads<'_> {
    /// Returns the loads `Σ 1/x` on the cache and on memory. `None` if the load of one competitor is unknown.
    fn of(&self, competitors: &[Competitor], loads: &[Load]) -> Option<(f64, f64)> {
        let mut sum = (0.0, 0.0);
        for (competitor, load) in competitors.iter().zip(loads) {
            let (cache, memory) = match competitor {
                Competitor::Function(key) => {
                    let load = 1.0 / self.demands.get(key.as_str())?;
                    (load, load)
                }
                Competitor::Synthetic(demand) => {
                    let value = self.metric.of_synthetic(competitor, load, self.hertz, self.shared)?;
                    let whole = 1.0 / self.metric.demand(value);
                    (whole, whole * memory_share(demand.bytes, load, self.shared))
                }
            };
            sum = (sum.0 + cache, sum.1 + memory);
        }
        Some(sum)
    }

    /// Returns the limits: the largest load on the cache and the largest load on memory of synthetic competitors on all
    /// cores. `None` if no such run is known.
    fn limits(&self, records: &Records) -> Option<LoadLimits> {
        let all = records.seats.competitors.len();
        let is_whole = |sample: &&Sample| {
            let is_synthetic = |it: &Competitor| matches!(it, Competitor::Synthetic(_));
            sample.competitors.len() == all && sample.competitors.iter().all(is_synthetic)
        };
        let mut by_set: BTreeMap<&[Competitor], Vec<(f64, f64)>> = BTreeMap::new();
        for sample in records.functions.values().flat_map(|record| &record.samples).filter(is_whole) {
            if let Some(load) = self.of(&sample.competitors, &sample.loads) {
                by_set.entry(&sample.competitors).or_default().push(load);
            }
        }
        let strongest = |part: fn(&(f64, f64)) -> f64| {
            let medians = by_set.values().filter_map(|loads| median(loads.iter().map(part).collect()));
            medians.fold(0.0, f64::max)
        };
        let (cache, memory) = (strongest(|it| it.0), strongest(|it| it.1));
        let cores = Some(SharingCores { cache: all, memory: all, link: None });
        (cache > 0.0 && memory > 0.0).then_some(LoadLimits { cache, memory, link: None, cores })
    }
}

/// Returns the co-runs of a function, one for each set of competitors: λ and the competing levels (0 to 1), as medians
/// over all passes. Sets with an unknown load are left out.
fn co_runs(record: &FunctionRecord, loads: &Loads<'_>, limits: &LoadLimits) -> Vec<(CoRun, Vec<Competitor>)> {
    let mut by_set: BTreeMap<&[Competitor], Vec<&Sample>> = BTreeMap::new();
    for sample in &record.samples {
        by_set.entry(&sample.competitors).or_default().push(sample);
    }
    let run = |(set, samples): (&[Competitor], Vec<&Sample>)| {
        let levels: Option<Vec<_>> = samples.iter().map(|it| loads.of(set, &it.loads)).collect();
        let levels = levels?;
        let level = |part: fn(&(f64, f64)) -> f64, limit: f64| {
            Some((median(levels.iter().map(part).collect())? / limit).clamp(0.0, 1.0))
        };
        let run = CoRun {
            cache: level(|it| it.0, limits.cache)?,
            memory: level(|it| it.1, limits.memory)?,
            drop: median(samples.iter().map(|it| it.drop()).collect())?,
        };
        Some((run, set.to_vec()))
    };
    by_set.into_iter().filter_map(run).collect()
}

/// Returns the standard deviation of a measured λ, which is a median over passes.
fn noise(record: &FunctionRecord) -> f64 {
    // The difference of two consecutive solo spans contains the noise of both.
    let differences = record.samples.iter().map(|it| (it.after.rate() / it.before.rate() - 1.0).abs());
    let of_a_span = OF_MEDIAN * median(differences.collect()).unwrap_or(0.0) / 2_f64.sqrt();
    let mut passes: Vec<_> = record.samples.iter().map(|it| it.pass).collect();
    passes.sort_unstable();
    passes.dedup();
    // λ follows from the ratio of one span's rate to the mean rate of two spans. So the variance of λ is 1 + 1/2 times
    // the variance of a span.
    let of_a_run = of_a_span * 1.5_f64.sqrt();
    if passes.len() > 1 { of_a_run * MEDIAN_OVER_MEAN / (passes.len() as f64).sqrt() } else { of_a_run }
}

/// Returns the model of a function and its validation. `metric` is the x of its demand (7). `None` if there are too few
/// co-runs.
fn fit(record: &FunctionRecord, metric: f64, loads: &Loads<'_>, limits: &LoadLimits, method: FitMethod) -> Option<Fit> {
    let runs = co_runs(record, loads, limits);
    // With fewer runs, a model would find no effect of competitors.
    if runs.len() < GROUPS {
        return None;
    }
    let plain: Vec<_> = runs.iter().map(|(run, _)| *run).collect();
    let (fitted, held_out) = fitted(&plain, method)?;
    let alone = record.samples.iter().flat_map(|it| [it.before.rate(), it.after.rate()]).collect();
    let Sensitivity { cache, memory, constant } = fitted.drop;
    let local = DropModel {
        shape: fitted.shape.into(),
        cache,
        memory,
        constant,
        error: fitted.error,
        held_out,
        interval_95: interval(&fitted, &plain, noise(record), method),
        fit: method,
        origin: None,
    };
    let model = FunctionModel {
        rates: SoloRates { local: median(alone)?, remote: None },
        metric,
        local,
        remote: None,
        packets_bytes: record.packets_bytes,
        runs: record.samples.len(),
    };
    Some(Fit { model, trial: trial(record, &runs, method) })
}

/// Fits a model to `runs`, of which there must be at least [`GROUPS`]. Also returns the mean absolute error of λ for
/// co-runs that are left out of a fit.
fn fitted(runs: &[CoRun], method: FitMethod) -> Option<(Fitted, Option<f64>)> {
    match method {
        FitMethod::Lms => Some((least_mean_squares(runs, STEP, PASSES)?, held_out_error(runs))),
        FitMethod::NonNegative => by_held_out_error(runs).map(|(fitted, error)| (fitted, Some(error))),
    }
}

/// Returns half the width of the 95 % interval of a predicted λ. The width follows from the errors of the co-runs of
/// the fit, or from the noise of a measured λ if the noise is larger: the errors may be small by chance. The interval
/// is at least so wide that it contains each of these co-runs if λ is predicted from the others. `None` if there are
/// too few runs.
fn interval(fitted: &Fitted, runs: &[CoRun], noise: f64, method: FitMethod) -> Option<f64> {
    let parameters = if matches!(fitted.shape, Shape::Linear) { 3 } else { 4 };
    let degrees = runs.len().checked_sub(parameters).filter(|degrees| *degrees > 1)?;
    let deviation = (fitted.error * (runs.len() as f64 / degrees as f64).sqrt()).max(noise);
    // The parameters have errors, too. On average over co-runs drawn at random, these errors widen the interval by the
    // last factor (Breiman and Freedman, JASA 1983).
    let by_errors = student(degrees) * deviation * (1.0 + parameters as f64 / (degrees - 1) as f64).sqrt();
    // The form of the model is only an approximation, so the errors are not only noise. Therefore each co-run is also
    // predicted from the others, and the interval includes the largest error of these predictions.
    let without = |out: usize| {
        let rest: Vec<_> = runs.iter().enumerate().filter(|(at, _)| *at != out).map(|(_, run)| *run).collect();
        let fitted = match method {
            FitMethod::Lms => least_mean_squares(&rest, STEP, PASSES),
            FitMethod::NonNegative => non_negative(&rest, fitted.shape),
        };
        fitted.map_or(0.0, |fitted| (fitted.predict(&runs[out]) - runs[out].drop).abs())
    };
    Some((0..runs.len()).map(without).fold(by_errors, f64::max))
}

/// Leaves out each group of co-runs in turn, and predicts it from the other groups. Returns each co-run with its
/// predicted λ and half the width of the interval. Of the linear and the saturating shape, the one with the narrower
/// interval is used.
fn predictions(runs: &[CoRun], method: FitMethod, noise: f64) -> Vec<(CoRun, f64, f64)> {
    let mut found = Vec::new();
    for group in 0..GROUPS.min(runs.len()) {
        let (out, rest): (Vec<_>, Vec<_>) = runs.iter().enumerate().partition(|(at, _)| at % GROUPS == group);
        let rest: Vec<_> = rest.into_iter().map(|(_, run)| *run).collect();
        let forms = match method {
            FitMethod::Lms => [least_mean_squares(&rest, STEP, PASSES), None],
            FitMethod::NonNegative => [non_negative(&rest, Shape::Linear), saturating(&rest)],
        };
        // The shape is also chosen without the group that is left out.
        let with_half = forms.into_iter().flatten().filter_map(|it| Some((it, interval(&it, &rest, noise, method)?)));
        let Some((fitted, half)) = with_half.min_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
        found.extend(out.into_iter().map(|(_, run)| (*run, fitted.predict(run), half)));
    }
    found
}

/// Returns the mean absolute error of λ for co-runs that are left out of a fit by least mean squares. `None` without
/// co-runs.
fn held_out_error(runs: &[CoRun]) -> Option<f64> {
    let mut errors = Vec::new();
    for group in 0..GROUPS.min(runs.len()) {
        let rest: Vec<_> =
            runs.iter().enumerate().filter(|(at, _)| at % GROUPS != group).map(|(_, run)| *run).collect();
        let fitted = least_mean_squares(&rest, STEP, PASSES)?;
        let out = runs.iter().enumerate().filter(|(at, _)| at % GROUPS == group);
        errors.extend(out.map(|(_, run)| (fitted.predict(run) - run.drop).abs()));
    }
    (!errors.is_empty()).then(|| mean(&errors))
}

/// Returns the validation of a function's model. `runs` are its co-runs with their competitors.
fn trial(record: &FunctionRecord, runs: &[(CoRun, Vec<Competitor>)], method: FitMethod) -> Trial {
    let plain: Vec<_> = runs.iter().map(|(run, _)| *run).collect();
    let drops: Vec<_> = plain.iter().map(|run| run.drop).collect();
    let (noise, spread) = (noise(record), variance(&drops).sqrt());
    let synthetic = || runs.iter().filter(|(_, set)| set.iter().all(|it| matches!(it, Competitor::Synthetic(_))));
    let most = |level: fn(&CoRun) -> f64| {
        synthetic().max_by(|a, b| level(&a.0).total_cmp(&level(&b.0))).map(|(run, _)| run.drop)
    };
    let strongest = most(|run| run.cache).zip(most(|run| run.memory)).map(|(a, b)| f64::midpoint(a, b));
    let tried = if spread > ABOVE * noise { predictions(&plain, method, noise) } else { Vec::new() };
    let inside = tried.iter().filter(|(run, predicted, half)| (run.drop - predicted).abs() <= *half).count();
    let is_above_noise = strongest.is_some_and(|drop| drop > ABOVE * noise);
    Trial { noise, spread, strongest, is_above_noise, held_out: tried.len(), inside }
}

#[cfg(test)]
mod tests;

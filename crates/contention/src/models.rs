//! Models of the predictor's form that are fitted to simulated co-runs, and their errors on other runs.
//!
//! The drop λ of a function is the fraction of its solo rate that it loses in a co-run. Numbers in parentheses are
//! equations of the Octans paper (INFOCOM 2019).

use forebay_models::placement::fit::{self, CoRun, Fitted};
use forebay_models::placement::{self, Limits, ProblemError, Shape};

use crate::mix::{Bench, Mix, Random, Run, place_at_random};
use crate::profile::Profile;
use crate::{ContentionError, Pace};

/// The smallest drop that counts in the mean relative error. The relative error of smaller drops is mostly noise.
pub const SMALLEST_DROP: f64 = 0.05;

/// An error when models are fitted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// The simulator refuses its input.
    #[error(transparent)]
    Contention(#[from] ContentionError),
    /// The predictor refuses its input.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// No run has the function on this side: on its home domain, or on another domain.
    #[error("function {function}: no co-run has this function {side}: at least one is required")]
    NoRuns {
        /// The name of the function.
        function: String,
        /// The side, as text for the error.
        side: &'static str,
    },
}

/// A method to find the parameters of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Non-negative least squares, linear in the competing levels f, as (7) and (8) are printed.
    Linear,
    /// The paper's least mean squares.
    Lms,
    /// Non-negative least squares, saturating.
    Saturating,
    /// Linear or saturating. The form with the smaller error on runs that were left out of its fit is used.
    HeldOut,
}

impl Method {
    /// All methods.
    pub const ALL: [Self; 4] = [Self::Linear, Self::Lms, Self::Saturating, Self::HeldOut];

    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Lms => "lms",
            Self::Saturating => "saturating",
            Self::HeldOut => "held-out",
        }
    }
}

/// The model of a function on one side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Side {
    /// The parameters.
    pub fitted: Fitted,
    /// The mean absolute error of λ over runs that were left out of the fit.
    pub held_out: f64,
    /// Half the width of an interval that contains 95 % of the errors of the runs left out. 1 if no run was left out.
    pub interval_95: f64,
    /// The number of co-runs to which the model was fitted.
    pub runs: usize,
}

/// The models of all network functions of a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Models {
    /// The metric x of each function, including competitors and the forwarder. The demand of a function is 1/x.
    pub metrics: Vec<f64>,
    /// The limits of each domain.
    pub limits: Vec<Limits>,
    /// The solo rate of each function in packets per second: on its home domain, and on another domain.
    pub rates: Vec<[f64; 2]>,
    /// The model of each network function on its home domain (local), and on another domain (remote).
    pub functions: Vec<[Side; 2]>,
}

/// Returns the limits of a server. A limit is the sum of the demands if the function with the largest demand 1/x runs
/// on all cores that may share the resource. For caches and links, these are the cores of the largest domain.
#[must_use]
pub fn limits(profile: &Profile, metrics: &[f64]) -> Vec<Limits> {
    let domains = &profile.bench.server.domains;
    let strongest = metrics.iter().map(|metric| 1.0 / metric).fold(0.0, f64::max);
    let largest = domains.iter().map(|domain| domain.cores).max().unwrap_or(1) as f64;
    let all = domains.iter().map(|domain| domain.cores).sum::<usize>() as f64;
    vec![Limits { cache: strongest * largest, memory: strongest * all, link: strongest * largest }; domains.len()]
}

/// The parameters of random runs, to which models are fitted or on which they are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The number of runs.
    pub runs: usize,
    /// The maximum number of chains in a run.
    pub chains: usize,
    /// The maximum number of functions in a chain.
    pub length: usize,
    /// Whether every second run has one to six synthetic competitors.
    pub has_competitors: bool,
    /// The cores on which runs are placed.
    pub cores: Cores,
    /// The seed of random numbers.
    pub seed: u64,
}

/// The cores on which runs are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// All cores.
    All,
    /// The cores of one domain.
    Of(usize),
    /// All cores, the cores of the first domain, the cores of the second domain, and so on, in turn. Co-runs on all
    /// cores alone cannot separate the demand of competitors in a cache from their demand on memory, because functions
    /// on all domains occur together.
    InTurn,
}

/// Simulates chains of random functions on random cores. Each function works at its own pace, as in the sampled runs of
/// a profiler.
///
/// # Errors
/// Returns [`ContentionError`] if the simulator refuses a run.
pub fn runs(profile: &Profile, draw: Draw) -> Result<Vec<Run>, ContentionError> {
    let all: Vec<_> = profile.bench.server.domains.iter().map(|domain| domain.cores).collect();
    let mut random = Random::new(draw.seed);
    let mut runs = Vec::new();
    while runs.len() < draw.runs {
        let mut chains: Vec<Vec<usize>> = Vec::new();
        for _ in 0..=random.index(draw.chains) {
            let length = 1 + random.index(draw.length);
            chains.push((0..length).map(|_| random.index(profile.network)).collect());
        }
        if draw.has_competitors && runs.len() % 2 == 1 {
            let competitors = profile.competitors();
            for _ in 0..=random.index(6) {
                chains.push(vec![competitors.start + random.index(competitors.len())]);
            }
        }
        let only = match draw.cores {
            Cores::All => None,
            Cores::Of(domain) => Some(domain),
            Cores::InTurn => (runs.len() % (all.len() + 1)).checked_sub(1),
        };
        let is_free = |at: usize| only.is_none_or(|only| only == at);
        let cores: Vec<_> = all.iter().enumerate().map(|(at, cores)| if is_free(at) { *cores } else { 0 }).collect();
        if let Some(mix) = place_at_random(&chains, &cores, &mut random) {
            runs.push(profile.bench.run(&mix, Pace::Own)?);
        }
    }
    Ok(runs)
}

/// A function of a run, in the form of the predictor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The function.
    pub function: usize,
    /// 0: on the home domain of its chain; 1: on another domain.
    pub side: usize,
    /// Whether the previous function of the chain runs on the same domain. `None` for the first function of a chain.
    pub follows: Option<bool>,
    /// The competing levels and the drop.
    pub run: CoRun,
}

/// Returns all network functions of runs as samples.
///
/// # Errors
/// Returns [`ProblemError`] if the predictor refuses a run.
pub fn samples(
    profile: &Profile,
    runs: &[Run],
    metrics: &[f64],
    limits: &[Limits],
) -> Result<Vec<Sample>, ProblemError> {
    let mut samples = Vec::new();
    for run in runs {
        let levels = profile.bench.levels(&run.mix, metrics, limits)?;
        for ((chain, seats), levels) in run.mix.iter().zip(&run.solution.seats).zip(&levels) {
            for (at, ((&(function, domain), seat), level)) in chain.iter().zip(seats).zip(levels).enumerate() {
                if function >= profile.network {
                    continue;
                }
                let side = usize::from(domain != profile.bench.home);
                let follows = at.checked_sub(1).map(|before| chain[before].1 == domain);
                let drop = 1.0 - seat.rate / profile.rates[function][side];
                let run = CoRun { cache: level[0], memory: level[1], drop };
                samples.push(Sample { function, side, follows, run });
            }
        }
    }
    Ok(samples)
}

/// Of each group of this many consecutive runs, the last one is left out of all fits. Errors and intervals are computed
/// on the runs that are left out (split conformal: Lei and others, JASA 2018). The last but one of each group is used
/// to choose the shape.
const LEFT_OUT: usize = 5;

/// The runs of one function on one side.
#[derive(Default)]
struct Split {
    /// The runs to which the candidate shapes are fitted.
    tried: Vec<CoRun>,
    /// The runs with which the shape is chosen.
    choosing: Vec<CoRun>,
    /// The runs that are left out of all fits.
    out: Vec<CoRun>,
}

impl Split {
    /// Adds the run with this index among the runs of the side.
    fn add(&mut self, at: usize, run: CoRun) {
        match at % LEFT_OUT {
            4 => self.out.push(run),
            3 => self.choosing.push(run),
            _ => self.tried.push(run),
        }
    }

    /// Returns all runs to which the parameters are fitted after the shape has been chosen.
    fn fitted(&self) -> Vec<CoRun> {
        self.tried.iter().chain(&self.choosing).copied().collect()
    }
}

impl Models {
    /// Fits models to samples, which [`samples`] has computed with the same `metrics` and `limits`.
    ///
    /// A function has one shape for both sides, as in the search for placements. On a server with one domain, the
    /// remote model is the local one.
    ///
    /// # Errors
    /// Returns [`ModelError`] if a function has no samples on a side.
    pub fn fit(
        profile: &Profile,
        metrics: &[f64],
        limits: &[Limits],
        samples: &[Sample],
        method: Method,
    ) -> Result<Self, ModelError> {
        let sides = if profile.away().is_some() { 2 } else { 1 };
        let mut functions = Vec::new();
        for function in 0..profile.network {
            let mut split: [Split; 2] = Default::default();
            for (side, split) in split.iter_mut().enumerate().take(sides) {
                let all = samples.iter().filter(|sample| (sample.function, sample.side) == (function, side));
                all.enumerate().for_each(|(at, sample)| split.add(at, sample.run));
            }
            let split = &split[..sides];
            let tried = shapes(method).into_iter().filter_map(|shape| {
                let fits: Option<Vec<_>> = split.iter().map(|it| parameters(&it.tried, shape, method)).collect();
                let fits = fits?;
                let squares = split
                    .iter()
                    .zip(&fits)
                    .flat_map(|(it, fitted)| it.choosing.iter().map(|run| (fitted.predict(run) - run.drop).powi(2)));
                Some((squares.sum::<f64>(), shape))
            });
            let best = tried.min_by(|a, b| a.0.total_cmp(&b.0)).and_then(|(_, shape)| {
                split.iter().map(|it| parameters(&it.fitted(), shape, method)).collect::<Option<Vec<_>>>()
            });
            let Some(fits) = best else {
                let name = profile.bench.functions[function].name.clone();
                let side = if split[0].tried.is_empty() { "on its home domain" } else { "on another domain" };
                return Err(ModelError::NoRuns { function: name, side });
            };
            let of = |side: usize| {
                let Split { tried, choosing, out } = &split[side];
                let mut errors: Vec<_> = out.iter().map(|run| (fits[side].predict(run) - run.drop).abs()).collect();
                errors.sort_by(f64::total_cmp);
                let held_out = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
                let rank = ((errors.len() + 1) as f64 * 0.95).ceil() as usize;
                let interval_95 = errors.get(rank.min(errors.len()).saturating_sub(1)).copied().unwrap_or(1.0);
                Side { fitted: fits[side], held_out, interval_95, runs: tried.len() + choosing.len() }
            };
            functions.push([of(0), of(sides - 1)]);
        }
        Ok(Self { metrics: metrics.to_vec(), limits: limits.to_vec(), rates: profile.rates.clone(), functions })
    }

    /// Returns the function with this index in the form of the search for placements. Competitors and the forwarder
    /// have no drop of their own.
    #[must_use]
    pub fn function(&self, bench: &Bench, number: usize) -> placement::Function {
        let rates = (0..bench.server.domains.len()).map(|at| self.rates[number][usize::from(at != bench.home)]);
        // Competitors and the forwarder have no model, because their own drop is not of interest.
        let side = |at: usize| self.functions.get(number).map(|sides| sides[at].fitted);
        placement::Function {
            rates: rates.collect(),
            metric: self.metrics[number],
            local: side(0).map(|fitted| fitted.drop).unwrap_or_default(),
            remote: side(1).map(|fitted| fitted.drop).unwrap_or_default(),
            shape: side(0).map_or(Shape::Linear, |fitted| fitted.shape),
        }
    }

    /// Returns the predicted packets per second of each function of a mix.
    ///
    /// # Errors
    /// Returns [`ProblemError`] if the predictor refuses the mix.
    pub fn predict(&self, bench: &Bench, mix: &Mix) -> Result<Vec<Vec<f64>>, ProblemError> {
        let (problem, ways) = bench.problem(mix, &self.limits, &|number| self.function(bench, number));
        problem.function_rates(&ways)
    }

    /// Returns the predicted λ of a sample.
    #[must_use]
    pub fn drop(&self, sample: &Sample) -> f64 {
        self.functions[sample.function][sample.side].fitted.predict(&sample.run).clamp(0.0, 1.0)
    }

    /// Computes the errors of predictions on samples of other runs. The samples must have been computed with the
    /// metrics and limits of these models.
    #[must_use]
    pub fn judge(&self, samples: &[Sample]) -> Errors {
        let count = samples.len().max(1) as f64;
        let counted: Vec<_> = samples.iter().filter(|sample| sample.run.drop >= SMALLEST_DROP).collect();
        let mean = |value: &dyn Fn(&Sample) -> f64| {
            counted.iter().map(|sample| value(sample)).sum::<f64>() / counted.len().max(1) as f64
        };
        let error = |sample: &Sample| (self.drop(sample) - sample.run.drop).abs();
        let constants = (0..=200).map(|at| f64::from(at) / 200.0);
        let of_constant = constants
            .map(|constant| mean(&|sample| (constant - sample.run.drop).abs() / sample.run.drop))
            .fold(f64::INFINITY, f64::min);
        let inside = samples
            .iter()
            .filter(|sample| error(sample) <= self.functions[sample.function][sample.side].interval_95 + f64::EPSILON);
        Errors {
            relative: mean(&|sample| error(sample) / sample.run.drop),
            counted: counted.len(),
            samples: samples.len(),
            of_constant,
            absolute: samples.iter().map(error).sum::<f64>() / count,
            rate: samples.iter().map(|sample| error(sample) / (1.0 - sample.run.drop)).sum::<f64>() / count,
            inside_interval: inside.count() as f64 / count,
            mean_drop: samples.iter().map(|sample| sample.run.drop).sum::<f64>() / count,
        }
    }
}

/// The errors of predictions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    /// The mean of `|predicted λ − λ| / λ` where λ is [`SMALLEST_DROP`] or more.
    pub relative: f64,
    /// The number of samples in that mean.
    pub counted: usize,
    /// The number of all samples.
    pub samples: usize,
    /// The same mean for the best constant prediction, which is one number for all samples.
    pub of_constant: f64,
    /// The mean of `|predicted λ − λ|` over all samples.
    pub absolute: f64,
    /// The mean of `|predicted rate − rate| / rate` over all samples.
    pub rate: f64,
    /// The share of samples inside the 95 % interval.
    pub inside_interval: f64,
    /// The mean λ over all samples.
    pub mean_drop: f64,
}

/// Returns the shapes that a method tries.
fn shapes(method: Method) -> Vec<Shape> {
    let halves = (0..=50).map(|at| Shape::Saturating(10_f64.powf(-2.0 + 0.08 * f64::from(at))));
    match method {
        Method::Linear | Method::Lms => vec![Shape::Linear],
        Method::Saturating => halves.collect(),
        Method::HeldOut => std::iter::once(Shape::Linear).chain(halves).collect(),
    }
}

/// Fits the parameters of one shape. `None` without runs.
fn parameters(runs: &[CoRun], shape: Shape, method: Method) -> Option<Fitted> {
    match method {
        // The step is small, because co-runs come in the order in which they were drawn.
        Method::Lms => fit::least_mean_squares(runs, 0.02, 50),
        _ => fit::non_negative(runs, shape),
    }
}

#[cfg(test)]
mod tests;

//! The simulated server, its functions, and the models fitted to their co-runs.

use std::collections::BTreeMap;

use forebay_contention::mix::{Bench, Mix, Run};
use forebay_contention::models::{self, Cores, Draw, Method, Sample};
use forebay_contention::profile::{self, Profile};
use forebay_contention::{ContentionError, Pace, Server, TableMemory, catalogue};
use forebay_models::placement::Limits;
use forebay_placement::registry::{DropModel, FitMethod, FunctionModel, LoadLimits, ModelOrigin, Registry, SoloRates};
use serde::Serialize;

use super::{PlacementSettings, step};
use crate::{LabError, Progress};

/// The inputs of all parts.
pub(super) struct Basis {
    /// The profile of the functions alone.
    pub profile: Profile,
    /// The models of the functions.
    pub fitted: models::Models,
    /// The same models with the figures for the report.
    pub models: Models,
}

/// The models, and how they were chosen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Models {
    /// The CPU of the simulated server.
    pub server: &'static str,
    /// The candidates for the metric x.
    pub candidates: Vec<Candidate>,
    /// The metric of the models: the candidate whose models have the smallest error on runs that were left out of their
    /// fits.
    pub metric: &'static str,
    /// The sums of 1/x at which competing levels are 1: in a cache, at a memory controller, and on a link.
    pub limits: [f64; 3],
    /// The number of runs to which models were fitted, and the number of runs of other mixes with which they are
    /// judged.
    pub runs: [usize; 2],
    /// The model of each function.
    pub functions: Vec<Fitted>,
    /// The errors of the models on runs of other mixes.
    pub errors: Errors,
    /// The errors by the domain of a function and the domain of the function before it.
    pub cases: Vec<Variant>,
    /// The errors by the maximum number of chains in a run.
    pub loads: Vec<Variant>,
    /// The errors with other forms of the model, other limits and another server.
    pub variants: Vec<Variant>,
}

/// A candidate for the metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// The name.
    pub name: &'static str,
    /// The largest variance under competition, over all functions (the paper's condition 5).
    pub variance: Option<f64>,
    /// The function with the largest variance.
    pub varies_most: Option<String>,
    /// The correlation with the solo rate (the paper's condition 6).
    pub correlation: f64,
    /// Whether the candidate is the solo rate itself.
    pub circular: bool,
    /// Whether the candidate qualifies by the conditions 5 and 6.
    pub qualifies: bool,
    /// The mean absolute error of λ for models with this metric, over runs that were left out of their fits. `None` if
    /// the value of the metric is about 0 for a function, because the function's demand, 1/x, would be infinite.
    pub left_out: Option<f64>,
    /// The errors of models with this metric on runs of other mixes.
    pub errors: Option<Errors>,
}

/// The model of a function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fitted {
    /// The name of the function.
    pub name: String,
    /// The model in the form of registries.
    #[serde(flatten)]
    pub model: FunctionModel,
}

/// The errors of predictions on runs to which models were not fitted. λ, the drop, is the fraction of its rate that a
/// function loses to competitors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Errors {
    /// The mean of `|predicted λ − λ| / λ` over samples whose λ is 0.05 or more.
    pub relative: f64,
    /// The same mean for the best constant prediction, which is one number for all samples. Models are useful only if
    /// `relative` is smaller.
    pub of_constant: f64,
    /// The mean of `|predicted λ − λ|`.
    pub absolute: f64,
    /// The mean of `|predicted rate − rate| / rate`.
    pub rate: f64,
    /// The share of samples inside the 95 % interval.
    pub inside_interval: f64,
    /// The mean λ.
    pub mean_drop: f64,
    /// The number of samples (a function in a run), and the number of samples whose λ is 0.05 or more.
    pub samples: [usize; 2],
}

/// The errors of predictions under other circumstances.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Variant {
    /// The circumstances.
    pub name: String,
    /// The errors.
    pub errors: Errors,
}

impl From<models::Errors> for Errors {
    fn from(errors: models::Errors) -> Self {
        Self {
            relative: errors.relative,
            of_constant: errors.of_constant,
            absolute: errors.absolute,
            rate: errors.rate,
            inside_interval: errors.inside_interval,
            mean_drop: errors.mean_drop,
            samples: [errors.samples, errors.counted],
        }
    }
}

/// The name of the paper's server in registries.
const SERVER: &str = "Intel(R) Xeon(R) CPU E5-2650 v4 @ 2.20GHz, 2 x (6 of 12, 12) cores, simulated";

/// The co-runs of an experiment.
struct Runs {
    /// The runs to which models are fitted.
    known: Vec<Run>,
    /// The runs of other mixes, with which models are judged.
    new: Vec<Run>,
}

impl Runs {
    /// Draws and simulates all runs. The seed of the settings determines them.
    fn of(profile: &Profile, settings: &PlacementSettings) -> Result<Self, ContentionError> {
        let draw = |runs, cores, seed| Draw { runs, chains: 5, length: 4, has_competitors: false, cores, seed };
        let (known, new) = if settings.short { (120, 60) } else { (1_200, 400) };
        let seeds = [settings.seed.wrapping_mul(2).wrapping_add(1), settings.seed.wrapping_mul(2).wrapping_add(2)];
        Ok(Self {
            known: models::runs(profile, draw(known, Cores::InTurn, seeds[0]))?,
            new: models::runs(profile, draw(new, Cores::All, seeds[1]))?,
        })
    }

    /// Fits models with these metrics and limits. Returns the models, and the samples of the other runs, with which the
    /// models are judged.
    fn fit(
        &self,
        profile: &Profile,
        metrics: &[f64],
        limits: &[Limits],
        method: Method,
    ) -> Result<(models::Models, Vec<Sample>), LabError> {
        let samples = |runs| models::samples(profile, runs, metrics, limits);
        let fitted = models::Models::fit(profile, metrics, limits, &samples(&self.known)?, method)?;
        Ok((fitted, samples(&self.new)?))
    }
}

impl Basis {
    /// Runs functions alone and together, chooses the metric and fits the models.
    pub fn make(settings: &PlacementSettings, progress: &mut dyn Progress) -> Result<Self, LabError> {
        let candidates = profile::Candidate::ALL;
        progress.begin(candidates.len() + 6);
        progress.expect(if settings.short { 3.0 } else { 12.0 });
        step(progress, "functions alone")?;
        let profile = bench(catalogue::octans_server())?;
        step(progress, "co-runs")?;
        let runs = Runs::of(&profile, settings)?;
        let mut judged = Vec::new();
        let mut best: Option<(f64, profile::Candidate, models::Models, Vec<Sample>)> = None;
        for candidate in candidates {
            step(progress, candidate.name())?;
            let by = profile.judge(candidate);
            let models = match profile.metrics(candidate) {
                Some(metrics) => {
                    let limits = models::limits(&profile, &metrics);
                    Some(runs.fit(&profile, &metrics, &limits, Method::HeldOut)?)
                }
                None => None,
            };
            let left_out = models.as_ref().map(|(fitted, _)| {
                let sides = || fitted.functions.iter().flatten();
                sides().map(|side| side.held_out).sum::<f64>() / sides().count().max(1) as f64
            });
            judged.push(Candidate {
                name: candidate.name(),
                variance: by.variance,
                varies_most: by.varies_most.map(|at| profile.bench.functions[at].name.clone()),
                correlation: by.correlation,
                circular: candidate.is_circular(),
                qualifies: by.qualifies(),
                left_out,
                errors: models.as_ref().map(|(fitted, new)| fitted.judge(new).into()),
            });
            if let Some(((fitted, new), left_out)) = models.zip(left_out)
                && best.as_ref().is_none_or(|best| left_out < best.0)
            {
                best = Some((left_out, candidate, fitted, new));
            }
        }
        let Some((_, metric, fitted, new)) = best else { return Err(LabError::NoMetric) };
        step(progress, "errors by case")?;
        let cases = cases(&fitted, &new);
        step(progress, "errors by load")?;
        let loads = loads(&profile, &fitted, settings)?;
        step(progress, "other forms")?;
        let mut variants = forms(&profile, &runs, &fitted)?;
        step(progress, "another server")?;
        variants.push(own_memory(settings, metric)?);
        let models = Models {
            server: SERVER,
            candidates: judged,
            metric: metric.name(),
            limits: [fitted.limits[0].cache, fitted.limits[0].memory, fitted.limits[0].link],
            runs: [runs.known.len(), runs.new.len()],
            functions: functions(&profile, &fitted),
            errors: fitted.judge(&new).into(),
            cases,
            loads,
            variants,
        };
        Ok(Self { profile, fitted, models })
    }

    /// Returns the index of a network function. The name must exist: the index of an unknown name is 0.
    pub fn number(&self, name: &str) -> usize {
        let functions = &self.profile.bench.functions[..self.profile.network];
        functions.iter().position(|function| function.name == name).unwrap_or_default()
    }

    /// Returns the indices of the functions of chains.
    pub fn chains(&self, names: &[&[&str]]) -> Vec<Vec<usize>> {
        names.iter().map(|chain| chain.iter().map(|name| self.number(name)).collect()).collect()
    }

    /// Returns the number of usable cores of each domain.
    pub fn cores(&self) -> Vec<usize> {
        self.profile.bench.server.domains.iter().map(|domain| domain.cores).collect()
    }

    /// Returns the packets per second of each chain in a mix, as predicted by the models.
    pub fn predicted(&self, mix: &Mix) -> Result<Vec<f64>, LabError> {
        let rates = self.fitted.predict(&self.profile.bench, mix)?;
        Ok(rates.iter().map(|chain| chain.iter().copied().fold(f64::INFINITY, f64::min)).collect())
    }

    /// Returns the packets per second of each chain in a mix, as simulated. Rates that do not converge are an error.
    pub fn simulated(&self, mix: &Mix, pace: Pace) -> Result<Vec<f64>, LabError> {
        let run = self.profile.bench.run(mix, pace)?;
        if !run.solution.converged() {
            return Err(LabError::NoRest(run.solution.residual));
        }
        Ok((0..mix.len()).map(|chain| run.solution.chain_rate(chain)).collect())
    }
}

/// Returns the profile of all functions of the catalogue on this server.
fn bench(server: Server) -> Result<Profile, ContentionError> {
    Profile::of(Bench { server, traffic: catalogue::traffic(), functions: catalogue::functions(), home: 0 })
}

/// Returns the errors by the domain of a function and by the function before it.
fn cases(fitted: &models::Models, new: &[Sample]) -> Vec<Variant> {
    let cases = [
        ("local, first (9)", 0, None),
        ("local, after a local function (9)", 0, Some(true)),
        ("local, after a remote function (10)", 0, Some(false)),
        ("remote, first (9)", 1, None),
        ("remote, after a function on its domain (11)", 1, Some(true)),
        ("remote, after a local function (9)", 1, Some(false)),
    ];
    let of = |(name, side, follows): (&str, usize, Option<bool>)| {
        let is_of = |sample: &&Sample| (sample.side, sample.follows) == (side, follows);
        let samples: Vec<_> = new.iter().filter(is_of).copied().collect();
        (!samples.is_empty()).then(|| Variant { name: name.to_owned(), errors: fitted.judge(&samples).into() })
    };
    cases.into_iter().filter_map(of).collect()
}

/// Returns the errors on new runs, by the maximum number of chains in a run and by the usable cores.
fn loads(profile: &Profile, fitted: &models::Models, settings: &PlacementSettings) -> Result<Vec<Variant>, LabError> {
    let runs = if settings.short { 20 } else { 200 };
    let mut loads = Vec::new();
    for (chains, cores, placement) in [
        (1, Cores::All, "all cores"),
        (2, Cores::All, "all cores"),
        (4, Cores::All, "all cores"),
        (6, Cores::All, "all cores"),
        (3, Cores::Of(0), "local cores only"),
        (3, Cores::Of(1), "remote cores only"),
    ] {
        let seed = settings.seed.wrapping_add(100);
        let draw = Draw { runs, chains, length: 4, has_competitors: false, cores, seed };
        let runs = models::runs(profile, draw)?;
        let samples = models::samples(profile, &runs, &fitted.metrics, &fitted.limits)?;
        let name = if chains == 1 { "1 chain".to_owned() } else { format!("1 to {chains} chains, {placement}") };
        loads.push(Variant { name, errors: fitted.judge(&samples).into() });
    }
    Ok(loads)
}

/// Returns the errors of other forms of the model, and of other limits (normalisers). Each is fitted to the same runs.
fn forms(profile: &Profile, runs: &Runs, fitted: &models::Models) -> Result<Vec<Variant>, LabError> {
    let mut variants = Vec::new();
    let (metrics, limits) = (&fitted.metrics, &fitted.limits);
    for (method, name) in [
        (Method::Linear, "linear in f, non-negative: (7) and (8) as printed"),
        (Method::Lms, "linear in f, least mean squares: the paper's fit"),
        (Method::Saturating, "saturating, non-negative"),
        (Method::HeldOut, "linear or saturating by held-out error: the models of this report"),
    ] {
        let (fitted, new) = runs.fit(profile, metrics, limits, method)?;
        variants.push(Variant { name: name.to_owned(), errors: fitted.judge(&new).into() });
    }
    let cores: Vec<_> = profile.bench.server.domains.iter().map(|domain| domain.cores as f64).collect();
    let largest = cores.iter().copied().fold(1.0, f64::max);
    let by_cores = limits.iter().zip(&cores).map(|(limits, cores)| {
        let part = cores / largest;
        Limits { cache: limits.cache * part, link: limits.link * part, ..*limits }
    });
    let apart = limits.iter().map(|limits| Limits { cache: limits.cache * 3.0, link: limits.link * 0.4, ..*limits });
    for (name, limits) in [
        ("normalisers of caches and links in proportion to a domain's cores", by_cores.collect::<Vec<_>>()),
        ("normalisers of caches multiplied by 3, normalisers of links multiplied by 0.4", apart.collect()),
    ] {
        let (fitted, new) = runs.fit(profile, metrics, &limits, Method::HeldOut)?;
        variants.push(Variant { name: name.to_owned(), errors: fitted.judge(&new).into() });
    }
    Ok(variants)
}

/// Returns the errors for a server on which functions have their tables in the memory of their own domain.
fn own_memory(settings: &PlacementSettings, metric: profile::Candidate) -> Result<Variant, LabError> {
    let profile = bench(Server { tables: TableMemory::Own, ..catalogue::octans_server() })?;
    let runs = Runs::of(&profile, settings)?;
    let metrics = profile.metrics(metric).ok_or(LabError::NoMetric)?;
    let (fitted, new) = runs.fit(&profile, &metrics, &models::limits(&profile, &metrics), Method::HeldOut)?;
    let name = "tables in the memory of a function's own domain".to_owned();
    Ok(Variant { name, errors: fitted.judge(&new).into() })
}

/// Returns the fitted models in the form of registries.
fn functions(profile: &Profile, fitted: &models::Models) -> Vec<Fitted> {
    let model = |(number, sides): (usize, &[models::Side; 2])| {
        let drop = |side: &models::Side| DropModel {
            shape: side.fitted.shape.into(),
            cache: side.fitted.drop.cache,
            memory: side.fitted.drop.memory,
            constant: side.fitted.drop.constant,
            error: side.fitted.error,
            held_out: Some(side.held_out),
            interval_95: Some(side.interval_95),
            fit: FitMethod::NonNegative,
            origin: None,
        };
        let [local, remote] = profile.rates[number];
        let model = FunctionModel {
            rates: SoloRates { local, remote: Some(remote) },
            metric: fitted.metrics[number],
            local: drop(&sides[0]),
            remote: Some(drop(&sides[1])),
            packets_bytes: profile.bench.traffic.packet_bytes as u32,
            runs: sides.iter().map(|side| side.runs).sum(),
        };
        Fitted { name: profile.bench.functions[number].name.clone(), model }
    };
    fitted.functions.iter().enumerate().map(model).collect()
}

/// The modules of Forebay that correspond to simulated functions.
const MODULES: [(&str, &str); 4] =
    [("router", "ip_lookup"), ("vpn", "esp_encrypt"), ("nat", "nat_out"), ("balancer", "balance")];

impl Models {
    /// Returns the file of the models as `forebay place` reads it. A function with a corresponding module has the name
    /// of the module.
    #[must_use]
    pub fn registry(&self) -> String {
        let [cache, memory, link] = self.limits;
        // The cache of this server has the same size whether functions may use 6 or 12 of its cores. So the limits are
        // those of all cores.
        let limits = LoadLimits { cache, memory, link: Some(link), cores: None };
        let build = concat!("forebay ", env!("CARGO_PKG_VERSION"));
        let mut registry = Registry::new(self.server, build, ModelOrigin::Simulated, self.metric, limits);
        let name = |of: &str| MODULES.iter().find(|(name, _)| *name == of).map_or(of, |(_, module)| module).to_owned();
        let functions = self.functions.iter().map(|fitted| (name(&fitted.name), fitted.model.clone()));
        registry.functions = functions.collect::<BTreeMap<_, _>>();
        registry.text()
    }
}

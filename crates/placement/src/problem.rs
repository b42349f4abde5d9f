//! Builds the [`Problem`] of the search from chains, a server and models of functions.

use std::collections::BTreeMap;

use forebay_models::placement::{Chain, Domain, Function, Limits, Problem, ProblemError};

use forebay_graph::{on_one_line, short};
use forebay_pipeline::{allowed_names, listed, nearest};

use crate::chains::{ChainFunction, Chains, ServiceChain};
use crate::registry::{DropModel, FitMethod, FunctionModel, LoadLimits, ModelOrigin, Registry};
use crate::server::Server;

/// The objective of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// `Σ weight · min(rate, predicted)`.
    Served,
    /// `Σ predicted`: the paper's objective.
    Sum,
    /// The smallest number of cores that serves all demand.
    Cores,
}

/// The model of a function of a chain.
#[derive(Clone, Debug, PartialEq)]
pub struct MatchedModel {
    /// The name in the registry.
    pub name: String,
    /// True if the model was made for the actual parameters, false if it was made for the parameters of the example.
    pub is_exact: bool,
    /// The origins of the model's figures: for the home domain, and for other domains.
    pub origins: [ModelOrigin; 2],
    /// Half the width of the 95 % interval of λ (the part of the solo rate that is lost), for the home domain and for
    /// other domains.
    pub intervals: [f64; 2],
}

/// Chains in the form of the search.
#[derive(Clone, Debug)]
pub struct PosedProblem {
    /// The problem for the search.
    pub problem: Problem,
    /// The model of each function of each chain.
    pub models: Vec<Vec<MatchedModel>>,
    /// The assumptions.
    pub notes: Vec<String>,
}

/// The reason why the search cannot start.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PoseError {
    /// A value of a chain is not possible on this server, or with this objective.
    #[error("chain '{chain}': {what}")]
    Chain {
        /// The chain.
        chain: String,
        /// The fault, and the allowed values.
        what: String,
    },
    /// Functions have no model.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Models(Vec<MissingModel>),
    /// The search does not accept the server.
    #[error(transparent)]
    Problem(ProblemError),
    /// The registry has no limits for a server of several domains.
    #[error(
        "the models are of one memory domain (limits.link is null), and the server has {0} domains: allowed are \
         models of several domains (`forebay lab placement` writes a file for `--models FILE`), or a topology of one \
         domain, such as 1x12"
    )]
    Link(usize),
}

/// A function without a model that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("chain '{chain}': function '{module}' ({function}): {why}")]
pub struct MissingModel {
    /// The chain.
    pub chain: String,
    /// The name in the chain.
    pub module: String,
    /// The function.
    pub function: String,
    /// The name in the registry that a model of the actual parameters would have.
    pub key: String,
    /// The reason.
    pub why: String,
}

/// Builds the problem. `keys` contains, for each module of the pipeline, the name of a model of exactly its parameters.
///
/// # Errors
/// Returns [`PoseError`] if a chain or the server is not possible, or if models are missing.
pub fn pose(
    chains: &Chains,
    server: &Server,
    registry: &Registry,
    keys: &BTreeMap<String, String>,
    objective: Objective,
) -> Result<PosedProblem, PoseError> {
    let mut assumed: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut homes = Vec::new();
    for chain in &chains.chains {
        let wrong = |what| PoseError::Chain { chain: chain.name.clone(), what };
        let home = server.home(chain).map_err(wrong)?;
        if let Some(note) = home.note {
            assumed.entry(note).or_default().push(&chain.name);
        }
        homes.push(home.domain);
        if objective == Objective::Cores && chain.rate.is_none() {
            let what = "it has no rate: `--objective cores` needs one, such as `rate: 1Mpps`";
            return Err(wrong(what.to_owned()));
        }
    }
    let of_chains = |(note, chains): (String, Vec<&str>)| {
        let (chain, names) = (if chains.len() == 1 { "chain" } else { "chains" }, listed(chains));
        format!("{chain} {names}: {note}")
    };
    let mut notes: Vec<_> = assumed.into_iter().map(of_chains).collect();
    let domains = server.domains.len();
    if domains > 1 && registry.limits.link.is_none() {
        return Err(PoseError::Link(domains));
    }
    let mut missing = Vec::new();
    let mut posed = Vec::new();
    let mut models = Vec::new();
    for (chain, home) in chains.chains.iter().zip(&homes) {
        let mut functions = Vec::new();
        let mut matched = Vec::new();
        for function in &chain.functions {
            let stated = chains.models.get(&function.name);
            match matching(chain, function, registry, stated, keys, domains > 1) {
                Ok((name, is_exact, model)) => {
                    matched.push(matched_model(name, is_exact, model, registry));
                    functions.push(as_function(model, domains, *home));
                }
                Err(error) => missing.push(error),
            }
        }
        models.push(matched);
        posed.push(as_chain(chain, functions, *home, chains.batch, objective));
    }
    if !missing.is_empty() {
        return Err(PoseError::Models(missing));
    }
    let by_example: Vec<_> = models.iter().flatten().filter(|model| !model.is_exact).map(|model| &model.name).collect();
    if let Some(first) = by_example.first() {
        let others = by_example.len() - 1;
        let more = if others > 0 { format!(" and {others} more") } else { String::new() };
        notes.push(format!("models with example parameters are used for these functions: {first}{more}"));
    }
    let classes = server.classes(&homes);
    let limits = domain_limits(server, &registry.limits);
    let of_server = server.domains.iter().zip(classes).zip(limits);
    let of_server =
        of_server.map(|((domain, class), limits)| Domain { cores: domain.cores.len(), class, limits }).collect();
    let problem = Problem { domains: of_server, chains: posed };
    problem.check_numbers().map_err(|error| match error {
        ProblemError::Number { chain, what, value, allowed } => PoseError::Chain {
            chain: chains.chains[chain].name.clone(),
            what: format!("{what} is {value}: allowed is {allowed}"),
        },
        error => PoseError::Problem(error),
    })?;
    Ok(PosedProblem { problem, models, notes })
}

/// Returns the name of a function's model, true if it was made for the actual parameters, and the model. `stated` is
/// the model that the file states for the function. `has_remote` is true if the server has several domains, so that the
/// model needs a remote part.
fn matching<'r>(
    chain: &ServiceChain,
    function: &ChainFunction,
    registry: &'r Registry,
    stated: Option<&String>,
    keys: &BTreeMap<String, String>,
    has_remote: bool,
) -> Result<(&'r str, bool, &'r FunctionModel), MissingModel> {
    let key = keys.get(&function.module).cloned().unwrap_or_default();
    let wrong = |why: String| MissingModel {
        chain: chain.name.clone(),
        module: function.name.clone(),
        function: function.function.to_owned(),
        key: key.clone(),
        why,
    };
    if let Some(stated) = stated.filter(|stated| !registry.functions.contains_key(*stated)) {
        let names: Vec<_> = registry.functions.keys().map(|name| on_one_line(name)).collect();
        let names = || names.iter().map(String::as_str);
        let near = nearest(stated, names());
        return Err(wrong(format!("there is no model '{}'{near}: {}", short(stated), allowed_names(names()))));
    }
    let key = stated.cloned().unwrap_or_else(|| key.clone());
    let exact = registry.functions.get_key_value(&key).map(|(name, model)| (name, true, model));
    let found = exact.or_else(|| {
        let (name, model) = registry.functions.get_key_value(function.function)?;
        Some((name, false, model))
    });
    let Some((name, is_exact, model)) = found else {
        return Err(wrong("no model of its contention".to_owned()));
    };
    if has_remote && (model.remote.is_none() || model.rates.remote.is_none()) {
        return Err(wrong(format!(
            "the model '{name}' has no remote part: it was measured on one domain, and the server has several"
        )));
    }
    for drop in std::iter::once(&model.local).chain(model.remote.as_ref().filter(|_| has_remote)) {
        let parameters = [drop.cache, drop.memory, drop.constant];
        if drop.fit == FitMethod::Lms && parameters.iter().any(|value| *value < 0.0) {
            return Err(wrong(format!(
                "the model '{name}' has a negative parameter (least mean squares): the search's bounds need models \
                 fitted by non-negative least squares"
            )));
        }
    }
    Ok((name, is_exact, model))
}

/// Returns the properties of a model for the answer. If the model has no remote part, the properties of the local part
/// are used.
fn matched_model(name: &str, is_exact: bool, model: &FunctionModel, registry: &Registry) -> MatchedModel {
    let remote = model.remote.as_ref().unwrap_or(&model.local);
    let half = |drop: &DropModel| drop.interval_95.unwrap_or(1.96 * drop.error);
    let origin = |drop: &DropModel| drop.origin.unwrap_or(registry.origin);
    MatchedModel {
        name: name.to_owned(),
        is_exact,
        origins: [origin(&model.local), origin(remote)],
        intervals: [half(&model.local), half(remote)],
    }
}

/// Returns a function in the form of the search. If the model has no remote part, the figures of the local part are
/// used.
fn as_function(model: &FunctionModel, domains: usize, home: usize) -> Function {
    let remote = model.rates.remote.unwrap_or(model.rates.local);
    Function {
        rates: (0..domains).map(|domain| if domain == home { model.rates.local } else { remote }).collect(),
        metric: model.metric,
        local: model.local.sensitivity(),
        remote: model.remote.as_ref().unwrap_or(&model.local).sensitivity(),
        shape: model.local.shape.shape(),
    }
}

/// Returns a chain in the form of the search. The least rate follows from the delay objective, and from the rate if
/// cores are minimised.
fn as_chain(chain: &ServiceChain, functions: Vec<Function>, home: usize, batch: usize, objective: Objective) -> Chain {
    let length = functions.len();
    let mut least = chain.slo.map_or(0.0, |slo| rate_for_delay(slo, batch, length.max(chain.copies)));
    let rate = chain.rate.unwrap_or(f64::INFINITY);
    if objective == Objective::Cores {
        least = least.max(rate);
    }
    let (rate, weight) = if objective == Objective::Sum { (f64::INFINITY, 1.0) } else { (rate, chain.weight) };
    Chain { functions, home, rate, weight, least, copies: chain.copies }
}

/// Returns the rate, in packets per second, below which a chain may miss its delay objective `slo`, in seconds.
///
/// By the batch model (Batchy eq. 12), each of the chain's workers delays a packet by a turn and by the call. Both take
/// at most the time of a full batch at the worker's rate. No worker is slower than the chain. So `n` workers delay a
/// packet by at most `2·n·B/rate`.
#[must_use]
pub fn rate_for_delay(slo: f64, batch: usize, workers: usize) -> f64 {
    2.0 * workers as f64 * batch as f64 / slo
}

/// Returns the limits of each domain: the limits of the registry, scaled by the number of cores that share the place of
/// contention.
fn domain_limits(server: &Server, limits: &LoadLimits) -> Vec<Limits> {
    let all = server.cores();
    let of_domain = |cores: usize| {
        let scaled = |limit: f64, available: usize, measured: Option<usize>| {
            measured.map_or(limit, |measured| limit * available.max(1) as f64 / measured as f64)
        };
        let cores_of = |of: fn(crate::registry::SharingCores) -> usize| limits.cores.map(of);
        Limits {
            cache: scaled(limits.cache, cores, cores_of(|cores| cores.cache)),
            memory: scaled(limits.memory, all, cores_of(|cores| cores.memory)),
            // Without a limit of the link, the server has only one domain. No function is remote, so the value is not
            // used.
            link: limits.link.map_or(limits.memory, |link| {
                scaled(link, cores, limits.cores.map(|cores| cores.link.unwrap_or(cores.cache)))
            }),
        }
    };
    server.domains.iter().map(|domain| of_domain(domain.cores.len())).collect()
}

#[cfg(test)]
mod tests {
    use forebay_models::batching::{Flow, Line, Model, Module};

    use super::*;
    use crate::registry::SharingCores;

    /// With full batches, and functions that are as slow as the chain, the bound equals the delay of the batch model.
    #[test]
    fn the_least_rate_is_that_of_the_batch_model() {
        let (rate, batch, count) = (1e6, 32.0, 3);
        let call = Line { fixed: 8.0 / rate, each: 0.75 / rate };
        let module = Module { cpu: call, delay: call, ingress: batch };
        let worker = |_| {
            let flow = Flow { path: vec![0], rate, slo: 1.0 };
            let model = Model::new(vec![module], vec![flow], batch).expect("a model");
            model.delays(&[0.0])[0].expect("packets come")
        };
        let delay: f64 = (0..count).map(worker).sum();
        assert!((rate_for_delay(delay, 32, count) / rate - 1.0).abs() < 1e-12);
    }

    #[test]
    fn limits_are_in_proportion_to_cores() {
        let topology = forebay_host::Topology::synthetic("2x12").expect("it is valid");
        let server = Server::of(&topology, false);
        let cores = Some(SharingCores { cache: 6, memory: 6, link: None });
        let limits = LoadLimits { cache: 3.0, memory: 5.0, link: Some(2.0), cores };
        let found = domain_limits(&server, &limits);
        assert_eq!(found[0], Limits { cache: 6.0, memory: 20.0, link: 4.0 });
        let fixed = domain_limits(&server, &LoadLimits { cores: None, ..limits });
        assert_eq!(found[0], found[1]);
        assert_eq!(fixed[0], Limits { cache: 3.0, memory: 5.0, link: 2.0 });
    }
}

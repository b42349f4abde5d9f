//! The answer: which core runs which function, the resulting rates, and what limits them.
//!
//! `forebay place --json` prints it, and the text and the picture show only its content.

mod binding;

use forebay_models::placement::coupled::{Coupled, Damping, coupled};
use forebay_models::placement::{Checked, Function, Problem, ProblemError, Way};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;

use crate::chains::Chains;
use crate::earlier::{EarlierPlacement, assign};
use crate::explain::explain;
use crate::problem::{MatchedModel, Objective, PosedProblem};
use crate::registry::{ModelOrigin, Registry};
use crate::search::{Algorithm, Outcome};
use crate::server::Server;

/// A placement of chains on a server.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(title = "Forebay placement")]
pub struct Answer {
    /// Changes when a field is removed or changes its meaning. Fields may be added without a change.
    pub version: u32,
    /// The pipeline's name.
    pub name: String,
    /// The topology, as on the command line.
    pub topology: String,
    /// `served`, `sum` or `cores`.
    pub objective: &'static str,
    /// The search method.
    pub search: &'static str,
    /// The models of functions.
    pub models: ModelsAnswer,
    /// The value of the placement: weighted packets per second, packets per second, or with `cores` the number of used
    /// cores.
    pub value: f64,
    /// No placement has a higher value, or with `cores` needs fewer cores. Null if the search proves nothing.
    pub bound: Option<f64>,
    /// The distance of the value from the bound, as a share from 0 to 1. With 0 the placement is proved to be optimal.
    pub gap: Option<f64>,
    /// The result of an independent check of the bound. Null if there is no bound. A refuted bound is an error.
    pub checked: Option<CertificateCheck>,
    /// The number of nodes of the search. Null if it counts none.
    pub nodes: Option<u64>,
    /// The number of used cores.
    pub cores_used: usize,
    /// The number of cores that functions may use.
    pub cores_usable: usize,
    /// The memory domains with their cores.
    pub domains: Vec<DomainAnswer>,
    /// The chains that are placed, in the order of the file.
    pub chains: Vec<ChainAnswer>,
    /// The functions, or copies of chains, that have moved from the given earlier placement. Null if none was given.
    pub moved: Option<Vec<MovedFunctions>>,
    /// The modules of a running pipeline that moved when this placement was applied. Null if it was not applied.
    pub applied: Option<AppliedPlacement>,
    /// The chains that do not fit.
    pub rejected: Vec<RejectedChain>,
    /// The solution of rates and contention together. Null if it was not requested. The certificate does not cover
    /// these rates.
    pub coupled: Option<CoupledAnswer>,
    /// The assumptions.
    pub notes: Vec<String>,
}

/// The origin of the models of functions.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct ModelsAnswer {
    /// The CPU model.
    pub cpu: String,
    /// The build.
    pub build: String,
    /// `measured`, `simulated` or `imported`.
    pub origin: ModelOrigin,
    /// The metric of demands.
    pub metric: String,
}

/// A memory domain.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct DomainAnswer {
    /// The number, from 0.
    pub domain: usize,
    /// The NUMA node. Null if it is unknown.
    pub node: Option<usize>,
    /// The network interfaces of its node.
    pub interfaces: Vec<String>,
    /// The cores.
    pub cores: Vec<CoreAnswer>,
}

/// A core.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct CoreAnswer {
    /// The processor's number.
    pub core: usize,
    /// The chain that runs there. Null if the core is free.
    pub chain: Option<String>,
    /// The functions of the chain that run there.
    pub functions: Vec<String>,
}

/// A chain that is placed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct ChainAnswer {
    /// The name.
    pub chain: String,
    /// `pipelined`: a core for each function; `fused`: copies of the whole chain, each on one core.
    pub form: ChainForm,
    /// The domain of its packets.
    pub home: usize,
    /// The packets per second that arrive. Null if the chain has no stated rate.
    pub rate_pps: Option<f64>,
    /// The packets per second that it can forward, by the fixed-rate model.
    pub predicted_pps: f64,
    /// The 95 % interval of this rate, derived from the errors of the models.
    pub interval_95_pps: [f64; 2],
    /// The packets per second that it forwards if rates and contention are solved together. Null if this was not
    /// requested.
    pub coupled_pps: Option<f64>,
    /// The packets per second that it must be able to forward to keep its objectives. Null if it has none.
    pub least_pps: Option<f64>,
    /// Whether the predicted rate reaches this value.
    pub keeps_objective: bool,
    /// The functions, in the order in which packets pass them.
    pub functions: Vec<FunctionAnswer>,
    /// The cores: one for each function, or one for each copy.
    pub seats: Vec<SeatAnswer>,
    /// The function and the contention that limit its rate.
    pub binds: Binding,
    /// The best other domain of each segment, that is, of consecutive functions on one domain. Null if it was not
    /// requested.
    pub moves: Option<Vec<SegmentMove>>,
}

/// The form in which a chain runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ChainForm {
    /// A core for each function.
    Pipelined,
    /// Copies of the whole chain, each on one core.
    Fused,
}

/// A function with its model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct FunctionAnswer {
    /// The name in the chain.
    pub name: String,
    /// The module's name in the pipeline.
    pub module: String,
    /// The function.
    pub function: String,
    /// The model's name in the registry.
    pub model: String,
    /// Whether the model was made for the parameters of the function's example, instead of the actual parameters.
    pub of_example: bool,
    /// The origins of the model's figures, for the home domain and for other domains.
    pub origins: [ModelOrigin; 2],
}

/// A core of a chain.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct SeatAnswer {
    /// The domain.
    pub domain: usize,
    /// The processor's number.
    pub core: usize,
    /// The functions that run there.
    pub functions: Vec<String>,
    /// The packets per second that these functions could forward there.
    pub rate_pps: f64,
}

/// The function and the contention that limit a chain's rate.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Binding {
    /// The slowest function, or all functions of a chain that runs on one core.
    pub function: String,
    /// λ of this function: its slowdown compared to its solo rate, from 0 to 1.
    pub drop: f64,
    /// The place of contention with the largest share of λ. Null if there is no slowdown.
    pub place: Option<ContentionPlace>,
    /// The domain of that place.
    pub domain: usize,
    /// The part of λ that is due to this place.
    pub share: f64,
}

/// A place of contention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ContentionPlace {
    /// The last-level cache.
    Cache,
    /// The memory controller.
    Memory,
    /// The link to other domains.
    Link,
    /// No shared place: the constant part of the model.
    Constant,
}

/// The best other domain for consecutive functions.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct SegmentMove {
    /// The functions.
    pub functions: Vec<String>,
    /// Their domain.
    pub from: usize,
    /// The best other domain. Null if no other domain can run them.
    pub to: Option<usize>,
    /// The functions that are exchanged with them, if the other domain has too few free cores.
    pub exchanged: Vec<String>,
    /// The cost of the move, in percent of the value of all chains. Null if no other domain can run them.
    pub cost_percent: Option<f64>,
}

/// The result of the check of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum CertificateCheck {
    /// Another exact method gives the same value.
    Proved,
    /// None of the other placements that were tried exceeds the bound.
    NotRefuted,
}

/// Functions that have moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct MovedFunctions {
    /// The chain.
    pub chain: String,
    /// The functions.
    pub functions: Vec<String>,
    /// The domain before. Null for a new copy.
    pub from: Option<usize>,
    /// The domain now. Null for a copy that no longer runs.
    pub to: Option<usize>,
}

/// A placement that was applied to a running pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct AppliedPlacement {
    /// The modules that moved. Empty if all were in place already.
    pub moved: Vec<AppliedMove>,
    /// The time for which no packets were received from ports, in microseconds.
    pub pause_us: f64,
    /// The number of packets that are unaccounted for. A value other than 0 is a defect.
    pub missing: i64,
}

/// A module of a running pipeline that moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct AppliedMove {
    /// The module.
    pub module: String,
    /// Its cores before.
    pub from: Vec<usize>,
    /// Its cores now.
    pub to: Vec<usize>,
}

/// A chain that is not placed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct RejectedChain {
    /// Its name.
    pub chain: String,
    /// The reason.
    pub reason: String,
}

/// The result of solving rates and contention together.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct CoupledAnswer {
    /// Whether the fixed point was reached.
    pub converged: bool,
    /// The largest relative change of a rate in the last round. Null after one round.
    pub residual: Option<f64>,
    /// The number of rounds.
    pub rounds: usize,
}

/// The options of an answer.
#[derive(Clone, Copy)]
pub struct AnswerOptions<'a> {
    /// The topology, as on the command line.
    pub topology: &'a str,
    /// The objective of the search.
    pub objective: Objective,
    /// The method of the search.
    pub algorithm: Algorithm,
    /// Whether rates and contention are solved together.
    pub rate_coupled: bool,
    /// Whether the costs of moves are computed.
    pub explain: bool,
    /// The placement that runs already.
    pub earlier: Option<&'a EarlierPlacement>,
    /// Returns whether the time for these costs is over.
    pub is_over: &'a dyn Fn() -> bool,
}

/// Makes the answer from the result of a search.
///
/// # Errors
/// Returns [`ProblemError`] if the outcome does not belong to this problem.
pub fn answer(
    chains: &Chains,
    server: &Server,
    registry: &Registry,
    posed: &PosedProblem,
    outcome: &Outcome,
    options: AnswerOptions<'_>,
) -> Result<Answer, ProblemError> {
    let kept = outcome.kept.iter().map(|chain| posed.problem.chains[*chain].clone()).collect();
    let problem = Problem { domains: posed.problem.domains.clone(), chains: kept };
    let cores = assign(server, &outcome.placement, &outcome.kept, options.earlier);
    let placed = Placed { chains, posed, outcome, problem: &problem, cores };
    let together = if options.rate_coupled && !outcome.kept.is_empty() {
        Some(coupled(&problem, &outcome.placement, Damping::default())?)
    } else {
        None
    };
    let mut domains = empty_domains(server);
    let rates = if outcome.kept.is_empty() { Vec::new() } else { problem.function_rates(&outcome.placement)? };
    let mut answers = Vec::new();
    for (at, rates) in rates.iter().enumerate() {
        answers.push(placed.chain(at, rates, together.as_ref(), &mut domains));
    }
    let mut left_out = 0;
    if options.explain {
        let names: Vec<_> = answers.iter().map(|chain| (chain.chain.clone(), names(chain))).collect();
        let explained = explain(&problem, &outcome.placement, &names, options.is_over);
        left_out = explained.iter().filter(|moves| moves.is_none()).count();
        for (chain, moves) in answers.iter_mut().zip(explained) {
            chain.moves = moves;
        }
    }
    let gap = outcome.bound.map(|bound| {
        let (above, below) =
            if options.objective == Objective::Cores { (outcome.value, bound) } else { (bound, outcome.value) };
        if above > 0.0 { ((above - below) / above).max(0.0) } else { 0.0 }
    });
    let rejected = outcome.rejected.iter().map(|rejection| RejectedChain {
        chain: chains.chains[rejection.chain].name.clone(),
        reason: rejection.reason.clone(),
    });
    let moved = options.earlier.map(|earlier| moved(chains, earlier, outcome));
    let used = domains.iter().flat_map(|domain| &domain.cores).filter(|core| core.chain.is_some()).count();
    let notes = posed.notes.iter().chain(options.earlier.iter().flat_map(|it| &it.notes));
    let message = "no time was left to explain the moves of all chains";
    let unexplained = (left_out > 0).then(|| format!("{message}: {left_out} are without (`--limit TIME`)"));
    Ok(Answer {
        version: 1,
        name: chains.name.clone(),
        topology: options.topology.to_owned(),
        objective: options.objective.name(),
        search: options.algorithm.name(),
        models: ModelsAnswer {
            cpu: registry.cpu.clone(),
            build: registry.build.clone(),
            origin: registry.origin,
            metric: registry.metric.clone(),
        },
        value: outcome.value,
        bound: outcome.bound,
        // A gap this small is due to rounding.
        gap: gap.map(|gap| if gap < 1e-9 { 0.0 } else { gap }),
        checked: outcome.checked.map(|checked| match checked {
            Checked::Proved => CertificateCheck::Proved,
            Checked::NotRefuted(_) => CertificateCheck::NotRefuted,
        }),
        nodes: outcome.nodes,
        cores_used: used,
        cores_usable: server.cores(),
        domains,
        chains: answers,
        moved,
        applied: None,
        rejected: rejected.collect(),
        coupled: together.map(|together| CoupledAnswer {
            converged: together.is_converged,
            residual: Some(together.residual).filter(|residual| residual.is_finite()),
            rounds: together.rounds,
        }),
        notes: notes.cloned().chain(unexplained).collect(),
    })
}

/// Returns the names of the functions on each seat.
fn names(chain: &ChainAnswer) -> Vec<Vec<String>> {
    chain.seats.iter().map(|seat| seat.functions.clone()).collect()
}

fn empty_domains(server: &Server) -> Vec<DomainAnswer> {
    let free = |core: &usize| CoreAnswer { core: *core, chain: None, functions: Vec::new() };
    let domains = server.domains.iter().enumerate().map(|(number, domain)| {
        let interfaces = server.interfaces.iter().filter(|(_, node)| node.is_some() && *node == domain.node);
        DomainAnswer {
            domain: number,
            node: domain.node,
            interfaces: interfaces.map(|(name, _)| name.clone()).collect(),
            cores: domain.cores.iter().map(free).collect(),
        }
    });
    domains.collect()
}

/// Returns the functions that run elsewhere than before.
fn moved(chains: &Chains, earlier: &EarlierPlacement, outcome: &Outcome) -> Vec<MovedFunctions> {
    let mut all = Vec::new();
    for (number, way) in outcome.kept.iter().zip(&outcome.placement) {
        let chain = &chains.chains[*number];
        let Some(now) = earlier.ways.get(*number).and_then(Option::as_ref) else { continue };
        let names: Vec<_> = chain.functions.iter().map(|function| function.name.clone()).collect();
        let mut add = |functions: &[String], from, to| {
            let (chain, functions) = (chain.name.clone(), functions.to_vec());
            all.push(MovedFunctions { chain, functions, from, to });
        };
        if let (Way::Split(before), Way::Split(after)) = (now, way) {
            let seats = names.iter().zip(before).zip(after).filter(|((_, from), to)| from != to);
            seats.for_each(|((name, from), to)| add(std::slice::from_ref(name), Some(*from), Some(*to)));
            continue;
        }
        // Copies on one domain are equivalent.
        let (mut before, mut after) = (now.domains().to_vec(), way.domains().to_vec());
        if matches!((now, way), (Way::Whole(_), Way::Whole(_))) {
            after.retain(|domain| match before.iter().position(|other| other == domain) {
                Some(at) => {
                    before.remove(at);
                    false
                }
                None => true,
            });
        }
        for at in 0..before.len().max(after.len()) {
            add(&names, before.get(at).copied(), after.get(at).copied());
        }
    }
    all
}

/// A placement with its problem.
struct Placed<'a> {
    chains: &'a Chains,
    posed: &'a PosedProblem,
    outcome: &'a Outcome,
    /// The problem of the placed chains only.
    problem: &'a Problem,
    /// The core of each seat of each placed chain.
    cores: Vec<Vec<usize>>,
}

impl Placed<'_> {
    fn chain(&self, at: usize, rates: &[f64], together: Option<&Coupled>, domains: &mut [DomainAnswer]) -> ChainAnswer {
        let number = self.outcome.kept[at];
        let (section, models) = (&self.chains.chains[number], &self.posed.models[number]);
        let (chain, way) = (&self.problem.chains[at], &self.outcome.placement[at]);
        let whole = chain.whole();
        let all: Vec<_> = section.functions.iter().map(|function| function.name.clone()).collect();
        let copies = match way {
            Way::Split(_) => 1.0,
            Way::Whole(domains) => domains.len() as f64,
        };
        let mut seats = Vec::new();
        let mut interval = [f64::INFINITY; 2];
        for (seat, (&domain, &rate)) in way.domains().iter().zip(rates).enumerate() {
            let side = usize::from(domain != chain.home);
            let (function, functions, half) = match way {
                Way::Split(_) => (&chain.functions[seat], vec![all[seat].clone()], models[seat].intervals[side]),
                Way::Whole(_) => (&whole, all.clone(), weighted(&chain.functions, models, chain.home, side)),
            };
            let swing = copies * function.rates[domain] * half;
            interval = [interval[0].min((rate - swing).max(0.0)), interval[1].min(rate + swing)];
            let number = self.cores[at][seat];
            if let Some(core) = domains[domain].cores.iter_mut().find(|core| core.core == number) {
                core.chain = Some(section.name.clone());
                core.functions.clone_from(&functions);
            }
            seats.push(SeatAnswer { domain, core: number, functions, rate_pps: rate });
        }
        let predicted = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let functions = section.functions.iter().zip(models).map(|(function, model)| FunctionAnswer {
            name: function.name.clone(),
            module: function.module.clone(),
            function: function.function.to_owned(),
            model: model.name.clone(),
            of_example: !model.is_exact,
            origins: model.origins,
        });
        ChainAnswer {
            chain: section.name.clone(),
            form: if matches!(way, Way::Split(_)) { ChainForm::Pipelined } else { ChainForm::Fused },
            home: chain.home,
            rate_pps: section.rate,
            predicted_pps: predicted,
            interval_95_pps: interval,
            coupled_pps: together.map(|together| together.rates[at]),
            least_pps: Some(chain.least).filter(|least| *least > 0.0),
            keeps_objective: predicted >= chain.least,
            functions: functions.collect(),
            binds: binding::binding(self.problem, &self.outcome.placement, at, rates, &seats),
            seats,
            moves: None,
        }
    }
}

/// Returns half the width of the interval of a chain on one core: the mean of the functions' intervals, weighted by
/// their time.
fn weighted(functions: &[Function], models: &[MatchedModel], home: usize, side: usize) -> f64 {
    let seconds: f64 = functions.iter().map(|function| 1.0 / function.rates[home]).sum();
    let parts = functions.iter().zip(models).map(|(function, model)| model.intervals[side] / function.rates[home]);
    parts.sum::<f64>() / seconds
}

/// Returns the JSON Schema of [`Answer`].
#[must_use]
pub fn schema() -> serde_json::Value {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    generator.into_root_schema_for::<Answer>().to_value()
}

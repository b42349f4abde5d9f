//! The answer: which core runs which function, the resulting rates, and what limits them.
//!
//! `forebay place --json` prints it, and the text and the picture show only its content.

mod binding;
mod values;

use forebay_models::placement::coupled::{Coupled, Damping, coupled};
use forebay_models::placement::{Checked, Function, Problem, ProblemError, Way};
use schemars::generate::SchemaSettings;

use crate::chains::Chains;
use crate::earlier::{EarlierPlacement, assign};
use crate::explain::explain;
use crate::problem::{MatchedModel, Objective, PosedProblem};
use crate::registry::Registry;
use crate::search::{Algorithm, Outcome};
use crate::server::Server;

pub use values::{
    Answer, AppliedMove, AppliedPlacement, Binding, CertificateCheck, ChainAnswer, ChainForm, ContentionPlace,
    CoreAnswer, CoupledAnswer, DomainAnswer, FunctionAnswer, ModelsAnswer, MovedFunctions, RejectedChain, SeatAnswer,
    SegmentMove,
};

/// The options of an answer.
#[derive(Clone, Copy)]
pub struct AnswerOptions<'a> {
    /// The topology, as on the command line.
    pub topology: &'a str,
    /// The objective of the search.
    pub objective: Objective,
    /// The method of the search.
    pub algorithm: Algorithm,
    /// True if rates and contention are also solved together.
    pub rate_coupled: bool,
    /// True if the costs of moves are computed.
    pub explain: bool,
    /// The placement that runs already.
    pub earlier: Option<&'a EarlierPlacement>,
    /// Returns true if the time for the costs of moves is over.
    pub is_over: &'a dyn Fn() -> bool,
}

/// Makes the answer from the result of a search. `posed` is the problem that was searched. `server` and `registry` are
/// the ones from which `posed` was built.
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
    let seats = || outcome.kept.iter().zip(&outcome.placement).zip(&placed.cores);
    let within = |earlier: &EarlierPlacement| {
        seats().map(|((chain, way), cores)| earlier.moves_within_domains(*chain, way, cores)).sum::<usize>()
    };
    let moved_within = options.earlier.map(within);
    let moved = options.earlier.map(|earlier| moved(chains, earlier, outcome));
    let used = domains.iter().flat_map(|domain| &domain.cores).filter(|core| core.chain.is_some()).count();
    let notes = posed.notes.iter().chain(options.earlier.iter().flat_map(|it| &it.notes));
    let message = "no time was left to explain the moves of all chains";
    let unexplained = (left_out > 0).then(|| format!("{message}: {left_out} not explained, increase `--limit TIME`"));
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
        moved_within,
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

/// Returns, by seat of a chain (a core with one function or one copy), the names of the functions that run there.
fn names(chain: &ChainAnswer) -> Vec<Vec<String>> {
    chain.seats.iter().map(|seat| seat.functions.clone()).collect()
}

/// Returns the domains of a server with all cores free.
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

/// Returns the functions, or copies of chains, that run on another domain than before.
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
        // Copies of one chain are equivalent: copies on the domains that also had a copy before have not moved.
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
    /// Returns the answer for the placed chain `at`, whose functions or copies have these rates. Also writes the chain
    /// and its functions to its cores in `domains`.
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

/// Returns half the width of the interval of λ for a chain on one core: the mean of the functions' intervals, weighted
/// by their time on the home domain. `side` is 0 for the home domain and 1 for other domains.
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

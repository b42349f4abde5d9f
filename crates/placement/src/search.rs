//! Searches for a placement. It selects the method and the objective, and rejects chains that do not fit.

mod headroom;
mod nearby;

use forebay_models::placement::baselines::{self, Found};
use forebay_models::placement::{
    Certificate, Checked, Effort, From, Placement, Problem, ProblemError, Refuted, Wanted, Way, check, exact, exact_for,
};

use crate::problem::Objective;

pub use headroom::search_with_headroom;
pub use nearby::search_nearby;

/// The method of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Branch and bound, with a certificate.
    Exact,
    /// The paper's heuristic.
    Octans,
    /// Places functions one after the other, each on the domain with the smallest fraction of cores in use.
    NodeBalancing,
    /// Places functions one after the other on the home domain, then on others.
    NodeFirst,
    /// Places functions one after the other on any free core.
    Random,
    /// Tries every placement.
    BruteForce,
}

/// The parameters and limits of a search.
#[derive(Clone, Copy)]
pub struct SearchEffort<'t> {
    /// The method.
    pub algorithm: Algorithm,
    /// The objective.
    pub objective: Objective,
    /// The seed of all randomness.
    pub seed: u64,
    /// Returns whether the time is over. It is called repeatedly.
    pub is_over: &'t dyn Fn() -> bool,
    /// The current placement of each chain, and the number of functions that may move. `None` if no chain runs.
    pub from: Option<From<'t>>,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The indices of the placed chains in the problem, in ascending order.
    pub kept: Vec<usize>,
    /// The placement of each placed chain, in the order of `kept`.
    pub placement: Placement,
    /// The value of the objective: the sum over the placed chains, or the number of cores. 0 if no chain is placed.
    pub value: f64,
    /// The bound: no placement has a higher value, or with `cores` needs fewer cores. `None` if the method proves
    /// nothing.
    pub bound: Option<f64>,
    /// The number of nodes of the search, if it counts them.
    pub nodes: Option<u64>,
    /// The result of an independent check of the bound. `None` if there is no bound, or if it was not checked.
    pub checked: Option<Checked>,
    /// The chains that are not placed.
    pub rejected: Vec<Rejection>,
}

/// A chain that is not placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The index of the chain.
    pub chain: usize,
    /// The reason.
    pub reason: String,
}

/// An error of a search.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SearchError {
    /// The problem is not valid.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The method would have to examine too many placements.
    #[error(
        "--search {method} would examine {} placements: allowed are up to {MOST_LISTED:.0}: use `--search exact`",
        if *count < 1e15 { format!("{count:.0}") } else { "more than 1e15".to_owned() }
    )]
    TooMany {
        /// The method.
        method: &'static str,
        /// The number of placements that it would examine.
        count: f64,
    },
    /// The method does not support the request.
    #[error("--search {method} does not support {option}: use `--search exact`")]
    Method {
        /// The method.
        method: &'static str,
        /// The option that the method does not support.
        option: &'static str,
    },
    /// The check has refuted the result of the search. This is a defect that should be reported.
    #[error("a fault of the search: {0}")]
    Refuted(#[from] Refuted),
}

/// The maximum number of nodes of the search that computes the best rate of a chain alone on the server.
const ALONE_NODES: u64 = 10_000;
/// The maximum number of placements that are examined one by one.
const MOST_LISTED: f64 = 1e7;

impl Algorithm {
    /// Returns the name, as on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Octans => "octans",
            Self::NodeBalancing => "node-balancing",
            Self::NodeFirst => "node-first",
            Self::Random => "random",
            Self::BruteForce => "brute-force",
        }
    }
}

impl Objective {
    /// Returns the name, as on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Sum => "sum",
            Self::Cores => "cores",
        }
    }
}

/// A placement of the chains that are not rejected.
///
/// The fields have the same meaning as in [`Outcome`].
#[derive(Default)]
struct Solved {
    placement: Placement,
    value: f64,
    bound: Option<f64>,
    nodes: Option<u64>,
    checked: Option<Checked>,
}

/// Searches for a placement. Chains that do not fit are rejected. First, the chains that do not fit alone on the server
/// are rejected. If the others do not fit together, [`Algorithm::Exact`] rejects the chains whose absence costs the
/// least value. For the objective of the fewest cores, and with other methods, chains are rejected one after the other:
/// the chain of the smallest weight, and of several such chains the last one.
///
/// # Errors
/// Returns [`SearchError`] if the problem is not valid, if the method does not support the request or would examine too
/// many placements, or if the check refutes the result.
pub fn search(problem: &Problem, effort: &SearchEffort<'_>) -> Result<Outcome, SearchError> {
    let (is_exact, method) = (effort.algorithm == Algorithm::Exact, effort.algorithm.name());
    if !is_exact && effort.objective == Objective::Cores {
        return Err(SearchError::Method { method, option: "--objective cores" });
    }
    if !is_exact && effort.from.is_some() {
        return Err(SearchError::Method { method, option: "--moves" });
    }
    let mut rejected = Vec::new();
    let mut kept: Vec<usize> = Vec::new();
    for chain in 0..problem.chains.len() {
        match alone(problem, chain, effort)? {
            None => kept.push(chain),
            Some(reason) => rejected.push(Rejection { chain, reason }),
        }
    }
    let mut solved = if kept.is_empty() { Some(Solved::default()) } else { None };
    if solved.is_none() && fits(problem, &kept, effort) {
        solved = solve(problem, &kept, effort, false)?;
    }
    if solved.is_none() && is_exact && effort.objective != Objective::Cores {
        solved = solve(problem, &kept, effort, true)?;
        if let Some(solved) = &mut solved {
            let left_out: Vec<_> = solved.placement.iter().map(|way| way.domains().is_empty()).collect();
            solved.placement.retain(|way| !way.domains().is_empty());
            let used: usize = solved.placement.iter().map(|way| way.domains().len()).sum();
            let free = cores(problem).saturating_sub(used);
            for (chain, _) in kept.iter().zip(&left_out).filter(|(_, is_out)| **is_out) {
                let needed = problem.chains[*chain].fewest_cores();
                let has_objectives = kept.iter().any(|chain| problem.chains[*chain].least > 0.0);
                let reason = if (effort.is_over)() {
                    "the best placement that was found in time (`--limit TIME`) leaves out this chain".to_owned()
                } else if needed <= free && !has_objectives {
                    "the other chains are worth more without it".to_owned()
                } else {
                    beside(needed, free, effort)
                };
                rejected.push(Rejection { chain: *chain, reason });
            }
            let mut is_out = left_out.into_iter();
            kept.retain(|_| !is_out.next().unwrap_or(false));
        }
    }
    while solved.is_none() {
        let weight = |at: &usize| problem.chains[kept[*at]].weight;
        let Some(at) = (0..kept.len()).rev().min_by(|a, b| weight(a).total_cmp(&weight(b))) else { break };
        let chain = kept.remove(at);
        let others: usize = kept.iter().map(|chain| needs(problem, *chain, effort)).sum();
        let free = cores(problem).saturating_sub(others);
        let reason = if (effort.is_over)() {
            "no placement of all chains was found in time (`--limit TIME`)".to_owned()
        } else {
            beside(needs(problem, chain, effort), free, effort)
        };
        rejected.push(Rejection { chain, reason });
        solved = match kept.is_empty() {
            true => Some(Solved::default()),
            false if fits(problem, &kept, effort) => solve(problem, &kept, effort, false)?,
            false => None,
        };
    }
    rejected.sort_by_key(|rejection| rejection.chain);
    let Solved { placement, value, bound, nodes, checked } = solved.unwrap_or_default();
    Ok(Outcome { kept, placement, value, bound, nodes, checked, rejected })
}

/// Returns the reason why a chain that needs `needed` cores does not fit on the server together with other chains,
/// which leave `free` cores.
fn beside(needed: usize, free: usize, effort: &SearchEffort<'_>) -> String {
    if needed > free {
        let cores = if needed == 1 { "core" } else { "cores" };
        format!("it needs {needed} {cores}: the other chains leave {free}")
    } else if let Some(From { most, .. }) = effort.from {
        format!("with `--moves {most}`, no placement keeps all objectives")
    } else {
        "together with the other chains, no placement keeps all objectives".to_owned()
    }
}

/// Returns the number of cores of the server.
fn cores(problem: &Problem) -> usize {
    problem.domains.iter().map(|domain| domain.cores).sum()
}

/// Returns the minimum number of cores of a chain. Baselines do not run whole chains on one core.
fn needs(problem: &Problem, chain: usize, effort: &SearchEffort<'_>) -> usize {
    let chain = &problem.chains[chain];
    if effort.algorithm == Algorithm::Exact { chain.fewest_cores() } else { chain.functions.len() }
}

/// Returns true if the server has enough cores for the chains `kept`. Objectives are not checked.
fn fits(problem: &Problem, kept: &[usize], effort: &SearchEffort<'_>) -> bool {
    kept.iter().map(|chain| needs(problem, *chain, effort)).sum::<usize>() <= cores(problem)
}

/// Returns the problem with only the chains `kept`.
fn part(problem: &Problem, kept: &[usize]) -> Problem {
    let chains = kept.iter().map(|chain| problem.chains[*chain].clone()).collect();
    Problem { domains: problem.domains.clone(), chains }
}

/// Returns the reason why a chain does not fit alone on the server. `None` if it fits, or if there is no time to find
/// out.
fn alone(problem: &Problem, chain: usize, effort: &SearchEffort<'_>) -> Result<Option<String>, SearchError> {
    let mut part = part(problem, &[chain]);
    part.check_numbers()?;
    let (needed, available) = (needs(problem, chain, effort), cores(problem));
    if needed > available {
        let more = if part.chains[0].copies == 0 { ": `copies: 1` runs it on one core" } else { "" };
        return Ok(Some(format!("it needs {needed} cores: there are {available}{more}")));
    }
    let least = std::mem::replace(&mut part.chains[0].least, 0.0);
    // Baselines ignore the minimum rate. The answer reports the objectives that a baseline misses.
    if least <= 0.0 || effort.algorithm != Algorithm::Exact {
        return Ok(None);
    }
    // In most cases, one of two simple placements is enough: one core for each function, or all copies at home.
    let at_home = Way::Whole(vec![part.chains[0].home; part.chains[0].copies]);
    let simple = baselines::node_first(&part).ok().flatten().map(|found| found.placement);
    let mut simple = simple.into_iter().chain([vec![at_home]]);
    if simple.any(|way| part.rates(&way).is_ok_and(|rates| rates[0].0 >= least)) || (effort.is_over)() {
        return Ok(None);
    }
    (part.chains[0].rate, part.chains[0].weight) = (f64::INFINITY, 1.0);
    let found = exact(&part, &Effort { nodes: ALONE_NODES, is_over: effort.is_over })?;
    // If the search found no placement in time, nothing is proved, and the chain is kept.
    let Some(best) = found.map(|found| found.bound) else { return Ok(None) };
    let [needed, best_shown] = [least, best].map(crate::format::rate);
    Ok((best < least).then(|| format!("its objectives need {needed}: alone it would forward at most {best_shown}")))
}

/// Searches for a placement of the chains `kept` with the selected method. `may_reject` lets the exact search reject
/// chains. `None` if no placement was found.
fn solve(
    problem: &Problem,
    kept: &[usize],
    effort: &SearchEffort<'_>,
    may_reject: bool,
) -> Result<Option<Solved>, SearchError> {
    let part = part(problem, kept);
    let method = effort.algorithm.name();
    let listed = |digits: usize| {
        let count = (part.domains.len() as f64).powf(digits as f64);
        if count > MOST_LISTED { Err(SearchError::TooMany { method, count }) } else { Ok(()) }
    };
    // True if the method has tried every placement.
    let mut is_whole = false;
    let found = match effort.algorithm {
        Algorithm::Exact => return certified(&part, kept, effort, may_reject),
        Algorithm::Octans => {
            listed(part.chains.len())?;
            baselines::octans(&part, effort.is_over)?
        }
        Algorithm::NodeBalancing => baselines::node_balancing(&part)?,
        Algorithm::NodeFirst => baselines::node_first(&part)?,
        Algorithm::Random => {
            let mut state = effort.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            baselines::random(&part, &mut |end| {
                // Xorshift (Marsaglia 2003).
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                ((state >> 11) % end.max(1) as u64) as usize
            })?
        }
        Algorithm::BruteForce => {
            listed(part.chains.iter().map(|chain| chain.functions.len()).sum())?;
            let (found, has_all) = baselines::brute_force(&part, effort.is_over)?;
            is_whole = has_all;
            found
        }
    };
    // Enumeration ignores copies and minimum rates, so it is a proof only if no chain has them.
    let is_all = part.chains.iter().all(|chain| chain.copies == 0 && chain.least <= 0.0);
    let bound = |value| (is_whole && is_all).then_some(value);
    Ok(found.map(|Found { placement, value }| Solved { placement, value, bound: bound(value), ..Solved::default() }))
}

/// Runs the exact search, and checks its certificate independently. The arguments and the result are the same as for
/// [`solve`], except that `part` has only the chains `kept`.
fn certified(
    part: &Problem,
    kept: &[usize],
    effort: &SearchEffort<'_>,
    may_reject: bool,
) -> Result<Option<Solved>, SearchError> {
    let now: Vec<Option<Way>> = match &effort.from {
        Some(from) => kept.iter().map(|chain| from.ways.get(*chain).cloned().flatten()).collect(),
        None => Vec::new(),
    };
    let from = effort.from.map(|from| From { ways: &now, most: from.most });
    let objective = match effort.objective {
        Objective::Cores => forebay_models::placement::Objective::Cores,
        Objective::Served | Objective::Sum => forebay_models::placement::Objective::Rates,
    };
    let wanted = Wanted { objective, from, may_reject };
    let found = exact_for(part, &wanted, &Effort { nodes: u64::MAX, is_over: effort.is_over })?;
    let Some(certificate) = found else { return Ok(None) };
    let checked = Some(check(part, &wanted, &certificate)?);
    let sign = if effort.objective == Objective::Cores { -1.0 } else { 1.0 };
    let Certificate { placement, value, bound, nodes } = certificate;
    Ok(Some(Solved { placement, value: sign * value, bound: Some(sign * bound), nodes: Some(nodes), checked }))
}

#[cfg(test)]
mod tests;

//! The search for a placement: which method, which objective, and which chains are rejected because they do not fit.

mod fewest;

use forebay_models::placement::baselines::{self, Found};
use forebay_models::placement::{Effort, Placement, Problem, ProblemError, exact};

use crate::problem::Objective;

/// How a placement is searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Branch and bound, with a certificate.
    Exact,
    /// The paper's heuristic.
    Octans,
    /// Functions one after the other on the domain with the least share of its cores in use.
    NodeBalancing,
    /// Functions one after the other on the home domain, then on others.
    NodeFirst,
    /// Functions one after the other on any free core.
    Random,
    /// Every placement.
    BruteForce,
}

/// What the search may take.
#[derive(Clone, Copy)]
pub struct SearchEffort<'t> {
    /// The method.
    pub algorithm: Algorithm,
    /// What is looked for.
    pub objective: Objective,
    /// Everything random derives from it.
    pub seed: u64,
    /// Whether the time is over; it is called now and then.
    pub is_over: &'t dyn Fn() -> bool,
}

/// What the search has found.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The chains that are placed, by number.
    pub kept: Vec<usize>,
    /// By chain that is kept: its placement.
    pub placement: Placement,
    /// What it is worth: the sum over chains, or the number of cores.
    pub value: f64,
    /// What no placement exceeds, or of cores: no placement needs fewer. `None` where the method proves nothing.
    pub bound: Option<f64>,
    /// Nodes of the search, where it counts them.
    pub nodes: Option<u64>,
    /// The chains that are not placed.
    pub rejected: Vec<Rejection>,
}

/// A chain that is not placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The chain, by number.
    pub chain: usize,
    /// Why it does not fit.
    pub reason: String,
}

/// Why there is no search.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SearchError {
    /// The problem is none.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The method would take too long.
    #[error(
        "--search {method}: {count:.0} placements: allowed are up to {MOST_LISTED}: `--search exact` needs no list"
    )]
    TooMany {
        /// The method.
        method: &'static str,
        /// How many placements it would look at.
        count: f64,
    },
    /// The method does not have this objective.
    #[error(
        "--search {0}: it does not look for the fewest cores: allowed with `--objective cores` is `--search exact`"
    )]
    Objective(&'static str),
}

/// The most placements that are looked at one by one.
const MOST_LISTED: f64 = 1e7;

impl Algorithm {
    /// Its name, as on the command line.
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
    /// Its name, as on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Sum => "sum",
            Self::Cores => "cores",
        }
    }
}

/// A placement of some chains.
struct Solved {
    placement: Placement,
    value: f64,
    bound: Option<f64>,
    nodes: Option<u64>,
}

/// Searches for a placement. Chains that do not fit are rejected: first those that do not fit alone, then, until the
/// rest fits, those of the least weight, the last of equal ones first.
///
/// # Errors
/// [`SearchError`].
pub fn search(problem: &Problem, effort: &SearchEffort<'_>) -> Result<Outcome, SearchError> {
    if effort.objective == Objective::Cores && effort.algorithm != Algorithm::Exact {
        return Err(SearchError::Objective(effort.algorithm.name()));
    }
    let mut rejected = Vec::new();
    let mut kept: Vec<usize> = Vec::new();
    for chain in 0..problem.chains.len() {
        match alone(problem, chain, effort)? {
            None => kept.push(chain),
            Some(reason) => rejected.push(Rejection { chain, reason }),
        }
    }
    let there: usize = problem.domains.iter().map(|domain| domain.cores).sum();
    let needs = |chain: usize| {
        let chain = &problem.chains[chain];
        if effort.algorithm == Algorithm::Exact { chain.fewest_cores() } else { chain.functions.len() }
    };
    let lightest = |kept: &[usize]| {
        let weight = |at: &usize| problem.chains[kept[*at]].weight;
        (0..kept.len()).rev().min_by(|a, b| weight(a).total_cmp(&weight(b)))
    };
    while kept.iter().map(|chain| needs(*chain)).sum::<usize>() > there
        && let Some(at) = lightest(&kept)
    {
        let chain = kept.remove(at);
        let others: usize = kept.iter().map(|chain| needs(*chain)).sum();
        let reason =
            format!("it needs {} cores: chains of more weight leave {}", needs(chain), there.saturating_sub(others));
        rejected.push(Rejection { chain, reason });
    }
    loop {
        if kept.is_empty() {
            rejected.sort_by_key(|rejection| rejection.chain);
            let (placement, value) = (Vec::new(), 0.0);
            return Ok(Outcome { kept, placement, value, bound: None, nodes: None, rejected });
        }
        let part = part(problem, &kept);
        if let Some(Solved { placement, value, bound, nodes }) = solve(&part, effort)? {
            rejected.sort_by_key(|rejection| rejection.chain);
            return Ok(Outcome { kept, placement, value, bound, nodes, rejected });
        }
        let Some(at) = lightest(&kept) else { continue };
        let reason = if (effort.is_over)() {
            "no placement of all chains was found in time (`--limit TIME`)"
        } else {
            "no placement beside the chains of more weight serves the rates that objectives need"
        };
        rejected.push(Rejection { chain: kept.remove(at), reason: reason.to_owned() });
    }
}

fn part(problem: &Problem, kept: &[usize]) -> Problem {
    let chains = kept.iter().map(|chain| problem.chains[*chain].clone()).collect();
    Problem { domains: problem.domains.clone(), chains }
}

/// Why a chain does not fit on the server by itself.
fn alone(problem: &Problem, chain: usize, effort: &SearchEffort<'_>) -> Result<Option<String>, SearchError> {
    let mut part = part(problem, &[chain]);
    let there: usize = part.domains.iter().map(|domain| domain.cores).sum();
    let least = std::mem::replace(&mut part.chains[0].least, 0.0);
    if effort.algorithm != Algorithm::Exact {
        part.chains[0].copies = 0;
    }
    let needed = part.chains[0].fewest_cores();
    if needed > there {
        let more = if part.chains[0].copies == 0 { ": `copies: 1` runs it on one core" } else { "" };
        return Ok(Some(format!("it needs {needed} cores: there are {there}{more}")));
    }
    // Baselines know no least rate; the answer reports what they miss.
    if least <= 0.0 || effort.algorithm != Algorithm::Exact {
        part.check()?;
        return Ok(None);
    }
    part.chains[0].rate = f64::INFINITY;
    part.chains[0].weight = 1.0;
    let found = exact(&part, &Effort { nodes: u64::MAX, is_over: effort.is_over })?;
    let best = found.map_or(0.0, |found| found.bound);
    let reason = format!(
        "its objectives need {}: alone it would forward {}",
        crate::format::rate(least),
        crate::format::rate(best)
    );
    Ok((best < least).then_some(reason))
}

fn solve(problem: &Problem, effort: &SearchEffort<'_>) -> Result<Option<Solved>, SearchError> {
    let functions: usize = problem.chains.iter().map(|chain| chain.functions.len()).sum();
    let listed = |digits: usize| {
        let count = (problem.domains.len() as f64).powf(digits as f64);
        let method = effort.algorithm.name();
        if count > MOST_LISTED { Err(SearchError::TooMany { method, count }) } else { Ok(()) }
    };
    let found = match effort.algorithm {
        Algorithm::Exact if effort.objective == Objective::Cores => return fewest::fewest(problem, effort),
        Algorithm::Exact => {
            let found = exact(problem, &Effort { nodes: u64::MAX, is_over: effort.is_over })?;
            return Ok(found.map(|found| Solved {
                placement: found.placement,
                value: found.value,
                bound: Some(found.bound),
                nodes: Some(found.nodes),
            }));
        }
        Algorithm::Octans => {
            listed(problem.chains.len())?;
            baselines::octans(problem)?
        }
        Algorithm::NodeBalancing => baselines::node_balancing(problem)?,
        Algorithm::NodeFirst => baselines::node_first(problem)?,
        Algorithm::Random => {
            let mut state = effort.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            baselines::random(problem, &mut |end| {
                // Xorshift (Marsaglia 2003).
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                ((state >> 11) % end.max(1) as u64) as usize
            })?
        }
        Algorithm::BruteForce => {
            listed(functions)?;
            baselines::brute_force(problem)?
        }
    };
    let bound = |value: f64| (effort.algorithm == Algorithm::BruteForce).then_some(value);
    Ok(found.map(|Found { placement, value }| Solved { placement, value, bound: bound(value), nodes: None }))
}

#[cfg(test)]
mod tests;

//! The search for a placement: which method, which objective, and which chains are rejected because they do not fit.

mod headroom;
mod nearby;

use forebay_models::placement::baselines::{self, Found};
use forebay_models::placement::{
    Certificate, Checked, Effort, From, Placement, Problem, ProblemError, Refuted, Wanted, Way, check, exact, exact_for,
};

use crate::problem::Objective;

pub use headroom::search_with_headroom;
pub use nearby::search_nearby;

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
    /// By chain, how it runs now, and how many functions may move; `None`: nothing runs.
    pub from: Option<From<'t>>,
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
    /// What an independent routine says of the bound; `None` where there is none.
    pub checked: Option<Checked>,
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
        "--search {method}: {} placements: allowed are up to {MOST_LISTED:.0}: `--search exact` needs no list",
        if *count < 1e15 { format!("{count:.0}") } else { "more than 1e15".to_owned() }
    )]
    TooMany {
        /// The method.
        method: &'static str,
        /// How many placements it would look at.
        count: f64,
    },
    /// The method cannot do this.
    #[error("--search {method}: it {what}: allowed is `--search exact`")]
    Method {
        /// The method.
        method: &'static str,
        /// What it cannot do.
        what: &'static str,
    },
    /// The search is at fault: report it.
    #[error("a fault of the search: {0}")]
    Refuted(#[from] Refuted),
}

/// The most nodes of the search that shows how much a chain forwards alone.
const ALONE_NODES: u64 = 10_000;
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

/// A placement of the chains that are kept.
#[derive(Default)]
struct Solved {
    placement: Placement,
    value: f64,
    bound: Option<f64>,
    nodes: Option<u64>,
    checked: Option<Checked>,
}

/// Searches for a placement. Chains that do not fit are rejected: those that do not fit alone, then those whose absence
/// costs least. With the fewest cores, and by searches other than [`Algorithm::Exact`], these are the chains of the
/// least weight, the last of equal ones first.
///
/// # Errors
/// [`SearchError`].
pub fn search(problem: &Problem, effort: &SearchEffort<'_>) -> Result<Outcome, SearchError> {
    let (is_exact, method) = (effort.algorithm == Algorithm::Exact, effort.algorithm.name());
    if !is_exact && effort.objective == Objective::Cores {
        return Err(SearchError::Method { method, what: "does not look for the fewest cores" });
    }
    if !is_exact && effort.from.is_some() {
        return Err(SearchError::Method { method, what: "does not bound moves" });
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
                    "the best placement that was found in time (`--limit TIME`) is without it".to_owned()
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

/// Why a chain does not fit beside others that leave so many cores.
fn beside(needed: usize, free: usize, effort: &SearchEffort<'_>) -> String {
    if needed > free {
        let cores = if needed == 1 { "core" } else { "cores" };
        format!("it needs {needed} {cores}: the other chains leave {free}")
    } else if let Some(From { most, .. }) = effort.from {
        format!("no placement that `--moves {most}` allows keeps all objectives")
    } else {
        "no placement beside the other chains keeps all objectives".to_owned()
    }
}

fn cores(problem: &Problem) -> usize {
    problem.domains.iter().map(|domain| domain.cores).sum()
}

/// The cores that a chain takes at least. Baselines do not run chains on one core.
fn needs(problem: &Problem, chain: usize, effort: &SearchEffort<'_>) -> usize {
    let chain = &problem.chains[chain];
    if effort.algorithm == Algorithm::Exact { chain.fewest_cores() } else { chain.functions.len() }
}

fn fits(problem: &Problem, kept: &[usize], effort: &SearchEffort<'_>) -> bool {
    kept.iter().map(|chain| needs(problem, *chain, effort)).sum::<usize>() <= cores(problem)
}

fn part(problem: &Problem, kept: &[usize]) -> Problem {
    let chains = kept.iter().map(|chain| problem.chains[*chain].clone()).collect();
    Problem { domains: problem.domains.clone(), chains }
}

/// Why a chain does not fit on the server by itself.
fn alone(problem: &Problem, chain: usize, effort: &SearchEffort<'_>) -> Result<Option<String>, SearchError> {
    let mut part = part(problem, &[chain]);
    part.check_numbers()?;
    let (needed, there) = (needs(problem, chain, effort), cores(problem));
    if needed > there {
        let more = if part.chains[0].copies == 0 { ": `copies: 1` runs it on one core" } else { "" };
        return Ok(Some(format!("it needs {needed} cores: there are {there}{more}")));
    }
    let least = std::mem::replace(&mut part.chains[0].least, 0.0);
    // Baselines know no least rate; the answer reports what they miss.
    if least <= 0.0 || effort.algorithm != Algorithm::Exact {
        return Ok(None);
    }
    // One core for each function, or all copies at home, is mostly enough.
    let at_home = Way::Whole(vec![part.chains[0].home; part.chains[0].copies]);
    let simple = baselines::node_first(&part).ok().flatten().map(|found| found.placement);
    let mut simple = simple.into_iter().chain([vec![at_home]]);
    if simple.any(|way| part.rates(&way).is_ok_and(|rates| rates[0].0 >= least)) || (effort.is_over)() {
        return Ok(None);
    }
    (part.chains[0].rate, part.chains[0].weight) = (f64::INFINITY, 1.0);
    let found = exact(&part, &Effort { nodes: ALONE_NODES, is_over: effort.is_over })?;
    // Nothing is proved of a chain for which there was no time.
    let Some(best) = found.map(|found| found.bound) else { return Ok(None) };
    let [needed, best_shown] = [least, best].map(crate::format::rate);
    Ok((best < least).then(|| format!("its objectives need {needed}: alone it would forward at most {best_shown}")))
}

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
    // It looks at no copies and at no least rate.
    let is_all = part.chains.iter().all(|chain| chain.copies == 0 && chain.least <= 0.0);
    let bound = |value| (is_whole && is_all).then_some(value);
    Ok(found.map(|Found { placement, value }| Solved { placement, value, bound: bound(value), ..Solved::default() }))
}

/// The exact search's placement, whose certificate another routine checks.
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

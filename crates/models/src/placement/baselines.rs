//! The methods of other systems: Octans' heuristic (its algorithm 1) and the placements that it was compared with.
//!
//! All of them give each function its own core, and value a placement by the formulas ([`Problem::rates`]).
//!
//! Known defects of the methods are kept, because the methods are compared as published. [`octans`] finds no placement
//! if some chain does not fit on any domain as a whole. It never moves a function away from its home domain, and
//! considers a chain's rate only when it values a placement. The other methods do not consider interference.

use std::collections::HashSet;

use super::model::{Placement, Problem, ProblemError, Way};

/// A placement with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The placement.
    pub placement: Placement,
    /// The sum of the values of its chains.
    pub value: f64,
}

/// The largest number of placements that [`octans`] examines.
pub const MOST_PLACEMENTS: usize = 1_000_000;

/// Octans' heuristic. It examines every placement of whole chains (the paper's "initial placement"). From each of them,
/// depth first, it moves a part of a chain to the home domain: the functions from the first remote function to the
/// slowest remote function, both included.
///
/// The paper does not define whether the split point moves; here it does. If the last part of a chain is still remote,
/// a part of it may be moved again. A placement that was examined before is skipped, which does not change the result.
/// The search stops after [`MOST_PLACEMENTS`], or when `is_over` returns true and a placement was found. Returns `None`
/// if no placement of whole chains has enough cores.
///
/// # Errors
/// [`ProblemError`]: the problem is invalid.
pub fn octans(problem: &Problem, is_over: &dyn Fn() -> bool) -> Result<Option<Found>, ProblemError> {
    problem.check()?;
    let mut search = Octans { problem, is_over, seen: HashSet::new(), best: None };
    let mut at: Vec<usize> = vec![0; problem.chains.len()];
    loop {
        let wholes: Vec<Vec<usize>> =
            problem.chains.iter().zip(&at).map(|(chain, domain)| vec![*domain; chain.functions.len()]).collect();
        search.visit(wholes);
        // The next combination of domains.
        let Some(next) = at.iter().rposition(|domain| domain + 1 < problem.domains.len()) else { break };
        at[next] += 1;
        at[next + 1..].fill(0);
        if search.seen.len() >= MOST_PLACEMENTS || search.best.is_some() && is_over() {
            break;
        }
    }
    Ok(search.best)
}

/// The state of Octans' heuristic.
struct Octans<'p> {
    problem: &'p Problem,
    is_over: &'p dyn Fn() -> bool,
    /// The placements that were examined: the domains of each chain's functions.
    seen: HashSet<Vec<Vec<usize>>>,
    best: Option<Found>,
}

impl Octans<'_> {
    /// Examines a placement, then each placement that one move makes from it.
    fn visit(&mut self, domains: Vec<Vec<usize>>) {
        let is_over = || self.best.is_some() && (self.is_over)();
        if self.seen.len() >= MOST_PLACEMENTS || self.seen.contains(&domains) || is_over() {
            return;
        }
        let Some(valued) = Valued::of(self.problem, &domains) else { return };
        if self.best.as_ref().is_none_or(|best| valued.found.value > best.value) {
            self.best = Some(valued.found);
        }
        self.seen.insert(domains.clone());
        for (chain, rates) in valued.rates.iter().enumerate() {
            let home = self.problem.chains[chain].home;
            let Some(first) = domains[chain].iter().position(|domain| *domain != home) else { continue };
            let remote = first..domains[chain].len();
            let Some(slowest) = remote.min_by(|&a, &b| rates[a].total_cmp(&rates[b])) else { continue };
            let mut moved = domains.clone();
            moved[chain][first..=slowest].fill(home);
            self.visit(moved);
        }
    }
}

/// A placement with the rate of each function.
struct Valued {
    found: Found,
    /// By chain: the packets per second of each function.
    rates: Vec<Vec<f64>>,
}

impl Valued {
    /// Values a placement with a core for each function. `None` if there are too few cores.
    fn of(problem: &Problem, domains: &[Vec<usize>]) -> Option<Self> {
        let placement: Placement = domains.iter().cloned().map(Way::Split).collect();
        let rates = problem.function_rates(&placement).ok()?;
        let slowest = rates.iter().map(|rates| rates.iter().copied().fold(f64::INFINITY, f64::min));
        let value = slowest.zip(&problem.chains).map(|(rate, chain)| chain.value(rate)).sum();
        Some(Self { found: Found { placement, value }, rates })
    }
}

/// Places each function on the domain with the smallest share of used cores. Of several such domains, the first is
/// used. Returns `None` if there are too few cores.
///
/// # Errors
/// [`ProblemError`]: the problem is invalid.
pub fn node_balancing(problem: &Problem) -> Result<Option<Found>, ProblemError> {
    one_by_one(problem, |free, _| {
        let share = |at: usize| free[at] as f64 / problem.domains[at].cores.max(1) as f64;
        (0..free.len()).filter(|at| free[*at] > 0).max_by(|&a, &b| share(a).total_cmp(&share(b)).then(b.cmp(&a)))
    })
}

/// Places each function on the chain's home domain. If this domain has no free core, the first other domain with a free
/// core is used. Returns `None` if there are too few cores.
///
/// # Errors
/// [`ProblemError`]: the problem is invalid.
pub fn node_first(problem: &Problem) -> Result<Option<Found>, ProblemError> {
    one_by_one(problem, |free, home| std::iter::once(home).chain(0..free.len()).find(|at| free[*at] > 0))
}

/// Places each function on a random free core. `random` returns a number below its argument. Returns `None` if there
/// are too few cores.
///
/// # Errors
/// [`ProblemError`]: the problem is invalid.
pub fn random(problem: &Problem, random: &mut dyn FnMut(usize) -> usize) -> Result<Option<Found>, ProblemError> {
    one_by_one(problem, |free, _| {
        let all: usize = free.iter().sum();
        let mut number = if all > 0 { random(all) } else { 0 };
        free.iter().position(|cores| {
            let is_chosen = number < *cores;
            number = number.saturating_sub(*cores);
            is_chosen
        })
    })
}

/// Values every placement, `domains ^ functions` of them. Returns the best placement, and true if every placement was
/// valued. If `is_over` returns true and a placement was found, the search ends and the second value is `false`.
///
/// # Errors
/// [`ProblemError`]: the problem is invalid.
pub fn brute_force(problem: &Problem, is_over: &dyn Fn() -> bool) -> Result<(Option<Found>, bool), ProblemError> {
    problem.check()?;
    let mut domains: Vec<Vec<usize>> = problem.chains.iter().map(|chain| vec![0; chain.functions.len()]).collect();
    let mut best: Option<Found> = None;
    loop {
        if let Some(Valued { found, .. }) = Valued::of(problem, &domains)
            && best.as_ref().is_none_or(|best| found.value > best.value)
        {
            best = Some(found);
        }
        let mut digits = domains.iter_mut().rev().flat_map(|chain| chain.iter_mut().rev());
        let raised = digits.find_map(|digit| {
            *digit = (*digit + 1) % problem.domains.len();
            (*digit > 0).then_some(())
        });
        let has_all = raised.is_none();
        if has_all || best.is_some() && is_over() {
            return Ok((best, has_all));
        }
    }
}

/// Places each function on the domain that `choose` returns for the free cores and the chain's home.
fn one_by_one(
    problem: &Problem,
    mut choose: impl FnMut(&[usize], usize) -> Option<usize>,
) -> Result<Option<Found>, ProblemError> {
    problem.check()?;
    let mut free: Vec<_> = problem.domains.iter().map(|domain| domain.cores).collect();
    let mut domains = Vec::new();
    for chain in &problem.chains {
        let mut own = Vec::new();
        for _ in &chain.functions {
            let Some(domain) = choose(&free, chain.home) else { return Ok(None) };
            free[domain] -= 1;
            own.push(domain);
        }
        domains.push(own);
    }
    Ok(Valued::of(problem, &domains).map(|valued| valued.found))
}

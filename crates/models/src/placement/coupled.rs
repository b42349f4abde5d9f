//! Calculates rates and contention together: a function that waits for the slowest function of its chain uses less of
//! the shared resources.
//!
//! In the formulas, each function has the demand `1/x`, as if it never waited. A function that could forward φ packets
//! per second, and gets only r packets per second, makes the share `r/φ` of its accesses. So demands depend on rates,
//! and rates depend on demands. The solution is a fixed point, which is approached by damped iteration. Convergence is
//! not guaranteed, so the residual is part of the result. A certificate of the exact search applies to the model with
//! fixed demands, not to this model.

use super::model::{Placement, Problem, ProblemError, Way};

/// The parameters of the iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Damping {
    /// The fraction of the difference between the present and the next demands by which each round changes the demands;
    /// above 0 and at most 1.
    pub step: f64,
    /// The largest number of rounds.
    pub rounds: usize,
    /// The residual at which the iteration ends.
    pub residual: f64,
}

impl Default for Damping {
    fn default() -> Self {
        Self { step: 0.5, rounds: 200, residual: 1e-6 }
    }
}

/// Consistent rates and contention of a placement.
#[derive(Clone, Debug, PartialEq)]
pub struct Coupled {
    /// The packets per second that each chain forwards; at most the chain's offered [rate](super::Chain::rate).
    pub rates: Vec<f64>,
    /// The packets per second that each function, or each copy of a whole chain, could forward.
    pub functions: Vec<Vec<f64>>,
    /// The largest relative change of a rate in the last round.
    pub residual: f64,
    /// The number of rounds.
    pub rounds: usize,
    /// True if the residual was reached.
    pub is_converged: bool,
}

/// The least share of its demand that a function uses. It keeps the metric finite.
const LEAST_USE: f64 = 1e-9;

/// Calculates consistent rates and contention of a placement.
///
/// # Errors
/// [`ProblemError`]: the problem or the placement is invalid.
pub fn coupled(problem: &Problem, placement: &Placement, damping: Damping) -> Result<Coupled, ProblemError> {
    problem.check()?;
    let mut scaled = problem.clone();
    let mut uses: Vec<Vec<f64>> = problem.chains.iter().map(|chain| vec![1.0; chain.functions.len()]).collect();
    let mut before: Option<Vec<f64>> = None;
    let mut found =
        Coupled { rates: Vec::new(), functions: Vec::new(), residual: f64::INFINITY, rounds: 0, is_converged: false };
    while found.rounds < damping.rounds.max(1) && !found.is_converged {
        for (chain, uses) in uses.iter().enumerate() {
            for (function, part) in uses.iter().enumerate() {
                let metric = problem.chains[chain].functions[function].metric;
                scaled.chains[chain].functions[function].metric = metric / part;
            }
        }
        found.functions = scaled.function_rates(placement)?;
        let slowest = |rates: &Vec<f64>| rates.iter().copied().fold(f64::INFINITY, f64::min);
        let chains = problem.chains.iter().zip(&found.functions);
        found.rates = chains.map(|(chain, rates)| slowest(rates).min(chain.rate)).collect();
        let change = |(now, before): (&f64, &f64)| (now - before).abs() / now.abs().max(f64::MIN_POSITIVE);
        found.residual = before
            .as_ref()
            .map_or(f64::INFINITY, |before| found.rates.iter().zip(before).map(change).fold(0.0, f64::max));
        found.rounds += 1;
        found.is_converged = found.residual <= damping.residual;
        before = Some(found.rates.clone());
        for (chain, uses) in uses.iter_mut().enumerate() {
            for (function, part) in uses.iter_mut().enumerate() {
                // All functions in copies of the whole chain have the rate of the slowest copy.
                let rates = &found.functions[chain];
                let could = match placement[chain] {
                    Way::Split(_) => rates.get(function).copied().unwrap_or(0.0),
                    Way::Whole(_) => slowest(rates),
                };
                let next = if could > 0.0 { (found.rates[chain] / could).clamp(LEAST_USE, 1.0) } else { 1.0 };
                *part += damping.step * (next - *part);
            }
        }
    }
    Ok(found)
}

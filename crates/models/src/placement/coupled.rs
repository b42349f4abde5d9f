//! Rates and contention together: a function that waits for its chain's slowest one competes for less.
//!
//! The formulas take each function's demand as `1/x`, as if it never waited. A function that could forward φ packets a
//! second and gets r of them makes the part `r/φ` of its accesses. So demands follow from rates, and rates from
//! demands: a fixed point. It is approached by damped iteration. Nothing guarantees that it is reached, so the residual
//! is part of the answer. A certificate of the exact search is about the fixed-rate model, not about this one.

use super::model::{Placement, Problem, ProblemError, Way};

/// How the fixed point is approached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Damping {
    /// The part of the way to the next demands that each round goes, above 0 to 1.
    pub step: f64,
    /// Rounds at most.
    pub rounds: usize,
    /// The residual at which it ends.
    pub residual: f64,
}

impl Default for Damping {
    fn default() -> Self {
        Self { step: 0.5, rounds: 200, residual: 1e-6 }
    }
}

/// Rates and contention of a placement that fit together.
#[derive(Clone, Debug, PartialEq)]
pub struct Coupled {
    /// By chain: packets a second that it forwards; its own rate where it gets no more.
    pub rates: Vec<f64>,
    /// By chain and function, or copy of the whole chain: the packets a second that it could forward.
    pub functions: Vec<Vec<f64>>,
    /// By how much a part rates changed in the last round, at most.
    pub residual: f64,
    /// Rounds that were made.
    pub rounds: usize,
    /// Whether the residual was reached.
    pub is_converged: bool,
}

/// The smallest part of its demand that a function has: its metric stays finite.
const LEAST_USE: f64 = 1e-9;

/// Computes rates and contention of a placement together.
///
/// # Errors
/// [`ProblemError`]: the problem or the placement is none.
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
                // Of copies of the whole chain, all functions have the rate of the slowest copy.
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

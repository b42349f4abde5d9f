//! Objectives and constraints of a placement. The default objective is the largest sum of the chains' values, without
//! constraints.

use super::model::{Problem, ProblemError, Way};

/// The objective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// Maximises the sum of the values of chains: `Σ weight · min(rate, φ)`.
    #[default]
    Rates,
    /// Minimises the number of cores on which every chain forwards its rate. The value is the negative number of cores.
    Cores,
}

/// The present placement, and the number of allowed moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct From<'w> {
    /// The present way of each chain. `None` for a new chain, whose placement is not a move.
    pub ways: &'w [Option<Way>],
    /// The largest number of functions, or copies of whole chains, that may move.
    pub most: usize,
}

/// The objective and the constraints.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wanted<'w> {
    /// The objective.
    pub objective: Objective,
    /// The present placement, if there is one.
    pub from: Option<From<'w>>,
    /// True if chains may be rejected, for example because there are too few cores or because they cannot keep their
    /// least rates. A rejected chain has the value 0 and the way [`Way::Whole`] without domains.
    pub may_reject: bool,
}

impl Wanted<'_> {
    /// Returns the present way of a chain.
    pub(super) fn now(&self, chain: usize) -> Option<&Way> {
        self.from.as_ref().and_then(|from| from.ways.get(chain)?.as_ref())
    }

    /// Checks the problem, and that the objective and the present placement fit it.
    pub(super) fn check(&self, problem: &Problem) -> Result<(), ProblemError> {
        problem.check_numbers()?;
        if !self.may_reject {
            problem.check()?;
        }
        if self.objective == Objective::Cores {
            for (chain, value) in problem.chains.iter().map(|chain| chain.rate).enumerate() {
                if value.is_infinite() {
                    let allowed = "a finite number if cores are minimised";
                    return Err(ProblemError::Number { chain, what: "rate", value, allowed });
                }
            }
            if self.may_reject {
                return Err(ProblemError::Placement("chains cannot be rejected if cores are minimised".into()));
            }
        }
        let Some(from) = &self.from else { return Ok(()) };
        if from.ways.len() != problem.chains.len() {
            let why =
                format!("the present placement has {} chains instead of {}", from.ways.len(), problem.chains.len());
            return Err(ProblemError::Placement(why));
        }
        for (at, (way, chain)) in from.ways.iter().zip(&problem.chains).enumerate() {
            let is_of_it = match way {
                Some(Way::Split(domains)) => domains.len() == chain.functions.len(),
                Some(Way::Whole(domains)) => domains.len() <= chain.copies,
                None => true,
            };
            let has_domains = way.iter().all(|way| way.domains().iter().all(|domain| *domain < problem.domains.len()));
            if !is_of_it || !has_domains {
                return Err(ProblemError::Placement(format!(
                    "chain {at} has another number of functions or copies, or unknown domains, in the present placement"
                )));
            }
        }
        Ok(())
    }
}

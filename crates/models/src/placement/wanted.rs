//! What is looked for besides the largest sum of what chains are worth.

use super::model::{Problem, ProblemError, Way};

/// What is to be large, or few.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// The sum of what chains are worth: `Σ weight · min(rate, φ)`, the most.
    #[default]
    Rates,
    /// The cores on which every chain forwards its rate, the fewest. The value is their negative number.
    Cores,
}

/// The chains as they run, and how much of it may change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct From<'w> {
    /// By chain: how it runs; `None` for a new one, whose placement is no move.
    pub ways: &'w [Option<Way>],
    /// So many functions, or copies of whole chains, may run elsewhere than they do.
    pub most: usize,
}

/// What is looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wanted<'w> {
    /// What is to be large.
    pub objective: Objective,
    /// What runs already.
    pub from: Option<From<'w>>,
    /// Chains may be left out, and are worth 0 then: those for which there are too few cores, or that could not keep
    /// their least rate. Their way is [`Way::Whole`] with no domain.
    pub may_reject: bool,
}

impl Wanted<'_> {
    pub(super) fn now(&self, chain: usize) -> Option<&Way> {
        self.from.as_ref().and_then(|from| from.ways.get(chain)?.as_ref())
    }

    pub(super) fn check(&self, problem: &Problem) -> Result<(), ProblemError> {
        problem.check_numbers()?;
        if !self.may_reject {
            problem.check()?;
        }
        if self.objective == Objective::Cores {
            for (chain, value) in problem.chains.iter().map(|chain| chain.rate).enumerate() {
                if value.is_infinite() {
                    let allowed = "a finite number, where the fewest cores are looked for";
                    return Err(ProblemError::Number { chain, what: "rate", value, allowed });
                }
            }
            if self.may_reject {
                return Err(ProblemError::Placement("no chain can be left out of the fewest cores".into()));
            }
        }
        let Some(from) = &self.from else { return Ok(()) };
        if from.ways.len() != problem.chains.len() {
            let why = format!("what runs now has {} chains, not {}", from.ways.len(), problem.chains.len());
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
                    "chain {at} runs with other functions, copies or domains"
                )));
            }
        }
        Ok(())
    }
}

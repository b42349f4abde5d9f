//! Checks a certificate without the search that produced it.
//!
//! The placement is valued by the formulas, function by function. Small problems are then solved by [another exact
//! method](super::counting). For larger problems, other methods look for a placement above the bound. If they find
//! none, this is not a proof, and the result is [`Checked::NotRefuted`].

use super::baselines::{Found, node_balancing, node_first};
use super::counting::by_counts;
use super::exact::Certificate;
use super::model::{Problem, ProblemError, Way};
use super::wanted::{Objective, Wanted};

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// Another exact method found the same optimum, or a value within the bound.
    Proved,
    /// No placement above the bound was found. The value is the number of placements that were tried.
    NotRefuted(usize),
}

/// The reason why a certificate is wrong. Each reason means that the search has a defect.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refuted {
    /// The problem or the placement is invalid.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The formulas give another value.
    #[error("the placement is worth {formulas} by the formulas: the certificate says {certificate}")]
    Value {
        /// The value by the formulas.
        formulas: f64,
        /// The value in the certificate.
        certificate: f64,
    },
    /// A chain is below its least rate, or was rejected although the problem requires it.
    #[error("chain {chain} forwards {rate} packets a second: at least {least} are required")]
    Least {
        /// The chain, from 0.
        chain: usize,
        /// Its rate.
        rate: f64,
        /// Its least rate; with [`Objective::Cores`], the larger of its least and its offered rate.
        least: f64,
    },
    /// More functions change their domains than allowed.
    #[error("{moved} functions move: at most {most} are allowed")]
    Moves {
        /// The number of functions that move.
        moved: usize,
        /// The allowed number.
        most: usize,
    },
    /// A placement is above the bound.
    #[error("{by} finds a placement that is worth {value}: the bound is {bound}")]
    Bound {
        /// The name of the method that found it.
        by: &'static str,
        /// The value that it found.
        value: f64,
        /// The bound in the certificate.
        bound: f64,
    },
    /// The value in the certificate is equal to the bound, so that its placement would be the best one, but another
    /// placement is better. Or the value in the certificate is above the best value.
    #[error("the best placement is worth {best}: the certificate says that {value} is the most")]
    Best {
        /// The best value by another exact method.
        best: f64,
        /// The value in the certificate.
        value: f64,
    },
}

/// The relative difference below which values count as equal.
const SAME: f64 = 1e-8;
/// The largest number of steps of the other exact method.
const MOST_STEPS: u64 = 200_000;

/// Checks a certificate for the given objective and constraints.
///
/// # Errors
/// [`Refuted`]: the certificate is wrong.
pub fn check(problem: &Problem, wanted: &Wanted<'_>, certificate: &Certificate) -> Result<Checked, Refuted> {
    wanted.check(problem)?;
    let Certificate { placement, value, bound, .. } = certificate;
    let own = worth(problem, wanted, placement)?;
    if !is_same(own, *value) {
        return Err(Refuted::Value { formulas: own, certificate: *value });
    }
    let above = |by: &'static str, value: f64| {
        let is_above = value > bound + SAME * bound.abs();
        if is_above { Err(Refuted::Bound { by, value, bound: *bound }) } else { Ok(()) }
    };
    above("the search itself", *value)?;
    let is_plain = wanted.objective == Objective::Rates && wanted.from.is_none() && !wanted.may_reject;
    if is_plain && let Some(Found { value: best, .. }) = by_counts(problem, MOST_STEPS)? {
        above("the dynamic program over counts", best)?;
        let says_best = is_same(*value, *bound);
        if best < value * (1.0 - SAME) || says_best && !is_same(best, *value) {
            return Err(Refuted::Best { best, value: *value });
        }
        return Ok(Checked::Proved);
    }
    let mut tried = 0;
    if is_plain {
        for (by, found) in [("node balancing", node_balancing(problem)?), ("node first", node_first(problem)?)] {
            let Some(found) = found else { continue };
            // Baselines do not consider least rates.
            if let Ok(value) = worth(problem, wanted, &found.placement) {
                tried += 1;
                above(by, value)?;
            }
        }
    }
    for other in neighbours(problem, placement) {
        if let Ok(value) = worth(problem, wanted, &other) {
            tried += 1;
            above("moving a function", value)?;
        }
    }
    Ok(Checked::NotRefuted(tried))
}

/// Returns true if two values differ only by rounding.
fn is_same(a: f64, b: f64) -> bool {
    (a - b).abs() <= SAME * a.abs().max(b.abs())
}

/// Returns the value of a placement by the formulas, or an error if it violates a constraint.
fn worth(problem: &Problem, wanted: &Wanted<'_>, placement: &[Way]) -> Result<f64, Refuted> {
    let rates = problem.rates(placement)?;
    for (at, ((rate, _), chain)) in rates.iter().zip(&problem.chains).enumerate() {
        let is_left_out = placement[at].domains().is_empty();
        let least = match wanted.objective {
            Objective::Rates => chain.least,
            Objective::Cores => chain.least.max(chain.rate),
        };
        let may_be = if is_left_out { wanted.may_reject } else { *rate >= least * (1.0 - SAME) };
        if !may_be {
            return Err(Refuted::Least { chain: at, rate: *rate, least });
        }
    }
    if let Some(from) = &wanted.from {
        let moved = |(now, next): (&Option<Way>, &Way)| now.as_ref().map_or(0, |now| now.moved(next));
        let moved = from.ways.iter().zip(placement).map(moved).sum();
        if moved > from.most {
            return Err(Refuted::Moves { moved, most: from.most });
        }
    }
    Ok(match wanted.objective {
        Objective::Rates => rates.iter().zip(&problem.chains).map(|((rate, _), chain)| chain.value(*rate)).sum(),
        Objective::Cores => -(placement.iter().map(|way| way.domains().len()).sum::<usize>() as f64),
    })
}

/// Returns placements in which one function, or one copy of a chain, is on another domain.
fn neighbours<'p>(problem: &'p Problem, placement: &'p [Way]) -> impl Iterator<Item = Vec<Way>> + 'p {
    /// The largest number of placements. If there are more, every n-th placement is used.
    const MOST: usize = 2_000;
    /// The largest number of pairs of functions in all placements. Time is needed for each pair, so this limits the
    /// time.
    const PAIRS: usize = 100_000_000;
    let cores = placement.iter().map(|way| way.domains().len()).sum::<usize>().max(1);
    let most = (PAIRS / (cores * cores)).clamp(1, MOST);
    let seats =
        placement.iter().enumerate().flat_map(|(chain, way)| (0..way.domains().len()).map(move |at| (chain, at)));
    let moves = seats.flat_map(|seat| (0..problem.domains.len()).map(move |domain| (seat, domain)));
    let step = (cores * problem.domains.len()).div_ceil(most).max(1);
    moves.filter(|((chain, at), domain)| placement[*chain].domains()[*at] != *domain).step_by(step).map(
        |((chain, at), domain)| {
            let mut next = placement.to_vec();
            match &mut next[chain] {
                Way::Split(domains) | Way::Whole(domains) => domains[at] = domain,
            }
            next
        },
    )
}

//! The fewest cores that serve all demand.
//!
//! A chain takes a core for each function, or as many cores as it has copies. These choices are tried in the order of
//! the cores that they take together; for each the exact search finds whether a placement serves all rates. The first
//! that does takes the fewest cores.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use forebay_models::placement::{Chain, Effort, Problem, Way, exact};

use super::{SearchEffort, SearchError, Solved};

/// How a chain may run: on so many cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// A core for each function.
    Pipelined(usize),
    /// Copies of the whole chain, at most so many.
    Fused(usize),
}

impl Choice {
    fn cores(self) -> usize {
        match self {
            Self::Pipelined(cores) | Self::Fused(cores) => cores,
        }
    }

    /// The chain so that the search has this choice alone.
    fn of(self, chain: &Chain) -> Chain {
        match self {
            Self::Pipelined(_) => Chain { copies: 0, ..chain.clone() },
            Self::Fused(copies) => Chain { functions: vec![chain.whole()], copies, ..chain.clone() },
        }
    }

    /// The placement of the chain itself.
    fn back(self, way: Way) -> Way {
        match (self, way) {
            (Self::Fused(_), Way::Split(domains)) => Way::Whole(domains),
            (_, way) => way,
        }
    }
}

pub(super) fn fewest(problem: &Problem, effort: &SearchEffort<'_>) -> Result<Option<Solved>, SearchError> {
    problem.check()?;
    let there: usize = problem.domains.iter().map(|domain| domain.cores).sum();
    let mut nodes = 0;
    let mut feasible = |chains: Vec<Chain>| {
        let part = Problem { domains: problem.domains.clone(), chains };
        if part.check().is_err() {
            return Ok(None);
        }
        let found = exact(&part, &Effort { nodes: u64::MAX, is_over: effort.is_over })?;
        nodes += found.as_ref().map_or(0, |found| found.nodes);
        Ok::<_, SearchError>(found)
    };
    let mut choices = Vec::new();
    for chain in &problem.chains {
        let all = (1..=chain.copies).map(Choice::Fused).chain([Choice::Pipelined(chain.functions.len())]);
        let mut own = Vec::new();
        for choice in all.filter(|choice| choice.cores() <= there) {
            if feasible(vec![choice.of(chain)])?.is_some() {
                own.push(choice);
            }
        }
        own.sort_by_key(|choice| choice.cores());
        if own.is_empty() {
            return Ok(None);
        }
        choices.push(own);
    }
    let cores = |at: &[usize]| choices.iter().zip(at).map(|(own, at)| own[*at].cores()).sum::<usize>();
    let start = vec![0; choices.len()];
    // Each combination is reached in one way: by raising its choices from the first chain to the last.
    let mut open = BinaryHeap::from([Reverse((cores(&start), start, 0))]);
    let mut unproved: Option<usize> = None;
    while let Some(Reverse((count, at, from))) = open.pop() {
        if count > there {
            break;
        }
        let chains = problem.chains.iter().zip(&choices).zip(&at).map(|((chain, own), at)| own[*at].of(chain));
        if let Some(found) = feasible(chains.collect())? {
            let ways = found.placement.into_iter().zip(&choices).zip(&at);
            let placement: Vec<_> = ways.map(|((way, own), at)| own[*at].back(way)).collect();
            let value = placement.iter().map(|way| way.domains().len()).sum::<usize>() as f64;
            let bound = unproved.map_or(value, |least| (least as f64).min(value));
            return Ok(Some(Solved { placement, value, bound: Some(bound), nodes: Some(nodes) }));
        }
        if (effort.is_over)() {
            // The searches from here on end at once: the first placement that they meet is taken.
            unproved.get_or_insert(count);
        }
        for chain in from..choices.len() {
            if at[chain] + 1 < choices[chain].len() {
                let mut next = at.clone();
                next[chain] += 1;
                open.push(Reverse((cores(&next), next, chain)));
            }
        }
        if open.len() > MOST_OPEN {
            break;
        }
    }
    Ok(None)
}

/// The most combinations that wait.
const MOST_OPEN: usize = 1_000_000;

//! Of the placements with the best value, selects one in which chains could forward more than arrives now.

use forebay_models::placement::{Chain, Effort, Problem, Wanted, exact_for};

use super::{Algorithm, Outcome, SearchEffort, SearchError, part, search};
use crate::problem::Objective;

/// Two values are equal if their relative difference is at most this.
const SAME: f64 = 1e-9;
/// Headroom above this multiple of a chain's rate has no value.
const ROOM: f64 = 2.0;
/// The maximum number of nodes of the second search.
const NODES: u64 = 200_000;

/// Searches like [`search`]. If the result is proved to be optimal, this function then selects, of the placements with
/// the same value, the one with the largest `Σ weight · min(2 rate, predicted)`. If all chains forward all packets that
/// arrive, this leaves room for errors of the rates and of the models. The second search applies only to
/// [`Algorithm::Exact`] and [`Objective::Served`], without rejected chains and without limited moves.
///
/// # Errors
/// Returns the errors of [`search`].
pub fn search_with_headroom(problem: &Problem, effort: &SearchEffort<'_>) -> Result<Outcome, SearchError> {
    let mut best = search(problem, effort)?;
    let is_proved = best.bound.is_some_and(|bound| bound <= best.value * (1.0 + SAME));
    let is_apt = effort.algorithm == Algorithm::Exact && effort.objective == Objective::Served && effort.from.is_none();
    // The reasons for rejections belong to the first placement, and would not match a second one.
    if !is_apt || !is_proved || best.kept.is_empty() || !best.rejected.is_empty() {
        return Ok(best);
    }
    let own = part(problem, &best.kept);
    let rates = own.rates(&best.placement)?;
    let roomy = |(chain, (rate, _)): (&Chain, (f64, usize))| {
        let least = chain.least.max(chain.rate.min(rate) * (1.0 - SAME));
        Chain { rate: chain.rate * ROOM, least, ..chain.clone() }
    };
    let roomy = Problem { domains: own.domains.clone(), chains: own.chains.iter().zip(rates).map(roomy).collect() };
    let found = exact_for(&roomy, &Wanted::default(), &Effort { nodes: NODES, is_over: effort.is_over })?;
    if let Some(found) = found {
        best.nodes = best.nodes.map(|nodes| nodes + found.nodes);
        let rates = own.rates(&found.placement)?;
        let value: f64 = own.chains.iter().zip(rates).map(|(chain, (rate, _))| chain.value(rate)).sum();
        let own_room: f64 =
            roomy.chains.iter().zip(roomy.rates(&best.placement)?).map(|(it, (rate, _))| it.value(rate)).sum();
        if value >= best.value * (1.0 - SAME) && found.value > own_room * (1.0 + SAME) {
            best.placement = found.placement;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use forebay_models::placement::{Domain, Function, Limits, Sensitivity, Shape, Way};

    use super::*;

    #[test]
    fn of_equal_placements_the_one_with_headroom_is_chosen() {
        let limits = Limits { cache: 4.0, memory: 8.0, link: 4.0 };
        let drop = Sensitivity { cache: 0.2, memory: 0.2, constant: 0.0 };
        let (rates, shape) = (vec![1.4e6, 4e6], Shape::Linear);
        let function = Function { rates, metric: 1.0, local: drop, remote: drop, shape };
        let chain =
            |weight| Chain { functions: vec![function.clone(); 2], home: 0, rate: 1e6, weight, least: 0.0, copies: 0 };
        let domain = |class| Domain { cores: 4, class, limits };
        let problem = Problem { domains: vec![domain(0), domain(1)], chains: vec![chain(1.0), chain(3.0)] };
        let effort = SearchEffort {
            algorithm: Algorithm::Exact,
            objective: Objective::Served,
            seed: 1,
            is_over: &|| false,
            from: None,
        };
        let plain = search(&problem, &effort).expect("a placement");
        let roomy = search_with_headroom(&problem, &effort).expect("a placement");
        assert_eq!((plain.value, plain.bound), (roomy.value, roomy.bound));
        let room = |placement: &[Way]| -> f64 {
            let rates = problem.rates(placement).expect("a placement");
            problem.chains.iter().zip(rates).map(|(chain, (rate, _))| chain.weight * rate.min(2.0 * chain.rate)).sum()
        };
        // On the home domain chains forward little more than arrives, and on the other domain more than twice as much.
        assert!(room(&roomy.placement) > 1.2 * room(&plain.placement), "{:?} {:?}", plain.placement, roomy.placement);
        assert!((room(&roomy.placement) / 8e6 - 1.0).abs() < 1e-9, "{:?}", roomy.placement);
    }
}

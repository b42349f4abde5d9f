//! Max-min shares of random resources: no share can be improved, promises are kept, and the order does not matter.

use forebay_models::max_min::{Demand, Shares, share};
use proptest::prelude::*;

const RESOURCES: usize = 3;
/// The largest relative error by rounding.
const ROUNDING: f64 = 1e-7;

fn demand() -> impl Strategy<Value = Demand> {
    let uses = prop::collection::btree_map(0..RESOURCES, 0.01..10.0f64, 1..=RESOURCES);
    // Promises may be infinite: then the offer is promised.
    let promised = prop_oneof![4 => Just(0.0), 8 => 0.0..2.0f64, 1 => 1e9..1e300f64, 1 => Just(f64::INFINITY)];
    (0.5..3.0f64, promised, 0.01..5.0f64, uses).prop_map(|(weight, promised, offered, uses)| Demand {
        weight,
        promised,
        offered,
        uses: uses.into_iter().collect(),
    })
}

fn case() -> impl Strategy<Value = (Vec<Demand>, Vec<f64>)> {
    (prop::collection::vec(demand(), 1..7), prop::collection::vec(0.1..20.0f64, RESOURCES))
}

fn used(demands: &[Demand], rates: &[f64], resource: usize) -> f64 {
    let of = |demand: &Demand| demand.uses.iter().filter(|(of, _)| *of == resource).map(|(_, each)| *each).sum::<f64>();
    demands.iter().zip(rates).map(|(demand, rate)| of(demand) * rate).sum()
}

/// True if rates use at most `part` of each resource.
fn fits(demands: &[Demand], rates: &[f64], capacities: &[f64], part: f64) -> bool {
    (0..RESOURCES).all(|resource| used(demands, rates, resource) <= capacities[resource] * part)
}

/// Returns the rate of each demand divided by its weight, sorted. Of two lists, the fairer one is greater at the first
/// difference.
fn sorted(demands: &[Demand], rates: &[f64]) -> Vec<f64> {
    let mut levels: Vec<f64> = demands.iter().zip(rates).map(|(demand, rate)| rate / demand.weight).collect();
    levels.sort_by(f64::total_cmp);
    levels
}

proptest! {
    #[test]
    fn shares_are_feasible_and_promises_come_first((demands, capacities) in case()) {
        let Shares { rates, promised } = share(&demands, &capacities);
        prop_assert!(fits(&demands, &rates, &capacities, 1.0 + ROUNDING));
        let full = |resource: usize, rates: &[f64]| {
            used(&demands, rates, resource) >= capacities[resource] * (1.0 - ROUNDING)
        };
        let wanted = |at: usize| demands[at].promised.min(demands[at].offered);
        for (at, demand) in demands.iter().enumerate() {
            prop_assert!(rates[at] >= promised[at] && rates[at] <= demand.offered);
            // A promise is broken only if promises alone use up a resource.
            let broken = promised[at] < wanted(at) * (1.0 - ROUNDING);
            prop_assert!(!broken || demand.uses.iter().any(|(resource, _)| full(*resource, &promised)));
            // However large other promises are, no demand on the same resources gets a larger part of its promise.
            let part = |at: usize| promised[at] / wanted(at).max(f64::MIN_POSITIVE);
            let uses = |at: usize| demands[at].uses.iter().map(|(resource, _)| *resource).collect::<Vec<_>>();
            let larger = |other: usize| wanted(other) > 0.0 && part(other) > part(at) * (1.0 + ROUNDING);
            prop_assert!(!broken || !(0..demands.len()).any(|other| uses(other) == uses(at) && larger(other)));
            // No capacity is wasted: a demand with less than its offer uses a resource that is used up.
            let short = rates[at] < demand.offered * (1.0 - ROUNDING);
            prop_assert!(!short || demand.uses.iter().any(|(resource, _)| full(*resource, &rates)));
        }
    }

    /// The max-min condition (Bertsekas and Gallager, section 6.5.2): a demand with less than its offer uses a resource
    /// that is used up, and there no demand with more than its promise has a higher level.
    #[test]
    fn every_limited_demand_has_a_bottleneck((demands, capacities) in case()) {
        let Shares { rates, promised } = share(&demands, &capacities);
        let level = |at: usize| rates[at] / demands[at].weight;
        for at in (0..demands.len()).filter(|at| rates[*at] < demands[*at].offered * (1.0 - ROUNDING)) {
            let is_bottleneck = |&(resource, _): &(usize, f64)| {
                let uses = |other: &usize| demands[*other].uses.iter().any(|(of, _)| *of == resource);
                let higher = |other: usize| {
                    level(other) > level(at) * (1.0 + ROUNDING) + 1e-12
                        && rates[other] > promised[other] * (1.0 + ROUNDING)
                };
                used(&demands, &rates, resource) >= capacities[resource] * (1.0 - ROUNDING)
                    && !(0..demands.len()).filter(uses).any(higher)
            };
            prop_assert!(demands[at].uses.iter().any(is_bottleneck), "demand {at}: {rates:?}");
        }
    }

    /// No other rates that keep the promises are fairer.
    #[test]
    fn no_random_shares_are_fairer(
        (demands, capacities) in case(), parts in prop::collection::vec(prop::collection::vec(0.0..1.0f64, 7), 20),
    ) {
        let Shares { rates, promised } = share(&demands, &capacities);
        let best = sorted(&demands, &rates);
        for parts in parts {
            let mut other: Vec<f64> = demands.iter().zip(&promised).zip(&parts)
                .map(|((demand, least), part)| least + (demand.offered - least).max(0.0) * part).collect();
            // Reduces the parts above promises until they fit.
            let mut scale = 1.0;
            while !fits(&demands, &other, &capacities, 1.0 - ROUNDING) && scale > 1e-9 {
                scale *= 0.8;
                other.iter_mut().zip(&promised).for_each(|(rate, least)| *rate = least + (*rate - least) * 0.8);
            }
            let differ = best.iter().zip(sorted(&demands, &other)).find(|(a, b)| (*a - b).abs() > 1e-6 * (1.0 + b));
            prop_assert!(differ.is_none_or(|(best, other)| *best > other), "{best:?} and {other:?}");
        }
    }

    #[test]
    fn order_does_not_matter((demands, capacities) in case(), by in 0..7usize) {
        let shares = share(&demands, &capacities);
        let mut turned = demands.clone();
        turned.rotate_left(by % demands.len());
        turned.reverse();
        let mut other = share(&turned, &capacities).rates;
        other.reverse();
        other.rotate_right(by % demands.len());
        for (rate, other) in shares.rates.iter().zip(other) {
            prop_assert!((rate - other).abs() <= ROUNDING * (1.0 + rate), "{:?}", shares.rates);
        }
    }
}

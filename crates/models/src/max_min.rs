//! Max-min fair sharing of several resources, with promised rates, when there is not enough for all demands.
//!
//! Progressive filling (Bertsekas and Gallager, *Data Networks*, section 6.5.2): all rates increase together, in
//! proportion to their weights. When a resource is used up, the rates of its users stop, and the others continue. The
//! result is max-min fair: if a rate increased, another rate that is not larger would have to decrease. Promises are
//! satisfied first and are part of the final rate, so each demand gets the larger of its promise and its fair share
//! ("maximum of MCR and max-min share", ATM Forum TM 4.1, annex I.3).

/// A demand for rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Its weight, above 0: shares are in proportion to it. 1 for equal shares.
    pub weight: f64,
    /// The promised rate.
    pub promised: f64,
    /// The rate that it could use.
    pub offered: f64,
    /// Indices of resources, each once, and the amount of each that one unit of rate uses.
    pub uses: Vec<(usize, f64)>,
}

/// The assigned rates.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares {
    /// The rate of each demand.
    pub rates: Vec<f64>,
    /// The promised part of each rate: the smaller of promise and offer. If a resource is too small for all of these
    /// parts, each demand on it gets the same fraction of its part.
    pub promised: Vec<f64>,
}

/// Shares resources among demands. `capacities` are by resource, each at least 0, in the unit of the amounts in
/// [`Demand::uses`].
#[must_use]
pub fn share(demands: &[Demand], capacities: &[f64]) -> Shares {
    let first = demands.iter().map(|demand| {
        let most = demand.promised.min(demand.offered).max(0.0);
        // A promise is reserved only up to the offer, because a promise may be infinite.
        Riser { weight: most.max(f64::MIN_POSITIVE), least: 0.0, most, uses: &demand.uses }
    });
    let promised = fill(&first.collect::<Vec<_>>(), capacities);
    let then = demands.iter().zip(&promised).map(|(demand, &least)| Riser {
        weight: demand.weight,
        least,
        most: demand.offered.max(least),
        uses: &demand.uses,
    });
    Shares { rates: fill(&then.collect::<Vec<_>>(), capacities), promised }
}

/// A rate that increases with the level, the common variable of progressive filling: `weight · level`, limited to
/// `least` and `most`.
struct Riser<'d> {
    weight: f64,
    least: f64,
    most: f64,
    /// Indices of resources, each with the amount that one unit of rate uses.
    uses: &'d [(usize, f64)],
}

impl Riser<'_> {
    /// Returns the rate at a level.
    fn at(&self, level: f64) -> f64 {
        (self.weight * level).clamp(self.least, self.most)
    }
}

/// Levels that differ by at most this fraction count as equal, because of rounding.
const SAME: f64 = 1e-12;

/// Increases all rates until each is at its `most` or needs a resource that is used up. Returns the rates.
fn fill(risers: &[Riser<'_>], capacities: &[f64]) -> Vec<f64> {
    let mut rates: Vec<Option<f64>> = vec![None; risers.len()];
    loop {
        let levels: Vec<f64> =
            (0..capacities.len()).map(|resource| level(risers, &rates, resource, capacities[resource])).collect();
        let lowest = levels.iter().copied().fold(f64::INFINITY, f64::min);
        if lowest.is_infinite() {
            let last = risers.iter().zip(rates);
            return last.map(|(riser, rate)| rate.unwrap_or(riser.most)).collect();
        }
        for (riser, rate) in risers.iter().zip(&mut rates).filter(|(_, rate)| rate.is_none()) {
            let used_up = |&(resource, each): &(usize, f64)| each > 0.0 && levels[resource] <= lowest * (1.0 + SAME);
            if riser.uses.iter().any(used_up) {
                *rate = Some(riser.at(lowest));
            }
        }
    }
}

/// Returns the level at which a resource is used up. Infinite if the resource is enough for all rates, or if no rate
/// that still increases uses it. `rates` are `None` while they increase.
fn level(risers: &[Riser<'_>], rates: &[Option<f64>], resource: usize, capacity: f64) -> f64 {
    let mut remaining = capacity;
    // The levels at which a rate begins or ends to increase, each with the change of the resource used per unit of
    // level.
    let mut bends = Vec::new();
    for (riser, rate) in risers.iter().zip(rates) {
        let each: f64 = riser.uses.iter().filter(|(of, _)| *of == resource).map(|(_, each)| *each).sum();
        if each <= 0.0 {
            continue;
        }
        remaining -= each * rate.unwrap_or(riser.least);
        if rate.is_none() {
            let slope = each * riser.weight;
            bends.push((riser.least / riser.weight, slope));
            bends.push((riser.most / riser.weight, -slope));
        }
    }
    if bends.is_empty() {
        return f64::INFINITY;
    }
    bends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut at, mut slope) = (bends[0].0, 0.0);
    for (bend, change) in bends {
        let takes = slope * (bend - at);
        if takes > remaining {
            // Because of rounding, promises may have used more than the capacity. Then no rate increases.
            return if remaining > 0.0 { at + remaining / slope } else { at };
        }
        (remaining, at, slope) = (remaining - takes, bend, slope + change);
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(promised: f64, offered: f64, each: f64) -> Demand {
        Demand { weight: 1.0, promised, offered, uses: vec![(0, each)] }
    }

    fn near(found: &[f64], wanted: &[f64]) {
        let off = found.iter().zip(wanted).map(|(found, wanted)| (found - wanted).abs()).fold(0.0, f64::max);
        assert!(found.len() == wanted.len() && off < 1e-9, "{found:?} instead of {wanted:?}");
    }

    #[test]
    fn every_demand_gets_its_offer_if_there_is_enough() {
        near(&share(&[demand(0.0, 3.0, 1.0), demand(9.0, 2.0, 1.0)], &[5.0]).rates, &[3.0, 2.0]);
    }

    #[test]
    fn without_promises_equal_rates_whatever_they_cost() {
        near(&share(&[demand(0.0, 9.0, 1.0), demand(0.0, 9.0, 2.0)], &[6.0]).rates, &[2.0, 2.0]);
        near(&share(&[demand(0.0, 1.0, 1.0), demand(0.0, 9.0, 2.0)], &[6.0]).rates, &[1.0, 2.5]);
    }

    #[test]
    fn promises_come_first_and_the_rest_is_shared() {
        let shares = share(&[demand(4.0, 9.0, 1.0), demand(0.0, 9.0, 1.0), demand(0.0, 0.5, 1.0)], &[6.0]);
        near(&shares.rates, &[4.0, 1.5, 0.5]);
        near(&shares.promised, &[4.0, 0.0, 0.0]);
        // A demand whose fair share exceeds its promise gets no more because of the promise.
        near(&share(&[demand(1.0, 9.0, 1.0), demand(0.0, 9.0, 1.0)], &[6.0]).rates, &[3.0, 3.0]);
    }

    #[test]
    fn too_many_promises_are_reduced_in_proportion() {
        near(
            &share(&[demand(8.0, 9.0, 1.0), demand(4.0, 9.0, 1.0), demand(0.0, 9.0, 1.0)], &[6.0]).rates,
            &[4.0, 2.0, 0.0],
        );
    }

    #[test]
    fn a_demand_limited_by_one_resource_leaves_the_other_resources() {
        let long = Demand { weight: 1.0, promised: 0.0, offered: 9.0, uses: vec![(0, 1.0), (1, 1.0)] };
        let own = |resource| Demand { uses: vec![(resource, 1.0)], ..long.clone() };
        near(&share(&[long.clone(), own(0), own(1)], &[2.0, 6.0]).rates, &[1.0, 1.0, 5.0]);
    }

    #[test]
    fn without_capacity_or_use_there_is_nothing_to_share() {
        near(&share(&[demand(1.0, 9.0, 1.0), demand(1.0, 9.0, 0.0)], &[0.0]).rates, &[0.0, 9.0]);
        near(&share(&[], &[1.0]).rates, &[]);
    }
}

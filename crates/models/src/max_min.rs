//! Max-min fair shares of several resources, with rates that are promised: who gets what where there is not enough for all.
//!
//! Progressive filling (Bertsekas and Gallager, *Data Networks*, section 6.5.2): all rates rise together, in proportion to their weights;
//! where a resource is used up, those that use it stay as they are, and the others go on. What comes out is max-min fair: nobody can
//! have more without somebody with no more having less. Promises are kept first, and then count as what is had already, so that
//! each gets the larger of its promise and its fair share ("maximum of MCR and max-min share", ATM Forum TM 4.1, annex I.3).

/// What somebody asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Shares are in proportion to this, above 0: 1 for one among equals.
    pub weight: f64,
    /// The rate that it is promised.
    pub promised: f64,
    /// The rate that it could use.
    pub offered: f64,
    /// Resources by number, and what one unit of rate takes of each; each once.
    pub uses: Vec<(usize, f64)>,
}

/// Who gets what.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares {
    /// By demand: its rate.
    pub rates: Vec<f64>,
    /// By demand: what of that was promised. Less than the promise, and than what is offered, only where a resource is too
    /// small for all promises: there each gets the same part of its own, or of what it offers if that is less.
    pub promised: Vec<f64>,
}

/// Shares resources of these capacities, each 0 or more.
#[must_use]
pub fn share(demands: &[Demand], capacities: &[f64]) -> Shares {
    let first = demands.iter().map(|demand| {
        let most = demand.promised.min(demand.offered).max(0.0);
        // What is promised beyond what is offered takes nothing from others, and may be without end.
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

/// A rate that rises with the level: `weight · level`, not below `least` and not above `most`.
struct Riser<'d> {
    weight: f64,
    least: f64,
    most: f64,
    uses: &'d [(usize, f64)],
}

impl Riser<'_> {
    fn at(&self, level: f64) -> f64 {
        (self.weight * level).clamp(self.least, self.most)
    }
}

/// Levels up to which a resource lasts differ by rounding where they are the same.
const SAME: f64 = 1e-12;

/// Lets all rise until each is at its most, or uses a resource that is used up.
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

/// The level up to which a resource lasts; infinite where it lasts for all, or where none rises that uses it.
fn level(risers: &[Riser<'_>], rates: &[Option<f64>], resource: usize, capacity: f64) -> f64 {
    let mut left = capacity;
    // By level at which it begins or ends to rise: by how much more of the resource a level takes from there on.
    let mut bends = Vec::new();
    for (riser, rate) in risers.iter().zip(rates) {
        let each: f64 = riser.uses.iter().filter(|(of, _)| *of == resource).map(|(_, each)| *each).sum();
        if each <= 0.0 {
            continue;
        }
        left -= each * rate.unwrap_or(riser.least);
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
        if takes > left {
            // By rounding, promises may have taken more than there is: then none rises at all.
            return if left > 0.0 { at + left / slope } else { at };
        }
        (left, at, slope) = (left - takes, bend, slope + change);
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
    fn what_there_is_enough_of_all_get() {
        near(&share(&[demand(0.0, 3.0, 1.0), demand(9.0, 2.0, 1.0)], &[5.0]).rates, &[3.0, 2.0]);
    }

    #[test]
    fn without_promises_equal_rates_whatever_they_cost() {
        near(&share(&[demand(0.0, 9.0, 1.0), demand(0.0, 9.0, 2.0)], &[6.0]).rates, &[2.0, 2.0]);
        near(&share(&[demand(0.0, 1.0, 1.0), demand(0.0, 9.0, 2.0)], &[6.0]).rates, &[1.0, 2.5]);
    }

    #[test]
    fn promises_come_first_and_what_is_left_is_shared() {
        let told = share(&[demand(4.0, 9.0, 1.0), demand(0.0, 9.0, 1.0), demand(0.0, 0.5, 1.0)], &[6.0]);
        near(&told.rates, &[4.0, 1.5, 0.5]);
        near(&told.promised, &[4.0, 0.0, 0.0]);
        // One that would get more than its promise anyway gets no more for it.
        near(&share(&[demand(1.0, 9.0, 1.0), demand(0.0, 9.0, 1.0)], &[6.0]).rates, &[3.0, 3.0]);
    }

    #[test]
    fn of_promises_that_are_too_many_each_gets_the_same_part() {
        near(
            &share(&[demand(8.0, 9.0, 1.0), demand(4.0, 9.0, 1.0), demand(0.0, 9.0, 1.0)], &[6.0]).rates,
            &[4.0, 2.0, 0.0],
        );
    }

    #[test]
    fn who_is_held_by_one_resource_leaves_the_others_to_others() {
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

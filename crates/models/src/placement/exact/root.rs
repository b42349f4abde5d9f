//! Calculates a bound of all placements, or of a slice of them, before any chain is placed.
//!
//! Each chain gets its best way as if it were alone, minus a price for its cores and for its load on the slice's
//! resource (a Lagrangian relaxation). Prices with a low bound are found by a subgradient method. Equal domains have
//! one price, so only one of several ways that differ in the numbering of equal domains is needed.

use super::{Level, Search, Space};
use crate::placement::model::Problem;
use crate::placement::options::{Kin, Listed};

/// The number of rounds for finding prices of cores.
const PRICING: usize = 24;
/// The number of slices into which all placements are divided, by the load of the home's cache.
const SLICES: usize = 10;
/// The number of further divisions of slices.
const MORE_SLICES: usize = 30;
/// The index in [`Search::prices`] of prices that are all 0.
pub(super) const FREE: usize = 0;
/// The index in [`Search::prices`] of the prices with a low bound at the root.
pub(super) const PRICED: usize = 1;

/// The placements whose load of one resource is in this range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    /// The index of the resource.
    pub(super) resource: usize,
    /// The least load.
    pub(super) least: f64,
    /// The largest load.
    pub(super) most: f64,
}

/// A slice that is not completely searched.
pub(super) struct OpenSlice {
    pub(super) slice: Slice,
    /// The prices with a low bound for this slice.
    pub(super) prices: Prices,
    /// An upper bound of the value of the placements that were not searched.
    pub(super) bound: f64,
}

/// The prices of cores and of load for the chains that are not placed yet. With suitable prices, these chains together
/// use no more than is available.
#[derive(Clone, Debug, Default)]
pub(super) struct Prices {
    /// The price of a core, by domain.
    pub(super) cores: Vec<f64>,
    /// The price of a unit of the slice's load.
    pub(super) load: f64,
    /// By kin: each way's bound, which is valid at all nodes, with the way's index; sorted by falling bound.
    pub(super) limits: Vec<Vec<(f64, usize)>>,
}

impl Prices {
    /// Returns a bound of the ways that are not listed. A negative price of load adds to the value of a way. Then the
    /// bound includes this gain for the whole demand of the chain.
    pub(super) fn ceiling(&self, listed: &Listed) -> f64 {
        listed.ceiling + (-self.load).max(0.0) * listed.demand
    }
}

impl Space {
    /// Returns the slice that contains all placements. Its resource is the cache of the domain that is the home of most
    /// chains.
    pub(super) fn slice(&self, problem: &Problem) -> Slice {
        let homes = |domain: usize| problem.chains.iter().filter(|chain| chain.home == domain).count();
        let resource = (0..problem.domains.len()).max_by_key(|&domain| homes(domain)).unwrap_or(0);
        let least = self.least[resource];
        // Sums in another order may differ in the last digit, so `most` could be less than `least`.
        Slice { resource, least, most: self.most[resource].max(least) }
    }
}

impl Search<'_> {
    /// Divides the present slice into slices of equal width, and returns them with their bounds. `bound` is a bound of
    /// the whole slice.
    pub(super) fn equal_slices(&mut self, bound: f64) -> Vec<OpenSlice> {
        let Slice { resource, least, most } = self.slice;
        let cut = |slice: usize| least + (most - least) * slice as f64 / SLICES as f64;
        let equal = (0..SLICES).map(|at| Slice { resource, least: cut(at), most: cut(at + 1) });
        equal.map(|slice| self.open(slice, bound)).collect()
    }

    /// Halves the slice with the highest bound, up to `MORE_SLICES` times. A narrower slice has a lower bound.
    pub(super) fn divide(&mut self, slices: &mut Vec<OpenSlice>) {
        let most = slices.len() + MORE_SLICES;
        while slices.len() < most && !self.is_over {
            let Some(at) = (0..slices.len()).max_by(|&a, &b| slices[a].bound.total_cmp(&slices[b].bound)) else {
                break;
            };
            let OpenSlice { slice, bound, .. } = slices.swap_remove(at);
            let middle = (slice.least + slice.most) / 2.0;
            slices.push(self.open(Slice { most: middle, ..slice }, bound));
            slices.push(self.open(Slice { least: middle, ..slice }, bound));
            self.look();
        }
    }

    /// Makes `slice` the present slice, and returns it with its prices and its bound, which is at most `bound`.
    fn open(&mut self, slice: Slice, bound: f64) -> OpenSlice {
        self.slice = slice;
        if self.is_over {
            return OpenSlice { slice, prices: self.prices[PRICED].clone(), bound };
        }
        let bound = self.price().map_or(f64::NEG_INFINITY, |own| own.min(bound));
        OpenSlice { slice, prices: self.prices[PRICED].clone(), bound }
    }

    /// Lists the largest value that each way can have in the present slice, in [`Prices::limits`]. Must be called
    /// before a slice is searched.
    pub(super) fn limit(&mut self, priced: usize) {
        let level = std::mem::take(&mut self.levels[0]);
        let mut scratch = level.loads.clone();
        let of = |kin: &Kin| {
            let ways = (0..kin.envelope.choices.len())
                .filter_map(|at| Some((self.way(&kin.envelope, at, &level, &self.prices[priced], &mut scratch)?, at)));
            let mut ways: Vec<_> = ways.collect();
            ways.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            ways
        };
        let limits = self.space.kin.iter().map(of).collect();
        self.prices[priced].limits = limits;
        self.levels[0] = level;
    }

    /// Finds prices with a low bound at the root, for the present slice, and returns this bound. `None` if a chain has
    /// no way. The price of a domain's cores increases as long as more cores are used than the domain has (a
    /// subgradient method for the Lagrangian bound).
    pub(super) fn price(&mut self) -> Option<f64> {
        let level = std::mem::take(&mut self.levels[0]);
        let (mut lowest, mut step) = (f64::INFINITY, 1.0);
        let mut prices = Prices { cores: vec![0.0; self.space.cores.len()], ..Prices::default() };
        let mut found = prices.clone();
        for _ in 0..=PRICING {
            let Some((bound, wanted, load)) = self.relax(&level, &prices) else { break };
            if bound < lowest {
                lowest = bound;
                found = prices.clone();
            } else {
                step *= 0.6;
            }
            let excess: Vec<_> = self.excess(&wanted, &prices);
            // The load is divided by a tenth of its maximum, so that its weight is similar to that of cores.
            let unit = (self.space.most[self.slice.resource] / 10.0).max(f64::MIN_POSITIVE);
            let Slice { least, most, .. } = self.slice;
            let over = (load - load.clamp(least, most)) / unit;
            let over = if over == 0.0 && prices.load != 0.0 {
                (load - if prices.load > 0.0 { most } else { least }) / unit
            } else {
                over
            };
            if self.is_over {
                break;
            }
            let norm: f64 = excess.iter().map(|excess| excess * excess).sum::<f64>() + over * over;
            if norm == 0.0 || !self.promises(lowest) {
                break;
            }
            let target = if self.best.is_finite() { self.best } else { 0.9 * lowest };
            let by = step * (bound - target) / norm;
            prices.cores.iter_mut().zip(&excess).for_each(|(price, excess)| *price = (*price + by * excess).max(0.0));
            prices.load += by * over / unit;
        }
        self.prices[PRICED] = found;
        self.levels[0] = level;
        (lowest < f64::INFINITY).then_some(lowest)
    }

    /// Returns, for each domain, the number of used cores minus the number of available cores. Negative values become 0
    /// if the price of the cores is 0. Equal domains get the mean of their values.
    fn excess(&self, wanted: &[usize], prices: &Prices) -> Vec<f64> {
        let classes = &self.space.classes;
        let of = |at: usize| {
            let like = || (0..wanted.len()).filter(move |other| classes[*other] == classes[at]);
            let excess: f64 = like().map(|at| wanted[at] as f64 - self.space.cores[at] as f64).sum();
            let excess = excess / like().count() as f64;
            if excess > 0.0 || prices.cores[at] > 0.0 { excess } else { 0.0 }
        };
        (0..wanted.len()).map(of).collect()
    }

    /// Returns the bound without any placed chain, and the use of the ways that give this bound: the cores by domain,
    /// and the load of the slice's resource. `None` if a chain has no way.
    fn relax(&mut self, level: &Level, prices: &Prices) -> Option<(f64, Vec<usize>, f64)> {
        self.nodes += 1;
        self.since_look += self.firsts.iter().map(Vec::len).sum::<usize>();
        if self.since_look as u64 >= super::LOOK_EVERY {
            self.since_look = 0;
            self.is_over |= (self.effort.is_over)();
        }
        let mut scratch = level.loads.clone();
        let mut bound = self.paid(level, prices);
        let mut wanted = vec![0; self.space.cores.len()];
        let mut load = level.loads[self.slice.resource];
        for (kin, firsts) in self.space.kin.iter().zip(&self.firsts) {
            let listed = &kin.envelope;
            let ways = firsts.iter().filter_map(|&at| Some((self.way(listed, at, level, prices, &mut scratch)?, at)));
            let best = ways.max_by(|a, b| a.0.total_cmp(&b.0));
            let members = kin.members.len();
            bound += listed.limited(best.map(|(value, _)| value), prices.ceiling(listed))? * members as f64;
            let Some((_, at)) = best else { continue };
            listed.choices[at].used.iter().for_each(|(domain, cores)| wanted[*domain] += cores * members);
            let own = listed.choices[at].loads.iter().find(|(resource, _)| *resource == self.slice.resource);
            load += own.map_or(0.0, |(_, load)| load * members as f64);
        }
        Some((bound, wanted, load))
    }

    /// Returns the part of the bound that does not depend on the ways of remaining chains: the price of the free cores
    /// and of the remaining load. If the load is below the slice, the loss of placed chains up to the slice's lower end
    /// is added, because `way` subtracts it although the chains' values already include it.
    pub(super) fn paid(&self, level: &Level, prices: &Prices) -> f64 {
        let cores: f64 = prices.cores.iter().zip(&level.cores).map(|(price, cores)| price * *cores as f64).sum();
        let Slice { resource, least, most } = self.slice;
        let load = level.loads[resource];
        let end = if prices.load > 0.0 { most } else { least };
        cores + prices.load * (end - load) + level.slopes[resource] * (least - load).max(0.0)
    }
}

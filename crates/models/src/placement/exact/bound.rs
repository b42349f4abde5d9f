//! Calculates the bound of a node: of all placements that begin with the placed chains.

use super::root::{FREE, PRICED, Prices, Slice};
use super::{Level, SAME, Search};
use crate::placement::options::Listed;

/// If at most this number of chains remains to be placed, cores and loads have no price. With a price, these few chains
/// would pay for resources that no other chain needs.
const UNPRICED: usize = 2;

impl Search<'_> {
    /// Returns the bound of a way at a node: its value at the node's loads and its own load, minus the loss of placed
    /// chains and the price of its cores and load. `None` if there are too few cores, if the load exceeds the slice, or
    /// if the chain is below its least rate. `scratch` must be equal to the loads of `level`. It is changed during the
    /// call, and equal to them again afterwards.
    #[inline]
    pub(super) fn way(
        &self,
        listed: &Listed,
        at: usize,
        level: &Level,
        prices: &Prices,
        scratch: &mut [f64],
    ) -> Option<f64> {
        let choice = &listed.choices[at];
        let mut taken = 0.0;
        for &(domain, cores) in &choice.used {
            if cores > level.cores[domain] {
                return None;
            }
            taken += prices.cores[domain] * cores as f64;
        }
        for &(resource, load) in &choice.loads {
            scratch[resource] += load;
            taken += level.slopes[resource] * load;
        }
        let Slice { resource, least, most } = self.slice;
        let load = scratch[resource];
        taken += prices.load * (load - level.loads[resource]);
        scratch[resource] = load.max(least);
        let value = if load > most * (1.0 + SAME) { None } else { listed.value(choice, scratch) };
        scratch[resource] = level.loads[resource];
        for &(resource, _) in &choice.loads {
            scratch[resource] = level.loads[resource];
        }
        value.map(|(value, _)| value - taken)
    }

    /// Returns the index of the prices to use at this depth.
    pub(super) fn priced(&self, depth: usize) -> usize {
        if depth + UNPRICED >= self.order.len() { FREE } else { PRICED }
    }

    /// Returns an upper bound of value minus price, as in [`way`](Self::way), for the ways of a chain that are not
    /// listed. The bound is valid at all nodes, and has no meaning if all ways are listed.
    pub(super) fn ceiling(&self, listed: &Listed, priced: usize) -> f64 {
        self.prices[priced].ceiling(listed)
    }

    /// Returns the bound of the best way of a kin at a node. `None` if there is no way.
    fn best_way(&mut self, kin: usize, level: &Level, priced: usize, scratch: &mut [f64]) -> Option<f64> {
        let listed = &self.space.kin[kin].envelope;
        let mut best: Option<f64> = None;
        for &(limit, at) in &self.prices[priced].limits[kin] {
            if best.is_some_and(|best| limit <= best) {
                break;
            }
            self.work += 1;
            let value = self.way(listed, at, level, &self.prices[priced], scratch);
            if value > best {
                best = value;
            }
        }
        listed.limited(best, self.ceiling(listed, priced))
    }

    /// Returns the bound of the node at this depth, and lists its ways. `None` if a chain has no way.
    pub(super) fn bound(&mut self, depth: usize, chosen: &[usize]) -> Option<f64> {
        self.nodes += 1;
        let mut level = std::mem::take(&mut self.levels[depth]);
        let mut scratch = std::mem::take(&mut level.scratch);
        scratch.clone_from(&level.loads);
        let found = self.bound_of(depth, chosen, &mut level, &mut scratch);
        level.scratch = scratch;
        self.levels[depth] = level;
        found
    }

    /// Calculates [`bound`](Self::bound) for a level that was taken out of `levels`.
    fn bound_of(&mut self, depth: usize, chosen: &[usize], level: &mut Level, scratch: &mut [f64]) -> Option<f64> {
        level.ways.clear();
        let Some(&next) = self.order.get(depth) else { return Some(level.worth) };
        let priced = self.priced(depth);
        let mut rest = level.worth + self.paid(level, &self.prices[priced]);
        let mut last: Option<(usize, f64)> = None;
        for index in depth + 1..self.order.len() {
            let kin = self.order[index];
            let value = match last {
                Some((of, value)) if of == kin => value,
                _ => self.best_way(kin, level, priced, scratch)?,
            };
            last = Some((kin, value));
            rest += value;
        }
        level.rest = rest;
        let is_like_before = depth > 0 && self.order[depth - 1] == next;
        let first = if is_like_before { chosen[depth - 1] } else { 0 };
        let listed = &self.space.kin[next].envelope;
        for &(limit, at) in &self.prices[priced].limits[next] {
            if !self.promises(rest + limit) {
                break;
            }
            self.work += 1;
            if at >= first
                && self.is_first_of_its_like(&listed.choices[at].firsts, level)
                && let Some(value) = self.way(listed, at, level, &self.prices[priced], scratch)
                && self.promises(rest + value)
            {
                level.ways.push((rest + value, at));
            }
        }
        level.ways.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let most = level.ways.first().map_or(f64::NEG_INFINITY, |(most, _)| *most);
        Some(if listed.is_complete { most } else { most.max(rest + self.ceiling(listed, priced)) })
    }

    /// Returns true if a way uses the unused domains of each class by ascending number. The domains of a class are
    /// equal, so one order is enough. `firsts` are the way's domains, in the order in which the way first uses them.
    pub(super) fn is_first_of_its_like(&self, firsts: &[usize], level: &Level) -> bool {
        let classes = &self.space.classes;
        firsts.iter().enumerate().all(|(index, &domain)| {
            let is_new = |domain: usize| !level.is_used[domain] && !firsts[..index].contains(&domain);
            !is_new(domain) || !(0..domain).any(|other| classes[other] == classes[domain] && is_new(other))
        })
    }
}

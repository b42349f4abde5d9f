//! The routes as given: an ordered set from which any part of the compressed table can be rebuilt.
//!
//! The compressed table does not record which prefix an entry comes from, so the removal of a route must find the
//! covering route elsewhere. In the order of [`Prefix`], all prefixes that a prefix covers follow it without a gap, and
//! its covering prefix is found by a few steps backwards. A B-tree supports both, and is built from sorted routes in
//! linear time.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::NextHopError;
use super::changes::Changes;
use super::fib::{MAX_NEXT_HOP, UNCOVERED};
use super::prefix::{Address, Prefix};

/// The route set: prefixes with their next hops.
#[derive(Clone)]
pub struct Rib<A: Address> {
    routes: BTreeMap<Prefix<A>, u32>,
}

impl<A: Address> Default for Rib<A> {
    fn default() -> Self {
        Self { routes: BTreeMap::new() }
    }
}

impl<A: Address> Rib<A> {
    /// Creates the set of these routes, in any order. If several have the same prefix, the last one counts.
    ///
    /// # Errors
    /// [`NextHopError`] if a next hop is above [`MAX_NEXT_HOP`].
    pub fn new(routes: Vec<(Prefix<A>, u32)>) -> Result<Self, NextHopError> {
        routes.iter().try_for_each(|&(_, next_hop)| check(next_hop))?;
        Ok(Self { routes: routes.into_iter().collect() })
    }

    /// Returns the number of routes.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Returns true if there are no routes.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Returns the next hop of exactly this prefix.
    pub fn get(&self, prefix: Prefix<A>) -> Option<u32> {
        self.routes.get(&prefix).copied()
    }

    /// Iterates over all routes, ordered by prefix.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix<A>, u32)> {
        self.routes.iter().map(|(&prefix, &next_hop)| (prefix, next_hop))
    }

    /// Iterates over the routes after `prefix`, which need not be a route.
    pub fn after(&self, prefix: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, u32)> {
        let range = self.routes.range((Bound::Excluded(prefix), Bound::Unbounded));
        range.map(|(&prefix, &next_hop)| (prefix, next_hop))
    }

    /// Adds a route or changes its next hop. Returns the previous next hop, and appends the change of the compressed
    /// table to `changes`.
    ///
    /// # Errors
    /// [`NextHopError`] if the next hop is above [`MAX_NEXT_HOP`]. The set does not change then.
    pub fn insert(
        &mut self,
        prefix: Prefix<A>,
        next_hop: u32,
        changes: &mut Changes<A>,
    ) -> Result<Option<u32>, NextHopError> {
        check(next_hop)?;
        let previous = self.routes.insert(prefix, next_hop);
        if previous != Some(next_hop) {
            self.record(prefix, next_hop + 1, changes);
        }
        Ok(previous)
    }

    /// Removes a route and returns its next hop. Its addresses then use the covering route. Appends the change of the
    /// compressed table to `changes`.
    pub fn remove(&mut self, prefix: Prefix<A>, changes: &mut Changes<A>) -> Option<u32> {
        let previous = self.routes.remove(&prefix)?;
        // The compressed table stores the default route separately. So if only the default route covers the prefix, the
        // prefix gets `UNCOVERED`, not the default route's next hop.
        let covering = self.above(prefix).filter(|(above, _)| *above != Prefix::DEFAULT);
        self.record(prefix, covering.map_or(UNCOVERED, |(_, next_hop)| next_hop + 1), changes);
        Some(previous)
    }

    /// Appends a change to `changes`: the prefix with its new value, and the routes below it. A change of the default
    /// route contains no other routes, because the compressed table stores the default route separately.
    fn record(&self, prefix: Prefix<A>, value: u32, changes: &mut Changes<A>) {
        if prefix == Prefix::DEFAULT {
            return changes.push(prefix, value, std::iter::empty());
        }
        changes.push(prefix, value, self.below(prefix).map(|(prefix, next_hop)| (prefix, next_hop + 1)));
    }

    /// Iterates, in order, over the routes that `prefix` covers, without `prefix` itself.
    pub(super) fn below(&self, prefix: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, u32)> {
        let last = Prefix::truncated(prefix.last(), A::BITS);
        // A host prefix is its own last address. Its range is empty, and `BTreeMap::range` panics on such excluded
        // bounds.
        let range = (prefix != last).then(|| self.routes.range((Bound::Excluded(prefix), Bound::Included(last))));
        range.into_iter().flatten().map(|(&prefix, &next_hop)| (prefix, next_hop))
    }

    /// Returns the longest route that covers `prefix`, without `prefix` itself, and its next hop.
    ///
    /// The nearest route before `prefix` either covers `prefix`, or shares only the first c bits with it. In the second
    /// case, any route that covers `prefix` also comes before the nearest route in the order, and covers both prefixes.
    /// Its length is then at most c. The search continues at the first c bits of `prefix`. As c decreases with every
    /// step, the search takes at most `prefix.length()` steps, in practice two or three.
    fn above(&self, prefix: Prefix<A>) -> Option<(Prefix<A>, u32)> {
        let mut nearest = self.routes.range(..prefix).next_back();
        loop {
            let (&found, &next_hop) = nearest?;
            if found.covers(prefix) {
                return Some((found, next_hop));
            }
            let shared = found.first().common_bits(prefix.first());
            nearest = self.routes.range(..=Prefix::truncated(prefix.first(), shared)).next_back();
        }
    }

    /// Returns the estimated memory in bytes. The standard library's B-tree keeps 6 to 11 pairs in a leaf of 11, with
    /// about 16 bytes of links. Leaves built from sorted routes are full. Inner nodes add a tenth.
    pub fn memory_bytes(&self) -> usize {
        let leaf = 11 * (size_of::<Prefix<A>>() + size_of::<u32>()) + 16;
        self.routes.len().div_ceil(8) * leaf * 11 / 10
    }
}

fn check(next_hop: u32) -> Result<(), NextHopError> {
    if next_hop > MAX_NEXT_HOP { Err(NextHopError(next_hop)) } else { Ok(()) }
}

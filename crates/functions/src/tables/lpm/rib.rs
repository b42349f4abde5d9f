//! The routes as given: an ordered set from which any part of the compressed table can be rebuilt.
//!
//! The compressed table cannot say which prefix an entry came from, so removing a route needs the covering one from
//! elsewhere. In the order of [`Prefix`] everything a prefix covers follows it without a gap, and its covering prefix
//! is found by a few steps backwards; a B-tree gives both, and is built from sorted routes in linear time.

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
    /// These routes, in any order; of several with the same prefix the last one stays.
    ///
    /// # Errors
    /// [`NextHopError`] if a next hop is above [`MAX_NEXT_HOP`].
    pub fn new(routes: Vec<(Prefix<A>, u32)>) -> Result<Self, NextHopError> {
        routes.iter().try_for_each(|&(_, next_hop)| check(next_hop))?;
        Ok(Self { routes: routes.into_iter().collect() })
    }

    /// Routes in the set.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// The next hop of exactly this prefix.
    pub fn get(&self, prefix: Prefix<A>) -> Option<u32> {
        self.routes.get(&prefix).copied()
    }

    /// All routes, ordered by prefix.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix<A>, u32)> {
        self.routes.iter().map(|(&prefix, &next_hop)| (prefix, next_hop))
    }

    /// The routes after `prefix`, which need not be one.
    pub fn after(&self, prefix: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, u32)> {
        let range = self.routes.range((Bound::Excluded(prefix), Bound::Unbounded));
        range.map(|(&prefix, &next_hop)| (prefix, next_hop))
    }

    /// Adds a route or gives it another next hop; returns the one it had. What that makes of the compressed table is
    /// added to `changes`.
    ///
    /// # Errors
    /// [`NextHopError`] if the next hop is above [`MAX_NEXT_HOP`]; nothing has changed.
    pub fn insert(
        &mut self,
        prefix: Prefix<A>,
        next_hop: u32,
        changes: &mut Changes<A>,
    ) -> Result<Option<u32>, NextHopError> {
        check(next_hop)?;
        let previous = self.routes.insert(prefix, next_hop);
        if previous != Some(next_hop) {
            self.note(prefix, next_hop + 1, changes);
        }
        Ok(previous)
    }

    /// Removes a route and returns its next hop; its addresses fall back to the covering route. What that makes of the
    /// compressed table is added to `changes`.
    pub fn remove(&mut self, prefix: Prefix<A>, changes: &mut Changes<A>) -> Option<u32> {
        let previous = self.routes.remove(&prefix)?;
        // The default route is not painted.
        let covering = self.above(prefix).filter(|(above, _)| *above != Prefix::DEFAULT);
        self.note(prefix, covering.map_or(UNCOVERED, |(_, next_hop)| next_hop + 1), changes);
        Some(previous)
    }

    fn note(&self, prefix: Prefix<A>, value: u32, changes: &mut Changes<A>) {
        if prefix == Prefix::DEFAULT {
            return changes.push(prefix, value, std::iter::empty());
        }
        changes.push(prefix, value, self.below(prefix).map(|(prefix, next_hop)| (prefix, next_hop + 1)));
    }

    /// What `prefix` covers, itself excluded, in order.
    pub(super) fn below(&self, prefix: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, u32)> {
        let last = Prefix::truncated(prefix.last(), A::BITS);
        // A host prefix is its own last: an empty range, which `BTreeMap::range` refuses with excluded bounds.
        let range = (prefix != last).then(|| self.routes.range((Bound::Excluded(prefix), Bound::Included(last))));
        range.into_iter().flatten().map(|(&prefix, &next_hop)| (prefix, next_hop))
    }

    /// The longest prefix that covers `prefix`, itself excluded, and its next hop.
    ///
    /// The nearest route before `prefix` either covers it or shares its first c bits only; a covering route lies before
    /// that one too, so it covers both and has at most c bits. Looking again from the prefix of c bits, c falls with
    /// every step: at most `prefix.length()` steps, two or three in practice.
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

    /// Bytes taken, estimated: the standard library's B-tree keeps 6 to 11 pairs in a leaf of 11, with about 16 bytes of links; leaves
    /// built from sorted routes are full, and a tenth more is inner nodes.
    pub fn memory_bytes(&self) -> usize {
        let leaf = 11 * (size_of::<Prefix<A>>() + size_of::<u32>()) + 16;
        self.routes.len().div_ceil(8) * leaf * 11 / 10
    }
}

fn check(next_hop: u32) -> Result<(), NextHopError> {
    if next_hop > MAX_NEXT_HOP { Err(NextHopError(next_hop)) } else { Ok(()) }
}

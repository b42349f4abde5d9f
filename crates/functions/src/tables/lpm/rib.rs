//! The routes as given: an ordered set from which any part of the compressed table can be rebuilt.
//!
//! The compressed table cannot say which prefix an entry came from, so removing a route needs the covering one from
//! elsewhere. In the order of [`Prefix`] everything a prefix covers follows it without a gap, and its covering prefix
//! is found by a few steps backwards; a B-tree gives both, and is built from sorted routes in linear time.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::prefix::{Address, Prefix};

/// Prefixes with their next hops.
#[derive(Clone)]
pub(super) struct Rib<A: Address> {
    routes: BTreeMap<Prefix<A>, u32>,
}

impl<A: Address> Rib<A> {
    /// Of routes with the same prefix the last one stays.
    pub(super) fn new(routes: Vec<(Prefix<A>, u32)>) -> Self {
        Self { routes: routes.into_iter().collect() }
    }

    pub(super) fn len(&self) -> usize {
        self.routes.len()
    }

    pub(super) fn get(&self, prefix: Prefix<A>) -> Option<u32> {
        self.routes.get(&prefix).copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Prefix<A>, u32)> {
        self.routes.iter().map(|(&prefix, &next_hop)| (prefix, next_hop))
    }

    pub(super) fn insert(&mut self, prefix: Prefix<A>, next_hop: u32) -> Option<u32> {
        self.routes.insert(prefix, next_hop)
    }

    pub(super) fn remove(&mut self, prefix: Prefix<A>) -> Option<u32> {
        self.routes.remove(&prefix)
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
    pub(super) fn above(&self, prefix: Prefix<A>) -> Option<(Prefix<A>, u32)> {
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

    /// Estimated: the standard library's B-tree keeps 6 to 11 pairs in a leaf of 11, with about 16 bytes of links; leaves
    /// built from sorted routes are full, and a tenth more is inner nodes.
    pub(super) fn memory_bytes(&self) -> usize {
        let leaf = 11 * (size_of::<Prefix<A>>() + size_of::<u32>()) + 16;
        self.routes.len().div_ceil(8) * leaf * 11 / 10
    }
}

//! What changes of the route set make of the compressed table: which prefixes to paint with which values.
//!
//! The route set ([`Rib`](super::Rib)) writes it, the compressed table ([`Fib`](super::Fib)) follows it, and so can a
//! second compressed table, at its own time: the route set is there once, however many copies lookups read.

use super::prefix::{Address, Prefix};

/// Changes, in the order in which they were made.
#[derive(Clone, Debug)]
pub struct Changes<A: Address> {
    /// The paint of all: each change's prefix with its new value, then all that it covers.
    painted: Vec<(Prefix<A>, u32)>,
    /// Where each change's paint ends.
    ends: Vec<usize>,
}

impl<A: Address> Default for Changes<A> {
    fn default() -> Self {
        Self { painted: Vec::new(), ends: Vec::new() }
    }
}

impl<A: Address> Changes<A> {
    /// How much there is to paint, in prefixes: what the changes cost to follow.
    pub fn len(&self) -> usize {
        self.painted.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.painted.is_empty()
    }

    /// Forgets them, and keeps the memory for the next ones.
    pub fn clear(&mut self) {
        self.painted.clear();
        self.ends.clear();
    }

    /// One more: a prefix with its new value, and what it covers, which has to be painted over it again.
    pub(super) fn push(&mut self, prefix: Prefix<A>, value: u32, below: impl Iterator<Item = (Prefix<A>, u32)>) {
        self.painted.push((prefix, value));
        self.painted.extend(below);
        self.ends.push(self.painted.len());
    }

    /// The paint of each change; never empty.
    pub(super) fn each(&self) -> impl Iterator<Item = &[(Prefix<A>, u32)]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.painted[start..*end])
    }
}

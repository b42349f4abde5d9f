//! Changes of the route set, in the form in which the compressed table applies them: prefixes to paint with values.
//!
//! The route set ([`Rib`](super::Rib)) records the changes, and the compressed table ([`Fib`](super::Fib)) applies
//! them. A second compressed table can apply them at another time. So one route set suffices for any number of
//! compressed tables.

use super::prefix::{Address, Prefix};

/// Changes of the routes, in the order in which they were made.
#[derive(Clone, Debug)]
pub struct Changes<A: Address> {
    /// The prefixes to paint and their values (a next hop plus one, or `UNCOVERED`). For each change: its prefix with
    /// the new value, then all routes below it.
    painted: Vec<(Prefix<A>, u32)>,
    /// The end of each change in `painted`.
    ends: Vec<usize>,
}

impl<A: Address> Default for Changes<A> {
    fn default() -> Self {
        Self { painted: Vec::new(), ends: Vec::new() }
    }
}

impl<A: Address> Changes<A> {
    /// Returns the number of prefixes to paint, which is the cost to apply the changes.
    pub fn len(&self) -> usize {
        self.painted.len()
    }

    /// Returns true if there are no changes.
    pub fn is_empty(&self) -> bool {
        self.painted.is_empty()
    }

    /// Removes all changes and keeps the memory for later ones.
    pub fn clear(&mut self) {
        self.painted.clear();
        self.ends.clear();
    }

    /// Adds a change: a prefix with its new value, and the routes below it, which must be painted over it again.
    pub(super) fn push(&mut self, prefix: Prefix<A>, value: u32, below: impl Iterator<Item = (Prefix<A>, u32)>) {
        self.painted.push((prefix, value));
        self.painted.extend(below);
        self.ends.push(self.painted.len());
    }

    /// Iterates over the changes. Each is a list of prefixes to paint and is never empty.
    pub(super) fn each(&self) -> impl Iterator<Item = &[(Prefix<A>, u32)]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.painted[start..*end])
    }
}

//! Named sets of prefixes: `set office = 10.0.0.0/8, 192.168.1.0/24, 2001:db8::/32`.

use std::collections::BTreeMap;

use super::super::rule::{Address, Prefix};
use super::Wrong;

/// Prefixes of both families.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Of IPv4.
    pub v4: Vec<Prefix<u32>>,
    /// Of IPv6.
    pub v6: Vec<Prefix<u128>>,
}

impl Members {
    /// Every address.
    pub fn any() -> Members {
        Members { v4: vec![Prefix::ANY], v6: vec![Prefix::ANY] }
    }

    /// How many prefixes there are.
    pub fn count(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Adds those of another set.
    pub fn extend(&mut self, other: &Members) {
        self.v4.extend(&other.v4);
        self.v6.extend(&other.v6);
    }

    /// Leaves out prefixes that others hold, and sorts the rest: no packet is in two of them.
    pub fn make_disjoint(&mut self) {
        disjoint(&mut self.v4);
        disjoint(&mut self.v6);
    }

    /// Checks that neither family has more than `most` prefixes.
    ///
    /// # Errors
    /// One has more.
    pub fn check_length(&self, most: usize) -> Result<(), Wrong> {
        if self.v4.len().max(self.v6.len()) > most { Err(Wrong::Long(most)) } else { Ok(()) }
    }
}

fn disjoint<A: Address>(prefixes: &mut Vec<Prefix<A>>) {
    prefixes.sort_unstable_by_key(|prefix| (prefix.first(), prefix.length()));
    // Prefixes nest or are apart: one that is held follows the one that holds it.
    prefixes.dedup_by(|next, kept| kept.contains(next.first()));
}

/// The sets of a file by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sets {
    sets: BTreeMap<String, Members>,
    members: usize,
}

impl Sets {
    /// The set of this name.
    pub fn get(&self, name: &str) -> Option<&Members> {
        self.sets.get(name)
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sets.keys().map(String::as_str)
    }

    /// How many prefixes all sets have together.
    pub fn members(&self) -> usize {
        self.members
    }

    /// Adds a set of a new name.
    pub fn add(&mut self, name: &str, members: Members) {
        self.members += members.count();
        self.sets.insert(name.to_owned(), members);
    }
}

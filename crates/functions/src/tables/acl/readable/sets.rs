//! Named sets of prefixes: `set office = 10.0.0.0/8, 192.168.1.0/24, 2001:db8::/32`.

use std::collections::BTreeMap;

use super::super::rule::{Address, Prefix};

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

    /// The same addresses in prefixes of which none holds another, in order: no packet is in two of them.
    pub fn disjoint(mut self) -> Members {
        disjoint(&mut self.v4);
        disjoint(&mut self.v6);
        self
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

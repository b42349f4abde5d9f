//! Named sets of prefixes: `set office = 10.0.0.0/8, 192.168.1.0/24, 2001:db8::/32`.

use std::collections::BTreeMap;

use super::super::rule::{RuleAddress, RulePrefix};
use super::RuleSyntaxError;

/// Prefixes of both families.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The IPv4 prefixes.
    pub v4: Vec<RulePrefix<u32>>,
    /// The IPv6 prefixes.
    pub v6: Vec<RulePrefix<u128>>,
}

impl Members {
    /// Creates the set of all addresses.
    pub fn any() -> Members {
        Members { v4: vec![RulePrefix::ANY], v6: vec![RulePrefix::ANY] }
    }

    /// Returns the number of prefixes.
    pub fn count(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Adds the prefixes of another set.
    pub fn extend(&mut self, other: &Members) {
        self.v4.extend(&other.v4);
        self.v6.extend(&other.v6);
    }

    /// Removes prefixes that other prefixes cover, and sorts the rest. Then no address is in two prefixes.
    pub fn make_disjoint(&mut self) {
        disjoint(&mut self.v4);
        disjoint(&mut self.v6);
    }

    /// Checks that each family has at most `most` prefixes.
    ///
    /// # Errors
    /// A family has more.
    pub fn check_length(&self, most: usize) -> Result<(), RuleSyntaxError> {
        if self.v4.len().max(self.v6.len()) > most { Err(RuleSyntaxError::Long(most)) } else { Ok(()) }
    }
}

/// Sorts prefixes and removes those that other prefixes cover.
fn disjoint<A: RuleAddress>(prefixes: &mut Vec<RulePrefix<A>>) {
    prefixes.sort_unstable_by_key(|prefix| (prefix.first(), prefix.length()));
    // Two prefixes are nested or disjoint. In this order, a nested prefix follows the prefix that covers it.
    prefixes.dedup_by(|next, kept| kept.contains(next.first()));
}

/// The sets of a file, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sets {
    sets: BTreeMap<String, Members>,
    /// The number of prefixes of all sets together.
    members: usize,
}

impl Sets {
    /// Returns the set of this name.
    pub fn get(&self, name: &str) -> Option<&Members> {
        self.sets.get(name)
    }

    /// Iterates over the names of all sets.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sets.keys().map(String::as_str)
    }

    /// Returns the number of prefixes of all sets together.
    pub fn members(&self) -> usize {
        self.members
    }

    /// Adds a set under a new name.
    pub fn add(&mut self, name: &str, members: Members) {
        self.members += members.count();
        self.sets.insert(name.to_owned(), members);
    }
}

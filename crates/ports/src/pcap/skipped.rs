//! Packets of a capture that are passed over, counted by why.

use std::collections::BTreeMap;
use std::fmt;

use super::link;

/// Why a packet is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skip {
    /// The number of its link type.
    pub link: u32,
    /// What is wrong with it.
    pub reason: Reason,
}

/// The fault of a packet that is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Its link type is not read.
    Link,
    /// It carries a protocol that has no EtherType.
    Protocol,
    /// The capture cut it inside its link-layer header.
    Short,
}

impl fmt::Display for Skip {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.link {
            u32::MAX => out.write_str("other link types")?,
            number => write!(out, "link type {number} ({})", link::name(number))?,
        }
        match self.reason {
            Reason::Link => Ok(()),
            Reason::Protocol => out.write_str(" with a protocol that Ethernet does not carry"),
            Reason::Short => out.write_str(" cut inside its header"),
        }
    }
}

/// How many packets were passed over, by why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped(BTreeMap<Skip, u64>);

impl Skipped {
    /// The most reasons that are counted one by one; a capture can have 65 536 link types.
    const MOST: usize = 64;

    /// Counts a packet.
    pub fn add(&mut self, skip: Skip) {
        self.add_some(skip, 1);
    }

    fn add_some(&mut self, skip: Skip, count: u64) {
        let full = self.0.len() >= Self::MOST;
        match self.0.get_mut(&skip) {
            Some(known) => *known += count,
            // Of the rest, only that they are of other link types.
            None if full => *self.0.entry(Skip { link: u32::MAX, reason: Reason::Link }).or_default() += count,
            None => drop(self.0.insert(skip, count)),
        }
    }

    /// Adds what another one has counted.
    pub fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(skip, count)| self.add_some(skip, count));
    }

    /// Every reason and its count.
    pub fn iter(&self) -> impl Iterator<Item = (Skip, u64)> + '_ {
        self.0.iter().map(|(skip, count)| (*skip, *count))
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Whether none was passed over.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (skip, count)) in self.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(out, "{comma}{count} of {skip}")?;
        }
        Ok(())
    }
}

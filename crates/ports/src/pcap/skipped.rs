//! Counts the skipped packets of a capture by reason.

use std::collections::BTreeMap;
use std::fmt;

use super::link;

/// The kind of a skipped packet: its link type, and the reason why it is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skip {
    /// The number of the packet's link type. `u32::MAX` stands for all link types that are not counted separately.
    pub link: u32,
    /// The reason.
    pub reason: SkipReason,
}

/// The reason why a packet is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SkipReason {
    /// The link type cannot be read.
    Link,
    /// The packet carries a protocol that has no EtherType.
    Protocol,
    /// The packet was truncated inside its link-layer header.
    Short,
}

impl fmt::Display for Skip {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.link {
            u32::MAX => out.write_str("other link types")?,
            number => write!(out, "link type {number} ({})", link::name(number))?,
        }
        match self.reason {
            SkipReason::Link => Ok(()),
            SkipReason::Protocol => out.write_str(" with a protocol that Ethernet does not carry"),
            SkipReason::Short => out.write_str(" cut inside its header"),
        }
    }
}

/// The number of skipped packets by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped(BTreeMap<Skip, u64>);

impl Skipped {
    /// The largest number of reasons that are counted separately. A capture can have 65 536 link types.
    const MAX_REASONS: usize = 64;

    /// Counts a packet.
    pub fn add(&mut self, skip: Skip) {
        self.add_some(skip, 1);
    }

    /// Counts `count` packets of this kind.
    fn add_some(&mut self, skip: Skip, count: u64) {
        let full = self.0.len() >= Self::MAX_REASONS;
        match self.0.get_mut(&skip) {
            Some(known) => *known += count,
            // The reasons that are not counted separately are counted together, as other link types.
            None if full => *self.0.entry(Skip { link: u32::MAX, reason: SkipReason::Link }).or_default() += count,
            None => drop(self.0.insert(skip, count)),
        }
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(skip, count)| self.add_some(skip, count));
    }

    /// Returns every reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Skip, u64)> + '_ {
        self.0.iter().map(|(skip, count)| (*skip, *count))
    }

    /// Returns the total count.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Returns true if no packet was skipped.
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

//! Assigns an outside address and a range of its ports to an inside address.

use super::Nat;
use super::deterministic::{Blocks, Range};
use forebay_tables::sessions::Seed;

/// The rule that assigns an outside address and a range of its ports to an inside address.
#[derive(Clone, Copy)]
pub(super) struct Allotment {
    /// Number of outside addresses.
    count: u32,
    /// The ports for inside addresses without a block. Empty (the first port above the last) if there are none.
    ports: Range,
    /// Seed of the hash that selects an outside address for an inside address.
    pairing: Seed,
    /// Computed blocks, for the inside addresses that have one.
    blocks: Option<Blocks>,
}

impl Allotment {
    /// Creates the rule of a state. `secret` seeds the choice of outside addresses.
    pub(super) fn new(nat: &Nat, secret: u64) -> Self {
        let ports = nat.blocks.map_or(Some(nat.ports), |blocks| blocks.reserve());
        // Without a reserve, an inside address that has no block gets an empty range.
        let ports = ports.unwrap_or((1, 0));
        Self { count: nat.pool.1, ports, pairing: Seed::new(secret), blocks: nat.blocks }
    }

    /// Returns the outside address's number in the pool, and the range of ports, for an inside address in host byte
    /// order. Returns `None` if there are no ports for the inside address.
    #[inline(always)]
    pub(super) fn of(&self, inside: u32) -> Option<(u32, Range)> {
        match self.blocks.as_ref().and_then(|blocks| blocks.of(inside)) {
            None if self.ports.0 > self.ports.1 => None,
            None => {
                // RFC 4787 REQ-2, paired pooling: an inside address always has the same outside address.
                let drawn = self.pairing.hash(u64::from(inside), 0) >> 32;
                Some((((drawn * u64::from(self.count)) >> 32) as u32, self.ports))
            }
            computed => computed,
        }
    }

    /// Returns true if the ports of an inside address are computed, so that they need no log.
    pub(super) fn is_computed(&self, inside: u32) -> bool {
        self.blocks.as_ref().is_some_and(|blocks| blocks.of(inside).is_some())
    }
}

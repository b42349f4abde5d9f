//! Which outside address an inside address has, and which of its ports.

use super::Nat;
use super::deterministic::{Blocks, Range};
use crate::tables::sessions::Seed;

/// How both are chosen.
#[derive(Clone, Copy)]
pub(super) struct Allotment {
    /// How many outside addresses there are.
    count: u32,
    ports: Range,
    /// What an inside address's outside address is drawn with.
    pairing: Seed,
    /// Those of inside addresses that have theirs computed.
    blocks: Option<Blocks>,
}

impl Allotment {
    pub(super) fn new(nat: &Nat, secret: u64) -> Self {
        let ports = nat.blocks.map_or(Some(nat.ports), |blocks| blocks.reserve());
        // Nobody has this range who is not in a block.
        let ports = ports.unwrap_or((1, 0));
        Self { count: nat.pool.1, ports, pairing: Seed::new(secret), blocks: nat.blocks }
    }

    /// The outside address's number in the pool, and the ports; `None` where an inside address has none.
    #[inline(always)]
    pub(super) fn of(&self, inside: u32) -> Option<(u32, Range)> {
        match self.blocks.as_ref().and_then(|blocks| blocks.of(inside)) {
            None if self.ports.0 > self.ports.1 => None,
            None => {
                // RFC 4787 REQ-2, paired: an inside address has one outside.
                let drawn = self.pairing.hash(u64::from(inside), 0) >> 32;
                Some((((drawn * u64::from(self.count)) >> 32) as u32, self.ports))
            }
            computed => computed,
        }
    }

    /// Whether it needs no log who has the ports of an inside address.
    pub(super) fn is_computed(&self, inside: u32) -> bool {
        self.blocks.as_ref().is_some_and(|blocks| blocks.of(inside).is_some())
    }
}

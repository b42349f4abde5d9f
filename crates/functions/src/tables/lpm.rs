//! Longest-prefix match: from an address to the next hop of the longest route that contains it, for IPv4 and IPv6.
//!
//! [`Ipv4Table`] and [`Ipv6Table`] are one generic [`Table`]: a compressed table for lookups (`fib.rs` says how it is
//! laid out, after Lulea, Poptrie and DXR) beside the routes as given (`rib.rs`), from which any part of it can be
//! rebuilt (`paint.rs`).
//!
//! # Memory
//!
//! The root takes 4 MiB, of which a system that maps memory lazily provides the pages near routes only. The rest grows
//! with the routes: a prefix starts at most two runs of 4 bytes at its level, and each node on its way takes 64 bytes
//! and four runs. Only prefixes that share a slot with another longer than the slot have nodes, at most one for each 8
//! bits after the first 24: one for IPv4, 13 for IPv6. With [`synthetic`] routes:
//!
//! | routes | IPv4 lookups read | IPv4 in all | IPv6 lookups read | IPv6 in all |
//! |---|---|---|---|---|
//! | 10 000 | 4.3 MB | 4.5 MB | 4.9 MB | 5.5 MB |
//! | 1 000 000 | 12.4 MB | 32.8 MB | 58 MB | 115 MB |
//!
//! # Updates
//!
//! [`Table::insert`] and [`Table::remove`] rewrite what the prefix covers and nothing else: a few rows for the common
//! lengths, 2^(18 - length) rows for shorter ones, one word for the default route.
//!
//! A [`Table`] has one writer and no reader beside it. For lookups during updates, the route set ([`Rib`]) and the
//! compressed table ([`Fib`]) can be had apart: the route set notes each change as a short list of prefixes to paint
//! ([`Changes`]), and two compressed tables follow the list one after the other, while readers have the one that is not
//! being written (`forebay_graph::Live`). The route set exists once.
//!
//! # Example
//!
//! ```
//! use forebay_functions::tables::lpm::{Ipv4Table, NO_ROUTE, Prefix};
//!
//! let mut table = Ipv4Table::new();
//! table.insert(Prefix::new(0x0a00_0000, 8)?, 1)?; // 10.0.0.0/8
//! table.insert(Prefix::new(0x0a01_0000, 16)?, 2)?; // 10.1.0.0/16
//! // As a batch is looked up: in steps, so that memory is asked for all of them before the first is answered.
//! let addresses = [0x0a01_0203, 0x0a02_0203, 0x0b00_0001];
//! addresses.iter().for_each(|address| table.prefetch(*address));
//! let mut next_hops = addresses.map(|address| table.begin(address));
//! table.finish(&addresses, &mut next_hops);
//! assert_eq!(next_hops, [2, 1, NO_ROUTE]);
//! assert_eq!(table.lookup(addresses[0]), 2); // one by itself
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod changes;
mod fib;
mod paint;
mod prefix;
mod rib;
pub mod routes_file;
mod runs;
pub mod synthetic;
#[cfg(test)]
mod tests;

use std::fmt;

use thiserror::Error;

pub use changes::Changes;
pub use fib::{Fib, MAX_NEXT_HOP, NO_ROUTE};
pub use prefix::{Address, IpPrefix, Prefix, PrefixError};
pub use rib::Rib;

/// A table of IPv4 routes; addresses are `u32` in host order.
pub type Ipv4Table = Table<u32>;
/// A table of IPv6 routes; addresses are `u128` in host order.
pub type Ipv6Table = Table<u128>;

/// A next hop above [`MAX_NEXT_HOP`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("next hop {0} is too great; allowed is 0 to {MAX_NEXT_HOP}")]
pub struct NextHopError(pub u32);

/// A longest-prefix-match table.
#[derive(Clone)]
pub struct Table<A: Address> {
    rib: Rib<A>,
    fib: Fib<A>,
    /// The present change; kept for its allocation.
    changes: Changes<A>,
}

impl<A: Address> Default for Table<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Address> fmt::Debug for Table<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("routes", &self.len()).finish_non_exhaustive()
    }
}

impl<A: Address> Table<A> {
    /// A table without routes.
    pub fn new() -> Self {
        Self { rib: Rib::default(), fib: Fib::new(), changes: Changes::default() }
    }

    /// A table with these routes, in any order; of several with the same prefix the last one stays.
    ///
    /// # Errors
    /// [`NextHopError`] if a next hop is above [`MAX_NEXT_HOP`].
    pub fn from_routes(routes: Vec<(Prefix<A>, u32)>) -> Result<Self, NextHopError> {
        let rib = Rib::new(routes)?;
        Ok(Self { fib: Fib::of(&rib), rib, changes: Changes::default() })
    }

    /// Adds a route or gives it another next hop; returns the one it had.
    ///
    /// # Errors
    /// [`NextHopError`] if the next hop is above [`MAX_NEXT_HOP`]; the table is as before.
    pub fn insert(&mut self, prefix: Prefix<A>, next_hop: u32) -> Result<Option<u32>, NextHopError> {
        let previous = self.rib.insert(prefix, next_hop, &mut self.changes)?;
        self.follow();
        Ok(previous)
    }

    /// Removes a route and returns its next hop; its addresses fall back to the covering route.
    pub fn remove(&mut self, prefix: Prefix<A>) -> Option<u32> {
        let previous = self.rib.remove(prefix, &mut self.changes)?;
        self.follow();
        Some(previous)
    }

    /// Brings the compressed table in line with the routes.
    fn follow(&mut self) {
        self.fib.apply(&self.changes);
        self.changes.clear();
    }

    /// The next hop for `address`, or [`NO_ROUTE`].
    #[inline]
    pub fn lookup(&self, address: A) -> u32 {
        self.fib.lookup(address)
    }

    /// Asks the processor for what a lookup of `address` reads first.
    #[inline(always)]
    pub fn prefetch(&self, address: A) {
        self.fib.prefetch(address);
    }

    /// The first step of a lookup, for a caller that comes by addresses one after the other; [`finish`](Self::finish)
    /// does the rest for all of them.
    #[inline(always)]
    pub fn begin(&self, address: A) -> u32 {
        self.fib.begin(address)
    }

    /// Turns what [`begin`](Self::begin) gave for each of `addresses`, one by one in order, into next hops or
    /// [`NO_ROUTE`].
    #[inline(always)]
    pub fn finish(&self, addresses: &[A], begun: &mut [u32]) {
        self.fib.finish(addresses, begun);
    }

    /// The next hop of exactly this prefix.
    pub fn get(&self, prefix: Prefix<A>) -> Option<u32> {
        self.rib.get(prefix)
    }

    /// All routes, ordered by prefix.
    pub fn routes(&self) -> impl Iterator<Item = (Prefix<A>, u32)> {
        self.rib.iter()
    }

    /// Routes in the table.
    pub fn len(&self) -> usize {
        self.rib.len()
    }

    /// Whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the compressed table, which is all that lookups read.
    pub fn lookup_bytes(&self) -> usize {
        self.fib.memory_bytes()
    }

    /// Bytes of the whole table: [`lookup_bytes`](Self::lookup_bytes) and the route set (estimated).
    pub fn memory_bytes(&self) -> usize {
        self.fib.memory_bytes() + self.rib.memory_bytes()
    }
}

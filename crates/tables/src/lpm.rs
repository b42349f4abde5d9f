//! Longest-prefix match for IPv4 and IPv6: maps an address to the next hop of the longest route that contains it.
//!
//! [`Ipv4Table`] and [`Ipv6Table`] are one generic [`Table`]. It holds a compressed table for look-ups (`fib.rs`
//! describes the layout, after Lulea, Poptrie and DXR) and the routes as given (`rib.rs`), from which any part of the
//! compressed table can be rebuilt (`paint.rs`).
//!
//! # Memory
//!
//! The root takes 4 MiB. A system that maps memory lazily provides only the pages with routes. The rest grows with the
//! routes: a prefix starts at most two runs of 4 bytes in the array (root or node) where it ends, and each node on the
//! path to it takes 64 bytes and four runs. A slot has a node only if several prefixes longer than the slot lie in it.
//! A path has at most one node for each 8 bits after the first 24: one for IPv4, 13 for IPv6. With [`synthetic`]
//! routes:
//!
//! | routes | IPv4 look-up table | IPv4 in total | IPv6 look-up table | IPv6 in total |
//! |---|---|---|---|---|
//! | 10 000 | 4.3 MB | 4.5 MB | 4.9 MB | 5.5 MB |
//! | 1 000 000 | 12.4 MB | 32.8 MB | 58 MB | 115 MB |
//!
//! # Updates
//!
//! [`Table::insert`] and [`Table::remove`] rewrite only the part that the prefix covers: a few rows for the common
//! lengths, 2^(18 - length) rows for shorter ones, one word for the default route.
//!
//! A [`Table`] has one writer and no concurrent readers. For look-ups during updates, the route set ([`Rib`]) and the
//! compressed table ([`Fib`]) can be used separately. The route set records each change as a short list of prefixes to
//! paint ([`Changes`]). Two compressed tables apply the list one after the other, and readers use the one that is not
//! being written (`forebay_graph::Live`). There is only one route set.
//!
//! # Example
//!
//! ```
//! use forebay_tables::lpm::{Ipv4Table, NO_ROUTE, Prefix};
//!
//! let mut table = Ipv4Table::new();
//! table.insert(Prefix::new(0x0a00_0000, 8)?, 1)?; // 10.0.0.0/8
//! table.insert(Prefix::new(0x0a01_0000, 16)?, 2)?; // 10.1.0.0/16
//! // A batch is looked up in steps, so that the memory reads of all addresses overlap.
//! let addresses = [0x0a01_0203, 0x0a02_0203, 0x0b00_0001];
//! addresses.iter().for_each(|address| table.prefetch(*address));
//! let mut next_hops = [0; 3];
//! table.begin_all(&addresses, &mut next_hops);
//! table.finish(&addresses, &mut next_hops);
//! assert_eq!(next_hops, [2, 1, NO_ROUTE]);
//! assert_eq!(table.lookup(addresses[0]), 2); // a single look-up
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

/// A table of IPv4 routes. Addresses are `u32` in host order.
pub type Ipv4Table = Table<u32>;
/// A table of IPv6 routes. Addresses are `u128` in host order.
pub type Ipv6Table = Table<u128>;

/// A next hop above [`MAX_NEXT_HOP`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("next hop {0} is too large; allowed is 0 to {MAX_NEXT_HOP}")]
pub struct NextHopError(pub u32);

/// A longest-prefix-match table.
#[derive(Clone)]
pub struct Table<A: Address> {
    rib: Rib<A>,
    fib: Fib<A>,
    /// The changes of the present update. Empty between updates. This is a field so that its memory is reused.
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
    /// Creates a table without routes.
    pub fn new() -> Self {
        Self { rib: Rib::default(), fib: Fib::new(), changes: Changes::default() }
    }

    /// Creates a table with these routes, in any order. If several have the same prefix, the last one counts.
    ///
    /// # Errors
    /// [`NextHopError`] if a next hop is above [`MAX_NEXT_HOP`].
    pub fn from_routes(routes: Vec<(Prefix<A>, u32)>) -> Result<Self, NextHopError> {
        let rib = Rib::new(routes)?;
        Ok(Self { fib: Fib::of(&rib), rib, changes: Changes::default() })
    }

    /// Adds a route or changes its next hop. Returns the previous next hop.
    ///
    /// # Errors
    /// [`NextHopError`] if the next hop is above [`MAX_NEXT_HOP`]. The table does not change then.
    pub fn insert(&mut self, prefix: Prefix<A>, next_hop: u32) -> Result<Option<u32>, NextHopError> {
        let previous = self.rib.insert(prefix, next_hop, &mut self.changes)?;
        self.apply_changes();
        Ok(previous)
    }

    /// Removes a route and returns its next hop. Its addresses then use the covering route.
    pub fn remove(&mut self, prefix: Prefix<A>) -> Option<u32> {
        let previous = self.rib.remove(prefix, &mut self.changes)?;
        self.apply_changes();
        Some(previous)
    }

    /// Applies the recorded changes to the compressed table.
    fn apply_changes(&mut self) {
        self.fib.apply(&self.changes);
        self.changes.clear();
    }

    /// Returns the next hop of `address`, or [`NO_ROUTE`].
    #[inline]
    pub fn lookup(&self, address: A) -> u32 {
        self.fib.lookup(address)
    }

    /// Prefetches the memory that a look-up of `address` reads first.
    #[inline(always)]
    pub fn prefetch(&self, address: A) {
        self.fib.prefetch(address);
    }

    /// Makes the first step of the look-ups of all addresses. `begun` must be as long as `addresses`. It gets
    /// intermediate results, which [`finish`](Self::finish) turns into next hops.
    #[inline(always)]
    pub fn begin_all(&self, addresses: &[A], begun: &mut [u32]) {
        self.fib.begin_all(addresses, begun);
    }

    /// Turns the results of [`begin_all`](Self::begin_all) for `addresses`, in the same order, into next hops or
    /// [`NO_ROUTE`].
    #[inline(always)]
    pub fn finish(&self, addresses: &[A], begun: &mut [u32]) {
        self.fib.finish(addresses, begun);
    }

    /// Returns the next hop of exactly this prefix.
    pub fn get(&self, prefix: Prefix<A>) -> Option<u32> {
        self.rib.get(prefix)
    }

    /// Iterates over all routes, ordered by prefix.
    pub fn routes(&self) -> impl Iterator<Item = (Prefix<A>, u32)> {
        self.rib.iter()
    }

    /// Returns the number of routes.
    pub fn len(&self) -> usize {
        self.rib.len()
    }

    /// Returns true if there are no routes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size of the compressed table in bytes. Look-ups read nothing else.
    pub fn lookup_bytes(&self) -> usize {
        self.fib.memory_bytes()
    }

    /// Returns the size of the whole table in bytes: [`lookup_bytes`](Self::lookup_bytes) and the route set
    /// (estimated).
    pub fn memory_bytes(&self) -> usize {
        self.fib.memory_bytes() + self.rib.memory_bytes()
    }
}

//! The compressed table: what a lookup reads.
//!
//! The address is cut into pieces that index arrays, as in every multibit trie: the first 24 bits index the root, each
//! further piece of 8 bits a node. Arrays of routes are long stretches of the same value, so only the *runs* are stored
//! (run-length compression with a bit vector: Degermark, Brodnik, Carlsson, Pink, "Small forwarding tables for fast
//! routing lookups", SIGCOMM 1997; counting its bits with the processor's instruction: Asai, Ohara, "Poptrie",
//! SIGCOMM 2015; a root wide enough that most lookups end there: both, and Zec, Rizzo, Mikuc, "DXR", CCR 2012).
//!
//! A [`Row`] is 64 slots in 16 bytes: a bit vector marks the slots where a new run starts, and the runs' entries lie side
//! by side in a block of the pool. One load finds the row, one the entry, and the row's place needs no load at all: the
//! root is a plain array of 2^18 rows. IPv4 needs no more for prefixes up to /24.
//!
//! Below the root, a slot that holds a single longer prefix points to a [`Tail`], one comparison; only where several
//! lie in one slot there is a node of four rows. Without tails each lonely IPv6 route would cost a chain of nodes.
//!
//! An all-zero row means "no route", as word 0 of the pool does: pages of the root where there are no routes are never
//! touched, and take no memory on systems that map fresh memory lazily. The default route is kept aside for the same
//! reason.

use std::hint::select_unpredictable;

use forebay_simd::prefetch::prefetch_read;

use super::changes::Changes;
use super::prefix::{Address, Prefix};
use super::rib::Rib;
use super::runs::Runs;

/// Bits of the address that choose the root's row; the 6 that follow choose its slot.
pub(super) const ROOT_ROW_BITS: u32 = 18;
/// Bits of the address that the root consumes.
pub(super) const ROOT_BITS: u32 = ROOT_ROW_BITS + 6;
/// Rows in the root.
const ROOT_ROWS: usize = 1 << ROOT_ROW_BITS;
/// Lookups that are in flight together.
const LANES: usize = u32::BITS as usize;

/// Set in an entry that points to a node or a tail.
const BELOW: u32 = 1 << 31;
/// Set beside `BELOW` if it is a tail.
const TAIL: u32 = 1 << 30;

/// An entry that no route covers; a next hop h is stored as h + 1.
pub(super) const UNCOVERED: u32 = 0;
/// The greatest next hop: two bits of an entry say what it is, and 0 is taken.
pub const MAX_NEXT_HOP: u32 = TAIL - 2;
/// The answer where no route matches. One less than `UNCOVERED`, so that no lookup has to tell the two apart.
pub const NO_ROUTE: u32 = UNCOVERED.wrapping_sub(1);

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// A next hop plus one, or [`UNCOVERED`].
    Value(u32),
    /// A node, by number.
    Node(u32),
    /// A tail, by number.
    Tail(u32),
}

impl Entry {
    pub(super) fn decode(word: u32) -> Self {
        match word & (BELOW | TAIL) {
            BELOW => Self::Node(word & !BELOW),
            0 => Self::Value(word),
            _ => Self::Tail(word & !(BELOW | TAIL)),
        }
    }

    pub(super) fn encode(self) -> u32 {
        match self {
            Self::Value(value) => value,
            Self::Node(node) => node | BELOW,
            Self::Tail(tail) => tail | BELOW | TAIL,
        }
    }
}

/// 64 slots, run-length compressed.
///
/// Stored as one `u128`, because only arrays of plain integers come zeroed from the system without being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Bit s is set if slot s starts a new run. Slot 0 always does; its bit is always clear.
    pub(super) starts: u64,
    /// Where in the pool the first run's entry is; the others follow. 0 in a row without routes.
    pub(super) base: u32,
}

impl Row {
    #[inline(always)]
    pub(super) fn unpack(word: u128) -> Self {
        Self { starts: word as u64, base: (word >> 64) as u32 }
    }

    pub(super) fn pack(self) -> u128 {
        u128::from(self.starts) | u128::from(self.base) << 64
    }

    /// Runs in the row, 1 to 64.
    pub(super) fn runs(self) -> usize {
        1 + self.starts.count_ones() as usize
    }

    /// Where in the pool the entry for `slot` (its low 6 bits) is: as many runs after the first as start up to there.
    #[inline(always)]
    fn run(self, slot: u32) -> u32 {
        self.base.wrapping_add(self.starts.wrapping_shl(!slot).count_ones())
    }
}

/// A single prefix below a slot, and what covers the rest of the slot.
#[derive(Clone, Copy)]
pub(super) struct Tail<A: Address> {
    pub(super) prefix: Prefix<A>,
    /// The prefix's value.
    pub(super) inside: u32,
    /// The value of addresses in the slot that the prefix does not contain.
    pub(super) outside: u32,
}

/// A set of lanes, and the iterator over it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Lanes(u32);

impl Lanes {
    #[inline(always)]
    fn add_if(&mut self, member: bool, lane: usize) {
        self.0 |= u32::from(member) << (lane % LANES);
    }
}

impl Iterator for Lanes {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let lane = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (lane < LANES).then_some(lane)
    }
}

/// The compressed table: all that lookups read.
#[derive(Clone)]
pub struct Fib<A: Address> {
    pub(super) root: Box<[u128; ROOT_ROWS]>,
    pub(super) nodes: Vec<[u128; 4]>,
    pub(super) free_nodes: Vec<u32>,
    pub(super) tails: Vec<Tail<A>>,
    pub(super) free_tails: Vec<u32>,
    pub(super) runs: Runs,
    /// The default route's next hop or [`NO_ROUTE`].
    pub(super) default: u32,
}

impl<A: Address> Default for Fib<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Address> Fib<A> {
    /// A table without routes.
    pub fn new() -> Self {
        let root: Result<Box<[u128; ROOT_ROWS]>, _> = vec![0; ROOT_ROWS].into_boxed_slice().try_into();
        Self {
            root: root.expect("made with this length"),
            nodes: Vec::new(),
            free_nodes: Vec::new(),
            tails: Vec::new(),
            free_tails: Vec::new(),
            runs: Runs::new(),
            default: NO_ROUTE,
        }
    }

    /// The table of these routes.
    pub fn of(routes: &Rib<A>) -> Self {
        let mut fib = Self::new();
        if let Some(default) = routes.get(Prefix::DEFAULT) {
            fib.default = default;
        }
        let painted: Vec<_> = routes.below(Prefix::DEFAULT).map(|(prefix, next_hop)| (prefix, next_hop + 1)).collect();
        fib.paint(&painted);
        fib.shrink_to_fit();
        fib
    }

    /// Follows changes of the routes. They rewrite what their prefixes cover and nothing else.
    pub fn apply(&mut self, changes: &Changes<A>) {
        for painted in changes.each() {
            match painted {
                [(prefix, value)] if *prefix == Prefix::DEFAULT => self.default = value.wrapping_sub(1),
                _ => self.paint(painted),
            }
        }
    }

    #[inline(always)]
    fn root_row(address: A) -> usize {
        (address.first_word() >> (32 - ROOT_ROW_BITS)) as usize
    }

    /// The slot, with further bits above its six.
    #[inline(always)]
    fn root_slot(address: A) -> u32 {
        address.first_word() >> (32 - ROOT_BITS)
    }

    #[inline(always)]
    fn root_entry(&self, address: A) -> u32 {
        self.runs.get(Row::unpack(self.root[Self::root_row(address)]).run(Self::root_slot(address)))
    }

    #[inline(always)]
    fn node_entry(&self, node: u32, address: A, depth: u32) -> u32 {
        let octet = address.octet_after(depth);
        let row = match self.nodes.get((node & !BELOW) as usize) {
            Some(rows) => rows[usize::from(octet >> 6)],
            None => 0,
        };
        self.runs.get(Row::unpack(row).run(u32::from(octet)))
    }

    #[inline(always)]
    fn tail_value(&self, tail: u32, address: A) -> u32 {
        match self.tails.get((tail & !(BELOW | TAIL)) as usize) {
            Some(tail) => select_unpredictable(tail.prefix.contains(address), tail.inside, tail.outside),
            None => UNCOVERED,
        }
    }

    #[inline(always)]
    fn next_hop(&self, value: u32) -> u32 {
        select_unpredictable(value == UNCOVERED, self.default, value.wrapping_sub(1))
    }

    /// The next hop for `address`, or [`NO_ROUTE`].
    #[inline]
    pub fn lookup(&self, address: A) -> u32 {
        let mut entry = self.root_entry(address);
        let mut depth = ROOT_BITS;
        while entry & (BELOW | TAIL) == BELOW && depth < A::BITS {
            entry = self.node_entry(entry, address, depth);
            depth += 8;
        }
        if entry & BELOW != 0 {
            entry = self.tail_value(entry, address);
        }
        self.next_hop(entry)
    }

    /// Asks the processor for what a lookup of `address` reads first.
    #[inline(always)]
    pub fn prefetch(&self, address: A) {
        prefetch_read(&*self.root, Self::root_row(address));
    }

    /// The first step of a lookup, for a caller that comes by addresses one after the other; [`finish`](Self::finish) does
    /// the rest for all of them. It is all of the work where the route is /24 or shorter, which most are, and so short that
    /// the processor overlaps several, each with the work that got the address.
    #[inline(always)]
    pub fn begin(&self, address: A) -> u32 {
        self.root_entry(address)
    }

    /// Turns what [`begin`](Self::begin) gave for each of `addresses`, one by one in order, into next hops or [`NO_ROUTE`].
    #[inline(always)]
    pub fn finish(&self, addresses: &[A], begun: &mut [u32]) {
        if begun.iter().fold(0, |all, entry| all | entry) & BELOW != 0 {
            return self.finish_below(addresses, begun);
        }
        begun.iter_mut().for_each(|entry| *entry = self.next_hop(*entry));
    }

    #[inline(never)]
    fn finish_below(&self, addresses: &[A], begun: &mut [u32]) {
        for (addresses, begun) in addresses.chunks(LANES).zip(begun.chunks_mut(LANES)) {
            let (mut lanes, mut entries, mut next_hops) = ([A::ZERO; LANES], [UNCOVERED; LANES], [0; LANES]);
            lanes[..addresses.len()].copy_from_slice(addresses);
            entries[..begun.len()].copy_from_slice(begun);
            next_hops.iter_mut().zip(&entries).for_each(|(next_hop, entry)| *next_hop = self.next_hop(*entry));
            self.walk(&lanes, &mut entries, &mut next_hops);
            begun.copy_from_slice(&next_hops[..begun.len()]);
        }
    }

    /// Follows the entries that point below the root.
    ///
    /// Level by level, so that the loads of all lanes are in flight together, and with sets instead of branches: how
    /// deep a lane goes cannot be predicted.
    #[inline(never)]
    fn walk(&self, addresses: &[A; LANES], entries: &mut [u32; LANES], next_hops: &mut [u32; LANES]) {
        let mut nodes = Lanes(0);
        let mut tails = Lanes(0);
        for (lane, &entry) in entries.iter().enumerate() {
            nodes.add_if(entry & (BELOW | TAIL) == BELOW, lane);
            tails.add_if(entry & (BELOW | TAIL) == BELOW | TAIL, lane);
        }
        let mut depth = ROOT_BITS;
        while nodes != Lanes(0) && depth < A::BITS {
            for lane in nodes {
                prefetch_read(&self.nodes, (entries[lane] & !BELOW) as usize);
            }
            let mut deeper = Lanes(0);
            for lane in nodes {
                let entry = self.node_entry(entries[lane], addresses[lane], depth);
                entries[lane] = entry;
                // Wrong where the entry points further down, and then overwritten.
                next_hops[lane] = self.next_hop(entry);
                deeper.add_if(entry & (BELOW | TAIL) == BELOW, lane);
                tails.add_if(entry & (BELOW | TAIL) == BELOW | TAIL, lane);
            }
            nodes = deeper;
            depth += 8;
        }
        for lane in tails {
            prefetch_read(&self.tails, (entries[lane] & !(BELOW | TAIL)) as usize);
        }
        for lane in tails {
            next_hops[lane] = self.next_hop(self.tail_value(entries[lane], addresses[lane]));
        }
    }

    fn shrink_to_fit(&mut self) {
        self.nodes.shrink_to_fit();
        self.tails.shrink_to_fit();
        self.runs.shrink_to_fit();
    }

    /// Whether the table is as new, with everything it ever allocated on a free list.
    #[cfg(test)]
    pub(super) fn is_blank(&self) -> bool {
        self.root.iter().all(|&row| row == 0)
            && self.nodes.len() == self.free_nodes.len()
            && self.tails.len() == self.free_tails.len()
            && self.runs.is_blank()
            && self.default == NO_ROUTE
    }

    /// Bytes taken.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.root)
            + self.nodes.capacity() * size_of::<[u128; 4]>()
            + self.tails.capacity() * size_of::<Tail<A>>()
            + (self.free_nodes.capacity() + self.free_tails.capacity()) * size_of::<u32>()
            + self.runs.memory_bytes()
    }
}

//! The compressed table, which look-ups read.
//!
//! As in every multibit trie, each array is indexed by a part of the address: the root by the first 24 bits, and a node
//! by the next 8 bits. Arrays of routes consist of long stretches of equal values (*runs*), so each run is stored only
//! once. (Run-length compression with a bit vector: Degermark, Brodnik, Carlsson, Pink, "Small forwarding tables for
//! fast routing lookups", SIGCOMM 1997. Counting the bits with the processor's instruction: Asai, Ohara, "Poptrie",
//! SIGCOMM 2015. A root wide enough that most look-ups end there: both, and Zec, Rizzo, Mikuc, "DXR", CCR 2012.)
//!
//! A [`Row`] describes 64 slots in 16 bytes: a bit vector marks the slots where a new run starts, and the entries of
//! the runs are adjacent in a block of the pool. A look-up loads the row and the entry. It needs no load to find the
//! row, because the root is a plain array of 2^18 rows. For IPv4 prefixes up to /24 these two loads are enough.
//!
//! Below the root, a slot that contains a single longer prefix points to a [`Tail`], which takes one comparison. Only a
//! slot that contains several longer prefixes has a node of four rows. Without tails, each isolated IPv6 route would
//! need a chain of nodes.
//!
//! An all-zero row means "no route", and so does word 0 of the pool. Pages of the root without routes are therefore
//! never written, and take no memory on systems that map fresh memory lazily. The default route is kept outside the
//! root for the same reason.

use std::hint::select_unpredictable;

use forebay_simd::prefetch::prefetch_read;

use super::changes::Changes;
use super::prefix::{Address, Prefix};
use super::rib::Rib;
use super::runs::Runs;

/// The number of leading bits of the address that select the row in the root. The next 6 bits select the slot in the
/// row.
pub(super) const ROOT_ROW_BITS: u32 = 18;
/// The number of leading bits of the address that select the slot in the root.
pub(super) const ROOT_BITS: u32 = ROOT_ROW_BITS + 6;
/// The number of rows in the root.
const ROOT_ROWS: usize = 1 << ROOT_ROW_BITS;
/// The number of look-ups that are walked together.
const LANES: usize = u32::BITS as usize;

/// Set in an entry that points to a node or to a tail.
const BELOW: u32 = 1 << 31;
/// Set in addition to `BELOW` if the entry points to a tail.
const TAIL: u32 = 1 << 30;

/// The entry of a slot that no route covers. A next hop h is stored as h + 1.
pub(super) const UNCOVERED: u32 = 0;
/// The greatest next hop. Two bits of an entry hold its type, and the value 0 is `UNCOVERED`.
pub const MAX_NEXT_HOP: u32 = TAIL - 2;
/// The result if no route matches. It is `UNCOVERED` minus 1 (with overflow), so that a look-up subtracts 1 in every
/// case.
pub const NO_ROUTE: u32 = UNCOVERED.wrapping_sub(1);

/// A decoded entry.
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
/// Stored as one `u128`, because only arrays of plain integers can be allocated as zeroed pages without being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Bit s is set if slot s starts a new run. Slot 0 always starts one; its bit is always clear.
    pub(super) starts: u64,
    /// The index in the pool of the first run's entry; the others follow. 0 in a row without routes.
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

    /// Returns the number of runs in the row, 1 to 64.
    pub(super) fn runs(self) -> usize {
        1 + self.starts.count_ones() as usize
    }

    /// Returns the index in the pool of the entry of `slot` (its low 6 bits). It is `base` plus the number of runs that
    /// start after slot 0 and up to `slot`.
    #[inline(always)]
    fn run(self, slot: u32) -> u32 {
        self.base.wrapping_add(self.starts.wrapping_shl(!slot).count_ones())
    }
}

/// A single prefix below a slot, and the value of the rest of the slot. A value is a next hop plus one, or
/// [`UNCOVERED`].
#[derive(Clone, Copy)]
pub(super) struct Tail<A: Address> {
    pub(super) prefix: Prefix<A>,
    /// The prefix's value.
    pub(super) inside: u32,
    /// The value of addresses in the slot that the prefix does not contain.
    pub(super) outside: u32,
}

/// A set of lanes, as a bit mask. A lane is the index of a look-up among those that are walked together. A copy of the
/// set is the iterator over its lanes.
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

/// The compressed table. Look-ups read nothing else.
#[derive(Clone)]
pub struct Fib<A: Address> {
    /// The packed rows ([`Row`]) of the root.
    pub(super) root: Box<[u128; ROOT_ROWS]>,
    /// The packed rows of each node.
    pub(super) nodes: Vec<[u128; 4]>,
    /// The numbers of unused nodes.
    pub(super) free_nodes: Vec<u32>,
    /// The tails, by number.
    pub(super) tails: Vec<Tail<A>>,
    /// The numbers of unused tails.
    pub(super) free_tails: Vec<u32>,
    /// The pool with the entries of all rows.
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
    /// Creates a table without routes.
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

    /// Builds the table of these routes.
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

    /// Applies changes of the routes. Only the parts that their prefixes cover are rewritten.
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

    /// Returns the slot in the root's row, in the lowest six bits. [`Row::run`] ignores the higher bits.
    #[inline(always)]
    fn root_slot(address: A) -> u32 {
        address.first_word() >> (32 - ROOT_BITS)
    }

    #[inline(always)]
    fn root_entry(&self, address: A) -> u32 {
        self.runs.get(Row::unpack(self.root[Self::root_row(address)]).run(Self::root_slot(address)))
    }

    /// Returns the entry of an address in a node whose slots start after `depth` bits. `node` is the entry that points
    /// to the node.
    #[inline(always)]
    fn node_entry(&self, node: u32, address: A, depth: u32) -> u32 {
        let octet = address.octet_after(depth);
        let row = match self.nodes.get((node & !BELOW) as usize) {
            Some(rows) => rows[usize::from(octet >> 6)],
            None => 0,
        };
        self.runs.get(Row::unpack(row).run(u32::from(octet)))
    }

    /// Returns the value of an address in a tail. `tail` is the entry that points to the tail.
    #[inline(always)]
    fn tail_value(&self, tail: u32, address: A) -> u32 {
        match self.tails.get((tail & !(BELOW | TAIL)) as usize) {
            Some(tail) => select_unpredictable(tail.prefix.contains(address), tail.inside, tail.outside),
            None => UNCOVERED,
        }
    }

    /// Turns a value (a next hop plus one, or [`UNCOVERED`]) into the next hop or [`NO_ROUTE`]. The default route
    /// covers the addresses that no other route covers.
    #[inline(always)]
    fn next_hop(&self, value: u32) -> u32 {
        select_unpredictable(value == UNCOVERED, self.default, value.wrapping_sub(1))
    }

    /// Returns the next hop of `address`, or [`NO_ROUTE`].
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

    /// Prefetches the memory that a look-up of `address` reads first.
    #[inline(always)]
    pub fn prefetch(&self, address: A) {
        prefetch_read(&*self.root, Self::root_row(address));
    }

    /// Makes the first step of the look-ups of all addresses. `begun` must be as long as `addresses`. It gets the
    /// entries of the root, which [`finish`](Self::finish) turns into next hops. Most routes are /24 or shorter. For
    /// these, this step reads all the memory that the look-up needs. The step is so short that the processor overlaps
    /// the steps of several addresses.
    // Not inlined: in a function of its own the compiler knows that `begun` is not part of the table, and reads the
    // table's pointers once instead of once per address.
    #[inline(never)]
    pub fn begin_all(&self, addresses: &[A], begun: &mut [u32]) {
        debug_assert_eq!(addresses.len(), begun.len(), "one slot per address");
        for (begun, address) in begun.iter_mut().zip(addresses) {
            *begun = self.root_entry(*address);
        }
    }

    /// Turns the results of [`begin_all`](Self::begin_all) for `addresses`, in the same order, into next hops or
    /// [`NO_ROUTE`].
    #[inline(always)]
    pub fn finish(&self, addresses: &[A], begun: &mut [u32]) {
        if begun.iter().fold(0, |all, entry| all | entry) & BELOW != 0 {
            return self.finish_below(addresses, begun);
        }
        begun.iter_mut().for_each(|entry| *entry = self.next_hop(*entry));
    }

    /// Does the work of [`finish`](Self::finish) if some entries point below the root.
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

    /// Follows the entries that point below the root, and writes the next hops of their lanes.
    ///
    /// The walk goes level by level, so that the loads of all lanes overlap. It uses sets of lanes instead of branches,
    /// because the depth of a lane is unpredictable.
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
                // If the entry points further down, this value is meaningless and is overwritten later.
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

    /// Returns true if the table is as new, with all its allocations on free lists.
    #[cfg(test)]
    pub(super) fn is_blank(&self) -> bool {
        self.root.iter().all(|&row| row == 0)
            && self.nodes.len() == self.free_nodes.len()
            && self.tails.len() == self.free_tails.len()
            && self.runs.is_blank()
            && self.default == NO_ROUTE
    }

    /// Returns the memory taken, in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.root)
            + self.nodes.capacity() * size_of::<[u128; 4]>()
            + self.tails.capacity() * size_of::<Tail<A>>()
            + (self.free_nodes.capacity() + self.free_tails.capacity()) * size_of::<u32>()
            + self.runs.memory_bytes()
    }
}

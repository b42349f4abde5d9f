//! A table of values by key with a hard limit, for per-sender, per-session or per-tunnel state.
//!
//! Open addressing with linear probing (Knuth, volume 3, section 6.4). The table is at most half full, and keys and
//! values are in one array, so a look-up is nearly always one load. Nothing is allocated after the start. A removed
//! entry leaves no tombstone: the entries behind it move up (section 6.4, algorithm R). When the table is full, the
//! caller can evict an entry ([`Keyed::forget_one`]). The search for this entry continues where the last one ended, as
//! the hand of a clock does. It examines a few slots at a time, so that no packet waits for a search of the whole
//! table.

use forebay_memory::{NoMemory, filled};
use forebay_simd::prefetch::prefetch_read;

/// The key of an entry. It is never 0, which marks a free slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableKey(u64);

impl TableKey {
    /// Returns the key of this number. 0 and `u64::MAX` have the same key.
    #[inline]
    #[must_use]
    pub fn new(number: u64) -> Self {
        Self(if number == 0 { u64::MAX } else { number })
    }
}

impl Default for TableKey {
    fn default() -> Self {
        Self(u64::MAX)
    }
}

/// A slot of the table. Aligned so that a slot of up to 32 bytes does not cross a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Slot<V> {
    /// The number of a [`TableKey`], or [`FREE`].
    key: u64,
    /// The value of the key. Not used in a free slot.
    value: V,
}

/// The key of a free slot.
const FREE: u64 = 0;

/// The number of slots that one search for an entry to evict examines.
const EVICTION_LOOKS: usize = 16;

/// A table of values by key.
#[derive(Debug)]
pub struct Keyed<V> {
    /// The number of slots is a power of two and at least twice `most`.
    slots: Box<[Slot<V>]>,
    start: Start,
    len: usize,
    /// The largest number of entries.
    most: usize,
    /// The slot at which the next search for an entry to evict begins.
    hand: usize,
}

/// The hash function that gives the first slot of the search for a key. It is multiplicative hashing, which is
/// universal for a random odd multiplier (Dietzfelbinger, Hagerup, Katajainen and Penttonen, Journal of Algorithms,
/// 1997).
#[derive(Clone, Copy, Debug)]
struct Start {
    /// An odd number that is derived from the seed.
    multiplier: u64,
    /// The number of bits by which the product is shifted to the right to get a slot.
    shift: u32,
}

impl Start {
    #[inline(always)]
    fn of(self, key: u64) -> usize {
        (key.wrapping_mul(self.multiplier) >> self.shift) as usize
    }
}

/// The entries of a [`Keyed`] table.
pub struct Entries<'a, V> {
    slots: &'a mut [Slot<V>],
    start: Start,
}

impl<V> Entries<'_, V> {
    /// Prefetches the key's first slot.
    #[inline(always)]
    pub fn prefetch(&self, key: TableKey) {
        prefetch_read(self.slots, self.start.of(key.0));
    }

    /// Returns the value of a key, or `None` if the key is not in the table.
    #[inline(always)]
    pub fn get(&mut self, key: TableKey) -> Option<&mut V> {
        let mut at = self.start.of(key.0);
        // The loop ends because at least half of the slots are free.
        while self.slots[at].key != key.0 {
            if self.slots[at].key == FREE {
                return None;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        Some(&mut self.slots[at].value)
    }
}

impl<V: Copy + Default> Keyed<V> {
    /// Creates a table of up to `most` entries. Tables with different seeds put keys into different slots: a secret
    /// seed prevents senders from choosing keys that collide.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(most: usize, seed: u64) -> Result<Self, NoMemory> {
        let slots = (most.max(1) * 2).next_power_of_two();
        let multiplier = (seed ^ 0x9e37_79b9_7f4a_7c15) | 1;
        let slots = filled(Slot { key: FREE, value: V::default() }, slots)?;
        let start = Start { multiplier, shift: 64 - slots.len().trailing_zeros() };
        Ok(Self { slots, start, len: 0, most, hand: 0 })
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the table has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if the table has its largest number of entries.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len >= self.most
    }

    #[inline]
    /// Returns the slot after a slot. The first slot follows the last one.
    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    /// Returns a view of the entries, for a loop that adds and removes none. In such a loop, the fields that a search
    /// needs stay in registers.
    #[inline]
    pub fn entries(&mut self) -> Entries<'_, V> {
        Entries { slots: &mut self.slots, start: self.start }
    }

    /// Adds a value under a key. The caller must have checked that the key is not in the table. Returns `None` if the
    /// table is full.
    pub fn insert(&mut self, key: TableKey, value: V) -> Option<&mut V> {
        if self.is_full() {
            return None;
        }
        let mut at = self.start.of(key.0);
        while self.slots[at].key != FREE {
            at = self.next(at);
        }
        self.slots[at] = Slot { key: key.0, value };
        self.len += 1;
        Some(&mut self.slots[at].value)
    }

    /// Searches the next 16 slots, evicts the first entry for which `idle` returns true, and returns its value. Returns
    /// `None` if there is no such entry. The next call continues behind the last examined slot, so repeated calls
    /// examine the whole table.
    pub fn forget_one(&mut self, idle: impl Fn(&V) -> bool) -> Option<V> {
        for _ in 0..EVICTION_LOOKS {
            let at = self.hand;
            let Slot { key, value } = self.slots[at];
            if key != FREE && idle(&value) {
                // The entry that moves up into this slot is examined next.
                self.remove_at(at);
                return Some(value);
            }
            self.hand = self.next(at);
        }
        None
    }

    /// Removes the entry at `hole`. Entries behind it move up if their search passes the hole.
    fn remove_at(&mut self, mut hole: usize) {
        let mask = self.slots.len() - 1;
        let mut at = hole;
        loop {
            at = self.next(at);
            let Slot { key, .. } = self.slots[at];
            if key == FREE {
                break;
            }
            // The search for this key passes the hole if the key's first slot is the hole or a slot before the hole.
            if at.wrapping_sub(self.start.of(key)) & mask >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
        }
        self.slots[hole].key = FREE;
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Operation {
        Get(u64),
        Insert(u64, u32),
        /// Evicts one entry whose value is a multiple of this number.
        Forget(u32),
    }

    fn step() -> impl Strategy<Value = Operation> {
        // A few keys, so that some repeat, and keys that differ only in the upper half.
        let key = prop_oneof![0u64..40, (0u64..20).prop_map(|n| n << 48), any::<u64>()];
        prop_oneof![
            3 => key.clone().prop_map(Operation::Get),
            4 => (key, any::<u32>()).prop_map(|(key, value)| Operation::Insert(key, value)),
            2 => (1u32..4).prop_map(Operation::Forget),
        ]
    }

    proptest! {
        #[test]
        fn it_is_a_map_with_a_limit(most in 1usize..24, seed: u64, steps in prop::collection::vec(step(), 0..300)) {
            let mut table = Keyed::new(most, seed).expect("memory");
            let mut map: HashMap<u64, u32> = HashMap::new();
            for step in steps {
                match step {
                    Operation::Get(key) => {
                        let expected = map.get(&TableKey::new(key).0).copied();
                        prop_assert_eq!(table.entries().get(TableKey::new(key)).copied(), expected);
                    }
                    Operation::Insert(key, value) if !map.contains_key(&TableKey::new(key).0) => {
                        let added = table.insert(TableKey::new(key), value).is_some();
                        prop_assert_eq!(added, map.len() < most);
                        if added {
                            map.insert(TableKey::new(key).0, value);
                        }
                    }
                    Operation::Insert(..) => {}
                    Operation::Forget(of) => {
                        // Enough looks for the hand to go round once.
                        let rounds = table.slots.len().div_ceil(EVICTION_LOOKS);
                        let forgotten = (0..rounds).find_map(|_| table.forget_one(|value| value % of == 0));
                        let may = map.values().any(|value| value % of == 0);
                        prop_assert_eq!(forgotten.is_some(), may);
                        if let Some(value) = forgotten {
                            prop_assert!(value % of == 0);
                            let is_gone = |key: &u64| table.entries().get(TableKey(*key)).is_none();
                            let gone: Vec<_> = map.keys().copied().filter(is_gone).collect();
                            prop_assert_eq!(gone.len(), 1, "exactly one entry is evicted");
                            prop_assert_eq!(map.remove(&gone[0]), Some(value));
                        }
                    }
                }
                prop_assert_eq!((table.len(), table.is_full()), (map.len(), map.len() >= most));
                for (key, value) in &map {
                    prop_assert_eq!(table.entries().get(TableKey(*key)).copied(), Some(*value));
                }
            }
        }
    }

    #[test]
    fn addresses_in_a_row_are_found_in_few_steps() {
        let mut table = Keyed::new(100_000, 1).expect("memory");
        let address = |n: u64| TableKey::new((1 << 32) + 0x0a00_0000 + n);
        for n in 0..100_000u64 {
            table.insert(address(n), n).expect("room");
        }
        let steps = |n: u64| {
            let key = address(n).0;
            let (start, mut at) = (table.start.of(key), table.start.of(key));
            while table.slots[at].key != key {
                at = table.next(at);
            }
            at.wrapping_sub(start) & (table.slots.len() - 1)
        };
        let total: usize = (0..100_000).map(steps).sum();
        // With random slots the average would be 0.3 at this load (Knuth 6.4, theorem K).
        assert!(total < 100_000, "{total} steps beyond the first slot");
    }
}

//! A table of values by key with a hard limit: what is remembered of each sender, session or tunnel.
//!
//! Open addressing with linear probing (Knuth, volume 3, section 6.4), at most half full, keys and values in one array:
//! a lookup is nearly always one load, and nothing is allocated after the start. An entry that is taken out leaves no
//! trace: those after it move up (section 6.4, algorithm R). Where the table is full, a hand that goes round finds entries
//! that may be forgotten, a few places at a time, so that no packet waits for a search through all of it.

use forebay_memory::{NoMemory, filled};
use forebay_simd::prefetch::prefetch_read;

/// What an entry is found by: never 0, which marks a free place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableKey(u64);

impl TableKey {
    /// The key of this number; 0 is taken for the greatest.
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

/// Aligned, so that none of up to 32 bytes lies across two cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Place<V> {
    key: u64,
    value: V,
}

const FREE: u64 = 0;

/// Places that are looked at for an entry to forget.
const LOOK: usize = 16;

/// Values by key.
#[derive(Debug)]
pub struct Keyed<V> {
    places: Box<[Place<V>]>,
    start: Start,
    len: usize,
    most: usize,
    hand: usize,
}

/// Where the search for a key starts: multiplicative hashing, universal for an odd multiplier drawn at random
/// (Dietzfelbinger, Hagerup, Katajainen and Penttonen, Journal of Algorithms, 1997).
#[derive(Clone, Copy, Debug)]
struct Start {
    multiplier: u64,
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
    places: &'a mut [Place<V>],
    start: Start,
}

impl<V> Entries<'_, V> {
    /// Asks the processor for where the key would be.
    #[inline(always)]
    pub fn prefetch(&self, key: TableKey) {
        prefetch_read(self.places, self.start.of(key.0));
    }

    /// The value of a key.
    #[inline(always)]
    pub fn get(&mut self, key: TableKey) -> Option<&mut V> {
        let mut at = self.start.of(key.0);
        // Half of the places are free, so that this ends.
        while self.places[at].key != key.0 {
            if self.places[at].key == FREE {
                return None;
            }
            at = (at + 1) & (self.places.len() - 1);
        }
        Some(&mut self.places[at].value)
    }
}

impl<V: Copy + Default> Keyed<V> {
    /// A table of up to `most` entries. Tables of different seeds put keys in different places.
    ///
    /// # Errors
    /// There is no memory for so many.
    pub fn new(most: usize, seed: u64) -> Result<Self, NoMemory> {
        let places = (most.max(1) * 2).next_power_of_two();
        let multiplier = (seed ^ 0x9e37_79b9_7f4a_7c15) | 1;
        let places = filled(Place { key: FREE, value: V::default() }, places)?;
        let start = Start { multiplier, shift: 64 - places.len().trailing_zeros() };
        Ok(Self { places, start, len: 0, most, hand: 0 })
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether no entry can be added.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len >= self.most
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.places.len() - 1)
    }

    /// The entries alone, for a loop that adds none: what a search needs stays in registers.
    #[inline]
    pub fn entries(&mut self) -> Entries<'_, V> {
        Entries { places: &mut self.places, start: self.start }
    }

    /// Adds the value of a key that is not there; nothing where the table is full.
    pub fn insert(&mut self, key: TableKey, value: V) -> Option<&mut V> {
        if self.is_full() {
            return None;
        }
        let mut at = self.start.of(key.0);
        while self.places[at].key != FREE {
            at = self.next(at);
        }
        self.places[at] = Place { key: key.0, value };
        self.len += 1;
        Some(&mut self.places[at].value)
    }

    /// Forgets an entry that may be, as `idle` says, if there is one among the next few places that the hand comes to.
    pub fn forget_one(&mut self, idle: impl Fn(&V) -> bool) -> Option<V> {
        for _ in 0..LOOK {
            let at = self.hand;
            let Place { key, value } = self.places[at];
            if key != FREE && idle(&value) {
                // What moves up to here is looked at next.
                self.remove_at(at);
                return Some(value);
            }
            self.hand = self.next(at);
        }
        None
    }

    /// Takes the entry at `hole` out: those behind that are not where their search starts move up.
    fn remove_at(&mut self, mut hole: usize) {
        let mask = self.places.len() - 1;
        let mut at = hole;
        loop {
            at = self.next(at);
            let Place { key, .. } = self.places[at];
            if key == FREE {
                break;
            }
            // Whether its search passes the hole: it starts no nearer to it than the hole lies.
            if at.wrapping_sub(self.start.of(key)) & mask >= at.wrapping_sub(hole) & mask {
                self.places[hole] = self.places[at];
                hole = at;
            }
        }
        self.places[hole].key = FREE;
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Get(u64),
        Insert(u64, u32),
        /// Forget one whose value is a multiple of this.
        Forget(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        // Few keys, that they meet; and such as differ in the upper half alone.
        let key = prop_oneof![0u64..40, (0u64..20).prop_map(|n| n << 48), any::<u64>()];
        prop_oneof![
            3 => key.clone().prop_map(Step::Get),
            4 => (key, any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
            2 => (1u32..4).prop_map(Step::Forget),
        ]
    }

    proptest! {
        #[test]
        fn it_is_a_map_with_a_limit(most in 1usize..24, seed: u64, steps in prop::collection::vec(step(), 0..300)) {
            let mut table = Keyed::new(most, seed).expect("memory");
            let mut map: HashMap<u64, u32> = HashMap::new();
            for step in steps {
                match step {
                    Step::Get(key) => {
                        prop_assert_eq!(table.entries().get(TableKey::new(key)).copied(), map.get(&TableKey::new(key).0).copied());
                    }
                    Step::Insert(key, value) if !map.contains_key(&TableKey::new(key).0) => {
                        let added = table.insert(TableKey::new(key), value).is_some();
                        prop_assert_eq!(added, map.len() < most);
                        if added {
                            map.insert(TableKey::new(key).0, value);
                        }
                    }
                    Step::Insert(..) => {}
                    Step::Forget(of) => {
                        // Enough looks for the hand to go round once.
                        let rounds = table.places.len().div_ceil(LOOK);
                        let forgotten = (0..rounds).find_map(|_| table.forget_one(|value| value % of == 0));
                        let may = map.values().any(|value| value % of == 0);
                        prop_assert_eq!(forgotten.is_some(), may);
                        if let Some(value) = forgotten {
                            prop_assert!(value % of == 0);
                            let gone: Vec<_> =
                                map.keys().copied().filter(|key| table.entries().get(TableKey(*key)).is_none()).collect();
                            prop_assert_eq!(gone.len(), 1, "one and no other");
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
            while table.places[at].key != key {
                at = table.next(at);
            }
            at.wrapping_sub(start) & (table.places.len() - 1)
        };
        let total: usize = (0..100_000).map(steps).sum();
        // With places at random it would be 0.3 on average at this load (Knuth 6.4, theorem K).
        assert!(total < 100_000, "{total} steps beyond the first place");
    }
}

//! A hash table from keys of several words to gates, filled once.

use forebay_graph::Gate;
use forebay_memory::{NoMemory, filled};

/// The most words in a key.
pub(super) const MOST_WORDS: usize = 8;

/// A hash table with open addressing and linear probing. It is at most half full. All keys have the same length and are
/// stored side by side.
pub(super) struct Table {
    /// The number of words of each key.
    words: usize,
    /// The right shift from a 64-bit hash to the index of a slot.
    shift: u32,
    /// The keys of all slots: `words` numbers for each.
    keys: Box<[u64]>,
    /// The gate of each slot; `None` if the slot is empty.
    gates: Box<[Option<Gate>]>,
}

impl Table {
    /// Creates a table for up to `entries` keys of `words` words, 1 to [`MOST_WORDS`]. Fails if there is no memory.
    pub(super) fn new(entries: usize, words: usize) -> Result<Self, NoMemory> {
        let slots = (entries * 2).next_power_of_two().max(2);
        let (keys, gates) = (filled(0, slots * words)?, filled(None, slots)?);
        Ok(Self { words, shift: 64 - slots.trailing_zeros(), keys, gates })
    }

    /// Returns the index and the gate of a key's slot. For an unknown key, returns the index of the empty slot for the
    /// key, and no gate.
    #[inline]
    fn find(&self, key: &[u64]) -> (usize, Option<Gate>) {
        // Multiply and fold each word: every bit of every word reaches the upper bits of the last product.
        let mix = |hash: u64, word: &u64| {
            let product = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            product ^ product >> 32
        };
        let mut at = (key.iter().fold(0, mix).wrapping_mul(0xd6e8_feb8_6659_fd93) >> self.shift) as usize;
        // Keys are compared word by word: a call that compares any number of bytes takes longer than these few words.
        let equals = |at: usize| self.keys[at * self.words..][..self.words].iter().zip(key).all(|(a, b)| a == b);
        // The loop ends because half of the slots are empty.
        loop {
            match self.gates[at] {
                Some(_) if !equals(at) => at = (at + 1) & (self.gates.len() - 1),
                gate => return (at, gate),
            }
        }
    }

    /// Adds a key. At most `entries` keys may be added: a full table would make searches endless. A key that is already
    /// present keeps its gate, which is returned.
    pub(super) fn insert(&mut self, key: &[u64], gate: Gate) -> Option<Gate> {
        let (at, present) = self.find(key);
        if present.is_none() {
            self.gates[at] = Some(gate);
            self.keys[at * self.words..][..self.words].copy_from_slice(key);
        }
        present
    }

    /// Returns the key's gate.
    #[inline]
    pub(super) fn get(&self, key: &[u64]) -> Option<Gate> {
        self.find(key).1
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map(
            words in 1usize..=MOST_WORDS,
            entries in prop::collection::vec((prop::array::uniform8(0u64..4), 0u16..99), 0..200),
        ) {
            let mut table = Table::new(entries.len(), words).expect("memory");
            let mut map = HashMap::new();
            for (key, gate) in &entries {
                let (key, gate) = (&key[..words], Gate::out(*gate));
                prop_assert_eq!(table.insert(key, gate), map.get(key).copied());
                map.entry(key).or_insert(gate);
            }
            for (key, _) in &entries {
                let mut other = *key;
                other[0] ^= 1 << 63;
                prop_assert_eq!(table.get(&key[..words]), map.get(&key[..words]).copied());
                prop_assert_eq!(table.get(&other[..words]), None);
            }
        }
    }
}

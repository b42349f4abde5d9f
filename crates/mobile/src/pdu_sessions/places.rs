//! An index from hashes to numbers: finds the session or bearer that a packet names.
//!
//! Open addressing with linear probing (Knuth, volume 3, section 6.4), at most half full, with eight bytes per slot and
//! eight slots per cache line. A slot contains the tag of its key: 32 bits of the key's hash. The tag determines the
//! slot at which the search for the key starts. So a removal can move later entries into the free slot (section 6.4,
//! algorithm R) without reading their keys, and leaves no marker of a deleted entry.

use forebay_memory::{NoMemory, zeroed};
use forebay_simd::prefetch::prefetch_read;
use zerocopy::FromZeros;

/// A slot of the index.
#[derive(Clone, Copy, Debug, Default, FromZeros)]
struct Slot {
    /// The upper 32 bits of the key's hash.
    tag: u32,
    /// One more than the entry; 0 marks an empty slot.
    entry: u32,
}

/// The index.
#[derive(Debug)]
pub(super) struct Index {
    slots: Box<[Slot]>,
}

impl Clone for Index {
    fn clone(&self) -> Self {
        Self { slots: self.slots.clone() }
    }

    /// Allocates no memory if both have the same capacity.
    fn clone_from(&mut self, other: &Self) {
        self.slots.clone_from(&other.slots);
    }
}

impl Index {
    /// Creates an index for up to `most` entries. Fails if there is no memory.
    pub(super) fn new(most: usize) -> Result<Self, NoMemory> {
        Ok(Self { slots: zeroed((most * 2).max(2))? })
    }

    /// Returns the slot at which the search for a tag starts (Lemire, "Fast random integer generation in an interval",
    /// 2019).
    #[inline(always)]
    fn start(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.slots.len() as u64) >> 32) as usize
    }

    /// Returns the slot after `at`, with wrap-around.
    #[inline(always)]
    fn next(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    /// Returns the number of slots from `from` forward to `at`, with wrap-around.
    fn behind(&self, at: usize, from: usize) -> usize {
        if at >= from { at - from } else { at + self.slots.len() - from }
    }

    /// Prefetches the slot at which the search starts.
    #[inline(always)]
    pub(super) fn prefetch(&self, tag: u32) {
        prefetch_read(&self.slots, self.start(tag));
    }

    /// Returns the first entry of a tag, which is nearly always the only one. The caller must check the key: different
    /// keys may have the same tag.
    #[inline(always)]
    pub(super) fn first(&self, tag: u32) -> Option<u32> {
        self.find(tag, |_| true)
    }

    /// Returns the entry of a tag for which `is_it` returns true; `None` if there is no such entry.
    #[inline(always)]
    pub(super) fn find(&self, tag: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.start(tag);
        // The loop ends because half of the slots are empty.
        loop {
            let Slot { tag: found, entry } = self.slots[at];
            if entry == 0 {
                return None;
            }
            if found == tag && is_it(entry - 1) {
                return Some(entry - 1);
            }
            at = self.next(at);
        }
    }

    /// Adds an entry, which must not be present. The index may have at most `most` entries: a full index would make
    /// searches endless.
    pub(super) fn insert(&mut self, tag: u32, entry: u32) {
        let mut at = self.start(tag);
        while self.slots[at].entry != 0 {
            at = self.next(at);
        }
        self.slots[at] = Slot { tag, entry: entry + 1 };
    }

    /// Removes an entry, if it is present.
    pub(super) fn remove(&mut self, tag: u32, entry: u32) {
        let mut at = self.start(tag);
        while self.slots[at].entry != entry + 1 {
            if self.slots[at].entry == 0 {
                return;
            }
            at = self.next(at);
        }
        let mut hole = at;
        loop {
            at = self.next(at);
            let slot = self.slots[at];
            if slot.entry == 0 {
                break;
            }
            // The entry moves if the search for it passes the hole. This is so if the search starts at the hole or
            // before.
            if self.behind(at, self.start(slot.tag)) >= self.behind(at, hole) {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = Slot::default();
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
            most in 1usize..20,
            // Searches start at few slots, so that they overlap and wrap around.
            steps in prop::collection::vec(
                (prop_oneof![0u32..6, (u32::MAX - 5)..=u32::MAX, any::<u32>()], 0u32..20, any::<bool>()), 0..200,
            ),
        ) {
            let mut index = Index::new(most).expect("memory");
            let mut map: HashMap<u32, u32> = HashMap::new();
            for (tag, entry, add) in steps {
                match (add, map.contains_key(&entry)) {
                    (true, false) if map.len() < most => {
                        index.insert(tag, entry);
                        map.insert(entry, tag);
                    }
                    (false, true) => {
                        let tag = map.remove(&entry).expect("the entry is present");
                        index.remove(tag, entry);
                    }
                    (false, false) => index.remove(tag, entry),
                    _ => {}
                }
                for entry in 0..20 {
                    let tag = map.get(&entry).copied();
                    let searched = tag.unwrap_or(7);
                    prop_assert_eq!(index.find(searched, |other| other == entry), tag.map(|_| entry));
                }
            }
        }
    }
}

//! Numbers of entries by hash: where a session or bearer is that a packet names.
//!
//! Open addressing with linear probing (Knuth, volume 3, section 6.4), at most half full, eight bytes a place and eight
//! places to a cache line. A place has 32 bits of its key's hash, and these say where the search for it starts, so that an
//! entry that is taken out leaves no trace: those behind it move up (section 6.4, algorithm R) without a look at any key.

use forebay_memory::{NoMemory, zeroed};
use forebay_simd::prefetch::prefetch_read;
use zerocopy::FromZeros;

/// A place; entry 0 is none.
#[derive(Clone, Copy, Debug, Default, FromZeros)]
struct Place {
    tag: u32,
    entry: u32,
}

/// The index.
#[derive(Debug)]
pub(super) struct Places {
    places: Box<[Place]>,
}

impl Clone for Places {
    fn clone(&self) -> Self {
        Self { places: self.places.clone() }
    }

    /// Takes no memory where both were made for as many.
    fn clone_from(&mut self, other: &Self) {
        self.places.clone_from(&other.places);
    }
}

impl Places {
    /// An index of up to `most` entries.
    pub(super) fn new(most: usize) -> Result<Self, NoMemory> {
        Ok(Self { places: zeroed((most * 2).max(2))? })
    }

    /// Where the search for a tag starts (Lemire, "Fast random integer generation in an interval", 2019).
    #[inline(always)]
    fn start(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.places.len() as u64) >> 32) as usize
    }

    #[inline(always)]
    fn next(&self, at: usize) -> usize {
        if at + 1 == self.places.len() { 0 } else { at + 1 }
    }

    /// How far `at` is behind `from`, round the end.
    fn behind(&self, at: usize, from: usize) -> usize {
        if at >= from { at - from } else { at + self.places.len() - from }
    }

    /// Asks the processor for where the search starts.
    #[inline(always)]
    pub(super) fn prefetch(&self, tag: u32) {
        prefetch_read(&self.places, self.start(tag));
    }

    /// The first entry of a tag: nearly always the only one.
    #[inline(always)]
    pub(super) fn first(&self, tag: u32) -> Option<u32> {
        self.find(tag, |_| true)
    }

    /// The entry of a tag that `is_it`.
    #[inline(always)]
    pub(super) fn find(&self, tag: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.start(tag);
        // Half of the places are free, so that this ends.
        loop {
            let Place { tag: found, entry } = self.places[at];
            if entry == 0 {
                return None;
            }
            if found == tag && is_it(entry - 1) {
                return Some(entry - 1);
            }
            at = self.next(at);
        }
    }

    /// Adds an entry that is not there, as long as there are fewer than this was made for.
    pub(super) fn insert(&mut self, tag: u32, entry: u32) {
        let mut at = self.start(tag);
        while self.places[at].entry != 0 {
            at = self.next(at);
        }
        self.places[at] = Place { tag, entry: entry + 1 };
    }

    /// Takes an entry out, if it is there.
    pub(super) fn remove(&mut self, tag: u32, entry: u32) {
        let mut at = self.start(tag);
        while self.places[at].entry != entry + 1 {
            if self.places[at].entry == 0 {
                return;
            }
            at = self.next(at);
        }
        let mut hole = at;
        loop {
            at = self.next(at);
            let place = self.places[at];
            if place.entry == 0 {
                break;
            }
            // Whether its search passes the hole: it starts no nearer to it than the hole lies.
            if self.behind(at, self.start(place.tag)) >= self.behind(at, hole) {
                self.places[hole] = place;
                hole = at;
            }
        }
        self.places[hole] = Place::default();
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
            // Few starts, so that entries lie behind each other, and round the end.
            steps in prop::collection::vec((prop_oneof![0u32..6, (u32::MAX - 5)..=u32::MAX, any::<u32>()], 0u32..20, any::<bool>()), 0..200),
        ) {
            let mut places = Places::new(most).expect("memory");
            let mut map: HashMap<u32, u32> = HashMap::new();
            for (tag, entry, add) in steps {
                match (add, map.contains_key(&entry)) {
                    (true, false) if map.len() < most => {
                        places.insert(tag, entry);
                        map.insert(entry, tag);
                    }
                    (false, true) => {
                        let tag = map.remove(&entry).expect("it is there");
                        places.remove(tag, entry);
                    }
                    (false, false) => places.remove(tag, entry),
                    _ => {}
                }
                for entry in 0..20 {
                    let tag = map.get(&entry).copied();
                    let asked = tag.unwrap_or(7);
                    prop_assert_eq!(places.find(asked, |other| other == entry), tag.map(|_| entry));
                }
            }
        }
    }
}

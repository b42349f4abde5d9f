//! The timer wheel that determines when a session is examined for expiry (Varghese and Lauck, "Hashed and hierarchical
//! timing wheels", SOSP 1987, scheme 4). Its slots are linked lists through the entries themselves.
//!
//! A packet of a session only writes the new end time into the entry, which is in the cache anyway. The wheel does not
//! change. When the wheel reaches the entry's old slot, the entry is moved to the slot of its new end time. So the
//! entry of a session that continues is moved once per time-out, or once per turn of the wheel if the time-out is
//! longer than a turn. The number of its packets does not matter.

use zerocopy::FromZeros;

/// The number of slots of the wheel. At eight slots per second, a turn takes 8.5 minutes. An entry that lasts longer is
/// moved to a later slot once per turn.
pub(super) const SLOTS: u32 = 4_096;
/// The number of words of a bit map with a bit for each slot. It must be equal to the number of bits in a word, because
/// `Wheel::words` is one word with a bit for each.
const WORDS: usize = SLOTS as usize / 64;

/// An entry's links in the wheel. If both are 0, the entry is not on the wheel.
#[derive(Clone, Copy, Debug, Default, FromZeros)]
#[repr(C)]
pub(super) struct Link {
    /// The next entry of the slot. In the last entry: the slot's number with the highest bit set.
    next: u32,
    /// The previous entry of the slot. In the first entry: the slot's number with the highest bit set.
    before: u32,
}

impl Link {
    /// Returns true if the entry is not on the wheel.
    pub(super) fn is_none(&self) -> bool {
        self.before == 0
    }

    /// Returns the next entry of the same slot.
    pub(super) fn next(&self) -> Option<u32> {
        Some(self.next).filter(|next| next & SLOT == 0)
    }
}

/// The bit that marks a slot number in a [`Link`].
const SLOT: u32 = 1 << 31;
/// The value of both links of an entry that never ends. The entry is in no slot, but counts as on the wheel.
const NOWHERE: u32 = u32::MAX;
/// The end time of a session that never ends.
pub const NEVER: u32 = u32::MAX;

/// The storage of the links, indexed by entry number from 1.
pub(super) trait Links {
    /// Returns the links of an entry.
    fn link(&mut self, entry: u32) -> &mut Link;
}

/// A timer wheel.
pub(super) struct Wheel {
    /// The first and the last entry of each slot; 0 if the slot is empty. Entries are in order of insertion, so that an
    /// eviction takes the oldest of the entries of one slot.
    ends: Box<[[u32; 2]; SLOTS as usize]>,
    /// A bit for each slot, set if the slot has entries.
    used: [u64; WORDS],
    /// A bit for each word of `used`, set if the word is not 0.
    words: u64,
    /// The time up to which all slots have been examined, in slots of the wheel.
    at: u32,
}

impl Wheel {
    pub(super) fn new() -> Self {
        Self { ends: Box::new([[0; 2]; SLOTS as usize]), used: [0; WORDS], words: 0, at: 0 }
    }

    /// Advances to `now` without examining slots. No slot may have entries. Does nothing if `now` is in the past.
    #[inline]
    pub(super) fn skip_to(&mut self, now: u32) {
        debug_assert_eq!(self.words, 0, "the wheel must be empty");
        self.at = self.at.max(now);
    }

    /// Returns the time up to which all slots have been examined.
    pub(super) fn at(&self) -> u32 {
        self.at
    }

    /// Puts an entry that is not on the wheel into the slot of time `due`, or into the last slot of the turn if `due`
    /// is later than that. An entry that is due [`NEVER`] goes into no slot.
    #[inline]
    pub(super) fn insert(&mut self, links: &mut impl Links, entry: u32, due: u32) {
        if due == NEVER {
            *links.link(entry) = Link { next: NOWHERE, before: NOWHERE };
            return;
        }
        let ahead = due.saturating_sub(self.at).clamp(1, SLOTS - 1);
        let slot = (self.at.wrapping_add(ahead)) % SLOTS;
        let [first, last] = &mut self.ends[slot as usize];
        let before = std::mem::replace(last, entry);
        if before != 0 {
            *links.link(entry) = Link { next: SLOT | slot, before };
            links.link(before).next = entry;
            return;
        }
        *first = entry;
        *links.link(entry) = Link { next: SLOT | slot, before: SLOT | slot };
        self.used[slot as usize / 64] |= 1 << (slot % 64);
        self.words |= 1 << (slot / 64);
    }

    /// Removes an entry from the wheel.
    #[inline]
    pub(super) fn remove(&mut self, links: &mut impl Links, entry: u32) {
        let Link { next, before } = std::mem::take(links.link(entry));
        if next == NOWHERE {
            return;
        }
        // Link the two neighbours to each other. At an end of the list, the first or last entry of the slot changes.
        let (is_first, is_last) = (before & SLOT != 0, next & SLOT != 0);
        if is_last {
            self.ends[(next % SLOTS) as usize][1] = if is_first { 0 } else { before };
        } else {
            links.link(next).before = before;
        }
        if is_first {
            self.ends[(before % SLOTS) as usize][0] = if is_last { 0 } else { next };
        } else {
            links.link(before).next = next;
        }
        if is_first && is_last {
            let slot = next % SLOTS;
            let word = &mut self.used[slot as usize / 64];
            *word &= !(1 << (slot % 64));
            if *word == 0 {
                self.words &= !(1 << (slot / 64));
            }
        }
    }

    /// Advances towards `now`, up to the slot before the next slot that has entries, and returns the first of these
    /// entries. The caller must remove this entry from its slot before the next call. Returns `None` if no slot up to
    /// `now` has entries.
    pub(super) fn next(&mut self, now: u32) -> Option<u32> {
        if self.at >= now {
            return None;
        }
        match self.soonest().filter(|(_, ahead)| *ahead <= now - self.at) {
            Some((first, ahead)) => {
                // The slot itself has not been examined.
                self.at += ahead - 1;
                Some(first)
            }
            None => {
                self.at = now;
                None
            }
        }
    }

    /// Returns the first entry of the next slot that has entries, and the distance to that slot from
    /// [`at`](Self::at), in slots.
    pub(super) fn soonest(&self) -> Option<(u32, u32)> {
        let start = (self.at.wrapping_add(1)) % SLOTS;
        let (word, bit) = (start / 64, start % 64);
        let ahead = self.used[word as usize] >> bit << bit;
        let slot = if ahead != 0 {
            word * 64 + ahead.trailing_zeros()
        } else if self.words != 0 {
            // The next word that is not 0. It is the same word again if only bits before `bit` remain in it.
            let after = self.words.rotate_right(word + 1).trailing_zeros();
            let word = (word + 1 + after) % WORDS as u32;
            word * 64 + self.used[word as usize].trailing_zeros()
        } else {
            return None;
        };
        Some((self.ends[slot as usize % SLOTS as usize][0], (slot + SLOTS - start) % SLOTS + 1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Links for Vec<Link> {
        fn link(&mut self, entry: u32) -> &mut Link {
            &mut self[entry as usize]
        }
    }

    proptest! {
        /// An entry comes off the wheel when its time has come and not before. An entry that lasts longer than a turn
        /// comes off at the end of the turn.
        #[test]
        fn entries_come_when_they_are_due(
            steps in prop::collection::vec(
                (0u32..3, 1u32..25, prop::sample::select(vec![0u32, 1, 2, 63, 64, 700, 4_000, 5_000, 30_000])),
                1..200,
            ),
        ) {
            let (mut wheel, mut links) = (Wheel::new(), vec![Link::default(); 25]);
            // The latest time at which each entry is due.
            let mut model: std::collections::BTreeMap<u32, u32> = std::collections::BTreeMap::new();
            let mut came: std::collections::BTreeMap<u32, usize> = std::collections::BTreeMap::new();
            let mut now = 0;
            for (at, (operation, entry, span)) in steps.into_iter().enumerate() {
                match operation {
                    0 if !model.contains_key(&entry) => {
                        came.insert(entry, at);
                        wheel.insert(&mut links, entry, now + span);
                        let due = wheel.at() + (now + span).saturating_sub(wheel.at()).clamp(1, SLOTS - 1);
                        model.insert(entry, due);
                    }
                    1 if model.remove(&entry).is_some() => wheel.remove(&mut links, entry),
                    2 => {
                        now += span;
                        while let Some(due) = wheel.next(now) {
                            let when = model.remove(&due);
                            prop_assert_eq!(when, Some(wheel.at() + 1), "entry {} at {}", due, now);
                            wheel.remove(&mut links, due);
                        }
                        prop_assert_eq!(wheel.at(), now);
                        prop_assert!(model.values().all(|due| *due > now));
                    }
                    _ => {}
                }
                let soonest = wheel.soonest().map(|(entry, ahead)| (entry, wheel.at() + ahead));
                let (came, order) = (&came, &model);
                let first = order.iter().min_by_key(|(entry, due)| (**due, came[entry]));
                let first = first.map(|(entry, due)| (*entry, *due));
                prop_assert_eq!(soonest, first, "the soonest entry; within a slot the one that was inserted first");
            }
        }
    }
}

//! When sessions are looked at again: a timer wheel (Varghese and Lauck, "Hashed and hierarchical timing wheels", SOSP 1987,
//! scheme 4) of lists that go through the entries themselves.
//!
//! A packet of a session only writes into its entry, which is at hand anyway, when the session ends without another one. The
//! wheel learns of it when the entry's turn comes: it is put off to where it belongs. So each entry is moved once a turn of
//! the wheel or once a time-out, whichever is longer apart, however many packets it has.

use zerocopy::FromZeros;

/// Slots: at eight a second the wheel goes round in 8.5 minutes; what is to last longer is put off once a round.
pub(super) const SLOTS: u32 = 4_096;
/// Words of a bit for each slot: as many as a word has bits.
const WORDS: usize = SLOTS as usize / 64;

/// The entry's own part of the wheel. All zero: not on it.
#[derive(Clone, Copy, Debug, Default, FromZeros)]
#[repr(C)]
pub(super) struct Link {
    /// The next entry of the slot; of the last, the slot with the highest bit set.
    next: u32,
    /// The entry before it; of the first, the same.
    before: u32,
}

impl Link {
    /// Whether the entry is not on the wheel.
    pub(super) fn is_none(&self) -> bool {
        self.before == 0
    }

    /// The next entry of the same slot.
    pub(super) fn next(&self) -> Option<u32> {
        Some(self.next).filter(|next| next & SLOT == 0)
    }
}

/// Marks a slot in a [`Link`].
const SLOT: u32 = 1 << 31;
/// In place of a slot: on none, as the entry never ends.
const NOWHERE: u32 = u32::MAX;
/// What never comes.
pub const NEVER: u32 = u32::MAX;

/// Where links are kept: with the entries, which are numbered from 1.
pub(super) trait Links {
    fn link(&mut self, entry: u32) -> &mut Link;
}

/// The wheel.
pub(super) struct Wheel {
    /// By slot: the first entry and the last one; 0: none. They are in the order in which they came, so that among those of one
    /// slot it is not the latest one that is thought to end soonest.
    ends: Box<[[u32; 2]; SLOTS as usize]>,
    /// A bit for each slot that has entries.
    used: [u64; WORDS],
    /// A bit for each word of `used` that is not 0.
    words: u64,
    /// The time until which all slots have been gone through.
    at: u32,
}

impl Wheel {
    pub(super) fn new() -> Self {
        Self { ends: Box::new([[0; 2]; SLOTS as usize]), used: [0; WORDS], words: 0, at: 0 }
    }

    /// Goes on to `now` with nothing on the wheel.
    #[inline]
    pub(super) fn skip_to(&mut self, now: u32) {
        debug_assert_eq!(self.words, 0, "nothing is passed over");
        self.at = self.at.max(now);
    }

    /// Until when all slots have been gone through.
    pub(super) fn at(&self) -> u32 {
        self.at
    }

    /// Puts an entry that is not on the wheel where it is looked at at `due`, or at the end of a round; nowhere, if that is
    /// [`NEVER`].
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

    /// Takes an entry off that is on the wheel.
    #[inline]
    pub(super) fn remove(&mut self, links: &mut impl Links, entry: u32) {
        let Link { next, before } = std::mem::take(links.link(entry));
        if next == NOWHERE {
            return;
        }
        // Whoever was beside it is beside the other one now; at the slot's ends, the slot knows.
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

    /// Goes on to `now` until a slot that has entries: its first one. `None` where all until `now` are gone through.
    pub(super) fn next(&mut self, now: u32) -> Option<u32> {
        if self.at >= now {
            return None;
        }
        match self.soonest().filter(|(_, ahead)| *ahead <= now - self.at) {
            Some((first, ahead)) => {
                // The slot itself has not been gone through.
                self.at += ahead - 1;
                Some(first)
            }
            None => {
                self.at = now;
                None
            }
        }
    }

    /// The first entry of the next slot that has any, and how far ahead that is.
    pub(super) fn soonest(&self) -> Option<(u32, u32)> {
        let start = (self.at.wrapping_add(1)) % SLOTS;
        let (word, bit) = (start / 64, start % 64);
        let ahead = self.used[word as usize] >> bit << bit;
        let slot = if ahead != 0 {
            word * 64 + ahead.trailing_zeros()
        } else if self.words != 0 {
            // The next word after it that has any; it is the same one again if only slots before the start are left.
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
        /// What is put on comes off once its time has come, and not before; what lasts longer than a round comes at its end.
        #[test]
        fn entries_come_when_they_are_due(
            steps in prop::collection::vec((0u32..3, 1u32..25, prop::sample::select(vec![0u32, 1, 2, 63, 64, 700, 4_000, 5_000, 30_000])), 1..200),
        ) {
            let (mut wheel, mut links) = (Wheel::new(), vec![Link::default(); 25]);
            // By entry: when it is due at the latest.
            let mut model: std::collections::BTreeMap<u32, u32> = std::collections::BTreeMap::new();
            let mut came: std::collections::BTreeMap<u32, usize> = std::collections::BTreeMap::new();
            let mut now = 0;
            for (at, (what, entry, span)) in steps.into_iter().enumerate() {
                match what {
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
                let first = order.iter().min_by_key(|(entry, due)| (**due, came[entry])).map(|(entry, due)| (*entry, *due));
                prop_assert_eq!(soonest, first, "of those of one slot the one that came first");
            }
        }
    }
}

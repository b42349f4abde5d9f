//! Look-ups of sessions by key: one at a time, or a batch in steps that prefetch the memory of the next step.

use forebay_simd::prefetch::prefetch_read;

use super::index::Spot;
use super::{FIRSTS, Found, GROUP, Key, Session, Sessions};

impl<S: Session> Sessions<S> {
    /// Returns the spot at which a key's session is looked up and inserted.
    #[inline(always)]
    #[must_use]
    pub fn spot(&self, key: S::Key) -> Spot {
        self.index.spot(key.hash(self.seed))
    }

    /// Looks up the session of a key. Returns [`Found::NONE`] if there is none.
    #[inline]
    #[must_use]
    pub fn find(&self, key: S::Key) -> Found {
        self.find_at(self.spot(key), key)
    }

    /// Looks up the session of a key whose [`spot`](Self::spot) is known.
    #[inline]
    #[must_use]
    pub fn find_at(&self, spot: Spot, key: S::Key) -> Found {
        self.index.find(spot, |it| self.is(it, key)).map_or(Found::NONE, Found)
    }

    /// Returns true if the index entry `it`, a session number and a side as in [`Found`], has this key.
    #[inline(always)]
    pub(super) fn is(&self, it: u32, key: S::Key) -> bool {
        self.entries[(it >> 1) as usize].session.key(it & 1) == key
    }

    /// Looks up the session of each key and stores the results in `found`, in the same order.
    #[inline]
    pub fn find_each(&self, keys: &[S::Key], found: &mut [Found]) {
        for (keys, found) in keys.chunks(GROUP).zip(found.chunks_mut(GROUP)) {
            self.find_group(keys, &mut [Spot::default(); GROUP], found);
        }
    }

    /// Looks up the sessions of up to [`GROUP`] keys. Stores the results in `found`, which must be as long as `keys`,
    /// and the keys' spots in `spots`.
    #[inline(always)]
    pub fn find_group(&self, keys: &[S::Key], spots: &mut [Spot; GROUP], found: &mut [Found]) {
        for (key, spot) in keys.iter().zip(&mut *spots) {
            *spot = self.spot(*key);
            self.index.prefetch(*spot);
        }
        let mut missing = 0u32;
        for (at, (spot, found)) in spots.iter().zip(&mut *found).enumerate() {
            let it = self.index.first(*spot);
            *found = Found(it);
            if it != 0 {
                prefetch_read(&self.entries, (it >> 1) as usize);
            } else {
                self.index.prefetch_other(*spot);
                missing |= 1 << at;
            }
        }
        while missing != 0 {
            let at = missing.trailing_zeros() as usize % GROUP;
            missing &= missing - 1;
            let it = self.index.second(spots[at]);
            if let (true, Some(found)) = (it != 0, found.get_mut(at)) {
                *found = Found(it);
                prefetch_read(&self.entries, (it >> 1) as usize);
            }
        }
        for ((key, spot), found) in keys.iter().zip(&*spots).zip(found) {
            // About one look-up in 2²⁸ finds the entry of another key with the same signature. Then all slots of the
            // key are searched. If nothing was found, the session may still be in the stash.
            if found.is_some() && !self.is(found.0, *key) || !found.is_some() && self.index.stashed() != 0 {
                *found = self.find_at(*spot, *key);
            }
        }
    }

    /// Selects the keys whose bits are set in `among`, and returns the bits of the selected keys that differ from all
    /// earlier selected keys. `spots` must be the keys' spots.
    #[inline]
    #[must_use]
    pub fn first_ones(keys: &[S::Key; GROUP], spots: &[Spot; GROUP], among: u32) -> u32 {
        // A small hash table by signature with linear probing. It holds the index of a key plus 1; 0 is a free slot.
        let mut slots = [0u8; FIRSTS];
        let (mut first, mut remaining) = (among, among);
        while remaining != 0 {
            let at = remaining.trailing_zeros() as usize % GROUP;
            remaining &= remaining - 1;
            let mut slot = spots[at].signature() as usize % FIRSTS;
            while let Some(other) = usize::from(slots[slot]).checked_sub(1) {
                if keys[other % GROUP] == keys[at] {
                    first &= !(1 << at);
                    break;
                }
                slot = (slot + 1) % FIRSTS;
            }
            if slots[slot] == 0 {
                slots[slot] = at as u8 + 1;
            }
        }
        first
    }

    /// Returns the session of a number ([`Found::number`]). The session must be in the table.
    #[inline(always)]
    #[must_use]
    pub fn numbered(&self, number: u32) -> Found {
        debug_assert!(!self.entries[number as usize].link.is_none(), "no session has this number");
        Found(number << 1)
    }

    /// Prefetches both index buckets of a key.
    #[inline(always)]
    pub fn prefetch(&self, key: S::Key) {
        let spot = self.spot(key);
        self.index.prefetch(spot);
        self.index.prefetch_other(spot);
    }

    /// Prefetches a session by its number.
    #[inline(always)]
    pub fn prefetch_numbered(&self, number: u32) {
        prefetch_read(&self.entries, number as usize);
    }

    /// Returns true if the session that was found by this key is still in the table. Use it if sessions may have been
    /// removed since the look-up.
    #[inline(always)]
    #[must_use]
    pub fn is_still(&self, found: Found, key: S::Key) -> bool {
        !self.entries[found.number() as usize].link.is_none() && self.is(found.0, key)
    }

    /// Prepares up to `new` insertions. If the table does not have room for them, prefetches the index buckets of the
    /// sessions that will probably be evicted, and calls `each` with each of these sessions. Otherwise does nothing.
    #[inline]
    pub fn make_ready(&self, new: usize, each: impl Fn(&S)) {
        let Some(first) = self.wheel.soonest().filter(|_| self.len() + new > self.capacity()) else { return };
        let next = |number: &u32| self.entries[*number as usize].link.next();
        for number in std::iter::successors(Some(first.0), next).take(new) {
            let session = &self.entries[number as usize].session;
            (0..session.sides()).for_each(|side| self.prefetch(session.key(side)));
            each(session);
        }
    }
}

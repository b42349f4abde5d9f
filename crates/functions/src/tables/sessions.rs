//! Sessions by key: what firewalls, translators and load balancers remember of each.
//!
//! Bounded memory, all of it set aside at the start: a line of the index is eight signatures and entries' numbers
//! ([`index`]), an entry has the session, its end and its place on a timer wheel ([`wheel`]). Look-ups are made a batch at a
//! time, in steps that each ask for the memory which the next one needs; a hit takes two accesses, one of them to a line of
//! the index that few others share.
//!
//! A session may be found by two keys, one a side: a translated one by what it is inside and by what it is outside.

mod hash;
mod index;
mod places;
mod tuple;
mod wheel;

use forebay_memory::{NoMemory, Zeroed};
use forebay_simd::prefetch::prefetch_read;
use zerocopy::FromZeros;

pub use hash::Seed;
use index::Index;
pub use index::Spot;
pub use tuple::{Tuple4, Tuple6};
pub use wheel::NEVER;
use wheel::{Link, Links, Wheel};

/// What a session is found by.
pub trait Key: Copy + Eq {
    /// The key's hash with a table's secrets.
    fn hash(&self, seed: Seed) -> u64;
}

/// What is remembered. All zero must be a value: memory that was never used is.
pub trait Session: Copy + FromZeros {
    /// What it is found by.
    type Key: Key;
    /// How many keys it has at most: 1 or 2.
    const SIDES: u32;

    /// How many keys this one has, as long as it is in a table.
    #[inline(always)]
    fn sides(&self) -> u32 {
        Self::SIDES
    }

    /// Its key of a side, 0 or 1.
    fn key(&self, side: u32) -> Self::Key;
}

/// A session that was found, and by which side's key. It is good until a session is removed ([`Sessions::removals`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found(u32);

impl Found {
    /// None was found.
    pub const NONE: Self = Self(0);

    /// The session's number: from 1 to the table's capacity, and its own as long as it is there.
    #[inline(always)]
    #[must_use]
    pub fn number(self) -> u32 {
        self.0 >> 1
    }

    /// By which side's key it was found.
    #[inline(always)]
    #[must_use]
    pub fn side(self) -> u32 {
        self.0 & 1
    }

    /// Whether any was found.
    #[inline(always)]
    #[must_use]
    pub fn is_some(self) -> bool {
        self.0 != 0
    }
}

/// Why a session was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// As many are there as the table was made for.
    #[error("the table is full")]
    Full,
    /// The index has no place for its key, though it has others ([`Seed`]).
    #[error("there is no place for this session's key")]
    Crowded,
}

/// Times are counted in slots of the wheel, from when the owner of the table likes; what ends [`NEVER`] is neither removed by
/// time nor gives way to others.
pub type Slot = u32;

/// A line of the cache, where the session leaves room for the rest.
#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(64))]
struct Entry<S> {
    session: S,
    link: Link,
    /// When it ends if nothing comes; in a free entry, the next free one.
    ends: Slot,
}

impl<S> Links for Zeroed<Entry<S>> {
    #[inline]
    fn link(&mut self, entry: u32) -> &mut Link {
        &mut self[entry as usize].link
    }
}

/// The table.
pub struct Sessions<S: Session> {
    index: Index,
    /// By number; there is none of number 0.
    entries: Zeroed<Entry<S>>,
    wheel: Wheel,
    /// So many slots, as a power of two, are one of the wheel: all of it reaches as far as sessions last.
    grain: u32,
    seed: Seed,
    /// Entries from here on were never used.
    fresh: u32,
    /// The first free entry below; 0: none.
    free: u32,
    len: u32,
    removals: u64,
}

/// Keys that are looked up in one go.
pub const GO: usize = 32;
/// Entries that are looked at for one that may be given up: others of the slot may turn out to last longer.
const LOOK: usize = 16;
/// Slots in which keys of a go leave their numbers, to find those that come twice.
const FIRSTS: usize = 4 * GO;
/// The most sessions of a table: their numbers and sides must fit into an index entry.
pub const MOST: usize = 1 << 28;

impl<S: Session> Sessions<S> {
    /// A table of up to `most` sessions, a number from 1 to [`MOST`].
    ///
    /// # Errors
    /// There is no memory for so many, or never would be.
    pub fn new(most: usize, seed: Seed) -> Result<Self, NoMemory> {
        Self::with_keys(most, most.saturating_mul(S::SIDES as usize), seed)
    }

    /// The same, of sessions that have so many keys together at most.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_keys(most: usize, keys: usize, seed: Seed) -> Result<Self, NoMemory> {
        let entries = NoMemory::of::<Entry<S>>(most.saturating_add(1)).bytes;
        let all = entries.saturating_add(Index::bytes_for(keys));
        if !(1..=MOST).contains(&most) {
            return Err(NoMemory { bytes: all });
        }
        let index = Index::new(keys).map_err(|lack| lack.within(all))?;
        let entries = Zeroed::new(most + 1).map_err(|lack| lack.within(all))?;
        Ok(Self { index, entries, wheel: Wheel::new(), grain: 0, seed, fresh: 1, free: 0, len: 0, removals: 0 })
    }

    /// The same, empty, whose sessions last up to so many slots; they are removed up to a 2 048th of that after their end. What
    /// lasts longer than the wheel reaches, 512 seconds of an eighth each where nothing is said, is put off once a round.
    #[must_use]
    pub fn lasting(mut self, longest: Slot) -> Self {
        self.last_up_to(longest);
        self
    }

    /// From now on sessions last up to so many slots ([`lasting`](Self::lasting)). Where that is another order of magnitude, all
    /// that are there are put on the wheel anew.
    pub fn last_up_to(&mut self, longest: Slot) {
        let grain = (0..Slot::BITS).find(|grain| longest >> grain < wheel::SLOTS - 2).unwrap_or_default();
        if grain == self.grain {
            return;
        }
        let at = self.wheel.at() << self.grain;
        (self.grain, self.wheel) = (grain, Wheel::new());
        self.wheel.skip_to(at >> grain);
        for number in 1..self.fresh {
            let entry = &mut self.entries[number as usize];
            let ends = entry.ends;
            if !std::mem::take(&mut entry.link).is_none() {
                let turn = self.turn(ends);
                self.wheel.insert(&mut self.entries, number, turn);
            }
        }
    }

    /// The slot of the wheel in which a session that ends then is looked at: the first one that begins no sooner.
    #[inline(always)]
    fn turn(&self, ends: Slot) -> Slot {
        if ends == NEVER { NEVER } else { (ends >> self.grain) + Slot::from(ends & ((1 << self.grain) - 1) != 0) }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many there can be.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.entries.len() - 1
    }

    /// How much memory it takes when it is full, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.index.bytes() + size_of_val(&*self.entries)
    }

    /// How many have been removed so far: as long as that stays the same, what was found stays where it is.
    #[inline]
    #[must_use]
    pub fn removals(&self) -> u64 {
        self.removals
    }

    /// Where a key's session is looked for, and would be put.
    #[inline(always)]
    #[must_use]
    pub fn spot(&self, key: S::Key) -> Spot {
        self.index.spot(key.hash(self.seed))
    }

    /// The session that a key is of.
    #[inline]
    #[must_use]
    pub fn find(&self, key: S::Key) -> Found {
        self.find_at(self.spot(key), key)
    }

    /// The session that a key is of, whose [`spot`](Self::spot) is known.
    #[inline]
    #[must_use]
    pub fn find_at(&self, spot: Spot, key: S::Key) -> Found {
        self.index.find(spot, |it| self.is(it, key)).map_or(Found::NONE, Found)
    }

    #[inline(always)]
    fn is(&self, it: u32, key: S::Key) -> bool {
        self.entries[(it >> 1) as usize].session.key(it & 1) == key
    }

    /// The sessions that keys are of, one each in order.
    #[inline]
    pub fn find_each(&self, keys: &[S::Key], found: &mut [Found]) {
        for (keys, found) in keys.chunks(GO).zip(found.chunks_mut(GO)) {
            self.find_go(keys, &mut [Spot::default(); GO], found);
        }
    }

    /// The sessions that up to [`GO`] keys are of, and their spots.
    #[inline(always)]
    pub fn find_go(&self, keys: &[S::Key], spots: &mut [Spot; GO], found: &mut [Found]) {
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
            let at = missing.trailing_zeros() as usize % GO;
            missing &= missing - 1;
            let it = self.index.second(spots[at]);
            if let (true, Some(found)) = (it != 0, found.get_mut(at)) {
                *found = Found(it);
                prefetch_read(&self.entries, (it >> 1) as usize);
            }
        }
        for ((key, spot), found) in keys.iter().zip(&*spots).zip(found) {
            // One signature in 2²⁸ look-ups or so is another key's; then all places are looked through.
            if found.is_some() && !self.is(found.0, *key) || !found.is_some() && self.index.stashed() != 0 {
                *found = self.find_at(*spot, *key);
            }
        }
    }

    /// Which of those keys of a go whose bits are set in `among` are not the same as one before them among those.
    #[inline]
    #[must_use]
    pub fn first_ones(keys: &[S::Key; GO], spots: &[Spot; GO], among: u32) -> u32 {
        // By signature: the place of a key, plus one. The next slots are gone through as long as others' keys are there.
        let mut slots = [0u8; FIRSTS];
        let (mut first, mut left) = (among, among);
        while left != 0 {
            let at = left.trailing_zeros() as usize % GO;
            left &= left - 1;
            let mut slot = spots[at].signature() as usize % FIRSTS;
            while let Some(other) = usize::from(slots[slot]).checked_sub(1) {
                if keys[other % GO] == keys[at] {
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

    /// The session of a number ([`Found::number`]), which is there.
    #[inline(always)]
    #[must_use]
    pub fn numbered(&self, number: u32) -> Found {
        debug_assert!(!self.entries[number as usize].link.is_none(), "no session has this number");
        Found(number << 1)
    }

    /// Asks the processor for where a key's session is looked for, and would be put.
    #[inline(always)]
    pub fn prefetch(&self, key: S::Key) {
        let spot = self.spot(key);
        self.index.prefetch(spot);
        self.index.prefetch_other(spot);
    }

    /// Asks the processor for a session by its number.
    #[inline(always)]
    pub fn prefetch_numbered(&self, number: u32) {
        prefetch_read(&self.entries, number as usize);
    }

    /// Whether a session that was found by this key is still there, whatever has been removed since.
    #[inline(always)]
    #[must_use]
    pub fn is_still(&self, found: Found, key: S::Key) -> bool {
        !self.entries[found.number() as usize].link.is_none() && self.is(found.0, key)
    }

    /// So many new sessions will come in: what those take that will have to give way for them is asked for ahead, and `each`
    /// of them shown.
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

    /// A session that was found.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, found: Found) -> &S {
        &self.entries[found.number() as usize].session
    }

    /// A session that was found, to be changed; its keys stay as they are.
    #[inline(always)]
    pub fn get_mut(&mut self, found: Found) -> &mut S {
        &mut self.entries[found.number() as usize].session
    }

    /// A session that was found, and when it ends: to be prolonged, as by [`keep_until`](Self::keep_until).
    #[inline(always)]
    #[must_use]
    pub fn lasts(&mut self, found: Found) -> (&S, &mut Slot) {
        let entry = &mut self.entries[found.number() as usize];
        (&entry.session, &mut entry.ends)
    }

    /// When the session ends if nothing else is said until then.
    #[must_use]
    pub fn ends(&self, found: Found) -> Slot {
        self.entries[found.number() as usize].ends
    }

    /// A packet has come: the session ends at `ends`, not before it would have.
    #[inline(always)]
    pub fn keep_until(&mut self, found: Found, ends: Slot) {
        self.entries[found.number() as usize].ends = ends;
    }

    /// The session ends at `ends`, which may be sooner than it would have.
    pub fn end_at(&mut self, found: Found, ends: Slot) {
        let number = found.number();
        self.wheel.remove(&mut self.entries, number);
        self.entries[number as usize].ends = ends;
        let turn = self.turn(ends);
        self.wheel.insert(&mut self.entries, number, turn);
    }

    /// Takes a session in whose keys no other one has.
    ///
    /// # Errors
    /// [`Refused`].
    #[inline]
    pub fn insert(&mut self, session: S, ends: Slot) -> Result<Found, Refused> {
        self.insert_at(self.spot(session.key(0)), session, ends)
    }

    /// The same, where the [`spot`](Self::spot) of its first key is known.
    ///
    /// # Errors
    /// [`Refused`].
    #[inline]
    pub fn insert_at(&mut self, first: Spot, session: S, ends: Slot) -> Result<Found, Refused> {
        let number = match self.free {
            0 if (self.fresh as usize) < self.entries.len() => self.fresh,
            0 => return Err(Refused::Full),
            free => free,
        };
        for side in 0..session.sides() {
            let spot = if side == 0 { first } else { self.spot(session.key(side)) };
            if self.index.insert(spot, number << 1 | side).is_err() {
                // What has two keys is in by both or by none.
                (0..side).for_each(|side| self.unindex(&session, number, side));
                return Err(Refused::Crowded);
            }
        }
        if self.free != 0 {
            self.free = self.entries[number as usize].ends;
        } else {
            self.fresh += 1;
        }
        self.len += 1;
        self.entries[number as usize] = Entry { session, link: Link::default(), ends };
        let turn = self.turn(ends);
        self.wheel.insert(&mut self.entries, number, turn);
        Ok(Found(number << 1))
    }

    #[inline]
    fn unindex(&mut self, session: &S, number: u32, side: u32) {
        let spot = self.spot(session.key(side));
        self.index.remove(spot, number << 1 | side);
    }

    /// Removes a session.
    #[inline]
    pub fn remove(&mut self, found: Found) -> S {
        let number = found.number();
        self.wheel.remove(&mut self.entries, number);
        let session = self.entries[number as usize].session;
        (0..session.sides()).for_each(|side| self.unindex(&session, number, side));
        self.entries[number as usize].ends = std::mem::replace(&mut self.free, number);
        self.len -= 1;
        self.removals += 1;
        session
    }

    /// A session that has ended by `now`, which is removed; each look at one takes one off `looks`, and none is told when none
    /// are left, or all until `now` have been looked at. To be called until then, now and then: so that many that end at once
    /// keep no packet waiting.
    pub fn expire(&mut self, now: Slot, looks: &mut u32) -> Option<S> {
        while *looks > 0 {
            let number = self.wheel.next(now >> self.grain)?;
            *looks -= 1;
            let ends = self.entries[number as usize].ends;
            if ends <= now {
                return Some(self.remove(Found(number << 1)));
            }
            self.put_off(number, ends);
        }
        None
    }

    /// Removes the session that ends soonest, as far as a short look tells: how one that is new finds room.
    #[inline]
    pub fn give_up(&mut self) -> Option<S> {
        let (number, ahead) = self.wheel.soonest()?;
        let ends = self.entries[number as usize].ends;
        let soonest =
            if self.turn(ends) <= self.wheel.at() + ahead { number } else { self.put_off_some(number, ends)? };
        Some(self.remove(Found(soonest << 1)))
    }

    /// Puts off what lasts longer than the wheel knows, from the first one on, until one does not or enough have been looked at:
    /// which of these ends soonest, if any ends at all.
    #[inline(never)]
    fn put_off_some(&mut self, number: u32, ends: Slot) -> Option<u32> {
        let mut soonest = Some((ends, number)).filter(|(ends, _)| *ends != NEVER);
        self.put_off(number, ends);
        let mut looks = 1;
        while looks < LOOK || soonest.is_none() {
            let Some((number, ahead)) = self.wheel.soonest() else { break };
            let ends = self.entries[number as usize].ends;
            if ends != NEVER {
                soonest = soonest.into_iter().chain([(ends, number)]).min();
                if self.turn(ends) <= self.wheel.at() + ahead {
                    break;
                }
            }
            self.put_off(number, ends);
            looks += 1;
        }
        soonest.map(|(_, number)| number)
    }

    /// Puts an entry on the wheel where it belongs: later than in the slot that it is in.
    fn put_off(&mut self, number: u32, ends: Slot) {
        self.wheel.remove(&mut self.entries, number);
        // Not into the slot again that is being gone through.
        let turn = self.turn(ends).max(self.wheel.at() + 2);
        self.wheel.insert(&mut self.entries, number, turn);
    }

    /// Whether anything is left to be looked at until `now` ([`expire`](Self::expire)).
    #[must_use]
    pub fn is_due(&mut self, now: Slot) -> bool {
        if self.len == 0 {
            // Where time has gone on without any, those to come are not to be looked for from there.
            self.wheel.skip_to(now >> self.grain);
        }
        self.wheel.at() < now >> self.grain
    }

    /// The sessions, those with numbers from `from` on.
    pub fn iter(&self, from: u32) -> impl Iterator<Item = (Found, &S)> {
        let start = (from as usize).clamp(1, self.fresh as usize);
        let entries = (start as u32..).zip(&self.entries[start..self.fresh as usize]);
        // What is free is not on the wheel.
        let used = entries.filter(|(_, entry)| !entry.link.is_none());
        used.map(|(number, entry)| (Found(number << 1), &entry.session))
    }
}

#[cfg(test)]
mod tests;

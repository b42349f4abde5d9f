//! Session tables by key: the state that firewalls, translators and load balancers keep for each session.
//!
//! Memory is bounded and allocated at the start. A line of the index ([`index`]) holds eight signatures and eight entry
//! numbers. An entry holds the session, its end time and its links in a timer wheel ([`wheel`]). Look-ups run a batch
//! at a time, in steps, and each step prefetches the memory that the next step needs. A hit takes two memory accesses:
//! one to a line of the index, and one to the entry.
//!
//! A session can have two keys, one for each side. A translated session, for example, has an inside key and an outside
//! key.

mod hash;
mod index;
mod lookup;
mod numbers;
mod tuple;
mod wheel;

use forebay_memory::{NoMemory, Zeroed};
use zerocopy::FromZeros;

pub use hash::Seed;
use index::Index;
pub use index::Spot;
pub use tuple::{Tuple4, Tuple6};
pub use wheel::NEVER;
use wheel::{Link, Links, Wheel};

/// The key by which a session is found.
pub trait Key: Copy + Eq {
    /// Returns the key's hash with a table's secrets.
    fn hash(&self, seed: Seed) -> u64;
}

/// A session's state. All-zero bytes must be a valid value, because unused memory is all zero.
pub trait Session: Copy + FromZeros {
    /// The type of the session's keys.
    type Key: Key;
    /// The largest number of keys a session can have: 1 or 2.
    const SIDES: u32;

    /// Returns how many keys this session has. The number must not change while the session is in a table.
    #[inline(always)]
    fn sides(&self) -> u32 {
        Self::SIDES
    }

    /// Returns the session's key of a side. `side` is below [`sides`](Self::sides). A key must not change while the
    /// session is in a table.
    fn key(&self, side: u32) -> Self::Key;
}

/// A session that was found, and the side whose key found it. The value is valid until any session is removed from the
/// table ([`Sessions::removals`]).
///
/// The field is twice the session's number, plus the side. The index stores the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found(u32);

impl Found {
    /// No session was found.
    pub const NONE: Self = Self(0);

    /// Returns the session's number, from 1 to the table's capacity. It stays the same while the session is in the
    /// table.
    #[inline(always)]
    #[must_use]
    pub fn number(self) -> u32 {
        self.0 >> 1
    }

    /// Returns the side whose key found the session.
    #[inline(always)]
    #[must_use]
    pub fn side(self) -> u32 {
        self.0 & 1
    }

    /// Returns true if a session was found.
    #[inline(always)]
    #[must_use]
    pub fn is_some(self) -> bool {
        self.0 != 0
    }
}

/// The reason why a session was not inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The table holds as many sessions as it was made for.
    #[error("the table is full")]
    Full,
    /// The index and its stash have no free slot for one of the session's keys, although the table is not full. This is
    /// very unlikely, except for keys that were chosen to collide ([`Seed`]).
    #[error("the index has no free slot for this session's key")]
    Crowded,
}

/// A time, in time slots. The owner of the table chooses the length of a time slot and the instant of time 0. A session
/// that ends at [`NEVER`] does not expire and is not evicted.
pub type Slot = u32;

/// A session with its links in the wheel and its end time. It takes one cache line if the session is small enough.
#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(64))]
struct Entry<S> {
    session: S,
    /// The links in the wheel. An entry that is not on the wheel is free.
    link: Link,
    /// The time at which the session ends if it is not prolonged. In a free entry: the number of the next free entry.
    ends: Slot,
}

impl<S> Links for Zeroed<Entry<S>> {
    #[inline]
    fn link(&mut self, entry: u32) -> &mut Link {
        &mut self[entry as usize].link
    }
}

/// A table of sessions.
pub struct Sessions<S: Session> {
    index: Index,
    /// Indexed by session number. Number 0 is not used.
    entries: Zeroed<Entry<S>>,
    wheel: Wheel,
    /// The binary logarithm of the number of time slots in one slot of the wheel. It is chosen so that one turn of the
    /// wheel covers the longest session.
    grain: u32,
    seed: Seed,
    /// The first entry that was never used.
    fresh: u32,
    /// The head of the list of free entries below `fresh`; 0 if there is none.
    free: u32,
    /// The number of sessions.
    len: u32,
    /// The number of sessions removed so far.
    removals: u64,
}

/// The largest number of keys that are looked up together.
pub const GROUP: usize = 32;
/// The number of sessions that an eviction examines if all of them were prolonged since they were put into their slot
/// of the wheel. If none of these sessions ever ends ([`NEVER`]), the eviction examines more.
const EVICTION_LOOKS: usize = 16;
/// The number of slots of the hash table in [`Sessions::first_ones`], which finds keys that occur twice.
const FIRSTS: usize = 4 * GROUP;
/// The largest number of sessions in a table: number and side must fit into an index entry.
pub const MOST: usize = 1 << 28;

impl<S: Session> Sessions<S> {
    /// Creates a table of up to `most` sessions, from 1 to [`MOST`].
    ///
    /// # Errors
    /// `most` is out of range, or there is not enough memory.
    pub fn new(most: usize, seed: Seed) -> Result<Self, NoMemory> {
        Self::with_keys(most, most.saturating_mul(S::SIDES as usize), seed)
    }

    /// Like [`new`](Self::new), for a table whose sessions have at most `keys` keys in total.
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

    /// Makes the (empty) table ready for sessions that last up to `longest` time slots. [`expire`](Self::expire) finds
    /// an ended session at the latest 1/2048 of `longest` after its end. A session that lasts longer than the wheel
    /// covers is moved to a later slot once per turn of the wheel. Without this call the wheel covers 4 096 time slots
    /// (512 seconds if a time slot is an eighth of a second).
    #[must_use]
    pub fn lasting(mut self, longest: Slot) -> Self {
        self.last_up_to(longest);
        self
    }

    /// Sets the longest time that sessions last from now on ([`lasting`](Self::lasting)). If the slots of the wheel
    /// must become longer or shorter for this time, all sessions are put on a new wheel.
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

    /// Returns the slot of the wheel in which a session that ends at `ends` is examined: the first slot that does not
    /// begin before `ends`.
    #[inline(always)]
    fn turn(&self, ends: Slot) -> Slot {
        if ends == NEVER { NEVER } else { (ends >> self.grain) + Slot::from(ends & ((1 << self.grain) - 1) != 0) }
    }

    /// Returns the number of sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if the table has no sessions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the largest number of sessions.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.entries.len() - 1
    }

    /// Returns the memory that the full table takes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.index.bytes() + size_of_val(&*self.entries)
    }

    /// Returns how many sessions have been removed so far. While this number stays the same, every [`Found`] stays
    /// valid.
    #[inline]
    #[must_use]
    pub fn removals(&self) -> u64 {
        self.removals
    }

    /// Returns a session that was found. `found` must be valid ([`Found`]) and not [`Found::NONE`]. This also applies
    /// to the following methods that take a [`Found`].
    #[inline(always)]
    #[must_use]
    pub fn get(&self, found: Found) -> &S {
        &self.entries[found.number() as usize].session
    }

    /// Returns a session that was found, mutably. The caller must not change its keys.
    #[inline(always)]
    pub fn get_mut(&mut self, found: Found) -> &mut S {
        &mut self.entries[found.number() as usize].session
    }

    /// Returns a session that was found and its end time. The caller may set a later end time, as
    /// [`keep_until`](Self::keep_until) does.
    #[inline(always)]
    #[must_use]
    pub fn lasts(&mut self, found: Found) -> (&S, &mut Slot) {
        let entry = &mut self.entries[found.number() as usize];
        (&entry.session, &mut entry.ends)
    }

    /// Returns the time at which the session ends if it is not prolonged before.
    #[must_use]
    pub fn ends(&self, found: Found) -> Slot {
        self.entries[found.number() as usize].ends
    }

    /// Prolongs the session to `ends`, which must not be before its present end. For an earlier end, use
    /// [`end_at`](Self::end_at).
    #[inline(always)]
    pub fn keep_until(&mut self, found: Found, ends: Slot) {
        self.entries[found.number() as usize].ends = ends;
    }

    /// Sets the session's end to `ends`, which may be before its present end.
    pub fn end_at(&mut self, found: Found, ends: Slot) {
        let number = found.number();
        self.wheel.remove(&mut self.entries, number);
        self.entries[number as usize].ends = ends;
        let turn = self.turn(ends);
        self.wheel.insert(&mut self.entries, number, turn);
    }

    /// Inserts a session that ends at `ends`. The caller must know that no session in the table has one of its keys.
    /// The table is unchanged after an error.
    ///
    /// # Errors
    /// [`Refused`].
    #[inline]
    pub fn insert(&mut self, session: S, ends: Slot) -> Result<Found, Refused> {
        self.insert_at(self.spot(session.key(0)), session, ends)
    }

    /// Like [`insert`](Self::insert), for a first key whose [`spot`](Self::spot) is known.
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
                // Removes the keys that are already in the index: a session has all of its keys in the index, or none.
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

    /// Removes one key of a session from the index.
    #[inline]
    fn unindex(&mut self, session: &S, number: u32, side: u32) {
        let spot = self.spot(session.key(side));
        self.index.remove(spot, number << 1 | side);
    }

    /// Removes a session and returns it.
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

    /// Removes one session that has ended by `now` and returns it. Each session examined takes one from `looks`.
    /// Returns `None` when `looks` is 0 or when all sessions up to `now` have been examined. The caller calls this
    /// regularly with a limited `looks`. Then even many sessions that end at the same time do not delay packets for
    /// long.
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

    /// Evicts and returns the session that ends soonest among a few candidates, to make room for a new one. Returns
    /// `None` if the table is empty or all its sessions end at [`NEVER`].
    #[inline]
    pub fn evict_soonest(&mut self) -> Option<S> {
        let (number, ahead) = self.wheel.soonest()?;
        let ends = self.entries[number as usize].ends;
        let soonest =
            if self.turn(ends) <= self.wheel.at() + ahead { number } else { self.put_off_some(number, ends)? };
        Some(self.remove(Found(soonest << 1)))
    }

    /// Examines sessions, starting with `number`, and moves prolonged sessions to later slots. Stops at a session that
    /// was not prolonged, or after [`EVICTION_LOOKS`] sessions if one of them has an end time other than [`NEVER`].
    /// Returns the examined session that ends soonest, or `None` if all sessions end at [`NEVER`].
    #[inline(never)]
    fn put_off_some(&mut self, number: u32, ends: Slot) -> Option<u32> {
        let mut soonest = Some((ends, number)).filter(|(ends, _)| *ends != NEVER);
        self.put_off(number, ends);
        let mut looks = 1;
        while looks < EVICTION_LOOKS || soonest.is_none() {
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

    /// Moves an entry from its present slot of the wheel to the later slot in which it ends.
    fn put_off(&mut self, number: u32, ends: Slot) {
        self.wheel.remove(&mut self.entries, number);
        // Slot `at() + 1` is being examined: the entry must not be put there again.
        let turn = self.turn(ends).max(self.wheel.at() + 2);
        self.wheel.insert(&mut self.entries, number, turn);
    }

    /// Returns true if slots up to `now` remain to be examined ([`expire`](Self::expire)). If the table is empty, these
    /// slots count as examined.
    #[must_use]
    pub fn is_due(&mut self, now: Slot) -> bool {
        if self.len == 0 {
            // The table is empty, so the slots up to `now` have no entries and need not be examined.
            self.wheel.skip_to(now >> self.grain);
        }
        self.wheel.at() < now >> self.grain
    }

    /// Iterates over the sessions with numbers from `from` on.
    pub fn iter(&self, from: u32) -> impl Iterator<Item = (Found, &S)> {
        let start = (from as usize).clamp(1, self.fresh as usize);
        let entries = (start as u32..).zip(&self.entries[start..self.fresh as usize]);
        // Free entries are not on the wheel.
        let used = entries.filter(|(_, entry)| !entry.link.is_none());
        used.map(|(number, entry)| (Found(number << 1), &entry.session))
    }
}

#[cfg(test)]
mod tests;

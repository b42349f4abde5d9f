//! Which member a hash belongs to, so that few belong to another one when members come and go: Maglev hashing.
//!
//! Eisenbud et al., "Maglev: A Fast and Reliable Software Network Load Balancer", NSDI 2016, section 3.4. Every member has a
//! permutation of all places of the table, and members take turns to occupy the first place of theirs that is free. A
//! look-up is one read. Whoever makes a table of the same members has the same table, in whatever order they are given.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use forebay_memory::{NoMemory, filled};

use super::sessions::Seed;

/// Who shares hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// What it is told apart by: what its permutation is made of.
    pub identity: u64,
    /// Its share among all weights; 0 for none.
    pub weight: u16,
}

/// Why a table cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MaglevError {
    /// The size is no prime, or out of range.
    #[error("{0} places: allowed are primes from 3 to {MOST_PLACES}, such as 65537")]
    Places(u32),
    /// There are fewer places than members.
    #[error("{members} members do not fit {places} places")]
    Members {
        /// How many members have a weight.
        members: usize,
        /// How many places there are.
        places: u32,
    },
    /// There is no memory for the places.
    #[error(transparent)]
    Memory(#[from] NoMemory),
}

/// The most places of a table.
pub const MOST_PLACES: u32 = 1 << 21;
/// The most members of a table.
pub const MOST_MEMBERS: usize = VACANT as usize;
const VACANT: u16 = u16::MAX;

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maglev {
    places: Box<[u16]>,
}

/// Where a member's permutation begins, and how far its steps are (section 3.4).
#[derive(Clone, Copy, Debug)]
struct Permutation {
    offset: u64,
    skip: u64,
}

impl Permutation {
    fn of(identity: u64, places: u32) -> Self {
        // Two hashes that anybody can repeat: tables are to be the same on all machines.
        let (first, second) = (Seed::new(1).hash(identity, 0), Seed::new(2).hash(identity, 0));
        Self { offset: first % u64::from(places), skip: second % u64::from(places - 1) + 1 }
    }
}

impl Maglev {
    /// A table of so many places over these members. `None` where nobody has a weight.
    ///
    /// # Errors
    /// A number of places that is no prime (permutations would not reach all of them), too few, or more than there is memory for.
    pub fn new(places: u32, members: &[Member]) -> Result<Option<Self>, MaglevError> {
        if !(3..=MOST_PLACES).contains(&places) || !is_prime(places) {
            return Err(MaglevError::Places(places));
        }
        let mut turns: Vec<Turns> = (0u16..)
            .zip(members)
            .filter(|(_, member)| member.weight > 0)
            .map(|(number, member)| Turns {
                number,
                member: *member,
                taken: 0,
                permutation: Permutation::of(member.identity, places),
            })
            .collect();
        if turns.len() > places as usize || members.len() > MOST_MEMBERS {
            return Err(MaglevError::Members { members: turns.len().max(members.len()), places });
        }
        // Who is first matters where two want one place: that is not to depend on the order of a list.
        turns.sort_by_key(|it| (it.member.identity, it.number));
        Ok(Self::populate(places, turns)?)
    }

    /// Algorithm 1. Of unequal weights a member takes as many turns of those of the heaviest as its share is (section 3.4,
    /// "altering the relative frequency of the backends' turns"): after k rounds as many as k times its part of the greatest
    /// weight. Rounds in which it has none are not gone through: beside one heavy member thousands of light ones would have
    /// nearly all of them for nothing.
    fn populate(places: u32, mut turns: Vec<Turns>) -> Result<Option<Self>, NoMemory> {
        let Some(most) = turns.iter().map(|it| it.member.weight).max() else { return Ok(None) };
        let mut table = filled(VACANT, places as usize)?;
        // Whose turn is next: by rounds, and in a round in their order.
        let mut next: BinaryHeap<_> =
            turns.iter().enumerate().map(|(at, it)| Reverse((it.next_round(most), at))).collect();
        for _ in 0..places {
            let Some(mut first) = next.peek_mut() else { break };
            let Reverse((round, at)) = &mut *first;
            let it = &mut turns[*at];
            *it.permutation.first_vacant(&mut table) = it.number;
            it.taken += 1;
            *round = it.next_round(most);
        }
        Ok(Some(Self { places: table }))
    }

    /// The member, by its number in the list that the table was made of, that a hash belongs to.
    #[inline(always)]
    #[must_use]
    pub fn pick(&self, hash: u64) -> usize {
        // The upper half, scaled: no division, and places are equally likely to one in 2^11.
        let at = ((hash >> 32) * self.places.len() as u64) >> 32;
        usize::from(self.places[at as usize])
    }

    /// The member of every place.
    #[must_use]
    pub fn places(&self) -> &[u16] {
        &self.places
    }
}

/// A member while a table is made.
struct Turns {
    number: u16,
    member: Member,
    /// How many turns it has taken.
    taken: u32,
    permutation: Permutation,
}

impl Turns {
    /// The round in which its next turn is, counted from 1, where the greatest weight is `most`.
    fn next_round(&self, most: u16) -> u64 {
        (u64::from(self.taken + 1) * u64::from(most)).div_ceil(u64::from(self.member.weight))
    }
}

impl Permutation {
    /// The first place of the permutation that is vacant; later searches go on behind it. There is one.
    fn first_vacant<'t>(&mut self, table: &'t mut [u16]) -> &'t mut u16 {
        let places = table.len() as u64;
        loop {
            let at = self.offset as usize;
            self.offset += self.skip;
            self.offset -= if self.offset >= places { places } else { 0 };
            if table[at] == VACANT {
                return &mut table[at];
            }
        }
    }
}

fn is_prime(number: u32) -> bool {
    let roots = (2..).take_while(|root| root * root <= number);
    number > 1 && roots.into_iter().all(|root| !number.is_multiple_of(root))
}

#[cfg(test)]
mod tests;

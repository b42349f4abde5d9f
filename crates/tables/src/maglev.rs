//! Maglev hashing: a table that maps a hash to a member. If a member is added or removed, few hashes change their
//! member.
//!
//! Eisenbud et al., "Maglev: A Fast and Reliable Software Network Load Balancer", NSDI 2016, section 3.4. Every member
//! has a permutation of all places of the table. The members take turns, and in its turn a member occupies the first
//! free place in its permutation. A look-up is one read. The table depends only on the set of members, not on their
//! order in the list.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use forebay_memory::{NoMemory, filled};

use super::sessions::Seed;

/// A member that hashes are mapped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The identity, from which the member's permutation is derived.
    pub identity: u64,
    /// The weight. If the weight is w and the sum of all weights is s, the member occupies about w / s of the places. A
    /// member of weight 0 occupies none.
    pub weight: u16,
}

/// The reason why a table cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MaglevError {
    /// The size is not a prime or is out of range.
    #[error("{} places: allowed are {}", .0, allowed_places())]
    Places(u32),
    /// There are fewer places than members with a weight, or more than [`MOST_MEMBERS`] members.
    #[error(
        "{members} members do not fit into {places} places: use at least as many places as members, and at most \
         {MOST_MEMBERS} members"
    )]
    Members {
        /// The number of members, with or without a weight.
        members: usize,
        /// The number of places.
        places: u32,
    },
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] NoMemory),
}

/// The largest number of places of a table.
pub const MOST_PLACES: u32 = 1 << 21;
/// The largest number of members of a table.
pub const MOST_MEMBERS: usize = VACANT as usize;
/// The mark of a place that no member occupies yet.
const VACANT: u16 = u16::MAX;

/// Returns the allowed numbers of places of a table, for a message.
#[must_use]
pub fn allowed_places() -> String {
    format!("primes from 3 to {MOST_PLACES}, such as 65537")
}

/// A Maglev table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maglev {
    /// The index of the member that occupies each place.
    places: Box<[u16]>,
}

/// A member's permutation of the places (section 3.4).
#[derive(Clone, Copy, Debug)]
struct Permutation {
    /// The place at which the next search starts.
    offset: u64,
    /// The distance to the next place.
    skip: u64,
}

impl Permutation {
    /// Derives a member's permutation of the places from its identity. The number of places must be a prime above 2.
    fn of(identity: u64, places: u32) -> Self {
        // The seeds are fixed, so that all machines build the same table.
        let (first, second) = (Seed::new(1).hash(identity, 0), Seed::new(2).hash(identity, 0));
        Self { offset: first % u64::from(places), skip: second % u64::from(places - 1) + 1 }
    }
}

impl Maglev {
    /// Builds a table of `places` places over these members. Returns `None` if no member has a weight.
    ///
    /// # Errors
    /// The number of places is out of range or not a prime (permutations would not reach all places), there are fewer
    /// places than members with a weight, there are more than [`MOST_MEMBERS`] members, or there is not enough memory.
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
        // If two members want the same place in a round, the first member gets it. The first member must not depend on
        // the order of the list.
        turns.sort_by_key(|it| (it.member.identity, it.number));
        Ok(Self::populate(places, turns)?)
    }

    /// Fills the table by algorithm 1. A member with the greatest weight has a turn in each round. Other members have
    /// fewer turns (section 3.4, "altering the relative frequency of the backends' turns"): if w is the member's weight
    /// and m the greatest weight, the member has had k · w / m turns after k rounds, rounded down. A heap orders the
    /// members by their next turn, because thousands of light members would otherwise go through nearly all rounds
    /// without a turn.
    fn populate(places: u32, mut turns: Vec<Turns>) -> Result<Option<Self>, NoMemory> {
        let Some(most) = turns.iter().map(|it| it.member.weight).max() else { return Ok(None) };
        let mut table = filled(VACANT, places as usize)?;
        // The next turn of each member: by round, and within a round in the members' order.
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

    /// Returns the member that a hash belongs to, as its index in the list that the table was built from.
    #[inline(always)]
    #[must_use]
    pub fn pick(&self, hash: u64) -> usize {
        // The upper half is scaled instead of divided. The probabilities of two places differ by at most 1 in 2^11.
        let at = ((hash >> 32) * self.places.len() as u64) >> 32;
        usize::from(self.places[at as usize])
    }

    /// Returns the member of each place, as its index in the list that the table was built from.
    #[must_use]
    pub fn places(&self) -> &[u16] {
        &self.places
    }
}

/// A member's state while the table is built.
struct Turns {
    /// The member's index in the list.
    number: u16,
    member: Member,
    /// The number of turns taken.
    taken: u32,
    permutation: Permutation,
}

impl Turns {
    /// Returns the round of the member's next turn, counted from 1, if the greatest weight is `most`.
    fn next_round(&self, most: u16) -> u64 {
        (u64::from(self.taken + 1) * u64::from(most)).div_ceil(u64::from(self.member.weight))
    }
}

impl Permutation {
    /// Returns the first vacant place of the permutation. The table must have a vacant place. The next search continues
    /// behind this place.
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

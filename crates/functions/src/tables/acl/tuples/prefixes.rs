//! The prefixes that rules name in one field, each with a number, and which of them hold an address.

use std::collections::HashMap;

use super::super::rule::{Address, Prefix};
use super::fold::Seeded;
use super::lengths::{LENGTHS, Lengths};

/// A prefix that rules name.
#[derive(Clone, Copy, Debug)]
struct Named {
    number: u32,
    /// How many rules do.
    rules: u32,
}

/// The prefixes of one field.
#[derive(Clone, Debug)]
pub struct Prefixes<A: Address> {
    named: HashMap<Prefix<A>, Named, Seeded>,
    /// Numbers below `next` that no prefix has.
    free: Vec<u32>,
    next: u32,
    /// How many prefixes there are of each length.
    of_length: Box<[u32]>,
    lengths: Lengths,
}

/// Which prefixes hold an address: their lengths, and for each its number.
pub struct Holding {
    pub lengths: Lengths,
    pub numbers: [u32; LENGTHS],
}

impl Holding {
    pub const NONE: Holding = Holding { lengths: Lengths::NONE, numbers: [0; LENGTHS] };
}

impl<A: Address> Prefixes<A> {
    /// None, with room for so many.
    pub fn new(room: usize, seed: Seeded) -> Prefixes<A> {
        Prefixes {
            named: HashMap::with_capacity_and_hasher(room, seed),
            free: Vec::new(),
            next: 0,
            of_length: vec![0; LENGTHS].into(),
            lengths: Lengths::NONE,
        }
    }

    /// The number of a prefix that one more rule names.
    pub fn add(&mut self, prefix: Prefix<A>) -> u32 {
        let Prefixes { named, free, next, of_length, lengths } = self;
        let named = named.entry(prefix).or_insert_with(|| {
            of_length[usize::from(prefix.length())] += 1;
            lengths.insert(prefix.length());
            let number = free.pop().unwrap_or_else(|| {
                *next += 1;
                *next - 1
            });
            Named { number, rules: 0 }
        });
        named.rules += 1;
        named.number
    }

    /// One rule fewer names the prefix.
    pub fn remove(&mut self, prefix: Prefix<A>) {
        let Some(named) = self.named.get_mut(&prefix) else { return };
        named.rules -= 1;
        if named.rules > 0 {
            return;
        }
        self.free.push(named.number);
        self.named.remove(&prefix);
        let of_length = &mut self.of_length[usize::from(prefix.length())];
        *of_length -= 1;
        if *of_length == 0 {
            self.lengths.remove(prefix.length());
        }
    }

    /// The number of a prefix that rules name.
    pub fn number(&self, prefix: Prefix<A>) -> Option<u32> {
        self.named.get(&prefix).map(|named| named.number)
    }

    /// Finds those that hold the address: a probe for each length that there is.
    #[inline]
    pub fn holding(&self, address: A, found: &mut Holding) {
        found.lengths = Lengths::NONE;
        for length in self.lengths.each() {
            if let Some(named) = self.named.get(&Prefix::new(address, length)) {
                found.lengths.insert(length);
                found.numbers[usize::from(length)] = named.number;
            }
        }
    }
}

//! The prefixes that rules name in one field, each with a number, and which of them hold an address.
//!
//! There is one probe for each length that rules use, and nearly all of them find nothing. So a filter is asked first: a
//! byte for each place of a hash, which says how many prefixes fall there. Its answers for all lengths are gathered without
//! a branch, and what it lets through is looked for.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};

use super::super::rule::{Address, Prefix};
use super::fold::Seeded;
use super::lengths::{LENGTHS, Lengths};

/// Places of the filter for each prefix, at least: one of so many finds something by chance.
const SPARSE: usize = 16;
/// Places of the smallest filter.
const LEAST_PLACES: usize = 512;

/// A prefix that rules name.
#[derive(Clone, Copy, Debug)]
struct Named {
    number: u32,
    /// How many rules do.
    rules: u32,
}

/// A prefix as it is hashed: address and length in as few words as will do. Of IPv4 it is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name<A>(Prefix<A>);

impl<A: Address> Hash for Name<A> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let bits = self.0.first().widen();
        state.write_u64(bits as u64 ^ u64::from(self.0.length()) << 48);
        if A::BITS > 64 {
            state.write_u64((bits >> 64) as u64);
        }
    }
}

/// A length that rules use.
#[derive(Clone, Copy, Debug)]
struct Used<A> {
    length: u8,
    mask: A,
    /// How many prefixes have it.
    prefixes: u32,
}

/// Whether a rule decides or counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Decides,
    Counts,
}

/// What the other field's prefixes are in the rules that name a prefix.
#[derive(Clone, Debug, Default)]
struct Partners {
    /// How many rules there are of each kind for each of their lengths.
    rules: Vec<(u8, Kind, u32)>,
}

/// The prefixes of one field.
#[derive(Clone, Debug)]
pub struct Prefixes<A: Address> {
    named: HashMap<Name<A>, Named, Seeded>,
    /// By number.
    partners: Vec<Partners>,
    /// Their lengths by number, for each kind of rules.
    partner_lengths: [Vec<Lengths>; 2],
    /// Numbers that no prefix has any more.
    free: Vec<u32>,
    /// The lengths that there are but 0.
    used: Vec<Used<A>>,
    /// The number of the prefix that holds every address, which needs no search.
    everybody: Option<u32>,
    filter: Filter,
}

/// How many prefixes fall in each place of a hash; what is too many for a byte stays so.
#[derive(Clone, Debug)]
struct Filter {
    places: Box<[u8]>,
    shift: u32,
    multipliers: [u64; 2],
}

/// Which prefixes hold an address: their lengths and numbers, as many as `count` says.
pub struct Holding {
    pub count: usize,
    pub prefixes: [(u8, u32); LENGTHS],
}

impl Holding {
    pub const NONE: Holding = Holding { count: 0, prefixes: [(0, 0); LENGTHS] };

    /// Those that there are.
    #[inline]
    pub fn each(&self) -> &[(u8, u32)] {
        &self.prefixes[..self.count]
    }
}

impl Filter {
    fn new(places: usize, seed: Seeded) -> Filter {
        let places = places.max(LEAST_PLACES).next_power_of_two();
        Filter {
            places: vec![0; places].into(),
            shift: 64 - places.trailing_zeros(),
            multipliers: [1u64, 2].map(|which| seed.hash_one(which) | 1),
        }
    }

    #[inline]
    fn place<A: Address>(&self, first: A, length: u8) -> usize {
        let bits = first.widen();
        let (low, high) = (bits as u64 ^ u64::from(length) << 56, (bits >> 64) as u64);
        // Multiply-shift (Dietzfelbinger et al., "A Reliable Randomized Algorithm for the Closest-Pair Problem", 1997);
        // the low half of an IPv4 address is all there is.
        let low = (low ^ low >> 32).wrapping_mul(self.multipliers[0]);
        (low.wrapping_add((high ^ high >> 32).wrapping_mul(self.multipliers[1])) >> self.shift) as usize
    }

    fn add<A: Address>(&mut self, prefix: Prefix<A>) {
        let place = self.place(prefix.first(), prefix.length());
        self.places[place] = self.places[place].saturating_add(1);
    }

    fn remove<A: Address>(&mut self, prefix: Prefix<A>) {
        let place = self.place(prefix.first(), prefix.length());
        if self.places[place] < u8::MAX {
            self.places[place] -= 1;
        }
    }
}

impl<A: Address> Prefixes<A> {
    /// None, with room for so many.
    pub fn new(room: usize, seed: Seeded) -> Prefixes<A> {
        Prefixes {
            named: HashMap::with_capacity_and_hasher(room, seed),
            partners: Vec::new(),
            partner_lengths: [Vec::new(), Vec::new()],
            free: Vec::new(),
            used: Vec::new(),
            everybody: None,
            filter: Filter::new(room * SPARSE, seed),
        }
    }

    /// The number of a prefix that one more rule names, with one of the length `partner` in the other field.
    pub fn add(&mut self, prefix: Prefix<A>, partner: u8, kind: Kind) -> u32 {
        let number = match self.named.get_mut(&Name(prefix)) {
            Some(named) => {
                named.rules += 1;
                named.number
            }
            None => self.name(prefix),
        };
        let partners = &mut self.partners[number as usize].rules;
        match partners.iter_mut().find(|(length, of, _)| (*length, *of) == (partner, kind)) {
            Some((.., rules)) => *rules += 1,
            None => {
                partners.push((partner, kind, 1));
                self.partner_lengths[kind as usize][number as usize].insert(partner);
            }
        }
        number
    }

    /// The number of a prefix that no rule has named.
    fn name(&mut self, prefix: Prefix<A>) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.partners.push(Partners::default());
            self.partner_lengths.iter_mut().for_each(|lengths| lengths.push(Lengths::NONE));
            self.partners.len() as u32 - 1
        });
        self.named.insert(Name(prefix), Named { number, rules: 1 });
        if prefix == Prefix::ANY {
            self.everybody = Some(number);
            return number;
        }
        match self.used.iter_mut().find(|used| used.length == prefix.length()) {
            Some(used) => used.prefixes += 1,
            None => self.used.push(Used { length: prefix.length(), mask: A::mask(prefix.length()), prefixes: 1 }),
        }
        if self.named.len() * SPARSE > self.filter.places.len() {
            self.filter = Filter::new(self.filter.places.len() * 2, *self.named.hasher());
            self.named.keys().filter(|name| name.0 != Prefix::ANY).for_each(|name| self.filter.add(name.0));
        } else {
            self.filter.add(prefix);
        }
        number
    }

    /// One rule fewer names the prefix, with one of the length `partner` in the other field.
    pub fn remove(&mut self, prefix: Prefix<A>, partner: u8, kind: Kind) {
        let Some(named) = self.named.get_mut(&Name(prefix)) else { return };
        let number = named.number;
        let partners = &mut self.partners[number as usize].rules;
        if let Some(at) = partners.iter().position(|(length, of, _)| (*length, *of) == (partner, kind)) {
            partners[at].2 -= 1;
            if partners[at].2 == 0 {
                partners.swap_remove(at);
                self.partner_lengths[kind as usize][number as usize].remove(partner);
            }
        }
        named.rules -= 1;
        if named.rules > 0 {
            return;
        }
        self.free.push(number);
        self.named.remove(&Name(prefix));
        if prefix == Prefix::ANY {
            self.everybody = None;
            return;
        }
        self.filter.remove(prefix);
        if let Some(at) = self.used.iter().position(|used| used.length == prefix.length()) {
            self.used[at].prefixes -= 1;
            if self.used[at].prefixes == 0 {
                self.used.swap_remove(at);
            }
        }
    }

    /// The number of a prefix that rules name.
    pub fn number(&self, prefix: Prefix<A>) -> Option<u32> {
        self.named.get(&Name(prefix)).map(|named| named.number)
    }

    /// The lengths of the other field's prefixes in the rules of a kind that name this one.
    #[inline]
    pub fn partners(&self, number: u32, kind: Kind) -> Lengths {
        self.partner_lengths[kind as usize][number as usize]
    }

    /// Finds those that hold the address.
    #[inline]
    pub fn holding(&self, address: A, found: &mut Holding) {
        let mut let_through = [0u8; LENGTHS];
        let mut count = 0;
        for used in &self.used {
            let_through[count] = used.length;
            count += usize::from(self.filter.places[self.filter.place(address & used.mask, used.length)] != 0);
        }
        found.count = 0;
        if let Some(number) = self.everybody {
            found.prefixes[0] = (0, number);
            found.count = 1;
        }
        for &length in &let_through[..count] {
            if let Some(named) = self.named.get(&Name(Prefix::new(address, length))) {
                found.prefixes[found.count] = (length, named.number);
                found.count += 1;
            }
        }
    }
}

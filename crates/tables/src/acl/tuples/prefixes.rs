//! The prefixes that rules name in one field, each with a number, and the search for the prefixes that contain an
//! address.
//!
//! The search probes a hash table once for each prefix length in use, and nearly all probes find nothing. A filter
//! avoids most of them: for each value of a hash, a byte counts the prefixes with that hash value. The filter is read
//! for all lengths without a branch, and only the lengths that pass it are probed.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};

use super::super::rule::{RuleAddress, RulePrefix};
use super::fold::Seeded;
use super::lengths::{LENGTHS, Lengths};

/// The least number of filter slots per prefix. With 16, at most about one in 16 look-ups of a missing prefix passes
/// the filter.
const FILTER_SLOTS_PER_PREFIX: usize = 16;
/// The number of slots of the smallest filter.
const MIN_FILTER_SLOTS: usize = 512;

/// The number and use count of a prefix that rules name.
#[derive(Clone, Copy, Debug)]
struct Named {
    number: u32,
    /// The number of rules that name the prefix.
    rules: u32,
}

/// A prefix as a hash key: address and length are hashed in as few words as possible. For IPv4 it is one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name<A>(RulePrefix<A>);

impl<A: RuleAddress> Hash for Name<A> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let bits = self.0.first().widen();
        state.write_u64(bits as u64 ^ u64::from(self.0.length()) << 48);
        if A::BITS > 64 {
            state.write_u64((bits >> 64) as u64);
        }
    }
}

/// A prefix length that rules use.
#[derive(Clone, Copy, Debug)]
struct Used<A> {
    length: u8,
    mask: A,
    /// The number of prefixes of this length.
    prefixes: u32,
}

/// The effect of a rule: it decides about packets (permits or denies them) or counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleRole {
    Decides,
    Counts,
}

/// The partners of a prefix: the prefixes of the other field in the rules that name this prefix.
#[derive(Clone, Debug, Default)]
struct Partners {
    /// The length of the partner, the role of the rules, and the number of such rules, which is never 0.
    rules: Vec<(u8, RuleRole, u32)>,
}

/// The prefixes of one field.
#[derive(Clone, Debug)]
pub struct Prefixes<A: RuleAddress> {
    named: HashMap<Name<A>, Named, Seeded>,
    /// Indexed by prefix number.
    partners: Vec<Partners>,
    /// For each role, the lengths of the partners of each prefix number.
    partner_lengths: [Vec<Lengths>; 2],
    /// Free prefix numbers.
    free: Vec<u32>,
    /// The lengths in use except 0.
    used: Vec<Used<A>>,
    /// The number of the prefix of length 0, which contains every address and needs no search.
    any_prefix: Option<u32>,
    filter: Filter,
}

/// The number of prefixes at each hash value. A count that reaches 255 stays there, because the filter no longer knows
/// the true count.
#[derive(Clone, Debug)]
struct Filter {
    /// The counts. Their number is a power of two.
    slots: Box<[u8]>,
    /// The number of bits by which a hash of 64 bits is shifted to the right to get a slot.
    shift: u32,
    /// The odd multipliers for both halves of an address.
    multipliers: [u64; 2],
}

/// The prefixes that contain an address.
pub struct ContainingPrefixes {
    pub count: usize,
    /// The length and the number of each prefix. Only the first `count` entries are valid.
    pub prefixes: [(u8, u32); LENGTHS],
}

impl ContainingPrefixes {
    pub const NONE: ContainingPrefixes = ContainingPrefixes { count: 0, prefixes: [(0, 0); LENGTHS] };

    /// Returns the prefixes found.
    #[inline]
    pub fn each(&self) -> &[(u8, u32)] {
        &self.prefixes[..self.count]
    }
}

impl Filter {
    fn new(slots: usize, seed: Seeded) -> Filter {
        let slots = slots.max(MIN_FILTER_SLOTS).next_power_of_two();
        Filter {
            slots: vec![0; slots].into(),
            shift: 64 - slots.trailing_zeros(),
            multipliers: [1u64, 2].map(|which| seed.hash_one(which) | 1),
        }
    }

    #[inline]
    fn slot<A: RuleAddress>(&self, first: A, length: u8) -> usize {
        let bits = first.widen();
        let (low, high) = (bits as u64 ^ u64::from(length) << 56, (bits >> 64) as u64);
        // Multiply-shift (Dietzfelbinger et al., "A Reliable Randomized Algorithm for the Closest-Pair Problem", 1997).
        // An IPv4 address has the low half only.
        let low = (low ^ low >> 32).wrapping_mul(self.multipliers[0]);
        (low.wrapping_add((high ^ high >> 32).wrapping_mul(self.multipliers[1])) >> self.shift) as usize
    }

    fn add<A: RuleAddress>(&mut self, prefix: RulePrefix<A>) {
        let slot = self.slot(prefix.first(), prefix.length());
        self.slots[slot] = self.slots[slot].saturating_add(1);
    }

    fn remove<A: RuleAddress>(&mut self, prefix: RulePrefix<A>) {
        let slot = self.slot(prefix.first(), prefix.length());
        if self.slots[slot] < u8::MAX {
            self.slots[slot] -= 1;
        }
    }
}

impl<A: RuleAddress> Prefixes<A> {
    /// Creates an empty table with room for `room` prefixes.
    pub fn new(room: usize, seed: Seeded) -> Prefixes<A> {
        Prefixes {
            named: HashMap::with_capacity_and_hasher(room, seed),
            partners: Vec::new(),
            partner_lengths: [Vec::new(), Vec::new()],
            free: Vec::new(),
            used: Vec::new(),
            any_prefix: None,
            filter: Filter::new(room * FILTER_SLOTS_PER_PREFIX, seed),
        }
    }

    /// Counts one more rule that names the prefix, together with a prefix of length `partner` in the other field.
    /// Returns the prefix's number.
    pub fn add(&mut self, prefix: RulePrefix<A>, partner: u8, role: RuleRole) -> u32 {
        let number = match self.named.get_mut(&Name(prefix)) {
            Some(named) => {
                named.rules += 1;
                named.number
            }
            None => self.name(prefix),
        };
        let partners = &mut self.partners[number as usize].rules;
        match partners.iter_mut().find(|(length, other_role, _)| (*length, *other_role) == (partner, role)) {
            Some((.., rules)) => *rules += 1,
            None => {
                partners.push((partner, role, 1));
                self.partner_lengths[role as usize][number as usize].insert(partner);
            }
        }
        number
    }

    /// Gives a number to a prefix that no rule has named yet.
    fn name(&mut self, prefix: RulePrefix<A>) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.partners.push(Partners::default());
            self.partner_lengths.iter_mut().for_each(|lengths| lengths.push(Lengths::NONE));
            self.partners.len() as u32 - 1
        });
        self.named.insert(Name(prefix), Named { number, rules: 1 });
        if prefix == RulePrefix::ANY {
            self.any_prefix = Some(number);
            return number;
        }
        match self.used.iter_mut().find(|used| used.length == prefix.length()) {
            Some(used) => used.prefixes += 1,
            None => self.used.push(Used { length: prefix.length(), mask: A::mask(prefix.length()), prefixes: 1 }),
        }
        if self.named.len() * FILTER_SLOTS_PER_PREFIX > self.filter.slots.len() {
            self.filter = Filter::new(self.filter.slots.len() * 2, *self.named.hasher());
            self.named.keys().filter(|name| name.0 != RulePrefix::ANY).for_each(|name| self.filter.add(name.0));
        } else {
            self.filter.add(prefix);
        }
        number
    }

    /// Reverses [`add`](Self::add) for a rule that was added. The last removal frees the prefix's number.
    pub fn remove(&mut self, prefix: RulePrefix<A>, partner: u8, role: RuleRole) {
        let Some(named) = self.named.get_mut(&Name(prefix)) else { return };
        let number = named.number;
        let partners = &mut self.partners[number as usize].rules;
        if let Some(at) = partners.iter().position(|(length, other_role, _)| (*length, *other_role) == (partner, role))
        {
            partners[at].2 -= 1;
            if partners[at].2 == 0 {
                partners.swap_remove(at);
                self.partner_lengths[role as usize][number as usize].remove(partner);
            }
        }
        named.rules -= 1;
        if named.rules > 0 {
            return;
        }
        self.free.push(number);
        self.named.remove(&Name(prefix));
        if prefix == RulePrefix::ANY {
            self.any_prefix = None;
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

    /// Returns the number of a prefix that rules name.
    pub fn number(&self, prefix: RulePrefix<A>) -> Option<u32> {
        self.named.get(&Name(prefix)).map(|named| named.number)
    }

    /// Returns the lengths of the other field's prefixes in the rules of a role that name this prefix.
    #[inline]
    pub fn partners(&self, number: u32, role: RuleRole) -> Lengths {
        self.partner_lengths[role as usize][number as usize]
    }

    /// Replaces the content of `found` by the prefixes that contain the address.
    #[inline]
    pub fn find_containing(&self, address: A, found: &mut ContainingPrefixes) {
        let mut let_through = [0u8; LENGTHS];
        let mut count = 0;
        for used in &self.used {
            let_through[count] = used.length;
            count += usize::from(self.filter.slots[self.filter.slot(address & used.mask, used.length)] != 0);
        }
        found.count = 0;
        if let Some(number) = self.any_prefix {
            found.prefixes[0] = (0, number);
            found.count = 1;
        }
        for &length in &let_through[..count] {
            if let Some(named) = self.named.get(&Name(RulePrefix::new(address, length))) {
                found.prefixes[found.count] = (length, named.number);
                found.count += 1;
            }
        }
    }
}

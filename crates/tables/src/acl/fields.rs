//! Divides the values of a field into classes: the same rules match all values of a class.
//!
//! The ends of the rules' ranges cut a field into intervals. Intervals with the same set of rules form a class (the
//! equivalence classes of phase 0 in Gupta and McKeown, "Packet Classification on Multiple Fields", SIGCOMM 1999).

use std::hash::Hash;

use forebay_simd::Level;
use forebay_simd::interval_map::IntervalMap;

use super::budget::Budget;
use super::key::CHUNK;
use super::rule::{RuleAddress, RulePrefix};
use super::sets::{Interner, RuleSets};

/// The intervals of a field and the class of each.
pub struct Partition<T> {
    /// The last value of each interval except the final one.
    pub ends: Vec<T>,
    /// The class of each interval.
    pub classes: Vec<u16>,
    /// The rule set of each class.
    pub sets: RuleSets,
}

/// Partitions a field with values from `min` to `max` at the ends of `ranges`, which has one range for each rule. There
/// must be fewer than 2¹⁵ ranges, so that classes fit into 16 bits. `words` is the number of words of a rule set
/// ([`words_for`](super::sets::words_for)), and `before` returns the value before a value above `min`. Returns `None`
/// if the budget is spent.
pub fn partition<T: Ord + Copy + Hash>(
    ranges: &[(T, T)],
    words: usize,
    min: T,
    max: T,
    before: impl Fn(T) -> T,
    budget: &mut Budget,
) -> Option<Partition<T>> {
    // The work of sorting, and of two searches for each range.
    budget.work(ranges.len() * 128)?;
    // The memory of the ends, the classes, and the map made of both.
    budget.bytes((ranges.len() * 2 + 1) * (2 * size_of::<T>() + 8))?;
    let mut ends: Vec<T> = ranges
        .iter()
        .flat_map(|&(low, high)| [(low > min).then(|| before(low)), (high < max).then_some(high)])
        .flatten()
        .collect();
    ends.sort_unstable();
    ends.dedup();
    let interval = |value: T| ends.partition_point(|&end| end < value);
    // A rule's bit flips where its range begins and behind its end.
    let mut flips: Vec<(usize, usize)> = Vec::with_capacity(ranges.len() * 2);
    for (rule, &(low, high)) in ranges.iter().enumerate() {
        flips.push((interval(low), rule));
        flips.push((interval(high) + 1, rule));
    }
    flips.sort_unstable();
    let mut flips = flips.into_iter().peekable();
    let mut interner = Interner::new(words);
    let mut set = vec![0u64; words];
    let classes = (0..=ends.len())
        .map(|index| {
            while let Some((_, rule)) = flips.next_if(|&(at, _)| at <= index) {
                set[rule / 64] ^= 1 << (rule % 64);
            }
            interner.number(&set, budget)
        })
        .collect::<Option<_>>()?;
    Some(Partition { ends, classes, sets: interner.finish() })
}

/// Partitions a family's addresses by `prefixes`, as [`partition`] does.
pub fn partition_addresses<A: RuleAddress>(
    prefixes: impl Iterator<Item = RulePrefix<A>>,
    words: usize,
    budget: &mut Budget,
) -> Option<Partition<A>> {
    let ranges: Vec<(A, A)> = prefixes.map(|prefix| (prefix.first(), prefix.last())).collect();
    partition(&ranges, words, A::MIN, A::MAX, A::before, budget)
}

/// A map from an address to its class, already multiplied by the stride of the table that the class indexes.
#[derive(Clone, Debug)]
pub struct AddressClasses<A: RuleAddress>(IntervalMap<A>);

impl<A: RuleAddress> AddressClasses<A> {
    /// Creates the map of the classes of `partition`, each multiplied by `stride`.
    pub fn new(partition: &Partition<A>, stride: usize) -> AddressClasses<A> {
        let values = partition.classes.iter().map(|&class| u32::from(class) * stride as u32).collect();
        AddressClasses(IntervalMap::new(&partition.ends, values, Level::detect()))
    }

    /// Looks up the class, times the stride, of each of at most [`CHUNK`] addresses.
    #[inline]
    pub fn look_up(&self, addresses: impl ExactSizeIterator<Item = A>, classes: &mut [u32; CHUNK]) {
        let count = addresses.len().min(CHUNK);
        let mut keys = [A::MIN; CHUNK];
        keys.iter_mut().zip(addresses).for_each(|(key, address)| *key = address);
        self.0.look_up_batch(&keys[..count], &mut classes[..count]);
    }

    /// Returns the memory taken, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

//! Sets of rules as bit vectors, and numbers for equal sets.
//!
//! Every table of the back ends maps field values to the set of rules that match there. Equal sets get the same number,
//! which keeps the tables small.

use std::collections::HashMap;

use super::budget::Budget;

/// Sets of rules, each of the same number of 64-bit words. Rule `r` is bit `r % 64` of word `r / 64`.
#[derive(Clone, Debug)]
pub struct RuleSets {
    words: usize,
    bits: Vec<u64>,
}

impl RuleSets {
    /// Returns the words of all sets, set after set.
    pub fn bits(&self) -> &[u64] {
        &self.bits
    }

    /// Returns the number of words of a set.
    pub fn words(&self) -> usize {
        self.words
    }

    /// Returns the number of sets.
    pub fn len(&self) -> usize {
        self.bits.len() / self.words
    }

    /// Returns the words of one set.
    pub fn set(&self, number: usize) -> &[u64] {
        &self.bits[number * self.words..][..self.words]
    }
}

/// Returns the number of words of a set over `rules` rules: a whole number of 256-bit vectors, at least one.
pub fn words_for(rules: usize) -> usize {
    rules.div_ceil(256).max(1) * 4
}

/// Returns the set of the rules for which `wanted` returns true.
pub fn collect<R>(rules: &[R], wanted: impl Fn(&R) -> bool) -> Vec<u64> {
    let mut set = vec![0; words_for(rules.len())];
    for (index, rule) in rules.iter().enumerate() {
        set[index / 64] |= u64::from(wanted(rule)) << (index % 64);
    }
    set
}

/// Clears all members of `set` after the first one that is also in `last`.
pub fn cut_after_first(set: &mut [u64], last: &[u64]) {
    let mut keep = u64::MAX;
    for (word, last) in set.iter_mut().zip(last) {
        *word &= keep;
        let found = *word & last;
        if found != 0 {
            *word &= found ^ (found - 1);
            keep = 0;
        }
    }
}

/// Iterates over the members of a set in ascending order.
pub fn members(set: &[u64]) -> impl Iterator<Item = u32> {
    (0u32..).zip(set).flat_map(|(word, &bits)| {
        let mut bits = bits;
        std::iter::from_fn(move || {
            (bits != 0).then(|| {
                let bit = bits.trailing_zeros();
                bits &= bits - 1;
                word * 64 + bit
            })
        })
    })
}

/// Numbers sets in order of appearance. Equal sets get the same number.
pub struct Interner {
    sets: RuleSets,
    numbers: HashMap<Box<[u64]>, u16>,
}

impl Interner {
    /// Creates an interner of sets of `words` words.
    pub fn new(words: usize) -> Interner {
        Interner { sets: RuleSets { words, bits: Vec::new() }, numbers: HashMap::new() }
    }

    /// Returns the number of `set`, or `None` if 65 536 other sets have numbers or the budget is spent.
    pub fn number(&mut self, set: &[u64], budget: &mut Budget) -> Option<u16> {
        // Most of the time is spent on hashing the words.
        budget.work(16 + set.len() * 4)?;
        if let Some(&number) = self.numbers.get(set) {
            return Some(number);
        }
        let number = u16::try_from(self.numbers.len()).ok()?;
        // The set here, the set as a key, and its entry in the map.
        budget.bytes(2 * size_of_val(set) + 32)?;
        self.numbers.insert(set.into(), number);
        self.sets.bits.extend_from_slice(set);
        Some(number)
    }

    /// Returns the sets by number.
    pub fn finish(self) -> RuleSets {
        self.sets
    }
}

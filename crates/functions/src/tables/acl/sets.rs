//! Sets of rules as bit vectors, and numbers for those that are equal.
//!
//! Every table here stands for a mapping from field values to the set of rules that hold there; giving equal sets one
//! number is what keeps the tables small.

use std::collections::HashMap;

use super::budget::Budget;

/// Sets of rules, a fixed number of 64-bit words each; rule `r` is bit `r % 64` of word `r / 64`.
#[derive(Clone, Debug)]
pub struct RuleSets {
    words: usize,
    bits: Vec<u64>,
}

impl RuleSets {
    /// The sets' words, set after set.
    pub fn bits(&self) -> &[u64] {
        &self.bits
    }

    /// Words of a set.
    pub fn words(&self) -> usize {
        self.words
    }

    /// How many sets there are.
    pub fn len(&self) -> usize {
        self.bits.len() / self.words
    }

    /// The words of one set.
    pub fn set(&self, number: usize) -> &[u64] {
        &self.bits[number * self.words..][..self.words]
    }
}

/// Words of a set over `rules` rules: a whole number of 256-bit vectors, at least one.
pub fn words_for(rules: usize) -> usize {
    rules.div_ceil(256).max(1) * 4
}

/// The set of those of `rules` that `wanted` holds for.
pub fn collect<R>(rules: &[R], wanted: impl Fn(&R) -> bool) -> Vec<u64> {
    let mut set = vec![0; words_for(rules.len())];
    for (index, rule) in rules.iter().enumerate() {
        set[index / 64] |= u64::from(wanted(rule)) << (index % 64);
    }
    set
}

/// Clears all that follows the first member of `last` in `set`.
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

/// The members of a set, ascending.
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

/// Gives equal sets one number, in order of appearance.
pub struct Interner {
    sets: RuleSets,
    numbers: HashMap<Box<[u64]>, u16>,
}

impl Interner {
    /// For sets of `words` words.
    pub fn new(words: usize) -> Interner {
        Interner { sets: RuleSets { words, bits: Vec::new() }, numbers: HashMap::new() }
    }

    /// The number of `set`; none when 65 536 others have been seen before, or the budget is spent.
    pub fn number(&mut self, set: &[u64], budget: &mut Budget) -> Option<u16> {
        // Hashing is what takes long.
        budget.work(16 + set.len() * 4)?;
        if let Some(&number) = self.numbers.get(set) {
            return Some(number);
        }
        let number = u16::try_from(self.numbers.len()).ok()?;
        // Here, as a key, and its place among the keys.
        budget.bytes(2 * size_of_val(set) + 32)?;
        self.numbers.insert(set.into(), number);
        self.sets.bits.extend_from_slice(set);
        Some(number)
    }

    /// The sets by number.
    pub fn finish(self) -> RuleSets {
        self.sets
    }
}

//! A set of prefix lengths, as bits.

/// The number of prefix lengths: 0 to 128.
pub const LENGTHS: usize = 129;

const WORDS: usize = LENGTHS.div_ceil(64);

/// A set of prefix lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths([u64; WORDS]);

impl Lengths {
    /// The empty set.
    pub const NONE: Lengths = Lengths([0; WORDS]);

    /// Adds a length.
    #[inline]
    pub fn insert(&mut self, length: u8) {
        self.0[usize::from(length / 64)] |= 1 << (length % 64);
    }

    /// Removes a length.
    pub fn remove(&mut self, length: u8) {
        self.0[usize::from(length / 64)] &= !(1 << (length % 64));
    }

    /// Returns the intersection of both sets.
    #[inline]
    pub fn common(self, other: Lengths) -> Lengths {
        Lengths(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    /// Returns true if the set contains `length`.
    #[inline]
    pub fn contains(self, length: u8) -> bool {
        self.0[usize::from(length / 64)] >> (length % 64) & 1 != 0
    }

    /// Calls `with` with each member in ascending order.
    #[inline]
    pub fn for_each(self, mut with: impl FnMut(u8)) {
        for (word, mut bits) in (0u8..).zip(self.0) {
            while bits != 0 {
                with(word * 64 + bits.trailing_zeros() as u8);
                bits &= bits - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(steps in prop::collection::vec((any::<bool>(), 0..LENGTHS as u8), 0..200),
                other in prop::collection::btree_set(0..LENGTHS as u8, 0..60)) {
            let (mut lengths, mut model) = (Lengths::NONE, BTreeSet::new());
            for (put, length) in steps {
                if put {
                    lengths.insert(length);
                    model.insert(length);
                } else {
                    lengths.remove(length);
                    model.remove(&length);
                }
            }
            let members = |lengths: Lengths| {
                let mut members = Vec::new();
                lengths.for_each(|length| members.push(length));
                members
            };
            prop_assert!(members(lengths).iter().eq(model.iter()));
            prop_assert!((0..LENGTHS as u8).all(|length| lengths.contains(length) == model.contains(&length)));
            let mut others = Lengths::NONE;
            other.iter().for_each(|length| others.insert(*length));
            prop_assert!(members(lengths.common(others)).iter().eq(model.intersection(&other)));
        }
    }
}

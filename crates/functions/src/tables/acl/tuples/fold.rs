//! The hash that tuples are found by: a multiplication whose halves are folded, keyed.
//!
//! The standard library's own (SipHash) takes longer than everything else in a probe. Keys come from the operator, and
//! packets only ask for them: the seed keeps those who choose packets from aiming at the places where keys crowd.

use std::hash::{BuildHasher, Hasher};

/// An odd constant without pattern: the golden ratio's bits (Knuth, volume 3, section 6.4).
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// What makes hashers: equal seeds, equal hashes.
#[derive(Clone, Copy, Debug)]
pub struct Seeded(u64);

impl Seeded {
    /// Hashers of this seed.
    pub fn new(seed: u64) -> Seeded {
        // So that small seeds differ in all bits.
        Seeded(fold(seed ^ MULTIPLIER.rotate_left(32)) ^ seed)
    }
}

impl BuildHasher for Seeded {
    type Hasher = Fold;

    #[inline]
    fn build_hasher(&self) -> Fold {
        Fold(self.0)
    }
}

/// A hash on its way.
#[derive(Clone, Copy, Debug)]
pub struct Fold(u64);

/// Both halves of the product: every bit of `value` reaches the lower ones and the upper ones.
#[inline]
fn fold(value: u64) -> u64 {
    let product = u128::from(value) * u128::from(MULTIPLIER);
    (product >> 64) as u64 ^ product as u64
}

impl Hasher for Fold {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.0 = fold(self.0.rotate_left(29) ^ value);
    }

    #[inline]
    fn write_u128(&mut self, value: u128) {
        self.write_u64(value as u64);
        self.write_u64((value >> 64) as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn neighbours_differ_above_and_below() {
        // Hash tables take the lowest bits for the place and the highest seven to compare.
        let seeded = Seeded::new(0);
        let hashes: Vec<u64> = (0..4096u32).map(|n| seeded.hash_one((n, 24u8))).collect();
        let different = |part: fn(u64) -> u64| hashes.iter().map(|hash| part(*hash)).collect::<HashSet<_>>().len();
        assert_eq!(different(|hash| hash), 4096);
        // Of 4 096 balls in as many bins about 2 589 bins are hit.
        assert!(different(|hash| hash & 0xfff) > 2_000, "{}", different(|hash| hash & 0xfff));
        assert_eq!(different(|hash| hash >> 57), 128);
    }

    #[test]
    fn seeds_make_other_hashes() {
        assert_eq!(Seeded::new(1).hash_one(7u64), Seeded::new(1).hash_one(7u64));
        assert_ne!(Seeded::new(1).hash_one(7u64), Seeded::new(2).hash_one(7u64));
    }
}

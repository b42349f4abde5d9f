//! The hash function of the tuple tables: multiplication with folded halves, keyed by a seed.
//!
//! The standard library's hash function (SipHash) takes longer than everything else in a probe. The operator chooses
//! the keys in the tables, and packets only look them up. The seed prevents senders from choosing packets that probe
//! crowded slots.

use std::hash::{BuildHasher, Hasher};

/// An odd constant without a pattern: the bits of the golden ratio (Knuth, volume 3, section 6.4).
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A factory of hashers. Equal seeds give equal hashes.
#[derive(Clone, Copy, Debug)]
pub struct Seeded(u64);

impl Seeded {
    /// Creates the factory of this seed.
    pub fn new(seed: u64) -> Seeded {
        // The folding makes small seeds differ in all bits.
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

/// The state of a hash computation.
#[derive(Clone, Copy, Debug)]
pub struct Fold(u64);

/// Returns the exclusive or of both halves of the product. Every bit of `value` reaches the lower and the upper bits.
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
        // Hash tables use the lowest bits for the slot and the highest seven for the comparison.
        let seeded = Seeded::new(0);
        let hashes: Vec<u64> = (0..4096u32).map(|n| seeded.hash_one((n, 24u8))).collect();
        let different = |part: fn(u64) -> u64| hashes.iter().map(|hash| part(*hash)).collect::<HashSet<_>>().len();
        assert_eq!(different(|hash| hash), 4096);
        // 4 096 balls thrown into 4 096 bins hit about 2 589 bins.
        assert!(different(|hash| hash & 0xfff) > 2_000, "{}", different(|hash| hash & 0xfff));
        assert_eq!(different(|hash| hash >> 57), 128);
    }

    #[test]
    fn seeds_make_other_hashes() {
        assert_eq!(Seeded::new(1).hash_one(7u64), Seeded::new(1).hash_one(7u64));
        assert_ne!(Seeded::new(1).hash_one(7u64), Seeded::new(2).hash_one(7u64));
    }
}

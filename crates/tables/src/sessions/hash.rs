//! Hashing of session keys with a secret, so that a sender of packets cannot know which keys share a bucket.
//!
//! The hash is folded multiplication (the step of wyhash and foldhash): both halves of a 128-bit product are combined,
//! and a different secret is mixed into each word. It is not a cryptographic hash. It must withstand an attacker who
//! sees no hashes and cannot learn from responses how long a look-up took. This attacker gains little by guessing: a
//! crowded bucket spills into its other bucket and a bounded stash, and when the stash is full, too, a new session is
//! refused and counted.

use forebay_units::Random;

/// The secrets of one table.
#[derive(Clone, Copy, Debug)]
pub struct Seed([u64; 3]);

impl Seed {
    /// Derives the secrets from one secret of 64 bits with SplitMix64 (Steele, Lea, Flood 2014).
    #[must_use]
    pub fn new(secret: u64) -> Self {
        let mut random = Random::new(secret);
        Self(std::array::from_fn(|_| random.bits()))
    }

    /// Returns the hash of two words.
    #[inline(always)]
    #[must_use]
    pub fn hash(self, first: u64, second: u64) -> u64 {
        let [a, b, c] = self.0;
        folded(folded(first ^ a, second ^ b), c)
    }

    /// Extends a hash by one more word: `before` is the hash of the words before it.
    #[inline(always)]
    #[must_use]
    pub fn and(self, before: u64, word: u64) -> u64 {
        let [a, b, _] = self.0;
        folded(before ^ b, word ^ a)
    }
}

/// Returns the exclusive or of both halves of the product.
#[inline(always)]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_a_key_reaches_both_halves() {
        let seed = Seed::new(7);
        for word in 0..2 {
            for bit in 0..64 {
                let changed = |other: u64| {
                    if word == 0 { seed.hash(other ^ 1 << bit, 5) } else { seed.hash(5, other ^ 1 << bit) }
                };
                let differs = (0..256u64).map(|n| {
                    let other = n.wrapping_mul(0x0101_0101_0101);
                    let before = if word == 0 { seed.hash(other, 5) } else { seed.hash(5, other) };
                    (before ^ changed(other)).count_ones()
                });
                let mean = differs.sum::<u32>() / 256;
                assert!((24..=40).contains(&mean), "bit {bit} of word {word}: {mean} of 64 bits change");
            }
        }
    }

    #[test]
    fn another_secret_is_another_hash() {
        let hashes: std::collections::BTreeSet<_> = (0..1_000).map(|secret| Seed::new(secret).hash(1, 2)).collect();
        assert_eq!(hashes.len(), 1_000);
        assert_ne!(Seed::new(1).and(5, 6), Seed::new(2).and(5, 6));
    }
}

//! Which keys of a batch are the first of theirs: a Bloom filter of one hash, as a batch is short and a wrong answer harmless.

use super::{Key, Seed};

/// The bits of keys that came before: 512, so that of 32 keys one in 33 is taken for another one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Before([u64; WORDS]);

const WORDS: usize = 8;

impl Before {
    /// Whether a key surely was not asked about before; sometimes `false` of one that was not.
    #[inline(always)]
    pub fn is_new(&mut self, key: impl Key, seed: Seed) -> bool {
        let hash = key.hash(seed);
        let (word, bit) = (&mut self.0[(hash >> 6) as usize % WORDS], 1 << (hash % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::sessions::Tuple4;

    #[test]
    fn a_key_is_new_once() {
        let mut wrong = 0;
        for batch in 0..100 {
            let mut before = Before::default();
            for number in 0..32 {
                let key = Tuple4::new([10, 0, batch, number], [192, 0, 2, 1], (5, 6), 17);
                wrong += u32::from(!before.is_new(key, Seed::new(1)));
                assert!(!before.is_new(key, Seed::new(1)));
            }
        }
        assert!(wrong < 200, "{wrong} of 3200 taken for others");
    }
}

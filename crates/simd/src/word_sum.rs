//! The sum of 16-bit words for the Internet checksum (RFC 1071), for long data.
//!
//! The instruction that adds words in pairs treats them as signed. Therefore, the highest bit of each word is inverted,
//! which makes the word 2¹⁵ too small. The difference is added at the end.

use crate::level::{Isa, Level};

/// The largest number of bytes in one call of a kernel. With this number, the kernel's sums of 32 bits cannot overflow.
#[cfg(any(test, target_arch = "x86_64"))]
const PIECE: usize = 1 << 16;

/// Returns the sum of the two-byte words of `bytes` in the byte order of the machine. If the number of bytes is odd, a
/// byte of 0 is assumed after the last byte. The sum is not folded to 16 bits.
// This function is not inlined, because it is not called for short data.
#[inline(never)]
#[must_use]
pub fn word_sum(bytes: &[u8], level: Level) -> u64 {
    match level.0 {
        Isa::Scalar => scalar(bytes),
        // SAFETY: a level proves that the machine has its instructions.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => bytes.chunks(PIECE).map(|piece| unsafe { x86::sum_avx2(piece) }).sum(),
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => bytes.chunks(PIECE).map(|piece| unsafe { x86::sum_avx512(piece) }).sum(),
    }
}

/// Computes the same sum word by word. This is the definition of [`word_sum`].
fn scalar(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let last = rest.first().map_or(0, |byte| u16::from_ne_bytes([*byte, 0]));
    words.iter().map(|word| u64::from(u16::from_ne_bytes(*word))).sum::<u64>() + u64::from(last)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// The amount by which each word is too small after its highest bit is inverted.
    const LESS: i64 = 1 << 15;

    /// Returns the sum of the words of at most `PIECE` bytes. The machine must have AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn sum_avx2(bytes: &[u8]) -> u64 {
        let (blocks, rest) = bytes.as_chunks::<32>();
        let (flip, ones) = (_mm256_set1_epi16(i16::MIN), _mm256_set1_epi16(1));
        let add = |sums, block: &[u8; 32]| {
            // SAFETY: these are 32 readable bytes, and an unaligned load accepts any address.
            let words = unsafe { _mm256_loadu_si256(block.as_ptr().cast()) };
            _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_xor_si256(words, flip), ones))
        };
        let [mut even, mut odd] = [_mm256_setzero_si256(); 2];
        let (pairs, last) = blocks.as_chunks::<2>();
        for [first, second] in pairs {
            (even, odd) = (add(even, first), add(odd, second));
        }
        for block in last {
            even = add(even, block);
        }
        let sums = _mm256_add_epi32(even, odd);
        let halves = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
        let quarters = _mm_add_epi32(halves, _mm_unpackhi_epi64(halves, halves));
        let sum = _mm_cvtsi128_si32(_mm_add_epi32(quarters, _mm_shuffle_epi32::<1>(quarters)));
        let (fours, rest) = rest.as_chunks::<4>();
        let fours: u64 = fours
            .iter()
            .map(|word| u64::from(u32::from_ne_bytes(*word)))
            .map(|word| (word & 0xffff) + (word >> 16))
            .sum();
        (i64::from(sum) + LESS * 16 * blocks.len() as i64).cast_unsigned() + fours + super::scalar(rest)
    }

    /// Returns the sum of the words of at most `PIECE` bytes. The machine must have AVX-512 F and BW.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) unsafe fn sum_avx512(bytes: &[u8]) -> u64 {
        let (blocks, rest) = bytes.as_chunks::<64>();
        let (flip, ones) = (_mm512_set1_epi16(i16::MIN), _mm512_set1_epi16(1));
        let add = |sums, words| _mm512_add_epi32(sums, _mm512_madd_epi16(_mm512_xor_si512(words, flip), ones));
        // SAFETY: these are 64 readable bytes, and an unaligned load accepts any address.
        let load = |block: &[u8; 64]| unsafe { _mm512_loadu_si512(block.as_ptr().cast()) };
        // The last block is filled up with zeros.
        let mask = (1u64 << rest.len()) - 1;
        // SAFETY: the load does not read the bytes that the mask excludes.
        let filled = unsafe { _mm512_maskz_loadu_epi8(mask, rest.as_ptr().cast()) };
        let [mut even, mut odd] = [add(_mm512_setzero_si512(), filled), _mm512_setzero_si512()];
        let (pairs, last) = blocks.as_chunks::<2>();
        for [first, second] in pairs {
            (even, odd) = (add(even, load(first)), add(odd, load(second)));
        }
        for block in last {
            odd = add(odd, load(block));
        }
        let sum = _mm512_reduce_add_epi32(_mm512_add_epi32(even, odd));
        (i64::from(sum) + LESS * 32 * (blocks.len() as i64 + 1)).cast_unsigned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_greatest_sum_of_a_piece_and_more_does_not_overflow() {
        for level in Level::available() {
            for byte in [0u8, 0x7f, 0x80, 0xff] {
                let bytes = vec![byte; 2 * PIECE + 3];
                let word = u64::from(u16::from_ne_bytes([byte; 2]));
                let expected = (PIECE as u64 + 1) * word + u64::from(u16::from_ne_bytes([byte, 0]));
                assert_eq!(word_sum(&bytes, level), expected, "{byte:#04x} at {}", level.name());
            }
        }
    }

    proptest! {
        #[test]
        fn every_level_agrees_with_the_scalar_version(
            bytes in prop::collection::vec(any::<u8>(), 0..700), start in 0usize..64,
        ) {
            let bytes = &bytes[start.min(bytes.len())..];
            for level in Level::available() {
                prop_assert_eq!(word_sum(bytes, level), scalar(bytes), "{}", level.name());
            }
        }
    }
}

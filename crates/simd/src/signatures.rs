//! Compares the eight signatures of a hash bucket with one value.
//!
//! The instruction set is fixed at compile time. If the build has AVX2, the kernel is a comparison and a mask.
//! Otherwise, it is two comparisons with SSE2, which every x86-64 processor has. The kernel is so small that it is
//! inlined into the caller's loop.

/// Returns a mask whose bit i is set if the i-th signature is `wanted`.
#[inline(always)]
#[must_use]
pub fn equal(signatures: &[u32; 8], wanted: u32) -> u8 {
    #[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
    return avx2::equal(signatures, wanted);
    #[cfg(all(target_arch = "x86_64", not(target_feature = "avx2")))]
    return sse2::equal(signatures, wanted);
    #[cfg(not(target_arch = "x86_64"))]
    scalar(signatures, wanted)
}

/// Computes the same mask, one signature after the other. This is the definition of [`equal`].
#[must_use]
pub fn scalar(signatures: &[u32; 8], wanted: u32) -> u8 {
    signatures.iter().rev().fold(0, |mask, signature| mask << 1 | u8::from(*signature == wanted))
}

#[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm256_castsi256_ps, _mm256_cmpeq_epi32, _mm256_loadu_si256, _mm256_movemask_ps, _mm256_set1_epi32,
    };

    #[inline(always)]
    pub(super) fn equal(signatures: &[u32; 8], wanted: u32) -> u8 {
        // SAFETY: these are 32 readable bytes, and an unaligned load accepts any address; the build is for processors
        // with AVX2.
        unsafe {
            let all = _mm256_loadu_si256(signatures.as_ptr().cast::<__m256i>());
            let same = _mm256_cmpeq_epi32(all, _mm256_set1_epi32(wanted.cast_signed()));
            _mm256_movemask_ps(_mm256_castsi256_ps(same)) as u8
        }
    }
}

// Tests compare this version with the scalar version, also in builds with AVX2.
#[cfg(all(target_arch = "x86_64", any(test, not(target_feature = "avx2"))))]
mod sse2 {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi32, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi32,
        _mm_setzero_si128,
    };

    #[inline(always)]
    pub(super) fn equal(signatures: &[u32; 8], wanted: u32) -> u8 {
        let (first, second) = signatures.split_at(4);
        // SAFETY: both halves are 16 readable bytes, and an unaligned load accepts any address; SSE2 is part of x86-64.
        unsafe {
            let wanted = _mm_set1_epi32(wanted.cast_signed());
            let first = _mm_cmpeq_epi32(_mm_loadu_si128(first.as_ptr().cast::<__m128i>()), wanted);
            let second = _mm_cmpeq_epi32(_mm_loadu_si128(second.as_ptr().cast::<__m128i>()), wanted);
            let bytes = _mm_packs_epi16(_mm_packs_epi32(first, second), _mm_setzero_si128());
            // The upper half of the mask belongs to the zeros.
            _mm_movemask_epi8(bytes) as u8
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_bit_stands_for_one_slot() {
        for slot in 0..8 {
            let mut signatures = [7; 8];
            signatures[slot] = u32::MAX;
            assert_eq!(equal(&signatures, u32::MAX), 1 << slot);
        }
        assert_eq!(equal(&[0; 8], 0), 0xff);
    }

    proptest! {
        #[test]
        fn equal_agrees_with_the_scalar_version(signatures: [u8; 8], wanted: u8, high: u32) {
            // Few distinct values, so that some are equal, with equal or different other bits.
            let wide = signatures.map(|signature| u32::from(signature % 4) ^ high);
            for wanted in [u32::from(wanted % 4) ^ high, u32::from(wanted), high, !high] {
                prop_assert_eq!(equal(&wide, wanted), scalar(&wide, wanted));
                #[cfg(target_arch = "x86_64")]
                prop_assert_eq!(sse2::equal(&wide, wanted), scalar(&wide, wanted));
            }
        }
    }
}

//! The descent in the tree with vector comparisons (AVX2 and AVX-512), with a separate loop for each depth.

use core::arch::x86_64::*;

use super::{IntervalMap, Key, Node32, Node128, flip32, flip64};

/// Returns twice the number of ends below the key, from two vectors of eight ends. The result is doubled, because each
/// end has two bits in the mask after packing to 16 bits.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn twice_below_32_avx2(node: &Node32, key: __m256i) -> usize {
    // SAFETY: a node is 64 bytes, aligned to 64, so both halves are aligned loads inside it.
    let (low, high) = unsafe {
        let lanes = node.0.as_ptr().cast::<__m256i>();
        (_mm256_load_si256(lanes), _mm256_load_si256(lanes.add(1)))
    };
    let both = _mm256_packs_epi32(_mm256_cmpgt_epi32(key, low), _mm256_cmpgt_epi32(key, high));
    (_mm256_movemask_epi8(both) as u32).count_ones() as usize
}

/// Returns twice the number of ends below the key, like the AVX2 version.
#[inline]
#[target_feature(enable = "avx512f,popcnt")]
fn twice_below_32_avx512(node: &Node32, key: __m512i) -> usize {
    // SAFETY: a node is 64 bytes, aligned to 64.
    let ends = unsafe { _mm512_load_si512(node.0.as_ptr().cast()) };
    2 * _mm512_cmpgt_epi32_mask(key, ends).count_ones() as usize
}

/// Returns twice the number of ends below the key, from two vectors of four ends. An end is below the key if its upper
/// half is smaller, or if the upper halves are equal and its lower half is smaller.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn twice_below_128_avx2(node: &Node128, key: (__m256i, __m256i)) -> usize {
    let below = |half: usize| {
        // SAFETY: each array is 64 bytes, aligned to 64; `half` is 0 or 1.
        let (high, low) = unsafe {
            (
                _mm256_load_si256(node.high.as_ptr().cast::<__m256i>().add(half)),
                _mm256_load_si256(node.low.as_ptr().cast::<__m256i>().add(half)),
            )
        };
        let tie = _mm256_and_si256(_mm256_cmpeq_epi64(key.0, high), _mm256_cmpgt_epi64(key.1, low));
        _mm256_or_si256(_mm256_cmpgt_epi64(key.0, high), tie)
    };
    let both = _mm256_packs_epi32(below(0), below(1));
    (_mm256_movemask_epi8(both) as u32).count_ones() as usize / 2
}

/// Returns twice the number of ends below the key, like the AVX2 version.
#[inline]
#[target_feature(enable = "avx512f,popcnt")]
fn twice_below_128_avx512(node: &Node128, key: (__m512i, __m512i)) -> usize {
    // SAFETY: each array is 64 bytes, aligned to 64.
    let (high, low) =
        unsafe { (_mm512_load_si512(node.high.as_ptr().cast()), _mm512_load_si512(node.low.as_ptr().cast())) };
    let tie = _mm512_mask_cmpgt_epi64_mask(_mm512_cmpeq_epi64_mask(key.0, high), key.1, low);
    2 * (_mm512_cmpgt_epi64_mask(key.0, high) | tie).count_ones() as usize
}

/// Returns a vector with the key, with its sign bit flipped, in all lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn splat_32_avx2(key: u32) -> __m256i {
    _mm256_xor_si256(_mm256_set1_epi32(key as i32), _mm256_set1_epi32(flip32(0)))
}

/// Returns a vector with the key, with its sign bit flipped, in all lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn splat_32_avx512(key: u32) -> __m512i {
    _mm512_set1_epi32(flip32(key))
}

/// Returns two vectors with the upper and the lower half of the key, with sign bits flipped, in all lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn splat_128_avx2(key: u128) -> (__m256i, __m256i) {
    (_mm256_set1_epi64x(flip64((key >> 64) as u64)), _mm256_set1_epi64x(flip64(key as u64)))
}

/// Returns two vectors with the upper and the lower half of the key, with sign bits flipped, in all lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn splat_128_avx512(key: u128) -> (__m512i, __m512i) {
    (_mm512_set1_epi64(flip64((key >> 64) as u64)), _mm512_set1_epi64(flip64(key as u64)))
}

/// Defines one loop per instruction set and depth. The depth is a constant, so the compiler unrolls the loop over
/// levels, and the lookups of successive keys overlap.
macro_rules! descend {
    ($key:ty, $features:literal, $batch:ident, $fixed:ident, $twice_below:ident, $splat:ident) => {
        impl IntervalMap<$key> {
            #[target_feature(enable = $features)]
            pub(super) fn $batch(&self, keys: &[$key], values: &mut [u32]) {
                match self.depth {
                    1 => self.$fixed::<1>(keys, values),
                    2 => self.$fixed::<2>(keys, values),
                    3 => self.$fixed::<3>(keys, values),
                    4 => self.$fixed::<4>(keys, values),
                    5 => self.$fixed::<5>(keys, values),
                    6 => self.$fixed::<6>(keys, values),
                    7 => self.$fixed::<7>(keys, values),
                    _ => self.$fixed::<8>(keys, values),
                }
            }

            #[target_feature(enable = $features)]
            fn $fixed<const DEPTH: usize>(&self, keys: &[$key], values: &mut [u32]) {
                const LANES: usize = <$key as Key>::LANES;
                for (value, &key) in values.iter_mut().zip(keys) {
                    let key = $splat(key);
                    // The index is doubled, like the counts. To halve each count would cost one instruction per level.
                    let mut index = 0;
                    for &offset in &self.offsets[..DEPTH - 1] {
                        // SAFETY: by the invariant of `nodes`, a descent stays inside its level.
                        let node = unsafe { self.nodes.get_unchecked(offset + index / 2) };
                        index = index * (LANES + 1) + $twice_below(node, key);
                    }
                    // SAFETY: as above.
                    let leaf = unsafe { self.nodes.get_unchecked(self.offsets[DEPTH - 1] + index / 2) };
                    let rank = (index * LANES + $twice_below(leaf, key)) / 2;
                    // SAFETY: by the invariant of `values`, `rank`, the number of ends below the key, is an index.
                    *value = unsafe { *self.values.get_unchecked(rank) };
                }
            }
        }
    };
}

descend!(u32, "avx2,popcnt", look_up_32_avx2, fixed_32_avx2, twice_below_32_avx2, splat_32_avx2);
descend!(u32, "avx512f,popcnt", look_up_32_avx512, fixed_32_avx512, twice_below_32_avx512, splat_32_avx512);
descend!(u128, "avx2,popcnt", look_up_128_avx2, fixed_128_avx2, twice_below_128_avx2, splat_128_avx2);
descend!(u128, "avx512f,popcnt", look_up_128_avx512, fixed_128_avx512, twice_below_128_avx512, splat_128_avx512);

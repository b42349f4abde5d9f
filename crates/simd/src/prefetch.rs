//! Prefetches cache lines before they are needed.
//!
//! A lookup in a table larger than the cache takes one or two memory latencies. Lookups of a batch hide these
//! latencies: they first prefetch the cache lines for all packets, and then read the lines. The instruction never
//! faults and changes only the cache, so the wrapper is safe for any index.

/// Prefetches `slice[index]` into all cache levels.
///
/// An index out of bounds is harmless and is not checked. Does nothing on processors other than x86-64.
#[inline(always)]
pub fn prefetch_read<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch accepts any address: it never faults and reads nothing that the program can see (AMD64
        // Architecture Programmer's Manual, volume 3, PREFETCHlevel). Every x86-64 processor has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(slice.as_ptr().wrapping_add(index).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, index);
}

#[cfg(test)]
mod tests {
    use super::prefetch_read;

    #[test]
    fn any_index_is_accepted() {
        let words = [1u64, 2, 3];
        for index in [0, 2, 3, usize::MAX] {
            prefetch_read(&words, index);
        }
        prefetch_read::<u64>(&[], 0);
        prefetch_read(&[(); 4], 1);
        assert_eq!(words, [1, 2, 3]);
    }
}

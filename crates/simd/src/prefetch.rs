//! Ask for a cache line before it is needed.
//!
//! A table larger than the cache answers a lookup in one or two memory latencies. Batched lookups hide them: first
//! ask for every packet's line, then read them all. The instruction never faults and changes nothing but the cache,
//! so that the wrapper is safe for any index.

/// Asks the processor to fetch `slice[index]` into all cache levels.
///
/// An index out of bounds is harmless, and is not looked for. Does nothing on processors other than x86-64.
#[inline(always)]
pub fn prefetch_read<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch takes any address: it never faults and reads nothing the program can see (AMD64
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

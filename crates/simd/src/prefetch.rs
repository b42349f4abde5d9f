//! Ask for a cache line before it is needed.
//!
//! A table larger than the cache answers a lookup in one or two memory latencies. Batched lookups hide them: first
//! ask for every packet's line, then read them all. The instruction never faults and changes nothing but the cache,
//! so that a safe wrapper only has to keep the address inside the slice.

/// Asks the processor to fetch `slice[index]` into all cache levels.
///
/// Does nothing where `index` is out of bounds and on processors other than x86-64.
#[inline(always)]
pub fn prefetch_read<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(element) = slice.get(index) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the pointer comes from a live reference; a prefetch reads nothing the program can see and needs no
        // processor feature beyond SSE, which every x86-64 processor has.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast()) }
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

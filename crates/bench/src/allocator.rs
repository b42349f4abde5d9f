//! An allocator that can start blocks of memory at whole pages. Then the C library copies the blocks in the same way in
//! every process.
//!
//! glibc copies blocks of more than eight vectors (256 bytes with AVX) backwards instead of forwards if destination and
//! source are less than 256 bytes apart modulo 4096. The number of its loop iterations depends on the destination's
//! alignment (`memmove-vec-unaligned-erms.S`, "4k aliasing"). The address of a heap block depends on all earlier
//! allocations: on the length of a file's name, and on the order in which a `HashMap` drops its keys, which differs in
//! every process. The difference is visible in instruction counts, but not in times. So only the process whose
//! instructions are counted calls [`align_to_pages`]. In all other processes, blocks stay where the C library puts
//! them.

use std::alloc::{GlobalAlloc, Layout};
use std::ops::RangeInclusive;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// The size of a page, in bytes. glibc compares destination and source modulo this size.
const PAGE: usize = 4096;
/// Sizes of blocks that start at pages, in bytes. The C library copies smaller blocks without a loop. Larger blocks
/// always come from the system and start at the same offset of a page by themselves (`DEFAULT_MMAP_THRESHOLD_MAX` in
/// `malloc.c`).
const ALIGNED: RangeInclusive<usize> = 129..=1 << 25;
/// The default alignment of blocks, in bytes.
const PLAIN: usize = 2 * size_of::<usize>();

/// Set by [`align_to_pages`], and never cleared.
static ALIGNING: AtomicBool = AtomicBool::new(false);

/// From now on, [`AligningAllocator`] starts every block of 129 bytes to 32 MiB at a whole page. This takes up to a
/// page more per block.
pub fn align_to_pages() {
    ALIGNING.store(true, Ordering::Relaxed);
}

/// The C library's memory. A program must use it as its `#[global_allocator]` for [`align_to_pages`] to have an effect.
#[derive(Clone, Copy, Debug, Default)]
pub struct AligningAllocator;

/// Returns the alignment of a block in bytes, or `None` if the default alignment is sufficient.
fn alignment(layout: Layout) -> Option<usize> {
    let placed = ALIGNED.contains(&layout.size()) && ALIGNING.load(Ordering::Relaxed);
    let least = if placed { layout.align().max(PAGE) } else { layout.align() };
    (least > PLAIN || least > layout.size()).then(|| least.max(size_of::<usize>()))
}

// SAFETY: all blocks come from the C library, with the requested alignment or a greater one. The library frees a block
// by its address alone, whether `malloc` or `posix_memalign` allocated it. So blocks from before and after
// `align_to_pages` may be mixed.
unsafe impl GlobalAlloc for AligningAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(alignment) = alignment(layout) else {
            // SAFETY: the caller guarantees that the size is not zero.
            return unsafe { libc::malloc(layout.size()) }.cast();
        };
        let mut start = ptr::null_mut();
        // SAFETY: the alignment is a power of two and at least a pointer's size; `start` is a local variable.
        let failed = unsafe { libc::posix_memalign(&mut start, alignment, layout.size()) } != 0;
        if failed { ptr::null_mut() } else { start.cast() }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if alignment(layout).is_none() {
            // Pages that are new from the system contain zeros, so `calloc` need not clear them.
            // SAFETY: as for `malloc`.
            return unsafe { libc::calloc(layout.size(), 1) }.cast();
        }
        // SAFETY: the caller guarantees a valid layout.
        let start = unsafe { self.alloc(layout) };
        if !start.is_null() {
            // SAFETY: a new block of that size.
            unsafe { start.write_bytes(0, layout.size()) };
        }
        start
    }

    unsafe fn dealloc(&self, start: *mut u8, _layout: Layout) {
        // SAFETY: the block comes from the C library, and the caller owns it.
        unsafe { libc::free(start.cast()) };
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees a size that is not zero and does not overflow with this alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if alignment(wanted).is_none() {
            // SAFETY: the block comes from the C library, and the default alignment is sufficient for the new block.
            return unsafe { libc::realloc(start.cast(), size) }.cast();
        }
        // SAFETY: as above.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            // SAFETY: these are two blocks, each at least that long; the caller owns the old one.
            unsafe {
                moved.copy_from_nonoverlapping(start, layout.size().min(size));
                self.dealloc(start, layout);
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).expect("a layout")
    }

    /// Allocates a block, fills it, and changes its size. Returns its addresses before and after.
    fn resized(old: Layout, size: usize) -> [usize; 2] {
        let new = layout(size, old.align());
        // SAFETY: sizes are not zero, and only written bytes are read.
        unsafe {
            let first = AligningAllocator.alloc(old);
            assert!(!first.is_null());
            (0..old.size()).for_each(|at| first.add(at).write(at as u8));
            let second = AligningAllocator.realloc(first, old, size);
            assert!(!second.is_null());
            assert!((0..old.size().min(size)).all(|at| second.add(at).read() == at as u8), "{old:?} to {size}");
            let began = [first.addr(), second.addr()];
            AligningAllocator.dealloc(second, new);
            began
        }
    }

    #[test]
    fn blocks_keep_their_bytes_and_start_at_pages_after_place() {
        let cases = [(1, 1), (8, 16), (100, 64), (129, 1), (300, 8), (1_514, 1), (5_000, 8192), (1 << 20, 16)];
        let sizes = [1, 64, 128, 129, 257, 4_096, 70_000];
        let mut held = Vec::new();
        for placing in [false, true] {
            if placing {
                align_to_pages();
            }
            for ((old, align), new) in cases.iter().flat_map(|case| sizes.map(|new| (*case, new))) {
                let began = resized(layout(old, align), new);
                for (start, size) in began.into_iter().zip([old, new]) {
                    assert!(start.is_multiple_of(align), "{size} bytes by {align} at {start:#x}");
                    assert!(!placing || size <= 128 || start.is_multiple_of(PAGE), "{size} bytes at {start:#x}");
                }
                // A small block in between shifts the later ones.
                // SAFETY: the size is not zero.
                held.push(unsafe { AligningAllocator.alloc(layout(24, 8)) });
            }
            // SAFETY: the size is not zero, and the whole block is read only after `alloc_zeroed`.
            unsafe {
                let (zeroed, dirty) = (layout(2_000, 1), AligningAllocator.alloc(layout(2_000, 1)));
                dirty.write_bytes(0xa5, 2_000);
                AligningAllocator.dealloc(dirty, zeroed);
                let start = AligningAllocator.alloc_zeroed(zeroed);
                assert!((0..2_000).all(|at| start.add(at).read() == 0));
                assert!(!placing || start.addr().is_multiple_of(PAGE));
                AligningAllocator.dealloc(start, zeroed);
            }
        }
        // SAFETY: each block was allocated by `alloc` and is freed once.
        held.into_iter().for_each(|start| unsafe { AligningAllocator.dealloc(start, layout(24, 8)) });
    }
}

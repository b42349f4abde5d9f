//! Where blocks of memory begin: at whole pages, once that is asked for, so that how they are copied is no matter of chance.
//!
//! glibc copies more than eight vectors (256 bytes with AVX) backwards instead of forwards where destination and source are
//! less than 256 bytes apart modulo 4096, and in as many turns as the destination's alignment asks for
//! (`memmove-vec-unaligned-erms.S`, "4k aliasing"). Where a block lies on the heap depends on all that was asked for and
//! given back before: on the length of a file's name, and on the order in which a `HashMap` drops its keys, which is
//! another one in every process. A count of instructions shows that; time does not, so all other processes leave blocks
//! where the C library puts them.

use std::alloc::{GlobalAlloc, Layout};
use std::ops::RangeInclusive;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// What addresses are looked at modulo, in bytes.
const PAGE: usize = 4096;
/// Sizes of blocks that are placed, in bytes. No loop of the C library goes over less; what is larger it always takes from
/// the system, so that it begins at the same place of a page by itself (`DEFAULT_MMAP_THRESHOLD_MAX` in `malloc.c`).
const PLACED: RangeInclusive<usize> = 129..=1 << 25;
/// The alignment that blocks have unasked, in bytes.
const PLAIN: usize = 2 * size_of::<usize>();

static PLACING: AtomicBool = AtomicBool::new(false);

/// From now on every block that [`Memory`] gives begins at a whole page, where it is of 129 bytes to 32 MiB. This takes up to
/// a page more for each of them.
pub fn place() {
    PLACING.store(true, Ordering::Relaxed);
}

/// The C library's memory; a program's `#[global_allocator]`, for [`place`] to have an effect.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory;

/// The alignment of a block, in bytes; nothing where every block is aligned well enough.
fn alignment(layout: Layout) -> Option<usize> {
    let placed = PLACED.contains(&layout.size()) && PLACING.load(Ordering::Relaxed);
    let least = if placed { layout.align().max(PAGE) } else { layout.align() };
    (least > PLAIN || least > layout.size()).then(|| least.max(size_of::<usize>()))
}

// SAFETY: all blocks are the C library's, with the alignment asked for or a greater one, and it takes back by address alone
// what it has given, whatever function gave it; so blocks given before `place` and after it may be mixed.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(alignment) = alignment(layout) else {
            // SAFETY: the size is not zero, which the caller answers for.
            return unsafe { libc::malloc(layout.size()) }.cast();
        };
        let mut start = ptr::null_mut();
        // SAFETY: the alignment is a power of two and at least a pointer's size; `start` is ours.
        let failed = unsafe { libc::posix_memalign(&mut start, alignment, layout.size()) } != 0;
        if failed { ptr::null_mut() } else { start.cast() }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if alignment(layout).is_none() {
            // Fresh pages are zero already, and `calloc` knows them.
            // SAFETY: as for `malloc`.
            return unsafe { libc::calloc(layout.size(), 1) }.cast();
        }
        // SAFETY: the caller answers for the layout.
        let start = unsafe { self.alloc(layout) };
        if !start.is_null() {
            // SAFETY: a new block of that size.
            unsafe { start.write_bytes(0, layout.size()) };
        }
        start
    }

    unsafe fn dealloc(&self, start: *mut u8, _layout: Layout) {
        // SAFETY: the block is one of the C library's, and the caller's to give back.
        unsafe { libc::free(start.cast()) };
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller answers for the size: not zero, and no overflow with this alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if alignment(wanted).is_none() {
            // SAFETY: the block is one of the C library's, and any new one is aligned well enough.
            return unsafe { libc::realloc(start.cast(), size) }.cast();
        }
        // SAFETY: as above.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            // SAFETY: two blocks, each at least that long; the old one is the caller's to give back.
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

    /// Makes a block, writes it full, and changes its size; where it began, before and after.
    fn resized(old: Layout, size: usize) -> [usize; 2] {
        let new = layout(size, old.align());
        // SAFETY: sizes are not zero, and what is read has been written.
        unsafe {
            let first = Memory.alloc(old);
            assert!(!first.is_null());
            (0..old.size()).for_each(|at| first.add(at).write(at as u8));
            let second = Memory.realloc(first, old, size);
            assert!(!second.is_null());
            assert!((0..old.size().min(size)).all(|at| second.add(at).read() == at as u8), "{old:?} to {size}");
            let began = [first.addr(), second.addr()];
            Memory.dealloc(second, new);
            began
        }
    }

    #[test]
    fn blocks_keep_their_bytes_and_alignment_and_begin_at_pages_once_that_is_asked_for() {
        let cases = [(1, 1), (8, 16), (100, 64), (129, 1), (300, 8), (1_514, 1), (5_000, 8192), (1 << 20, 16)];
        let sizes = [1, 64, 128, 129, 257, 4_096, 70_000];
        let mut held = Vec::new();
        for placing in [false, true] {
            if placing {
                place();
            }
            for ((old, align), new) in cases.iter().flat_map(|case| sizes.map(|new| (*case, new))) {
                let began = resized(layout(old, align), new);
                for (start, size) in began.into_iter().zip([old, new]) {
                    assert!(start.is_multiple_of(align), "{size} bytes by {align} at {start:#x}");
                    assert!(!placing || size <= 128 || start.is_multiple_of(PAGE), "{size} bytes at {start:#x}");
                }
                // What lies between moves those that come after.
                // SAFETY: the size is not zero.
                held.push(unsafe { Memory.alloc(layout(24, 8)) });
            }
            // SAFETY: the size is not zero, and all of the block is read only where it was given.
            unsafe {
                let (zeroed, dirty) = (layout(2_000, 1), Memory.alloc(layout(2_000, 1)));
                dirty.write_bytes(0xa5, 2_000);
                Memory.dealloc(dirty, zeroed);
                let start = Memory.alloc_zeroed(zeroed);
                assert!((0..2_000).all(|at| start.add(at).read() == 0));
                assert!(!placing || start.addr().is_multiple_of(PAGE));
                Memory.dealloc(start, zeroed);
            }
        }
        // SAFETY: each was given by `alloc`, and is given back once.
        held.into_iter().for_each(|start| unsafe { Memory.dealloc(start, layout(24, 8)) });
    }
}

//! Memory laid out as a device driver does it. It checks every chunk that is returned.
//!
//! A chunk consists of the driver's header, the metadata in space that the driver reserves for its user, more bytes of
//! the driver, packet memory, and again bytes of the driver. The driver's bytes carry a pattern that must never change.

use std::alloc::{alloc, dealloc};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::Pool;
use crate::pool::{Backing, Chunk, Layout};

/// Length of a driver's own header before the metadata, as in DPDK.
const BEFORE: usize = 128;
/// Distance from the metadata to packet memory: the metadata's line and two lines of the driver.
const DATA: usize = 192;
const AFTER: usize = 64;

pub(crate) struct DriverMemory {
    start: NonNull<u8>,
    allocation: std::alloc::Layout,
    layout: Layout,
    chunks: usize,
    /// The free chunks, in the order in which they are handed out.
    home: Mutex<Vec<usize>>,
    wrong: AtomicUsize,
}

// SAFETY: plain memory; `home`, which is under a lock, records who owns a chunk.
unsafe impl Send for DriverMemory {}
// SAFETY: as above.
unsafe impl Sync for DriverMemory {}

impl DriverMemory {
    pub(crate) fn new(chunks: usize, headroom: usize, frame: usize) -> Arc<Self> {
        let layout = Layout { data: DATA, headroom, end: DATA + headroom + frame };
        let stride = stride(layout);
        let allocation = std::alloc::Layout::from_size_align(stride * chunks, 64).expect("a small size");
        // SAFETY: the size is not zero: a chunk is never empty, and tests ask for at least one.
        let start = NonNull::new(unsafe { alloc(allocation) }).expect("memory for a test");
        for at in 0..allocation.size() {
            // SAFETY: inside the allocation, which no other code knows yet.
            unsafe { start.add(at).write(pattern(at)) };
        }
        Arc::new(Self {
            start,
            allocation,
            layout,
            chunks,
            home: Mutex::new((0..chunks).collect()),
            wrong: AtomicUsize::new(0),
        })
    }

    /// Creates a pool over this memory.
    pub(crate) fn pool(self: &Arc<Self>) -> Pool {
        Pool::foreign(Box::new(Driver(Arc::clone(self))), self.chunks).expect("a layout that packets fit")
    }

    /// Returns how many returned chunks were invalid: not of this memory, already free, or with changed driver's bytes.
    pub(crate) fn wrong(&self) -> usize {
        self.wrong.load(Ordering::SeqCst)
    }

    /// Returns the number of free chunks.
    pub(crate) fn home(&self) -> usize {
        self.home.lock().expect("no thread panics while holding the lock").len()
    }

    fn metadata(&self, index: usize) -> NonNull<u8> {
        assert!(index < self.chunks);
        // SAFETY: inside the allocation, by the assertion.
        unsafe { self.start.add(index * stride(self.layout) + BEFORE) }
    }

    fn index(&self, chunk: Chunk) -> Option<usize> {
        (0..self.chunks).find(|&index| self.metadata(index) == chunk.address())
    }

    fn untouched(&self, index: usize) -> bool {
        let start = index * stride(self.layout);
        let packet = BEFORE + self.layout.end;
        let ours =
            [start..start + BEFORE, start + BEFORE + 64..start + BEFORE + DATA, start + packet..start + packet + AFTER];
        ours.into_iter().all(|range| {
            // SAFETY: inside the allocation and initialised; there is no mutable reference to the driver's bytes.
            let bytes = unsafe { slice::from_raw_parts(self.start.add(range.start).as_ptr(), range.len()) };
            bytes.iter().zip(range).all(|(&byte, at)| byte == pattern(at))
        })
    }
}

impl Drop for DriverMemory {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with exactly this layout.
        unsafe { dealloc(self.start.as_ptr(), self.allocation) }
    }
}

struct Driver(Arc<DriverMemory>);

// SAFETY: chunks are disjoint, 64-byte aligned (allocation and stride are), initialised, live as long as the driver
// holds its memory, and absent from `home` exactly while handed out.
unsafe impl Backing for Driver {
    fn layout(&self) -> Layout {
        self.0.layout
    }

    fn take(&self, chunks: &mut [Chunk]) -> usize {
        let mut home = self.0.home.lock().expect("no thread panics while holding the lock");
        let remaining = home.len().saturating_sub(chunks.len());
        let taken = home.drain(remaining..);
        let n = taken.len();
        for (slot, index) in chunks.iter_mut().zip(taken) {
            *slot = Chunk::new(self.0.metadata(index));
        }
        n
    }

    fn give(&self, chunks: &[Chunk]) {
        let mut home = self.0.home.lock().expect("no thread panics while holding the lock");
        for &chunk in chunks {
            match self.0.index(chunk) {
                Some(index) if !home.contains(&index) && self.0.untouched(index) => home.push(index),
                _ => _ = self.0.wrong.fetch_add(1, Ordering::SeqCst),
            }
        }
    }
}

fn stride(layout: Layout) -> usize {
    (BEFORE + layout.end + AFTER).next_multiple_of(64)
}

/// Returns the driver's byte at `at` bytes from the start of its memory.
fn pattern(at: usize) -> u8 {
    (at % 251) as u8 | 0x80
}

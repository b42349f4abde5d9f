//! A memory laid out as a device driver does it, that watches what is done to it.
//!
//! A chunk is a driver's header, then the metadata in the room the driver leaves for its user, then more of the
//! driver's, then packet memory, then the driver's again. The driver's bytes carry a pattern that must never change.

use std::alloc::{alloc, dealloc};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::Pool;
use crate::pool::{Backing, Chunk, Layout};

/// A driver's own header before the metadata, as long as DPDK's.
const BEFORE: usize = 128;
/// From the metadata to packet memory: the metadata's line and two of the driver's.
const DATA: usize = 192;
const AFTER: usize = 64;

pub(crate) struct DriverMemory {
    start: NonNull<u8>,
    allocation: std::alloc::Layout,
    layout: Layout,
    chunks: usize,
    /// Which chunks are here, and in which order to hand them out.
    home: Mutex<Vec<usize>>,
    wrong: AtomicUsize,
}

// SAFETY: plain memory; who owns a chunk is governed by `home`, which is under a lock.
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
            // SAFETY: inside the allocation, which nobody else knows yet.
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

    /// A pool over this memory.
    pub(crate) fn pool(self: &Arc<Self>) -> Pool {
        Pool::foreign(Box::new(Driver(Arc::clone(self))), self.chunks).expect("a layout that packets fit")
    }

    /// How often a chunk came back that is not of this memory, was here already, or had the driver's bytes changed.
    pub(crate) fn wrong(&self) -> usize {
        self.wrong.load(Ordering::SeqCst)
    }

    /// How many chunks are here.
    pub(crate) fn home(&self) -> usize {
        self.home.lock().expect("nobody panics with the lock").len()
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
            // SAFETY: inside the allocation and initialised; nobody has a mutable reference to the driver's bytes.
            let bytes = unsafe { slice::from_raw_parts(self.start.add(range.start).as_ptr(), range.len()) };
            bytes.iter().zip(range).all(|(&byte, at)| byte == pattern(at))
        })
    }
}

impl Drop for DriverMemory {
    fn drop(&mut self) {
        // SAFETY: exactly what was allocated.
        unsafe { dealloc(self.start.as_ptr(), self.allocation) }
    }
}

struct Driver(Arc<DriverMemory>);

// SAFETY: chunks are disjoint, 64-byte aligned (allocation and stride are), initialised, live as long as the driver
// holds its memory, and out of `home` exactly while handed out.
unsafe impl Backing for Driver {
    fn layout(&self) -> Layout {
        self.0.layout
    }

    fn take(&self, chunks: &mut [Chunk]) -> usize {
        let mut home = self.0.home.lock().expect("nobody panics with the lock");
        let left = home.len().saturating_sub(chunks.len());
        let taken = home.drain(left..);
        let n = taken.len();
        for (slot, index) in chunks.iter_mut().zip(taken) {
            *slot = Chunk::new(self.0.metadata(index));
        }
        n
    }

    fn give(&self, chunks: &[Chunk]) {
        let mut home = self.0.home.lock().expect("nobody panics with the lock");
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

/// What the driver wrote at `at` bytes from the start of its memory.
fn pattern(at: usize) -> u8 {
    (at % 251) as u8 | 0x80
}

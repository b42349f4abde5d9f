//! The rings that a socket and the kernel share. One side (the producer) writes entries, the other (the consumer) reads
//! them. Each side has an index that only grows.
//!
//! The kernel implements its side of each ring (`net/xdp/xsk_queue.h`). The producer writes entries, then publishes its
//! index by a store with release ordering. The consumer reads that index with acquire ordering, reads the entries, then
//! publishes its own index by a store with release ordering. The producer reads the consumer's index with acquire
//! ordering before it overwrites those entries. Indices have 32 bits, wrap around, and count modulo the number of
//! entries, a power of two. The code does not depend on which side is the kernel, so tests implement both sides on
//! plain memory.

#![expect(unsafe_code, reason = "the kernel writes the memory too: it can be reached by pointers only")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The type of a ring's entry. Any bytes must be a valid entry.
///
/// # Safety
/// The type consists of integers without padding.
pub unsafe trait Entry: Copy + Send + 'static {}

// SAFETY: it is an integer.
unsafe impl Entry for u64 {}

/// The position of a frame in the memory: an entry of the rings RX and TX (`struct xdp_desc`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Descriptor {
    /// The address of the frame in the umem, in the encoding of [`Umem`](super::umem::Umem).
    pub address: u64,
    /// The length of the frame, in bytes.
    pub len: u32,
    /// Options of the kernel. This program uses none: 0.
    pub options: u32,
}

// SAFETY: it consists of integers, 16 bytes altogether.
unsafe impl Entry for Descriptor {}

const _: () = assert!(size_of::<Descriptor>() == size_of::<libc::xdp_desc>());

/// The memory of a ring. It must exist as long as a side of the ring exists.
///
/// # Safety
/// The parts must be inside memory that lives as long as the value does, aligned, and accessed only by the two sides of
/// the ring. `entries` must point to `count` initialised entries, and `count` must be a power of two.
pub unsafe trait RingMemory: Send + Sync + 'static {
    /// Returns the addresses of the parts.
    fn parts(&self) -> Parts;
}

/// The addresses of a ring's parts.
#[derive(Clone, Copy)]
pub struct Parts {
    /// The producer's index.
    pub produced: NonNull<AtomicU32>,
    /// The consumer's index.
    pub consumed: NonNull<AtomicU32>,
    /// Flags from the kernel: [`libc::XDP_RING_NEED_WAKEUP`].
    pub flags: NonNull<AtomicU32>,
    /// The first entry.
    pub entries: NonNull<u8>,
    /// The number of entries.
    pub count: u32,
}

/// The fields that both sides of a ring have.
struct Side<T> {
    /// The first entry.
    entries: NonNull<T>,
    /// The number of entries minus 1.
    mask: u32,
    /// The producer's index.
    produced: NonNull<AtomicU32>,
    /// The consumer's index.
    consumed: NonNull<AtomicU32>,
    /// Flags from the kernel.
    flags: NonNull<AtomicU32>,
    /// The owner of the memory. The memory exists as long as one side of the ring has this value.
    _memory: Arc<dyn RingMemory>,
}

// SAFETY: a side has one owner. The two sides share the memory by the protocol of the indices, from any thread.
unsafe impl<T: Entry> Send for Side<T> {}
// SAFETY: through a shared reference only the indices are read, which are atomic.
unsafe impl<T: Entry> Sync for Side<T> {}

impl<T: Entry> Side<T> {
    fn new(memory: Arc<dyn RingMemory>) -> Self {
        let Parts { produced, consumed, flags, entries, count } = memory.parts();
        assert!(count.is_power_of_two(), "a ring of {count} entries");
        Self { entries: entries.cast(), mask: count - 1, produced, consumed, flags, _memory: memory }
    }

    #[inline]
    fn count(&self) -> u32 {
        self.mask + 1
    }

    #[inline]
    fn produced(&self) -> &AtomicU32 {
        // SAFETY: this is an aligned word that lives as long as the ring's memory, and only atomic operations access
        // it.
        unsafe { self.produced.as_ref() }
    }

    #[inline]
    fn consumed(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumed.as_ref() }
    }

    #[inline]
    fn needs_wakeup(&self) -> bool {
        // SAFETY: as above.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Returns the address of the entry with this position. Positions count modulo the number of entries.
    #[inline]
    fn entry(&self, position: u32) -> NonNull<T> {
        // SAFETY: the mask keeps the pointer inside the entries.
        unsafe { self.entries.add((position & self.mask) as usize) }
    }
}

/// The producing side. In FILL and TX it is this process.
pub struct Producer<T> {
    side: Side<T>,
    /// The number of entries that were ever written, modulo 2³². [`publish`](Self::publish) copies this number to the
    /// producer's index, and the consumer can read entries up to that index.
    written: u32,
    /// The consumer's index at the last reading.
    consumed: u32,
}

impl<T: Entry> Producer<T> {
    /// Creates the producing side of a ring, continuing at its indices.
    ///
    /// # Safety
    /// The ring must have no other producer. Its entries must be of type `T`. Its consumer must follow the protocol of
    /// the indices: it reads published entries only.
    pub unsafe fn new(memory: Arc<dyn RingMemory>) -> Self {
        let side = Side::new(memory);
        let (written, consumed) = (side.produced().load(Ordering::Relaxed), side.consumed().load(Ordering::Acquire));
        Self { side, written, consumed }
    }

    /// Returns the number of entries that can be written, at most `wanted`.
    #[inline]
    pub fn room(&mut self, wanted: u32) -> u32 {
        let free = |consumed: u32| self.side.count() - self.written.wrapping_sub(consumed);
        if free(self.consumed) < wanted {
            self.consumed = self.side.consumed().load(Ordering::Acquire);
        }
        free(self.consumed).min(wanted)
    }

    /// Writes an entry. Returns `false` and does nothing if there is no room. The consumer sees the entry after the
    /// next [`publish`](Self::publish).
    #[inline]
    pub fn write(&mut self, entry: T) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        // SAFETY: the entry does not belong to the consumer. It is less than the ring's length past the consumer's
        // index (acquire), and not published yet.
        unsafe { self.side.entry(self.written).write(entry) }
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Publishes the written entries.
    #[inline]
    pub fn publish(&self) {
        self.side.produced().store(self.written, Ordering::Release);
    }

    /// Returns the number of published entries that the consumer has not released yet.
    #[inline]
    pub fn waiting(&self) -> u32 {
        self.side.produced().load(Ordering::Relaxed).wrapping_sub(self.side.consumed().load(Ordering::Acquire))
    }

    /// Returns true if the kernel reads new entries only after it is woken.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.side.needs_wakeup()
    }
}

/// The consuming side. In RX and COMPLETION it is this process.
pub struct Consumer<T> {
    side: Side<T>,
    /// The producer's index at the last read.
    produced: u32,
    /// The number of entries that were ever read, modulo 2³². [`release`](Self::release) copies this number to the
    /// consumer's index, and the producer can reuse entries up to that index.
    read: u32,
}

impl<T: Entry> Consumer<T> {
    /// Creates the consuming side of a ring, continuing at its indices.
    ///
    /// # Safety
    /// The ring must have no other consumer. Its entries must be of type `T`. Its producer must follow the protocol of
    /// the indices: it writes released entries only.
    pub unsafe fn new(memory: Arc<dyn RingMemory>) -> Self {
        let side = Side::new(memory);
        let (produced, read) = (side.produced().load(Ordering::Acquire), side.consumed().load(Ordering::Relaxed));
        Self { side, produced, read }
    }

    /// Returns the number of entries that can be read, at most `wanted`.
    #[inline]
    pub fn available(&mut self, wanted: u32) -> u32 {
        if self.produced.wrapping_sub(self.read) < wanted {
            self.produced = self.side.produced().load(Ordering::Acquire);
        }
        self.produced.wrapping_sub(self.read).min(wanted)
    }

    /// Reads the next entry, if there is one. The producer can reuse it after the next [`release`](Self::release).
    #[inline]
    pub fn read(&mut self) -> Option<T> {
        if self.available(1) == 0 {
            return None;
        }
        // SAFETY: the entry belongs to this side. The producer has published it (acquire), and it is not released yet.
        let entry = unsafe { self.side.entry(self.read).read() };
        self.read = self.read.wrapping_add(1);
        Some(entry)
    }

    /// Releases all entries that were read.
    #[inline]
    pub fn release(&self) {
        self.side.consumed().store(self.read, Ordering::Release);
    }

    /// Returns the number of published entries that were not read.
    #[inline]
    pub fn waiting(&self) -> u32 {
        self.side.produced().load(Ordering::Relaxed).wrapping_sub(self.read)
    }
}

#[cfg(test)]
mod tests;

//! The rings that a socket and the kernel share: one side gives, the other takes, by two indices that only grow.
//!
//! The kernel has its side of each (`net/xdp/xsk_queue.h`): the giver writes entries, then publishes its index by a store
//! with release; the taker reads that index with acquire, reads the entries, then publishes its own index by a store with
//! release, which the giver reads with acquire before it writes those entries anew. Indices are 32 bits, wrap round, and
//! count modulo the number of entries, a power of two. Nothing here depends on which side the kernel is, so that tests put
//! both on plain memory.

#![expect(unsafe_code, reason = "the kernel writes the memory too: it can be reached by pointers only")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What a ring's entry can be: any bytes are one.
///
/// # Safety
/// Plain integers without padding.
pub unsafe trait Entry: Copy + Send + 'static {}

// SAFETY: an integer.
unsafe impl Entry for u64 {}

/// An entry of the rings RX and TX (`struct xdp_desc`): a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Descriptor {
    /// Where it is in the umem.
    pub address: u64,
    /// Its length in bytes.
    pub len: u32,
    /// None are used here: 0.
    pub options: u32,
}

// SAFETY: integers, 16 bytes altogether.
unsafe impl Entry for Descriptor {}

const _: () = assert!(size_of::<Descriptor>() == size_of::<libc::xdp_desc>());

/// The memory that a ring is in, which must stay as long as a side of it is there.
///
/// # Safety
/// The parts are inside memory that lives as long as the value does, aligned, and reached by nobody but the two sides of the
/// ring: `entries` points at `count` entries, a power of two, which are initialised.
pub unsafe trait Place: Send + Sync + 'static {
    /// Where the parts are.
    fn parts(&self) -> Parts;
}

/// Where a ring's parts are.
#[derive(Clone, Copy)]
pub struct Parts {
    /// The giver's index.
    pub given: NonNull<AtomicU32>,
    /// The taker's index.
    pub taken: NonNull<AtomicU32>,
    /// What the kernel says: [`libc::XDP_RING_NEED_WAKEUP`].
    pub flags: NonNull<AtomicU32>,
    /// The first entry.
    pub entries: NonNull<u8>,
    /// How many there are.
    pub count: u32,
}

/// What both sides have.
struct Side<T> {
    entries: NonNull<T>,
    mask: u32,
    given: NonNull<AtomicU32>,
    taken: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    _place: Arc<dyn Place>,
}

// SAFETY: a side is one owner's; the memory is shared with the other side by the indices' protocol, from whatever thread.
unsafe impl<T: Entry> Send for Side<T> {}
// SAFETY: through a shared reference only the indices are read, which are atomic.
unsafe impl<T: Entry> Sync for Side<T> {}

impl<T: Entry> Side<T> {
    fn new(place: Arc<dyn Place>) -> Self {
        let Parts { given, taken, flags, entries, count } = place.parts();
        assert!(count.is_power_of_two(), "a ring of {count} entries");
        Self { entries: entries.cast(), mask: count - 1, given, taken, flags, _place: place }
    }

    #[inline]
    fn count(&self) -> u32 {
        self.mask + 1
    }

    #[inline]
    fn given(&self) -> &AtomicU32 {
        // SAFETY: an aligned word that lives as long as the place, which only atomic accesses reach.
        unsafe { self.given.as_ref() }
    }

    #[inline]
    fn taken(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.taken.as_ref() }
    }

    #[inline]
    fn needs_wakeup(&self) -> bool {
        // SAFETY: as above.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    #[inline]
    fn entry(&self, position: u32) -> NonNull<T> {
        // SAFETY: the mask keeps it inside the entries.
        unsafe { self.entries.add((position & self.mask) as usize) }
    }
}

/// The side that gives entries: of FILL and TX it is ours.
pub struct Giving<T> {
    side: Side<T>,
    /// Entries ever written; those up to what is published are the taker's.
    written: u32,
    /// As last looked at.
    taken: u32,
}

impl<T: Entry> Giving<T> {
    /// The giving side of the ring there, of which there is no other; whose indices are where they were left.
    pub fn new(place: Arc<dyn Place>) -> Self {
        let side = Side::new(place);
        let (written, taken) = (side.given().load(Ordering::Relaxed), side.taken().load(Ordering::Acquire));
        Self { side, written, taken }
    }

    /// For how many entries there is room, of `wanted`.
    #[inline]
    pub fn room(&mut self, wanted: u32) -> u32 {
        let free = |taken: u32| self.side.count() - self.written.wrapping_sub(taken);
        if free(self.taken) < wanted {
            self.taken = self.side.taken().load(Ordering::Acquire);
        }
        free(self.taken).min(wanted)
    }

    /// Writes an entry, if there is room. The other side sees it when it is [published](Self::publish).
    #[inline]
    pub fn write(&mut self, entry: T) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        // SAFETY: the entry is not the taker's: it is less than the ring's length past what it has taken (acquire), and not
        // published yet.
        unsafe { self.side.entry(self.written).write(entry) }
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Gives the other side what was written.
    #[inline]
    pub fn publish(&self) {
        self.side.given().store(self.written, Ordering::Release);
    }

    /// How many published entries the other side has not taken yet.
    #[inline]
    pub fn waiting(&self) -> u32 {
        self.side.given().load(Ordering::Relaxed).wrapping_sub(self.side.taken().load(Ordering::Acquire))
    }

    /// Whether the kernel asks to be woken when there are entries.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.side.needs_wakeup()
    }
}

/// The side that takes entries: of RX and COMPLETION it is ours.
pub struct Taking<T> {
    side: Side<T>,
    /// As last looked at.
    given: u32,
    /// Entries ever read; those up to what is released are the giver's again.
    read: u32,
}

impl<T: Entry> Taking<T> {
    /// The taking side of the ring there, of which there is no other; whose indices are where they were left.
    pub fn new(place: Arc<dyn Place>) -> Self {
        let side = Side::new(place);
        let (given, read) = (side.given().load(Ordering::Acquire), side.taken().load(Ordering::Relaxed));
        Self { side, given, read }
    }

    /// How many entries are there to be read, of `wanted`.
    #[inline]
    pub fn available(&mut self, wanted: u32) -> u32 {
        if self.given.wrapping_sub(self.read) < wanted {
            self.given = self.side.given().load(Ordering::Acquire);
        }
        self.given.wrapping_sub(self.read).min(wanted)
    }

    /// Reads the next entry, if there is one. The other side can use its place once it is [released](Self::release).
    #[inline]
    pub fn read(&mut self) -> Option<T> {
        if self.available(1) == 0 {
            return None;
        }
        // SAFETY: the entry is ours: the giver has published it (acquire), and we have not released it.
        let entry = unsafe { self.side.entry(self.read).read() };
        self.read = self.read.wrapping_add(1);
        Some(entry)
    }

    /// Gives the other side the places of all that was read.
    #[inline]
    pub fn release(&self) {
        self.side.taken().store(self.read, Ordering::Release);
    }

    /// How many entries there are that were not read.
    #[inline]
    pub fn waiting(&self) -> u32 {
        self.side.given().load(Ordering::Relaxed).wrapping_sub(self.read)
    }
}

#[cfg(test)]
mod tests;

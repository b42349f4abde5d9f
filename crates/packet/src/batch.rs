//! A bounded array of packets. Ports, modules and functions work on packets in batches.

use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr;

use crate::pool::{Chunk, cache};
use crate::{MAX_BATCH, Packet};

/// To move at most this number of packets, a batch copies exactly this number of slots, also slots without packets: a
/// copy of fixed length is fast.
const FEW: usize = 8;

/// Holds up to [`capacity`](Self::capacity) packets, in order. Dereferences to a slice of packets.
pub struct Batch {
    /// The number of packets. Only the first `len` slots are initialised.
    len: usize,
    slots: Box<[MaybeUninit<Packet>]>,
}

impl Batch {
    /// Creates an empty batch for up to `capacity` packets (at least 1, at most [`MAX_BATCH`]).
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { len: 0, slots: Box::new_uninit_slice(capacity.clamp(1, MAX_BATCH)) }
    }

    /// Creates a batch that has no room and uses no memory. It replaces a batch that was moved out of a field.
    #[must_use]
    pub fn none() -> Self {
        Self { len: 0, slots: Box::default() }
    }

    /// Returns the number of packets that fit.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of packets that can still be added.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.slots.len() - self.len
    }

    /// Adds a packet at the end. Returns the packet as an error if the batch is full.
    #[inline]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        match self.slots.get_mut(self.len) {
            Some(slot) => {
                slot.write(packet);
                self.len += 1;
                Ok(())
            }
            None => Err(packet),
        }
    }

    /// Lets `fill` write packets into the next `n` free slots, or into all free slots if there are fewer. Returns the
    /// number of packets that `fill` wrote.
    ///
    /// # Safety
    /// `fill` initialises the number of slots that it returns, from the front.
    #[inline]
    pub(crate) unsafe fn extend(&mut self, n: usize, fill: impl FnOnce(&mut [MaybeUninit<Packet>]) -> usize) -> usize {
        let free = self.slots.get_mut(self.len..).unwrap_or_default();
        let n = n.min(free.len());
        let filled = fill(&mut free[..n]).min(n);
        self.len += filled;
        filled
    }

    /// Prefetches the bytes that a function reads first: each packet's metadata, and the line `offset` bytes after the
    /// start of its chunk. `offset` is that of the first byte of a fresh frame.
    #[inline]
    pub fn prefetch(&self, offset: usize) {
        for packet in self.iter() {
            packet.prefetch(offset);
        }
    }

    /// Removes the last packet and returns it.
    #[inline]
    pub fn pop(&mut self) -> Option<Packet> {
        let last = self.len.checked_sub(1)?;
        self.len = last;
        // SAFETY: slots below the old length are initialised. With the new length, the batch no longer owns this slot.
        Some(unsafe { self.slots[last].assume_init_read() })
    }

    /// Moves all packets, in order, to `to`, which must be empty. Up to [`FEW`] packets are copied. For more packets,
    /// or if `to` has too little room, the two batches swap their slots, and with these their capacities. This batch is
    /// empty afterwards.
    #[inline]
    pub fn hand_over(&mut self, to: &mut Batch) {
        if self.len <= FEW && to.room() >= self.len {
            to.append(self);
        } else {
            std::mem::swap(self, to);
        }
    }

    /// Moves packets from the front of `from` to the end of this batch, in order, until this batch is full. The packets
    /// that remain in `from` keep their order. Returns the number of packets moved.
    #[inline]
    pub fn append(&mut self, from: &mut Batch) -> usize {
        if from.len <= FEW && from.slots.len() >= FEW && self.room() >= FEW {
            // SAFETY: `FEW` slots exist at the front of `from`, and `FEW` slots after `len` are free here; two batches
            // never share slots. Only the slots below `from.len` are initialised, and their ownership moves with the
            // lengths.
            unsafe { ptr::copy_nonoverlapping(from.slots.as_ptr(), self.slots.as_mut_ptr().add(self.len), FEW) }
            let moved = std::mem::take(&mut from.len);
            self.len += moved;
            return moved;
        }
        let moved = self.room().min(from.len);
        // SAFETY: `moved` slots are free after `len` here and initialised at the front of `from`; two batches never
        // share slots. Ownership moves with the lengths set below, before anything can panic.
        unsafe {
            ptr::copy_nonoverlapping(from.slots.as_ptr(), self.slots.as_mut_ptr().add(self.len), moved);
            self.len += moved;
            from.len -= moved;
            // Both addresses come from one pointer: a second borrow of the slots would invalidate the first pointer.
            let slots = from.slots.as_mut_ptr();
            ptr::copy(slots.add(moved), slots, from.len);
        }
        moved
    }

    /// Removes every packet, first to last. Packets that the caller does not take from the iterator go back to their
    /// pool.
    #[inline]
    pub fn drain(&mut self) -> Drain<'_> {
        let len = std::mem::take(&mut self.len);
        Drain { slots: &self.slots[..len], next: 0 }
    }

    /// Removes every packet, first to last, and passes each with its index to `each`. If `each` panics, the packets not
    /// yet passed go back to their pool.
    #[inline]
    pub fn drain_each(&mut self, mut each: impl FnMut(usize, Packet)) {
        let mut drain = self.drain();
        while let Some(packet) = drain.next() {
            each(drain.next - 1, packet);
        }
    }

    /// Returns every packet's chunk to its pool, in bulk.
    #[inline]
    pub fn clear(&mut self) {
        let len = std::mem::take(&mut self.len);
        // SAFETY: slots below the old length are initialised packets. A packet and a chunk have the same representation
        // (one pointer to metadata). With the length 0, the batch no longer owns any of them.
        unsafe { cache::put(&*(ptr::from_ref(&self.slots[..len]) as *const [Chunk])) }
    }
}

/// An iterator that removes the packets of a batch.
pub struct Drain<'a> {
    /// The packets, which the batch no longer owns.
    slots: &'a [MaybeUninit<Packet>],
    /// The index of the next packet. Slots below it have been read, and are no longer used.
    next: usize,
}

impl Iterator for Drain<'_> {
    type Item = Packet;

    #[inline]
    fn next(&mut self) -> Option<Packet> {
        let slot = self.slots.get(self.next)?;
        self.next += 1;
        // SAFETY: all of `slots` were initialised, the batch no longer owns them, and each is read once.
        Some(unsafe { slot.assume_init_read() })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let remaining = self.slots.len() - self.next;
        (remaining, Some(remaining))
    }
}

impl ExactSizeIterator for Drain<'_> {}

impl Drop for Drain<'_> {
    fn drop(&mut self) {
        while self.next().is_some() {}
    }
}

impl Deref for Batch {
    type Target = [Packet];
    #[inline]
    fn deref(&self) -> &[Packet] {
        // SAFETY: slots below `len` are initialised, and `len` never exceeds the number of slots.
        unsafe { self.slots.get_unchecked(..self.len).assume_init_ref() }
    }
}

impl DerefMut for Batch {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Packet] {
        // SAFETY: as for `deref`.
        unsafe { self.slots.get_unchecked_mut(..self.len).assume_init_mut() }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.clear();
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch({}/{})", self.len, self.capacity())
    }
}

#[cfg(test)]
mod tests;

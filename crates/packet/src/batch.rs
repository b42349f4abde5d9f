//! A bounded array of packets: the unit in which ports, modules and functions work.

use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr;

use crate::pool::{Chunk, cache};
use crate::{MAX_BATCH, Packet};

/// So many packets are moved by a copy of fixed length, whether or not there are as many.
const FEW: usize = 8;

/// Up to [`capacity`](Self::capacity) packets, in order. Dereferences to a slice of packets.
pub struct Batch {
    len: usize,
    slots: Box<[MaybeUninit<Packet>]>,
}

impl Batch {
    /// An empty batch for up to `capacity` packets (at least 1, at most [`MAX_BATCH`]).
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { len: 0, slots: Box::new_uninit_slice(capacity.clamp(1, MAX_BATCH)) }
    }

    /// A batch that has no room at all and costs no memory: what is left in a place whose batch was taken out.
    #[must_use]
    pub fn none() -> Self {
        Self { len: 0, slots: Box::default() }
    }

    /// How many packets fit.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// How many more packets fit.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.slots.len() - self.len
    }

    /// Adds a packet at the end; gives it back where the batch is full.
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

    /// Lets `fill` write packets into the next `n` free slots (fewer where there are fewer); how many it wrote.
    ///
    /// # Safety
    /// `fill` initialises as many slots from the front as it returns.
    #[inline]
    pub(crate) unsafe fn extend(&mut self, n: usize, fill: impl FnOnce(&mut [MaybeUninit<Packet>]) -> usize) -> usize {
        let free = self.slots.get_mut(self.len..).unwrap_or_default();
        let n = n.min(free.len());
        let filled = fill(&mut free[..n]).min(n);
        self.len += filled;
        filled
    }

    /// Asks the processor for what a function first reads of the packets: each one's metadata, and `offset` bytes after
    /// its start, where a fresh frame's first bytes are.
    #[inline]
    pub fn prefetch(&self, offset: usize) {
        for packet in self.iter() {
            packet.prefetch(offset);
        }
    }

    /// Takes the last packet.
    #[inline]
    pub fn pop(&mut self) -> Option<Packet> {
        let last = self.len.checked_sub(1)?;
        self.len = last;
        // SAFETY: slots below the old length are initialised, and the new length disowns this one.
        Some(unsafe { self.slots[last].assume_init_read() })
    }

    /// Gives all packets to `to`, which is empty, in order. A few are copied; many stay where they are, and the two
    /// batches change places.
    #[inline]
    pub fn hand_over(&mut self, to: &mut Batch) {
        if self.len <= FEW && to.room() >= self.len {
            to.append(self);
        } else {
            std::mem::swap(self, to);
        }
    }

    /// Moves packets from the front of `from` to the end of this batch, in order, as many as there is room for;
    /// what is left in `from` keeps its order. Returns how many moved.
    #[inline]
    pub fn append(&mut self, from: &mut Batch) -> usize {
        if from.len <= FEW && from.slots.len() >= FEW && self.room() >= FEW {
            // SAFETY: `FEW` slots are there at the front of `from` and free after `len` here; two batches never share
            // slots. Only those below `from.len` are initialised, and their ownership moves with the lengths.
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
            // Both places from one pointer: borrowing the slots a second time would end the first borrow's right.
            let slots = from.slots.as_mut_ptr();
            ptr::copy(slots.add(moved), slots, from.len);
        }
        moved
    }

    /// Takes every packet out, first to last. Those that are not taken go back to their pool.
    #[inline]
    pub fn drain(&mut self) -> Drain<'_> {
        let len = std::mem::take(&mut self.len);
        Drain { slots: &self.slots[..len], next: 0 }
    }

    /// Takes every packet out, first to last, and hands each with its index to `each`. Should `each` panic, the
    /// packets not yet handed over go back to their pool.
    #[inline]
    pub fn drain_each(&mut self, mut each: impl FnMut(usize, Packet)) {
        let mut drain = self.drain();
        while let Some(packet) = drain.next() {
            each(drain.next - 1, packet);
        }
    }

    /// Gives every packet's chunk back to its pool, in bulk.
    #[inline]
    pub fn clear(&mut self) {
        let len = std::mem::take(&mut self.len);
        // SAFETY: slots below the old length are initialised packets, which are what a chunk is (both are one pointer
        // to metadata), and the length of 0 disowns all of them.
        unsafe { cache::put(&*(ptr::from_ref(&self.slots[..len]) as *const [Chunk])) }
    }
}

/// The packets of a batch on their way out of it.
pub struct Drain<'a> {
    slots: &'a [MaybeUninit<Packet>],
    next: usize,
}

impl Iterator for Drain<'_> {
    type Item = Packet;

    #[inline]
    fn next(&mut self) -> Option<Packet> {
        let slot = self.slots.get(self.next)?;
        self.next += 1;
        // SAFETY: all of `slots` were initialised, the batch has disowned them, and each is read once.
        Some(unsafe { slot.assume_init_read() })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.slots.len() - self.next;
        (left, Some(left))
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

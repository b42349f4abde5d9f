//! The number of bytes of a packet that a capture cut off. The packet's original length is longer by this number.
//!
//! Few packets have such a number, so the metadata only has bits for its location. The number is in the last four bytes
//! of packet memory or, if the frame reaches to the end, in the line before the headroom. That memory no longer belongs
//! to the frame, so moving the frame does not change it.

use super::Packet;
use crate::metadata::{CLOCK, LINE};

/// The number lies after packet memory.
const BEHIND: u8 = 1 << 2;
/// The number lies before packet memory.
const BEFORE: u8 = 1 << 3;

/// Size of the number in bytes.
const SLOT: usize = size_of::<u32>();

impl Packet {
    /// Returns the number of bytes that a capture cut off the frame's end. The frame was longer by this number on the
    /// wire. The number does not change when the frame grows or shrinks.
    #[inline]
    #[must_use]
    pub fn missing(&self) -> u32 {
        if self.meta().clock <= CLOCK { 0 } else { self.stored_missing() }
    }

    /// Returns the frame's length on the wire in bytes, including bytes that a capture cut off.
    #[inline]
    #[must_use]
    pub fn original_len(&self) -> usize {
        self.len() + self.missing() as usize
    }

    /// Sets the number of bytes that a capture cut off the frame's end. Returns `false`, and sets the number to 0, if
    /// fewer than four bytes after the frame and fewer than 64 bytes before it are free.
    #[inline]
    pub fn set_missing(&mut self, bytes: u32) -> bool {
        if bytes == 0 {
            self.make_whole();
            return true;
        }
        self.store_missing(bytes)
    }

    /// Sets the number of missing bytes to 0. The memory of the number stays reserved: few packets have one, and
    /// releasing it would cost a branch for every packet.
    #[inline]
    pub(super) fn make_whole(&mut self) {
        self.meta_mut().clock &= CLOCK;
    }

    /// Reserves memory for the number outside packet memory, and stores it there. Returns `false` if there is no room.
    #[cold]
    fn store_missing(&mut self, bytes: u32) -> bool {
        if self.meta().clock > CLOCK {
            self.release();
        }
        let (tailroom, headroom) = (self.tailroom(), self.headroom());
        let meta = self.meta_mut();
        if tailroom >= SLOT {
            meta.end -= SLOT as u16;
            meta.clock |= BEHIND;
        } else if headroom >= LINE && meta.start < u8::MAX {
            meta.start += 1;
            meta.clock |= BEFORE;
        } else {
            return false;
        }
        let slot = self.slot();
        // SAFETY: these four bytes of the chunk are outside `start..end` from now on, so no other code accesses them.
        unsafe { self.0.as_ptr().cast::<u8>().add(slot).cast::<u32>().write_unaligned(bytes) };
        true
    }

    /// Returns the stored number. The clock byte must give its location.
    #[cold]
    fn stored_missing(&self) -> u32 {
        // SAFETY: these are four bytes of the chunk, which `store_missing` has written.
        unsafe { self.0.as_ptr().cast::<u8>().add(self.slot()).cast::<u32>().read_unaligned() }
    }

    /// Gives the memory of the number back to packet memory.
    fn release(&mut self) {
        let meta = self.meta_mut();
        if meta.clock & BEHIND != 0 {
            meta.end += SLOT as u16;
        } else {
            meta.start -= 1;
        }
        meta.clock &= CLOCK;
    }

    /// Returns the offset of the number from the chunk's start.
    fn slot(&self) -> usize {
        let meta = self.meta();
        if meta.clock & BEHIND != 0 { meta.end.into() } else { (usize::from(meta.start) - 1) * LINE }
    }
}

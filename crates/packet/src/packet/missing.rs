//! How many bytes of a packet a capture cut off: its original length is that much longer.
//!
//! Few packets have such a number, so the metadata has only bits that say where it is: in the last four bytes of packet
//! memory, or in the line before the headroom where the frame reaches to the end. That memory is the frame's no longer,
//! and every move of the frame leaves it as it is.

use super::Packet;
use crate::metadata::{CLOCK, LINE};

/// The number is behind packet memory.
const BEHIND: u8 = 1 << 2;
/// The number is before packet memory.
const BEFORE: u8 = 1 << 3;

/// The bytes of a number.
const SLOT: usize = size_of::<u32>();

impl Packet {
    /// How many bytes a capture cut off the frame's end: it was as many bytes longer on the wire. The number stays as
    /// it is where the frame grows or shrinks.
    #[inline]
    #[must_use]
    pub fn missing(&self) -> u32 {
        if self.meta().clock <= CLOCK { 0 } else { self.noted() }
    }

    /// The frame's length on the wire, in bytes: with those that a capture cut off.
    #[inline]
    #[must_use]
    pub fn original_len(&self) -> usize {
        self.len() + self.missing() as usize
    }

    /// States how many bytes a capture cut off the frame's end. `false`, and none counts as missing, where the
    /// chunk has neither four free bytes after the frame nor 64 before it.
    #[inline]
    pub fn set_missing(&mut self, bytes: u32) -> bool {
        if bytes == 0 {
            self.make_whole();
            return true;
        }
        self.note(bytes)
    }

    /// States that no byte is missing. The memory of the number stays taken: few packets have one, and giving it back
    /// costs every packet a branch.
    #[inline]
    pub(super) fn make_whole(&mut self) {
        self.meta_mut().clock &= CLOCK;
    }

    #[cold]
    fn note(&mut self, bytes: u32) -> bool {
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
        // SAFETY: four bytes of the chunk that are outside `start..end` as of now, so that nothing else reaches them.
        unsafe { self.0.as_ptr().cast::<u8>().add(slot).cast::<u32>().write_unaligned(bytes) };
        true
    }

    #[cold]
    fn noted(&self) -> u32 {
        // SAFETY: four bytes of the chunk, which `note` has written.
        unsafe { self.0.as_ptr().cast::<u8>().add(self.slot()).cast::<u32>().read_unaligned() }
    }

    /// Gives the memory of the number back to the frame.
    fn release(&mut self) {
        let meta = self.meta_mut();
        if meta.clock & BEHIND != 0 {
            meta.end += SLOT as u16;
        } else {
            meta.start -= 1;
        }
        meta.clock &= CLOCK;
    }

    /// Where the number is, from the chunk's start.
    fn slot(&self) -> usize {
        let meta = self.meta();
        if meta.clock & BEHIND != 0 { meta.end.into() } else { (usize::from(meta.start) - 1) * LINE }
    }
}

//! The page that the kernel maps for a counter, and the algorithm for reading a count from it (perf_event_open(2),
//! "MMAP layout").
//!
//! The kernel changes the page whenever it gives the thread a core, takes the core away, or moves the event to another
//! counter of the processor. So a count is valid only if the page's lock did not change while it was read.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// Bit of `capabilities` (`cap_bit0_is_deprecated`). If it is set, the other bits have the meaning that is defined
/// here. Old kernels do not set it.
const IS_NEW: u64 = 1 << 1;
/// Bit of `capabilities` (`cap_user_rdpmc`). If it is set, a program may read the counter with an instruction
/// (`rdpmc`).
const MAY_READ: u64 = 1 << 2;
/// The largest number of attempts to read the page.
const TRIES: usize = 64;

/// The reasons why a counter cannot be read without a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// The system does not allow it, or the event has no counter in the processor.
    #[error("the system does not allow it (/sys/bus/event_source/devices/cpu/rdpmc)")]
    NotAllowed,
    /// None of the processor's counters counts the event now.
    #[error("it is not counted now, because other events use the processor's counters")]
    NotCounting,
    /// The page changed during every attempt to read it.
    #[error("the kernel keeps changing the counter's page")]
    Unsteady,
    /// Only the counted thread can read its counters.
    #[error("the calling thread is not the counted thread")]
    OtherThread,
}

/// The beginning of the page (`struct perf_event_mmap_page`). The kernel writes it. Some fields are not read; they keep
/// the others at their offsets.
#[repr(C)]
pub(super) struct Page {
    version: AtomicU32,
    compatible_version: AtomicU32,
    /// Changes with every write of the kernel. Odd during the write.
    lock: AtomicU32,
    /// The processor's counter that counts the event now, from 1 up; 0 if there is none.
    index: AtomicU32,
    /// The number to add to the value of the processor's counter to get the event's count. It is signed, but an
    /// addition with wrap-around gives the same bits.
    offset: AtomicU64,
    time_enabled: AtomicU64,
    time_running: AtomicU64,
    capabilities: AtomicU64,
    /// Width of the processor's counters in bits.
    width: AtomicU16,
}

impl Page {
    /// Returns the event's count. `counter` reads the processor's counter with the given number, from 0.
    #[inline]
    pub(super) fn count(&self, counter: impl Fn(u32) -> u64) -> Result<u64, Unread> {
        for _ in 0..TRIES {
            // Loads from a page that is mapped read-only must be relaxed; the fences keep them in order.
            let lock = self.lock.load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            let count = self.try_count(&counter);
            fence(Ordering::Acquire);
            // The lock is odd while the kernel writes the page.
            if lock & 1 == 0 && self.lock.load(Ordering::Relaxed) == lock {
                return count;
            }
        }
        Err(Unread::Unsteady)
    }

    /// Reads the count once. The result is valid only if the lock did not change.
    #[inline]
    fn try_count(&self, counter: impl Fn(u32) -> u64) -> Result<u64, Unread> {
        let allowed = IS_NEW | MAY_READ;
        let width = u32::from(self.width.load(Ordering::Relaxed));
        if self.capabilities.load(Ordering::Relaxed) & allowed != allowed || !(1..=64).contains(&width) {
            return Err(Unread::NotAllowed);
        }
        match self.index.load(Ordering::Relaxed) {
            0 => Err(Unread::NotCounting),
            index => {
                let offset = self.offset.load(Ordering::Relaxed);
                Ok(offset.wrapping_add(sign_extend(counter(index - 1), width)))
            }
        }
    }
}

/// Sign-extends the lowest `width` bits of `bits`.
#[inline]
fn sign_extend(bits: u64, width: u32) -> u64 {
    let shift = 64 - width;
    ((bits << shift).cast_signed() >> shift).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::mem::offset_of;

    use super::*;

    fn page(index: u32, offset: i64, width: u16, capabilities: u64) -> Page {
        Page {
            version: 0.into(),
            compatible_version: 0.into(),
            lock: 6.into(),
            index: index.into(),
            offset: offset.cast_unsigned().into(),
            time_enabled: 0.into(),
            time_running: 0.into(),
            capabilities: capabilities.into(),
            width: width.into(),
        }
    }

    const ALLOWED: u64 = IS_NEW | MAY_READ;

    #[test]
    fn the_page_lies_as_the_kernel_has_it() {
        let offsets = [
            offset_of!(Page, lock),
            offset_of!(Page, index),
            offset_of!(Page, offset),
            offset_of!(Page, capabilities),
            offset_of!(Page, width),
        ];
        assert_eq!(offsets, [8, 12, 16, 40, 48]);
        // `cap_bit0` and `cap_bit0_is_deprecated`, then `cap_user_rdpmc`.
        assert_eq!(ALLOWED, 0b110);
    }

    #[test]
    fn a_count_is_the_offset_and_what_the_counter_of_the_index_says() {
        let count = |page: &Page, says: u64| {
            page.count(|counter| {
                assert_eq!(counter, 3);
                says
            })
        };
        assert_eq!(count(&page(4, 1_000, 48, ALLOWED), 234), Ok(1_234));
        // The kernel starts counters below 0, so that they overflow in time: 48 bits with a sign.
        assert_eq!(count(&page(4, 1_000, 48, ALLOWED), (1 << 48) - 234), Ok(766));
        assert_eq!(count(&page(4, 1_000, 48, ALLOWED), 1 << 47), Ok(1_000u64.wrapping_sub(1 << 47)));
        assert_eq!(count(&page(4, 1_000, 48, ALLOWED), (1 << 47) - 1), Ok(1_000 + (1 << 47) - 1));
        // Higher bits do not belong to the counter.
        assert_eq!(count(&page(4, -1_000, 48, ALLOWED), 0xabcd << 48 | 1_234), Ok(234));
        assert_eq!(count(&page(4, 5, 64, ALLOWED), u64::MAX), Ok(4));
    }

    #[test]
    fn an_inactive_or_forbidden_counter_gives_an_error() {
        let count = |page: Page| page.count(|_| panic!("no counter may be read"));
        assert_eq!(count(page(0, 1_000, 48, ALLOWED)), Err(Unread::NotCounting));
        for (width, capabilities) in [(48, 0), (48, IS_NEW), (48, MAY_READ), (0, ALLOWED), (65, ALLOWED)] {
            assert_eq!(count(page(4, 1_000, width, capabilities)), Err(Unread::NotAllowed), "{width} {capabilities}");
        }
    }

    #[test]
    fn a_page_that_changes_meanwhile_is_read_again() {
        let changing = page(4, 1_000, 48, ALLOWED);
        let reads = Cell::new(0);
        // The thread loses its core after the counter was read, and gets it back with another counter.
        let result = changing.count(|counter| {
            reads.set(reads.get() + 1);
            if reads.get() == 1 {
                changing.lock.fetch_add(2, Ordering::Relaxed);
                changing.index.store(8, Ordering::Relaxed);
                changing.offset.store(5_000, Ordering::Relaxed);
            }
            u64::from(counter)
        });
        assert_eq!((result, reads.get()), (Ok(5_007), 2));
        // A page that is being written is read again, too.
        let written = page(4, 1_000, 48, ALLOWED);
        written.lock.store(7, Ordering::Relaxed);
        let result = written.count(|_| {
            reads.set(reads.get() + 1);
            if reads.get() == 5 {
                written.lock.store(8, Ordering::Relaxed);
            }
            1
        });
        assert_eq!((result, reads.get()), (Ok(1_001), 6));
        let restless = page(4, 1_000, 48, ALLOWED);
        let result = restless.count(|_| u64::from(restless.lock.fetch_add(2, Ordering::Relaxed)));
        assert_eq!(result, Err(Unread::Unsteady));
    }
}

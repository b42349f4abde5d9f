//! The page that the kernel maps for a counter, and how a count is read by it (perf_event_open(2), "MMAP layout").
//!
//! The kernel changes the page whenever it gives the thread a core, takes it away, or moves the event to another of the
//! processor's counters. So what is read counts only if the page's lock has stayed the same meanwhile.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// Bits of `capabilities`: what follows the first bit means what is written here.
const IS_NEW: u64 = 1 << 1;
/// The counter may be read by an instruction.
const MAY_READ: u64 = 1 << 2;
/// How often the page is read anew, at the most.
const TRIES: usize = 64;

/// Why a counter cannot be read without asking the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// The system does not let programs, or it is no counter of the processor's.
    #[error("the system does not allow it (/sys/bus/event_source/devices/cpu/rdpmc)")]
    NotAllowed,
    /// None of the processor's counters is counting the event now.
    #[error("it is not being counted, because others have the processor's counters")]
    NotCounting,
    /// The page has never stayed the same for long enough.
    #[error("the kernel keeps changing it")]
    Unsteady,
    /// Counters of a thread are that thread's to read.
    #[error("another thread asks than the one that is counted")]
    OtherThread,
}

/// The page's beginning (`struct perf_event_mmap_page`). The kernel writes it.
#[repr(C)]
pub(super) struct Page {
    version: AtomicU32,
    compatible_version: AtomicU32,
    lock: AtomicU32,
    /// Which of the processor's counters counts the event now, from 1 up; 0: none.
    index: AtomicU32,
    /// What is to be added to what that counter says: a signed number, of which only the bits matter.
    offset: AtomicU64,
    time_enabled: AtomicU64,
    time_running: AtomicU64,
    capabilities: AtomicU64,
    /// How many bits the processor's counters have.
    width: AtomicU16,
}

impl Page {
    /// The event's count; `counter` says what the processor's counter of this number does.
    #[inline]
    pub(super) fn count(&self, counter: impl Fn(u32) -> u64) -> Result<u64, Unread> {
        for _ in 0..TRIES {
            // Loads from a page that is mapped for reading must be relaxed ones; the fences keep them in order.
            let lock = self.lock.load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            let told = self.told(&counter);
            fence(Ordering::Acquire);
            // Odd while another core writes it.
            if lock & 1 == 0 && self.lock.load(Ordering::Relaxed) == lock {
                return told;
            }
        }
        Err(Unread::Unsteady)
    }

    #[inline]
    fn told(&self, counter: impl Fn(u32) -> u64) -> Result<u64, Unread> {
        let allowed = IS_NEW | MAY_READ;
        let width = u32::from(self.width.load(Ordering::Relaxed));
        if self.capabilities.load(Ordering::Relaxed) & allowed != allowed || !(1..=64).contains(&width) {
            return Err(Unread::NotAllowed);
        }
        match self.index.load(Ordering::Relaxed) {
            0 => Err(Unread::NotCounting),
            index => {
                let offset = self.offset.load(Ordering::Relaxed);
                Ok(offset.wrapping_add(extended(counter(index - 1), width)))
            }
        }
    }
}

/// The number whose lowest `width` bits, of which the highest is its sign, are those of `bits`.
#[inline]
fn extended(bits: u64, width: u32) -> u64 {
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
        // The kernel lets counters begin below 0, so that they overflow in time: 48 bits with their sign.
        assert_eq!(count(&page(4, 1_000, 48, ALLOWED), (1 << 48) - 234), Ok(766));
        assert_eq!(count(&page(4, 1_000, 48, ALLOWED), 1 << 47), Ok(1_000u64.wrapping_sub(1 << 47)));
        assert_eq!(count(&page(4, 1_000, 48, ALLOWED), (1 << 47) - 1), Ok(1_000 + (1 << 47) - 1));
        // What stands above is not the counter's.
        assert_eq!(count(&page(4, -1_000, 48, ALLOWED), 0xabcd << 48 | 1_234), Ok(234));
        assert_eq!(count(&page(4, 5, 64, ALLOWED), u64::MAX), Ok(4));
    }

    #[test]
    fn what_does_not_count_now_or_may_not_be_read_is_no_count() {
        let count = |page: Page| page.count(|_| panic!("there is no counter to be read"));
        assert_eq!(count(page(0, 1_000, 48, ALLOWED)), Err(Unread::NotCounting));
        for (width, capabilities) in [(48, 0), (48, IS_NEW), (48, MAY_READ), (0, ALLOWED), (65, ALLOWED)] {
            assert_eq!(count(page(4, 1_000, width, capabilities)), Err(Unread::NotAllowed), "{width} {capabilities}");
        }
    }

    #[test]
    fn a_page_that_changes_in_the_midst_is_read_again() {
        let changing = page(4, 1_000, 48, ALLOWED);
        let reads = Cell::new(0);
        // The thread loses its core after the counter was read, and gets it back with another counter.
        let told = changing.count(|counter| {
            reads.set(reads.get() + 1);
            if reads.get() == 1 {
                changing.lock.fetch_add(2, Ordering::Relaxed);
                changing.index.store(8, Ordering::Relaxed);
                changing.offset.store(5_000, Ordering::Relaxed);
            }
            u64::from(counter)
        });
        assert_eq!((told, reads.get()), (Ok(5_007), 2));
        // So is one that is being written, until it is not.
        let written = page(4, 1_000, 48, ALLOWED);
        written.lock.store(7, Ordering::Relaxed);
        let told = written.count(|_| {
            reads.set(reads.get() + 1);
            if reads.get() == 5 {
                written.lock.store(8, Ordering::Relaxed);
            }
            1
        });
        assert_eq!((told, reads.get()), (Ok(1_001), 6));
        let restless = page(4, 1_000, 48, ALLOWED);
        let told = restless.count(|_| u64::from(restless.lock.fetch_add(2, Ordering::Relaxed)));
        assert_eq!(told, Err(Unread::Unsteady));
    }
}

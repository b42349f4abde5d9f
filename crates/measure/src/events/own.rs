//! Events of the calling thread that it reads itself, without a system call: between two readings there may be so little that a
//! call of the kernel would be most of it.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use perf_event::Counter;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::page::{Page, Unread};
use super::{Event, Unavailable, perf};

thread_local! {
    /// Its address is another one in each thread.
    static HERE: u8 = const { 0 };
}

/// As much of a page as is mapped: the kernel makes a whole one of it.
const LENGTH: usize = size_of::<Page>();

fn here() -> usize {
    HERE.with(|here| ptr::from_ref(here).addr())
}

/// A group of events of the thread that made it, on whichever core it runs. They are never counted in turns with others, and
/// count from the moment they are made.
#[derive(Debug)]
pub struct OwnGroup<const N: usize> {
    pages: [Mapped; N],
    /// The thread.
    here: usize,
    /// The events, which count as long as they are open.
    _counters: (Counter, Vec<Counter>),
}

impl<const N: usize> OwnGroup<N> {
    /// Counts `events`, at least one, of the calling thread.
    ///
    /// # Errors
    /// [`Unavailable`]: of the first event that cannot be counted, or cannot be read in user space.
    pub fn open(events: [Event; N]) -> Result<Self, Unavailable> {
        let (leader, others) = perf::counters(events, 0, true)?;
        let mut pages = Vec::with_capacity(N);
        for (event, counter) in events.into_iter().zip(std::iter::once(&leader).chain(&others)) {
            let page = Mapped::of(counter);
            let page = page.map_err(|error| Unavailable::System { event, told: error.to_string() })?;
            page.count().map_err(|why| Unavailable::Unread { event, why })?;
            pages.push(page);
        }
        let pages = pages.try_into().expect("one for each event");
        Ok(Self { pages, here: here(), _counters: (leader, others) })
    }

    /// The counts so far, in the group's order.
    ///
    /// # Errors
    /// [`Unread`]; whatever was counted before says nothing then.
    #[inline]
    pub fn read(&self) -> Result<[u64; N], Unread> {
        if self.here != here() {
            return Err(Unread::OtherThread);
        }
        let mut counts = [0; N];
        for (count, page) in counts.iter_mut().zip(&self.pages) {
            *count = page.count()?;
        }
        Ok(counts)
    }
}

/// A counter's page, mapped for reading.
#[derive(Debug)]
struct Mapped(NonNull<Page>);

// SAFETY: the mapping is the process's, it is only read, by atomic loads, and `Mapped` alone ends it.
unsafe impl Send for Mapped {}

impl Mapped {
    fn of(counter: &Counter) -> std::io::Result<Self> {
        // SAFETY: the descriptor is open as long as the counter is, which outlives this function.
        let descriptor = unsafe { BorrowedFd::borrow_raw(counter.as_raw_fd()) };
        // SAFETY: the kernel chooses the place, so that nothing else is mapped there.
        let page = unsafe { mmap(ptr::null_mut(), LENGTH, ProtFlags::READ, MapFlags::SHARED, descriptor, 0) }?;
        NonNull::new(page.cast()).map(Self).ok_or_else(|| std::io::Error::other("mapped nowhere"))
    }

    #[inline]
    fn count(&self) -> Result<u64, Unread> {
        if !cfg!(target_arch = "x86_64") {
            return Err(Unread::NotAllowed);
        }
        // SAFETY: the page is mapped until `self` ends, is aligned as pages are, and larger than a `Page`; the kernel writes
        // it as one thread another's atomics.
        let page = unsafe { self.0.as_ref() };
        page.count(|counter| {
            // SAFETY: `Page::count` asks only where the page says that this process may read the counter, and the kernel
            // allows it as long as a page is mapped: `self` is. (But for an administrator who forbids it to all at this very
            // moment, `/sys/bus/event_source/devices/cpu/rdpmc`: then the process is ended.) A counter that has meanwhile become another's is read in
            // vain and does no harm.
            unsafe { processor_counter(counter) }
        })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and `self` was the only one to look at it.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), LENGTH) };
    }
}

/// What one of the processor's counters says.
///
/// # Safety
/// The processor must allow it to programs; else the process is ended.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn processor_counter(number: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the instruction writes these two registers and nothing else; that it is allowed is the caller's to see to. It
    // is not said to leave memory alone, so that the compiler moves no reading of the page past it.
    unsafe {
        std::arch::asm!("rdpmc", in("ecx") number, out("eax") low, out("edx") high, options(nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Other processors have other ways; it is not asked for.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn processor_counter(_: u32) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(reason: &Unavailable) {
        drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("skipped: {reason}\n")));
    }

    /// Either the processor counts and lets itself be read, or there is a reason.
    #[test]
    fn instructions_and_cycles_of_this_thread_or_why_not() {
        let group = match OwnGroup::open([Event::Instructions, Event::CoreCycles]) {
            Ok(group) => group,
            Err(reason) => {
                assert!(!matches!(reason, Unavailable::NoThread(_)), "{reason}");
                let told = reason.to_string();
                assert!(told.contains("instructions") || told.contains("core_cycles"), "{told}");
                return skipped(&reason);
            }
        };
        let before = group.read().expect("it counts");
        (0..1_000_000).for_each(|step: u32| _ = std::hint::black_box(step));
        let after = group.read().expect("it counts");
        let spent = [after[0].wrapping_sub(before[0]), after[1].wrapping_sub(before[1])];
        assert!(spent.iter().all(|count| (10_000..1 << 40).contains(count)), "{spent:?}");
        let elsewhere = std::thread::spawn(move || group.read()).join().expect("it ends well");
        assert_eq!(elsewhere, Err(Unread::OtherThread));
    }

    /// The kernel's own events have a page like any other, which says that no counter of the processor's counts them.
    #[test]
    fn an_event_that_is_not_the_processors_cannot_be_read_by_its_page() {
        match OwnGroup::open([Event::PageFaults]) {
            Err(Unavailable::Unread { event, why }) => {
                assert_eq!((event, why), (Event::PageFaults, Unread::NotAllowed));
            }
            Err(reason @ (Unavailable::None(_) | Unavailable::Forbidden { .. } | Unavailable::System { .. })) => {
                skipped(&reason)
            }
            other => panic!("{other:?}"),
        }
    }
}

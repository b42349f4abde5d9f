//! Events of the calling thread that the thread reads without a system call. For a short span between two readings, a
//! system call would take most of the time.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use perf_event::Counter;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::page::{Page, Unread};
use super::{Event, Unavailable, perf};

thread_local! {
    /// A variable whose address identifies the thread. Its value has no meaning.
    static THREAD_MARKER: u8 = const { 0 };
}

/// Length of the mapping. The kernel rounds it up to a whole page.
const LENGTH: usize = size_of::<Page>();

fn thread_marker() -> usize {
    THREAD_MARKER.with(|thread_marker| ptr::from_ref(thread_marker).addr())
}

/// A group of events of the thread that created it, on any core. These events never take turns with other events, and
/// are counted from the moment of creation. Only the thread that created the group can read it.
#[derive(Debug)]
pub struct OwnGroup<const N: usize> {
    /// The pages of the counters, in the order of the events.
    pages: [Mapped; N],
    /// Address of the marker of the thread that is counted.
    thread_marker: usize,
    /// The counters, which count as long as they are open.
    _counters: (Counter, Vec<Counter>),
}

impl<const N: usize> OwnGroup<N> {
    /// Creates a group that counts `events` (at least one) for the calling thread.
    ///
    /// # Errors
    /// Returns [`Unavailable`] for the first event that cannot be counted, or cannot be read in user space.
    pub fn open(events: [Event; N]) -> Result<Self, Unavailable> {
        let (leader, others) = perf::counters(events, 0, true)?;
        let mut pages = Vec::with_capacity(N);
        for (event, counter) in events.into_iter().zip(std::iter::once(&leader).chain(&others)) {
            let page = Mapped::of(counter);
            let page = page.map_err(|error| Unavailable::System { event, message: error.to_string() })?;
            page.count().map_err(|why| Unavailable::Unread { event, why })?;
            pages.push(page);
        }
        let pages = pages.try_into().expect("one for each event");
        Ok(Self { pages, thread_marker: thread_marker(), _counters: (leader, others) })
    }

    /// Returns the counts, in the group's order.
    ///
    /// # Errors
    /// Returns [`Unread`]. Then the difference from an earlier count has no meaning.
    #[inline]
    pub fn read(&self) -> Result<[u64; N], Unread> {
        if self.thread_marker != thread_marker() {
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

// SAFETY: the mapping belongs to the process. It is only read, by atomic loads, and only `Mapped` unmaps it.
unsafe impl Send for Mapped {}

impl Mapped {
    /// Maps the page of a counter. The counter must stay open as long as the page is read, because a closed counter
    /// does not count.
    fn of(counter: &Counter) -> std::io::Result<Self> {
        // SAFETY: the descriptor is open as long as the counter is, and the counter outlives this function.
        let descriptor = unsafe { BorrowedFd::borrow_raw(counter.as_raw_fd()) };
        // SAFETY: the kernel chooses an address where nothing else is mapped.
        let page = unsafe { mmap(ptr::null_mut(), LENGTH, ProtFlags::READ, MapFlags::SHARED, descriptor, 0) }?;
        NonNull::new(page.cast()).map(Self).ok_or_else(|| std::io::Error::other("mapped nowhere"))
    }

    /// Returns the count of the event. The caller must be the counted thread.
    #[inline]
    fn count(&self) -> Result<u64, Unread> {
        if !cfg!(target_arch = "x86_64") {
            return Err(Unread::NotAllowed);
        }
        // SAFETY: the page is mapped as long as `self` lives, is aligned as pages are, and is larger than a `Page`. The
        // kernel writes to the page while this thread reads it; all fields are atomic, so this is allowed.
        let page = unsafe { self.0.as_ref() };
        page.count(|counter| {
            // SAFETY: `Page::count` calls this only if the page states that this process may read the counter. The
            // kernel allows the reading as long as the page is mapped, and `self` maps it. There is one exception: if
            // an administrator forbids it to all processes at this moment (through
            // `/sys/bus/event_source/devices/cpu/rdpmc`), the kernel ends the process. The counter may count another
            // event by now. Reading it does no harm, because the result is discarded.
            unsafe { processor_counter(counter) }
        })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the page was mapped with this length, and only `self` accesses it.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), LENGTH) };
    }
}

/// Reads one of the processor's counters.
///
/// # Safety
/// The processor must allow programs to read this counter; otherwise the kernel ends the process. Numbers begin with
/// 0.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn processor_counter(number: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the instruction writes these two registers and nothing else; the caller ensures that it is allowed. The
    // `nomem` option is left out on purpose, so that the compiler does not move reads of the page across it.
    unsafe {
        std::arch::asm!("rdpmc", in("ecx") number, out("eax") low, out("edx") high, options(nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Never called: [`Mapped::count`] returns an error on other processors.
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

    /// Either the processor counts and programs may read the counters, or there is a reason.
    #[test]
    fn instructions_and_cycles_are_counted_or_unavailable() {
        let group = match OwnGroup::open([Event::Instructions, Event::CoreCycles]) {
            Ok(group) => group,
            Err(reason) => {
                assert!(!matches!(reason, Unavailable::NoThread(_)), "{reason}");
                let message = reason.to_string();
                assert!(message.contains("instructions") || message.contains("core_cycles"), "{message}");
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

    /// The kernel's own events have a page too. It says that none of the processor's counters counts them.
    #[test]
    fn a_kernel_event_cannot_be_read_through_its_page() {
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

//! The handle by which other threads wake a parked worker.
//!
//! A worker has one handle, and every thread that gives it something to do uses this handle: a worker that hands over
//! packets, and the threads that send orders (actions, census, observers, reloads) or set the stop flag. A call costs a
//! fence and a look at a flag. Only if the worker is parked, the call writes to the worker's eventfd.

mod flag;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use flag::ParkFlag;

/// Wakes one worker.
#[derive(Debug)]
pub struct Wake {
    flag: ParkFlag,
    event: OwnedFd,
}

impl Wake {
    /// Creates the handle of a worker.
    ///
    /// # Errors
    /// The system's error if the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { flag: ParkFlag::new(), event })
    }

    /// Wakes the worker if it is parked. Call this when the worker can already find its work: the order is in the
    /// queue, the packets are in the ring, or the stop flag is set.
    #[inline]
    pub fn wake(&self) {
        if self.flag.take() {
            self.signal();
        }
    }

    #[cold]
    fn signal(&self) {
        // The write fails only if the counter is at its maximum. Then the worker wakes, too.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Parks the calling thread, which is the worker's, for `longest` at most. The thread wakes when
    /// [`wake`](Self::wake) is called or one of `inputs` is readable. It does not park if `has_work` returns true.
    /// `has_work` is called when other threads can already see that the worker is about to park. So no work is missed.
    pub(crate) fn park(&self, inputs: &[BorrowedFd<'_>], longest: Duration, has_work: impl FnOnce() -> bool) {
        let all = inputs.iter().copied().chain([self.event.as_fd()]);
        let mut all: Vec<PollFd<'_>> = all.map(|input| PollFd::from_borrowed_fd(input, PollFlags::IN)).collect();
        self.flag.raise();
        if !has_work() {
            let timeout = Timespec::try_from(longest).ok();
            // Without a result (a signal interrupted the call), the worker takes a turn too early, which is allowed.
            let _ = poll(&mut all, timeout.as_ref());
        }
        self.flag.lower();
        // This resets the eventfd. If no thread has signalled it, there is nothing to read, and the call returns at
        // once.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }
}

//! How a worker waits when its turn has found nothing to do: the idle policy.
//!
//! [`run`](super::run) passes everything that a turn returns, except [`Next::Now`], to the worker's policy. A worker
//! without work waits only in its policy. A policy may spin, sleep, or [park](Idle::park) the worker. It may return
//! early at any time: a turn without work does no harm. It must not wait for longer than [`LONGEST`], because a port
//! looks at the state of its interface only while the worker calls the port.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use forebay_units::Ticks;

use crate::wake::Wake;
use crate::worker::Next;

/// The longest time that a policy lets a worker wait.
pub const LONGEST: Duration = Duration::from_millis(10);

/// Decides how an idle worker waits.
pub trait IdlePolicy: Send {
    /// Returns whether the policy may park a worker to which packets can still come. Then other workers wake the worker
    /// when they hand packets over to it.
    fn parks_on_input(&self) -> bool;

    /// Waits until the worker's next turn. `next` is the condition for this turn, and never [`Next::Now`]. The caller
    /// looks at the worker's orders after each wait.
    fn wait(&mut self, next: Next, idle: &mut Idle<'_>);
}

/// Polls: the worker is called again at once while packets can come. It parks only if no packet can come from a port or
/// another worker.
#[derive(Clone, Copy, Debug)]
pub struct Poll;

impl IdlePolicy for Poll {
    #[inline]
    fn parks_on_input(&self) -> bool {
        false
    }

    #[inline]
    fn wait(&mut self, next: Next, idle: &mut Idle<'_>) {
        match next {
            Next::Now => {}
            Next::At(_) | Next::OnInput(..) => std::hint::spin_loop(),
            Next::Never => {
                idle.park(LONGEST);
            }
        }
    }
}

/// The facts about an idle worker that a wait needs.
pub(super) trait IdleWorker {
    /// Returns whether orders, the end of the run, or packets of other workers wait for the worker.
    fn has_work(&self) -> bool;

    /// Returns the descriptors on which the worker's ports wait for packets. `None` if one of these ports has no
    /// descriptor.
    fn inputs(&self) -> Option<Vec<BorrowedFd<'_>>>;

    /// Returns the time from now to `instant`.
    fn time_until(&self, instant: Ticks) -> Duration;

    /// Notes that the worker has parked, so that the time until the next turn does not count as a long turn.
    fn note_parked(&mut self);
}

/// An idle worker.
pub struct Idle<'a> {
    pub(super) wake: &'a Wake,
    pub(super) worker: &'a mut dyn IdleWorker,
}

impl Idle<'_> {
    /// Parks the worker until packets arrive at its ports, another thread [wakes](Wake::wake) it, or `longest` has
    /// passed. Returns false and does not wait if a port waits for packets and has no descriptor: then only turns can
    /// find these packets.
    pub fn park(&mut self, longest: Duration) -> bool {
        let worker = &*self.worker;
        let Some(inputs) = worker.inputs() else { return false };
        self.wake.park(&inputs, longest, || worker.has_work());
        self.worker.note_parked();
        true
    }

    /// Returns the time until `instant`; 0 if it has passed.
    #[must_use]
    pub fn time_until(&self, instant: Ticks) -> Duration {
        self.worker.time_until(instant)
    }
}

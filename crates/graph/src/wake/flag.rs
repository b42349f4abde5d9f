//! The flag by which a worker that parks and a thread that gives it work agree whether the worker must be woken.
//!
//! The worker raises the flag and then looks for work once more. The other thread makes the work visible and then looks
//! at the flag. Each of them writes before it reads what the other one writes, and a sequentially consistent fence
//! keeps this order (Dekker's algorithm). So at least one of them sees the other's write: the worker finds the work, or
//! the thread finds the flag. `tests/wake_loom.rs` checks this under every order.

use crate::sync::{AtomicBool, Ordering, fence};

/// Whether a worker is parked, or about to park.
#[derive(Debug)]
pub(crate) struct ParkFlag(AtomicBool);

impl ParkFlag {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Raises the flag. The worker must look for work after this and before it parks.
    pub(crate) fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Lowers the flag, because the worker runs.
    pub(crate) fn lower(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Lowers the flag. Returns whether the flag was raised: if so, the caller must wake the worker. The work must be
    /// visible before the call. If several threads call this at once, only one of them gets true.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}

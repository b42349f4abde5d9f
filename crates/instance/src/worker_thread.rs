//! A worker's thread as the system numbers it, and its observer.

use forebay_graph::Observer;

/// The system's numbers for a worker's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerThread {
    /// The worker's number.
    pub worker: usize,
    /// The core that the thread is bound to.
    pub core: usize,
    /// The thread ID (`/proc/self/task/TID`).
    pub tid: u32,
}

/// Creates the observer of a worker, given its number. Returns `None` if the worker is not observed.
pub type Watch = Box<dyn FnMut(usize) -> Option<Box<dyn Observer>> + Send>;

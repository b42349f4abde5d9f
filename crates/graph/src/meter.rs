//! The interface to a counter of a worker's instructions and core cycles.

/// Counts the instructions and core cycles of the calling thread.
///
/// A worker with a meter must be created on the thread that runs it, because the cost of a reading is learnt then.
pub trait Meter: Send {
    /// Returns the instructions and core cycles of the calling thread, from an arbitrary start. `None` if the counts
    /// are not, or no longer, available. Then the meter is not read again, and all its earlier counts are discarded.
    fn read(&mut self) -> Option<[u64; 2]>;
}

//! What counts a worker's instructions and core cycles, where something does.

/// Counts instructions and core cycles of the thread that asks.
///
/// A worker with a meter must be made by the thread that will run it: what a reading takes is learnt then.
pub trait Meter: Send {
    /// Instructions and core cycles of the calling thread so far, from wherever they are counted. `None`: they cannot be told, or
    /// no longer; it is not asked again, and nothing that it has said is believed.
    fn read(&mut self) -> Option<[u64; 2]>;
}

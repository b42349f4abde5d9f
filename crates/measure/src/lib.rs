//! Clocks, counters and histograms; events that the processor and the kernel count for a thread.

pub mod away;
pub mod clock;
pub mod counter;
pub mod events;
pub mod histogram;
pub mod machine;
pub mod window;

pub use away::Away;
pub use clock::{Clock, Simulated, Tsc};
pub use counter::Counter;
pub use histogram::{Distribution, Histogram};
pub use window::{Values, Window};

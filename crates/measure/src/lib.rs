//! Clocks, counters, histograms and their units; events that the processor and the kernel count for a thread; memory
//! alignment.

pub mod away;
pub mod clock;
pub mod counter;
pub mod events;
pub mod histogram;
pub mod machine;
pub mod placement;
pub mod window;

pub use away::Away;
pub use clock::{Clock, Simulated, Tsc};
pub use counter::Counter;
pub use histogram::{Distribution, Histogram};
pub use window::{Values, Window};

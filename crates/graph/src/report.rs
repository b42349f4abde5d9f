//! Reads the counters of workers, and reports the span between two readings.
//!
//! A [`Reading`] contains the counters at one instant. A report is the difference between two readings. So the same
//! code computes the report of a whole run and the report of its last second.

mod difference;
mod flow;
mod lost;
mod machine;
mod reading;

use forebay_protocol::report::{Cpu, FigureSource};

pub use flow::FlowFigures;
pub use lost::{COPY_COUNTERS, LINE_COUNTERS};
pub use reading::Reading;

/// Facts of a run that its counters do not contain.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFacts {
    /// How the figures are obtained.
    pub kind: FigureSource,
    /// The machine. In simulated time only the clock's ticks are known.
    pub cpu: Cpu,
    /// By worker: the core to which the worker is bound. `None` if it is bound to no core.
    pub cores: Vec<Option<usize>>,
}

#[cfg(test)]
mod tests;

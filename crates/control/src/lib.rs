//! Batch control: what decides on triggers and hold limits while a pipeline runs, so that every flow keeps its delay objective and
//! packets cost as little as they can (`docs/control.md`).
//!
//! A [`Pilot`] is given a snapshot each period and says what is to change. It knows no worker, no clock and no thread: it decides
//! alike for a running pipeline, in simulated time and on what was recorded.

#![forbid(unsafe_code)]

mod arrangement;
mod controllers;
mod costs;
mod decomposition;
mod holding;
mod learning;
mod memory;
mod outlook;
mod period;
mod pilot;
pub mod recording;
pub mod replay;
#[cfg(test)]
mod testing;

pub use arrangement::Arrangement;
pub use costs::{Costs, Profiled};
pub use decomposition::{Decomposer, Move, Unmoved};
pub use pilot::{Pilot, Settings};
pub use recording::Log;

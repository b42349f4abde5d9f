//! Batch control: chooses triggers and hold limits while a pipeline runs, so that every flow keeps its delay objective
//! and packets cost as little time as possible (`docs/control.md`).
//!
//! A *trigger* is the number of packets with which a module is called. Packets wait in the buffer before the module
//! until there are so many. With trigger 0, they do not wait. A *hold limit* is the longest time for which packets wait
//! for the trigger.
//!
//! A [`ControllerRunner`] receives a snapshot each period and returns the changes to make. It uses no workers, clocks
//! or threads, so that it decides in the same way for a running pipeline, in simulated time and for a recording.

#![forbid(unsafe_code)]

mod arrangement;
mod controller_runner;
mod controllers;
mod costs;
mod decomposition;
mod holding;
mod learning;
mod memory;
mod outlook;
mod period;
pub mod recording;
pub mod replay;
#[cfg(test)]
mod testing;

pub use arrangement::Arrangement;
pub use controller_runner::{ControllerRunner, Settings};
pub use costs::{Costs, Profiled};
pub use decomposition::{Decomposer, Move, Unmoved};
pub use recording::Log;

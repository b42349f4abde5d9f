//! The mathematical models: pure functions of numbers, without input, output, threads or clocks.
//!
//! Units are SI: seconds, packets, packets per second.

#![forbid(unsafe_code)]

pub mod batching;
pub mod max_min;
pub mod online;
pub mod placement;
mod separable;

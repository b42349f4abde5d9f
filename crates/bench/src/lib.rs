//! Lean measurement (NALM): measures the cost of a packet in each module, in ticks and in instructions, on any machine.
//! Compares two builds and names the module that became more expensive, and the cause.

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "an allocator is unsafe by its trait")]
pub mod allocator;
pub mod baseline;
pub mod callgrind;
pub mod cases;
pub mod compare;
pub mod counting;
pub mod disturbance;
mod estimate;
pub mod gate;
pub mod handover;
pub mod hardware;
pub mod history;
pub mod measurement;
mod meter;
mod named;
pub mod process;
pub mod profile;
pub mod program;
pub mod rates;
pub mod saved;
pub mod search;
pub mod steps;
pub mod ticks;
pub mod trial;

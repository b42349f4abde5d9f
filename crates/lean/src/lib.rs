//! Lean measurement (NALM): what a packet costs, module by module, in ticks and in instructions, on any machine; and which
//! module made a commit dearer, and by what.

#![forbid(unsafe_code)]

pub mod callgrind;
pub mod compare;
pub mod counting;
pub mod disturbance;
mod estimate;
pub mod hardware;
pub mod measurement;
mod named;
pub mod process;
pub mod rates;
pub mod saved;
pub mod search;
pub mod ticks;
pub mod trial;

//! Lean measurement (NALM): what a packet costs, module by module, in ticks and in instructions, on any machine; and which
//! module made a commit dearer, and by what.

#![forbid(unsafe_code)]

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
pub mod rates;
pub mod saved;
pub mod search;
pub mod steps;
pub mod ticks;
pub mod trial;

//! Kernels in vector instructions, behind safe interfaces.
//!
//! Each vectorised kernel has a scalar version that defines its result, and a test that compares both. The instruction
//! set is chosen once, when a structure is built ([`Level::detect`]). So a binary that was built for an old machine
//! uses the instructions of a new machine, and no kernel checks per packet whether the instructions exist.

pub mod interval_map;
pub mod level;
pub mod prefetch;
pub mod signatures;
pub mod word_sum;

pub use level::Level;

//! Large memory from the system, on huge pages: what packets and tables live in.
//!
//! A table of a million sessions is larger than what the processor keeps addresses of in pages of 4 KiB, so that every look
//! at it would wait twice: for the address, and for the memory. A page of 2 MiB has 512 times as much behind one address.

mod lack;
mod region;
mod zeroed;

pub use lack::{NoMemory, filled, numbered, room, zeroed};
pub use region::Region;
pub use zeroed::Zeroed;

/// A huge page of the size that x86-64 and ARM give by default, in bytes.
pub const HUGE: usize = 1 << 21;

//! Large memory from the system, on huge pages, for packets and tables.
//!
//! A table of a million sessions is larger than the memory that the processor's TLB covers with pages of 4 KiB. Each
//! access would wait twice: for the address translation and for the memory. With pages of 2 MiB, one TLB entry covers
//! 512 times as much memory.

mod no_memory;
mod program;
mod region;
mod zeroed;

pub use no_memory::{NoMemory, filled, numbered, room, zeroed};
pub use program::release_program_pages;
pub use region::Region;
pub use zeroed::Zeroed;

/// The default size of a huge page on x86-64 and ARM, in bytes.
pub const HUGE: usize = 1 << 21;

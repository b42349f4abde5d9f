//! Captures: packets from a file, packets into a file.

mod reader;
mod spool;
mod writer;

pub use reader::{ReadError, Reader, Record, read_memory};
pub use spool::{WhenFull, WriteError};
pub use writer::{NgWriter, Writer};

#[cfg(test)]
mod tests;

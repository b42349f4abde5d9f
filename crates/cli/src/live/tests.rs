//! The table drawn into memory.

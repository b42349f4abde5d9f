//! Shared parts of functions that look into payloads: the position of a payload, a search for many strings at once, and
//! counts of many items.

pub mod payload;
pub mod strings;
pub mod tally;

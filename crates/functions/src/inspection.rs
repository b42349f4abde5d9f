//! What functions share that look into payloads: where a payload is, many strings sought at once, counts of many things.

pub mod payload;
pub mod strings;
pub mod tally;

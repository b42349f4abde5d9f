//! Observes the packets of a running pipeline: traces single packets through the graph, filters and decodes frames, and
//! captures dropped packets. Unobserved workers do not run this code.
//!
//! Observers run on the workers' threads and only copy data. Other threads turn the copies into text and files.

#![forbid(unsafe_code)]

pub mod decode;
pub mod drops;
pub mod filter;
pub mod story;
pub mod trace;

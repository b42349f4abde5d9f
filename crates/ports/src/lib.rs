//! Where packets come from and go to: generator, captures, sink.
//!
//! Every port registers itself under its name; nothing lists them.

#![forbid(unsafe_code)]

pub mod generator;
pub mod pcap;
pub mod sink;

//! Where packets come from and go to: generator, captures, sink.
//!
//! Every port registers itself under its name; nothing lists them.

pub mod generator;
pub mod pcap;
pub mod sink;

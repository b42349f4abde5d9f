//! Where packets come from and go to: generator, captures, interfaces of the host, TAP devices, sink.
//!
//! Every port registers itself under its name; nothing lists them.

#![deny(unsafe_code)]

pub mod af_packet;
pub mod af_xdp;
mod bpf;
pub mod generator;
pub mod interface;
pub mod pcap;
pub mod ring;
pub mod sink;
pub mod tap;

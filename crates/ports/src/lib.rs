//! Sources and destinations of packets: a generator, capture files, host interfaces, TAP devices and a sink.
//!
//! Every port type registers itself under its name; there is no central list.

#![deny(unsafe_code)]

pub mod af_packet;
pub mod af_xdp;
mod bpf;
pub mod generator;
pub mod interface;
pub mod pcap;
pub mod ring;
mod simulated;
pub mod sink;
pub mod tap;

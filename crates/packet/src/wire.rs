//! Protocol headers as they are in a frame, one protocol per file.
//!
//! Each header is a plain structure over unaligned bytes. [`Packet::view`](crate::Packet::view) checks it against the
//! frame's length. The types of fields with several bytes state that they are in network order.

pub mod arp;
pub mod checksum;
pub mod ethernet;
pub mod gtpu;
pub mod icmp;
pub mod ipv4;
pub mod ipv6;
pub mod neighbour;
pub mod tcp;
pub mod udp;
pub mod vxlan;

// Not under Miri: this module has no unsafe code, and Miri is slowest at parsing random frames.
#[cfg(all(test, not(miri)))]
mod tests;

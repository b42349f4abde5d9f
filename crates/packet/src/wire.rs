//! Protocol headers as they stand in a frame, one protocol a file.
//!
//! Each header is a plain structure over unaligned bytes; a [`Packet::view`](crate::Packet::view) of it is checked
//! against the frame's length. Fields of several bytes are in network order and say so by their type.

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

// Not under Miri: nothing here is unsafe, and parsing random frames is what it is slowest at.
#[cfg(all(test, not(miri)))]
mod tests;

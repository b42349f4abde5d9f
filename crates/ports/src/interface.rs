//! Interfaces of the host: their names, what the kernel tells of them, and the network namespaces they are in.
//!
//! What every port to an interface needs, whatever way its packets take.

#![allow(dead_code, reason = "the ports that ask are yet to come")]

mod name;
pub(crate) mod namespace;
pub(crate) mod request;

use forebay_packet::wire::ethernet::MacAddress;

pub use name::{InterfaceName, NameError};
#[allow(unused_imports, reason = "the ports that ask are yet to come")]
pub(crate) use request::Control;

/// The longest Ethernet header that an MTU does not count: addresses, type and one VLAN tag.
pub(crate) const HEADER: usize = 18;

/// What an interface is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Its number, which is another one where it was deleted and made again.
    pub index: u32,
    /// The longest IP packet, in bytes.
    pub mtu: usize,
    /// Its own Ethernet address.
    pub mac: MacAddress,
    /// Whether its frames are Ethernet's.
    pub ethernet: bool,
    /// Whether it was brought up.
    pub up: bool,
    /// Whether its link is there.
    pub running: bool,
}

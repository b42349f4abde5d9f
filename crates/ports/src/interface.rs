//! Interfaces of the host: their names, what the kernel tells of them, and the network namespaces they are in.
//!
//! What every port to an interface needs, whatever way its packets take.

mod name;
pub(crate) mod namespace;
pub(crate) mod request;
#[cfg(test)]
pub(crate) mod testing;
mod watch;

use forebay_packet::wire::ethernet::MacAddress;

pub use name::{InterfaceName, NameError};

pub(crate) use request::Control;
pub(crate) use watch::{Found, Watch};

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

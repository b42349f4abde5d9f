//! Host interfaces: their names, their state in the kernel, and their network namespaces.
//!
//! All ports that use a host interface need this module, regardless of how they send and receive packets.

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

/// The state of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// The index of the interface. It changes when the interface is deleted and created again.
    pub index: u32,
    /// The length of the longest IP packet, in bytes.
    pub mtu: usize,
    /// The interface's own Ethernet address.
    pub mac: MacAddress,
    /// True if the interface's frames are Ethernet frames.
    pub ethernet: bool,
    /// True if the interface is up.
    pub up: bool,
    /// True if the interface has a carrier.
    pub running: bool,
}

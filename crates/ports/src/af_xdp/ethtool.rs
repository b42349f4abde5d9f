//! Queries a driver about an interface: its queues, and whether it is a physical device (`ioctl(SIOCETHTOOL)`).

#![expect(unsafe_code, reason = "the kernel fills in structures whose length is a promise of this file")]

use std::io;

use crate::interface::InterfaceName;
use crate::interface::request::{DriverQuery, Request, socket};

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    /// The largest numbers that the driver allows, in the order of the four fields below.
    most: [u32; 4],
    /// The number of channels that only receive.
    receive: u32,
    /// The number of channels that only send.
    send: u32,
    /// The number of channels for other purposes.
    other: u32,
    /// The number of channels that receive and send.
    combined: u32,
}

// SAFETY: `ETHTOOL_GCHANNELS`, the only command with which the structure is made, fills in this structure. All fields
// are integers.
unsafe impl DriverQuery for Channels {}

impl Channels {
    /// `ETHTOOL_GCHANNELS`.
    const GET: u32 = 0x3c;
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct Driver {
    command: u32,
    driver: [u8; 32],
    version: [u8; 32],
    firmware: [u8; 32],
    bus: [u8; 32],
    rest: [u8; 64],
}

// SAFETY: `ETHTOOL_GDRVINFO`, the only command with which the structure is made, fills in this structure. All fields
// are integers.
unsafe impl DriverQuery for Driver {}

impl Driver {
    /// `ETHTOOL_GDRVINFO`.
    const GET: u32 = 0x03;
}

/// Returns the number of receive queues, or 1 if the driver does not report the number. Must be called in the
/// interface's network namespace.
pub fn queues(name: &InterfaceName) -> u32 {
    let mut channels = Channels { command: Channels::GET, ..Channels::default() };
    match query(name, &mut channels) {
        Ok(()) => channels.receive.saturating_add(channels.combined).max(1),
        Err(_) => 1,
    }
}

/// Returns true if the interface has no physical device. Frames that were never on a wire may then arrive, with
/// checksums that the sender has left to a device that does not exist. An interface is taken as virtual if its driver
/// reports no bus, if its driver is `tun` or `virtio_net`, or if the query fails.
pub fn is_virtual(name: &InterfaceName) -> bool {
    let empty = [0; 32];
    let mut info =
        Driver { command: Driver::GET, driver: empty, version: empty, firmware: empty, bus: empty, rest: [0; 64] };
    let outcome = query(name, &mut info);
    let is = |known: &[u8]| info.driver.starts_with(known) && info.driver.get(known.len()) == Some(&0);
    outcome.is_err() || info.bus[0] == 0 || is(b"tun") || is(b"virtio_net")
}

/// Makes the kernel fill in a structure, in the namespace of the calling thread.
fn query(name: &InterfaceName, value: &mut impl DriverQuery) -> io::Result<()> {
    Request::new(name).query_driver(&socket(libc::AF_INET)?, value)
}

//! What a driver tells of an interface: its queues, and whether there is a device behind it (`ioctl(SIOCETHTOOL)`).

use std::io;
use std::os::fd::AsRawFd;

use crate::interface::InterfaceName;
use crate::interface::request::{Request, socket};

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    send: u32,
    other: u32,
    combined: u32,
}

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

impl Driver {
    /// `ETHTOOL_GDRVINFO`.
    const GET: u32 = 0x03;
}

/// How many receive queues it has, where it tells; 1 else.
pub fn queues(name: &InterfaceName) -> u32 {
    let mut channels = Channels { command: Channels::GET, ..Channels::default() };
    match ask(name, &mut channels) {
        Ok(()) => channels.receive.saturating_add(channels.combined).max(1),
        Err(_) => 1,
    }
}

/// Whether there is no device behind it, so that frames may come which were never on a wire: their checksums may be left
/// to a device that there is not. What cannot be told is taken for one.
pub fn is_virtual(name: &InterfaceName) -> bool {
    let nothing = [0; 32];
    let mut told = Driver {
        command: Driver::GET,
        driver: nothing,
        version: nothing,
        firmware: nothing,
        bus: nothing,
        rest: [0; 64],
    };
    let outcome = ask(name, &mut told);
    let is = |known: &[u8]| told.driver.starts_with(known) && told.driver.get(known.len()) == Some(&0);
    outcome.is_err() || told.bus[0] == 0 || is(b"tun") || is(b"virtio_net")
}

/// Has one of the kernel's structures filled in, in the namespace of the calling thread.
fn ask<T>(name: &InterfaceName, value: &mut T) -> io::Result<()> {
    let control = socket(libc::AF_INET)?;
    let mut request = Request::new(name);
    request.0.ifr_ifru.ifru_data = std::ptr::from_mut(value).cast();
    // The structure is as long as the command in its first word says, and lives until the call returns.
    request.submit(&control.as_raw_fd(), libc::SIOCETHTOOL)
}

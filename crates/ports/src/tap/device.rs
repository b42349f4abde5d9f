//! A TAP device: made, configured and brought up by the kernel's `ioctl` calls (Linux `Documentation/networking/tuntap`,
//! `netdevice(7)`).

#![expect(unsafe_code, reason = "what an interface is configured with has no other way into the kernel than ioctl")]

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut, Read, Write};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::params::HostAddress;
use crate::interface::request::{Request, check, socket};
use crate::interface::{InterfaceName, namespace};
use forebay_packet::wire::ethernet::MacAddress;

/// Where the kernel makes them.
const CONTROL: &str = "/dev/net/tun";

/// Why there is no device, for its user.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The kernel has none.
    #[error("there is no {CONTROL}: load the kernel's module (`modprobe tun`), or give the container the device")]
    Missing,
    /// The right is missing.
    #[error(
        "'{0}' needs the right CAP_NET_ADMIN to {1}: run as root, or prepare the interface once with `ip tuntap add dev \
         {0} mode tap user NAME` and `ip link set {0} up`"
    )]
    Right(String, &'static str),
    /// Somebody else has it.
    #[error("the interface '{0}' is in use by another port or program")]
    Busy(String),
    /// Another port has it.
    #[error(
        "the interface '{name}' is in use by the port '{port}': while packets run only a port of that name takes it over"
    )]
    Taken {
        /// The interface.
        name: String,
        /// The port.
        port: String,
    },
    /// There is one that is something else.
    #[error("there is an interface '{0}' already, and it is no TAP device")]
    Other(String),
    /// The namespace is not there.
    #[error("no network namespace at {path}: {source} (`ip netns add NAME` makes /run/netns/NAME)")]
    Namespace {
        /// Where it should be.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Anything else.
    #[error("cannot {doing} of '{name}': {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// The interface.
        name: String,
        /// What the system said.
        source: io::Error,
    },
}

/// What the interface is to be.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its name.
    pub name: InterfaceName,
    /// Its address, if it is to have one.
    pub address: Option<HostAddress>,
    /// Its Ethernet address, if the kernel is not to choose.
    pub mac: Option<MacAddress>,
    /// The longest IP packet, if not what the kernel takes (1500).
    pub mtu: Option<u16>,
    /// Where it is to be, if not where this process is.
    pub namespace: Option<PathBuf>,
}

impl Wanted {
    /// The same interface, as it is by itself.
    fn bare(&self) -> Self {
        Self { address: None, mac: None, mtu: None, ..self.clone() }
    }
}

/// A frame that was read.
pub enum ReadOutcome {
    /// It is so long.
    Frame(usize),
    /// It was so long, longer than the room for it, and is lost.
    TooLong(usize),
    /// None is there.
    Nothing,
}

/// Room for the rest of the longest frame that there is, an IP packet of 64 KiB with its Ethernet header and two tags.
pub struct ExcessBuffer(Box<[u8]>);

impl Default for ExcessBuffer {
    fn default() -> Self {
        Self(vec![0; (1 << 16) + 22].into())
    }
}

/// A TAP device. It goes with the value, unless it was there before.
pub struct Device {
    file: File,
    /// What the interface had of its own before anything was set.
    own: Own,
    /// How often it has been set, and to what.
    set: Mutex<(u64, Wanted)>,
}

/// What an interface was set to before it was set the last time.
#[derive(Debug)]
pub struct Before {
    time: u64,
    pub(super) wanted: Wanted,
}

/// What an interface has where nothing is wanted.
#[derive(Clone, Copy, Debug)]
struct Own {
    mac: libc::sockaddr,
    mtu: libc::c_int,
}

impl Device {
    /// Makes the device and brings it up.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn open(wanted: &Wanted) -> Result<(Self, Before), DeviceError> {
        within(wanted, || Self::open_here(wanted))
    }

    fn open_here(wanted: &Wanted) -> Result<(Self, Before), DeviceError> {
        let name = &wanted.name;
        let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(CONTROL);
        let file = file.map_err(|source| match source.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => DeviceError::Missing,
            _ => tell(name, "be made", source),
        })?;
        let mut request = Request::new(name);
        request.0.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        request.submit(&file, libc::TUNSETIFF).map_err(|source| match source.raw_os_error() {
            Some(libc::EBUSY) => DeviceError::Busy(name.to_string()),
            Some(libc::EINVAL) => DeviceError::Other(name.to_string()),
            _ => tell(name, "be made", source),
        })?;
        let own = own(name).map_err(|(doing, source)| tell(name, doing, source))?;
        let device = Self { file, own, set: Mutex::new((0, wanted.bare())) };
        let before = device.configure(&mut device.set(), wanted)?;
        if let Err((doing, source)) = bring_up(name) {
            // An interface that was there before stays, as it was.
            let _ = device.configure(&mut device.set(), &before.wanted);
            return Err(tell(name, doing, source));
        }
        Ok((device, before))
    }

    /// Sets the interface to what is wanted now. On failure everything is as it was.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn change(&self, wanted: &Wanted) -> Result<Before, DeviceError> {
        within(wanted, || self.configure(&mut self.set(), wanted))
    }

    /// Sets it to what it was before, as far as that can be, unless it has been set again.
    pub fn undo(&self, before: &Before) {
        let _ = within(&before.wanted, || {
            // Nobody sets it again between the look and the undoing.
            let mut set = self.set();
            if set.0 == before.time { self.configure(&mut set, &before.wanted).map(drop) } else { Ok(()) }
        });
    }

    fn set(&self) -> MutexGuard<'_, (u64, Wanted)> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn configure(&self, (time, now): &mut (u64, Wanted), wanted: &Wanted) -> Result<Before, DeviceError> {
        if let Err((doing, source)) = configure(&self.own, now, wanted) {
            // Whatever was done before that can be undone.
            let _ = configure(&self.own, wanted, now);
            return Err(tell(&wanted.name, doing, source));
        }
        *time += 1;
        Ok(Before { time: *time, wanted: std::mem::replace(now, wanted.clone()) })
    }

    /// Reads a frame into `room`.
    ///
    /// # Errors
    /// The interface is gone, or the system says something else.
    #[inline]
    pub fn read(&self, room: &mut [u8], beyond: &mut ExcessBuffer) -> io::Result<ReadOutcome> {
        // More than there is room for: the kernel cuts what is longer, and does not say so.
        let limit = room.len();
        match (&self.file).read_vectored(&mut [IoSliceMut::new(room), IoSliceMut::new(&mut beyond.0)]) {
            Ok(0) => Ok(ReadOutcome::Nothing),
            Ok(length) if length > limit => Ok(ReadOutcome::TooLong(length)),
            Ok(length) => Ok(ReadOutcome::Frame(length)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(ReadOutcome::Nothing)
            }
            Err(error) => Err(error),
        }
    }

    /// Gives the kernel a frame.
    ///
    /// # Errors
    /// It would not take it.
    #[inline]
    pub fn write(&self, frame: &[u8]) -> io::Result<()> {
        (&self.file).write(frame).map(drop)
    }
}

/// Does what is to be done with an interface where it is. A device is made where its maker is.
fn within<T: Send>(wanted: &Wanted, act: impl FnOnce() -> Result<T, DeviceError> + Send) -> Result<T, DeviceError> {
    let refused = |path: &Path, source: io::Error| match source.raw_os_error() {
        Some(libc::EPERM) => DeviceError::Right(wanted.name.to_string(), "be made in another network namespace"),
        _ => DeviceError::Namespace { path: path.to_owned(), source },
    };
    namespace::within(wanted.namespace.as_deref(), act, refused)
}

fn tell(name: &InterfaceName, doing: &'static str, source: io::Error) -> DeviceError {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => DeviceError::Right(name.to_string(), doing),
        _ => DeviceError::System { doing, name: name.to_string(), source },
    }
}

/// What could not be done, and what the system said.
type Failure = (&'static str, io::Error);

/// What the interface has by itself.
fn own(name: &InterfaceName) -> Result<Own, Failure> {
    let control = control()?;
    let (mut mac, mut mtu) = (Request::new(name), Request::new(name));
    mac.submit(&control, libc::SIOCGIFHWADDR).map_err(|error| ("read the MAC address", error))?;
    mtu.submit(&control, libc::SIOCGIFMTU).map_err(|error| ("read the MTU", error))?;
    // SAFETY: all of the unions was initialised, and these calls fill in the address and the length.
    Ok(unsafe { Own { mac: mac.0.ifr_ifru.ifru_hwaddr, mtu: mtu.0.ifr_ifru.ifru_mtu } })
}

/// Sets what is different in `to` from what was set.
fn configure(own: &Own, from: &Wanted, to: &Wanted) -> Result<(), Failure> {
    let (name, control) = (&to.name, control()?);
    if from.mac != to.mac {
        let mac = to.mac.map_or(own.mac, |MacAddress(bytes)| hardware(bytes));
        // With a change of the address, even to itself, the kernel forgets neighbours that an operator has entered.
        if self::own(name)?.mac.sa_data != mac.sa_data {
            let mut request = Request::new(name);
            request.0.ifr_ifru.ifru_hwaddr = mac;
            request.submit(&control, libc::SIOCSIFHWADDR).map_err(|error| ("set the MAC address", error))?;
        }
    }
    if from.mtu != to.mtu {
        let mut request = Request::new(name);
        request.0.ifr_ifru.ifru_mtu = to.mtu.map_or(own.mtu, libc::c_int::from);
        request.submit(&control, libc::SIOCSIFMTU).map_err(|error| ("set the MTU", error))?;
    }
    if from.address == to.address {
        return Ok(());
    }
    match (from.address.map(|it| it.address), to.address.map(|it| it.address)) {
        // The new one takes its place.
        (Some(IpAddr::V4(_)), Some(IpAddr::V4(_))) | (None, _) => {}
        (Some(IpAddr::V4(_)), _) => set_ipv4(name, &control, 0, None)?,
        (Some(IpAddr::V6(address)), _) => {
            let length = from.address.map_or(0, |it| it.length);
            // It may have been taken away.
            let _ = submit_ipv6(name, &control, address, length, libc::SIOCDIFADDR as _);
        }
    }
    match to.address.map(|it| (it.address, it.length)) {
        None => Ok(()),
        Some((IpAddr::V4(address), length)) => set_ipv4(name, &control, address.to_bits(), Some(length)),
        Some((IpAddr::V6(address), length)) => {
            match submit_ipv6(name, &control, address, length, libc::SIOCSIFADDR as _) {
                // It has the address already.
                Err((_, error)) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
                outcome => outcome,
            }
        }
    }
}

fn control() -> Result<OwnedFd, Failure> {
    socket(libc::AF_INET).map_err(|error| ("open a socket for the settings", error))
}

fn bring_up(name: &InterfaceName) -> Result<(), Failure> {
    let control = control()?;
    let mut flags = Request::new(name);
    flags.submit(&control, libc::SIOCGIFFLAGS).map_err(|error| ("read the flags", error))?;
    // SAFETY: all of the union was initialised, and this call fills in the flags.
    let old = unsafe { flags.0.ifr_ifru.ifru_flags };
    let up = old | libc::IFF_UP as libc::c_short;
    if up != old {
        flags.0.ifr_ifru.ifru_flags = up;
        flags.submit(&control, libc::SIOCSIFFLAGS).map_err(|error| ("be brought up", error))?;
    }
    Ok(())
}

/// Sets the IPv4 address; 0.0.0.0 takes it away.
fn set_ipv4(name: &InterfaceName, control: &OwnedFd, bits: u32, length: Option<u8>) -> Result<(), Failure> {
    let mask = length.map(|length| u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0));
    let calls = [(Some(bits), libc::SIOCSIFADDR), (mask, libc::SIOCSIFNETMASK)];
    for (bits, call) in calls.into_iter().filter_map(|(bits, call)| Some((bits?, call))) {
        let mut request = Request::new(name);
        request.0.ifr_ifru.ifru_addr = internet(bits);
        request.submit(control, call).map_err(|error| ("set the address", error))?;
    }
    Ok(())
}

/// Adds an IPv6 address, or takes it away, as `call` says.
fn submit_ipv6(
    name: &InterfaceName,
    control: &OwnedFd,
    address: Ipv6Addr,
    length: u8,
    call: libc::Ioctl,
) -> Result<(), Failure> {
    let mut index = Request::new(name);
    index.submit(control, libc::SIOCGIFINDEX).map_err(|error| ("find the number", error))?;
    let mut request = libc::in6_ifreq {
        ifr6_addr: libc::in6_addr { s6_addr: address.octets() },
        ifr6_prefixlen: length.into(),
        // SAFETY: all of the union was initialised, and this call fills in the index.
        ifr6_ifindex: unsafe { index.0.ifr_ifru.ifru_ifindex },
    };
    let control = socket(libc::AF_INET6).map_err(|error| ("open an IPv6 socket for the settings", error))?;
    // SAFETY: on an IPv6 socket these calls take an `in6_ifreq`, which lives until they return.
    let outcome = unsafe { libc::ioctl(control.as_raw_fd(), call, &raw mut request) };
    check(outcome).map_err(|error| ("set the address", error))
}

/// An Ethernet address as the kernel takes it.
fn hardware(bytes: [u8; 6]) -> libc::sockaddr {
    let mut data = [0 as libc::c_char; 14];
    data.iter_mut().zip(bytes).for_each(|(to, from)| *to = from as libc::c_char);
    libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data: data }
}

/// An IPv4 address as the kernel takes it: `sockaddr_in`, whose address follows two bytes of port.
fn internet(bits: u32) -> libc::sockaddr {
    let mut data = [0 as libc::c_char; 14];
    data[2..].iter_mut().zip(bits.to_be_bytes()).for_each(|(to, from)| *to = from as libc::c_char);
    libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: data }
}

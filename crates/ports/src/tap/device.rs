//! A TAP device: made, configured and brought up by the kernel's `ioctl` calls (Linux `Documentation/networking/tuntap`,
//! `netdevice(7)`).

#![expect(unsafe_code, reason = "what an interface is configured with has no other way into the kernel than ioctl")]

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut, Read, Write};
use std::mem;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use forebay_packet::wire::ethernet::MacAddress;
use rustix::fd::AsFd;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::params::{HostAddress, InterfaceName};

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

/// A frame that was read.
pub enum Got {
    /// It is so long.
    Frame(usize),
    /// It was longer than the room for it, and is lost.
    TooLong,
    /// None is there.
    Nothing,
}

/// A TAP device. It goes with the value, unless it was there before.
pub struct Device(File);

impl Device {
    /// Makes the device and brings it up.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn open(wanted: &Wanted) -> Result<Self, DeviceError> {
        let Some(path) = &wanted.namespace else { return Self::open_here(wanted) };
        // A device is made where its maker is: a thread goes there and ends, so that no other call finds itself there.
        std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                enter(path).map_err(|source| match source.raw_os_error() {
                    Some(libc::EPERM) => {
                        DeviceError::Right(wanted.name.to_string(), "be made in another network namespace")
                    }
                    _ => DeviceError::Namespace { path: path.clone(), source },
                })?;
                Self::open_here(wanted)
            });
            there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn open_here(wanted: &Wanted) -> Result<Self, DeviceError> {
        let name = &wanted.name;
        let told = |doing| move |source: io::Error| tell(name, doing, source);
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
        configure(wanted).map_err(|(doing, source)| told(doing)(source))?;
        Ok(Self(file))
    }

    /// Reads a frame into `room`.
    ///
    /// # Errors
    /// The interface is gone, or the system says something else.
    #[inline]
    pub fn read(&self, room: &mut [u8]) -> io::Result<Got> {
        // One byte more than there is room for: the kernel cuts what is longer, and does not say so.
        let (limit, mut beyond) = (room.len(), [0]);
        match (&self.0).read_vectored(&mut [IoSliceMut::new(room), IoSliceMut::new(&mut beyond)]) {
            Ok(0) => Ok(Got::Nothing),
            Ok(length) if length > limit => Ok(Got::TooLong),
            Ok(length) => Ok(Got::Frame(length)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(Got::Nothing)
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
        (&self.0).write(frame).map(drop)
    }
}

/// Takes the calling thread to another network namespace.
fn enter(path: &Path) -> io::Result<()> {
    let namespace = File::open(path)?;
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

fn tell(name: &InterfaceName, doing: &'static str, source: io::Error) -> DeviceError {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => DeviceError::Right(name.to_string(), doing),
        _ => DeviceError::System { doing, name: name.to_string(), source },
    }
}

/// Gives the interface its addresses and sizes, and brings it up; on failure what could not be done.
fn configure(wanted: &Wanted) -> Result<(), (&'static str, io::Error)> {
    let name = &wanted.name;
    let control = socket(libc::AF_INET).map_err(|error| ("open a socket for the settings", error))?;
    if let Some(MacAddress(bytes)) = wanted.mac {
        let mut request = Request::new(name);
        request.0.ifr_ifru.ifru_hwaddr = hardware(bytes);
        request.submit(&control, libc::SIOCSIFHWADDR).map_err(|error| ("set the MAC address", error))?;
    }
    if let Some(mtu) = wanted.mtu {
        let mut request = Request::new(name);
        request.0.ifr_ifru.ifru_mtu = mtu.into();
        request.submit(&control, libc::SIOCSIFMTU).map_err(|error| ("set the MTU", error))?;
    }
    let mut flags = Request::new(name);
    flags.submit(&control, libc::SIOCGIFFLAGS).map_err(|error| ("read the flags", error))?;
    // SAFETY: all of the union was initialised, and this call fills in the flags.
    let old = unsafe { flags.0.ifr_ifru.ifru_flags };
    let up = old | libc::IFF_UP as libc::c_short;
    if up != old {
        flags.0.ifr_ifru.ifru_flags = up;
        flags.submit(&control, libc::SIOCSIFFLAGS).map_err(|error| ("be brought up", error))?;
    }
    match wanted.address.map(|address| (address.address, address.length)) {
        None => Ok(()),
        Some((IpAddr::V4(address), length)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            for (bits, call) in [(address.to_bits(), libc::SIOCSIFADDR), (mask, libc::SIOCSIFNETMASK)] {
                let mut request = Request::new(name);
                request.0.ifr_ifru.ifru_addr = internet(bits);
                request.submit(&control, call).map_err(|error| ("set the address", error))?;
            }
            Ok(())
        }
        Some((IpAddr::V6(address), length)) => {
            let mut index = Request::new(name);
            index.submit(&control, libc::SIOCGIFINDEX).map_err(|error| ("find the number", error))?;
            let mut request = libc::in6_ifreq {
                ifr6_addr: libc::in6_addr { s6_addr: address.octets() },
                ifr6_prefixlen: length.into(),
                // SAFETY: all of the union was initialised, and this call fills in the index.
                ifr6_ifindex: unsafe { index.0.ifr_ifru.ifru_ifindex },
            };
            let control = socket(libc::AF_INET6).map_err(|error| ("open an IPv6 socket for the settings", error))?;
            // SAFETY: on an IPv6 socket this call takes an `in6_ifreq`, which lives until it returns.
            let outcome = unsafe { libc::ioctl(control.as_raw_fd(), libc::SIOCSIFADDR as _, &raw mut request) };
            match check(outcome) {
                // It has the address already.
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
                outcome => outcome.map_err(|error| ("set the address", error)),
            }
        }
    }
}

fn check(outcome: libc::c_int) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A socket to configure interfaces through.
fn socket(family: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    let descriptor = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    check(descriptor)?;
    // SAFETY: the kernel has just given it, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A request about one interface.
struct Request(libc::ifreq);

impl Request {
    fn new(name: &InterfaceName) -> Self {
        // SAFETY: all zeros is a value of every field of the structure and of its union: integers and a null pointer.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        // A name is shorter than the field, so that a zero ends it.
        for (to, from) in request.ifr_name.iter_mut().zip(name.as_bytes()) {
            *to = *from as libc::c_char;
        }
        Self(request)
    }

    fn submit(&mut self, to: &impl AsRawFd, call: impl TryInto<libc::Ioctl>) -> io::Result<()> {
        let call = call.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: every call that is made here takes a pointer to an `ifreq`, which is initialised and lives until the
        // call returns; the kernel writes nothing beyond it.
        check(unsafe { libc::ioctl(to.as_raw_fd(), call, &raw mut self.0) })
    }
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

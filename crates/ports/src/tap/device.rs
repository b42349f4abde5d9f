//! TAP devices: creates, configures and brings up a device by the kernel's `ioctl` calls (Linux
//! `Documentation/networking/tuntap`, `netdevice(7)`).

#![expect(unsafe_code, reason = "interfaces are configured by ioctl, which the standard library does not offer")]

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut, Read, Write};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::params::HostAddress;
use crate::interface::request::{Call, Request, check, socket};
use crate::interface::{InterfaceName, namespace};
use forebay_packet::wire::ethernet::MacAddress;

/// The kernel's control file for TAP devices.
const CONTROL: &str = "/dev/net/tun";

/// An error when a TAP device is opened or configured.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The kernel does not support TAP devices.
    #[error("there is no {CONTROL}: load the kernel module (`modprobe tun`), or give the container the device")]
    Missing,
    /// A capability is missing. The second text is the failed operation, as a verb.
    #[error(
        "'{0}' needs the capability CAP_NET_ADMIN to {1}: run as root, or prepare the interface once with `ip tuntap \
         add dev {0} mode tap user NAME` and `ip link set {0} up`"
    )]
    Right(String, &'static str),
    /// Another port or program uses the interface: the kernel reports this.
    #[error("the interface '{0}' is in use by another port or program: use another name")]
    Busy(String),
    /// Another port of this process uses the interface.
    #[error(
        "the interface '{name}' is in use by the port '{port}': while packets run, only a port that is also called \
         '{port}' can take over the interface"
    )]
    Taken {
        /// The name of the interface.
        name: String,
        /// The name of the port that uses it.
        port: String,
    },
    /// An interface with this name exists, and is not a TAP device.
    #[error("the interface '{0}' exists and is not a TAP device: use another name")]
    Other(String),
    /// The namespace does not exist.
    #[error("no network namespace at {path}: {source} (`ip netns add NAME` makes /run/netns/NAME)")]
    Namespace {
        /// The expected path of the namespace.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another system error.
    #[error("cannot {doing} for '{name}': {source}")]
    System {
        /// The operation that failed.
        doing: &'static str,
        /// The name of the interface.
        name: String,
        /// The system's error.
        source: io::Error,
    },
}

/// The settings of an interface.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the interface.
    pub name: InterfaceName,
    /// The host's address. With `None`, the port adds no address: it removes only the address that earlier settings
    /// have added.
    pub address: Option<HostAddress>,
    /// The Ethernet address, or `None` for an address that the kernel chooses.
    pub mac: Option<MacAddress>,
    /// The MTU, or `None` for the kernel's default (1500).
    pub mtu: Option<u16>,
    /// The path of the network namespace, or `None` for the namespace of this process.
    pub namespace: Option<PathBuf>,
}

impl Settings {
    /// Returns settings of the same interface without configured values. Applying these settings restores the values
    /// that the interface had before this program configured it.
    fn bare(&self) -> Self {
        Self { address: None, mac: None, mtu: None, ..self.clone() }
    }
}

/// The result of reading a frame.
pub enum ReadOutcome {
    /// A frame of this length is in the buffer.
    Frame(usize),
    /// The frame had this length, was too long for the buffer, and is lost.
    TooLong(usize),
    /// There is no frame to read.
    Nothing,
}

/// A buffer for the part of a frame that does not fit into a packet. It has room for the longest possible frame: an IP
/// packet of 64 KiB with its Ethernet header and two tags.
pub struct ExcessBuffer(Box<[u8]>);

impl Default for ExcessBuffer {
    fn default() -> Self {
        Self(vec![0; (1 << 16) + 22].into())
    }
}

/// A TAP device. Dropping the value removes the interface. An interface that existed before the device was opened
/// remains.
pub struct TapDevice {
    /// The descriptor by which frames are read and written. If this program has created the interface, the interface
    /// exists as long as this descriptor.
    file: File,
    /// The values of the interface before it was first configured.
    own_values: OwnValues,
    /// The number of times that the interface has been configured, and its present settings.
    set: Mutex<(u64, Settings)>,
}

/// The settings that a configuration has replaced, for [`TapDevice::undo`].
#[derive(Debug)]
pub struct PreviousSettings {
    /// The number of the configuration that has replaced these settings: the value of the counter in `TapDevice::set`
    /// after that configuration.
    generation: u64,
    pub(super) settings: Settings,
}

/// The values that an interface has before this program configures it.
#[derive(Clone, Copy, Debug)]
struct OwnValues {
    mac: libc::sockaddr,
    mtu: libc::c_int,
}

impl TapDevice {
    /// Creates the device or opens an existing one, configures the interface, and brings it up. Also returns the
    /// previous settings of the interface.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn open(settings: &Settings) -> Result<(Self, PreviousSettings), DeviceError> {
        within(settings, || Self::open_in_this_namespace(settings))
    }

    /// Does the work of [`open`](Self::open) in the network namespace of the calling thread.
    fn open_in_this_namespace(settings: &Settings) -> Result<(Self, PreviousSettings), DeviceError> {
        let name = &settings.name;
        let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(CONTROL);
        let file = file.map_err(|source| match source.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => DeviceError::Missing,
            _ => system_error(name, "create the interface", source),
        })?;
        let mut request = Request::new(name);
        request.0.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        request.submit(&file, Call::CREATE_TAP).map_err(|source| match source.raw_os_error() {
            Some(libc::EBUSY) => DeviceError::Busy(name.to_string()),
            Some(libc::EINVAL) => DeviceError::Other(name.to_string()),
            _ => system_error(name, "create the interface", source),
        })?;
        let own_values = own_values(name).map_err(|(doing, source)| system_error(name, doing, source))?;
        let device = Self { file, own_values, set: Mutex::new((0, settings.bare())) };
        let before = device.configure(&mut device.set(), settings)?;
        if let Err((doing, source)) = bring_up(name) {
            // If the interface existed before, it gets back its previous settings.
            let _ = device.configure(&mut device.set(), &before.settings);
            return Err(system_error(name, doing, source));
        }
        Ok((device, before))
    }

    /// Applies new settings, and returns the previous settings. `settings` must have the name and the namespace of this
    /// device.
    ///
    /// # Errors
    /// [`DeviceError`]. The previous settings are then restored as far as possible.
    pub fn change(&self, settings: &Settings) -> Result<PreviousSettings, DeviceError> {
        within(settings, || self.configure(&mut self.set(), settings))
    }

    /// Restores previous settings as far as possible. Does nothing if the interface has been configured again since the
    /// call that returned `before`.
    pub fn undo(&self, before: &PreviousSettings) {
        let _ = within(&before.settings, || {
            // The lock prevents another configuration between the comparison and the restoration.
            let mut set = self.set();
            if set.0 == before.generation { self.configure(&mut set, &before.settings).map(drop) } else { Ok(()) }
        });
    }

    /// Locks the settings of the interface.
    fn set(&self) -> MutexGuard<'_, (u64, Settings)> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies new settings in the network namespace of the calling thread. The caller holds the lock of `set`.
    fn configure(
        &self,
        (generation, now): &mut (u64, Settings),
        settings: &Settings,
    ) -> Result<PreviousSettings, DeviceError> {
        if let Err((doing, source)) = configure(&self.own_values, now, settings) {
            // Undo the changes that were made before the error, as far as possible.
            let _ = configure(&self.own_values, settings, now);
            return Err(system_error(&settings.name, doing, source));
        }
        *generation += 1;
        Ok(PreviousSettings { generation: *generation, settings: std::mem::replace(now, settings.clone()) })
    }

    /// Returns the descriptor that becomes readable when the host sends a frame.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Reads a frame into `buffer`. Does not wait. `excess` receives the part of a frame that does not fit into
    /// `buffer`. Its contents have no meaning for the caller.
    ///
    /// # Errors
    /// Returns the system's error, in particular if the interface no longer exists.
    #[inline]
    pub fn read(&self, buffer: &mut [u8], excess: &mut ExcessBuffer) -> io::Result<ReadOutcome> {
        // The call offers more space than `buffer` has, because the kernel truncates longer frames without reporting
        // it.
        let limit = buffer.len();
        match (&self.file).read_vectored(&mut [IoSliceMut::new(buffer), IoSliceMut::new(&mut excess.0)]) {
            Ok(0) => Ok(ReadOutcome::Nothing),
            Ok(length) if length > limit => Ok(ReadOutcome::TooLong(length)),
            Ok(length) => Ok(ReadOutcome::Frame(length)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(ReadOutcome::Nothing)
            }
            Err(error) => Err(error),
        }
    }

    /// Passes a frame to the kernel.
    ///
    /// # Errors
    /// Returns the system's error if the kernel does not accept the frame.
    #[inline]
    pub fn write(&self, frame: &[u8]) -> io::Result<()> {
        (&self.file).write(frame).map(drop)
    }
}

/// Runs `act` in the interface's network namespace, because the kernel creates a device in the namespace of the calling
/// thread.
fn within<T: Send>(settings: &Settings, act: impl FnOnce() -> Result<T, DeviceError> + Send) -> Result<T, DeviceError> {
    let refused = |path: &Path, source: io::Error| match source.raw_os_error() {
        Some(libc::EPERM) => {
            DeviceError::Right(settings.name.to_string(), "create the interface in another network namespace")
        }
        _ => DeviceError::Namespace { path: path.to_owned(), source },
    };
    namespace::within(settings.namespace.as_deref(), act, refused)
}

/// Returns the error for a failed operation: a missing capability, or another system error.
fn system_error(name: &InterfaceName, doing: &'static str, source: io::Error) -> DeviceError {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => DeviceError::Right(name.to_string(), doing),
        _ => DeviceError::System { doing, name: name.to_string(), source },
    }
}

/// The operation that failed, and the system's error.
type Failure = (&'static str, io::Error);

/// Returns the interface's present values.
fn own_values(name: &InterfaceName) -> Result<OwnValues, Failure> {
    let control = control()?;
    let (mut mac, mut mtu) = (Request::new(name), Request::new(name));
    mac.submit(&control, Call::GET_MAC).map_err(|error| ("read the MAC address", error))?;
    mtu.submit(&control, Call::GET_MTU).map_err(|error| ("read the MTU", error))?;
    // SAFETY: each union was initialised as a whole, and these calls fill in the address and the length.
    Ok(unsafe { OwnValues { mac: mac.0.ifr_ifru.ifru_hwaddr, mtu: mtu.0.ifr_ifru.ifru_mtu } })
}

/// Applies the differences between `from` and `to`. After an error, some of the differences may be applied.
fn configure(own_values: &OwnValues, from: &Settings, to: &Settings) -> Result<(), Failure> {
    let (name, control) = (&to.name, control()?);
    if from.mac != to.mac {
        let mac = to.mac.map_or(own_values.mac, |MacAddress(bytes)| hardware(bytes));
        // If the address is set, even to the same value, the kernel removes the neighbour entries that an operator has
        // added.
        if self::own_values(name)?.mac.sa_data != mac.sa_data {
            let mut request = Request::new(name);
            request.0.ifr_ifru.ifru_hwaddr = mac;
            request.submit(&control, Call::SET_MAC).map_err(|error| ("set the MAC address", error))?;
        }
    }
    if from.mtu != to.mtu {
        let mut request = Request::new(name);
        request.0.ifr_ifru.ifru_mtu = to.mtu.map_or(own_values.mtu, libc::c_int::from);
        request.submit(&control, Call::SET_MTU).map_err(|error| ("set the MTU", error))?;
    }
    if from.address == to.address {
        return Ok(());
    }
    match (from.address.map(|it| it.address), to.address.map(|it| it.address)) {
        // The new address replaces the old one.
        (Some(IpAddr::V4(_)), Some(IpAddr::V4(_))) | (None, _) => {}
        (Some(IpAddr::V4(_)), _) => set_ipv4(name, &control, 0, None)?,
        (Some(IpAddr::V6(address)), _) => {
            let length = from.address.map_or(0, |it| it.length);
            // The address may have been removed already.
            let _ = submit_ipv6(name, &control, address, length, libc::SIOCDIFADDR as _);
        }
    }
    match to.address.map(|it| (it.address, it.length)) {
        None => Ok(()),
        Some((IpAddr::V4(address), length)) => set_ipv4(name, &control, address.to_bits(), Some(length)),
        Some((IpAddr::V6(address), length)) => {
            match submit_ipv6(name, &control, address, length, libc::SIOCSIFADDR as _) {
                // The interface has the address already.
                Err((_, error)) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
                outcome => outcome,
            }
        }
    }
}

/// Creates a socket for configuration.
fn control() -> Result<OwnedFd, Failure> {
    socket(libc::AF_INET).map_err(|error| ("open a socket for configuration", error))
}

/// Brings the interface up, if it is not up.
fn bring_up(name: &InterfaceName) -> Result<(), Failure> {
    let control = control()?;
    let mut flags = Request::new(name);
    flags.submit(&control, Call::GET_FLAGS).map_err(|error| ("read the flags", error))?;
    // SAFETY: the whole union was initialised, and this call fills in the flags.
    let old = unsafe { flags.0.ifr_ifru.ifru_flags };
    let up = old | libc::IFF_UP as libc::c_short;
    if up != old {
        flags.0.ifr_ifru.ifru_flags = up;
        flags.submit(&control, Call::SET_FLAGS).map_err(|error| ("bring the interface up", error))?;
    }
    Ok(())
}

/// Sets the IPv4 address, and the mask if `length` is given. The address 0.0.0.0 removes the present address.
fn set_ipv4(name: &InterfaceName, control: &OwnedFd, bits: u32, length: Option<u8>) -> Result<(), Failure> {
    let mask = length.map(|length| u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0));
    let calls = [(Some(bits), Call::SET_ADDRESS), (mask, Call::SET_NETMASK)];
    for (bits, call) in calls.into_iter().filter_map(|(bits, call)| Some((bits?, call))) {
        let mut request = Request::new(name);
        request.0.ifr_ifru.ifru_addr = internet(bits);
        request.submit(control, call).map_err(|error| ("set the address", error))?;
    }
    Ok(())
}

/// Adds or removes an IPv6 address, depending on `call`.
fn submit_ipv6(
    name: &InterfaceName,
    control: &OwnedFd,
    address: Ipv6Addr,
    length: u8,
    call: libc::Ioctl,
) -> Result<(), Failure> {
    let mut index = Request::new(name);
    index.submit(control, Call::GET_INDEX).map_err(|error| ("find the index", error))?;
    let mut request = libc::in6_ifreq {
        ifr6_addr: libc::in6_addr { s6_addr: address.octets() },
        ifr6_prefixlen: length.into(),
        // SAFETY: the whole union was initialised, and this call fills in the index.
        ifr6_ifindex: unsafe { index.0.ifr_ifru.ifru_ifindex },
    };
    let control = socket(libc::AF_INET6).map_err(|error| ("open an IPv6 socket for configuration", error))?;
    // SAFETY: on an IPv6 socket these calls take an `in6_ifreq`, which lives until they return.
    let outcome = unsafe { libc::ioctl(control.as_raw_fd(), call, &raw mut request) };
    check(outcome).map_err(|error| ("set the address", error))
}

/// Returns an Ethernet address in the kernel's format.
fn hardware(bytes: [u8; 6]) -> libc::sockaddr {
    let mut data = [0 as libc::c_char; 14];
    data.iter_mut().zip(bytes).for_each(|(to, from)| *to = from as libc::c_char);
    libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data: data }
}

/// Returns an IPv4 address in the kernel's format: `sockaddr_in`, in which the address follows two bytes of port.
fn internet(bits: u32) -> libc::sockaddr {
    let mut data = [0 as libc::c_char; 14];
    data[2..].iter_mut().zip(bits.to_be_bytes()).for_each(|(to, from)| *to = from as libc::c_char);
    libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: data }
}

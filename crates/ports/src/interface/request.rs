//! Queries and configures interfaces by `ioctl` calls with an interface's name (`netdevice(7)`).

#![expect(unsafe_code, reason = "interfaces are configured by ioctl, which the standard library does not offer")]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use forebay_packet::wire::ethernet::MacAddress;

use super::{InterfaceName, State};

/// Converts the result of a system call that returns a negative number on an error.
///
/// # Errors
/// Returns the system's error if the call failed.
pub(crate) fn check(outcome: libc::c_int) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Creates a socket for configuring interfaces in the network namespace of the calling thread.
pub(crate) fn socket(family: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    let descriptor = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    check(descriptor)?;
    // SAFETY: the kernel has just returned the descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A request for one interface. The kernel writes the response into the same structure.
pub(crate) struct Request(pub(crate) libc::ifreq);

impl Request {
    /// Creates a request with only the interface's name.
    pub(crate) fn new(name: &InterfaceName) -> Self {
        // SAFETY: all fields of the structure and of its union are integers or a pointer, for which all zeros is a
        // valid value.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        // A name is shorter than the field, so a zero ends it.
        for (to, from) in request.ifr_name.iter_mut().zip(name.as_bytes()) {
            *to = *from as libc::c_char;
        }
        Self(request)
    }

    /// Submits the request by a socket of the interface's namespace, or by the control file of TAP devices.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn submit(&mut self, to: &impl AsRawFd, call: Call) -> io::Result<()> {
        // SAFETY: each `Call` takes a pointer to an `ifreq` and follows no pointer in it. The structure is initialised
        // and lives until the call returns.
        check(unsafe { libc::ioctl(to.as_raw_fd(), call.0, &raw mut self.0) })
    }

    /// Makes the interface's driver fill in `query`. `to` is a socket of the interface's namespace.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn query_driver<T: DriverQuery>(&mut self, to: &impl AsRawFd, query: &mut T) -> io::Result<()> {
        self.0.ifr_ifru.ifru_data = std::ptr::from_mut(query).cast();
        // SAFETY: the kernel writes the structure to which the pointer leads, and no more (`DriverQuery`). Both
        // structures live until the call returns.
        check(unsafe { libc::ioctl(to.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut self.0) })
    }
}

/// A call whose argument is an `ifreq` without pointers.
#[derive(Clone, Copy)]
pub(crate) struct Call(libc::Ioctl);

impl Call {
    pub(crate) const GET_INDEX: Self = Self(libc::SIOCGIFINDEX as libc::Ioctl);
    pub(crate) const GET_FLAGS: Self = Self(libc::SIOCGIFFLAGS as libc::Ioctl);
    pub(crate) const SET_FLAGS: Self = Self(libc::SIOCSIFFLAGS as libc::Ioctl);
    pub(crate) const GET_MTU: Self = Self(libc::SIOCGIFMTU as libc::Ioctl);
    pub(crate) const SET_MTU: Self = Self(libc::SIOCSIFMTU as libc::Ioctl);
    pub(crate) const GET_MAC: Self = Self(libc::SIOCGIFHWADDR as libc::Ioctl);
    pub(crate) const SET_MAC: Self = Self(libc::SIOCSIFHWADDR as libc::Ioctl);
    pub(crate) const SET_ADDRESS: Self = Self(libc::SIOCSIFADDR as libc::Ioctl);
    pub(crate) const SET_NETMASK: Self = Self(libc::SIOCSIFNETMASK as libc::Ioctl);
    /// On the control file of TAP devices: creates a device.
    pub(crate) const CREATE_TAP: Self = Self(libc::TUNSETIFF as libc::Ioctl);
}

/// A structure that `ioctl(SIOCETHTOOL)` fills in.
///
/// # Safety
/// The first word is a command that makes the kernel write at most the length of the structure. For each value of the
/// bytes that the kernel writes, the structure is valid.
pub(crate) unsafe trait DriverQuery {}

/// Queries interfaces in the network namespace in which the value was created, from any thread.
pub(crate) struct Control(OwnedFd);

impl Control {
    /// Creates a value for the network namespace of the calling thread.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn new() -> io::Result<Self> {
        socket(libc::AF_INET).map(Self)
    }

    /// Returns the interface's index, or `None` if no interface has this name.
    ///
    /// # Errors
    /// Returns other errors of the system.
    pub(crate) fn index(&self, name: &InterfaceName) -> io::Result<Option<u32>> {
        let mut request = Request::new(name);
        match request.submit(&self.0, Call::GET_INDEX) {
            // SAFETY: the whole union was initialised, and this call fills in the index.
            Ok(()) => Ok(Some(unsafe { request.0.ifr_ifru.ifru_ifindex } as u32)),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the interface's present state, or `None` if no interface has this name.
    ///
    /// # Errors
    /// Returns other errors of the system.
    pub(crate) fn state(&self, name: &InterfaceName) -> io::Result<Option<State>> {
        let Some(index) = self.index(name)? else { return Ok(None) };
        let query = |call| {
            let mut request = Request::new(name);
            request.submit(&self.0, call).map(|()| request.0.ifr_ifru)
        };
        let responses = (|| Ok((query(Call::GET_FLAGS)?, query(Call::GET_MTU)?, query(Call::GET_MAC)?)))();
        let (flags, mtu, address) = match responses {
            Ok(responses) => responses,
            // The interface was removed between the calls.
            Err(error) if matches!(io::Error::raw_os_error(&error), Some(libc::ENODEV | libc::ENXIO)) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        // SAFETY: each union was initialised as a whole, and these calls fill in flags, length and address.
        let (flags, mtu, address) = unsafe { (flags.ifru_flags, mtu.ifru_mtu, address.ifru_hwaddr) };
        let flags = i32::from(flags);
        Ok(Some(State {
            index,
            mtu: mtu.max(0) as usize,
            mac: MacAddress(std::array::from_fn(|at| address.sa_data[at] as u8)),
            ethernet: matches!(address.sa_family, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK),
            up: flags & libc::IFF_UP != 0,
            running: flags & libc::IFF_RUNNING != 0,
        }))
    }
}

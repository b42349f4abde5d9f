//! What the kernel is asked of an interface, and told: `ioctl` calls by an interface's name (`netdevice(7)`).

#![expect(unsafe_code, reason = "what an interface is configured with has no other way into the kernel than ioctl")]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use forebay_packet::wire::ethernet::MacAddress;

use super::{InterfaceName, State};

/// What a system call said.
///
/// # Errors
/// It failed.
pub(crate) fn check(outcome: libc::c_int) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A socket to configure interfaces through.
pub(crate) fn socket(family: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    let descriptor = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    check(descriptor)?;
    // SAFETY: the kernel has just given it, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A request about one interface.
pub(crate) struct Request(pub(crate) libc::ifreq);

impl Request {
    /// One that says nothing but the interface's name.
    pub(crate) fn new(name: &InterfaceName) -> Self {
        // SAFETY: all zeros is a value of every field of the structure and of its union: integers and a null pointer.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        // A name is shorter than the field, so that a zero ends it.
        for (to, from) in request.ifr_name.iter_mut().zip(name.as_bytes()) {
            *to = *from as libc::c_char;
        }
        Self(request)
    }

    /// Submits it by a socket of the namespace that the interface is in.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn submit(&mut self, to: &impl AsRawFd, call: impl TryInto<libc::Ioctl>) -> io::Result<()> {
        let call = call.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: every call that is made here takes a pointer to an `ifreq`, which is initialised and lives until the
        // call returns; the kernel writes nothing beyond it.
        check(unsafe { libc::ioctl(to.as_raw_fd(), call, &raw mut self.0) })
    }
}

/// Asks of interfaces in the network namespace that it was made in, from whatever thread.
pub(crate) struct Control(OwnedFd);

impl Control {
    /// One for the namespace that the calling thread is in.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn here() -> io::Result<Self> {
        socket(libc::AF_INET).map(Self)
    }

    /// The interface's number; `None` where there is none of that name.
    ///
    /// # Errors
    /// What else the system says.
    pub(crate) fn index(&self, name: &InterfaceName) -> io::Result<Option<u32>> {
        let mut request = Request::new(name);
        match request.submit(&self.0, libc::SIOCGIFINDEX) {
            // SAFETY: all of the union was initialised, and this call fills in the index.
            Ok(()) => Ok(Some(unsafe { request.0.ifr_ifru.ifru_ifindex } as u32)),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What the interface is like now; `None` where there is none of that name.
    ///
    /// # Errors
    /// What else the system says.
    pub(crate) fn state(&self, name: &InterfaceName) -> io::Result<Option<State>> {
        let Some(index) = self.index(name)? else { return Ok(None) };
        let ask = |call| {
            let mut request = Request::new(name);
            request.submit(&self.0, call).map(|()| request.0.ifr_ifru)
        };
        let told = (|| Ok((ask(libc::SIOCGIFFLAGS)?, ask(libc::SIOCGIFMTU)?, ask(libc::SIOCGIFHWADDR)?)))();
        let (flags, mtu, address) = match told {
            Ok(told) => told,
            // It went away in between.
            Err(error) if matches!(io::Error::raw_os_error(&error), Some(libc::ENODEV | libc::ENXIO)) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        // SAFETY: all of each union was initialised, and these calls fill in flags, length and address.
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

//! A filter of the kernel's traffic control that runs a program on every frame that an interface receives
//! (`tc-bpf(8)`). Forebay configures it by rtnetlink(7). It is used on kernels before 6.6, which have no `tcx` link.

#![expect(unsafe_code, reason = "netlink messages go through sockets that the standard library does not have")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::interface::request::check;

/// The priority that identifies the filter among the filters of the interface.
const PRIORITY: u32 = 0xfb;
/// The handle that identifies the filter, together with [`PRIORITY`].
const HANDLE: u32 = 0xfb;
/// `TC_H_CLSACT`, the parent of the qdisc (`include/uapi/linux/pkt_sched.h`).
const CLSACT: u32 = 0xffff_fff1;
/// The ingress part of the qdisc, `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)`.
const INGRESS: u32 = 0xffff_fff2;
/// The handle of the qdisc: the major number of [`CLSACT`].
const CLSACT_HANDLE: u32 = 0xffff_0000;
/// Attributes (`include/uapi/linux/rtnetlink.h`, `include/uapi/linux/pkt_cls.h`).
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
/// `TCA_BPF_FLAG_ACT_DIRECT`: the result of the program is the action of traffic control for the frame.
const ACT_DIRECT: u32 = 1;

/// A filter at an interface. Dropping the value removes the filter.
pub(super) struct Filter {
    /// A socket of the interface's network namespace. It is kept for the removal of the filter.
    netlink: Netlink,
    /// The index of the interface.
    index: u32,
    /// The ownership of the filter. It is dropped after [`Filter::drop`] has removed the filter, so that no other
    /// process adds a filter before.
    _owner: Owner,
}

impl Filter {
    /// Runs the program on every frame that the interface receives. Replaces a filter that a terminated process has
    /// left. `index` is an interface in the network namespace of the calling thread, and `program` the descriptor of a
    /// loaded program.
    ///
    /// # Errors
    /// Returns the system's error. Returns `AddrInUse` if another process that is alive owns the filter of this
    /// interface.
    pub(super) fn attach(index: u32, program: RawFd) -> io::Result<Self> {
        let owner = Owner::claim(index)?;
        let mut netlink = Netlink::open()?;
        let kind = attribute(TCA_KIND, b"clsact\0");
        let create = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        match netlink.request(message(libc::RTM_NEWQDISC, create, [index, CLSACT_HANDLE, CLSACT, 0], &kind)) {
            // The qdisc exists already, with filters of other programs.
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
            other => other?,
        }
        let options = [
            attribute(TCA_BPF_FD, &program.to_ne_bytes()),
            attribute(TCA_BPF_NAME, b"forebay\0"),
            attribute(TCA_BPF_FLAGS, &ACT_DIRECT.to_ne_bytes()),
        ];
        let body = [attribute(TCA_KIND, b"bpf\0"), attribute(TCA_OPTIONS, &options.concat())].concat();
        netlink.request(message(libc::RTM_NEWTFILTER, libc::NLM_F_CREATE, filter_ids(index), &body))?;
        Ok(Self { netlink, index, _owner: owner })
    }

    /// Leaves the filter at the interface, as a killed process does.
    #[cfg(test)]
    pub(super) fn leave_behind(mut self) {
        // No interface has the index 0.
        let index = std::mem::take(&mut self.index);
        drop(self);
        await_no_owner(index);
    }
}

impl Drop for Filter {
    /// Removes the filter. The qdisc is not removed, because other programs may have added filters in the meantime, and
    /// an empty qdisc has no effect.
    fn drop(&mut self) {
        let _ = self.netlink.request(removal(self.index));
    }
}

/// Removes the filter that a terminated process has left on the interface. Does not remove a filter whose process is
/// alive. Returns true if a filter was removed.
pub(super) fn remove_leftover(index: u32) -> bool {
    // While this process owns the interface's filter, no other process of Forebay adds a filter.
    let Ok(_owner) = Owner::claim(index) else { return false };
    Netlink::open().and_then(|mut netlink| netlink.request(removal(index))).is_ok()
}

/// The ownership of an interface's filter by this process. It is a socket with a name (`unix(7)`, abstract) in the
/// interface's network namespace. When the process ends, the kernel closes the socket, and the ownership ends.
struct Owner {
    _socket: UnixDatagram,
}

impl Owner {
    /// Returns the name of the socket. Processes of other versions of Forebay must use the same name.
    fn name(index: u32) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(format!("forebay clsact {index}"))
    }

    /// Makes this process the owner, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Returns an error if another live process is the owner, or the system's error.
    fn claim(index: u32) -> io::Result<Self> {
        match UnixDatagram::bind_addr(&Self::name(index)?) {
            Ok(socket) => Ok(Self { _socket: socket }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Err(io::Error::new(io::ErrorKind::AddrInUse, "another process has a filter on this interface"))
            }
            Err(error) => Err(error),
        }
    }
}

/// Waits until the interface has no owner. A child process that another test starts inherits this process's sockets for
/// a moment.
#[cfg(test)]
pub(super) fn await_no_owner(index: u32) {
    let start = std::time::Instant::now();
    let owned = || UnixDatagram::unbound()?.connect_addr(&Owner::name(index)?);
    while owned().is_ok() && start.elapsed() < std::time::Duration::from_secs(20) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Returns the request to remove the filter.
fn removal(index: u32) -> Vec<u8> {
    message(libc::RTM_DELTFILTER, 0, filter_ids(index), &attribute(TCA_KIND, b"bpf\0"))
}

/// Returns the four numbers that identify the filter in a [`message`]: the interface, the handle, the parent, and the
/// priority with the protocol.
fn filter_ids(index: u32) -> [u32; 4] {
    [index, HANDLE, INGRESS, PRIORITY << 16 | u32::from((libc::ETH_P_ALL as u16).to_be())]
}

/// Returns an attribute with its padding (`struct rtattr`).
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((4 + value.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Returns a request (`struct nlmsghdr`) for traffic control (`struct tcmsg`). `rest` is `tcm_info`.
/// [`Netlink::request`] sets the sequence number.
fn message(kind: u16, flags: libc::c_int, [index, handle, parent, rest]: [u32; 4], body: &[u8]) -> Vec<u8> {
    const HEADERS: usize = 16 + 20;
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16;
    let mut bytes = Vec::new();
    bytes.extend(((HEADERS + body.len()) as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    // The sequence number (set before sending), the sender's port (chosen by the kernel), and the address family with
    // its padding are all 0.
    bytes.extend([0; 12]);
    for field in [index, handle, parent, rest] {
        bytes.extend(field.to_ne_bytes());
    }
    bytes.extend(body);
    bytes
}

/// A routing netlink socket of the network namespace in which it was created.
struct Netlink {
    socket: OwnedFd,
    /// The sequence number of the last request.
    sequence: u32,
}

impl Netlink {
    /// Opens a socket in the network namespace of the calling thread.
    fn open() -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let socket =
            unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE) };
        check(socket)?;
        // SAFETY: the kernel has just returned the descriptor, and nothing else owns it.
        Ok(Self { socket: unsafe { OwnedFd::from_raw_fd(socket) }, sequence: 0 })
    }

    /// Sends a request built by [`message`], and waits for the kernel's response. The kernel has executed the request
    /// when the call returns.
    fn request(&mut self, mut request: Vec<u8>) -> io::Result<()> {
        let socket = self.socket.as_raw_fd();
        self.sequence = self.sequence.wrapping_add(1);
        request[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        // SAFETY: the bytes are readable for their length until the call returns.
        uninterrupted(|| unsafe { libc::send(socket, request.as_ptr().cast(), request.len(), 0) })?;
        let mut bytes = [0u8; 4_096];
        loop {
            // SAFETY: the bytes are writable for their length until the call returns.
            let length = uninterrupted(|| unsafe { libc::recv(socket, bytes.as_mut_ptr().cast(), bytes.len(), 0) })?;
            if let Some(response) = response(&bytes[..length], self.sequence) {
                return response;
            }
        }
    }
}

/// Makes a system call, and repeats it as long as signals interrupt it. Returns its result, which is not negative.
fn uninterrupted(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        if let Ok(length) = usize::try_from(call()) {
            return Ok(length);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Returns the kernel's response to the request with this sequence number, or `InvalidData` if the message has no error
/// code. Returns `None` if the message belongs to another request.
fn response(bytes: &[u8], sequence: u32) -> Option<io::Result<()>> {
    let word = |at: usize| bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map(i32::from_ne_bytes);
    if word(8).is_some_and(|number| number as u32 != sequence) {
        return None;
    }
    // A response (`struct nlmsgerr`) has an error code after its header of 16 bytes: a negative error number, or 0 for
    // success.
    let kind = bytes.get(4..6).and_then(|kind| kind.try_into().ok()).map(u16::from_ne_bytes);
    let code = word(16).filter(|_| kind.map(libc::c_int::from) == Some(libc::NLMSG_ERROR));
    Some(match code {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::from(io::ErrorKind::InvalidData)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct tcmsg` begins with one byte for the address family and three bytes of padding.
    #[test]
    fn a_request_has_the_kernels_layout() {
        let bytes = message(45, 0, [7, 0xfb, 0xffff_fff2, 0x00fb_0300], &attribute(1, b"bpf\0"));
        assert_eq!(bytes.len(), 16 + 20 + 8);
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four"));
        assert_eq!([word(0), word(20), word(24), word(28), word(32)], [44, 7, 0xfb, 0xffff_fff2, 0x00fb_0300]);
        assert_eq!(&bytes[36..], [&8u16.to_ne_bytes()[..], &1u16.to_ne_bytes(), b"bpf\0"].concat());
        assert_eq!(attribute(7, b"abcde").len(), 12);
    }

    /// Returns a response with this sequence number and code.
    fn error_message(kind: u16, sequence: u32, code: i32) -> Vec<u8> {
        let header = [&20u32.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 2], &sequence.to_ne_bytes(), &[0; 4]];
        [&header.concat()[..], &code.to_ne_bytes()].concat()
    }

    #[test]
    fn a_response_to_another_request_is_skipped() {
        assert!(response(&error_message(2, 6, 0), 7).is_none());
        assert!(response(&error_message(2, 7, 0), 7).expect("the response matches").is_ok());
        let error = response(&error_message(2, 7, -libc::EPERM), 7).expect("the response matches").expect_err("a code");
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        for bytes in [&error_message(3, 7, 0)[..], &error_message(2, 7, 0)[..16], &[]] {
            let error = response(bytes, 7).expect("the response is final").expect_err("none");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn a_call_that_a_signal_interrupts_is_made_again() {
        let mut codes = vec![libc::EPERM, libc::EINTR, libc::EINTR];
        let mut call = || {
            // SAFETY: the location belongs to this thread.
            unsafe { *libc::__errno_location() = codes.pop().unwrap_or(0) };
            -1
        };
        assert_eq!(uninterrupted(&mut call).expect_err("the third").raw_os_error(), Some(libc::EPERM));
        assert_eq!((codes.len(), uninterrupted(|| 9).expect("a length")), (0, 9));
    }

    /// Kernels from 6.6 on use no such filter. Therefore, this tests only the decision whether the filter is removed.
    #[test]
    fn a_filter_whose_process_lives_is_left() {
        // An index that no interface and no other test uses.
        let index = u32::MAX - 2 * std::process::id();
        let owner = Owner::claim(index).expect("it has no owner");
        assert_eq!(Owner::claim(index).err().map(|error| error.kind()), Some(io::ErrorKind::AddrInUse));
        assert!(!remove_leftover(index));
        assert!(Owner::claim(index - 1).is_ok(), "another interface");
        drop(owner);
        await_no_owner(index);
        assert!(Owner::claim(index).is_ok(), "the owner is gone");
    }
}

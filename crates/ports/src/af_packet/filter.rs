//! A filter of the kernel's traffic control that runs a program on what an interface receives (`tc-bpf(8)`), by
//! rtnetlink(7).

#![expect(unsafe_code, reason = "netlink messages go through sockets that the standard library does not have")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::interface::request::check;

/// The priority and the handle that identify the filter among others of the interface.
const PRIORITY: u32 = 0xfb;
const HANDLE: u32 = 0xfb;
/// `TC_H_CLSACT` with the whole and the ingress part, the qdisc's own handle (`include/uapi/linux/pkt_sched.h`).
const CLSACT: u32 = 0xffff_fff1;
const INGRESS: u32 = 0xffff_fff2;
const CLSACT_HANDLE: u32 = 0xffff_0000;
/// Attributes (`include/uapi/linux/rtnetlink.h`, `include/uapi/linux/pkt_cls.h`).
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
/// The program's result is what happens to the frame.
const ACT_DIRECT: u32 = 1;

/// A filter, which is removed with the value.
pub(super) struct Filter {
    netlink: Netlink,
    index: u32,
}

impl Filter {
    /// Has the interface run the program on every frame that it receives. A filter of the same number that another
    /// process left is replaced.
    pub(super) fn put(index: u32, program: RawFd) -> io::Result<Self> {
        let netlink = Netlink::here()?;
        let kind = attribute(TCA_KIND, b"clsact\0");
        let create = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        match netlink.ask(&message(libc::RTM_NEWQDISC, create, [index, CLSACT_HANDLE, CLSACT, 0], &kind)) {
            // Somebody else's filters are there already.
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
            other => other?,
        }
        let options = [
            attribute(TCA_BPF_FD, &program.to_ne_bytes()),
            attribute(TCA_BPF_NAME, b"forebay\0"),
            attribute(TCA_BPF_FLAGS, &ACT_DIRECT.to_ne_bytes()),
        ];
        let body = [attribute(TCA_KIND, b"bpf\0"), attribute(TCA_OPTIONS, &options.concat())].concat();
        netlink.ask(&message(libc::RTM_NEWTFILTER, libc::NLM_F_CREATE, ours(index), &body))?;
        Ok(Self { netlink, index })
    }
}

impl Drop for Filter {
    /// The qdisc stays: others may have put filters there meanwhile, and an empty one does nothing.
    fn drop(&mut self) {
        let _ = self.netlink.ask(&message(libc::RTM_DELTFILTER, 0, ours(self.index), &attribute(TCA_KIND, b"bpf\0")));
    }
}

/// Removes the filter that a process has left on the interface; whether there was one.
pub(super) fn remove_leftover(index: u32) -> bool {
    let remove = message(libc::RTM_DELTFILTER, 0, ours(index), &attribute(TCA_KIND, b"bpf\0"));
    Netlink::here().and_then(|netlink| netlink.ask(&remove)).is_ok()
}

/// Interface, handle, parent and priority with protocol of the filter.
fn ours(index: u32) -> [u32; 4] {
    [index, HANDLE, INGRESS, PRIORITY << 16 | u32::from((libc::ETH_P_ALL as u16).to_be())]
}

/// An attribute with its padding (`struct rtattr`).
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((4 + value.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A request (`struct nlmsghdr`) about a part of traffic control (`struct tcmsg`).
fn message(kind: u16, flags: libc::c_int, [index, handle, parent, rest]: [u32; 4], body: &[u8]) -> Vec<u8> {
    const HEADERS: usize = 16 + 20;
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16;
    let mut bytes = Vec::new();
    bytes.extend(((HEADERS + body.len()) as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    // A number for the request, the sender's (the kernel chooses), and the family of addresses with its padding: all 0.
    bytes.extend([0; 12]);
    for field in [index, handle, parent, rest] {
        bytes.extend(field.to_ne_bytes());
    }
    bytes.extend(body);
    bytes
}

/// A socket to the kernel's routing, of the network namespace in which it was made.
struct Netlink(OwnedFd);

impl Netlink {
    fn here() -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let socket =
            unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE) };
        check(socket)?;
        // SAFETY: the kernel has just given it, and nobody else has it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(socket) }))
    }

    /// Sends a request, and waits for what the kernel says to it: it has done so when the call returns.
    fn ask(&self, request: &[u8]) -> io::Result<()> {
        let socket = self.0.as_raw_fd();
        // SAFETY: the bytes are readable for their length until the call returns.
        let sent = unsafe { libc::send(socket, request.as_ptr().cast(), request.len(), 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut answer = [0; 4_096];
        // SAFETY: the bytes are writable for their length until the call returns.
        let length = unsafe { libc::recv(socket, answer.as_mut_ptr().cast(), answer.len(), 0) };
        if length < 0 {
            return Err(io::Error::last_os_error());
        }
        // Behind its header (16 bytes) the answer (`NLMSG_ERROR`) has a negative error, or 0.
        let told = answer.get(16..20).filter(|_| length >= 20).and_then(|bytes| bytes.try_into().ok());
        match told.map(i32::from_ne_bytes) {
            Some(0) => Ok(()),
            Some(error) => Err(io::Error::from_raw_os_error(-error)),
            None => Err(io::Error::from(io::ErrorKind::InvalidData)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct tcmsg` begins with one byte of a family and three of padding.
    #[test]
    fn a_request_has_the_kernels_layout() {
        let bytes = message(45, 0, [7, 0xfb, 0xffff_fff2, 0x00fb_0300], &attribute(1, b"bpf\0"));
        assert_eq!(bytes.len(), 16 + 20 + 8);
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four"));
        assert_eq!([word(0), word(20), word(24), word(28), word(32)], [44, 7, 0xfb, 0xffff_fff2, 0x00fb_0300]);
        assert_eq!(&bytes[36..], [&8u16.to_ne_bytes()[..], &1u16.to_ne_bytes(), b"bpf\0"].concat());
        assert_eq!(attribute(7, b"abcde").len(), 12);
    }
}

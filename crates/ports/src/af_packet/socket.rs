//! Packet sockets and the memory that they share with the kernel (`packet(7)`, Linux `Documentation/networking/packet_mmap`).
//!
//! A part of a ring is the kernel's or ours, as a word in it says; here it is seen to that only what is ours is looked at.

#![expect(unsafe_code, reason = "memory that is shared with the kernel, and options of sockets, have no safe way")]

use std::ffi::c_void;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::interface::request::check;

use super::params::Ring;

/// What precedes a frame that is to be sent, beside the kernel's own header: a `virtio_net_hdr`.
const VIRTIO: usize = 10;
/// Where the kernel looks for what is to be sent, from a slot's start (`tpacket_snd`): behind its header.
const SLOT_HEADER: usize = libc::TPACKET2_HDRLEN - size_of::<libc::sockaddr_ll>();
/// Where `tp_status` is in a slot's header.
const SLOT_STATUS: usize = mem::offset_of!(libc::tpacket2_hdr, tp_status);
/// Where `tp_len` is.
const SLOT_LENGTH: usize = mem::offset_of!(libc::tpacket2_hdr, tp_len);
/// Where `block_status` is in a block (`tpacket_block_desc`).
const BLOCK_STATUS: usize = 8;

/// A packet socket: it receives nothing until it is bound with a protocol.
pub struct Socket(OwnedFd);

impl Socket {
    /// A socket of the network namespace that the calling thread is in.
    pub fn new() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory is involved.
        let descriptor = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        check(descriptor)?;
        // SAFETY: the kernel has just given it, and nobody else has it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Sets an option whose value is a plain structure of the kernel's.
    fn set<T: Copy>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        let length = size_of::<T>() as libc::socklen_t;
        // SAFETY: the value is readable for its length until the call returns.
        check(unsafe {
            libc::setsockopt(self.0.as_raw_fd(), level, option, ptr::from_ref(value).cast::<c_void>(), length)
        })
    }

    /// Sets an option of packet sockets that is a number.
    pub fn set_number(&self, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
        self.set(libc::SOL_PACKET, option, &value)
    }

    /// Lets as much as this wait to be sent; as much as is allowed where it is more.
    pub fn set_send_memory(&self, bytes: usize) -> io::Result<()> {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        let forced = self.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes);
        forced.or_else(|_| self.set(libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes))
    }

    /// Ties the socket to an interface. With `receives`, all frames that come in there are its own from now on.
    /// Without, a socket that never received does not.
    pub fn bind(&self, index: u32, receives: bool) -> io::Result<()> {
        // SAFETY: all zeros is a value of every field, integers all of them.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = if receives { (libc::ETH_P_ALL as u16).to_be() } else { 0 };
        address.sll_ifindex = index as libc::c_int;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address is readable for its length until the call returns.
        check(unsafe { libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), length) })
    }

    /// Receives nothing from now on: a filter that takes nothing. (A protocol cannot be taken from a bound socket.)
    pub fn silence(&self) -> io::Result<()> {
        let mut program = [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];
        // The pointer is good until the call has returned, and the kernel only reads by it.
        let filter = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
    }

    /// Receives frames for any address, or no longer. It ends with the socket, or with the interface.
    pub fn set_promiscuous(&self, index: u32, on: bool) -> io::Result<()> {
        let request = libc::packet_mreq {
            mr_ifindex: index as libc::c_int,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        let option = if on { libc::PACKET_ADD_MEMBERSHIP } else { libc::PACKET_DROP_MEMBERSHIP };
        self.set(libc::SOL_PACKET, option, &request)
    }

    /// How many frames the kernel has put into the ring since this was last asked, and how many found it full.
    pub fn counts(&self) -> io::Result<(u32, u32)> {
        // SAFETY: all zeros is a value of every field, integers all of them.
        let mut told: libc::tpacket_stats_v3 = unsafe { mem::zeroed() };
        let mut length = size_of::<libc::tpacket_stats_v3>() as libc::socklen_t;
        let (descriptor, option) = (self.0.as_raw_fd(), libc::PACKET_STATISTICS);
        // SAFETY: the structure is writable for its length until the call returns.
        check(unsafe {
            libc::getsockopt(descriptor, libc::SOL_PACKET, option, (&raw mut told).cast(), &raw mut length)
        })?;
        // The first number has both.
        Ok((told.tp_packets.wrapping_sub(told.tp_drops), told.tp_drops))
    }

    /// The error that waits at the socket, if there is one, which is taken away.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        let (mut told, mut length): (libc::c_int, _) = (0, size_of::<libc::c_int>() as libc::socklen_t);
        let descriptor = self.0.as_raw_fd();
        // SAFETY: the number is writable for its length until the call returns.
        check(unsafe {
            libc::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut told).cast(), &raw mut length)
        })?;
        Ok((told != 0).then(|| io::Error::from_raw_os_error(told)))
    }

    /// Has the kernel send what is in the ring.
    #[inline]
    fn kick(&self) -> io::Result<()> {
        // SAFETY: nothing is read or written by way of the null pointers, whose lengths are 0.
        let sent = unsafe { libc::sendto(self.0.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn map(&self, length: usize) -> io::Result<Mapping> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let base = unsafe { libc::mmap(ptr::null_mut(), length, access, kind, self.0.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at 0 unasked");
        Ok(Mapping { base, length })
    }
}

/// A ring's memory. It goes with the value.
struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory is the mapping's own, whichever thread has it, and nothing in it belongs to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// A word that says whose a part of the ring is.
    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.length, "a word of the ring");
        // SAFETY: within the mapping and aligned, as was just seen; it is written by atomic stores alone, here and by the
        // kernel.
        unsafe { self.base.add(at).cast::<AtomicU32>().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no reference into it outlives the value.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// A ring of blocks that the kernel fills with frames (TPACKET_V3).
pub struct ReceiveRing {
    map: Mapping,
    block: usize,
    blocks: usize,
}

impl ReceiveRing {
    /// Gives the socket its ring.
    pub fn new(socket: &Socket, sizes: &Ring) -> io::Result<Self> {
        socket.set_number(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V3 as libc::c_int)?;
        socket.set_number(libc::PACKET_VNET_HDR, 1)?;
        let (block, blocks) = (sizes.block.0 as u32, sizes.blocks);
        // Of no meaning here but that the block must be a multiple of it.
        const FRAME: u32 = 2_048;
        let request = libc::tpacket_req3 {
            tp_block_size: block,
            tp_block_nr: blocks,
            tp_frame_size: FRAME,
            tp_frame_nr: block / FRAME * blocks,
            tp_retire_blk_tov: (sizes.retire.0 / 1_000_000) as u32,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        socket.set(libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let map = socket.map(block as usize * blocks as usize)?;
        Ok(Self { map, block: block as usize, blocks: blocks as usize })
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// A block, where it is ours.
    #[inline]
    pub fn block(&self, number: usize) -> Option<&[u8]> {
        assert!(number < self.blocks, "a block of the ring");
        let start = number * self.block;
        if self.map.word(start + BLOCK_STATUS).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: within the mapping. The kernel has written all that it writes before it said that the block is ours, and
        // writes nothing until it is given back, for which the ring is needed alone.
        Some(unsafe { std::slice::from_raw_parts(self.map.base.add(start).as_ptr(), self.block) })
    }

    /// Gives a block back to the kernel.
    #[inline]
    pub fn give_back(&mut self, number: usize) {
        assert!(number < self.blocks, "a block of the ring");
        self.map.word(number * self.block + BLOCK_STATUS).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

/// Whose a slot of a send ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Ours.
    Free,
    /// Wants to be sent, and the kernel has not begun.
    Wanted,
    /// The kernel has it.
    Sending,
    /// The kernel will not send what is in it.
    Wrong,
}

/// A ring of slots from which the kernel sends frames (TPACKET_V2: slots are of one size in version 3, too, whose header is
/// longer).
pub struct SendRing {
    socket: Socket,
    map: Mapping,
    slot: usize,
    slots: usize,
}

impl SendRing {
    /// A ring for so many frames of up to `longest` bytes, for a socket that only sends.
    pub fn new(socket: Socket, slots: u32, longest: usize) -> io::Result<Self> {
        let slot = (SLOT_HEADER + VIRTIO + longest).next_power_of_two().max(2_048);
        socket.set_number(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as libc::c_int)?;
        // Behind such a header, which says that all of the frame is header, the kernel copies all of it. It would refer to
        // the ring's page otherwise, and where another interface receives the frame at once (veth) copy it after all, into
        // a page that it takes for it: 1.3 times as dear.
        socket.set_number(libc::PACKET_VNET_HDR, 1)?;
        // A block is one stretch of the kernel's memory.
        let block = slot.max(32 << 10).min(slot * slots as usize);
        let blocks = slot * slots as usize / block;
        let request = libc::tpacket_req {
            tp_block_size: block as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: slot as u32,
            tp_frame_nr: slots,
        };
        socket.set(libc::SOL_PACKET, libc::PACKET_TX_RING, &request)?;
        let map = socket.map(block * blocks)?;
        Ok(Self { socket, map, slot, slots: slots as usize })
    }

    /// The socket.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The longest frame for a slot.
    pub fn longest(&self) -> usize {
        self.slot - SLOT_HEADER - VIRTIO
    }

    /// Whose a slot is.
    #[inline]
    pub fn state(&self, number: usize) -> Slot {
        match self.status(number).load(Ordering::Acquire) {
            libc::TP_STATUS_AVAILABLE => Slot::Free,
            libc::TP_STATUS_SEND_REQUEST => Slot::Wanted,
            status if status & libc::TP_STATUS_WRONG_FORMAT != 0 => Slot::Wrong,
            _ => Slot::Sending,
        }
    }

    #[inline]
    fn status(&self, number: usize) -> &AtomicU32 {
        assert!(number < self.slots, "a slot of the ring");
        self.map.word(number * self.slot + SLOT_STATUS)
    }

    /// Puts a frame into a slot, to be sent when the kernel is told; `false`, and nothing done, where the slot is not free
    /// or too short.
    #[inline]
    pub fn put(&mut self, number: usize, frame: &[u8]) -> bool {
        if self.state(number) != Slot::Free || frame.len() > self.longest() {
            return false;
        }
        let start = number * self.slot;
        let mut header = [0; VIRTIO];
        // `hdr_len`, in the machine's order: all of it.
        header[2..4].copy_from_slice(&(frame.len() as u16).to_ne_bytes());
        // SAFETY: within the slot, which is within the mapping (`state` has looked); the kernel neither reads nor writes a
        // slot that is free, and no reference to its bytes is ever made.
        unsafe {
            let to = self.map.base.add(start + SLOT_HEADER).as_ptr();
            ptr::copy_nonoverlapping(header.as_ptr(), to, VIRTIO);
            ptr::copy_nonoverlapping(frame.as_ptr(), to.add(VIRTIO), frame.len());
        }
        self.map.word(start + SLOT_LENGTH).store((VIRTIO + frame.len()) as u32, Ordering::Relaxed);
        self.status(number).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        true
    }

    /// Takes a frame back that the kernel has not begun to send; it does so only when told.
    pub fn take_back(&mut self, number: usize) {
        if matches!(self.state(number), Slot::Wanted | Slot::Wrong) {
            self.status(number).store(libc::TP_STATUS_AVAILABLE, Ordering::Release);
        }
    }

    /// Has the kernel send what is wanted.
    #[inline]
    pub fn kick(&mut self) -> io::Result<()> {
        self.socket.kick()
    }
}

/// Has the kernel cut what is sent by a UDP socket into datagrams of so many bytes, or leave that to the interface.
#[cfg(test)]
pub fn set_udp_segment(socket: std::os::fd::RawFd, bytes: libc::c_int) -> io::Result<()> {
    let (length, value) = (size_of::<libc::c_int>() as libc::socklen_t, (&raw const bytes).cast::<c_void>());
    // SAFETY: the value is readable for its length until the call returns.
    check(unsafe { libc::setsockopt(socket, libc::SOL_UDP, libc::UDP_SEGMENT, value, length) })
}

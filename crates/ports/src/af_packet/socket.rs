//! Packet sockets and the memory that they share with the kernel (`packet(7)`, Linux
//! `Documentation/networking/packet_mmap`).
//!
//! Each block or slot of a ring has a status word, which determines whether the block or slot belongs to the kernel or
//! to this process. This module accesses only blocks and slots that belong to this process.

#![expect(unsafe_code, reason = "memory that is shared with the kernel, and options of sockets, have no safe way")]

use std::ffi::c_void;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::interface::request::check;

use super::params::RingSizes;

/// The length of a `virtio_net_hdr`, which precedes a frame to send, after the kernel's own header.
const VIRTIO: usize = 10;
/// The offset in a slot at which the kernel expects the data to send (`tpacket_snd`): after its header.
const SLOT_HEADER: usize = libc::TPACKET2_HDRLEN - size_of::<libc::sockaddr_ll>();
/// The offset of `tp_status` in a slot's header.
const SLOT_STATUS: usize = mem::offset_of!(libc::tpacket2_hdr, tp_status);
/// The offset of `tp_len`.
const SLOT_LENGTH: usize = mem::offset_of!(libc::tpacket2_hdr, tp_len);
/// The offset of `block_status` in a block (`tpacket_block_desc`).
const BLOCK_STATUS: usize = 8;

/// A packet socket. It receives nothing until it is [bound](Self::bind) with `receives`.
pub struct Socket(Arc<OwnedFd>);

impl Socket {
    /// Creates a socket in the network namespace of the calling thread. Needs the capability CAP_NET_RAW there.
    pub fn new() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory is involved.
        let descriptor = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        check(descriptor)?;
        // SAFETY: the kernel has just returned the descriptor, and nothing else owns it.
        Ok(Self(Arc::new(unsafe { OwnedFd::from_raw_fd(descriptor) })))
    }

    /// Returns the descriptor of the socket. It becomes readable when the kernel hands over a block.
    pub fn descriptor(&self) -> &Arc<OwnedFd> {
        &self.0
    }

    /// Sets an option. The kernel must expect a plain structure of the type `T` for this option.
    fn set<T: Copy>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        let length = size_of::<T>() as libc::socklen_t;
        // SAFETY: the value is readable for its length until the call returns.
        check(unsafe {
            libc::setsockopt(self.0.as_raw_fd(), level, option, ptr::from_ref(value).cast::<c_void>(), length)
        })
    }

    /// Sets a packet socket option whose value is a number.
    pub fn set_number(&self, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
        self.set(libc::SOL_PACKET, option, &value)
    }

    /// Sets the limit of kernel memory for frames that wait to be sent, in bytes. Without the capability CAP_NET_ADMIN,
    /// the limit is at most the sysctl `net.core.wmem_max`.
    pub fn set_send_memory(&self, bytes: usize) -> io::Result<()> {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        let forced = self.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes);
        forced.or_else(|_| self.set(libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes))
    }

    /// Binds the socket to an interface. With `receives`, the socket receives all frames of the interface from now on.
    /// Without it, a socket that has never received does not start to receive.
    pub fn bind(&self, index: u32, receives: bool) -> io::Result<()> {
        // SAFETY: all fields are integers, for which all zeros is a valid value.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = if receives { (libc::ETH_P_ALL as u16).to_be() } else { 0 };
        address.sll_ifindex = index as libc::c_int;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address is readable for its length until the call returns.
        check(unsafe { libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), length) })
    }

    /// Stops receiving, by a filter that accepts no frame. A filter is necessary, because the protocol of a bound
    /// socket cannot be removed. Frames in the ring stay there.
    pub fn stop(&self) -> io::Result<()> {
        let mut program = [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];
        // The pointer is valid until the call has returned, and the kernel only reads through it.
        let filter = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
    }

    /// Enables or disables the reception of frames for all addresses. The mode ends when the socket is closed or the
    /// interface is deleted. Each call that enables the mode needs one call that disables it.
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

    /// Returns two numbers of frames since the last call: the frames that the kernel has put into the ring, and the
    /// frames that it dropped because the ring was full.
    pub fn counts(&self) -> io::Result<(u32, u32)> {
        // SAFETY: all fields are integers, for which all zeros is a valid value.
        let mut stats: libc::tpacket_stats_v3 = unsafe { mem::zeroed() };
        let mut length = size_of::<libc::tpacket_stats_v3>() as libc::socklen_t;
        let (descriptor, option) = (self.0.as_raw_fd(), libc::PACKET_STATISTICS);
        // SAFETY: the structure is writable for its length until the call returns.
        check(unsafe {
            libc::getsockopt(descriptor, libc::SOL_PACKET, option, (&raw mut stats).cast(), &raw mut length)
        })?;
        // `tp_packets` includes the dropped frames.
        Ok((stats.tp_packets.wrapping_sub(stats.tp_drops), stats.tp_drops))
    }

    /// Returns and clears the pending error of the socket. The kernel sets an error if the interface goes down or is
    /// deleted.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        let (mut code, mut length): (libc::c_int, _) = (0, size_of::<libc::c_int>() as libc::socklen_t);
        let descriptor = self.0.as_raw_fd();
        // SAFETY: the number is writable for its length until the call returns.
        check(unsafe {
            libc::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut code).cast(), &raw mut length)
        })?;
        Ok((code != 0).then(|| io::Error::from_raw_os_error(code)))
    }

    /// Makes the kernel send the frames in the ring, without waiting until they are sent.
    #[inline]
    fn notify(&self) -> io::Result<()> {
        // SAFETY: the null pointers are not accessed, because their lengths are 0.
        let sent = unsafe { libc::sendto(self.0.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Maps the first `length` bytes of the socket's ring. The ring must have been created with at least this length.
    fn map(&self, length: usize) -> io::Result<Mapping> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: this creates a new mapping at an address that the kernel chooses.
        let base = unsafe { libc::mmap(ptr::null_mut(), length, access, kind, self.0.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address 0 without MAP_FIXED");
        Ok(Mapping { base, length })
    }
}

/// The memory of a ring. Dropping the value unmaps it.
struct Mapping {
    /// The start of the mapping, which is aligned to pages.
    base: NonNull<u8>,
    /// The length of the mapping, in bytes.
    length: usize,
}

// SAFETY: the mapping owns its memory, and nothing in it is tied to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Returns a status or length word of the ring. `at` is the offset in bytes.
    ///
    /// # Panics
    /// Panics if the word is not aligned or not within the ring.
    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.length, "an aligned word within the ring");
        // SAFETY: the word is within the mapping and aligned, as just checked. Here and in the kernel it is written
        // only by atomic stores.
        unsafe { self.base.add(at).cast::<AtomicU32>().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no reference into it outlives the value.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// A ring of blocks that the kernel fills with frames (TPACKET_V3).
pub struct ReceiveRing {
    map: Mapping,
    /// The length of a block, in bytes.
    block: usize,
    /// The number of blocks.
    blocks: usize,
}

impl ReceiveRing {
    /// Creates the receive ring of a socket. A socket has at most one. The caller must have checked the limits of
    /// `sizes` ([`Params::check`](super::params::Params::check)).
    pub fn new(socket: &Socket, sizes: &RingSizes) -> io::Result<Self> {
        socket.set_number(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V3 as libc::c_int)?;
        socket.set_number(libc::PACKET_VNET_HDR, 1)?;
        let (block, blocks) = (sizes.block.0 as u32, sizes.blocks);
        // With TPACKET_V3, frames have any length. The kernel only requires that the block is a multiple of this
        // number.
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

    /// Returns the number of blocks.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Returns a block, or `None` if it belongs to the kernel.
    ///
    /// # Panics
    /// Panics if there is no block with this number.
    #[inline]
    pub fn block(&self, number: usize) -> Option<&[u8]> {
        assert!(number < self.blocks, "the block is within the ring");
        let start = number * self.block;
        if self.map.word(start + BLOCK_STATUS).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the block is within the mapping. The kernel finished writing before it handed the block over, and
        // writes again only after the block is returned, which takes `&mut self`.
        Some(unsafe { std::slice::from_raw_parts(self.map.base.add(start).as_ptr(), self.block) })
    }

    /// Returns a block to the kernel, which fills it again. The caller must have finished reading the block.
    #[inline]
    pub fn give_back(&mut self, number: usize) {
        assert!(number < self.blocks, "the block is within the ring");
        self.map.word(number * self.block + BLOCK_STATUS).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

/// The owner and state of a slot of a send ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// The slot belongs to this process, and a frame can be put into it.
    Free,
    /// The slot has a frame to send, and the kernel has not started to send it.
    Waiting,
    /// The kernel is sending the frame of the slot.
    Sending,
    /// The kernel rejects the frame of the slot. The slot must be [taken back](SendRing::take_back).
    Rejected,
}

/// A ring of slots from which the kernel sends frames. It uses TPACKET_V2. Version 3 has no advantage for sending: its
/// slots also have a fixed size, and its header is longer.
pub struct SendRing {
    socket: Socket,
    map: Mapping,
    /// The length of a slot, in bytes.
    slot: usize,
    /// The number of slots.
    slots: usize,
}

impl SendRing {
    /// Creates a ring for `slots` frames of up to `longest` bytes, for a socket that only sends.
    pub fn new(socket: Socket, slots: u32, longest: usize) -> io::Result<Self> {
        let slot = (SLOT_HEADER + VIRTIO + longest).next_power_of_two().max(2_048);
        socket.set_number(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as libc::c_int)?;
        // In the `virtio_net_hdr`, `put` declares the whole frame as header. So the kernel copies the frame at once.
        // Without this, the kernel would refer to the ring's page, and would copy the frame into a newly allocated page
        // if another interface receives the frame at once (veth). That costs 1.3 times as much.
        socket.set_number(libc::PACKET_VNET_HDR, 1)?;
        // A block is contiguous kernel memory, so it is kept small: 32 KiB, or one slot if a slot is longer.
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

    /// Returns the socket.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Returns the length of the longest frame that fits into a slot.
    pub fn longest(&self) -> usize {
        self.slot - SLOT_HEADER - VIRTIO
    }

    /// Returns the state of a slot.
    ///
    /// # Panics
    /// Panics if there is no slot with this number.
    #[inline]
    pub fn state(&self, number: usize) -> SlotState {
        match self.status(number).load(Ordering::Acquire) {
            libc::TP_STATUS_AVAILABLE => SlotState::Free,
            libc::TP_STATUS_SEND_REQUEST => SlotState::Waiting,
            status if status & libc::TP_STATUS_WRONG_FORMAT != 0 => SlotState::Rejected,
            _ => SlotState::Sending,
        }
    }

    /// Returns the status word of a slot.
    #[inline]
    fn status(&self, number: usize) -> &AtomicU32 {
        assert!(number < self.slots, "the slot is within the ring");
        self.map.word(number * self.slot + SLOT_STATUS)
    }

    /// Copies a frame into a slot. The next [`notify`](Self::notify) sends it. Returns `false` and does nothing if the
    /// slot is not free or the frame is too long.
    #[inline]
    pub fn put(&mut self, number: usize, frame: &[u8]) -> bool {
        if self.state(number) != SlotState::Free || frame.len() > self.longest() {
            return false;
        }
        let start = number * self.slot;
        let mut header = [0; VIRTIO];
        // `hdr_len`, in host byte order: the whole frame.
        header[2..4].copy_from_slice(&(frame.len() as u16).to_ne_bytes());
        // SAFETY: the range is within the slot, which is within the mapping (`state` has checked the index). The kernel
        // neither reads nor writes a free slot, and no reference to its bytes exists.
        unsafe {
            let to = self.map.base.add(start + SLOT_HEADER).as_ptr();
            ptr::copy_nonoverlapping(header.as_ptr(), to, VIRTIO);
            ptr::copy_nonoverlapping(frame.as_ptr(), to.add(VIRTIO), frame.len());
        }
        self.map.word(start + SLOT_LENGTH).store((VIRTIO + frame.len()) as u32, Ordering::Relaxed);
        self.status(number).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        true
    }

    /// Takes back the frame of a slot that is waiting or rejected, so that the slot is free. Does nothing in other
    /// states. Must not be called during [`notify`](Self::notify), which is when the kernel starts to send.
    pub fn take_back(&mut self, number: usize) {
        if matches!(self.state(number), SlotState::Waiting | SlotState::Rejected) {
            self.status(number).store(libc::TP_STATUS_AVAILABLE, Ordering::Release);
        }
    }

    /// Makes the kernel send the waiting frames. After the call, [`state`](Self::state) reports for each slot whether
    /// the kernel has accepted its frame.
    #[inline]
    pub fn notify(&mut self) -> io::Result<()> {
        self.socket.notify()
    }
}

/// Makes the kernel split the data sent by a UDP socket into datagrams of this many bytes, or leave that to the
/// interface.
#[cfg(test)]
pub fn set_udp_segment(socket: std::os::fd::RawFd, bytes: libc::c_int) -> io::Result<()> {
    let (length, value) = (size_of::<libc::c_int>() as libc::socklen_t, (&raw const bytes).cast::<c_void>());
    // SAFETY: the value is readable for its length until the call returns.
    check(unsafe { libc::setsockopt(socket, libc::SOL_UDP, libc::UDP_SEGMENT, value, length) })
}

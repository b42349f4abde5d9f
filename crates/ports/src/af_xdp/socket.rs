//! An AF_XDP socket: its rings in memory, its ties to the umem and to a queue, and the few system calls of its life.
//!
//! Linux `Documentation/networking/af_xdp.rst`; `net/xdp/xsk.c` for what errors mean.

#![expect(
    unsafe_code,
    reason = "socket options are structures by address, and rings are memory shared with the kernel"
)]

use std::io;
use std::mem::{self, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::ring::{Descriptor, Giving, Parts, Place, Taking};
use super::umem::Umem;

/// How many frames a system call may send (`XDP_MAX_TX_SKB_BUDGET`, since Linux 6.17).
const MAX_TX_SKB_BUDGET: libc::c_int = 9;
/// Memory for frames that the kernel has copied and not sent yet: a ring full of them, with what the kernel adds.
const SEND_BUFFER: libc::c_int = 16 << 20;

/// How many entries rings have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// FILL: frames that the kernel may receive before we look.
    pub fill: u32,
    /// RX: received ones that wait for us.
    pub receive: u32,
    /// TX and COMPLETION.
    pub send: u32,
}

/// The rings of a socket.
pub struct Rings {
    /// Chunks to receive into.
    pub fill: Giving<u64>,
    /// Chunks whose frames were sent.
    pub completion: Taking<u64>,
    /// Frames received.
    pub receive: Taking<Descriptor>,
    /// Frames to be sent, where the socket sends.
    pub send: Option<Giving<Descriptor>>,
}

/// A socket.
pub struct Socket {
    descriptor: Arc<OwnedFd>,
}

impl Socket {
    /// A socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// No right, no memory, no such sockets in the kernel.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let descriptor = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor, which nobody else has.
        Ok(Self { descriptor: Arc::new(unsafe { OwnedFd::from_raw_fd(descriptor) }) })
    }

    /// What keeps it open.
    #[must_use]
    pub fn descriptor(&self) -> &Arc<OwnedFd> {
        &self.descriptor
    }

    /// Says which memory frames are in.
    ///
    /// # Errors
    /// The memory cannot be held in place, or the division of it is not taken.
    pub fn register(&self, umem: &Umem) -> io::Result<()> {
        self.set(libc::SOL_XDP, libc::XDP_UMEM_REG, &umem.registration())
    }

    /// Makes the rings.
    ///
    /// # Errors
    /// What the system says.
    pub fn rings(&self, sizes: Sizes, sends: bool) -> io::Result<Rings> {
        self.set(libc::SOL_XDP, libc::XDP_UMEM_FILL_RING, &sizes.fill)?;
        self.set(libc::SOL_XDP, libc::XDP_UMEM_COMPLETION_RING, &sizes.send)?;
        self.set(libc::SOL_XDP, libc::XDP_RX_RING, &sizes.receive)?;
        if sends {
            self.set(libc::SOL_XDP, libc::XDP_TX_RING, &sizes.send)?;
            // Older kernels have no such option, and send fewer a call.
            let _ = self.set(libc::SOL_XDP, MAX_TX_SKB_BUDGET, &sizes.send.min(256));
            let _ = self.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER);
        }
        let offsets: libc::xdp_mmap_offsets = self.get(libc::XDP_MMAP_OFFSETS)?;
        let map = |at, offsets: &libc::xdp_ring_offset, count, entry| -> io::Result<Arc<dyn Place>> {
            Ok(Arc::new(Mapping::new(&self.descriptor, at, offsets, count, entry)?))
        };
        let (word, frame) = (size_of::<u64>(), size_of::<Descriptor>());
        let completion = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
        Ok(Rings {
            fill: Giving::new(map(libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t, &offsets.fr, sizes.fill, word)?),
            completion: Taking::new(map(completion, &offsets.cr, sizes.send, word)?),
            receive: Taking::new(map(libc::XDP_PGOFF_RX_RING, &offsets.rx, sizes.receive, frame)?),
            send: match sends {
                true => Some(Giving::new(map(libc::XDP_PGOFF_TX_RING, &offsets.tx, sizes.send, frame)?)),
                false => None,
            },
        })
    }

    /// Ties it to a queue of an interface. `flags` say how; with `shared` the memory is that of another socket.
    ///
    /// # Errors
    /// What the system says.
    pub fn bind(&self, interface: u32, queue: u32, flags: u16, shared: Option<&OwnedFd>) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: shared.map_or(flags | libc::XDP_USE_NEED_WAKEUP, |_| libc::XDP_SHARED_UMEM),
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: shared.map_or(0, |other| other.as_raw_fd() as u32),
        };
        let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: the kernel reads the address, of the length said.
        check(unsafe { libc::bind(self.descriptor.as_raw_fd(), (&raw const address).cast(), length) })
    }

    /// Lets the kernel poll the device when we ask, in place of interrupts.
    ///
    /// # Errors
    /// The kernel is older than 5.11, or the right is missing.
    pub fn prefer_busy_poll(&self, budget: u32) -> io::Result<()> {
        const PREFER_BUSY_POLL: libc::c_int = 69;
        const BUSY_POLL_BUDGET: libc::c_int = 70;
        self.set(libc::SOL_SOCKET, PREFER_BUSY_POLL, &1i32)?;
        self.set(libc::SOL_SOCKET, libc::SO_BUSY_POLL, &20i32)?;
        self.set(libc::SOL_SOCKET, BUSY_POLL_BUDGET, &(budget as i32))
    }

    /// What the kernel has counted; of old kernels, what they count.
    ///
    /// # Errors
    /// What the system says.
    pub fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        self.get(libc::XDP_STATISTICS)
    }

    /// Asks the kernel to send what is in TX.
    ///
    /// # Errors
    /// `EAGAIN`: not all; `EBUSY`: the device dropped one; `ENETDOWN`: the interface is down; `ENXIO`: it is gone.
    #[inline]
    pub fn wake_send(&self) -> io::Result<()> {
        let (socket, flags) = (self.descriptor.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: nothing is read: the length is 0.
        check(unsafe { libc::sendto(socket, ptr::null(), 0, flags, ptr::null(), 0) } as libc::c_int)
    }

    /// Asks the kernel to receive; also what tells whether the interface is there.
    ///
    /// # Errors
    /// `ENETDOWN`: the interface is down; `ENXIO`: it is gone.
    #[inline]
    pub fn wake_receive(&self) -> io::Result<()> {
        let (socket, flags) = (self.descriptor.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: nothing is written: the length is 0.
        check(unsafe { libc::recvfrom(socket, ptr::null_mut(), 0, flags, ptr::null_mut(), ptr::null_mut()) }
            as libc::c_int)
    }

    fn set<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        let length = size_of::<T>() as libc::socklen_t;
        let socket = self.descriptor.as_raw_fd();
        // SAFETY: the kernel reads the value, of the length said; all options here are structures of integers.
        check(unsafe { libc::setsockopt(socket, level, option, ptr::from_ref(value).cast(), length) })
    }

    fn get<T: Answer>(&self, option: libc::c_int) -> io::Result<T> {
        let mut length = size_of::<T>() as libc::socklen_t;
        // SAFETY: answers are integers, for which zeros are values.
        let mut value: T = unsafe { mem::zeroed() };
        let (socket, to) = (self.descriptor.as_raw_fd(), (&raw mut value).cast());
        // SAFETY: the kernel writes at most the length said.
        check(unsafe { libc::getsockopt(socket, libc::SOL_XDP, option, to, &raw mut length) })?;
        Ok(value)
    }
}

/// What the kernel answers with: structures of integers.
trait Answer {}
impl Answer for libc::xdp_mmap_offsets {}
impl Answer for libc::xdp_statistics {}

fn check(answer: libc::c_int) -> io::Result<()> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A ring's memory, which the kernel has too.
struct Mapping {
    start: NonNull<u8>,
    length: usize,
    parts: Parts,
}

// SAFETY: memory shared with the kernel, reached by the two sides of a ring.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(
        socket: &OwnedFd,
        at: libc::off_t,
        offsets: &libc::xdp_ring_offset,
        count: u32,
        entry: usize,
    ) -> io::Result<Self> {
        let length = offsets.desc as usize + count as usize * entry;
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping at an address that the kernel chooses touches nothing that exists.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, access, flags, socket.as_raw_fd(), at) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the kernel says where in the mapping its parts are.
        let part = |offset: u64| unsafe { start.add(offset as usize) };
        let parts = Parts {
            given: part(offsets.producer).cast(),
            taken: part(offsets.consumer).cast(),
            flags: part(offsets.flags).cast(),
            entries: part(offsets.desc),
            count,
        };
        Ok(Self { start, length, parts })
    }
}

// SAFETY: the parts are inside the mapping, which is initialised by the kernel, aligned to pages with parts where the kernel
// has them itself, and goes with the value.
unsafe impl Place for Mapping {
    fn parts(&self) -> Parts {
        self.parts
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped, which no side of the ring reaches any more: each has the value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

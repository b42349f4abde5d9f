//! An AF_XDP socket: its rings, its binding to the umem and to a queue, and its system calls.
//!
//! See Linux `Documentation/networking/af_xdp.rst`, and `net/xdp/xsk.c` for the meaning of errors.

#![expect(
    unsafe_code,
    reason = "socket options are structures by address, and rings are memory shared with the kernel"
)]

use std::io;
use std::mem::{self, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::ring::{Consumer, Descriptor, Parts, Producer, RingMemory};
use super::umem::Umem;

/// The option for the largest number of frames that one system call sends (`XDP_MAX_TX_SKB_BUDGET`, since Linux 6.17).
const MAX_TX_SKB_BUDGET: libc::c_int = 9;
/// The size of the kernel's memory, in bytes, for frames that it has copied and not sent yet. It is sufficient for a
/// full ring, with the kernel's overhead.
const SEND_BUFFER: libc::c_int = 16 << 20;

/// The number of entries of the rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The size of FILL: the number of frames that the kernel can receive before this process lends it new chunks.
    pub fill: u32,
    /// The size of RX: the number of received frames that can wait for this process.
    pub receive: u32,
    /// The size of TX and of COMPLETION: the number of frames that can wait to be sent.
    pub send: u32,
}

/// The rings of a socket.
pub struct Rings {
    /// FILL: the chunks that the kernel gets for received frames.
    pub fill: Producer<u64>,
    /// COMPLETION: the chunks whose frames were sent.
    pub completion: Consumer<u64>,
    /// RX: the received frames.
    pub receive: Consumer<Descriptor>,
    /// TX: the frames to send. `None` if the socket only receives.
    pub send: Option<Producer<Descriptor>>,
}

/// An AF_XDP socket. It receives after it is [bound](Self::bind) and the program redirects frames to it.
pub struct XdpSocket {
    descriptor: Arc<OwnedFd>,
}

impl XdpSocket {
    /// Creates a socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Returns the system's error: a capability is missing, there is no memory, or the kernel has no AF_XDP sockets.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let descriptor = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: this is a new descriptor, which nothing else owns.
        Ok(Self { descriptor: Arc::new(unsafe { OwnedFd::from_raw_fd(descriptor) }) })
    }

    /// Returns the descriptor, which keeps the socket open.
    #[must_use]
    pub fn descriptor(&self) -> &Arc<OwnedFd> {
        &self.descriptor
    }

    /// Registers the memory that holds the frames. The first socket of a memory does this before it creates rings.
    /// Other sockets share the memory in [`bind`](Self::bind) instead.
    ///
    /// # Errors
    /// Returns the system's error: the memory cannot be locked, or the kernel rejects its layout.
    pub fn register(&self, umem: &Umem) -> io::Result<()> {
        self.set(libc::SOL_XDP, libc::XDP_UMEM_REG, &umem.registration())
    }

    /// Creates the rings, with TX only if the socket `sends`. A second call for the same socket fails.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn rings(&self, sizes: Sizes, sends: bool) -> io::Result<Rings> {
        self.set(libc::SOL_XDP, libc::XDP_UMEM_FILL_RING, &sizes.fill)?;
        self.set(libc::SOL_XDP, libc::XDP_UMEM_COMPLETION_RING, &sizes.send)?;
        self.set(libc::SOL_XDP, libc::XDP_RX_RING, &sizes.receive)?;
        if sends {
            self.set(libc::SOL_XDP, libc::XDP_TX_RING, &sizes.send)?;
            // Older kernels do not have this option, and send fewer frames per call.
            let _ = self.set(libc::SOL_XDP, MAX_TX_SKB_BUDGET, &sizes.send.min(256));
            let _ = self.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER);
        }
        let offsets: libc::xdp_mmap_offsets = self.get(libc::XDP_MMAP_OFFSETS)?;
        let map = |at, offsets: &libc::xdp_ring_offset, count, entry| -> io::Result<Arc<dyn RingMemory>> {
            Ok(Arc::new(Mapping::new(&self.descriptor, at, offsets, count, entry)?))
        };
        let (word, frame) = (size_of::<u64>(), size_of::<Descriptor>());
        let completion = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
        let fill = map(libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t, &offsets.fr, sizes.fill, word)?;
        let completion = map(completion, &offsets.cr, sizes.send, word)?;
        let receive = map(libc::XDP_PGOFF_RX_RING, &offsets.rx, sizes.receive, frame)?;
        let send = match sends {
            true => Some(map(libc::XDP_PGOFF_TX_RING, &offsets.tx, sizes.send, frame)?),
            false => None,
        };
        // SAFETY: each of the socket's rings is mapped here and nowhere else, because the options above create a ring
        // only once. The kernel is the other side of each, with entries of these types (`if_xdp.h`).
        Ok(unsafe {
            Rings {
                fill: Producer::new(fill),
                completion: Consumer::new(completion),
                receive: Consumer::new(receive),
                send: send.map(|memory| Producer::new(memory)),
            }
        })
    }

    /// Binds the socket to the queue `queue` of the interface with the index `interface`. The rings must exist. `flags`
    /// are the bind flags. If `shared` is another bound socket, the new socket uses the memory and the flags of that
    /// socket.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn bind(&self, interface: u32, queue: u32, flags: u16, shared: Option<&OwnedFd>) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: shared.map_or(flags | libc::XDP_USE_NEED_WAKEUP, |_| libc::XDP_SHARED_UMEM),
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: shared.map_or(0, |other| other.as_raw_fd() as u32),
        };
        let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: the kernel reads the address of the stated length.
        check(unsafe { libc::bind(self.descriptor.as_raw_fd(), (&raw const address).cast(), length) })
    }

    /// Makes the kernel poll the device on request, for up to `budget` frames, instead of using interrupts.
    ///
    /// # Errors
    /// Returns the system's error: the kernel is older than 5.11, or a capability is missing.
    pub fn prefer_busy_poll(&self, budget: u32) -> io::Result<()> {
        const PREFER_BUSY_POLL: libc::c_int = 69;
        const BUSY_POLL_BUDGET: libc::c_int = 70;
        self.set(libc::SOL_SOCKET, PREFER_BUSY_POLL, &1i32)?;
        self.set(libc::SOL_SOCKET, libc::SO_BUSY_POLL, &20i32)?;
        self.set(libc::SOL_SOCKET, BUSY_POLL_BUDGET, &(budget as i32))
    }

    /// Returns the kernel's counters. A counter that an old kernel does not have is 0.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        self.get(libc::XDP_STATISTICS)
    }

    /// Makes the kernel send the frames in TX.
    ///
    /// # Errors
    /// `EAGAIN`: not all frames were sent; `EBUSY`: the device dropped a frame; `ENETDOWN`: the interface is down;
    /// `ENXIO`: the interface no longer exists.
    #[inline]
    pub fn wake_send(&self) -> io::Result<()> {
        let (socket, flags) = (self.descriptor.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: nothing is read, because the length is 0.
        check(unsafe { libc::sendto(socket, ptr::null(), 0, flags, ptr::null(), 0) } as libc::c_int)
    }

    /// Makes the kernel receive. The result also reports whether the interface is up and exists.
    ///
    /// # Errors
    /// `ENETDOWN`: the interface is down; `ENXIO`: the interface no longer exists.
    #[inline]
    pub fn wake_receive(&self) -> io::Result<()> {
        let (socket, flags) = (self.descriptor.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: nothing is written, because the length is 0.
        check(unsafe { libc::recvfrom(socket, ptr::null_mut(), 0, flags, ptr::null_mut(), ptr::null_mut()) }
            as libc::c_int)
    }

    /// Sets an option. The kernel must expect a structure of the type `T`, of integers only, for this option.
    fn set<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        let length = size_of::<T>() as libc::socklen_t;
        let socket = self.descriptor.as_raw_fd();
        // SAFETY: the kernel reads the value of the stated length. All options here are structures of integers.
        check(unsafe { libc::setsockopt(socket, level, option, ptr::from_ref(value).cast(), length) })
    }

    /// Reads an option of AF_XDP. Fields that an old kernel does not fill in are 0.
    fn get<T: OptionValue>(&self, option: libc::c_int) -> io::Result<T> {
        let mut length = size_of::<T>() as libc::socklen_t;
        // SAFETY: zeros are valid for a structure of integers, as the trait requires.
        let mut value: T = unsafe { mem::zeroed() };
        let (socket, to) = (self.descriptor.as_raw_fd(), (&raw mut value).cast());
        // SAFETY: the kernel writes at most the stated length, and any bytes are valid for the type.
        check(unsafe { libc::getsockopt(socket, libc::SOL_XDP, option, to, &raw mut length) })?;
        Ok(value)
    }
}

/// A value that the kernel returns.
///
/// # Safety
/// The type is a structure of integers, for which any bytes are valid.
unsafe trait OptionValue {}
// SAFETY: it consists of integers (`struct xdp_mmap_offsets`).
unsafe impl OptionValue for libc::xdp_mmap_offsets {}
// SAFETY: it consists of integers (`struct xdp_statistics`).
unsafe impl OptionValue for libc::xdp_statistics {}

/// Converts the result of a system call that returns a negative number on an error.
fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The memory of a ring, shared with the kernel.
struct Mapping {
    /// The start of the mapping.
    start: NonNull<u8>,
    /// The length of the mapping, in bytes.
    length: usize,
    /// The addresses of the ring's parts in the mapping.
    parts: Parts,
}

// SAFETY: the memory is shared with the kernel, and only the two sides of a ring access it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the ring at the offset `at` of the socket. The socket must have a ring there with `count` entries of
    /// `entry` bytes each. `offsets` are the offsets of the ring's parts in the mapping, as the kernel reports them.
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
        // SAFETY: the kernel returned the offsets of the parts in the mapping.
        let part = |offset: u64| unsafe { start.add(offset as usize) };
        let parts = Parts {
            produced: part(offsets.producer).cast(),
            consumed: part(offsets.consumer).cast(),
            flags: part(offsets.flags).cast(),
            entries: part(offsets.desc),
            count,
        };
        Ok(Self { start, length, parts })
    }
}

// SAFETY: the parts are inside the mapping, which the kernel has initialised. The mapping is aligned to pages, the
// kernel chose the offsets, and the mapping ends with the value.
unsafe impl RingMemory for Mapping {
    fn parts(&self) -> Parts {
        self.parts
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is exactly the mapped range. No side of the ring can access it any more, because each side holds
        // the value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

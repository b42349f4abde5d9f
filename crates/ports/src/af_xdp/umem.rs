//! The memory that all AF_XDP sockets of a pipeline share. It is a packet pool, so a frame that one socket has received
//! is sent by another socket without a copy.
//!
//! A pool chunk consists of a packet's metadata line and the kernel's chunk. The kernel's chunk consists of the space
//! that the kernel keeps free before a frame (`XDP_PACKET_HEADROOM`), which becomes the packet's headroom, and of the
//! frame. Unaligned chunks (`XDP_UMEM_UNALIGNED_CHUNK_FLAG`) may start at any address. The distance between two of them
//! is an odd number of cache lines, and their metadata precedes the kernel's chunk. The size of aligned chunks is a
//! power of two, and the metadata is in the part that the kernel leaves free as headroom.

#![expect(unsafe_code, reason = "chunks go to the kernel and come back by address")]

mod lent;

use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use forebay_packet::Pool;
use forebay_packet::pool::{Chunk, Layout, PoolError, Slab};

pub use lent::Lent;

use super::socket::{Rings, XdpSocket};

/// The length of a packet's metadata, in bytes: one cache line.
const LINE: usize = 64;
/// The number of bytes that the kernel keeps free before each frame (`XDP_PACKET_HEADROOM`).
const HEADROOM: usize = 256;
/// The offset of a received frame from its packet's metadata, in bytes.
pub const FIRST: usize = LINE + HEADROOM;
/// The size of the kernel's smallest chunk, in bytes (`XDP_UMEM_MIN_CHUNK_SIZE`).
const MIN_CHUNK: usize = 2_048;
/// The size of the kernel's largest chunk, in bytes: a memory page of the usual size.
const MAX_CHUNK: usize = 4_096;
/// The bits of an unaligned address that contain the address of the chunk. The other bits contain the offset of the
/// frame in the chunk.
const ADDRESS: u64 = (1 << OFFSET_SHIFT) - 1;
/// The number of the lowest bit of the offset in such an address.
const OFFSET_SHIFT: u32 = 48;
/// The time after which a zero-copy driver no longer accesses the chunks of a closed socket (`xp_release_deferred`).
const QUARANTINE: Duration = Duration::from_secs(1);

/// The layout of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of chunks.
    pub chunks: usize,
    /// The longest frame, in bytes.
    pub frame: usize,
    /// True if the size of a chunk must be a power of two, for drivers that require this.
    pub aligned: bool,
}

impl Shape {
    /// Returns the length of the longest frame that fits into an aligned or unaligned chunk.
    #[must_use]
    pub const fn longest(aligned: bool) -> usize {
        MAX_CHUNK - HEADROOM - if aligned { LINE } else { 0 }
    }

    /// Returns the size of the kernel's chunk, in bytes.
    #[must_use]
    pub fn chunk(&self) -> usize {
        if self.aligned {
            (LINE + HEADROOM + self.frame).next_power_of_two().clamp(MIN_CHUNK, MAX_CHUNK)
        } else {
            (HEADROOM + self.frame).next_multiple_of(LINE).clamp(MIN_CHUNK, MAX_CHUNK)
        }
    }

    /// Returns the distance between the starts of two successive chunks, in bytes. It is an odd number of cache lines
    /// if possible, because with a power of two, the metadata of all chunks would share few sets of the processor's
    /// cache.
    fn stride(&self) -> usize {
        if self.aligned { self.chunk() } else { (((LINE + self.chunk()) / LINE) | 1) * LINE }
    }

    /// Returns the offset of the kernel's chunk from the packet's metadata: 0 for aligned chunks, which contain the
    /// metadata.
    fn lead(&self) -> usize {
        if self.aligned { 0 } else { LINE }
    }

    /// Returns the layout of the pool's chunks.
    fn layout(&self) -> Layout {
        Layout { data: LINE, headroom: HEADROOM, end: self.lead() + self.chunk() }
    }
}

/// The memory. Each chunk has one owner at a time: the pool, a packet, or the kernel ([`Lent`]).
pub struct Umem {
    shape: Shape,
    /// The distance between the starts of two successive chunks, in bytes.
    stride: u64,
    /// 2⁶⁴ / `stride`, rounded up. [`Umem::index`] multiplies by this number.
    reciprocal: u64,
    /// The offset of the kernel's chunk from the packet's metadata, in bytes.
    lead: u64,
    /// The address of the first chunk's metadata.
    start: NonNull<u8>,
    /// The pool of the chunks that have no other owner.
    pool: Pool,
    /// The sockets and queues that use the memory.
    usage: Mutex<Usage>,
}

// SAFETY: `start` is an address inside the pool's memory, which is accessed only by the owner of a chunk.
unsafe impl Send for Umem {}
// SAFETY: as above.
unsafe impl Sync for Umem {}

/// The sockets that use the memory, and the chunks that are not available to packets.
#[derive(Default)]
struct Usage {
    /// The open sockets that use the memory, each with true for zero-copy. A new socket can share the memory that one
    /// of them has registered.
    sockets: Vec<(Weak<OwnedFd>, bool)>,
    /// The number of chunks that queues have reserved for received frames.
    reserved: usize,
    /// The chunks that a driver may still access, and the time at which their socket was closed.
    quarantined: Vec<(Instant, Vec<Chunk>)>,
}

impl Umem {
    /// Allocates memory of this shape.
    ///
    /// # Errors
    /// Returns an error if there is no memory.
    pub fn new(shape: Shape) -> Result<Self, PoolError> {
        let slab = Slab::new(shape.layout(), shape.stride(), shape.chunks, true)?;
        let (start, stride) = (slab.start(), shape.stride() as u64);
        let pool = Pool::foreign(Box::new(slab), shape.chunks)?;
        let (reciprocal, lead) = (u64::MAX / stride + 1, shape.lead() as u64);
        Ok(Self { shape, stride, reciprocal, lead, start, pool, usage: Mutex::default() })
    }

    /// Returns the layout of the memory.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the pool of the packets in this memory.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns the description of the memory that the kernel requires (`XDP_UMEM_REG`).
    #[must_use]
    pub fn registration(&self) -> libc::xdp_umem_reg {
        let headroom = if self.shape.aligned { LINE as u32 } else { 0 };
        let flags = if self.shape.aligned { 0 } else { libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG };
        let (addr, len) = (self.start.addr().get() as u64, self.bytes() as u64);
        libc::xdp_umem_reg { addr, len, chunk_size: self.shape.chunk() as u32, headroom, flags, tx_metadata_len: 0 }
    }

    /// Returns the size of the memory in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.shape.chunks * self.stride as usize
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves chunks for received frames of a queue. All queues together can reserve at most three quarters of all
    /// chunks: the other quarter remains for packets in the pipeline. The caller must [release](Self::release) the
    /// reserved chunks.
    ///
    /// # Errors
    /// Returns the number of available chunks if there are fewer than `chunks`.
    pub fn reserve(&self, chunks: usize) -> Result<(), usize> {
        let mut usage = self.usage();
        let available = (self.shape.chunks / 4 * 3).saturating_sub(usage.reserved);
        if chunks > available {
            return Err(available);
        }
        usage.reserved += chunks;
        Ok(())
    }

    /// Releases `chunks` of the reserved chunks. At least this number of chunks must be reserved.
    pub fn release(&self, chunks: usize) {
        self.usage().reserved -= chunks;
    }

    /// Calls `bind` to bind a new socket to a queue. `bind` receives another open socket with the same value of
    /// `zero_copy`, whose registered memory the new socket can share. If the interface of that socket no longer exists,
    /// `bind` is called again with the next such socket. After the last of them, or if there is none, `bind` receives
    /// `None` and must register the memory itself. No socket is closed while this function runs.
    ///
    /// # Errors
    /// Returns the error of the last call of `bind`.
    pub fn bind_with(
        &self,
        zero_copy: bool,
        mut bind: impl FnMut(Option<&OwnedFd>) -> io::Result<XdpSocket>,
    ) -> io::Result<XdpSocket> {
        let mut usage = self.usage();
        let candidates = usage.sockets.iter().filter(|(_, zero)| *zero == zero_copy).filter_map(|(it, _)| it.upgrade());
        // If the other socket has lost its interface, its memory is no longer registered. The kernel then returns this
        // error.
        let gone = |error: &io::Error| error.raw_os_error() == Some(libc::EBADF);
        let mut outcome = None;
        for other in candidates {
            outcome = Some(bind(Some(&other))).filter(|outcome| !outcome.as_ref().is_err_and(gone));
            if outcome.is_some() {
                break;
            }
        }
        let socket = outcome.unwrap_or_else(|| bind(None))?;
        usage.sockets.push((Arc::downgrade(socket.descriptor()), zero_copy));
        Ok(socket)
    }

    /// Closes a socket and its rings. The rings must be closed too, because they also keep the socket open.
    pub fn close(&self, socket: XdpSocket, rings: Rings) {
        let mut usage = self.usage();
        drop((rings, socket));
        usage.sockets.retain(|(socket, _)| socket.strong_count() > 0);
    }

    /// Returns quarantined chunks to the pool if their socket was closed at least [`QUARANTINE`] ago. Called when a
    /// device is opened.
    pub fn recycle(&self) {
        let mut usage = self.usage();
        let (done, quarantined) =
            mem::take(&mut usage.quarantined).into_iter().partition(|(closed, _)| closed.elapsed() >= QUARANTINE);
        usage.quarantined = quarantined;
        drop(usage);
        let done: Vec<(Instant, Vec<Chunk>)> = done;
        for (_, chunks) in done {
            // SAFETY: the chunks were lent to a socket that is closed, and its driver has had enough time to release
            // them. They have no other owner.
            unsafe { self.pool.give_chunks(&chunks) }
        }
    }

    /// Returns the index of the chunk that contains the byte at `offset` from the start of the memory: `offset /
    /// stride`, without a division. The result is exact for memory of less than 2⁴⁸ bytes. The caller must check that
    /// the index is below the number of chunks.
    #[inline]
    fn index(&self, offset: u64) -> usize {
        ((u128::from(offset) * u128::from(self.reciprocal)) >> 64) as usize
    }

    /// Returns a chunk of this memory.
    ///
    /// # Safety
    /// `index` must be below the number of chunks.
    #[inline]
    unsafe fn chunk(&self, index: usize) -> Chunk {
        debug_assert!(index < self.shape.chunks);
        // SAFETY: the caller guarantees that the chunk is inside this memory.
        Chunk::new(unsafe { self.start.add(index * self.stride as usize) })
    }

    /// Returns the index of a chunk of this memory.
    #[inline]
    fn index_of(&self, chunk: Chunk) -> usize {
        self.index((chunk.address().addr().get() - self.start.addr().get()) as u64)
    }

    /// Returns the address, for the kernel, of a byte in the chunk with this index. `start` is the offset of the byte
    /// from the chunk's metadata, at least `lead`.
    #[inline]
    fn encode(&self, index: usize, start: usize) -> u64 {
        let (chunk, offset) = (index as u64 * self.stride + self.lead, start as u64 - self.lead);
        if self.shape.aligned { chunk + offset } else { chunk | offset << OFFSET_SHIFT }
    }

    /// Converts an address from the kernel to the index of a chunk and the offset of the address from the chunk's
    /// metadata. Returns `None` if the address is not in a chunk. The caller must check that the offset is within the
    /// chunk.
    #[inline]
    fn decode(&self, address: u64) -> Option<(usize, usize)> {
        let base = if self.shape.aligned { address } else { address & ADDRESS };
        let index = self.index(base);
        if index >= self.shape.chunks {
            return None;
        }
        let within = base - index as u64 * self.stride;
        let start = if self.shape.aligned { within } else { within + (address >> OFFSET_SHIFT) };
        (within >= self.lead).then_some((index, start as usize))
    }
}

#[cfg(test)]
mod tests;

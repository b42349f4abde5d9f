//! The memory that all AF_XDP sockets of a pipeline share, which is a packet pool: a frame that comes in by one socket leaves
//! by another without a copy.
//!
//! A chunk is a packet's metadata line and then what the kernel knows as a chunk: the room that it keeps free before a frame
//! (`XDP_PACKET_HEADROOM`), which becomes the packet's headroom, and the frame. Unaligned chunks
//! (`XDP_UMEM_UNALIGNED_CHUNK_FLAG`) begin where we say, so they lie an odd number of cache lines apart and their metadata
//! before what the kernel is told of; aligned ones are a power of two, and the metadata is in what the kernel leaves alone
//! as headroom.

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

use super::socket::{Rings, Socket};

/// A packet's metadata.
const LINE: usize = 64;
/// What the kernel keeps free before each frame (`XDP_PACKET_HEADROOM`).
const HEADROOM: usize = 256;
/// Where a received frame begins, from its packet's metadata.
pub const FIRST: usize = LINE + HEADROOM;
/// The kernel's smallest chunk (`XDP_UMEM_MIN_CHUNK_SIZE`), and its largest on pages of the usual size.
const LEAST_CHUNK: usize = 2_048;
const MOST_CHUNK: usize = 4_096;
/// In an unaligned address these bits are the chunk's, the others how far into it the frame begins.
const ADDRESS: u64 = (1 << OFFSET_SHIFT) - 1;
const OFFSET_SHIFT: u32 = 48;
/// A driver that writes frames to memory itself lets go of it a little after its socket was closed (`xp_release_deferred`).
const LET_GO: Duration = Duration::from_secs(1);

/// How the memory is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many chunks.
    pub chunks: usize,
    /// The longest frame, in bytes.
    pub frame: usize,
    /// Whether chunks are a power of two, for drivers that take no others.
    pub aligned: bool,
}

impl Shape {
    /// The longest frame that chunks of the one kind or the other can hold.
    #[must_use]
    pub const fn longest(aligned: bool) -> usize {
        MOST_CHUNK - HEADROOM - if aligned { LINE } else { 0 }
    }

    /// The kernel's chunk.
    #[must_use]
    pub fn chunk(&self) -> usize {
        if self.aligned {
            (LINE + HEADROOM + self.frame).next_power_of_two().clamp(LEAST_CHUNK, MOST_CHUNK)
        } else {
            (HEADROOM + self.frame).next_multiple_of(LINE).clamp(LEAST_CHUNK, MOST_CHUNK)
        }
    }

    /// From one chunk to the next. Metadata at a distance that is a power of two would share few sets of the processor's cache.
    fn stride(&self) -> usize {
        if self.aligned { self.chunk() } else { (((LINE + self.chunk()) / LINE) | 1) * LINE }
    }

    /// From a packet's metadata to where the kernel is told that its chunk begins.
    fn lead(&self) -> usize {
        if self.aligned { 0 } else { LINE }
    }

    fn layout(&self) -> Layout {
        Layout { data: LINE, headroom: HEADROOM, end: self.lead() + self.chunk() }
    }
}

/// The memory.
pub struct Umem {
    shape: Shape,
    stride: u64,
    /// 2⁶⁴ / `stride`, rounded up.
    reciprocal: u64,
    lead: u64,
    start: NonNull<u8>,
    pool: Pool,
    book: Mutex<Book>,
}

// SAFETY: `start` is an address inside the pool's memory, which is reached only by who owns a chunk.
unsafe impl Send for Umem {}
// SAFETY: as above.
unsafe impl Sync for Umem {}

/// Who uses the memory.
#[derive(Default)]
struct Book {
    /// Sockets by which the kernel knows the memory, and whether they are zero-copy: others can share what one registered.
    sockets: Vec<(Weak<OwnedFd>, bool)>,
    /// How many chunks sockets may have for receiving.
    promised: usize,
    /// Chunks that a driver may still write to, and since when its socket is closed.
    resting: Vec<(Instant, Vec<Chunk>)>,
}

impl Umem {
    /// Memory of this shape.
    ///
    /// # Errors
    /// There is none.
    pub fn new(shape: Shape) -> Result<Self, PoolError> {
        let slab = Slab::new(shape.layout(), shape.stride(), shape.chunks, true)?;
        let (start, stride) = (slab.start(), shape.stride() as u64);
        let pool = Pool::foreign(Box::new(slab), shape.chunks)?;
        let (reciprocal, lead) = (u64::MAX / stride + 1, shape.lead() as u64);
        Ok(Self { shape, stride, reciprocal, lead, start, pool, book: Mutex::default() })
    }

    /// How it is divided.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Where packets of this memory come from.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// What the kernel is told of it.
    #[must_use]
    pub fn registration(&self) -> libc::xdp_umem_reg {
        let headroom = if self.shape.aligned { LINE as u32 } else { 0 };
        let flags = if self.shape.aligned { 0 } else { libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG };
        let (addr, len) = (self.start.addr().get() as u64, self.bytes() as u64);
        libc::xdp_umem_reg { addr, len, chunk_size: self.shape.chunk() as u32, headroom, flags, tx_metadata_len: 0 }
    }

    /// How much memory it is.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.shape.chunks * self.stride as usize
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Promises a socket so many chunks to receive into; how many there are to promise, where it is too many: a quarter stays for
    /// packets on their way.
    pub fn promise(&self, chunks: usize) -> Result<(), usize> {
        let mut book = self.book();
        let left = (self.shape.chunks / 4 * 3).saturating_sub(book.promised);
        if chunks > left {
            return Err(left);
        }
        book.promised += chunks;
        Ok(())
    }

    /// Takes a promise back.
    pub fn release(&self, chunks: usize) {
        self.book().promised -= chunks;
    }

    /// Lets `bind` tie a socket to a queue: by the memory as the kernel knows it from another socket of the same kind, one after
    /// the other as long as they are of interfaces that are gone, or else (`None`) by registering it anew. A socket that this
    /// is done with does not close meanwhile, nor later because of it.
    ///
    /// # Errors
    /// Those of `bind`.
    pub fn tie(
        &self,
        zero_copy: bool,
        mut bind: impl FnMut(Option<&OwnedFd>) -> io::Result<Socket>,
    ) -> io::Result<Socket> {
        let mut book = self.book();
        let alike = book.sockets.iter().filter(|(_, zero)| *zero == zero_copy).filter_map(|(it, _)| it.upgrade());
        // The kernel knows no memory by a socket that has lost its interface.
        let gone = |error: &io::Error| error.raw_os_error() == Some(libc::EBADF);
        let mut outcome = None;
        for other in alike {
            outcome = Some(bind(Some(&other))).filter(|outcome| !outcome.as_ref().is_err_and(gone));
            if outcome.is_some() {
                break;
            }
        }
        let socket = outcome.unwrap_or_else(|| bind(None))?;
        book.sockets.push((Arc::downgrade(socket.descriptor()), zero_copy));
        Ok(socket)
    }

    /// Closes a socket with its rings, which keep it open too, while nobody else holds it.
    pub fn close(&self, socket: Socket, rings: Rings) {
        let mut book = self.book();
        drop((rings, socket));
        book.sockets.retain(|(socket, _)| socket.strong_count() > 0);
    }

    /// Brings home what drivers have let go of by now.
    pub fn settle(&self) {
        let mut book = self.book();
        let (done, resting) =
            mem::take(&mut book.resting).into_iter().partition(|(closed, _)| closed.elapsed() >= LET_GO);
        book.resting = resting;
        drop(book);
        let done: Vec<(Instant, Vec<Chunk>)> = done;
        for (_, chunks) in done {
            // SAFETY: they were lent to a socket that is closed, and its driver had its time; nobody else has them.
            unsafe { self.pool.give_chunks(&chunks) }
        }
    }

    /// The number of the chunk that holds this byte: `offset / stride`, without a division. Exact for all memory below 2⁴⁸ bytes.
    #[inline]
    fn index(&self, offset: u64) -> usize {
        ((u128::from(offset) * u128::from(self.reciprocal)) >> 64) as usize
    }

    #[inline]
    fn chunk(&self, index: usize) -> Chunk {
        debug_assert!(index < self.shape.chunks);
        // SAFETY: callers have the number of a chunk of this memory.
        Chunk::new(unsafe { self.start.add(index * self.stride as usize) })
    }

    #[inline]
    fn index_of(&self, chunk: Chunk) -> usize {
        self.index((chunk.address().addr().get() - self.start.addr().get()) as u64)
    }

    /// How the kernel is told of the byte at `start` from a chunk's metadata.
    #[inline]
    fn encode(&self, index: usize, start: usize) -> u64 {
        let (chunk, offset) = (index as u64 * self.stride + self.lead, start as u64 - self.lead);
        if self.shape.aligned { chunk + offset } else { chunk | offset << OFFSET_SHIFT }
    }

    /// The same backwards; `None` for what is no address in a chunk.
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

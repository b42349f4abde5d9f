//! Packet pools: a fixed number of chunks. Each thread takes and returns chunks through its own cache.
//!
//! Threads access the pool itself only in bulk, when their cache is empty or full. The pool decides the layout of a
//! chunk ([`Layout`]). The native pool in this module has its own memory. The pool of a device driver ([`Backing`])
//! keeps the metadata in a space of the driver's chunks that is reserved for metadata. So a port of this driver copies
//! no packets, and other code sees no difference.
//!
//! A pool's memory is freed when its handle has been dropped *and* its last chunk has been returned, so a packet may
//! outlive the handle. Another thread's cache returns its chunks when that thread ends, or when that thread first uses
//! another pool after the handle was dropped.

pub(crate) mod cache;
mod layout;
mod native;
mod registry;

pub use layout::{Backing, Chunk, Layout, LayoutError, Line};
pub use native::{MAX_FRAME, Order, PoolOptions, Slab};

use std::hint::cold_path;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use forebay_units::Ticks;
use thiserror::Error;

use crate::metadata::{LINE, Layers, Metadata};
use crate::{ArrivalClock, Batch, MAX_BATCH, Packet};

/// The reasons why a pool cannot be created.
#[derive(Debug, Error)]
pub enum PoolError {
    /// The layout of the chunks is invalid.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The number of chunks is 0 or too large.
    #[error("a pool of {0} chunks: allowed are 1 to 16777216")]
    Chunks(usize),
    /// Chunks would overlap, their metadata would not be aligned, or the stride is too large.
    #[error("chunks of {end} bytes with a stride of {stride}: allowed are multiples of 64 from {end} to 131072")]
    Stride {
        /// The distance between two chunks, in bytes.
        stride: usize,
        /// The size of one chunk, in bytes.
        end: usize,
    },
    /// The frame length is outside the range of native chunks.
    #[error("a pool for frames of {0} bytes: allowed are 64 to {MAX_FRAME}")]
    Frame(usize),
    /// The process has the maximum number of pools.
    #[error("no pool can be added: {0} pools exist, which is the maximum")]
    TooMany(usize),
    /// The system could not provide the memory.
    #[error("cannot reserve {bytes} bytes for packets: {source}")]
    Memory {
        /// The number of bytes requested.
        bytes: usize,
        /// The system's error.
        source: std::io::Error,
    },
}

/// The largest number of chunks in a pool.
pub const MOST_CHUNKS: usize = 1 << 24;

/// A hard-limited set of chunks that packets are made from. Code allocates packets through this handle; all clones of
/// it share one pool.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
    /// Closes the pool when the last clone is dropped.
    _open: Arc<OpenGuard>,
}

/// A guard that all clones of a handle share. When it is dropped, it closes the pool.
struct OpenGuard(Arc<Inner>);

/// A pool, which handles and caches share. It lives until it is closed and idle
/// ([`release_if_idle`](Self::release_if_idle)).
pub(crate) struct Inner {
    /// The number of the pool in the registry.
    id: u8,
    backing: Box<dyn Backing>,
    /// The total number of chunks.
    capacity: usize,
    /// The metadata of an empty packet.
    fresh: Metadata,
    /// The order in which caches reuse chunks.
    order: Order,
    /// Number of chunks taken from the backing. They are in packets or in caches.
    out: AtomicUsize,
    /// Number of threads that have a cache of this pool.
    caches: AtomicUsize,
    /// Whether the last handle has been dropped. Never reset.
    closed: AtomicBool,
    /// Number of requested packets that the pool could not provide.
    exhausted: AtomicU64,
}

impl Pool {
    /// Creates a pool with its own memory, on huge pages if the system provides them.
    ///
    /// # Errors
    /// Returns [`PoolError`] if a size is out of range, memory is missing, or too many pools exist.
    pub fn new(options: PoolOptions) -> Result<Self, PoolError> {
        if !(1..=MOST_CHUNKS).contains(&options.chunks) {
            return Err(PoolError::Chunks(options.chunks));
        }
        let (backing, order) = (native::native(options)?, options.order);
        Self::over(Box::new(backing), options.chunks, order)
    }

    /// Creates a pool over chunks that other code provides, for example a device driver. `capacity` is the number of
    /// chunks that `backing` has.
    ///
    /// # Errors
    /// Returns [`PoolError`] if the layout is invalid or too many pools exist.
    pub fn foreign(backing: Box<dyn Backing>, capacity: usize) -> Result<Self, PoolError> {
        Self::over(backing, capacity, Order::Lifo)
    }

    /// Creates a pool of `capacity` chunks that `backing` provides, and registers it.
    fn over(backing: Box<dyn Backing>, capacity: usize, order: Order) -> Result<Self, PoolError> {
        let layout = backing.layout();
        layout.check()?;
        let fresh_of = |pool| Metadata {
            data: (layout.data + layout.headroom) as u16,
            len: 0,
            layers: Layers::UNKNOWN,
            transport: 0,
            arrival: Ticks::ZERO,
            flow: 0,
            session: 0,
            words: [0; crate::WORDS],
            end: layout.end as u16,
            pool,
            start: (layout.data / LINE) as u8,
            clock: ArrivalClock::Poll as u8,
            mark: 0,
        };
        let make = |id| Inner {
            id,
            backing,
            capacity,
            fresh: fresh_of(id),
            order,
            out: AtomicUsize::new(0),
            caches: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            exhausted: AtomicU64::new(0),
        };
        let inner = registry::add(make)?;
        Ok(Self { _open: Arc::new(OpenGuard(Arc::clone(&inner))), inner })
    }

    /// Takes an empty packet. Returns `None` if the pool is exhausted, and counts the failure.
    #[inline(always)]
    #[must_use]
    pub fn take(&self) -> Option<Packet> {
        let mut one = [MaybeUninit::uninit()];
        let got = cache::with(&self.inner, |cache| cache.fill(&mut one, &self.inner.fresh, &[()], |_, ()| {}));
        if got == 0 {
            self.inner.count_exhausted(1);
            return None;
        }
        let [packet] = one;
        // SAFETY: `fill` initialised it.
        Some(unsafe { packet.assume_init() })
    }

    /// Adds up to `n` empty packets to `batch`, limited by the batch's room and the pool's free chunks. Returns the
    /// number added. Packets that the pool could not provide are counted as [exhausted](Self::exhausted).
    #[inline]
    pub fn fill(&self, batch: &mut Batch, n: usize) -> usize {
        self.fill_as(batch, &self.inner.fresh, units(n), |_, ()| {})
    }

    /// Adds up to `n` packets to `batch` that have `len` bytes (at most the [`frame_limit`](Self::frame_limit)) and
    /// arrived at `arrival`. Returns the number added, as [`fill`](Self::fill) does. The length and the arrival are
    /// written together with the rest of the metadata. After `fill`, the caller would have to write the metadata a
    /// second time. The content of the frames is undefined (old data).
    #[inline]
    pub fn fill_arrived(&self, batch: &mut Batch, n: usize, len: usize, arrival: Ticks, clock: ArrivalClock) -> usize {
        self.fill_as(batch, &self.inner.arrived(len, arrival, clock), units(n), |_, ()| {})
    }

    /// Adds one packet of `len` bytes for each of `picks` and copies `lines[pick]` to its first 64 bytes. Returns the
    /// number added, as [`fill`](Self::fill) does. If `pick` is out of range, the first line is copied. If `lines` is
    /// empty, no packet is added. For a source of short frames, this method makes one pass over the chunks.
    /// [`fill_arrived`](Self::fill_arrived) and a copy would make two.
    #[inline]
    pub fn fill_lines(
        &self,
        batch: &mut Batch,
        picks: &[u32],
        lines: &[Line],
        len: usize,
        arrival: Ticks,
        clock: ArrivalClock,
    ) -> usize {
        let Some(first) = lines.first() else { return 0 };
        let fresh = self.inner.arrived(len, arrival, clock);
        let data = usize::from(fresh.data);
        let write = move |chunk: Chunk, pick: &u32| {
            let line = match lines.get(*pick as usize) {
                Some(line) => line,
                None => {
                    cold_path();
                    first
                }
            };
            // SAFETY: the caller is the chunk's only owner, and the chunk has at least 64 bytes from `data` on
            // (`Layout::check`).
            unsafe { chunk.as_metadata().cast::<u8>().add(data).cast::<[u8; LINE]>().write_unaligned(line.0) }
        };
        self.fill_as(batch, &fresh, picks, write)
    }

    /// Adds one packet with the metadata `fresh` for each of `contents`, as far as the batch has room and the pool has
    /// chunks. Calls `write` with each chunk and its content. Returns the number added.
    #[inline]
    fn fill_as<T>(&self, batch: &mut Batch, fresh: &Metadata, contents: &[T], write: impl Fn(Chunk, &T)) -> usize {
        let wanted = contents.len().min(batch.room());
        let fill = |slots: &mut [MaybeUninit<Packet>]| {
            cache::with(&self.inner, |cache| cache.fill(slots, fresh, contents, write))
        };
        // SAFETY: `fill` initialises as many slots from the front as it returns.
        let got = unsafe { batch.extend(wanted, fill) };
        if got < wanted {
            self.inner.count_exhausted((wanted - got) as u64);
        }
        got
    }

    /// Takes free chunks into which a device will write frames, without making packets of them. Fills `chunks` from the
    /// front until no chunk is free. Returns the number of chunks taken. The missing chunks are counted as
    /// [exhausted](Self::exhausted). The caller owns each chunk until it makes a [packet](Self::packet) of it or
    /// [gives it back](Self::give_chunks).
    pub fn take_chunks(&self, chunks: &mut [Chunk]) -> usize {
        let got = cache::with(&self.inner, |cache| cache.take_into(chunks));
        if got < chunks.len() {
            self.inner.count_exhausted((chunks.len() - got) as u64);
        }
        got
    }

    /// Takes back chunks that are not packets.
    ///
    /// # Safety
    /// Each chunk was [taken](Self::take_chunks) from this pool, or its packet was ([`Packet::into_chunk`]). The caller
    /// is its only owner, and no other code accesses it any more.
    pub unsafe fn give_chunks(&self, chunks: &[Chunk]) {
        cache::with(&self.inner, |cache| cache.push(chunks));
    }

    /// Makes a packet of a chunk into which a device has written a frame. The frame has `len` bytes and begins `start`
    /// bytes after the chunk's [address](Chunk::address). Returns `None` if the frame is outside packet memory; the
    /// caller then still owns the chunk.
    ///
    /// # Safety
    /// The same conditions as for [`give_chunks`](Self::give_chunks): the caller hands over sole ownership of a chunk
    /// of this pool.
    #[inline]
    #[must_use]
    pub unsafe fn packet(
        &self,
        chunk: Chunk,
        start: usize,
        len: usize,
        arrival: Ticks,
        clock: ArrivalClock,
    ) -> Option<Packet> {
        let fresh = &self.inner.fresh;
        if start < usize::from(fresh.start) * LINE || start.saturating_add(len) > usize::from(fresh.end) {
            cold_path();
            return None;
        }
        let metadata = Metadata { data: start as u16, len: len as u16, arrival, clock: clock as u8, ..*fresh };
        // SAFETY: the chunk is a live, aligned chunk of this pool and the caller is its only owner. The frame is inside
        // its packet memory, by the check above, and that memory is initialised (`Backing`).
        unsafe {
            chunk.as_metadata().write(metadata);
            Some(Packet::from_chunk(chunk.as_metadata()))
        }
    }

    /// Returns whether a packet's chunk belongs to this pool.
    #[inline]
    #[must_use]
    pub fn owns(&self, packet: &Packet) -> bool {
        packet.meta().pool == self.inner.id
    }

    /// Returns the total number of chunks.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.inner.capacity
    }

    /// Returns the number of chunks outside the backing: in packets, or in a thread's cache.
    #[must_use]
    pub fn out(&self) -> usize {
        self.inner.out.load(Ordering::Relaxed)
    }

    /// Returns the number of packets that were requested and could not be provided, so far.
    #[must_use]
    pub fn exhausted(&self) -> u64 {
        self.inner.exhausted.load(Ordering::Relaxed)
    }

    /// Returns the chunks in this thread's cache to the backing. After that, [`out`](Self::out) counts packets and the
    /// caches of other threads.
    pub fn flush(&self) {
        cache::detach(self.inner.id);
    }

    /// Returns the longest frame that a fresh packet can hold, in bytes.
    #[must_use]
    pub fn frame_limit(&self) -> usize {
        usize::from(self.inner.fresh.end - self.inner.fresh.data)
    }

    /// Returns the layout of the chunks.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.inner.backing.layout()
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::SeqCst);
        cache::detach(self.0.id);
        self.0.release_if_idle();
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool(id {}, {} of {} chunks out)", self.inner.id, self.out(), self.capacity())
    }
}

/// Returns a slice of `n` units, at most [`MAX_BATCH`]: the contents of packets that get no content.
fn units(n: usize) -> &'static [()] {
    &[(); MAX_BATCH][..n.min(MAX_BATCH)]
}

impl Inner {
    /// Returns the metadata of a packet that arrived with `len` bytes. `len` is limited to the bytes that fit.
    #[inline]
    fn arrived(&self, len: usize, arrival: Ticks, clock: ArrivalClock) -> Metadata {
        let len = len.min(usize::from(self.fresh.end - self.fresh.data)) as u16;
        Metadata { len, arrival, clock: clock as u8, ..self.fresh }
    }

    #[cold]
    fn count_exhausted(&self, n: u64) {
        self.exhausted.fetch_add(n, Ordering::Relaxed);
    }

    /// Takes up to `chunks.len()` chunks from the backing. Returns the number taken.
    fn take_from_backing(&self, chunks: &mut [Chunk]) -> usize {
        let got = self.backing.take(chunks);
        self.out.fetch_add(got, Ordering::SeqCst);
        got
    }

    /// Returns chunks to the backing.
    fn return_to_backing(&self, chunks: &[Chunk]) {
        if chunks.is_empty() {
            return;
        }
        self.backing.give(chunks);
        self.out.fetch_sub(chunks.len(), Ordering::SeqCst);
        self.release_if_idle();
    }

    /// Removes a closed pool from the registry once all its chunks are in the backing and no thread has a cache of it.
    /// An empty cache that remained would be used for the next pool with the same number. Once the pool is closed,
    /// `out` never rises from 0 and no cache is created. So the last of the three events (the pool is closed, its last
    /// chunk returns, its last cache is removed) finds that the two other conditions are met.
    fn release_if_idle(&self) {
        let idle = || self.out.load(Ordering::SeqCst) == 0 && self.caches.load(Ordering::SeqCst) == 0;
        if self.closed.load(Ordering::SeqCst) && idle() {
            registry::remove(self);
        }
    }
}

#[cfg(test)]
mod tests;

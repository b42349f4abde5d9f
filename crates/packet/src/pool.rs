//! Packet pools: a hard limit of chunks, taken and given back through a cache per thread.
//!
//! Threads touch the pool itself only in bulk, when their cache runs empty or full. How a chunk is laid out belongs
//! to the pool ([`Layout`]): the native pool here has memory of its own; a device driver's pool ([`Backing`]) keeps
//! the metadata in the room its own chunks have, so that such a port copies nothing and nothing above knows.
//!
//! A pool's memory lives until its handle is dropped *and* its last chunk has come home, so a packet may outlive
//! the handle. Chunks resting in another thread's cache come home when that thread ends, or first touches another
//! pool after the handle was dropped.

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

use thiserror::Error;

use crate::metadata::{LINE, Layers, Metadata};
use crate::{ArrivalClock, Batch, MAX_BATCH, Packet, Ticks};

/// Why a pool cannot be made.
#[derive(Debug, Error)]
pub enum PoolError {
    /// The chunks cannot hold what a packet needs.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A pool needs chunks.
    #[error("a pool of {0} chunks: allowed are 1 to 16777216")]
    Chunks(usize),
    /// Chunks would overlap, or their metadata not be aligned.
    #[error("chunks of {end} bytes {stride} apart: allowed are multiples of 64 from {end} to 131072")]
    Stride {
        /// The distance between two chunks.
        stride: usize,
        /// What each one takes.
        end: usize,
    },
    /// Frames longer than a native chunk is meant for.
    #[error("a pool for frames of {0} bytes: allowed are 64 to {MAX_FRAME}")]
    Frame(usize),
    /// As many pools exist as the process can tell apart.
    #[error("no pool can be added: {0} exist already, which is as many as there can be")]
    TooMany(usize),
    /// The system gave no memory.
    #[error("cannot reserve {bytes} bytes for packets: {source}")]
    Memory {
        /// How much was asked for.
        bytes: usize,
        /// What the system said.
        source: std::io::Error,
    },
}

/// The most chunks of a pool.
pub const MOST_CHUNKS: usize = 1 << 24;

/// A hard-limited set of chunks that packets are made from. The handle is what code allocates through; all clones of it
/// are one.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
    /// Closes the pool with the last clone.
    _open: Arc<Open>,
}

struct Open(Arc<Inner>);

pub(crate) struct Inner {
    id: u8,
    backing: Box<dyn Backing>,
    capacity: usize,
    fresh: Metadata,
    order: Order,
    /// Chunks taken from the backing: in packets or in caches.
    out: AtomicUsize,
    /// Threads that have a cache of this pool.
    caches: AtomicUsize,
    closed: AtomicBool,
    /// Packets asked for that could not be had.
    exhausted: AtomicU64,
}

impl Pool {
    /// A pool with memory of its own, on huge pages where the system has any to give.
    ///
    /// # Errors
    /// [`PoolError`]: sizes that make no sense, no memory, too many pools.
    pub fn new(options: PoolOptions) -> Result<Self, PoolError> {
        if !(1..=MOST_CHUNKS).contains(&options.chunks) {
            return Err(PoolError::Chunks(options.chunks));
        }
        let (backing, order) = (native::native(options)?, options.order);
        Self::over(Box::new(backing), options.chunks, order)
    }

    /// A pool over chunks of another's making: a device driver's.
    ///
    /// # Errors
    /// [`PoolError`]: a layout that cannot hold a packet, too many pools.
    pub fn foreign(backing: Box<dyn Backing>, capacity: usize) -> Result<Self, PoolError> {
        Self::over(backing, capacity, Order::Lifo)
    }

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
        Ok(Self { _open: Arc::new(Open(Arc::clone(&inner))), inner })
    }

    /// An empty packet, or nothing where the pool is exhausted, which is counted.
    #[inline]
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

    /// Adds up to `n` empty packets to `batch`, as many as it has room for and the pool has chunks. Returns how many;
    /// those that the pool could not give are counted.
    #[inline]
    pub fn fill(&self, batch: &mut Batch, n: usize) -> usize {
        self.fill_as(batch, &self.inner.fresh, nothings(n), |_, ()| {})
    }

    /// The same with frames of `len` bytes (at most the [`frame_limit`](Self::frame_limit)) that arrived at `arrival`:
    /// one write of the metadata instead of two. Their content is whatever was there.
    #[inline]
    pub fn fill_arrived(&self, batch: &mut Batch, n: usize, len: usize, arrival: Ticks, clock: ArrivalClock) -> usize {
        self.fill_as(batch, &self.inner.arrived(len, arrival, clock), nothings(n), |_, ()| {})
    }

    /// The same with one packet for each of `picks`: its first 64 bytes are those of `lines[pick]` (of the first line
    /// where there is no such one; nothing is added where there are no lines). For a source of short frames, this is
    /// one pass over the chunks instead of two.
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
            // SAFETY: the chunk is the caller's alone and has at least 64 bytes from `data` on (`Layout::check`).
            unsafe { chunk.as_metadata().cast::<u8>().add(data).cast::<[u8; LINE]>().write_unaligned(line.0) }
        };
        self.fill_as(batch, &fresh, picks, write)
    }

    #[inline]
    fn fill_as<T>(&self, batch: &mut Batch, fresh: &Metadata, contents: &[T], write: impl Fn(Chunk, &T)) -> usize {
        let wanted = contents.len().min(batch.room());
        let fill = |slots: &mut [MaybeUninit<Packet>]| {
            cache::with(&self.inner, |cache| cache.fill(slots, fresh, contents, write))
        };
        // SAFETY: `fill` initialises as many slots from the front as it says.
        let got = unsafe { batch.extend(wanted, fill) };
        if got < wanted {
            self.inner.count_exhausted((wanted - got) as u64);
        }
        got
    }

    /// Takes free chunks that no packet is made of: for a device to write frames into. Fills `chunks` from the front as far as
    /// there are any, how many; what could not be had is counted. Who takes a chunk has it until it makes a
    /// [packet](Self::packet) of it or [gives it back](Self::give_chunks).
    pub fn take_chunks(&self, chunks: &mut [Chunk]) -> usize {
        let got = cache::with(&self.inner, |cache| cache.take_into(chunks));
        if got < chunks.len() {
            self.inner.count_exhausted((chunks.len() - got) as u64);
        }
        got
    }

    /// Takes back chunks that no packet is made of.
    ///
    /// # Safety
    /// They were [taken](Self::take_chunks) from this pool, or their packets were ([`Packet::into_chunk`]); the caller has each of
    /// them alone, and nothing else reaches it any more.
    pub unsafe fn give_chunks(&self, chunks: &[Chunk]) {
        cache::with(&self.inner, |cache| cache.push(chunks));
    }

    /// Makes a packet of a chunk into which a device has written a frame: `len` bytes that begin `start` bytes after the
    /// chunk's [address](Chunk::address). `None`, and the chunk still the caller's, where that is outside packet memory.
    ///
    /// # Safety
    /// As for [`give_chunks`](Self::give_chunks): the caller hands over sole ownership of a chunk of this pool.
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
        // SAFETY: a live, aligned chunk of this pool, which is the caller's alone; the frame is inside its packet memory, by
        // the check above, whose bytes are initialised (`Backing`).
        unsafe {
            chunk.as_metadata().write(metadata);
            Some(Packet::from_chunk(chunk.as_metadata()))
        }
    }

    /// Whether a packet's chunk is of this pool.
    #[inline]
    #[must_use]
    pub fn owns(&self, packet: &Packet) -> bool {
        packet.meta().pool == self.inner.id
    }

    /// How many chunks there are at all.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.inner.capacity
    }

    /// How many chunks are not at home: in packets, or in some thread's cache.
    #[must_use]
    pub fn out(&self) -> usize {
        self.inner.out.load(Ordering::Relaxed)
    }

    /// How many packets were asked for and could not be had, so far.
    #[must_use]
    pub fn exhausted(&self) -> u64 {
        self.inner.exhausted.load(Ordering::Relaxed)
    }

    /// Brings the chunks that rest in this thread's cache home, so that [`out`](Self::out) counts packets alone (of
    /// this thread).
    pub fn flush(&self) {
        cache::detach(self.inner.id);
    }

    /// The longest frame that a fresh packet can hold, in bytes.
    #[must_use]
    pub fn frame_limit(&self) -> usize {
        usize::from(self.inner.fresh.end - self.inner.fresh.data)
    }

    /// Where chunks lie and how their room is used.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.inner.backing.layout()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::SeqCst);
        cache::detach(self.0.id);
        self.0.release_if_home();
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool(id {}, {} of {} chunks out)", self.inner.id, self.out(), self.capacity())
    }
}

/// `n` times nothing, at most as often as a batch is long.
fn nothings(n: usize) -> &'static [()] {
    &[(); MAX_BATCH][..n.min(MAX_BATCH)]
}

impl Inner {
    /// The metadata of a packet of `len` bytes, or as many as fit, that arrived.
    #[inline]
    fn arrived(&self, len: usize, arrival: Ticks, clock: ArrivalClock) -> Metadata {
        let len = len.min(usize::from(self.fresh.end - self.fresh.data)) as u16;
        Metadata { len, arrival, clock: clock as u8, ..self.fresh }
    }

    #[cold]
    fn count_exhausted(&self, n: u64) {
        self.exhausted.fetch_add(n, Ordering::Relaxed);
    }

    /// Takes up to `chunks.len()` chunks from the backing; how many it had.
    fn take_home(&self, chunks: &mut [Chunk]) -> usize {
        let got = self.backing.take(chunks);
        self.out.fetch_add(got, Ordering::SeqCst);
        got
    }

    /// Gives chunks back to the backing.
    fn bring_home(&self, chunks: &[Chunk]) {
        if chunks.is_empty() {
            return;
        }
        self.backing.give(chunks);
        self.out.fetch_sub(chunks.len(), Ordering::SeqCst);
        self.release_if_home();
    }

    /// Lets go of a closed pool whose chunks are all home and of which no thread has a cache: an empty cache that is
    /// left would be taken for that of the next pool with this number. Once the pool is closed, `out` never rises
    /// from 0, and no cache is made then; so of all that can be last, the last one sees the others done.
    fn release_if_home(&self) {
        let home = || self.out.load(Ordering::SeqCst) == 0 && self.caches.load(Ordering::SeqCst) == 0;
        if self.closed.load(Ordering::SeqCst) && home() {
            registry::remove(self);
        }
    }
}

#[cfg(test)]
mod tests;

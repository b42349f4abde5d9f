//! The native pool's memory: one region with chunks at a fixed stride.

use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use forebay_memory::{HUGE, Region};

use super::{Backing, Chunk, Layout, MOST_CHUNKS, PoolError};
use crate::metadata::LINE;

/// The order in which a thread's cache hands out free chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The chunk returned last is taken first: it is still in the CPU's caches.
    #[default]
    Lifo,
    /// The chunk returned longest ago is taken first, so every chunk is cold. For benchmarks that must not profit from
    /// warm caches.
    Fifo,
}

/// The size of a native pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// The number of packets that can exist at once.
    pub chunks: usize,
    /// The longest frame, in bytes: 64 to 65 343.
    pub frame: usize,
    /// Free bytes before a fresh frame.
    pub headroom: usize,
    /// The order of reuse.
    pub order: Order,
    /// Whether the system provides the memory at once (only the first 256 MiB of it). Otherwise the first packet in
    /// each page waits until the system has found and cleared the page.
    pub populated: bool,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self { chunks: 16_384, frame: 2_048, headroom: HEADROOM, order: Order::Lifo, populated: false }
    }
}

impl PoolOptions {
    /// Returns the memory of such a pool in bytes, in whole pages of 2 MiB. Options out of range count as the nearest
    /// allowed value.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let end = LINE + self.frame.min(MAX_FRAME) + self.headroom.min(usize::from(u16::MAX));
        (stride(end) * self.chunks.min(1 << 24)).next_multiple_of(HUGE)
    }
}

/// The longest frame of a native chunk, in bytes. With the metadata and the default headroom, the chunk then ends at
/// the largest 16-bit offset. It holds the frame into which a device merges 45 frames of 1 514 bytes (65 226 bytes).
pub const MAX_FRAME: usize = u16::MAX as usize - LINE - HEADROOM;

/// Free bytes before a fresh frame, unless the options give another number.
const HEADROOM: usize = 128;

/// The largest distance between two chunks, in bytes: the largest chunk in whole lines, and a gap of the same size.
const MOST_STRIDE: usize = 1 << 17;

/// Memory for chunks at a fixed stride. The native pool uses it, and so do drivers that may choose their own layout.
pub struct Slab {
    layout: Layout,
    /// A stack: the chunk returned last is the warmest. With a queue, a thread whose number of packets in flight varies
    /// by more than the size of its cache would use all chunks of the pool in turn. Every chunk would then be cold.
    free: Mutex<Vec<Chunk>>,
    memory: Region,
}

impl Slab {
    /// Allocates memory for `chunks` chunks. The first chunk's metadata is at the start; each further chunk follows
    /// `stride` bytes later. With `populated`, the system provides the first 256 MiB at once.
    ///
    /// # Errors
    /// Returns [`PoolError`] if the layout is invalid or longer than the stride, if the stride is not a multiple of 64
    /// bytes or is too large, if the number of chunks is out of range, or if memory is missing.
    pub fn new(layout: Layout, stride: usize, chunks: usize, populated: bool) -> Result<Self, PoolError> {
        layout.check()?;
        if !(1..=MOST_CHUNKS).contains(&chunks) {
            return Err(PoolError::Chunks(chunks));
        }
        if !stride.is_multiple_of(LINE) || !(layout.end..=MOST_STRIDE).contains(&stride) {
            return Err(PoolError::Stride { stride, end: layout.end });
        }
        let bytes = stride * chunks;
        let memory = Region::reserved(bytes);
        let memory = memory.map_err(|source| PoolError::Memory { bytes, source })?;
        if populated {
            memory.populate();
        }
        // Under `Lifo`, the first chunks are taken first, and they are populated first.
        let free = (0..chunks).rev().map(|index| Chunk::new(memory.at(index * stride))).collect();
        Ok(Self { layout, free: Mutex::new(free), memory })
    }

    /// Returns the address of the first chunk's metadata, which is the start of a page.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.memory.at(0)
    }
}

/// Allocates the native pool's memory.
pub(super) fn native(options: PoolOptions) -> Result<Slab, PoolError> {
    if options.frame > MAX_FRAME {
        return Err(PoolError::Frame(options.frame));
    }
    let end = (LINE + options.frame).saturating_add(options.headroom);
    let layout = Layout { data: LINE, headroom: options.headroom, end };
    layout.check()?;
    Slab::new(layout, stride(end), options.chunks, options.populated)
}

/// Returns the distance between chunks that hold `end` bytes: an odd number of cache lines. An even number (above all
/// 32 lines) would map the headers of neighbouring chunks to few sets of the first-level cache.
fn stride(end: usize) -> usize {
    (end.div_ceil(LINE) | 1) * LINE
}

// SAFETY: chunks are disjoint, aligned (the region is page-aligned and the stride is whole lines), zeroed by the
// system, live as long as `memory`, and in the free list exactly while they have no owner.
unsafe impl Backing for Slab {
    fn layout(&self) -> Layout {
        self.layout
    }

    fn take(&self, chunks: &mut [Chunk]) -> usize {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let n = chunks.len().min(free.len());
        let remaining = free.len() - n;
        chunks[..n].copy_from_slice(&free[remaining..]);
        free.truncate(remaining);
        n
    }

    fn give(&self, chunks: &[Chunk]) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(chunks);
    }
}

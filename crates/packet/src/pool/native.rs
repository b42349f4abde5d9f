//! The native pool's memory: one region, chunks a fixed stride apart.

use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use forebay_memory::{HUGE, Region};

use super::{Backing, Chunk, Layout, MOST_CHUNKS, PoolError};
use crate::metadata::LINE;

/// In which order a thread's cache hands free chunks out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The one given back last goes out first: it is still in the CPU's caches.
    #[default]
    Lifo,
    /// The one given back longest ago goes out first: every chunk is cold. For benchmarks that must not flatter.
    Fifo,
}

/// The size of a native pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// How many packets there can be at once.
    pub chunks: usize,
    /// The longest frame, in bytes (up to 65 343).
    pub frame: usize,
    /// Free bytes before a fresh frame.
    pub headroom: usize,
    /// Order of reuse.
    pub order: Order,
    /// Whether the system gives its memory at once, the first 256 MiB of it: else the first packet in each page waits until the system
    /// has found and cleared it.
    pub populated: bool,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self { chunks: 16_384, frame: 2_048, headroom: HEADROOM, order: Order::Lifo, populated: false }
    }
}

impl PoolOptions {
    /// The memory that such a pool takes, in bytes: whole pages of 2 MiB. Sizes that no pool has count as the nearest one's.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let end = LINE + self.frame.min(MAX_FRAME) + self.headroom.min(usize::from(u16::MAX));
        (stride(end) * self.chunks.min(1 << 24)).next_multiple_of(HUGE)
    }
}

/// The longest frame that a native chunk can be asked to hold, in bytes: with the metadata and the usual headroom the
/// chunk ends where 16 bits do. It holds what a device puts together of 45 frames of 1 514 bytes (65 226 bytes).
pub const MAX_FRAME: usize = u16::MAX as usize - LINE - HEADROOM;

/// Free bytes before a fresh frame, unless the options say otherwise.
const HEADROOM: usize = 128;

/// The farthest that chunks can be apart, in bytes: as far as one reaches, in whole lines, with as much between them.
const MOST_STRIDE: usize = 1 << 17;

/// Memory for chunks a fixed stride apart: the native pool's, and that of a driver that may lay out its own.
pub struct Slab {
    layout: Layout,
    /// A stack: what came home last is the warmest. Threads whose packets in flight come and go by more than their caches hold
    /// would else walk through the whole pool, and find every chunk cold.
    free: Mutex<Vec<Chunk>>,
    memory: Region,
}

impl Slab {
    /// Memory for `chunks` chunks, the first one's metadata at its start and each further one's `stride` bytes on. Of what is
    /// `populated` the system gives the first 256 MiB at once.
    ///
    /// # Errors
    /// [`PoolError`]: a layout that cannot hold a packet or is longer than the stride, a stride that is not whole lines of
    /// 64 bytes, no memory.
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
        // Under `Lifo` the first chunks, which are populated first, are the first to be taken.
        let free = (0..chunks).rev().map(|index| Chunk::new(memory.at(index * stride))).collect();
        Ok(Self { layout, free: Mutex::new(free), memory })
    }

    /// Where the first chunk's metadata is: the start of a page.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.memory.at(0)
    }
}

/// The native pool's memory.
pub(super) fn native(options: PoolOptions) -> Result<Slab, PoolError> {
    if options.frame > MAX_FRAME {
        return Err(PoolError::Frame(options.frame));
    }
    let end = (LINE + options.frame).saturating_add(options.headroom);
    let layout = Layout { data: LINE, headroom: options.headroom, end };
    layout.check()?;
    Slab::new(layout, stride(end), options.chunks, options.populated)
}

/// The distance between chunks that hold `end` bytes: whole cache lines, an odd number of them, because an even
/// stride (2 048 bytes above all) puts the headers of neighbouring chunks into few sets of the first-level cache.
fn stride(end: usize) -> usize {
    (end.div_ceil(LINE) | 1) * LINE
}

// SAFETY: chunks are disjoint, aligned (the region is page-aligned and the stride whole lines), zeroed by the system,
// live as long as `memory`, and in the free list exactly while nobody has them.
unsafe impl Backing for Slab {
    fn layout(&self) -> Layout {
        self.layout
    }

    fn take(&self, chunks: &mut [Chunk]) -> usize {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let n = chunks.len().min(free.len());
        let left = free.len() - n;
        chunks[..n].copy_from_slice(&free[left..]);
        free.truncate(left);
        n
    }

    fn give(&self, chunks: &[Chunk]) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(chunks);
    }
}

//! Where a chunk's parts lie, and what a memory that packets live in must offer.

use std::ptr::NonNull;

use thiserror::Error;

use crate::metadata::{LINE, Metadata};

/// How a pool's chunks are laid out. All offsets are in bytes from the start of the chunk's metadata line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Where packet memory begins: after the metadata's own 64 bytes, or later where a driver keeps its own header
    /// between; a multiple of 64, up to 16 320.
    pub data: usize,
    /// Free bytes before a fresh frame, for headers that are put on.
    pub headroom: usize,
    /// One past the last byte of packet memory.
    pub end: usize,
}

/// What is wrong with a layout.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LayoutError {
    /// Packet memory would overlap the metadata, or starts where a packet cannot note it.
    #[error(
        "packet memory starts at byte {0} of the chunk: allowed are multiples of 64 from 64 (after the metadata) to 16320"
    )]
    Data(usize),
    /// No room for a frame.
    #[error("headroom {headroom} leaves {left} bytes for the frame: at least 64 are needed")]
    Room {
        /// The headroom asked for.
        headroom: usize,
        /// What it leaves.
        left: usize,
    },
    /// Offsets are kept in 16 bits.
    #[error("packet memory ends at byte {0} of the chunk: allowed is up to 65535")]
    End(usize),
}

impl Layout {
    pub(crate) fn check(&self) -> Result<(), LayoutError> {
        if !self.data.is_multiple_of(LINE) || !(1..=usize::from(u8::MAX)).contains(&(self.data / LINE)) {
            return Err(LayoutError::Data(self.data));
        }
        if self.end > usize::from(u16::MAX) {
            return Err(LayoutError::End(self.end));
        }
        let left = self.end.saturating_sub(self.data.saturating_add(self.headroom));
        if left < 64 {
            return Err(LayoutError::Room { headroom: self.headroom, left });
        }
        Ok(())
    }
}

/// 64 bytes, in one cache line: a short frame ready-made, or the beginning of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct Line(pub [u8; LINE]);

/// A free chunk: where its metadata line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Chunk(NonNull<Metadata>);

// SAFETY: a chunk is an address; whoever holds it in a pool's free list owns what it points at.
unsafe impl Send for Chunk {}
// SAFETY: it cannot be used to reach the memory without unsafe code.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// The chunk whose metadata line starts at `metadata` (64-byte aligned).
    #[must_use]
    pub fn new(metadata: NonNull<u8>) -> Self {
        Self(metadata.cast())
    }

    /// The address given to [`new`](Self::new).
    #[must_use]
    pub fn address(self) -> NonNull<u8> {
        self.0.cast()
    }

    #[inline]
    pub(crate) fn from_metadata(metadata: NonNull<Metadata>) -> Self {
        Self(metadata)
    }

    #[inline]
    pub(crate) fn as_metadata(self) -> NonNull<Metadata> {
        self.0
    }
}

/// A memory that hands out chunks: the native one, or a driver's.
///
/// # Safety
/// Every chunk handed out by [`take`](Self::take) is 64-byte aligned; the bytes from its address to
/// [`Layout::end`] are initialised, live as long as the backing does, and are touched by nobody else until the chunk
/// comes back by [`give`](Self::give). No chunk is handed out twice in between. The layout never changes. No method
/// panics, or makes or drops a packet.
pub unsafe trait Backing: Send + Sync {
    /// Where a chunk's parts lie.
    fn layout(&self) -> Layout;
    /// Fills `chunks` from the front as far as there are free ones; how many.
    fn take(&self, chunks: &mut [Chunk]) -> usize;
    /// Takes chunks back.
    fn give(&self, chunks: &[Chunk]);
}

//! The layout of a chunk, and the requirements on memory that holds packets.

use std::ptr::NonNull;

use thiserror::Error;

use crate::metadata::{LINE, Metadata};

/// The layout of a pool's chunks. All offsets are in bytes from the start of the chunk's metadata line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Start of packet memory: after the 64 bytes of metadata, or later if a driver keeps its own header in between. A
    /// multiple of 64, up to 16 320.
    pub data: usize,
    /// Free bytes before a fresh frame, for added headers.
    pub headroom: usize,
    /// End of packet memory.
    pub end: usize,
}

/// The reasons why a layout is invalid.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LayoutError {
    /// Packet memory would overlap the metadata, or starts at an offset that the metadata cannot represent.
    #[error("packet memory starts at byte {0} of the chunk: allowed are multiples of 64 from 64 to 16320")]
    Data(usize),
    /// Too few bytes remain for a frame.
    #[error("headroom {headroom} leaves {remaining} bytes for the frame: at least 64 are needed")]
    Room {
        /// The requested headroom.
        headroom: usize,
        /// The bytes that remain for the frame.
        remaining: usize,
    },
    /// The end does not fit 16 bits, which hold all offsets.
    #[error("packet memory ends at byte {0} of the chunk: allowed are 0 to 65535")]
    End(usize),
}

impl Layout {
    /// Checks that the metadata can represent all offsets and that a frame of 64 bytes fits.
    pub(crate) fn check(&self) -> Result<(), LayoutError> {
        if !self.data.is_multiple_of(LINE) || !(1..=usize::from(u8::MAX)).contains(&(self.data / LINE)) {
            return Err(LayoutError::Data(self.data));
        }
        if self.end > usize::from(u16::MAX) {
            return Err(LayoutError::End(self.end));
        }
        let remaining = self.end.saturating_sub(self.data.saturating_add(self.headroom));
        if remaining < 64 {
            return Err(LayoutError::Room { headroom: self.headroom, remaining });
        }
        Ok(())
    }
}

/// 64 bytes in one cache line: a complete short frame, or the beginning of a longer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct Line(pub [u8; LINE]);

/// A free chunk: the address of its metadata line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Chunk(NonNull<Metadata>);

// SAFETY: a chunk is only an address. The free list that contains the chunk owns the memory.
unsafe impl Send for Chunk {}
// SAFETY: a chunk gives no access to the memory without unsafe code.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// Creates a chunk whose metadata line starts at `metadata` (64-byte aligned).
    #[must_use]
    pub fn new(metadata: NonNull<u8>) -> Self {
        Self(metadata.cast())
    }

    /// Returns the address that was passed to [`new`](Self::new).
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

/// Memory that provides chunks: the native memory, or a driver's.
///
/// # Safety
/// Every chunk that [`take`](Self::take) returns is 64-byte aligned. The bytes from its address to [`Layout::end`] are
/// initialised and live as long as the backing does. No other code accesses them until the chunk comes back through
/// [`give`](Self::give), and no chunk is returned twice by `take` in between. The layout never changes. No method
/// panics, and no method makes or drops a packet.
pub unsafe trait Backing: Send + Sync {
    /// Returns the layout of the chunks.
    fn layout(&self) -> Layout;
    /// Fills `chunks` from the front until no chunk is free. Returns the number of chunks taken.
    fn take(&self, chunks: &mut [Chunk]) -> usize;
    /// Takes chunks back.
    fn give(&self, chunks: &[Chunk]);
}

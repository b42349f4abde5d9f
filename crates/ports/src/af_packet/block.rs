//! Parses the blocks of a receive ring. A block holds frames, each with metadata from the kernel (`tpacket3_hdr`, and a
//! `virtio_net_hdr` before the frame).
//!
//! The parser reads a slice of bytes: it makes no system call and has no access to the ring. The kernel's headers
//! (`linux/if_packet.h`, `linux/virtio_net.h`) fix the offsets and the meaning of the fields, so these cannot change.
//! The callers rely on three properties, for any bytes in the block:
//!
//! - The bytes of a [`Frame`] are within the block. A length that exceeds the block is an error, which ends the block.
//! - [`Cursor::advance`] moves forward and reduces [`Cursor::remaining`], so the frames of a block come to an end.
//! - If the block has only a part of a frame, [`Frame::is_cut`] returns true.
//!
//! Everything else may change here without a change elsewhere. `tests.rs` builds blocks as the kernel does, and
//! [`fuzz_block`] checks the first two properties. A [`Cursor`] is valid for the block for which it was created.

use std::mem::offset_of;

/// The offset of `num_pkts` in a block (`tpacket_hdr_v1` in `tpacket_block_desc`).
const COUNT: usize = 12;
/// The offset of `offset_to_first_pkt` in a block.
const FIRST: usize = 16;
/// The length of a `virtio_net_hdr`.
const VIRTIO: usize = 10;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CHECKSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_ECN`, a flag in the segmentation type.
const ECN: u8 = 0x80;

/// A partial checksum, which the sender has left to its interface to complete. For TCP and UDP, the field contains the
/// sum of the pseudo-header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// The offset of the first byte that the checksum covers, from the start of the frame.
    pub start: usize,
    /// The offset of the checksum, from `start`.
    pub offset: usize,
}

/// The type of a merged frame. A merged frame is a long frame that the sender's interface should have split, or several
/// frames that the receiving interface has merged into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentType {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP datagrams.
    Udp,
    /// Another type. The port cannot split such a frame, and drops it.
    Other,
}

/// The properties of a merged frame: a frame that stands for several frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The type of the merged frame.
    pub kind: SegmentType,
    /// The payload length, in bytes, of each of the frames except the last.
    pub size: usize,
}

/// A frame in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The bytes of the frame, without a VLAN tag that the kernel has removed.
    pub bytes: &'a [u8],
    /// The original length. It exceeds the length of `bytes` if the frame did not fit into a block.
    pub length: usize,
    /// The VLAN tag that the kernel has removed: its four bytes, which followed the addresses.
    pub tag: Option<[u8; 4]>,
    /// A checksum that must be completed. `None` if the checksum is complete.
    pub partial: Option<Partial>,
    /// Present if the frame stands for several frames.
    pub merged: Option<Merged>,
    /// The time at which the kernel received the frame, in nanoseconds of the system clock; 0 if unknown.
    pub stamp: u64,
}

/// An error in a block: a frame exceeds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the frame at byte {at} exceeds its block of {length} bytes")]
pub struct Broken {
    /// The offset of the frame's header.
    at: usize,
    /// The length of the block.
    length: usize,
}

/// The read position in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The number of frames that remain to be read. 0 after the last frame.
    remaining: u32,
    /// The offset of the next frame's header in the block.
    at: usize,
}

impl Frame<'_> {
    /// Returns true if the frame was longer than the part that is in the block.
    #[inline]
    pub fn is_cut(&self) -> bool {
        self.bytes.len() < self.length
    }
}

impl Cursor {
    /// Creates a cursor at the first frame of a block.
    pub fn new(block: &[u8]) -> Self {
        Self { remaining: word(block, COUNT).unwrap_or(0), at: word(block, FIRST).unwrap_or(0) as usize }
    }

    /// Returns the number of frames that remain to be read, according to the block.
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// Returns the next frame, or `None` after the last.
    ///
    /// # Errors
    /// Returns an error if the frame exceeds the block. No frame after it can be found then.
    #[inline]
    pub fn frame<'a>(&self, block: &'a [u8]) -> Result<Option<Frame<'a>>, Broken> {
        if self.remaining == 0 {
            return Ok(None);
        }
        self.read(block).map(Some).ok_or(Broken { at: self.at, length: block.len() })
    }

    /// Reads the frame at the cursor. Returns `None` if its header or its bytes exceed the block.
    #[inline]
    fn read<'a>(&self, block: &'a [u8]) -> Option<Frame<'a>> {
        let header: &[u8; size_of::<libc::tpacket3_hdr>()] = block.get(self.at..)?.first_chunk()?;
        let long = |at: usize| u32::from_ne_bytes(*header[at..].first_chunk().expect("within the header"));
        let short = |at: usize| u16::from_ne_bytes(*header[at..].first_chunk().expect("within the header"));
        let (taken, length) =
            (long(offset_of!(libc::tpacket3_hdr, tp_snaplen)), long(offset_of!(libc::tpacket3_hdr, tp_len)));
        let status = long(offset_of!(libc::tpacket3_hdr, tp_status));
        let start = self.at + usize::from(short(offset_of!(libc::tpacket3_hdr, tp_mac)));
        let bytes = block.get(start..start.checked_add(taken as usize)?)?;
        let virtio: &[u8; VIRTIO] = block.get(start.checked_sub(VIRTIO)?..)?.first_chunk()?;
        let half = |at: usize| usize::from(u16::from_ne_bytes([virtio[at], virtio[at + 1]]));
        // The fields of `hv1`: receive hash, tag, type of the tag.
        let variant = offset_of!(libc::tpacket3_hdr, hv1);
        let tag = (status & libc::TP_STATUS_VLAN_VALID != 0).then(|| {
            let known = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
            let kind = if known { short(variant + 8) } else { 0x8100 }.to_be_bytes();
            let control = (long(variant + 4) as u16).to_be_bytes();
            [kind[0], kind[1], control[0], control[1]]
        });
        let partial = (virtio[0] & NEEDS_CHECKSUM != 0).then(|| Partial { start: half(6), offset: half(8) });
        let kind = match virtio[1] & !ECN {
            0 => None,
            1 => Some(SegmentType::Tcp4),
            4 => Some(SegmentType::Tcp6),
            5 => Some(SegmentType::Udp),
            _ => Some(SegmentType::Other),
        };
        let seconds = long(offset_of!(libc::tpacket3_hdr, tp_sec));
        let nanos = long(offset_of!(libc::tpacket3_hdr, tp_nsec));
        let stamp = if seconds == 0 { 0 } else { u64::from(seconds) * 1_000_000_000 + u64::from(nanos) };
        let merged = kind.map(|kind| Merged { kind, size: half(4) });
        Some(Frame { bytes, length: length as usize, tag, partial, merged, stamp })
    }

    /// Advances to the next frame. Must be called only after [`frame`](Self::frame) has returned a frame, with the same
    /// block.
    #[inline]
    pub fn advance(&mut self, block: &[u8]) {
        let next = word(block, self.at + offset_of!(libc::tpacket3_hdr, tp_next_offset)).unwrap_or(0);
        // The last frame has 0 here.
        self.remaining = if next == 0 { 0 } else { self.remaining.saturating_sub(1) };
        self.at = self.at.saturating_add(next as usize);
    }
}

/// Reads a number of four bytes. Returns `None` if it exceeds the block.
#[inline]
fn word(block: &[u8], at: usize) -> Option<u32> {
    block.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// For the fuzz target: reads a block to its end, and processes each frame as the receiver does.
///
/// # Panics
/// Panics if one of the first two properties in the module's documentation does not hold for this block, or if the
/// parts of a merged frame do not add up to the frame.
pub fn fuzz_block(block: &[u8]) {
    let mut cursor = Cursor::new(block);
    // The count field may have any value, but a block has no more frames than bytes.
    for _ in 0..=block.len() {
        let Ok(Some(frame)) = cursor.frame(block) else { return };
        let all = block.as_ptr_range();
        assert!(frame.bytes.as_ptr_range().start >= all.start && frame.bytes.as_ptr_range().end <= all.end);
        super::offload::fuzz_frame(&frame);
        let before = cursor;
        cursor.advance(block);
        assert!(
            cursor.remaining() == 0 || cursor.remaining() == before.remaining() - 1 && cursor.at > before.at,
            "goes on"
        );
    }
    panic!("more frames than bytes");
}

#[cfg(test)]
mod tests;

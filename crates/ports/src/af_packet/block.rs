//! What is in a block of a receive ring: frames, each with what the kernel knows of it (`tpacket3_hdr`, and before the frame a
//! `virtio_net_hdr`).
//!
//! Nothing here trusts the block: a length that leads out of it ends it.

use std::mem::offset_of;

/// Where `num_pkts` is in a block (`tpacket_hdr_v1` in `tpacket_block_desc`).
const COUNT: usize = 12;
/// Where `offset_to_first_pkt` is.
const FIRST: usize = 16;
/// How long a `virtio_net_hdr` is.
const VIRTIO: usize = 10;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CHECKSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_ECN`, which comes with a kind.
const ECN: u8 = 0x80;

/// A checksum of which the sender has left the sum over what follows to its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// From where on the sum is taken, in bytes from the frame's start.
    pub start: usize,
    /// Where the checksum is, from there.
    pub offset: usize,
}

/// What kind of frame its sender has left to its interface to cut, or the interface has put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP datagrams.
    Udp,
    /// Something else.
    Other,
}

/// Several frames in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Several {
    /// What they are.
    pub kind: Kind,
    /// How much payload is in each but the last.
    pub size: usize,
}

/// A frame in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its bytes, without a VLAN tag that the kernel has taken out.
    pub bytes: &'a [u8],
    /// How long it was: more than its bytes where it did not fit into a block.
    pub length: usize,
    /// The tag, as it stood behind the addresses.
    pub tag: Option<[u8; 4]>,
    /// A checksum that is to be completed.
    pub partial: Option<Partial>,
    /// Whether it is several in one.
    pub several: Option<Several>,
    /// When the kernel had it, in nanoseconds of the system's clock; 0 where it does not say.
    pub stamp: u64,
}

/// What is wrong with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame, {at} bytes into a block of {length}, leads out of it")]
pub struct Broken {
    at: usize,
    length: usize,
}

/// How far a block has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    left: u32,
    at: usize,
}

impl Frame<'_> {
    /// Whether there was more of it than fits into a block.
    #[inline]
    pub fn is_cut(&self) -> bool {
        self.bytes.len() < self.length
    }
}

impl Cursor {
    /// The beginning of a block.
    pub fn new(block: &[u8]) -> Self {
        Self { left: word(block, COUNT).unwrap_or(0), at: word(block, FIRST).unwrap_or(0) as usize }
    }

    /// How many frames are still to be read, by what the block says.
    pub fn left(&self) -> u32 {
        self.left
    }

    /// The next frame; `None` after the last.
    ///
    /// # Errors
    /// It is not within the block, and nothing behind it can be found.
    #[inline]
    pub fn frame<'a>(&self, block: &'a [u8]) -> Result<Option<Frame<'a>>, Broken> {
        if self.left == 0 {
            return Ok(None);
        }
        self.read(block).map(Some).ok_or(Broken { at: self.at, length: block.len() })
    }

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
        // `hv1`: receive hash, tag, the tag's type.
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
            1 => Some(Kind::Tcp4),
            4 => Some(Kind::Tcp6),
            5 => Some(Kind::Udp),
            _ => Some(Kind::Other),
        };
        let seconds = long(offset_of!(libc::tpacket3_hdr, tp_sec));
        let nanos = long(offset_of!(libc::tpacket3_hdr, tp_nsec));
        let stamp = if seconds == 0 { 0 } else { u64::from(seconds) * 1_000_000_000 + u64::from(nanos) };
        let several = kind.map(|kind| Several { kind, size: half(4) });
        Some(Frame { bytes, length: length as usize, tag, partial, several, stamp })
    }

    /// Goes on to the frame behind this one.
    #[inline]
    pub fn advance(&mut self, block: &[u8]) {
        let next = word(block, self.at + offset_of!(libc::tpacket3_hdr, tp_next_offset)).unwrap_or(0);
        // The last frame's is 0.
        self.left = if next == 0 { 0 } else { self.left.saturating_sub(1) };
        self.at = self.at.saturating_add(next as usize);
    }
}

#[inline]
fn word(block: &[u8], at: usize) -> Option<u32> {
    block.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// For the fuzz target: reads a block to its end, and makes of each frame what would enter.
///
/// # Panics
/// Where what holds of a block whatever is in it does not.
pub fn fuzz_block(block: &[u8]) {
    let mut cursor = Cursor::new(block);
    // Any number may stand there: a block has no more frames than bytes.
    for _ in 0..=block.len() {
        let Ok(Some(frame)) = cursor.frame(block) else { return };
        let all = block.as_ptr_range();
        assert!(frame.bytes.as_ptr_range().start >= all.start && frame.bytes.as_ptr_range().end <= all.end);
        super::offload::fuzz_frame(&frame);
        let before = cursor;
        cursor.advance(block);
        assert!(cursor.left() == 0 || cursor.left() == before.left() - 1 && cursor.at > before.at, "goes on");
    }
    panic!("more frames than bytes");
}

#[cfg(test)]
mod tests;

//! The IPv4 header (RFC 791 section 3.1).

use std::hint::cold_path;

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum;

/// IP protocol number of ICMP.
pub const ICMP: u8 = 1;
/// IP protocol number of TCP.
pub const TCP: u8 = 6;
/// IP protocol number of UDP.
pub const UDP: u8 = 17;
/// IP protocol number of DCCP.
pub const DCCP: u8 = 33;
/// IP protocol number of SCTP.
pub const SCTP: u8 = 132;
/// IP protocol number of UDP-Lite.
pub const UDP_LITE: u8 = 136;

/// The fixed 20 bytes. Options may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv4 {
    /// Version (4) and header length in 32-bit words.
    pub version_ihl: u8,
    /// Differentiated services and congestion notification (RFC 2474, RFC 3168).
    pub traffic_class: u8,
    /// Length of header and payload, in bytes.
    pub total_length: U16,
    /// Identification, for reassembly.
    pub identification: U16,
    /// Flags (3 bits) and fragment offset in units of 8 bytes (13 bits).
    pub flags_fragment: U16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol that follows: an IP protocol number.
    pub protocol: u8,
    /// Header checksum, as in the frame.
    pub checksum: U16,
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
}

impl Ipv4 {
    /// Returns the header's length in bytes, 20 to 60, or `None` if the field gives less than 20.
    #[inline]
    #[must_use]
    pub fn header_len(&self) -> Option<usize> {
        let words = usize::from(self.version_ihl & 0x0f);
        (words >= 5).then_some(words * 4)
    }

    /// Returns the fragment's offset in units of 8 bytes; 0 for a whole packet and for a first fragment.
    #[inline]
    #[must_use]
    pub fn fragment_offset(&self) -> u16 {
        self.flags_fragment.get() & 0x1fff
    }

    /// Returns whether the packet is a fragment: more fragments follow, or this one has an offset.
    #[inline]
    #[must_use]
    pub fn is_fragment(&self) -> bool {
        self.flags_fragment.get() & 0x3fff != 0
    }

    /// Returns whether the header is valid: version 4, no options or options within `bytes`, a total length that
    /// includes the header and is at most the length of `bytes`, and a correct checksum. `bytes` starts at the header.
    #[inline]
    #[must_use]
    pub fn is_valid(bytes: &[u8]) -> bool {
        let Ok((header, _)) = Ipv4::ref_from_prefix(bytes) else { return false };
        header.is_plain_and_valid(bytes.len() - size_of::<Ipv4>()) || header.is_valid_with_options(bytes)
    }

    /// Returns whether the header is valid and has no options. `room` is the number of bytes after the header. Nearly
    /// all headers have this form, and the checksum covers a fixed length.
    #[inline]
    #[must_use]
    pub fn is_plain_and_valid(&self, room: usize) -> bool {
        // One comparison checks both limits: at least the 20 bytes of the header, at most the available bytes.
        let payload = self.total_length.get().wrapping_sub(size_of::<Self>() as u16);
        self.version_ihl == 0x45 && usize::from(payload) <= room && checksum::is_right20(self.as_bytes())
    }

    /// Returns whether the header is valid and has options. `bytes` starts at the header.
    #[cold]
    fn is_valid_with_options(&self, bytes: &[u8]) -> bool {
        let Some(length) = self.header_len().filter(|length| self.version_ihl >> 4 == 4 && *length > 20) else {
            return false;
        };
        (length..=bytes.len()).contains(&usize::from(self.total_length.get()))
            && checksum::sum(&bytes[..length]) == 0xffff
    }

    /// Writes the header checksum. The length field must be correct, and `options` must be the header's options, if it
    /// has any.
    #[inline]
    pub fn update_checksum(&mut self, options: &[u8]) {
        // The old checksum is subtracted from the sum instead of being overwritten with 0 first: a load that is wider
        // than the last store would wait until the store has reached the cache.
        let old = u16::from_ne_bytes(self.checksum.to_bytes());
        let fixed = checksum::add(checksum::sum20(self.as_bytes()), !old);
        let sum = if options.is_empty() { fixed } else { with_options(fixed, options) };
        self.checksum = U16::from_bytes((!sum).to_ne_bytes());
    }

    /// Decrements the time to live and updates the checksum (RFC 1624 equation 3). Returns `false` and changes nothing
    /// if the time to live is 0 or 1: such a packet must not be forwarded.
    #[inline]
    #[must_use]
    pub fn decrement_ttl(&mut self) -> bool {
        if self.ttl <= 1 {
            return false;
        }
        // Time to live, protocol and checksum are one little-endian word. The time to live is its lowest byte; the
        // checksum, with its bytes swapped, is its upper half. The sum under the checksum falls by 0x0100, so the
        // checksum rises by 0x0100, which is 1 with swapped bytes.
        let bytes = self.as_mut_bytes();
        let Some((word, _)) = bytes.get_mut(8..).and_then(<[u8]>::split_first_chunk_mut) else { return false };
        let mut value = u32::from_le_bytes(*word);
        // Two checksums carry: 0xffff becomes 1 and 0xfffe becomes 0, because the result is never negative zero.
        if value >= 0xfffe_0000 {
            cold_path();
            value = value.wrapping_add(0x0001_0000);
        }
        *word = value.wrapping_add(0x0001_0000 - 1).to_le_bytes();
        true
    }
}

/// Adds the sum of a header's options, which few headers have.
#[cold]
#[inline(never)]
fn with_options(fixed: u16, options: &[u8]) -> u16 {
    checksum::add(fixed, checksum::sum(options))
}

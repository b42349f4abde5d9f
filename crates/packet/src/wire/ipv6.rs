//! The IPv6 header and its extension headers (RFC 8200).

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The fixed 40 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv6 {
    /// Version (6), traffic class, flow label.
    pub version_class_label: U32,
    /// Bytes that follow this header.
    pub payload_length: U16,
    /// What follows: an extension header's or an upper layer's number.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
}

/// Extension headers walked over at the most; a chain that is longer is not looked through (RFC 8504 section 5.3
/// lets a node limit it).
pub const MOST_EXTENSIONS: usize = 8;

/// The number of hop-by-hop options, and the numbers of the other extension headers that are walked over (RFC 8200
/// section 4.1, RFC 4302, RFC 6275 section 6.1, RFC 7401 section 5.1, RFC 5533 section 5). RFC 7045 section 2 lists
/// them. The numbers for experiments (253 and 254, RFC 3692) have no known format: a packet with one of them shows it
/// as its upper layer.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
const MOBILITY: u8 = 135;
const HIP: u8 = 139;
const SHIM6: u8 = 140;
/// No header follows (RFC 8200 section 4.7).
const NO_NEXT_HEADER: u8 = 59;

/// Whether a number is an extension header's: another header may follow it.
#[must_use]
pub fn is_extension(protocol: u8) -> bool {
    matches!(protocol, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION | MOBILITY | HIP | SHIM6)
}

impl Ipv6 {
    /// Whether the packet has a length of 0 and begins with hop-by-hop options, in which a jumbogram has its length
    /// (RFC 2675). No frame here holds one.
    #[must_use]
    pub fn is_jumbogram(&self) -> bool {
        self.payload_length.get() == 0 && self.next_header == HOP_BY_HOP
    }
}

/// The upper layer's protocol number and its offset in `frame`, whose IPv6 header starts at `start`. `None` where
/// the chain is cut short or too long, or the packet is a fragment other than the first.
#[must_use]
pub fn upper_layer(frame: &[u8], start: usize) -> Option<(u8, usize)> {
    let Walked { protocol, offset, .. } = walk(frame, start)?;
    offset.map(|offset| (protocol, offset))
}

/// Returns whether the packet is a fragment of a datagram (RFC 8200 section 4.5). A packet whose fragment header says
/// that it is whole is none (RFC 6946), nor is one whose fragment header lies behind what can be read.
#[must_use]
pub fn is_fragment(frame: &[u8], start: usize) -> bool {
    walk(frame, start).is_some_and(|walked| walked.fragment)
}

/// Whether an authentication header (RFC 4302) stands before the upper layer, which starts at `upper` as
/// [`upper_layer`] says: who changes a byte behind it makes its integrity check fail.
#[must_use]
pub fn is_authenticated(frame: &[u8], start: usize, upper: usize) -> bool {
    let header = frame.get(start..).and_then(|rest| Ipv6::ref_from_prefix(rest).ok());
    let Some((header, _)) = header else { return false };
    let (mut next, mut offset) = (header.next_header, start + size_of::<Ipv6>());
    while offset < upper && next != AUTHENTICATION {
        let Some(&[following, length]) = frame.get(offset..offset + 2) else { return false };
        // Of a fragment header the second byte is reserved, and its length is fixed.
        let length = if next == FRAGMENT { 0 } else { usize::from(length) };
        (next, offset) = (following, offset + 8 * (length + 1));
    }
    offset < upper
}

/// Whether the packet is a fragment other than the first, found behind headers that can be read.
#[must_use]
pub fn is_later_fragment(frame: &[u8], start: usize) -> bool {
    walk(frame, start).is_some_and(|walked| walked.later)
}

/// Of a fragment other than the first the number that its fragment header says follows in the first: an upper layer's
/// or an extension header's. `None` of every other packet, and where that header lies behind what can be read.
#[must_use]
pub fn later_fragment(frame: &[u8], start: usize) -> Option<u8> {
    walk(frame, start).filter(|walked| walked.later).map(|walked| walked.protocol)
}

/// The protocol number of the upper layer, whether or not it begins in this packet: that of the last extension header
/// that could be read, or of the chain's end. `None` where there is no IPv6 header.
#[must_use]
pub fn upper_protocol(frame: &[u8], start: usize) -> Option<u8> {
    walk(frame, start).map(|walked| walked.protocol)
}

/// What a walk along the headers finds.
struct Walked {
    /// The last protocol number.
    protocol: u8,
    /// Where the upper layer starts, if it does so in this packet.
    offset: Option<usize>,
    /// Whether it is a fragment.
    fragment: bool,
    /// Whether it is a fragment other than the first.
    later: bool,
}

fn walk(frame: &[u8], start: usize) -> Option<Walked> {
    let header = Ipv6::ref_from_prefix(frame.get(start..)?).ok()?.0;
    let mut next = header.next_header;
    let mut offset = start + size_of::<Ipv6>();
    // Padding of the frame is none of the packet's. A length of zero is one: nothing follows (RFC 8200 section 3). A
    // jumbogram (RFC 2675) is longer than any frame here, so that its options are not read.
    let end = frame.len().min(offset + usize::from(header.payload_length.get()));
    let frame = &frame[..end];
    let mut fragment = false;
    for _ in 0..=MOST_EXTENSIONS {
        let header = frame.get(offset..offset + 8);
        let cut = Some(Walked { protocol: next, offset: None, fragment, later: false });
        match next {
            // Hop-by-hop options, routing, destination options: length in 8-byte units beyond the first.
            HOP_BY_HOP | ROUTING | DESTINATION => {
                let Some(header) = header else { return cut };
                (next, offset) = (header[0], offset + 8 * (usize::from(header[1]) + 1));
            }
            // The same form. No header follows a message of these protocols: its number is that of the upper layer,
            // which filters can name. A header that does follow is the upper layer.
            MOBILITY | HIP | SHIM6 => {
                let Some(header) = header else { return cut };
                if header[0] == NO_NEXT_HEADER {
                    return Some(Walked { protocol: next, offset: Some(offset), fragment, later: false });
                }
                (next, offset) = (header[0], offset + 8 * (usize::from(header[1]) + 1));
            }
            // Fragment: eight bytes; the offset is the upper 13 bits of bytes 2 and 3, the last bit says that more follow.
            FRAGMENT => {
                let Some(header) = header else { return cut };
                let place = u16::from_be_bytes([header[2], header[3]]);
                fragment |= place & 0xfff9 != 0;
                if place >> 3 != 0 {
                    return Some(Walked { protocol: header[0], offset: None, fragment, later: true });
                }
                (next, offset) = (header[0], offset + 8);
            }
            // Authentication: length in 4-byte units beyond the first two (RFC 4302 section 2.2).
            AUTHENTICATION => {
                let Some(header) = header else { return cut };
                (next, offset) = (header[0], offset + 4 * (usize::from(header[1]) + 2));
            }
            upper => {
                let offset = (offset <= frame.len()).then_some(offset);
                return Some(Walked { protocol: upper, offset, fragment, later: false });
            }
        }
    }
    Some(Walked { protocol: next, offset: None, fragment, later: false })
}

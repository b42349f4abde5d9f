//! The IPv6 header and its extension headers (RFC 8200).

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The fixed 40 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv6 {
    /// Version (6), traffic class, flow label.
    pub version_class_label: U32,
    /// Number of bytes after this header.
    pub payload_length: U16,
    /// The number of the extension header or upper layer that follows.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
}

/// The most extension headers that are skipped. A longer chain is not parsed (RFC 8504 section 5.3 allows a limit).
pub const MOST_EXTENSIONS: usize = 8;

// The numbers of the extension headers that are skipped. RFC 7045 section 2 lists them. The experimental numbers (253
// and 254, RFC 3692) have no known format: they count as the upper layer.

/// Hop-by-hop options (RFC 8200 section 4.3).
const HOP_BY_HOP: u8 = 0;
/// Routing header (RFC 8200 section 4.4).
const ROUTING: u8 = 43;
/// Fragment header (RFC 8200 section 4.5).
pub(crate) const FRAGMENT: u8 = 44;
/// Authentication header (RFC 4302).
const AUTHENTICATION: u8 = 51;
/// Destination options (RFC 8200 section 4.6).
const DESTINATION: u8 = 60;
/// Mobility header (RFC 6275 section 6.1).
const MOBILITY: u8 = 135;
/// Host Identity Protocol (RFC 7401 section 5.1).
const HIP: u8 = 139;
/// Shim6 (RFC 5533 section 5).
const SHIM6: u8 = 140;
/// No header follows (RFC 8200 section 4.7).
const NO_NEXT_HEADER: u8 = 59;

/// Returns whether `protocol` is the number of an extension header that is skipped.
#[must_use]
pub fn is_extension(protocol: u8) -> bool {
    matches!(protocol, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION | MOBILITY | HIP | SHIM6)
}

impl Ipv6 {
    /// Returns whether the packet has a length of 0 and begins with hop-by-hop options, which contain the length of a
    /// jumbogram (RFC 2675). A jumbogram is longer than any frame here.
    #[must_use]
    pub fn is_jumbogram(&self) -> bool {
        self.payload_length.get() == 0 && self.next_header == HOP_BY_HOP
    }
}

/// Returns the upper layer's protocol number and its offset in `frame`, whose IPv6 header starts at `start`. Returns
/// `None` if the chain is cut short or too long, or if the packet is a fragment other than the first.
#[must_use]
pub fn upper_layer(frame: &[u8], start: usize) -> Option<(u8, usize)> {
    let HeaderChain { protocol, offset, .. } = walk(frame, start)?;
    offset.map(|offset| (protocol, offset))
}

/// Returns whether the packet is a fragment of a datagram (RFC 8200 section 4.5). A packet whose fragment header marks
/// it as whole is not a fragment (RFC 6946). A fragment header behind more than [`MOST_EXTENSIONS`] headers is ignored.
#[must_use]
pub fn is_fragment(frame: &[u8], start: usize) -> bool {
    walk(frame, start).is_some_and(|chain| chain.fragment)
}

/// Returns whether an authentication header (RFC 4302) precedes the upper layer, which starts at `upper`
/// ([`upper_layer`]). Changing a byte behind that header makes its integrity check fail.
#[must_use]
pub fn is_authenticated(frame: &[u8], start: usize, upper: usize) -> bool {
    let header = frame.get(start..).and_then(|rest| Ipv6::ref_from_prefix(rest).ok());
    let Some((header, _)) = header else { return false };
    let (mut next, mut offset) = (header.next_header, start + size_of::<Ipv6>());
    while offset < upper && next != AUTHENTICATION {
        let Some(&[following, length]) = frame.get(offset..offset + 2) else { return false };
        // The second byte of a fragment header is reserved; its length is fixed.
        let length = if next == FRAGMENT { 0 } else { usize::from(length) };
        (next, offset) = (following, offset + 8 * (length + 1));
    }
    offset < upper
}

/// Returns whether the packet is a fragment other than the first, as far as its headers can be read.
#[must_use]
pub fn is_later_fragment(frame: &[u8], start: usize) -> bool {
    walk(frame, start).is_some_and(|chain| chain.later)
}

/// Returns the next header number in the fragment header of a fragment other than the first. It is the number of the
/// upper layer or extension header that follows in the first fragment. Returns `None` for every other packet, and if
/// the fragment header is behind the headers that can be read.
#[must_use]
pub fn later_fragment(frame: &[u8], start: usize) -> Option<u8> {
    walk(frame, start).filter(|chain| chain.later).map(|chain| chain.protocol)
}

/// Returns the protocol number of the upper layer, even if the upper layer does not begin in this packet: the last
/// number in the chain, or in the part of the chain that can be read. Returns `None` without an IPv6 header.
#[must_use]
pub fn upper_protocol(frame: &[u8], start: usize) -> Option<u8> {
    walk(frame, start).map(|chain| chain.protocol)
}

/// The result of following the chain of headers.
struct HeaderChain {
    /// The last protocol number.
    protocol: u8,
    /// Offset of the upper layer, if it starts in this packet.
    offset: Option<usize>,
    /// True if the packet is a fragment.
    fragment: bool,
    /// True if the packet is a fragment other than the first.
    later: bool,
}

/// Follows the chain of headers of the IPv6 packet that starts at `start` in the frame. Returns `None` if the frame
/// ends before the fixed header does.
fn walk(frame: &[u8], start: usize) -> Option<HeaderChain> {
    let header = Ipv6::ref_from_prefix(frame.get(start..)?).ok()?.0;
    let mut next = header.next_header;
    let mut offset = start + size_of::<Ipv6>();
    // Padding of the frame is not part of the packet. A length of zero is a real length: nothing follows (RFC 8200
    // section 3). A jumbogram (RFC 2675) is longer than any frame here, so its options are not read.
    let end = frame.len().min(offset + usize::from(header.payload_length.get()));
    let frame = &frame[..end];
    let mut fragment = false;
    for _ in 0..=MOST_EXTENSIONS {
        let header = frame.get(offset..offset + 8);
        let cut = Some(HeaderChain { protocol: next, offset: None, fragment, later: false });
        match next {
            // Hop-by-hop options, routing, destination options: the length counts 8-byte units after the first 8 bytes.
            HOP_BY_HOP | ROUTING | DESTINATION => {
                let Some(header) = header else { return cut };
                (next, offset) = (header[0], offset + 8 * (usize::from(header[1]) + 1));
            }
            // The same format. If no header follows, the packet is a message of this protocol. The protocol then counts
            // as the upper layer, so that filters can name it. Otherwise the walk continues with the next header.
            MOBILITY | HIP | SHIM6 => {
                let Some(header) = header else { return cut };
                if header[0] == NO_NEXT_HEADER {
                    return Some(HeaderChain { protocol: next, offset: Some(offset), fragment, later: false });
                }
                (next, offset) = (header[0], offset + 8 * (usize::from(header[1]) + 1));
            }
            // Fragment header: eight bytes. The offset is the upper 13 bits of bytes 2 and 3; the last bit means that
            // more fragments follow.
            FRAGMENT => {
                let Some(header) = header else { return cut };
                let offset_flags = u16::from_be_bytes([header[2], header[3]]);
                fragment |= offset_flags & 0xfff9 != 0;
                if offset_flags >> 3 != 0 {
                    return Some(HeaderChain { protocol: header[0], offset: None, fragment, later: true });
                }
                (next, offset) = (header[0], offset + 8);
            }
            // Authentication header: the length counts 4-byte units after the first two (RFC 4302 section 2.2).
            AUTHENTICATION => {
                let Some(header) = header else { return cut };
                (next, offset) = (header[0], offset + 4 * (usize::from(header[1]) + 2));
            }
            upper => {
                let offset = (offset <= frame.len()).then_some(offset);
                return Some(HeaderChain { protocol: upper, offset, fragment, later: false });
            }
        }
    }
    Some(HeaderChain { protocol: next, offset: None, fragment, later: false })
}

//! Parsing of fragments, and the headers of reassembled datagrams.

use forebay_packet::wire::checksum;
use forebay_packet::wire::ipv4::Ipv4;
use forebay_packet::wire::ipv6::Ipv6;
use forebay_packet::{Network, Packet, Word};
use zerocopy::FromBytes;

/// Maximum number of metadata words in a key.
pub(super) const MOST_WORDS: usize = 2;

/// The fields that all fragments of a datagram have in common (RFC 791 section 3.2, RFC 8200 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct DatagramKey {
    /// The source address; an IPv4 address is followed by twelve zeros.
    source: [u8; 16],
    /// The destination address, in the same form.
    destination: [u8; 16],
    identification: u32,
    /// The protocol for IPv4; 0 for IPv6, whose key does not contain it.
    protocol: u8,
    ipv6: bool,
    /// Values of the metadata words that distinguish tunnels.
    words: [u32; MOST_WORDS],
}

impl DatagramKey {
    /// Returns the key with a packet's values of these metadata words, of which there may be up to [`MOST_WORDS`].
    pub(super) fn within(self, packet: &Packet, words: &[Word]) -> Self {
        let mut key = self;
        key.words.iter_mut().zip(words).for_each(|(value, word)| *value = packet.word(*word));
        key
    }
}

/// A parsed fragment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    pub(super) key: DatagramKey,
    /// The offset of the fragment's first payload byte in the datagram's payload.
    pub(super) start: u16,
    /// The offset after the fragment's last payload byte in the datagram's payload.
    pub(super) end: u16,
    /// True if fragments with later parts of the datagram exist.
    pub(super) more: bool,
    /// Offset of the payload in the frame; for IPv6, after the fragment header.
    pub(super) payload_at: u16,
    /// The ECN field: 0 if the packet is not ECN-capable, 3 if it is marked for congestion (RFC 3168 section 5).
    pub(super) ecn: u8,
}

/// Result of parsing a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum PacketType {
    /// Not a fragment.
    Whole,
    /// An IPv6 fragment that is its whole datagram.
    Atomic(Fragment),
    /// A fragment of a datagram.
    Fragment(Fragment),
    /// A length or offset is impossible, or the first fragment lacks part of the headers (RFC 7112).
    Malformed,
    /// The IPv4 header's checksum is wrong, so offset and length may be wrong.
    BadChecksum,
}

/// The next-header value of the IPv6 fragment header.
const FRAGMENT: u8 = 44;
const FRAGMENT_HEADER: usize = 8;
/// Maximum number of extension headers that are skipped to find the fragment header.
const MOST_EXTENSIONS: usize = 8;

/// Returns whether a packet is a fragment, and of which datagram. An IPv4 packet must be a fragment: the caller has
/// excluded all others. The key has no metadata words yet: see [`DatagramKey::within`].
pub(super) fn parse(packet: &mut Packet) -> PacketType {
    let (network, start) = packet.network();
    let seen = match network {
        Network::Ipv4 => parse_v4(packet, start),
        Network::Ipv6 => parse_v6(packet, start),
        Network::Other => Some(PacketType::Whole),
    };
    seen.unwrap_or(PacketType::Malformed)
}

/// Returns the range of the payload that begins at `offset` and has `length` bytes. `None` if the range is empty, ends
/// beyond the longest possible datagram, or is not a multiple of 8 bytes although more fragments follow.
fn payload_range(offset: usize, length: usize, more: bool) -> Option<(u16, u16)> {
    let end = u16::try_from(offset + length).ok()?;
    (length > 0 && (!more || length.is_multiple_of(8))).then_some((offset as u16, end))
}

/// Parses an IPv4 fragment. `start` is the offset of the IPv4 header. `None` if the packet is malformed.
fn parse_v4(packet: &Packet, start: usize) -> Option<PacketType> {
    let frame = packet.data();
    let (header, _) = Ipv4::ref_from_prefix(frame.get(start..)?).ok()?;
    let (total, headers) = (usize::from(header.total_length.get()), header.header_len()?);
    if start + total > frame.len() {
        return None;
    }
    if checksum::sum(frame.get(start..start + headers)?) != 0xffff {
        return Some(PacketType::BadChecksum);
    }
    let more = header.flags_fragment.get() & 0x2000 != 0;
    let offset = usize::from(header.fragment_offset()) * 8;
    let (from, to) = payload_range(offset, total.checked_sub(headers)?, more)?;
    // The whole datagram must have a valid length (RFC 791: up to 65535 bytes, including its header).
    u16::try_from(usize::from(to) + headers).ok()?;
    let widen = |address: [u8; 4]| {
        let mut wide = [0; 16];
        wide[..4].copy_from_slice(&address);
        wide
    };
    Some(PacketType::Fragment(Fragment {
        key: DatagramKey {
            source: widen(header.source),
            destination: widen(header.destination),
            identification: header.identification.get().into(),
            protocol: header.protocol,
            ipv6: false,
            words: [0; MOST_WORDS],
        },
        start: from,
        end: to,
        more,
        payload_at: (start + headers) as u16,
        ecn: header.traffic_class & 3,
    }))
}

/// Returns the offsets of the fragment header and of the next-header field that announces it. `start` is the offset of
/// the IPv6 header, and `first` its next-header value. `None` if no fragment header is found.
fn fragment_header(frame: &[u8], start: usize, first: u8) -> Option<(usize, usize)> {
    let (mut next, mut announced, mut at) = (first, start + 6, start + size_of::<Ipv6>());
    for _ in 0..=MOST_EXTENSIONS {
        match next {
            FRAGMENT => return Some((at, announced)),
            0 | 43 | 60 => {
                let header = frame.get(at..at + 2)?;
                (next, announced) = (header[0], at);
                at += 8 * (usize::from(header[1]) + 1);
            }
            _ => return None,
        }
    }
    None
}

/// Parses an IPv6 packet. `start` is the offset of the IPv6 header. `None` if the packet is malformed.
fn parse_v6(packet: &mut Packet, start: usize) -> Option<PacketType> {
    let frame = packet.data();
    let (header, _) = Ipv6::ref_from_prefix(frame.get(start..)?).ok()?;
    let Some((at, _)) = fragment_header(frame, start, header.next_header) else { return Some(PacketType::Whole) };
    let end = start + size_of::<Ipv6>() + usize::from(header.payload_length.get());
    let bytes = frame.get(..end)?.get(at..at + FRAGMENT_HEADER)?;
    let field = u16::from_be_bytes([bytes[2], bytes[3]]);
    let (offset, more) = (usize::from(field & 0xfff8), field & 1 != 0);
    let identification = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    let payload_at = at + FRAGMENT_HEADER;
    let length = end.checked_sub(payload_at)?;
    // RFC 6946: the fragment is its whole datagram, even if it has no payload.
    let atomic = offset == 0 && !more;
    let (from, to) = if atomic { (0, length as u16) } else { payload_range(offset, length, more)? };
    u16::try_from(usize::from(to) + at - start - size_of::<Ipv6>()).ok()?;
    let fragment = Fragment {
        key: DatagramKey {
            source: header.source,
            destination: header.destination,
            identification,
            protocol: 0,
            ipv6: true,
            words: [0; MOST_WORDS],
        },
        start: from,
        end: to,
        more,
        payload_at: payload_at as u16,
        ecn: (header.version_class_label.get() >> 20) as u8 & 3,
    };
    if atomic {
        return Some(PacketType::Atomic(fragment));
    }
    // RFC 7112: the first fragment must contain all headers.
    if from == 0 && packet.transport().is_none() {
        return None;
    }
    Some(PacketType::Fragment(fragment))
}

/// Removes the fragment header of an IPv6 packet that is a whole datagram. Returns false if the packet has no such
/// header.
pub(super) fn strip(packet: &mut Packet, fragment: &Fragment) -> bool {
    // Remove the Ethernet padding.
    let end = packet.network_end();
    packet.truncate(end);
    finish(packet, fragment.payload_at.into(), false)
}

/// Completes the headers of a datagram: the headers of the first fragment, which end at `headers`, are followed by the
/// whole payload. Removes the fragment header, and sets length, flags and checksum. With `congestion`, marks the
/// datagram for congestion. Returns false if the headers do not allow this; the caller must then drop the packet.
pub(super) fn finish(packet: &mut Packet, headers: usize, congestion: bool) -> bool {
    let (network, start) = packet.network();
    let done = match network {
        Network::Ipv4 => finish_v4(packet, start, headers, congestion),
        Network::Ipv6 => finish_v6(packet, start, headers, congestion),
        Network::Other => None,
    };
    packet.forget_layers();
    done.is_some()
}

/// Completes an IPv4 datagram whose header is at `start`, for [`finish`].
fn finish_v4(packet: &mut Packet, start: usize, headers: usize, congestion: bool) -> Option<()> {
    let total = u16::try_from(packet.len() - start).ok()?;
    let (fixed, options) = packet.data_mut().get_mut(start..headers)?.split_at_mut_checked(size_of::<Ipv4>())?;
    let header = Ipv4::mut_from_bytes(fixed).ok()?;
    header.total_length = total.into();
    // "Don't fragment" stays set if the sender has set it.
    header.flags_fragment = (header.flags_fragment.get() & 0x4000).into();
    header.traffic_class |= if congestion { 3 } else { 0 };
    header.update_checksum(options);
    Some(())
}

/// Completes an IPv6 datagram whose header is at `start`, for [`finish`].
fn finish_v6(packet: &mut Packet, start: usize, headers: usize, congestion: bool) -> Option<()> {
    let first = packet.view::<Ipv6>(start)?.next_header;
    let (at, announced) = fragment_header(packet.data(), start, first)?;
    if at + FRAGMENT_HEADER != headers {
        return None;
    }
    let end = packet.len();
    let next = *packet.data().get(at)?;
    *packet.data_mut().get_mut(announced)? = next;
    packet.data_mut().copy_within(headers..end, at);
    packet.truncate(end - FRAGMENT_HEADER);
    let length = u16::try_from(packet.len() - start - size_of::<Ipv6>()).ok()?;
    let header = packet.view_mut::<Ipv6>(start)?;
    header.payload_length = length.into();
    if congestion {
        header.version_class_label = (header.version_class_label.get() | 3 << 20).into();
    }
    Some(())
}

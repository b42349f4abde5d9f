//! Fragments as they stand in frames, and the headers of what is made of them.

use forebay_packet::wire::checksum;
use forebay_packet::wire::ipv4::Ipv4;
use forebay_packet::wire::ipv6::Ipv6;
use forebay_packet::{Network, Packet, Word};
use zerocopy::FromBytes;

/// The most metadata words of a key.
pub(super) const MOST_WORDS: usize = 2;

/// What fragments of one datagram have in common (RFC 791 section 3.2, RFC 8200 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct DatagramKey {
    source: [u8; 16],
    destination: [u8; 16],
    identification: u32,
    /// The protocol, of IPv4; 0 of IPv6, whose key does not have it.
    protocol: u8,
    ipv6: bool,
    /// Values of metadata words that all fragments have in common: which tunnel they came by.
    words: [u32; MOST_WORDS],
}

impl DatagramKey {
    /// The same with the values that a packet has in these words.
    pub(super) fn within(self, packet: &Packet, words: &[Word]) -> Self {
        let mut key = self;
        key.words.iter_mut().zip(words).for_each(|(value, word)| *value = packet.word(*word));
        key
    }
}

/// A fragment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    pub(super) key: DatagramKey,
    /// The stretch of the payload that it has.
    pub(super) start: u16,
    pub(super) end: u16,
    /// Others follow.
    pub(super) more: bool,
    /// Where its payload is in its frame; of IPv6 behind the fragment header.
    pub(super) payload_at: u16,
    /// Congestion notification.
    pub(super) ecn: u8,
}

/// What a packet is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seen {
    /// No fragment.
    Whole,
    /// One that is all of its datagram.
    Atomic(Fragment),
    Part(Fragment),
    Malformed,
    /// The IPv4 header's checksum is wrong: neither place nor length is known to be what was sent.
    BadChecksum,
}

/// The header that says what a fragment is.
const FRAGMENT: u8 = 44;
const FRAGMENT_HEADER: usize = 8;
/// Extension headers before it that are walked over at the most.
const MOST_EXTENSIONS: usize = 8;

/// What a packet is.
pub(super) fn see(packet: &mut Packet) -> Seen {
    let (network, start) = packet.network();
    let seen = match network {
        Network::Ipv4 => see_v4(packet, start),
        Network::Ipv6 => see_v6(packet, start),
        Network::Other => Some(Seen::Whole),
    };
    seen.unwrap_or(Seen::Malformed)
}

/// The stretch of the payload that begins at `offset` and has `length` bytes: not empty, of whole units where others follow, and
/// not beyond what a datagram can have.
fn stretch(offset: usize, length: usize, more: bool) -> Option<(u16, u16)> {
    let end = u16::try_from(offset + length).ok()?;
    (length > 0 && (!more || length.is_multiple_of(8))).then_some((offset as u16, end))
}

fn see_v4(packet: &Packet, start: usize) -> Option<Seen> {
    let frame = packet.data();
    let (header, _) = Ipv4::ref_from_prefix(frame.get(start..)?).ok()?;
    let (total, headers) = (usize::from(header.total_length.get()), header.header_len()?);
    if start + total > frame.len() {
        return None;
    }
    if checksum::sum(frame.get(start..start + headers)?) != 0xffff {
        return Some(Seen::BadChecksum);
    }
    let more = header.flags_fragment.get() & 0x2000 != 0;
    let offset = usize::from(header.fragment_offset()) * 8;
    let (from, to) = stretch(offset, total.checked_sub(headers)?, more)?;
    // The whole must have a length (RFC 791: 65535 with its header).
    u16::try_from(usize::from(to) + headers).ok()?;
    let widen = |address: [u8; 4]| {
        let mut wide = [0; 16];
        wide[..4].copy_from_slice(&address);
        wide
    };
    Some(Seen::Part(Fragment {
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

/// Where the fragment header is, and where the byte that announces it.
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

fn see_v6(packet: &mut Packet, start: usize) -> Option<Seen> {
    let frame = packet.data();
    let (header, _) = Ipv6::ref_from_prefix(frame.get(start..)?).ok()?;
    let Some((at, _)) = fragment_header(frame, start, header.next_header) else { return Some(Seen::Whole) };
    let end = start + size_of::<Ipv6>() + usize::from(header.payload_length.get());
    let bytes = frame.get(..end)?.get(at..at + FRAGMENT_HEADER)?;
    let place = u16::from_be_bytes([bytes[2], bytes[3]]);
    let (offset, more) = (usize::from(place & 0xfff8), place & 1 != 0);
    let identification = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    let payload_at = at + FRAGMENT_HEADER;
    let length = end.checked_sub(payload_at)?;
    // RFC 6946: one that is all of its datagram; even where there is nothing behind it.
    let atomic = offset == 0 && !more;
    let (from, to) = if atomic { (0, length as u16) } else { stretch(offset, length, more)? };
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
        return Some(Seen::Atomic(fragment));
    }
    // RFC 7112: all headers are in the first.
    if from == 0 && packet.transport().is_none() {
        return None;
    }
    Some(Seen::Part(fragment))
}

/// Takes the fragment header out of a packet that is whole.
pub(super) fn strip(packet: &mut Packet, fragment: &Fragment) -> bool {
    // Padding is none of it.
    let end = packet.network_end();
    packet.truncate(end);
    finish(packet, fragment.payload_at.into(), false)
}

/// Makes a datagram of the first fragment's headers, which end at `headers`, and all the payload behind them: takes the fragment
/// header out, and puts length, flags and checksum right.
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

fn finish_v4(packet: &mut Packet, start: usize, headers: usize, congestion: bool) -> Option<()> {
    let total = u16::try_from(packet.len() - start).ok()?;
    let (fixed, options) = packet.data_mut().get_mut(start..headers)?.split_at_mut_checked(size_of::<Ipv4>())?;
    let header = Ipv4::mut_from_bytes(fixed).ok()?;
    header.total_length = total.into();
    // Don't fragment stays: the sender asked for it.
    header.flags_fragment = (header.flags_fragment.get() & 0x4000).into();
    header.traffic_class |= if congestion { 3 } else { 0 };
    header.update_checksum(options);
    Some(())
}

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

//! The parts of a packet's headers that identify its connection: addresses, ports and flags. Most plain packets are
//! handled in a faster way ([`Plain`](forebay_tables::plain::Plain)), without this module.

use forebay_packet::Packet;
use forebay_packet::wire::icmp::Icmp;
use forebay_packet::wire::ipv4::{DCCP, Ipv4, SCTP, TCP, UDP, UDP_LITE};
use forebay_packet::wire::ipv6::{self, Ipv6};
use forebay_packet::wire::tcp::Tcp;
use forebay_tables::plain::FRAGMENT;
use forebay_tables::sessions::{Tuple4, Tuple6};
use zerocopy::FromBytes;

use super::icmp::{Types, is_between_neighbours, message_ports};

/// Classification of a packet by its headers. `T` is the 5-tuple of an IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown<T> {
    /// A packet of a connection.
    Packet(Headers<T>),
    /// An ICMP error about a packet with this 5-tuple.
    Error(T),
    /// A fragment of a datagram, including a first fragment.
    Fragment,
    /// Any other ICMP message: not a query, not a reply, and not a known error. It has a direction, but no message
    /// replies to it.
    Message(Headers<T>),
    /// The transport header is cut short, or an ICMP error does not quote the ports of a packet.
    Malformed,
    /// A message between neighbours on one link. It belongs to no connection and must not be dropped (RFC 4890 section
    /// 4.4.1).
    Neighbour,
    /// A packet of another IP version, or not an IP packet.
    NotThis,
}

/// The headers of a packet of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers<T> {
    /// The 5-tuple. For an ICMP query the port of the side that sends the query is the identifier (RFC 5508 section
    /// 3.1). The other port is the identifier plus a number for the type of query. Ports are 0 if the protocol has
    /// none.
    pub tuple: T,
    /// IP protocol number.
    pub protocol: u8,
    /// TCP's control bits; 0 for other protocols.
    pub flags: u8,
    /// True if the packet may be the first packet of a connection. False only for the reply to an ICMP query.
    pub may_open: bool,
}

impl Shown<Tuple4> {
    /// Classifies a packet by its outermost headers.
    #[must_use]
    pub fn of(packet: &mut Packet) -> Self {
        let Some(ip) = packet.ipv4().copied() else { return Self::NotThis };
        if ip.flags_fragment.get() & FRAGMENT != 0 {
            return Self::Fragment;
        }
        let tuple = |ports, protocol| Tuple4::new(ip.source, ip.destination, ports, protocol);
        transport(packet, Types::V4, |_| false, tuple, quoted_v4)
    }
}

impl Shown<Tuple6> {
    /// Classifies a packet by its outermost headers.
    #[must_use]
    pub fn of(packet: &mut Packet) -> Self {
        let Some(ip) = packet.ipv6().copied() else { return Self::NotThis };
        let (_, start) = packet.network();
        if ipv6::is_fragment(packet.data(), start) {
            return Self::Fragment;
        }
        let tuple = |ports, protocol| Tuple6::new(ip.source, ip.destination, ports, protocol);
        transport(packet, Types::V6, |kind| is_between_neighbours(&ip, kind), tuple, quoted_v6)
    }
}

/// Classifies a packet by its transport header. `is_between_neighbours` gets the type of an ICMP message. `tuple` makes
/// the 5-tuple from ports and protocol. `quoted` returns the 5-tuple of the packet that an ICMP error quotes.
fn transport<T>(
    packet: &mut Packet,
    types: Types,
    is_between_neighbours: impl Fn(u8) -> bool,
    tuple: impl Fn((u16, u16), u8) -> T,
    quoted: impl Fn(&[u8]) -> Option<T>,
) -> Shown<T> {
    let Some((protocol, start)) = packet.transport() else { return Shown::Malformed };
    let (end, ports) = (packet.network_end(), packet.ports());
    let header = packet.data().get(start..end).unwrap_or_default();
    let shown =
        |ports, flags, may_open| Shown::Packet(Headers { tuple: tuple(ports, protocol), protocol, flags, may_open });
    if protocol == types.protocol() {
        return icmp(header, types, is_between_neighbours, shown, quoted);
    }
    match (protocol, ports) {
        (TCP, _) => match Tcp::ref_from_prefix(header) {
            Ok((tcp, _)) => shown((tcp.source.get(), tcp.destination.get()), tcp.flags, true),
            Err(_) => Shown::Malformed,
        },
        (UDP, Some((_, from, to))) if header.len() >= UDP_HEADER => shown((from, to), 0, true),
        (UDP | SCTP | DCCP | UDP_LITE, None) | (UDP, _) => Shown::Malformed,
        (_, ports) => shown(ports.map_or((0, 0), |(_, from, to)| (from, to)), 0, true),
    }
}

const UDP_HEADER: usize = 8;

/// Classifies an ICMP message. `shown` makes the result from ports, flags, and whether the message may open a
/// connection.
fn icmp<T>(
    message: &[u8],
    types: Types,
    is_between_neighbours: impl Fn(u8) -> bool,
    shown: impl Fn((u16, u16), u8, bool) -> Shown<T>,
    quoted: impl Fn(&[u8]) -> Option<T>,
) -> Shown<T> {
    let Ok((Icmp { kind, .. }, rest)) = Icmp::ref_from_prefix(message) else { return Shown::Malformed };
    let word = rest.split_first_chunk::<4>();
    if types.errors().contains(kind) {
        return word.and_then(|(_, behind)| quoted(behind)).map_or(Shown::Malformed, Shown::Error);
    }
    if is_between_neighbours(*kind) {
        return Shown::Neighbour;
    }
    match types.query(*kind) {
        Some(query) => word.map_or(Shown::Malformed, |(word, _)| shown(query.ports(*word), 0, query.is_query())),
        None => match shown(message_ports(*kind), 0, true) {
            Shown::Packet(headers) => Shown::Message(headers),
            other => other,
        },
    }
}

/// Returns the ports of the packet that an ICMP error quotes. `start` has the first eight bytes of the packet's
/// transport header: an error always quotes them (RFC 792).
fn quoted_ports(protocol: u8, start: &[u8; 8], types: Types) -> Option<(u16, u16)> {
    let word = |at: usize| u16::from_be_bytes([start[at], start[at + 1]]);
    match protocol {
        TCP | UDP | SCTP | DCCP | UDP_LITE => Some((word(0), word(2))),
        // An error is never sent about an error (RFC 1122 section 3.2.2, RFC 4443 section 2.4).
        it if it == types.protocol() => match types.query(start[0]) {
            Some(query) => Some(query.ports([start[4], start[5], start[6], start[7]])),
            None => (!types.is_error(start[0])).then(|| message_ports(start[0])),
        },
        _ => Some((0, 0)),
    }
}

/// Returns the 5-tuple of the IPv4 packet that an ICMP error quotes. A first fragment has ports too (RFC 5508 section
/// 4.2). Returns `None` for a later fragment, or if the quote is too short.
fn quoted_v4(quoted: &[u8]) -> Option<Tuple4> {
    let (ip, rest) = Ipv4::ref_from_prefix(quoted).ok()?;
    let options = ip.header_len().filter(|_| ip.version_ihl >> 4 == 4)? - size_of::<Ipv4>();
    if ip.fragment_offset() != 0 {
        return None;
    }
    let ports = quoted_ports(ip.protocol, rest.get(options..)?.first_chunk()?, Types::V4)?;
    Some(Tuple4::new(ip.source, ip.destination, ports, ip.protocol))
}

/// As [`quoted_v4`], for IPv6.
fn quoted_v6(quoted: &[u8]) -> Option<Tuple6> {
    let (ip, _) = Ipv6::ref_from_prefix(quoted).ok()?;
    // For a later fragment, `upper_layer` returns `None`.
    let (protocol, start) = ipv6::upper_layer(quoted, 0)?;
    let ports = quoted_ports(protocol, quoted.get(start..)?.first_chunk()?, Types::V6)?;
    Some(Tuple6::new(ip.source, ip.destination, ports, protocol))
}

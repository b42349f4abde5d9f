//! What a packet shows of its connection: addresses, ports, flags; told quickly of what nearly all packets are.

use forebay_packet::Packet;
use forebay_packet::wire::ethernet::{EtherType, Ethernet};
use forebay_packet::wire::icmp::Icmp;
use forebay_packet::wire::ipv4::{ICMP, Ipv4, TCP, UDP};
use forebay_packet::wire::tcp::Tcp;
use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::tables::sessions::Tuple4;

/// An IPv4 header without options straight above Ethernet, and as many bytes as TCP's header has.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Plain {
    ethernet: Ethernet,
    /// The IPv4 header.
    pub ip: Ipv4,
    /// Source port.
    pub source: U16,
    /// Destination port.
    pub destination: U16,
    /// What follows the ports.
    rest: [u8; 16],
}

/// Any fragment, first ones too: more fragments follow, or this is not the first.
const FRAGMENT: u16 = 0x3fff;

impl Plain {
    /// The headers of a packet that is whole and plain: TCP or UDP, untagged, no IP options, no fragment, all of the
    /// transport's header there. `None` says nothing.
    #[inline(always)]
    #[must_use]
    pub fn of(packet: &Packet) -> Option<&Self> {
        packet.view::<Self>(0).filter(|it| it.is_plain())
    }

    /// The same, to be changed.
    #[inline(always)]
    #[must_use]
    pub fn of_mut(packet: &mut Packet) -> Option<&mut Self> {
        packet.view_mut::<Self>(0).filter(|it| it.is_plain())
    }

    #[inline(always)]
    fn is_plain(&self) -> bool {
        let Self { ethernet, ip, .. } = self;
        let least = match ip.protocol {
            TCP => size_of::<Ipv4>() + size_of::<Tcp>(),
            UDP => size_of::<Ipv4>() + 8,
            _ => usize::MAX,
        };
        let whole = ip.version_ihl == 0x45 && ip.flags_fragment.get() & FRAGMENT == 0;
        ethernet.ether_type.get() == EtherType::IPV4 && whole && usize::from(ip.total_length.get()) >= least
    }

    /// Its 5-tuple.
    #[inline(always)]
    #[must_use]
    pub fn tuple(&self) -> Tuple4 {
        let ports = (self.source.get(), self.destination.get());
        Tuple4::new(self.ip.source, self.ip.destination, ports, self.ip.protocol)
    }

    /// TCP's control bits; 0 of UDP.
    #[inline(always)]
    #[must_use]
    pub fn flags(&self) -> u8 {
        // Sequence and acknowledgement number, offset, flags.
        if self.ip.protocol == TCP { self.rest[9] } else { 0 }
    }

    /// The transport's checksum, where there is one.
    #[inline(always)]
    pub fn checksum_mut(&mut self) -> Option<&mut [u8; 2]> {
        let field = match self.ip.protocol {
            TCP => &mut self.rest[12..14],
            _ => &mut self.rest[2..4],
        };
        // A UDP checksum of 0 means none (RFC 768).
        field.first_chunk_mut::<2>().filter(|field| self.ip.protocol == TCP || **field != [0, 0])
    }
}

/// What any packet shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// A packet of a connection.
    Packet(Headers),
    /// An ICMP error about a packet of one: what it quotes has this 5-tuple.
    Error(Tuple4),
    /// A fragment of a datagram, first ones too.
    Fragment,
    /// IPv4 of another protocol, or with a header that is cut short.
    Other,
    /// No IPv4.
    NotIpv4,
}

/// What a packet of a connection shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Its 5-tuple. Of an ICMP query the identifier stands in place of both ports (RFC 5508 section 3.1).
    pub tuple: Tuple4,
    /// TCP's control bits; 0 of others.
    pub flags: u8,
    /// Whether it asks: of ICMP a query, not the answer to one; all of others.
    pub asks: bool,
}

/// Destination unreachable, source quench, time exceeded, parameter problem (RFC 792).
pub(super) const ERRORS: [u8; 4] = [3, 4, 11, 12];
/// Echo, timestamp, information and address mask (RFC 792, RFC 950): requests, and their replies in the same order.
const REQUESTS: [u8; 4] = [8, 13, 15, 17];
const REPLIES: [u8; 4] = [0, 14, 16, 18];

impl Shown {
    /// What a packet shows of its outermost headers.
    #[must_use]
    pub fn of(packet: &mut Packet) -> Self {
        let Some(ip) = packet.ipv4().copied() else { return Self::NotIpv4 };
        if ip.flags_fragment.get() & FRAGMENT != 0 {
            return Self::Fragment;
        }
        let Some((protocol, start)) = packet.transport() else { return Self::Other };
        let end = packet.network_end();
        let datagram = packet.data().get(start..end).unwrap_or_default();
        let headers = |ports, flags, asks| {
            Self::Packet(Headers { tuple: Tuple4::new(ip.source, ip.destination, ports, protocol), flags, asks })
        };
        match protocol {
            TCP => match Tcp::ref_from_prefix(datagram) {
                Ok((tcp, _)) => headers((tcp.source.get(), tcp.destination.get()), tcp.flags, true),
                Err(_) => Self::Other,
            },
            UDP => match datagram.first_chunk::<8>() {
                Some([a, b, c, d, ..]) => {
                    headers((u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])), 0, true)
                }
                None => Self::Other,
            },
            ICMP => Self::of_icmp(datagram, headers),
            _ => Self::Other,
        }
    }

    fn of_icmp(message: &[u8], headers: impl Fn((u16, u16), u8, bool) -> Self) -> Self {
        let Ok((Icmp { kind, .. }, rest)) = Icmp::ref_from_prefix(message) else { return Self::Other };
        let Some((word, quoted)) = rest.split_first_chunk::<4>() else { return Self::Other };
        if ERRORS.contains(kind) {
            return quoted_tuple(quoted).map_or(Self::Other, Self::Error);
        }
        let identifier = u16::from_be_bytes([word[0], word[1]]);
        match (REQUESTS.contains(kind), REPLIES.contains(kind)) {
            (false, false) => Self::Other,
            (asks, _) => headers((identifier, identifier), 0, asks),
        }
    }
}

/// The 5-tuple of the packet that an ICMP error quotes; none of a fragment, nor of what quotes too little.
fn quoted_tuple(quoted: &[u8]) -> Option<Tuple4> {
    let (ip, rest) = Ipv4::ref_from_prefix(quoted).ok()?;
    let options = ip.header_len().filter(|_| ip.version_ihl >> 4 == 4)? - size_of::<Ipv4>();
    if ip.flags_fragment.get() & FRAGMENT != 0 {
        return None;
    }
    let start = rest.get(options..)?.first_chunk::<8>()?;
    let word = |at: usize| u16::from_be_bytes([start[at], start[at + 1]]);
    let ports = match ip.protocol {
        TCP | UDP => (word(0), word(2)),
        // Only requests and replies are of a connection; an error is never about an error (RFC 1122 section 3.2.2).
        ICMP if REQUESTS.contains(&start[0]) || REPLIES.contains(&start[0]) => (word(4), word(4)),
        _ => return None,
    };
    Some(Tuple4::new(ip.source, ip.destination, ports, ip.protocol))
}

//! Link types of captures: their names, and the conversion of their packets to Ethernet frames.
//!
//! Numbers and headers are those of tcpdump.org/linktypes.html. A packet without an Ethernet header gets an Ethernet
//! header in front of its network layer. The addresses in this header are [`SOURCE`] and [`DESTINATION`], with two
//! exceptions: a source address that the capture contains (SLL), and the group address of a multicast or broadcast
//! packet.

mod names;

pub use names::name;

use super::skipped::{Skip, SkipReason};

/// The link type of Ethernet.
pub(super) const ETHERNET: u32 = 1;

/// The source address of synthesised headers. It is locally administered, so that no device has it.
pub const SOURCE: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
/// The destination address of synthesised headers.
pub const DESTINATION: [u8; 6] = [0x02, 0, 0, 0, 0, 0x02];

/// The length of the longest header that is put before a packet: Ethernet and PPPoE.
pub(super) const HEADROOM: usize = 14 + 6;

/// A link type that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Ethernet,
    /// An address family in 4 bytes of either byte order.
    Loopback,
    /// IPv4 or IPv6, depending on the version field.
    Raw,
    /// IP of one version, given by its EtherType.
    Ip(u16),
    /// Linux "cooked", version 1.
    Sll,
    /// Linux "cooked", version 2.
    Sll2,
    /// PPP, with or without address and control bytes.
    Ppp,
    /// PPP after one byte of direction.
    PppDirected,
    /// PPP in HDLC-like framing (RFC 1662), or Cisco's HDLC.
    Hdlc,
    /// A PPPoE header (RFC 2516).
    Pppoe,
}

impl Link {
    /// Returns the link type with this number, or `None` if it cannot be read. A new type must also be added to
    /// [`ALLOWED`](Self::ALLOWED).
    pub(super) fn of(number: u32) -> Option<Self> {
        Some(match number {
            ETHERNET => Self::Ethernet,
            0 | 108 => Self::Loopback,
            12 | 14 | 101 => Self::Raw,
            228 => Self::Ip(IPV4),
            229 => Self::Ip(IPV6),
            113 => Self::Sll,
            276 => Self::Sll2,
            9 | 166 => Self::Ppp,
            204 => Self::PppDirected,
            50 | 104 => Self::Hdlc,
            51 => Self::Pppoe,
            _ => return None,
        })
    }

    /// The link types that can be read, for error messages.
    pub(super) const ALLOWED: &'static str = "Ethernet (1), NULL and LOOP (0, 108), RAW (12, 14, 101), IPv4 (228), \
                                              IPv6 (229), SLL and SLL2 (113, 276), PPP (9, 50, 51, 104, 166, 204)";

    /// Converts a packet to an Ethernet frame. The packet takes `buffer` from the offset [`HEADROOM`] to the end, and
    /// its length before truncation is `original` bytes. Returns the offset of the frame, which also extends to the end
    /// of `buffer`, and its length before truncation. `number` is the number of the link type.
    ///
    /// # Errors
    /// Returns the reason if no Ethernet frame can carry the packet, or if the packet was truncated inside its
    /// link-layer header.
    pub(super) fn make_ethernet(self, number: u32, buffer: &mut [u8], original: u32) -> Result<(usize, u32), Skip> {
        let skip = |reason| Skip { link: number, reason };
        let packet = &buffer[HEADROOM..];
        let header = match self {
            Self::Ethernet => return Ok((HEADROOM, original)),
            Self::Loopback => loopback(packet),
            Self::Raw => raw(packet, 0),
            Self::Ip(protocol) => Ok(Header::new(0, protocol)),
            Self::Sll => sll(packet),
            Self::Sll2 => sll2(packet),
            Self::Ppp => ppp(packet, 0),
            Self::PppDirected => ppp(packet, 1),
            Self::Hdlc => hdlc(packet),
            Self::Pppoe => pppoe(packet),
        };
        let header = header.map_err(skip)?;
        let payload = original.max(packet.len() as u32) - header.removed as u32;
        let network = HEADROOM + header.removed;
        let (start, ethertype) = match header.protocol {
            Protocol::Type(protocol) => (network - 14, protocol),
            // In an 802.3 frame, the EtherType field is a length of up to 1500 bytes (IEEE 802.3 section 3.2.6).
            Protocol::Length if payload <= 1500 => (network - 14, payload as u16),
            Protocol::Length => return Err(skip(SkipReason::Protocol)),
            Protocol::Ppp => {
                // RFC 2516 section 4: version and type 1, code and session 0, the length of everything that follows.
                let length = u16::try_from(payload).unwrap_or(u16::MAX).to_be_bytes();
                buffer[network - 6..network].copy_from_slice(&[0x11, 0, 0, 0, length[0], length[1]]);
                (network - 20, PPPOE_SESSION)
            }
        };
        let destination = header.destination.unwrap_or_else(|| destination(ethertype, &buffer[network..]));
        buffer[start..start + 6].copy_from_slice(&destination);
        buffer[start + 6..start + 12].copy_from_slice(&header.source.unwrap_or(SOURCE));
        buffer[start + 12..start + 14].copy_from_slice(&ethertype.to_be_bytes());
        Ok((start, payload.saturating_add((network - start) as u32)))
    }
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const PPPOE_DISCOVERY: u16 = 0x8863;
const PPPOE_SESSION: u16 = 0x8864;

/// The type of the data after an Ethernet header.
enum Protocol {
    /// A packet of this EtherType.
    Type(u16),
    /// An 802.2 header; the EtherType field has the length.
    Length,
    /// A PPP frame whose protocol has no EtherType.
    Ppp,
}

/// The contents of a packet's own link-layer header.
struct Header {
    /// The number of header bytes that are removed.
    removed: usize,
    /// The type of the data after the header.
    protocol: Protocol,
    /// The source address in the header. `None` if the header has no Ethernet address.
    source: Option<[u8; 6]>,
    /// The destination address, if the header determines it. `None` if it depends on the IP destination of the packet.
    destination: Option<[u8; 6]>,
}

impl Header {
    fn new(removed: usize, protocol: u16) -> Self {
        Self { removed, protocol: Protocol::Type(protocol), source: None, destination: None }
    }
}

/// Returns the `N` bytes from `at` on.
fn bytes<const N: usize>(packet: &[u8], at: usize) -> Result<[u8; N], SkipReason> {
    packet.get(at..).and_then(<[u8]>::first_chunk).copied().ok_or(SkipReason::Short)
}

/// Returns the number of two bytes at `at`, in network byte order.
fn half(packet: &[u8], at: usize) -> Result<u16, SkipReason> {
    bytes(packet, at).map(u16::from_be_bytes)
}

/// Parses a loopback header: an address family of four bytes. The byte order is that of the capturing machine. Families
/// are small numbers, so the order can be recognised.
fn loopback(packet: &[u8]) -> Result<Header, SkipReason> {
    let family = bytes(packet, 0)?;
    let family = u32::from_be_bytes(family).min(u32::from_le_bytes(family));
    match family {
        2 => Ok(Header::new(4, IPV4)),
        // IPv6 on Linux (10), Windows (23), NetBSD and OpenBSD (24), FreeBSD (28) and macOS (30).
        10 | 23 | 24 | 28 | 30 => Ok(Header::new(4, IPV6)),
        _ => Err(SkipReason::Protocol),
    }
}

/// Parses an IP packet at `at`, without a link-layer header.
fn raw(packet: &[u8], at: usize) -> Result<Header, SkipReason> {
    let [first] = bytes(packet, at)?;
    match first >> 4 {
        4 => Ok(Header::new(at, IPV4)),
        6 => Ok(Header::new(at, IPV6)),
        _ => Err(SkipReason::Protocol),
    }
}

/// Parses version 1 of the Linux header: packet type, device type, length of the address, address in 8 bytes, protocol.
fn sll(packet: &[u8]) -> Result<Header, SkipReason> {
    let (direction, device, length) = (half(packet, 0)?, half(packet, 2)?, half(packet, 4)?);
    cooked(16, half(packet, 14)?, device, direction, usize::from(length), bytes(packet, 6)?)
}

/// Parses version 2 of the Linux header: protocol, two bytes of 0, interface, device type, packet type, length of the
/// address, address in 8 bytes.
fn sll2(packet: &[u8]) -> Result<Header, SkipReason> {
    let [direction, length] = bytes(packet, 10)?;
    let _address: [u8; 8] = bytes(packet, 12)?;
    cooked(20, half(packet, 0)?, half(packet, 8)?, direction.into(), length.into(), bytes(packet, 12)?)
}

/// Returns the contents of a Linux header of either version. `removed` is the length of the header.
fn cooked(
    removed: usize,
    protocol: u16,
    device: u16,
    direction: u16,
    length: usize,
    address: [u8; 6],
) -> Result<Header, SkipReason> {
    let protocol = match (device, protocol) {
        // The device types of Netlink, Frame Relay, and 802.11 with and without driver headers. Their payload is not an
        // Ethernet payload.
        (824 | 770 | 801..=803, _) => return Err(SkipReason::Protocol),
        // 1 is an 802.3 frame without an 802.2 header (Novell), and 4 a frame with an 802.2 header.
        (_, 1 | 4) => Protocol::Length,
        (_, ..1536) => return Err(SkipReason::Protocol),
        _ => Protocol::Type(protocol),
    };
    // The address is an Ethernet address if it has 6 bytes.
    let source = (length == 6).then_some(address);
    // The packet type 1 means broadcast. For multicast packets, the address depends on the group.
    let destination = (direction == 1).then_some([0xff; 6]);
    Ok(Header { removed, protocol, source, destination })
}

/// Parses PPP after `at` bytes: optional address and control (RFC 1661, RFC 1662 section 3.1), then the protocol.
fn ppp(packet: &[u8], at: usize) -> Result<Header, SkipReason> {
    // Some systems write the direction in place of the address: 0 for received packets, 1 for sent packets.
    let at = match packet.get(at..) {
        Some([0xff | 0 | 1, 0x03, ..]) => at + 2,
        _ => at,
    };
    let [first] = bytes(packet, at)?;
    // The last byte of a protocol number is odd, and a byte before it is even. If the first byte is odd, the number has
    // only this byte (RFC 1661 section 6.5).
    let (protocol, removed) = if first & 1 == 1 { (u16::from(first), at + 1) } else { (half(packet, at)?, at + 2) };
    Ok(match protocol {
        0x0021 => Header::new(removed, IPV4),
        0x0057 => Header::new(removed, IPV6),
        0x0281 => Header::new(removed, 0x8847),
        0x0283 => Header::new(removed, 0x8848),
        // The two bytes of the protocol are not removed, because the payload of a PPPoE session starts with them.
        _ if removed >= at + 2 => Header { protocol: Protocol::Ppp, ..Header::new(at, 0) },
        _ => return Err(SkipReason::Protocol),
    })
}

/// Parses Cisco's HDLC or, if the first byte does not match, PPP.
fn hdlc(packet: &[u8]) -> Result<Header, SkipReason> {
    match packet {
        // Cisco HDLC: unicast or multicast, 0, an EtherType.
        [0x0f | 0x8f, ..] => match half(packet, 2)? {
            // The numbers of Cisco's keep-alives (SLARP) and discovery protocol have other meanings on Ethernet.
            0x8035 | 0x2000 | ..1536 => Err(SkipReason::Protocol),
            protocol => Ok(Header::new(4, protocol)),
        },
        _ => ppp(packet, 0),
    }
}

/// Parses a PPPoE packet. No bytes are removed: the whole packet follows the Ethernet header. Code 0 is a session (RFC
/// 2516 section 4).
fn pppoe(packet: &[u8]) -> Result<Header, SkipReason> {
    let [_, code] = bytes(packet, 0)?;
    Ok(Header::new(0, if code == 0 { PPPOE_SESSION } else { PPPOE_DISCOVERY }))
}

/// Returns the Ethernet destination address for a packet of this EtherType: a group address if the IP destination is a
/// multicast or broadcast address (RFC 1112 section 6.4, RFC 2464 section 7), otherwise [`DESTINATION`].
fn destination(protocol: u16, packet: &[u8]) -> [u8; 6] {
    match (protocol, packet.get(16..20), packet.get(24..40)) {
        (IPV4, Some([255, 255, 255, 255]), _) => [0xff; 6],
        (IPV4, Some([224..=239, b, c, d]), _) => [0x01, 0x00, 0x5e, b & 0x7f, *c, *d],
        (IPV6, _, Some([0xff, .., a, b, c, d])) => [0x33, 0x33, *a, *b, *c, *d],
        _ => DESTINATION,
    }
}

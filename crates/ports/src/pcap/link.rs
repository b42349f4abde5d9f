//! Link types of captures: what each is called, and how a packet of it becomes an Ethernet frame.
//!
//! The numbers and headers are those of tcpdump.org/linktypes.html. A packet that has no Ethernet header gets one in
//! front of its network layer. Its addresses are [`SOURCE`] and [`DESTINATION`], except for a source address that the
//! capture knows (SLL) and the group addresses that a multicast or broadcast packet is sent to.

mod names;

pub use names::name;

use super::skipped::{Reason, Skip};

/// Link type of Ethernet.
pub(super) const ETHERNET: u32 = 1;

/// The source address of synthesised headers: locally administered, so that no device has it.
pub const SOURCE: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
/// Their destination address.
pub const DESTINATION: [u8; 6] = [0x02, 0, 0, 0, 0, 0x02];

/// The longest header that a frame can get in place of its own: Ethernet and PPPoE.
pub(super) const HEADROOM: usize = 14 + 6;

/// A link type that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Ethernet,
    /// An address family in 4 bytes of either byte order.
    Loopback,
    /// IPv4 or IPv6, by the version.
    Raw,
    /// IP of one version, by its EtherType.
    Ip(u16),
    /// Linux "cooked", version 1.
    Sll,
    /// Linux "cooked", version 2.
    Sll2,
    /// PPP, with or without address and control.
    Ppp,
    /// PPP behind one byte of direction.
    PppDirected,
    /// PPP in HDLC-like framing (RFC 1662), or Cisco's HDLC.
    Hdlc,
    /// A PPPoE header (RFC 2516).
    Pppoe,
}

impl Link {
    /// The link type of this number, if packets of it are read.
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

    /// Those that are read, for errors.
    pub(super) const ALLOWED: &'static str = "Ethernet (1), NULL and LOOP (0, 108), RAW (12, 14, 101), IPv4 (228), \
                                              IPv6 (229), SLL and SLL2 (113, 276), PPP (9, 50, 51, 104, 166, 204)";

    /// Turns the packet that starts at [`HEADROOM`] of `buffer` and was `original` bytes long into an Ethernet frame.
    /// Returns where the frame starts in `buffer` (it ends where the packet ends), and how long it would be uncut.
    ///
    /// # Errors
    /// No Ethernet frame carries such a packet, or it was cut inside its own link-layer header.
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
        let payload = original.max(packet.len() as u32) - header.taken as u32;
        let network = HEADROOM + header.taken;
        let (start, kind) = match header.protocol {
            Protocol::Type(protocol) => (network - 14, protocol),
            // 802.3 has the length there, of up to 1500 bytes (IEEE 802.3 section 3.2.6).
            Protocol::Length if payload <= 1500 => (network - 14, payload as u16),
            Protocol::Length => return Err(skip(Reason::Protocol)),
            Protocol::Ppp => {
                // RFC 2516 section 4: version and type 1, code and session 0, the length of all that follows.
                let length = u16::try_from(payload).unwrap_or(u16::MAX).to_be_bytes();
                buffer[network - 6..network].copy_from_slice(&[0x11, 0, 0, 0, length[0], length[1]]);
                (network - 20, PPPOE_SESSION)
            }
        };
        let destination = header.destination.unwrap_or_else(|| destination(kind, &buffer[network..]));
        buffer[start..start + 6].copy_from_slice(&destination);
        buffer[start + 6..start + 12].copy_from_slice(&header.source.unwrap_or(SOURCE));
        buffer[start + 12..start + 14].copy_from_slice(&kind.to_be_bytes());
        Ok((start, payload.saturating_add((network - start) as u32)))
    }
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const PPPOE_DISCOVERY: u16 = 0x8863;
const PPPOE_SESSION: u16 = 0x8864;

/// What follows an Ethernet header.
enum Protocol {
    /// A packet of this EtherType.
    Type(u16),
    /// An 802.2 header, so that the length stands in place of the type.
    Length,
    /// A PPP frame that has no EtherType of its own.
    Ppp,
}

/// What a packet's own link-layer header says.
struct Header {
    /// How many bytes of it are left out.
    taken: usize,
    protocol: Protocol,
    source: Option<[u8; 6]>,
    destination: Option<[u8; 6]>,
}

impl Header {
    fn new(taken: usize, protocol: u16) -> Self {
        Self { taken, protocol: Protocol::Type(protocol), source: None, destination: None }
    }
}

/// The bytes from `at` on, as many as there are in `N`.
fn bytes<const N: usize>(packet: &[u8], at: usize) -> Result<[u8; N], Reason> {
    packet.get(at..).and_then(<[u8]>::first_chunk).copied().ok_or(Reason::Short)
}

fn half(packet: &[u8], at: usize) -> Result<u16, Reason> {
    bytes(packet, at).map(u16::from_be_bytes)
}

/// The byte order is that of the machine that captured. Families are small numbers, so it shows.
fn loopback(packet: &[u8]) -> Result<Header, Reason> {
    let family = bytes(packet, 0)?;
    let family = u32::from_be_bytes(family).min(u32::from_le_bytes(family));
    match family {
        2 => Ok(Header::new(4, IPV4)),
        // Linux, Windows, NetBSD and OpenBSD, FreeBSD, macOS.
        10 | 23 | 24 | 28 | 30 => Ok(Header::new(4, IPV6)),
        _ => Err(Reason::Protocol),
    }
}

fn raw(packet: &[u8], at: usize) -> Result<Header, Reason> {
    let [first] = bytes(packet, at)?;
    match first >> 4 {
        4 => Ok(Header::new(at, IPV4)),
        6 => Ok(Header::new(at, IPV6)),
        _ => Err(Reason::Protocol),
    }
}

/// Packet type, kind of device, length of the address, address in 8 bytes, protocol.
fn sll(packet: &[u8]) -> Result<Header, Reason> {
    let (direction, device, length) = (half(packet, 0)?, half(packet, 2)?, half(packet, 4)?);
    cooked(16, half(packet, 14)?, device, direction, usize::from(length), bytes(packet, 6)?)
}

/// Protocol, two bytes of 0, interface, kind of device, packet type, length of the address, address in 8 bytes.
fn sll2(packet: &[u8]) -> Result<Header, Reason> {
    let [direction, length] = bytes(packet, 10)?;
    let _address: [u8; 8] = bytes(packet, 12)?;
    cooked(20, half(packet, 0)?, half(packet, 8)?, direction.into(), length.into(), bytes(packet, 12)?)
}

fn cooked(
    taken: usize,
    protocol: u16,
    device: u16,
    direction: u16,
    length: usize,
    address: [u8; 6],
) -> Result<Header, Reason> {
    let protocol = match (device, protocol) {
        // Netlink, Frame Relay, 802.11 with and without headers of the driver: what follows is no Ethernet payload.
        (824 | 770 | 801..=803, _) => return Err(Reason::Protocol),
        // Novell's 802.3 without 802.2, and 802.2.
        (_, 1 | 4) => Protocol::Length,
        (_, ..1536) => return Err(Reason::Protocol),
        _ => Protocol::Type(protocol),
    };
    // A device of this kind has Ethernet addresses where it has such of 6 bytes.
    let source = (length == 6).then_some(address);
    // 1: a broadcast. A multicast's address depends on its group.
    let destination = (direction == 1).then_some([0xff; 6]);
    Ok(Header { taken, protocol, source, destination })
}

/// PPP behind `at` bytes: address and control if they are there (RFC 1661, RFC 1662 section 3.1), then the protocol.
fn ppp(packet: &[u8], at: usize) -> Result<Header, Reason> {
    // Some systems have the direction in place of the address: 0 in, 1 out.
    let at = match packet.get(at..) {
        Some([0xff | 0 | 1, 0x03, ..]) => at + 2,
        _ => at,
    };
    let [first] = bytes(packet, at)?;
    // Protocol numbers are odd in their last byte only; where the first one is, it is the only one (RFC 1661 section
    // 6.5).
    let (protocol, taken) = if first & 1 == 1 { (u16::from(first), at + 1) } else { (half(packet, at)?, at + 2) };
    Ok(match protocol {
        0x0021 => Header::new(taken, IPV4),
        0x0057 => Header::new(taken, IPV6),
        0x0281 => Header::new(taken, 0x8847),
        0x0283 => Header::new(taken, 0x8848),
        // The protocol stays, in two bytes: a PPPoE session's frame starts with it.
        _ if taken >= at + 2 => Header { protocol: Protocol::Ppp, ..Header::new(at, 0) },
        _ => return Err(Reason::Protocol),
    })
}

fn hdlc(packet: &[u8]) -> Result<Header, Reason> {
    match packet {
        // Cisco's: unicast or multicast, 0, an EtherType.
        [0x0f | 0x8f, ..] => match half(packet, 2)? {
            // Its keep-alives (SLARP) and its discovery protocol have numbers that mean other things on Ethernet.
            0x8035 | 0x2000 | ..1536 => Err(Reason::Protocol),
            protocol => Ok(Header::new(4, protocol)),
        },
        _ => ppp(packet, 0),
    }
}

/// All of it follows an Ethernet header; code 0 is a session (RFC 2516 section 4).
fn pppoe(packet: &[u8]) -> Result<Header, Reason> {
    let [_, code] = bytes(packet, 0)?;
    Ok(Header::new(0, if code == 0 { PPPOE_SESSION } else { PPPOE_DISCOVERY }))
}

/// The Ethernet address of an IP packet's destination: a group's for multicast (RFC 1112 section 6.4, RFC 2464 section
/// 7).
fn destination(protocol: u16, packet: &[u8]) -> [u8; 6] {
    match (protocol, packet.get(16..20), packet.get(24..40)) {
        (IPV4, Some([255, 255, 255, 255]), _) => [0xff; 6],
        (IPV4, Some([224..=239, b, c, d]), _) => [0x01, 0x00, 0x5e, b & 0x7f, *c, *d],
        (IPV6, _, Some([0xff, .., a, b, c, d])) => [0x33, 0x33, *a, *b, *c, *d],
        _ => DESTINATION,
    }
}

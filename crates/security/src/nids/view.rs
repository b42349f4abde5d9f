//! The fields of a packet that rules test, extracted once.

use forebay_packet::wire::ipv4::{ICMP, Ipv4, TCP, UDP};
use forebay_packet::wire::ipv6::Ipv6;
use forebay_packet::{Network, Packet};

use super::rule::{Field, Protocol};
use crate::inspection::payload::{ICMPV6, PacketLayout};

/// The fields of a packet that rules test.
#[derive(Clone, Copy, Debug, Default)]
pub struct View {
    /// True for IPv6.
    pub v6: bool,
    /// The source address as a number in host byte order; an IPv4 address has the lowest 32 bits.
    pub source: u128,
    /// The destination address, as `source`.
    pub destination: u128,
    /// Source and destination port in host byte order; `None` if the packet has no complete TCP or UDP header.
    pub ports: Option<(u16, u16)>,
    /// The protocol above IP.
    pub protocol: u8,
    /// True if the protocol or the transport header cannot be read: the packet has too many IPv6 extension headers, or
    /// a header that is cut short or invalid.
    pub headers_hidden: bool,
    /// The time to live, or the hop limit.
    pub ttl: u8,
    /// TCP's control bits; `None` if the packet has no complete TCP header.
    pub flags: Option<u8>,
    /// Type and code of an ICMP message; `None` if the packet has no complete ICMP header.
    pub icmp: Option<(u8, u8)>,
    /// Start and end of the payload, in bytes into the frame.
    pub payload: (u16, u16),
    /// Start of the IP header and of the transport header, in bytes into the frame. The second is 0 if the packet has
    /// no complete header of TCP, UDP or ICMP.
    pub headers: (u16, u16),
}

impl View {
    /// Extracts the fields of a packet. Returns `None` if it is not IP.
    #[inline]
    pub fn of(packet: &mut Packet) -> Option<Self> {
        let layout = PacketLayout::of(packet)?;
        let (v6, source, destination, ttl) = match layout.network {
            Network::Ipv6 => {
                let header = packet.view::<Ipv6>(layout.start)?;
                (true, u128::from_be_bytes(header.source), u128::from_be_bytes(header.destination), header.hop_limit)
            }
            _ => {
                let header = packet.view::<Ipv4>(layout.start)?;
                let number = |address: [u8; 4]| u128::from(u32::from_be_bytes(address));
                (false, number(header.source), number(header.destination), header.ttl)
            }
        };
        let mut view = Self {
            v6,
            source,
            destination,
            protocol: layout.protocol,
            ttl,
            headers_hidden: layout.headers_hidden,
            ..Self::default()
        };
        let mut start = layout.payload.start;
        if let Some(header) = layout.transport.and_then(|at| packet.data().get(at..)) {
            let word = |at: usize| header.get(at..at + 2).map(|word| u16::from_be_bytes([word[0], word[1]]));
            match layout.protocol {
                TCP | UDP => view.ports = word(0).zip(word(2)),
                ICMP | ICMPV6 => {
                    view.icmp = header.first().copied().zip(header.get(1).copied());
                    // RFC 792, RFC 4443 section 2.1: the message body follows a header of eight bytes.
                    start += 8;
                }
                _ => {}
            }
            if layout.protocol == TCP {
                view.flags = header.get(13).copied();
            }
        }
        view.headers = (layout.start as u16, layout.transport.unwrap_or(0) as u16);
        view.payload = (start.min(layout.payload.end) as u16, layout.payload.end as u16);
        Some(view)
    }

    /// Returns true if another packet belongs to the same TCP or UDP session, in either direction. Returns false if the
    /// ports of one of the packets are unknown.
    #[must_use]
    pub fn is_of_session(&self, other: &Self) -> bool {
        let (Some((from, to)), Some(others)) = (self.ports, other.ports) else { return false };
        let same = (other.source, other.destination, others) == (self.source, self.destination, (from, to));
        let back = (other.destination, other.source, others) == (self.source, self.destination, (to, from));
        (self.v6, self.protocol) == (other.v6, other.protocol) && (same || back)
    }

    /// Returns a number in a header, or `None` if the packet does not contain this number. `frame` must be the frame of
    /// this packet.
    #[must_use]
    pub fn field(&self, field: Field, frame: &[u8]) -> Option<u32> {
        let (network, transport) = (usize::from(self.headers.0), usize::from(self.headers.1));
        let number = |at: usize, length: usize| {
            let bytes = frame.get(at..at + length)?;
            Some(bytes.iter().fold(0u32, |number, byte| number << 8 | u32::from(*byte)))
        };
        // RFC 792 and RFC 4443 section 4: only echo messages have an identifier and a sequence number.
        let echo = matches!((self.v6, self.icmp), (false, Some((0 | 8, _))) | (true, Some((128 | 129, _))));
        let tcp = self.flags.is_some();
        match field {
            // RFC 8200 section 3: version, traffic class, flow label.
            Field::Tos if self.v6 => number(network, 2).map(|word| word >> 4 & 0xff),
            Field::Tos => number(network + 1, 1),
            Field::Id => number(network + 4, 2).filter(|_| !self.v6),
            Field::FragmentOffset => number(network + 6, 2).filter(|_| !self.v6).map(|word| word & 0x1fff),
            Field::Sequence => number(transport + 4, 4).filter(|_| tcp),
            Field::Acknowledgement => number(transport + 8, 4).filter(|_| tcp),
            Field::Window => number(transport + 14, 2).filter(|_| tcp),
            Field::IcmpId => number(transport + 4, 2).filter(|_| echo),
            Field::IcmpSequence => number(transport + 6, 2).filter(|_| echo),
        }
    }

    /// Returns the reserved, don't fragment and more fragments bits of an IPv4 header, as the three low bits. Returns
    /// `None` for IPv6.
    #[must_use]
    pub fn fragment_bits(&self, frame: &[u8]) -> Option<u8> {
        frame.get(usize::from(self.headers.0) + 6).filter(|_| !self.v6).map(|byte| byte >> 5)
    }

    /// Returns true if an IPv4 header has an option with the number `wanted`, or any option if `wanted` is `None`.
    #[must_use]
    pub fn has_option(&self, wanted: Option<u8>, frame: &[u8]) -> bool {
        let start = usize::from(self.headers.0);
        let header = frame.get(start).map_or(0, |byte| usize::from(byte & 0xf) * 4);
        let Some(mut rest) = frame.get(start + 20..start + header).filter(|_| !self.v6) else { return false };
        // RFC 791 section 3.1: the end option and the no-operation option have only a type, others have a type and a
        // length.
        while let Some((number, behind)) = rest.split_first() {
            if wanted.is_none_or(|wanted| wanted == *number) {
                return true;
            }
            rest = match number {
                0 => return false,
                1 => behind,
                _ => match behind.first().map(|length| usize::from(*length)).filter(|length| *length >= 2) {
                    Some(length) => rest.get(length..).unwrap_or_default(),
                    None => return false,
                },
            };
        }
        false
    }

    /// Returns the payload of the packet.
    #[inline]
    #[must_use]
    pub fn payload<'a>(&self, packet: &'a Packet) -> &'a [u8] {
        self.payload_of(packet.data())
    }

    /// Returns the payload in the packet's frame.
    #[inline]
    #[must_use]
    pub fn payload_of<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(usize::from(self.payload.0)..usize::from(self.payload.1)).unwrap_or_default()
    }

    /// Returns the packet's protocol as a rule's header names it. Rules for `ip` apply to all packets.
    #[inline]
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        match self.protocol {
            TCP => Protocol::Tcp,
            UDP => Protocol::Udp,
            ICMP | ICMPV6 => Protocol::Icmp,
            _ => Protocol::Ip,
        }
    }
}

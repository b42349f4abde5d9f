//! What rules ask of a packet, found once.

use forebay_packet::wire::ipv4::{ICMP, Ipv4, TCP, UDP};
use forebay_packet::wire::ipv6::Ipv6;
use forebay_packet::{Network, Packet};

use super::rule::Protocol;
use crate::inspection::payload::{ICMPV6, Seen};

/// A packet as rules see it.
#[derive(Clone, Copy, Debug, Default)]
pub struct View {
    /// Whether it is IPv6.
    pub v6: bool,
    /// The source address' number.
    pub source: u128,
    /// Likewise.
    pub destination: u128,
    /// Source and destination port of TCP and UDP, where the packet shows them.
    pub ports: Option<(u16, u16)>,
    /// What is above IP.
    pub protocol: u8,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// TCP's control bits, where the packet shows them.
    pub flags: Option<u8>,
    /// Type and code of an ICMP message, where the packet shows them.
    pub icmp: Option<(u8, u8)>,
    /// Where the payload starts and ends, in bytes into the frame.
    pub payload: (u16, u16),
}

impl View {
    /// What a packet shows; `None` where it is no IP.
    #[inline]
    pub fn of(packet: &mut Packet) -> Option<Self> {
        let seen = Seen::of(packet)?;
        let (v6, source, destination, ttl) = match seen.network {
            Network::Ipv6 => {
                let header = packet.view::<Ipv6>(seen.start)?;
                (true, u128::from_be_bytes(header.source), u128::from_be_bytes(header.destination), header.hop_limit)
            }
            _ => {
                let header = packet.view::<Ipv4>(seen.start)?;
                let number = |address: [u8; 4]| u128::from(u32::from_be_bytes(address));
                (false, number(header.source), number(header.destination), header.ttl)
            }
        };
        let mut view = Self { v6, source, destination, protocol: seen.protocol, ttl, ..Self::default() };
        let mut start = seen.payload.start;
        if let Some(header) = seen.transport.and_then(|at| packet.data().get(at..)) {
            let word = |at: usize| header.get(at..at + 2).map(|word| u16::from_be_bytes([word[0], word[1]]));
            match seen.protocol {
                TCP | UDP => view.ports = word(0).zip(word(2)),
                ICMP | ICMPV6 => {
                    view.icmp = header.first().copied().zip(header.get(1).copied());
                    // RFC 792, RFC 4443 section 2.1: what a message carries is behind eight bytes.
                    start += 8;
                }
                _ => {}
            }
            if seen.protocol == TCP {
                view.flags = header.get(13).copied();
            }
        }
        view.payload = (start.min(seen.payload.end) as u16, seen.payload.end as u16);
        Some(view)
    }

    /// The payload.
    #[inline]
    #[must_use]
    pub fn payload<'a>(&self, packet: &'a Packet) -> &'a [u8] {
        packet.data().get(usize::from(self.payload.0)..usize::from(self.payload.1)).unwrap_or_default()
    }

    /// Which rules' protocol it is of; those of `ip` are for all.
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

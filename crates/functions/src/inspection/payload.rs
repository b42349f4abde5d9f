//! Where a packet's payload is: behind the headers that say so, whatever they say.
//!
//! Nobody gets past an inspection by a header that contradicts itself: what cannot be told apart from payload is payload.

use std::ops::Range;

use forebay_packet::wire::ipv4::{ICMP, Ipv4, TCP, UDP};
use forebay_packet::wire::ipv6::{self, Ipv6};
use forebay_packet::wire::tcp::Tcp;
use forebay_packet::wire::udp::Udp;
use forebay_packet::{Network, Packet};

/// ICMP over IPv6 (RFC 4443).
pub const ICMPV6: u8 = 58;

/// Whether a packet is a whole datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It is.
    Whole,
    /// It is the first fragment of one: it shows the transport header.
    First,
    /// It is a later fragment.
    Later,
}

/// An IP packet's parts, in bytes into the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Which IP it is: never [`Network::Other`].
    pub network: Network,
    /// Where its header starts.
    pub start: usize,
    /// The upper layer's protocol number, of later fragments too.
    pub protocol: u8,
    /// Whether it is a fragment.
    pub part: Part,
    /// Where the transport header starts, where it is there whole and its length is one: of TCP, UDP and ICMP.
    pub transport: Option<usize>,
    /// Whether the header above IP cannot be found, or that of TCP, UDP or ICMP not be read: what it would show is not
    /// known, and all behind the last header that was found is payload.
    pub unsure: bool,
    /// The payload: of TCP and UDP behind their headers, of everything else behind the network layer's. Ends where the IP
    /// packet does: padding is none of it.
    pub payload: Range<usize>,
}

impl Seen {
    /// What a frame's headers show; `None` where it carries no IP.
    #[inline]
    pub fn of(packet: &mut Packet) -> Option<Self> {
        let (network, start) = packet.network();
        let end = packet.network_end();
        let transport = packet.transport();
        let (fragment, later, protocol, behind) = match network {
            Network::Ipv4 => {
                let header = packet.view::<Ipv4>(start)?;
                let length = header.header_len().unwrap_or(size_of::<Ipv4>());
                (header.is_fragment(), header.fragment_offset() != 0, header.protocol, start + length)
            }
            Network::Ipv6 => {
                let next = packet.view::<Ipv6>(start)?.next_header;
                // Without extension headers, which is nearly all there is, no more has to be walked.
                let plain = transport.is_some_and(|(protocol, _)| protocol == next);
                let fragment = !plain && ipv6::is_fragment(packet.data(), start);
                let protocol = if plain { next } else { ipv6::upper_protocol(packet.data(), start).unwrap_or(next) };
                let later = transport.is_none() && ipv6::later_fragment(packet.data(), start).is_some();
                (fragment, later, protocol, start + size_of::<Ipv6>())
            }
            Network::Other => return None,
        };
        let part = match (fragment, later) {
            (false, _) => Part::Whole,
            (true, false) => Part::First,
            (true, true) => Part::Later,
        };
        let clamp = |from: usize| from.min(end)..end;
        let Some((protocol, at)) = transport else {
            // Of a later fragment that starts with an extension header the upper layer is not known.
            let unsure = !later || network == Network::Ipv6 && ipv6::is_extension(protocol);
            return Some(Self { network, start, protocol, part, transport: None, unsure, payload: clamp(behind) });
        };
        let length = match protocol {
            // RFC 9293 section 3.1: at least five words.
            TCP => {
                packet.view::<Tcp>(at).map(|header| usize::from(header.offset >> 4) * 4).filter(|length| *length >= 20)
            }
            UDP => Some(size_of::<Udp>()),
            // Its header is the network layer's business: what inspects it takes it off.
            ICMP | ICMPV6 => Some(0),
            _ => None,
        };
        let least = if matches!(protocol, ICMP | ICMPV6) { 8 } else { length.unwrap_or(0) };
        let sound = length.filter(|_| at + least <= end);
        let payload = clamp(at + sound.unwrap_or(0));
        let unsure = sound.is_none() && matches!(protocol, TCP | UDP | ICMP | ICMPV6);
        Some(Self { network, start, protocol, part, transport: sound.map(|_| at), unsure, payload })
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;
    use forebay_packet::{Pool, PoolOptions};

    use super::*;

    fn seen(frame: &[u8]) -> Option<Seen> {
        let pool = Pool::new(PoolOptions { chunks: 4, ..PoolOptions::default() }).expect("memory");
        let mut packet = pool.take().expect("a packet");
        assert!(packet.write(frame));
        Seen::of(&mut packet)
    }

    fn tcp(payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(1, 2, 3, 4);
        builder.write(&mut frame, payload).expect("memory");
        frame
    }

    #[test]
    fn a_payload_is_behind_its_headers_and_ends_with_the_packet() {
        let mut frame = tcp(b"payload");
        frame.extend([0; 9]);
        let seen = seen(&frame).expect("IP");
        assert_eq!((&frame[seen.payload.clone()], seen.transport, seen.part), (&b"payload"[..], Some(34), Part::Whole));
    }

    #[test]
    fn a_header_that_contradicts_itself_is_payload() {
        for (offset, is) in [(0x40, 34), (0xf0, 34), (0x50, 54)] {
            let mut frame = tcp(b"payload");
            frame[46] = offset;
            let seen = seen(&frame).expect("IP");
            assert_eq!((seen.payload.start, seen.transport.is_some()), (is, is != 34), "{offset:x}");
        }
    }

    #[test]
    fn later_fragments_are_payload_behind_the_network_layer() {
        let mut frame = tcp(b"payload");
        frame[20..22].copy_from_slice(&0x2000_u16.to_be_bytes());
        assert_eq!(seen(&frame).expect("IP").part, Part::First);
        frame[20..22].copy_from_slice(&0x0001_u16.to_be_bytes());
        let later = seen(&frame).expect("IP");
        assert_eq!((later.part, later.payload.start, later.transport, later.protocol), (Part::Later, 34, None, 6));
    }

    #[test]
    fn what_is_no_ip_has_none() {
        assert_eq!(seen(&[0; 60]), None);
        assert_eq!(seen(&[]), None);
    }
}

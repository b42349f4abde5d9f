//! Finds the payload of a packet, which follows the headers.
//!
//! A packet cannot avoid an inspection with a header that contradicts itself: everything that cannot be parsed as a
//! header is payload.

use std::ops::Range;

use forebay_packet::wire::ipv4::{ICMP, Ipv4, TCP, UDP};
use forebay_packet::wire::ipv6::{self, Ipv6};
use forebay_packet::wire::tcp::Tcp;
use forebay_packet::wire::udp::Udp;
use forebay_packet::{Network, Packet};

/// ICMP over IPv6 (RFC 4443).
pub const ICMPV6: u8 = 58;

/// The part of a datagram that a packet contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragmentation {
    /// A whole datagram.
    Whole,
    /// The first fragment of a datagram, which contains the transport header.
    First,
    /// A later fragment.
    Later,
}

/// The positions of an IP packet's headers and payload, in bytes into the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketLayout {
    /// The IP version; never [`Network::Other`].
    pub network: Network,
    /// The start of the IP header.
    pub start: usize,
    /// The upper layer's protocol number, also in later fragments.
    pub protocol: u8,
    /// The part of the datagram that the packet contains.
    pub fragmentation: Fragmentation,
    /// The start of the transport header, if it is complete and its length is valid. Only for TCP, UDP and ICMP.
    pub transport: Option<usize>,
    /// True if the header above IP cannot be found, or the header of TCP, UDP or ICMP cannot be parsed. Its fields are
    /// then unknown, and everything behind the last header found is payload.
    pub headers_hidden: bool,
    /// The payload. For TCP and UDP, the payload begins after the transport header, otherwise after the headers of the
    /// network layer. It ends with the IP packet and does not include padding.
    pub payload: Range<usize>,
}

impl PacketLayout {
    /// Parses a frame's headers. Returns `None` if the frame does not contain IP.
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
                // Nearly all packets have no extension headers. For these the walk is skipped.
                let plain = transport.is_some_and(|(protocol, _)| protocol == next);
                let fragment = !plain && ipv6::is_fragment(packet.data(), start);
                let protocol = if plain { next } else { ipv6::upper_protocol(packet.data(), start).unwrap_or(next) };
                let later = transport.is_none() && ipv6::later_fragment(packet.data(), start).is_some();
                (fragment, later, protocol, start + size_of::<Ipv6>())
            }
            Network::Other => return None,
        };
        let fragmentation = match (fragment, later) {
            (false, _) => Fragmentation::Whole,
            (true, false) => Fragmentation::First,
            (true, true) => Fragmentation::Later,
        };
        let clamp = |from: usize| from.min(end)..end;
        let Some((protocol, at)) = transport else {
            // If a later fragment starts with an extension header, the upper layer is unknown.
            let headers_hidden = !later || network == Network::Ipv6 && ipv6::is_extension(protocol);
            return Some(Self {
                network,
                start,
                protocol,
                fragmentation,
                transport: None,
                headers_hidden,
                payload: clamp(behind),
            });
        };
        let length = match protocol {
            // RFC 9293 section 3.1: the header has at least five words.
            TCP => {
                packet.view::<Tcp>(at).map(|header| usize::from(header.offset >> 4) * 4).filter(|length| *length >= 20)
            }
            UDP => Some(size_of::<Udp>()),
            // The ICMP header counts as payload. Callers that need the message body skip the header.
            ICMP | ICMPV6 => Some(0),
            _ => None,
        };
        let least = if matches!(protocol, ICMP | ICMPV6) { 8 } else { length.unwrap_or(0) };
        let sound = length.filter(|_| at + least <= end);
        let payload = clamp(at + sound.unwrap_or(0));
        let headers_hidden = sound.is_none() && matches!(protocol, TCP | UDP | ICMP | ICMPV6);
        Some(Self { network, start, protocol, fragmentation, transport: sound.map(|_| at), headers_hidden, payload })
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;
    use forebay_packet::{Pool, PoolOptions};

    use super::*;

    fn seen(frame: &[u8]) -> Option<PacketLayout> {
        let pool = Pool::new(PoolOptions { chunks: 4, ..PoolOptions::default() }).expect("memory");
        let mut packet = pool.take().expect("a packet");
        assert!(packet.write(frame));
        PacketLayout::of(&mut packet)
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
        assert_eq!(
            (&frame[seen.payload.clone()], seen.transport, seen.fragmentation),
            (&b"payload"[..], Some(34), Fragmentation::Whole)
        );
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
        assert_eq!(seen(&frame).expect("IP").fragmentation, Fragmentation::First);
        frame[20..22].copy_from_slice(&0x0001_u16.to_be_bytes());
        let later = seen(&frame).expect("IP");
        assert_eq!(
            (later.fragmentation, later.payload.start, later.transport, later.protocol),
            (Fragmentation::Later, 34, None, 6)
        );
    }

    #[test]
    fn frames_without_ip_have_no_payload() {
        assert_eq!(seen(&[0; 60]), None);
        assert_eq!(seen(&[]), None);
    }
}

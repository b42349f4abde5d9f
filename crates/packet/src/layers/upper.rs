//! Reports whether the header above IP is present. If it cannot be found, reports which fields a filter cannot read.
//!
//! "There is no header" and "the header cannot be found" are different results. A filter that confuses them forwards
//! packets that it was configured to drop (RFC 7113 section 3, RFC 9098 section 5).

use zerocopy::FromBytes;

use super::HIDDEN;
use crate::wire::ipv4::{DCCP, Ipv4, SCTP, TCP, UDP, UDP_LITE};
use crate::wire::ipv6;
use crate::{Network, Packet};

/// The state of the header above the network layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upper {
    /// The frame carries no IP.
    NotIp,
    /// The header starts `offset` bytes into the frame. ESP, "no next header" (59) and unassigned numbers count as
    /// protocols, too.
    Found {
        /// IP protocol number.
        protocol: u8,
        /// Offset in bytes into the frame.
        offset: usize,
    },
    /// The packet has no such header: it is a fragment other than the first.
    Later {
        /// IP protocol number. `None` if the fragment header announces an extension header, which only the first
        /// fragment contains.
        protocol: Option<u8>,
    },
    /// The header cannot be found.
    Unknown(Hidden),
}

/// The part of a packet that a filter cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// The addresses and everything above them. The frame has more VLAN tags than are skipped, or a tag that is cut
    /// short, or an IP header that is cut short or has another version than the EtherType announces.
    Network,
    /// The protocol above IPv6, and its ports. The packet has more extension headers than are skipped, or one that is
    /// cut short, or it is a later fragment that starts with one.
    Protocol,
    /// The ports of a protocol that has ports. The packet is not a later fragment and ends before the ports, or its
    /// IPv4 header has an invalid header length.
    Ports {
        /// IP protocol number.
        protocol: u8,
    },
}

impl Packet {
    /// Returns the state of the header above the network layer.
    #[must_use]
    pub fn upper(&mut self) -> Upper {
        let (network, start) = self.network();
        if let Some((protocol, offset)) = self.transport() {
            return Upper::Found { protocol, offset };
        }
        match network {
            Network::Other if self.meta().layers.kind() == HIDDEN => Upper::Unknown(Hidden::Network),
            Network::Other => Upper::NotIp,
            Network::Ipv4 => {
                let header = self.data().get(start..).and_then(|rest| Ipv4::ref_from_prefix(rest).ok());
                match header {
                    Some((header, _)) if header.fragment_offset() != 0 => {
                        Upper::Later { protocol: Some(header.protocol) }
                    }
                    Some((header, _)) => Upper::Unknown(Hidden::Ports { protocol: header.protocol }),
                    None => Upper::Unknown(Hidden::Network),
                }
            }
            Network::Ipv6 => match ipv6::later_fragment(self.data(), start) {
                Some(protocol) => Upper::Later { protocol: (!ipv6::is_extension(protocol)).then_some(protocol) },
                None => Upper::Unknown(Hidden::Protocol),
            },
        }
    }

    /// Returns whether the network layer cannot be read: whether [`hidden`](Self::hidden) returns [`Hidden::Network`].
    #[cold]
    #[inline(never)]
    #[must_use]
    pub fn hides_network(&mut self) -> bool {
        self.network().0 == Network::Other && self.meta().layers.kind() == HIDDEN
    }

    /// Returns the part of a packet that a filter needs and cannot read. Returns `None` if everything is known: the
    /// protocol and, for TCP, UDP, UDP-Lite, SCTP and DCCP, the ports, or the fact that the packet has no ports.
    #[cold]
    #[inline(never)]
    #[must_use]
    pub fn hidden(&mut self) -> Option<Hidden> {
        match self.upper() {
            Upper::NotIp | Upper::Later { protocol: Some(_) } => None,
            Upper::Later { protocol: None } => Some(Hidden::Protocol),
            Upper::Unknown(Hidden::Ports { protocol }) if !has_ports(protocol) => None,
            Upper::Unknown(hidden) => Some(hidden),
            Upper::Found { protocol, .. } => {
                (has_ports(protocol) && self.ports().is_none()).then_some(Hidden::Ports { protocol })
            }
        }
    }
}

/// Returns whether a protocol's header starts with two ports.
fn has_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | DCCP | SCTP | UDP_LITE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::MOST_TAGS;
    use crate::wire::ethernet::EtherType;
    use crate::wire::ipv6::MOST_EXTENSIONS;
    use crate::{Pool, PoolOptions};

    fn look(frame: &[u8]) -> (Upper, Option<Hidden>) {
        let pool = Pool::new(PoolOptions { chunks: 1, ..PoolOptions::default() }).expect("memory");
        let mut packet = pool.take().expect("a chunk");
        assert!(packet.write(frame));
        let hidden = packet.hidden();
        assert_eq!(packet.hides_network(), hidden == Some(Hidden::Network));
        (packet.upper(), hidden)
    }

    fn ethernet(ether_type: u16, rest: &[u8]) -> Vec<u8> {
        [&[2; 12][..], &ether_type.to_be_bytes(), rest].concat()
    }

    fn ipv6(next: u8, rest: &[u8]) -> Vec<u8> {
        let mut header = [0; 40];
        header[0] = 0x60;
        header[4..6].copy_from_slice(&(rest.len() as u16).to_be_bytes());
        (header[6], header[7]) = (next, 64);
        ethernet(EtherType::IPV6, &[&header[..], rest].concat())
    }

    fn ipv4(words: u8, fragment: u16, rest: &[u8]) -> Vec<u8> {
        let mut header = [0; 20];
        header[0] = 0x40 | words;
        header[2..4].copy_from_slice(&(20 + rest.len() as u16).to_be_bytes());
        header[6..8].copy_from_slice(&fragment.to_be_bytes());
        (header[8], header[9]) = (64, TCP);
        ethernet(EtherType::IPV4, &[&header[..], rest].concat())
    }

    /// Returns a frame with this many destination options headers, followed by TCP.
    fn chain(extensions: usize) -> Vec<u8> {
        let Some(most) = extensions.checked_sub(1) else { return ipv6(TCP, &[7; 20]) };
        let options = |next| [next, 0, 1, 4, 0, 0, 0, 0];
        let all = [[options(60)].repeat(most).concat(), options(TCP).to_vec(), vec![7; 20]].concat();
        ipv6(60, &all)
    }

    #[test]
    fn none_and_unknown_differ_for_ipv6() {
        for extensions in [0, 1, MOST_EXTENSIONS] {
            let found = Upper::Found { protocol: TCP, offset: 54 + 8 * extensions };
            assert_eq!(look(&chain(extensions)), (found, None), "{extensions}");
        }
        let unknown = (Upper::Unknown(Hidden::Protocol), Some(Hidden::Protocol));
        for extensions in [MOST_EXTENSIONS + 1, 16] {
            assert_eq!(look(&chain(extensions)), unknown, "{extensions}");
        }
        assert_eq!(look(&ipv6(60, &[TCP, 0, 1, 4])), unknown, "a chain that is cut short");
        assert_eq!(look(&ipv6(60, &[TCP, 9, 1, 4, 0, 0, 0, 0])), unknown, "an option that is longer than the packet");
        let ports = Some(Hidden::Ports { protocol: TCP });
        assert_eq!(look(&ipv6(TCP, &[0, 1])), (Upper::Found { protocol: TCP, offset: 54 }, ports), "ports missing");
        for other in [59, 50, 58, 253] {
            let found = Upper::Found { protocol: other, offset: 54 };
            assert_eq!(look(&ipv6(other, &[])), (found, None), "{other}");
        }
        let part = |next, offset: u16| ipv6(44, &[&[next, 0][..], &offset.to_be_bytes(), &[0; 4], &[7; 16]].concat());
        assert_eq!(look(&part(TCP, 1)), (Upper::Found { protocol: TCP, offset: 62 }, None), "the first fragment");
        assert_eq!(look(&part(TCP, 9)), (Upper::Later { protocol: Some(TCP) }, None));
        assert_eq!(look(&part(60, 9)), (Upper::Later { protocol: None }, Some(Hidden::Protocol)));
    }

    /// Another header can follow a Mobility, HIP or Shim6 header. If none follows, that header is the protocol (RFC
    /// 7045 section 2).
    #[test]
    fn mobility_hip_and_shim6_headers_are_skipped() {
        for kind in [135, 139, 140] {
            let header = |next: u8, units: u8| {
                let mut bytes = vec![7; 8 * (usize::from(units) + 1)];
                (bytes[0], bytes[1]) = (next, units);
                bytes
            };
            let followed = ipv6(kind, &[header(TCP, 2), vec![7; 20]].concat());
            assert_eq!(look(&followed), (Upper::Found { protocol: TCP, offset: 54 + 24 }, None), "{kind}");
            let behind_options = ipv6(60, &[header(kind, 0), header(TCP, 1), vec![7; 20]].concat());
            assert_eq!(look(&behind_options), (Upper::Found { protocol: TCP, offset: 54 + 24 }, None), "{kind}");
            let message = ipv6(60, &[header(kind, 0), header(59, 1)].concat());
            assert_eq!(look(&message), (Upper::Found { protocol: kind, offset: 62 }, None), "{kind}");
            let unknown = (Upper::Unknown(Hidden::Protocol), Some(Hidden::Protocol));
            assert_eq!(look(&ipv6(kind, &[59, 0, 7, 7])), unknown, "{kind} cut short");
            assert_eq!(look(&ipv6(kind, &header(TCP, 9)[..8])), unknown, "{kind} longer than the packet");
            let options = [60, 0, 1, 4, 0, 0, 0, 0].repeat(MOST_EXTENSIONS - 1);
            let deep = |last: Vec<u8>| ipv6(60, &[options.clone(), header(kind, 0), last].concat());
            let offset = 54 + 8 * MOST_EXTENSIONS;
            assert_eq!(look(&deep(header(59, 0))).0, Upper::Found { protocol: kind, offset }, "{kind}");
            assert_eq!(look(&deep([header(TCP, 0), vec![7; 20]].concat())), unknown, "{kind} as the ninth");
            let later = ipv6(44, &[&[kind, 0, 0, 9, 0, 0, 0, 1][..], &[7; 16]].concat());
            assert_eq!(look(&later), (Upper::Later { protocol: None }, Some(Hidden::Protocol)), "{kind}");
        }
        for experiment in [253, 254] {
            let frame = ipv6(experiment, &[&[TCP, 0, 0, 0, 0, 0, 0, 0][..], &[7; 20]].concat());
            assert_eq!(look(&frame), (Upper::Found { protocol: experiment, offset: 54 }, None), "{experiment}");
        }
    }

    #[test]
    fn none_and_unknown_differ_for_ipv4() {
        let found = Upper::Found { protocol: TCP, offset: 34 };
        let ports = Hidden::Ports { protocol: TCP };
        assert_eq!(look(&ipv4(5, 0, &[7; 20])), (found, None));
        assert_eq!(look(&ipv4(5, 0x2000, &[7; 8])), (found, None), "the first fragment");
        assert_eq!(look(&ipv4(5, 0x2000, &[7; 3])), (found, Some(ports)), "a first fragment without ports");
        assert_eq!(look(&ipv4(5, 0x2001, &[7; 8])), (Upper::Later { protocol: Some(TCP) }, None));
        for words in [0, 4, 15] {
            assert_eq!(look(&ipv4(words, 0, &[7; 20])), (Upper::Unknown(ports), Some(ports)), "{words} words");
        }
    }

    #[test]
    fn a_network_layer_hidden_by_tags_is_unknown() {
        let whole = ipv4(5, 0, &[7; 20]);
        let tag = |tpid: u16, frame: &[u8]| [&frame[..12], &tpid.to_be_bytes(), &[0, 5], &frame[12..]].concat();
        let hidden = (Upper::Unknown(Hidden::Network), Some(Hidden::Network));
        for tpid in [0x8100, 0x88a8, 0x9100, 0x9200, 0x9300] {
            let mut frame = whole.clone();
            for tags in 1..=MOST_TAGS {
                frame = tag(tpid, &frame);
                assert_eq!(
                    look(&frame).0,
                    Upper::Found { protocol: TCP, offset: 34 + 4 * tags },
                    "{tags} of {tpid:#x}"
                );
            }
            assert_eq!(look(&tag(tpid, &frame)), hidden, "too many tags of {tpid:#x}");
            assert_eq!(look(&tag(tpid, &whole)[..17]), hidden, "a tag that is cut short");
        }
        assert_eq!(look(&ethernet(EtherType::IPV4, &[0x45; 19])), hidden, "a header that is cut short");
        assert_eq!(look(&ethernet(EtherType::IPV4, &[0x60; 60])), hidden, "a wrong version");
        for frame in [&ethernet(EtherType::ARP, &[0; 46])[..], &[], &[0; 13]] {
            assert_eq!(look(frame), (Upper::NotIp, None));
        }
    }

    /// Regression test: Ethernet padding was treated as IPv6 payload, and its bytes as ports.
    #[test]
    fn an_ipv6_length_of_zero_is_a_length() {
        let mut frame = ipv6(UDP, &[]);
        frame.extend([7; 6]);
        let pool = Pool::new(PoolOptions { chunks: 1, ..PoolOptions::default() }).expect("memory");
        let mut packet = pool.take().expect("a chunk");
        assert!(packet.write(&frame));
        assert_eq!((packet.network_end(), packet.ports()), (54, None));
        assert_eq!(packet.hidden(), Some(Hidden::Ports { protocol: UDP }));
        // A jumbogram's options lie after the end that its length of 0 gives.
        let mut jumbo = ipv6(0, &[]);
        jumbo.extend([TCP, 0, 0xc2, 4, 0, 1, 0, 0]);
        jumbo.extend([7; 20]);
        assert_eq!(look(&jumbo), (Upper::Unknown(Hidden::Protocol), Some(Hidden::Protocol)));
    }
}

//! Types of ICMP messages (queries, replies and errors), and the numbers that replace their ports.
//!
//! The direction of a query is part of its session's key: two hosts that query each other with the same identifier have
//! two sessions (RFC 5508 section 3). So the identifier is only on the side that sends the query.

use forebay_packet::wire::icmp::ICMPV6;
use forebay_packet::wire::ipv4::ICMP;
use forebay_packet::wire::ipv6::Ipv6;

/// The ICMP of an IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Types {
    V4,
    V6,
}

/// Queries of IPv4 and their replies: echo, timestamp, information (RFC 792), address mask (RFC 950), extended echo
/// (RFC 8335).
const QUERIES4: [(u8, u8); 5] = [(8, 0), (13, 14), (15, 16), (17, 18), (42, 43)];
/// Queries of IPv6 and their replies: echo (RFC 4443), node information, whose first word is repeated in the reply (RFC
/// 4620), extended echo (RFC 8335).
const QUERIES6: [(u8, u8); 3] = [(128, 129), (139, 140), (160, 161)];

/// A query or its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Query {
    /// The number of the type of query, starting with 1. A query and its reply have the same number.
    number: u16,
    is_query: bool,
}

impl Query {
    /// Returns true for the query and false for the reply.
    pub(super) fn is_query(self) -> bool {
        self.is_query
    }

    /// Returns the numbers that replace the source and the destination port. `word` is the word after the checksum. The
    /// side that sends the query has the identifier. The other side has the identifier plus the number of the type,
    /// modulo 65536. A query from the other side never has the same pair of numbers: for that, the numbers of the two
    /// types would have to add up to 0.
    pub(super) fn ports(self, word: [u8; 4]) -> (u16, u16) {
        let identifier = u16::from_be_bytes([word[0], word[1]]);
        let other = identifier.wrapping_add(self.number);
        if self.is_query { (identifier, other) } else { (other, identifier) }
    }
}

impl Types {
    /// Returns the IP protocol number.
    pub(super) fn protocol(self) -> u8 {
        match self {
            Self::V4 => ICMP,
            Self::V6 => ICMPV6,
        }
    }

    /// Returns the known types of errors. IPv4: destination unreachable, source quench, time exceeded, parameter
    /// problem (RFC 792). IPv6: the four errors of RFC 4443.
    pub(super) fn errors(self) -> &'static [u8] {
        match self {
            Self::V4 => &[3, 4, 11, 12],
            Self::V6 => &[1, 2, 3, 4],
        }
    }

    /// Returns true if a type is an error, including types that are not assigned yet (RFC 4443 section 2.1).
    pub(super) fn is_error(self, kind: u8) -> bool {
        self.errors().contains(&kind) || self == Self::V6 && kind < 128
    }

    /// Returns the query to which a message of this type belongs, as query or reply.
    pub(super) fn query(self, kind: u8) -> Option<Query> {
        let queries: &[(u8, u8)] = match self {
            Self::V4 => &QUERIES4,
            Self::V6 => &QUERIES6,
        };
        let at = queries.iter().position(|(query, reply)| kind == *query || kind == *reply)?;
        Some(Query { number: at as u16 + 1, is_query: queries[at].0 == kind })
    }
}

/// The difference between both numbers of a message that is not a query. It is greater than the difference of any
/// query.
const MESSAGE: u16 = 0x100;

/// Returns the numbers that replace the ports of a message that is not a query: its type, and the type plus
/// [`MESSAGE`]. A message of the same type in the opposite direction has another pair.
pub(super) fn message_ports(kind: u8) -> (u16, u16) {
    (u16::from(kind), u16::from(kind) + MESSAGE)
}

/// Returns the ports of a connection as operators see them. `from` and `to` are the ports of the opener's 5-tuple. For
/// an ICMP query both are the identifier, for another ICMP message both are 0.
#[must_use]
pub fn shown_ports(protocol: u8, (from, to): (u16, u16)) -> (u16, u16) {
    match protocol {
        ICMP | ICMPV6 if to.wrapping_sub(from) == MESSAGE => (0, 0),
        ICMP | ICMPV6 => (from, from),
        _ => (from, to),
    }
}

/// Returns true if the source and the hop limit of a message prove that it is between neighbours on one link. RFC 4890
/// section 4.4.1 lists the messages that must not be dropped.
pub(super) fn is_between_neighbours(ip: &Ipv6, kind: u8) -> bool {
    let link_local = ip.source[0] == 0xfe && ip.source[1] & 0xc0 == 0x80;
    match kind {
        // Neighbour and router discovery (RFC 4861), inverse discovery (RFC 3122), certification paths (RFC 3971): a
        // packet with a hop limit of 255 has passed no router.
        133..=137 | 141 | 142 | 148 | 149 => ip.hop_limit == 255,
        // Multicast listener messages (RFC 2710, RFC 3810). A listener that has no address yet sends them from the
        // unspecified address (RFC 3590).
        130..=132 | 143 => ip.hop_limit == 1 && (link_local || ip.source == [0; 16]),
        // Multicast router discovery (RFC 4286).
        151..=153 => ip.hop_limit == 1 && link_local,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// No two sessions have the same pair, for all identifiers and types and either side. The reply has the query's
    /// pair, reversed.
    #[test]
    fn every_query_of_either_side_has_a_pair_of_its_own() {
        for types in [Types::V4, Types::V6] {
            let mut pairs: BTreeMap<(u16, u16), (bool, u8, u16)> = BTreeMap::new();
            for kind in 0..=255u8 {
                let Some(query) = types.query(kind).filter(|query| query.is_query()) else { continue };
                for identifier in (0..600).chain(65_000..=65_535u16) {
                    let [high, low] = identifier.to_be_bytes();
                    let (from, to) = query.ports([high, low, 1, 2]);
                    assert_eq!(from, identifier, "the identifier is on the side of the query");
                    for (turned, pair) in [(false, (from, to)), (true, (to, from))] {
                        assert_eq!(pairs.insert(pair, (turned, kind, identifier)), None, "{kind} {identifier}");
                    }
                }
            }
            for kind in 0..=255 {
                let (from, to) = message_ports(kind);
                for pair in [(from, to), (to, from)] {
                    assert_eq!(pairs.insert(pair, (false, kind, 0)), None, "message {kind}");
                }
            }
        }
        for (query, reply) in QUERIES4 {
            let ports = |kind: u8| Types::V4.query(kind).expect("a query").ports([1, 2, 3, 4]);
            let (from, to) = ports(query);
            assert_eq!(ports(reply), (to, from));
        }
    }

    #[test]
    fn ports_are_shown_as_identifiers() {
        let (from, to) = Types::V6.query(160).expect("extended echo").ports([0xff, 0xff, 0, 0]);
        assert_eq!(shown_ports(ICMPV6, (from, to)), (0xffff, 0xffff));
        assert_eq!(shown_ports(ICMP, message_ports(9)), (0, 0));
        assert_eq!(shown_ports(17, (1, 2)), (1, 2));
    }
}

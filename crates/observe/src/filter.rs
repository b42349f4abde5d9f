//! Packet filters: expressions like those of tcpdump.
//!
//! The language is a small subset of pcap-filter(7) with a parser of its own. Errors name the column and the allowed
//! words. Unlike pcap-filter, a filter finds headers behind VLAN tags without the word `vlan`.

mod parse;

use std::net::IpAddr;
use std::str::FromStr;

use forebay_packet::wire::ethernet::EtherType;

use crate::decode::{ICMP, ICMP6, Layers, TCP, UDP};

pub use parse::FilterError;

/// A packet filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// An IPv4 packet.
    Ip,
    /// An IPv6 packet.
    Ip6,
    /// An ARP packet.
    Arp,
    /// A TCP segment in IPv4 or IPv6.
    Tcp,
    /// A UDP datagram in IPv4 or IPv6.
    Udp,
    /// An ICMP message in IPv4.
    Icmp,
    /// An ICMPv6 message.
    Icmp6,
    /// A frame with a VLAN tag. If an identifier is given, at least one of the frame's tags must have this identifier.
    Vlan(Option<u16>),
    /// A packet with an address in a network: the network address and its prefix length in bits.
    Net(Side, IpAddr, u8),
    /// A packet with this TCP or UDP port.
    Port(Side, u16),
    /// A frame with at least this many bytes.
    Greater(usize),
    /// A frame with at most this many bytes.
    Less(usize),
    /// Packets that do not match the filter.
    Not(Box<Filter>),
    /// Packets that match both filters.
    And(Box<Filter>, Box<Filter>),
    /// Packets that match at least one filter.
    Or(Box<Filter>, Box<Filter>),
}

/// The side of a packet whose address or port is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The source.
    Source,
    /// The destination.
    Destination,
    /// The source or the destination: at least one of them must match.
    Either,
}

impl Side {
    /// Returns true if a value of this side passes the test. `pair` has the values of the source and the destination.
    /// It is `None` if the packet has no such values: then the result is false.
    fn is<T>(self, pair: Option<&(T, T)>, test: impl Fn(&T) -> bool) -> bool {
        pair.is_some_and(|(source, destination)| match self {
            Self::Source => test(source),
            Self::Destination => test(destination),
            Self::Either => test(source) || test(destination),
        })
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        parse::parse(text)
    }
}

impl Filter {
    /// Returns true if the frame matches.
    #[must_use]
    pub fn matches(&self, frame: &[u8]) -> bool {
        self.test(&Layers::of(frame), frame.len())
    }

    fn test(&self, layers: &Layers, length: usize) -> bool {
        let is = |kind: u16, protocol: u8| layers.ether_type == Some(kind) && layers.protocol == Some(protocol);
        let either = |protocol| is(EtherType::IPV4, protocol) || is(EtherType::IPV6, protocol);
        match self {
            Self::Ip => layers.ether_type == Some(EtherType::IPV4),
            Self::Ip6 => layers.ether_type == Some(EtherType::IPV6),
            Self::Arp => layers.ether_type == Some(EtherType::ARP),
            Self::Tcp => either(TCP),
            Self::Udp => either(UDP),
            Self::Icmp => is(EtherType::IPV4, ICMP),
            Self::Icmp6 => is(EtherType::IPV6, ICMP6),
            Self::Vlan(None) => !layers.tags.is_empty(),
            Self::Vlan(Some(id)) => layers.tags.iter().any(|tag| tag & 0x0fff == *id),
            Self::Net(side, network, bits) => side.is(layers.addresses.as_ref(), |it| within(*it, *network, *bits)),
            Self::Port(side, port) => side.is(layers.ports.as_ref(), |it| it == port),
            Self::Greater(least) => length >= *least,
            Self::Less(most) => length <= *most,
            Self::Not(inner) => !inner.test(layers, length),
            Self::And(a, b) => a.test(layers, length) && b.test(layers, length),
            Self::Or(a, b) => a.test(layers, length) || b.test(layers, length),
        }
    }
}

/// Returns true if the first `bits` bits of two addresses are equal. Returns false for addresses of different families.
fn within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            (a.to_bits() ^ b.to_bits()).checked_shr(32 - u32::from(bits.min(32))).unwrap_or(0) == 0
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            (a.to_bits() ^ b.to_bits()).checked_shr(128 - u32::from(bits.min(128))).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// For fuzzing: parses the bytes before the first NUL as an expression, and matches the bytes after it as a frame.
pub fn fuzz_filter(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default());
    if let Ok(filter) = text.parse::<Filter>() {
        let _ = filter.matches(parts.next().unwrap_or_default());
    }
}

#[cfg(test)]
mod tests;

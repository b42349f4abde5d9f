//! Frames that an interface creates: requests for neighbours, and announcements.

use forebay_packet::wire::arp::Arp;
use forebay_packet::wire::ethernet::{EtherType, Ethernet, MacAddress};
use forebay_packet::wire::icmp::{self, ICMPV6};
use forebay_packet::wire::ipv6::Ipv6;
use forebay_packet::wire::neighbour::{HOP_LIMIT, Neighbour, solicited_node};
use zerocopy::IntoBytes;

/// The broadcast address (RFC 826).
pub(crate) const BROADCAST: MacAddress = MacAddress([0xff; 6]);
/// The multicast address of all nodes on the link (RFC 4291 section 2.7.1).
pub(crate) const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// The number of bytes of a frame with an ARP message.
pub(crate) const ARP: usize = size_of::<Ethernet>() + size_of::<Arp>();
/// The number of bytes of a frame with a neighbour solicitation or advertisement.
pub(crate) const NEIGHBOUR: usize = size_of::<Ethernet>() + size_of::<Ipv6>() + size_of::<Neighbour>();

/// Returns the Ethernet address of an IPv6 multicast address (RFC 2464 section 7).
pub(crate) fn multicast_v6(address: [u8; 16]) -> MacAddress {
    let [.., a, b, c, d] = address;
    MacAddress([0x33, 0x33, a, b, c, d])
}

/// Returns the Ethernet address of an IPv4 multicast address (RFC 1112 section 6.4).
pub(crate) fn multicast_v4(address: u32) -> MacAddress {
    let [_, b, c, d] = address.to_be_bytes();
    MacAddress([0x01, 0x00, 0x5e, b & 0x7f, c, d])
}

/// Returns a frame with an ARP message. `to` and `from` are the Ethernet addresses of the frame.
pub(crate) fn arp(to: MacAddress, from: MacAddress, message: &Arp) -> [u8; ARP] {
    let mut frame = [0; ARP];
    let ethernet = Ethernet { destination: to, source: from, ether_type: EtherType::ARP.into() };
    frame[..size_of::<Ethernet>()].copy_from_slice(ethernet.as_bytes());
    frame[size_of::<Ethernet>()..].copy_from_slice(message.as_bytes());
    frame
}

/// Returns a frame with a solicitation or advertisement from `source` to `destination`, with its checksum. `to` and
/// `from` are the Ethernet addresses of the frame.
pub(crate) fn neighbour(
    to: MacAddress,
    from: MacAddress,
    source: [u8; 16],
    destination: [u8; 16],
    mut message: Neighbour,
) -> [u8; NEIGHBOUR] {
    let ethernet = Ethernet { destination: to, source: from, ether_type: EtherType::IPV6.into() };
    let ipv6 = Ipv6 {
        version_class_label: (6 << 28).into(),
        payload_length: (size_of::<Neighbour>() as u16).into(),
        next_header: ICMPV6,
        hop_limit: HOP_LIMIT,
        source,
        destination,
    };
    message.icmp.checksum = icmp::stored(icmp::sum_over_ipv6(&ipv6, message.as_bytes()));
    let mut frame = [0; NEIGHBOUR];
    frame[..14].copy_from_slice(ethernet.as_bytes());
    frame[14..54].copy_from_slice(ipv6.as_bytes());
    frame[54..].copy_from_slice(message.as_bytes());
    frame
}

/// Returns a frame with a request to all hosts that may have `target` (RFC 4861 section 7.2.2).
pub(crate) fn solicitation(from: MacAddress, source: [u8; 16], target: [u8; 16]) -> [u8; NEIGHBOUR] {
    let group = solicited_node(target);
    neighbour(multicast_v6(group), from, source, group, Neighbour::solicitation(target, from))
}

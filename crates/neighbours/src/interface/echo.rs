//! ICMP and ICMPv6 echoes: a request is turned into its answer in the same chunk.

use forebay_packet::Packet;
use forebay_packet::wire::checksum;
use forebay_packet::wire::ethernet::{Ethernet, MacAddress};
use forebay_packet::wire::icmp::{self, Icmp};
use forebay_packet::wire::ipv4::{ICMP, Ipv4};
use forebay_packet::wire::ipv6::Ipv6;
use zerocopy::FromBytes;

/// The time to live of packets that the interface sends. RFC 1122 section 3.2.1.7 leaves the value open, and IANA
/// recommends 64.
pub(crate) const TTL: u8 = 64;

/// The result of answering a message that may be an echo request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Echo {
    /// The packet was an echo request, and is the answer now.
    Answered,
    /// The packet is not an echo request, or it is an echo request that is not answered here: a fragment, or a packet
    /// with options or extension headers.
    Other,
    /// The packet is an echo request with a wrong checksum, or cut short.
    Bad,
}

/// Returns the fixed part of the ICMP message that begins at `at`. `None` if the IP packet ends before the fixed part
/// does. Ethernet padding after the packet is not part of the message.
pub(crate) fn message(packet: &mut Packet, at: usize) -> Option<Icmp> {
    let end = packet.network_end();
    Some(*Icmp::ref_from_prefix(packet.data().get(at..end)?).ok()?.0)
}

/// Returns true if the IPv4 packet at `start` has no IP options, is not a fragment, and contains an ICMP echo request.
/// Packets of other protocols may begin with the same bytes, for example a UDP datagram from port 2048.
pub(crate) fn is_request_v4(packet: &mut Packet, start: usize) -> bool {
    let plain = packet
        .view::<Ipv4>(start)
        .is_some_and(|header| header.version_ihl == 0x45 && header.protocol == ICMP && !header.is_fragment());
    plain
        && message(packet, start + size_of::<Ipv4>()).is_some_and(|icmp| (icmp.kind, icmp.code) == (icmp::v4::ECHO, 0))
}

/// Returns true if an ICMPv6 message directly after the IPv6 header at `start` is an echo request. The next header must
/// be ICMPv6.
pub(crate) fn is_request_v6(packet: &mut Packet, start: usize) -> bool {
    message(packet, start + size_of::<Ipv6>()).is_some_and(|icmp| (icmp.kind, icmp.code) == (icmp::v6::ECHO, 0))
}

/// Exchanges the Ethernet addresses, so that the frame goes back to its sender.
fn turn_back(packet: &mut Packet, own: MacAddress) {
    // The session hash may depend on the direction.
    packet.forget_layers();
    if let Some(ethernet) = packet.view_mut::<Ethernet>(0) {
        (ethernet.destination, ethernet.source) = (ethernet.source, own);
    }
}

/// Turns an IPv4 echo request into the answer to it. `start` is the offset of the IP header, and `own` the Ethernet
/// address of the interface.
pub(crate) fn answer_v4(packet: &mut Packet, start: usize, own: MacAddress) -> Echo {
    if !is_request_v4(packet, start) {
        return Echo::Other;
    }
    let end = packet.network_end();
    let at = start + size_of::<Ipv4>();
    let valid = packet.data().get(start..).is_some_and(Ipv4::is_valid)
        && packet.data().get(at..end).is_some_and(|message| message.len() >= 8 && checksum::sum(message) == 0xffff);
    if !valid {
        return Echo::Bad;
    }
    turn_back(packet, own);
    if let Some(header) = packet.view_mut::<Ipv4>(start) {
        std::mem::swap(&mut header.source, &mut header.destination);
        header.ttl = TTL;
        header.update_checksum(&[]);
    }
    if let Some(message) = packet.data_mut().get_mut(at..end) {
        let first = |kind: u8| u16::from(kind) << 8;
        message[0] = icmp::v4::ECHO_REPLY;
        icmp::replace_in_message(message, first(icmp::v4::ECHO), first(icmp::v4::ECHO_REPLY));
    }
    Echo::Answered
}

/// Turns an IPv6 echo request into the answer to it. `start` is the offset of the IP header, and `own` the Ethernet
/// address of the interface.
pub(crate) fn answer_v6(packet: &mut Packet, start: usize, own: MacAddress) -> Echo {
    if !is_request_v6(packet, start) {
        return Echo::Other;
    }
    let end = packet.network_end();
    let at = start + size_of::<Ipv6>();
    let valid =
        packet.data().get(start..).and_then(|bytes| Ipv6::ref_from_prefix(bytes).ok()).is_some_and(|(header, _)| {
            packet.data().get(at..end).is_some_and(|message| {
                message.len() >= 8
                    && message.len() == usize::from(header.payload_length.get())
                    && icmp::sum_over_ipv6(header, message) == 0xffff
            })
        });
    if !valid {
        return Echo::Bad;
    }
    turn_back(packet, own);
    if let Some(header) = packet.view_mut::<Ipv6>(start) {
        // The checksum does not change by this, because the sum of the addresses is the same.
        std::mem::swap(&mut header.source, &mut header.destination);
        header.hop_limit = TTL;
    }
    if let Some(icmp) = packet.view_mut::<Icmp>(at) {
        let first = |kind: u8| u16::from(kind) << 8;
        icmp.checksum =
            checksum::replace16(icmp.checksum.get(), first(icmp::v6::ECHO), first(icmp::v6::ECHO_REPLY)).into();
        icmp.kind = icmp::v6::ECHO_REPLY;
    }
    Echo::Answered
}

//! The keys by which rules classify packets, read from the packets' headers.

use forebay_packet::wire::ipv4::{DCCP, SCTP, TCP, UDP, UDP_LITE};
use forebay_packet::wire::ipv6;
use forebay_packet::{Packet, Upper};

use super::list::Needs;
use crate::acl::{HeaderKey, Key4, Key6, RuleAddress};

/// Returns the key of an IPv4 packet with TCP or UDP ports and no options; `None` for any other packet.
#[inline]
#[must_use]
pub fn plain_key4(packet: &Packet) -> Option<Key4> {
    let (header, from, to) = packet.plain_ipv4_ports()?;
    let (source, destination) = (u32::from_be_bytes(header.source), u32::from_be_bytes(header.destination));
    Some(HeaderKey::new(source, destination, from, to, header.protocol))
}

/// Returns the key of an IPv4 packet. Returns `None` for any other packet, and if a rule needs a field that cannot be
/// read in the packet, for example because the packet ends before its ports.
pub fn key4(packet: &mut Packet, needs: Needs) -> Option<Key4> {
    let header = *packet.ipv4()?;
    let ports = packet.ports();
    let has_ports = matches!(header.protocol, TCP | UDP | DCCP | SCTP | UDP_LITE);
    if ports.is_none() && has_ports && packet.hidden().is_some_and(|hidden| needs.for_hidden(hidden)) {
        return None;
    }
    let (source, destination) = (u32::from_be_bytes(header.source), u32::from_be_bytes(header.destination));
    match ports {
        Some((protocol, from, to)) => Some(HeaderKey::new(source, destination, from, to, protocol)),
        None if header.protocol == u32::ICMP && needs.for_icmp() => icmp_key(packet, source, destination),
        None => Some(HeaderKey::without_ports(source, destination, header.protocol)),
    }
}

/// Returns the key of an ICMP packet with its type and code. Called only if a rule needs an ICMP type. A fragment other
/// than the first has a key without a type. Returns `None` if any other packet ends before its code, or if the header
/// after the IP headers is not found.
fn icmp_key<A: RuleAddress>(packet: &mut Packet, source: A, destination: A) -> Option<HeaderKey<A>> {
    match packet.upper() {
        Upper::Found { offset, .. } => {
            let end = packet.network_end();
            let shown = packet.data().get(offset..end)?;
            let [kind, code] = *shown.first_chunk()?;
            Some(HeaderKey::icmp(source, destination, kind, code))
        }
        Upper::Later { .. } => Some(HeaderKey::without_ports(source, destination, A::ICMP)),
        Upper::NotIp | Upper::Unknown(_) => None,
    }
}

/// Returns the key of an IPv6 packet. The protocol is the protocol after the extension headers, also for later
/// fragments. Returns `None` for any other packet, and if a rule needs a field that cannot be read in the packet.
pub fn key6(packet: &mut Packet, needs: Needs) -> Option<Key6> {
    let ports = packet.ports();
    if ports.is_none() && needs.any() && packet.hidden().is_some_and(|hidden| needs.for_hidden(hidden)) {
        return None;
    }
    let (_, start) = packet.network();
    let upper = ipv6::upper_protocol(packet.data(), start);
    let header = packet.ipv6()?;
    let (source, destination) = (u128::from_be_bytes(header.source), u128::from_be_bytes(header.destination));
    let next = header.next_header;
    match ports {
        Some((protocol, from, to)) => Some(HeaderKey::new(source, destination, from, to, protocol)),
        None => match upper.unwrap_or(next) {
            protocol if protocol == u128::ICMP && needs.for_icmp() => icmp_key(packet, source, destination),
            protocol => Some(HeaderKey::without_ports(source, destination, protocol)),
        },
    }
}

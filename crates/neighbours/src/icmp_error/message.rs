//! Selects the packets about which errors are sent, and makes the messages.

use forebay_graph::Gate;
use forebay_packet::Packet;
use forebay_packet::host_address::{may_be_host_v4, may_be_host_v6};
use forebay_packet::wire::checksum;
use forebay_packet::wire::ethernet::{EtherType, Ethernet, MacAddress};
use forebay_packet::wire::icmp::{self, ICMPV6, Icmp, v4, v6};
use forebay_packet::wire::ipv4::{self, Ipv4};
use forebay_packet::wire::ipv6::{self, Ipv6};
use forebay_packet::wire::neighbour::REDIRECT;
use zerocopy::{FromBytes, IntoBytes};

use super::{BAD_HEADER, IcmpError, NO_ERROR, NO_ROOM, NO_SOURCE};
use crate::interface::echo::{TTL, message};

/// Maximum length of an IPv4 error, including the IP header (RFC 1812 section 4.3.2.3).
const MOST_V4: usize = 576;
/// Maximum length of an IPv6 error: the minimum MTU of IPv6 (RFC 4443 section 2.4 c).
const MOST_V6: usize = 1_280;
/// Length of the ICMP header of an error, in bytes: type, code, checksum and a word.
const HEADER: usize = 8;
/// The precedence of errors: internetwork control (RFC 1812 section 4.3.2.5).
const PRECEDENCE: u8 = 0xc0;

impl IcmpError {
    /// Returns the drop gate if no error is sent about an IPv4 packet (RFC 1122 section 3.2.2, RFC 1812 section
    /// 4.3.2.7), otherwise `None`. `start` is the offset of the IP header.
    pub(super) fn refuses_v4(&self, packet: &mut Packet, start: usize) -> Option<Gate> {
        if !packet.data().get(start..).is_some_and(Ipv4::is_valid) {
            return Some(BAD_HEADER);
        }
        let header = *packet.known_ipv4()?;
        let (source, destination) = (u32::from_be_bytes(header.source), u32::from_be_bytes(header.destination));
        let of_interfaces = self.interfaces.iter().any(|interface| {
            interface.has_v4(source) || interface.is_broadcast(source) || interface.is_broadcast(destination)
        });
        let to_group = destination >> 28 >= 0xe || is_to_group(packet);
        if !may_be_host_v4(source) || of_interfaces || to_group || header.fragment_offset() != 0 {
            return Some(NO_ERROR);
        }
        if header.protocol != ipv4::ICMP {
            return None;
        }
        let at = start + header.header_len()?;
        let Some(Icmp { kind, .. }) = message(packet, at) else { return Some(NO_ERROR) };
        let error = matches!(kind, v4::UNREACHABLE | 4 | v4::REDIRECT | v4::TIME_EXCEEDED | v4::PARAMETER_PROBLEM);
        error.then_some(NO_ERROR)
    }

    /// Returns the drop gate if no error is sent about an IPv6 packet (RFC 4443 section 2.4 e), otherwise `None`.
    pub(super) fn refuses_v6(&self, packet: &mut Packet, start: usize) -> Option<Gate> {
        let header = *packet.view::<Ipv6>(start)?;
        let source = u128::from_be_bytes(header.source);
        let own = self.interfaces.iter().any(|interface| interface.has_v6(source));
        let no_host = !may_be_host_v6(source) || own;
        let to_group = !self.types.groups_v6 && (header.destination[0] == 0xff || is_to_group(packet));
        if no_host || to_group {
            return Some(NO_ERROR);
        }
        let Some((protocol, at)) = packet.transport() else {
            // Errors are also sent about later fragments: RFC 4443 has no exception for them, unlike RFC 1122 section
            // 3.2.2. A later fragment cannot be part of an error, because an error has at most 1280 bytes and is never
            // fragmented (section 2.4 c). If the chain of headers cannot be read to its end, the packet may be an
            // error.
            let later = packet.data().get(start..).is_some_and(|bytes| ipv6::is_later_fragment(bytes, 0));
            return (!later).then_some(NO_ERROR);
        };
        if protocol != ICMPV6 {
            return None;
        }
        let Some(Icmp { kind, .. }) = message(packet, at) else { return Some(NO_ERROR) };
        (kind < v6::FIRST_INFORMATIONAL || kind == REDIRECT).then_some(NO_ERROR)
    }

    /// Turns an IPv4 packet, which must have passed [`refuses_v4`](Self::refuses_v4), into the error about it. Returns
    /// [`Gate::FIRST`], or the drop gate if this fails.
    pub(super) fn make_v4(&self, packet: &mut Packet, start: usize) -> Gate {
        const HEADERS: usize = size_of::<Ethernet>() + size_of::<Ipv4>() + HEADER;
        let Some(&mut Ipv4 { source: sender, .. }) = packet.known_ipv4() else { return BAD_HEADER };
        let interface = self.interface(packet);
        let peer = u32::from_be_bytes(sender);
        let others = || self.interfaces.iter().find_map(|other| other.source_v4(peer));
        let Some(source) = interface.source_v4(peer).or_else(others) else { return NO_SOURCE };
        let mac = interface.mac;
        let quoted = quote(packet, start, MOST_V4 - size_of::<Ipv4>() - HEADER);
        let ((kind, code), mtu) = (self.types.v4, self.types.mtu);
        // RFC 1191 section 4: the lower half of the second word is the next link's MTU, or 0 in other errors.
        let [upper, lower] = mtu.to_be_bytes();
        let mut head = [kind, code, 0, 0, 0, 0, upper, lower];
        let sum = checksum::add(checksum::sum(&head), checksum::sum(packet.data()));
        head[2..4].copy_from_slice(icmp::stored(sum).as_bytes());
        let mut header = Ipv4 {
            version_ihl: 0x45,
            traffic_class: PRECEDENCE,
            total_length: ((size_of::<Ipv4>() + HEADER + quoted) as u16).into(),
            identification: 0.into(),
            // The error has at most 576 bytes, which all usual links carry. It must not be fragmented, so it needs no
            // identification (RFC 6864 section 4).
            flags_fragment: 0x4000.into(),
            ttl: TTL,
            protocol: ipv4::ICMP,
            checksum: 0.into(),
            source: source.to_be_bytes(),
            destination: sender,
        };
        header.update_checksum(&[]);
        let Some(room) = packet.prepend(HEADERS) else { return NO_ROOM };
        let (ethernet, rest) = room.split_at_mut(size_of::<Ethernet>());
        let (ip, icmp) = rest.split_at_mut(size_of::<Ipv4>());
        ethernet.copy_from_slice(above(mac, EtherType::IPV4).as_bytes());
        ip.copy_from_slice(header.as_bytes());
        icmp.copy_from_slice(&head);
        packet.forget_layers();
        Gate::FIRST
    }

    /// Turns an IPv6 packet, which must have passed [`refuses_v6`](Self::refuses_v6), into the error about it. Returns
    /// [`Gate::FIRST`], or the drop gate if this fails.
    pub(super) fn make_v6(&self, packet: &mut Packet, start: usize) -> Gate {
        const HEADERS: usize = size_of::<Ethernet>() + size_of::<Ipv6>() + HEADER;
        let Some(&Ipv6 { source: sender, .. }) = packet.view(start) else { return BAD_HEADER };
        let interface = self.interface(packet);
        let peer = u128::from_be_bytes(sender);
        let others = || self.interfaces.iter().find_map(|other| other.source_v6(peer));
        let Some(source) = interface.source_v6(peer).or_else(others) else { return NO_SOURCE };
        let mac = interface.mac;
        let quoted = quote(packet, start, MOST_V6 - size_of::<Ipv6>() - HEADER);
        let ((kind, code), mtu) = (self.types.v6, self.types.mtu);
        // RFC 4443 section 3.2: the MTU in 32 bits, or 0 in other errors. No IPv6 link has an MTU below 1280 (RFC 8200
        // section 5).
        let [upper, lower] = if mtu == 0 { [0, 0] } else { mtu.max(MOST_V6 as u16).to_be_bytes() };
        let mut head = [kind, code, 0, 0, 0, 0, upper, lower];
        let header = Ipv6 {
            version_class_label: (6 << 28).into(),
            payload_length: ((HEADER + quoted) as u16).into(),
            next_header: ICMPV6,
            hop_limit: TTL,
            source: source.to_be_bytes(),
            destination: sender,
        };
        // The pseudo header has the length of the whole message. The message is summed in two parts.
        let pseudo = checksum::add(checksum::sum(&header.source), checksum::sum(&header.destination));
        let length = checksum::sum(&((HEADER + quoted) as u32).to_be_bytes());
        let rest = checksum::add(u16::from(ICMPV6).to_be(), length);
        let message = checksum::add(checksum::sum(&head), checksum::sum(packet.data()));
        let sum = checksum::add(checksum::add(pseudo, rest), message);
        head[2..4].copy_from_slice(icmp::stored(sum).as_bytes());
        let Some(room) = packet.prepend(HEADERS) else { return NO_ROOM };
        let (ethernet, rest) = room.split_at_mut(size_of::<Ethernet>());
        let (ip, icmp) = rest.split_at_mut(size_of::<Ipv6>());
        ethernet.copy_from_slice(above(mac, EtherType::IPV6).as_bytes());
        ip.copy_from_slice(header.as_bytes());
        icmp.copy_from_slice(&head);
        packet.forget_layers();
        Gate::FIRST
    }
}

/// Reduces the frame to the part that an error quotes: the IP packet that begins at `start`, without padding, up to
/// `most` bytes. Returns the length of this part.
fn quote(packet: &mut Packet, start: usize, most: usize) -> usize {
    let end = packet.network_end().min(start + most);
    // The error is complete, even if a capture had cut the packet.
    if end < packet.len() {
        packet.truncate(end);
    } else {
        packet.set_missing(0);
    }
    packet.strip(start);
    packet.len()
}

/// Returns the Ethernet header of a packet whose destination address is not resolved yet.
fn above(mac: MacAddress, ether_type: u16) -> Ethernet {
    Ethernet { destination: MacAddress::default(), source: mac, ether_type: ether_type.into() }
}

/// Returns true if the Ethernet destination of the frame is a group address (RFC 1122 section 3.2.2).
fn is_to_group(packet: &Packet) -> bool {
    Ethernet::ref_from_prefix(packet.data()).is_ok_and(|(ethernet, _)| ethernet.destination.0[0] & 1 == 1)
}

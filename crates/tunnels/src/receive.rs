//! Checks and removes the outer headers of tunnel packets.
//!
//! Each network function has its own fast path for nearly all packets. The functions of this module are the slow path:
//! they check all other packets, and find the reason of an error.

use std::net::IpAddr;

use forebay_packet::wire::ethernet::{EtherType, Ethernet};
use forebay_packet::wire::ipv4::{self, Ipv4};
use forebay_packet::wire::ipv6::{self, Ipv6};
use forebay_packet::wire::udp::{self, Udp};
use forebay_packet::{Network, Packet};
use zerocopy::FromBytes;

/// The reason why a frame is not a datagram of the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The frame is not IP, not UDP, or to another port.
    Other,
    /// The frame has a fragment of a datagram.
    Fragment,
    /// Lengths contradict each other or go beyond the frame.
    Length,
    /// The UDP checksum is present and wrong, or mandatory and missing.
    Checksum,
}

/// The offsets of a datagram's parts from the start of the frame, in bytes, and fields of its headers.
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    /// The offset of the IP header.
    pub ip: usize,
    /// The offset of the UDP payload.
    pub payload: usize,
    /// The offset of the first byte after the payload.
    pub end: usize,
    /// The outer traffic class.
    pub class: u8,
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The source port.
    pub source_port: u16,
}

/// Finds the datagram to the UDP port `port` in a frame. If `verified` is true, a checksum must be correct if it is
/// present (RFC 1122 section 4.1.3.4), and over IPv6 it must be present (RFC 8200 section 8.1).
///
/// # Errors
/// [`Fault`].
pub fn datagram(packet: &mut Packet, port: u16, verified: bool) -> Result<Datagram, Fault> {
    let (network, ip) = packet.network();
    let (bytes, six) = match network {
        Network::Ipv4 => (packet.data().get(ip..).ok_or(Fault::Length)?, false),
        Network::Ipv6 => (packet.data().get(ip..).ok_or(Fault::Length)?, true),
        Network::Other => return Err(Fault::Other),
    };
    let (segment_at, segment) = if six { segment_of_ipv6(bytes)? } else { segment_of_ipv4(bytes)? };
    let (datagram, _) = Udp::ref_from_prefix(segment).map_err(|_| Fault::Length)?;
    if datagram.destination.get() != port {
        return Err(Fault::Other);
    }
    let length = usize::from(datagram.length.get());
    if length < size_of::<Udp>() {
        return Err(Fault::Length);
    }
    let summed = segment.get(..length).ok_or(Fault::Length)?;
    let none = datagram.checksum.get() == 0;
    let (class, source, destination, correct) = if six {
        let (header, _) = Ipv6::ref_from_prefix(bytes).map_err(|_| Fault::Length)?;
        let class = (header.version_class_label.get() >> 20) as u8;
        let correct = || !none && udp::sum_over_ipv6(header, summed) == 0xffff;
        (class, IpAddr::from(header.source), IpAddr::from(header.destination), !verified || correct())
    } else {
        let (header, _) = Ipv4::ref_from_prefix(bytes).map_err(|_| Fault::Length)?;
        let correct = || none || udp::sum_over_ipv4(header, summed) == 0xffff;
        (header.traffic_class, IpAddr::from(header.source), IpAddr::from(header.destination), !verified || correct())
    };
    if !correct {
        return Err(Fault::Checksum);
    }
    let (payload, end) = (ip + segment_at + size_of::<Udp>(), ip + segment_at + length);
    Ok(Datagram { ip, payload, end, class, source, destination, source_port: datagram.source.get() })
}

/// Returns the offset and the bytes of the UDP segment in the IPv4 packet at the start of `bytes`. Returns
/// [`Fault::Length`] if the packet is not complete.
fn segment_of_ipv4(bytes: &[u8]) -> Result<(usize, &[u8]), Fault> {
    let (header, _) = Ipv4::ref_from_prefix(bytes).map_err(|_| Fault::Length)?;
    if header.protocol != ipv4::UDP {
        return Err(Fault::Other);
    }
    // Only the first fragment has the tunnel header, and its UDP length is that of the whole datagram.
    if header.is_fragment() {
        return Err(Fault::Fragment);
    }
    let total = usize::from(header.total_length.get());
    let header_len = header.header_len().ok_or(Fault::Length)?;
    Ok((header_len, bytes.get(header_len..total).ok_or(Fault::Length)?))
}

/// Returns the same as [`segment_of_ipv4`] for an IPv6 packet. Extension headers before the UDP header are skipped.
fn segment_of_ipv6(bytes: &[u8]) -> Result<(usize, &[u8]), Fault> {
    if ipv6::upper_protocol(bytes, 0) != Some(ipv4::UDP) {
        return Err(Fault::Other);
    }
    if ipv6::is_fragment(bytes, 0) {
        return Err(Fault::Fragment);
    }
    let (header, _) = Ipv6::ref_from_prefix(bytes).map_err(|_| Fault::Length)?;
    let end = size_of::<Ipv6>() + usize::from(header.payload_length.get());
    let (_, start) = ipv6::upper_layer(bytes, 0).ok_or(Fault::Length)?;
    Ok((start, bytes.get(start..end).ok_or(Fault::Length)?))
}

/// Removes everything around the inner IP packet, which is the range from `start` to `end` of the frame. The packet
/// gets an Ethernet header with the frame's addresses and the EtherType of the packet's IP version, as a point-to-point
/// interface would deliver it. Returns false, without a change, if these bytes are not an IP packet, if its fixed
/// header is cut short, or if the Ethernet header has no room before `start`.
pub fn unwrap_ip(packet: &mut Packet, start: usize, end: usize) -> bool {
    let Some(inner) = packet.data().get(start..end) else { return false };
    let ether_type = match inner.first().map(|byte| byte >> 4) {
        Some(4) if inner.len() >= size_of::<Ipv4>() => EtherType::IPV4,
        Some(6) if inner.len() >= size_of::<Ipv6>() => EtherType::IPV6,
        _ => return false,
    };
    let Some(before) = start.checked_sub(size_of::<Ethernet>()) else { return false };
    let data = packet.data_mut();
    data.copy_within(..12, before);
    data[before + 12..start].copy_from_slice(&ether_type.to_be_bytes());
    packet.truncate(end);
    packet.strip(before);
    packet.forget_layers();
    true
}

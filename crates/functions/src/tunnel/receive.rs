//! Checks the outer headers of what comes out of a tunnel, and takes them off.
//!
//! The short way for what nearly all packets are is the functions' own; here is the long one, which knows the reasons.

use forebay_packet::wire::ethernet::{EtherType, Ethernet};
use forebay_packet::wire::ipv4::{self, Ipv4};
use forebay_packet::wire::ipv6::Ipv6;
use forebay_packet::wire::udp::{self, Udp};
use forebay_packet::{Network, Packet};
use zerocopy::FromBytes;

/// Why a frame is no datagram of the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Not IPv4, not UDP, or to another port.
    Other,
    /// Part of a datagram.
    Fragment,
    /// Lengths contradict each other or go beyond the frame.
    Length,
    /// The UDP checksum is there and wrong.
    Checksum,
}

/// Where the parts of a datagram are, in bytes into the frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram {
    /// The IPv4 header.
    pub(crate) ip: usize,
    /// What UDP carries.
    pub(crate) payload: usize,
    /// One past it.
    pub(crate) end: usize,
    /// The outer traffic class.
    pub(crate) class: u8,
    /// The address that it was sent from.
    pub(crate) source: u32,
    /// The address that it was sent to.
    pub(crate) destination: u32,
    /// The port that it was sent from.
    pub(crate) source_port: u16,
}

/// Finds the datagram to `port` in a frame; a checksum that is there is `verified` where so asked (RFC 1122 section
/// 4.1.3.4).
pub(crate) fn datagram(packet: &mut Packet, port: u16, verified: bool) -> Result<Datagram, Fault> {
    let (Network::Ipv4, ip) = packet.network() else { return Err(Fault::Other) };
    let bytes = packet.data().get(ip..).ok_or(Fault::Length)?;
    let (header, _) = Ipv4::ref_from_prefix(bytes).map_err(|_| Fault::Length)?;
    if header.protocol != ipv4::UDP {
        return Err(Fault::Other);
    }
    // More fragments, or an offset (RFC 791 section 3.1): the tunnel's header is in the first alone, and what it says
    // of lengths in none.
    if header.flags_fragment.get() & 0x3fff != 0 {
        return Err(Fault::Fragment);
    }
    let total = usize::from(header.total_length.get());
    let header_len = header.header_len().ok_or(Fault::Length)?;
    let segment = bytes.get(header_len..total).ok_or(Fault::Length)?;
    let (datagram, _) = Udp::ref_from_prefix(segment).map_err(|_| Fault::Length)?;
    if datagram.destination.get() != port {
        return Err(Fault::Other);
    }
    let length = usize::from(datagram.length.get());
    if length < size_of::<Udp>() || length > segment.len() {
        return Err(Fault::Length);
    }
    if verified && datagram.checksum.get() != 0 && udp::sum_over_ipv4(header, &segment[..length]) != 0xffff {
        return Err(Fault::Checksum);
    }
    Ok(Datagram {
        ip,
        payload: ip + header_len + size_of::<Udp>(),
        end: ip + header_len + length,
        class: header.traffic_class,
        source: u32::from_be_bytes(header.source),
        destination: u32::from_be_bytes(header.destination),
        source_port: datagram.source.get(),
    })
}

/// Leaves of the frame what is from `start` to `end`, an IP packet, behind an Ethernet header with the addresses that
/// the frame has and the type of the packet's version: what a point-to-point interface would hand up. `false`, and
/// nothing changed, where it is no IP packet, or its fixed header is cut short.
pub(crate) fn unwrap_ip(packet: &mut Packet, start: usize, end: usize) -> bool {
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

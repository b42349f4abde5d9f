//! The IP packet that is put into a tunnel: its offset in the frame, and its length without padding.

use forebay_packet::wire::ipv4::Ipv4;
use forebay_packet::wire::ipv6::Ipv6;
use forebay_packet::{Network, Packet};

/// The reason why a frame cannot be put into a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The frame is not IP.
    NotIp,
    /// The frame is shorter than the length in its IP header, or this length is impossible, or the packet is a
    /// jumbogram, which is not supported.
    Truncated,
}

/// Returns the offset of a frame's outermost IP header and the length of the IP packet without padding, in bytes. The
/// error is the reason why the frame cannot be put into a tunnel.
#[inline]
pub fn ip_packet_span(packet: &mut Packet) -> Result<(usize, usize), Unfit> {
    let Some((header, room)) = packet.ipv4_and_room() else { return ipv6_packet_span(packet) };
    let length = usize::from(header.total_length.get());
    if length < size_of::<Ipv4>() || length > room {
        return Err(Unfit::Truncated);
    }
    Ok((packet.len() - room, length))
}

/// Does the work of [`ip_packet_span`] for a frame that is not IPv4.
#[inline(never)]
fn ipv6_packet_span(packet: &mut Packet) -> Result<(usize, usize), Unfit> {
    let (Network::Ipv6, start) = packet.network() else { return Err(Unfit::NotIp) };
    let length = match packet.ipv6() {
        // A jumbogram is longer than any frame here (RFC 2675).
        Some(header) if !header.is_jumbogram() => size_of::<Ipv6>() + usize::from(header.payload_length.get()),
        _ => return Err(Unfit::Truncated),
    };
    if length > packet.len() - start {
        return Err(Unfit::Truncated);
    }
    Ok((start, length))
}

//! The IP packet that is put into a tunnel: its offset in the frame, and its length without padding.

use forebay_packet::wire::ipv4::Ipv4;
use forebay_packet::wire::ipv6::Ipv6;
use forebay_packet::{Network, Packet};

/// Why a frame cannot be put into a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It is not IP.
    NotIp,
    /// It ends before the packet that its header announces.
    Truncated,
}

/// Returns the offset of a packet's IP header and the packet's length, or why it cannot be put into a tunnel.
// Inlined, it would take registers from the loops of its callers (15 instructions per packet in `esp_encrypt`).
#[inline(never)]
pub fn ip_packet_span(packet: &mut Packet) -> Result<(usize, usize), Unfit> {
    let (network, start) = packet.network();
    let length = match network {
        Network::Ipv4 => packet.ipv4().map_or(0, |header| usize::from(header.total_length.get())),
        Network::Ipv6 => match packet.ipv6() {
            // A jumbogram is longer than any frame here (RFC 2675).
            Some(header) if !header.is_jumbogram() => size_of::<Ipv6>() + usize::from(header.payload_length.get()),
            _ => return Err(Unfit::Truncated),
        },
        Network::Other => return Err(Unfit::NotIp),
    };
    let fixed = if network == Network::Ipv4 { size_of::<Ipv4>() } else { size_of::<Ipv6>() };
    if length < fixed || length > packet.len() - start {
        return Err(Unfit::Truncated);
    }
    Ok((start, length))
}

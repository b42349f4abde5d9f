//! Packets that are no usual ones, made ready for a tunnel: tags and padding go.

use forebay_graph::Gate;
use forebay_packet::wire::ethernet::Ethernet;
use forebay_packet::wire::ipv4::Ipv4;
use forebay_packet::wire::ipv6::Ipv6;
use forebay_packet::{Network, Packet};

use super::tunnels::Tunnel;
use super::which::Which;
use super::{NO_HEADROOM, NO_TUNNEL, NOT_IP, TOO_LONG, TRUNCATED};
use crate::tunnel::entropy::Shown;
use crate::tunnel::outer::Refusal;

pub(super) const ETHERNET: usize = size_of::<Ethernet>();

/// Leaves any packet that is to go into a tunnel bare behind an Ethernet header whose type means nothing: what of it shows
/// outside, and its tunnel. Or why it cannot be sent; `allows` says whether an inner packet of so many bytes can.
pub(super) fn lay_bare(
    packet: &mut Packet,
    which: &Which,
    allows: impl Fn(usize) -> bool,
) -> Result<(Shown, Tunnel), Gate> {
    let (start, length) = place_of(packet)?;
    let tunnel = which.of(packet).ok_or(NO_TUNNEL)?;
    if !allows(length) {
        return Err(TOO_LONG);
    }
    let shown = Shown::of(packet);
    packet.truncate(start + length);
    // The addresses move to where tags end.
    packet.data_mut().copy_within(..12, start - ETHERNET);
    packet.strip(start - ETHERNET);
    Ok((shown, tunnel))
}

/// Where a packet goes that has been put into a tunnel, or not.
pub(super) fn gate_of(put: Result<(), Refusal>) -> Gate {
    match put {
        Ok(()) => Gate::FIRST,
        Err(Refusal::TooLong) => TOO_LONG,
        Err(Refusal::NoRoom) => NO_HEADROOM,
    }
}

/// Where a packet's IP header starts and how long the packet is, or why it cannot be put into a tunnel.
fn place_of(packet: &mut Packet) -> Result<(usize, usize), Gate> {
    let (network, start) = packet.network();
    let length = match network {
        Network::Ipv4 => packet.ipv4().map_or(0, |header| usize::from(header.total_length.get())),
        Network::Ipv6 => match packet.ipv6().map_or(0, |header| usize::from(header.payload_length.get())) {
            // What `Packet::network_end` takes it for.
            0 => packet.len() - start,
            payload => size_of::<Ipv6>() + payload,
        },
        Network::Other => return Err(NOT_IP),
    };
    let fixed = if network == Network::Ipv4 { size_of::<Ipv4>() } else { size_of::<Ipv6>() };
    if length < fixed || length > packet.len() - start {
        return Err(TRUNCATED);
    }
    Ok((start, length))
}

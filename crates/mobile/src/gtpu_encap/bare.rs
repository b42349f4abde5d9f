//! Strips tags and padding from packets before they are put into a tunnel.

use forebay_graph::Gate;
use forebay_packet::Packet;
use forebay_packet::wire::ethernet::Ethernet;
use forebay_tunnels::entropy::Shown;
use forebay_tunnels::inside::{Unfit, ip_packet_span};
use forebay_tunnels::outer::Refusal;

use super::tunnels::Tunnel;
use super::which::TunnelSelector;
use super::{NO_HEADROOM, NO_TUNNEL, NOT_IP, TOO_LONG, TRUNCATED};

/// The number of bytes of an Ethernet header without tags.
pub(super) const ETHERNET: usize = size_of::<Ethernet>();

/// Reduces a packet to its IP packet behind an Ethernet header without tags. The EtherType in this header has no
/// meaning. Returns the tunnel, and the fields of the packet that determine the outer headers (traffic class and
/// session hash). If the packet cannot be sent, returns the gate of the packet and leaves the packet unchanged.
/// `allows` returns true if an inner packet of the given number of bytes fits.
pub(super) fn strip_to_ip(
    packet: &mut Packet,
    selector: &TunnelSelector,
    allows: impl Fn(usize) -> bool,
) -> Result<(Shown, Tunnel), Gate> {
    let (start, length) = ip_packet_span(packet).map_err(|unfit| match unfit {
        Unfit::NotIp => NOT_IP,
        Unfit::Truncated => TRUNCATED,
    })?;
    let tunnel = selector.of(packet).ok_or(NO_TUNNEL)?;
    if !allows(length) {
        return Err(TOO_LONG);
    }
    let shown = Shown::of(packet);
    packet.truncate(start + length);
    // The Ethernet addresses move over the tags, to directly before the last EtherType.
    packet.data_mut().copy_within(..12, start - ETHERNET);
    packet.strip(start - ETHERNET);
    Ok((shown, tunnel))
}

/// Returns the gate for a packet, given the result of its encapsulation.
pub(super) fn gate_of(result: Result<(), Refusal>) -> Gate {
    match result {
        Ok(()) => Gate::FIRST,
        Err(Refusal::TooLong) => TOO_LONG,
        Err(Refusal::NoRoom) => NO_HEADROOM,
    }
}

//! Packets that are no usual ones, made ready for a tunnel: tags and padding go.

use forebay_graph::Gate;
use forebay_packet::Packet;
use forebay_packet::wire::ethernet::Ethernet;

use super::tunnels::Tunnel;
use super::which::Which;
use super::{NO_HEADROOM, NO_TUNNEL, NOT_IP, TOO_LONG, TRUNCATED};
use crate::tunnel::entropy::Shown;
use crate::tunnel::inside::{Unfit, place_of};
use crate::tunnel::outer::Refusal;

pub(super) const ETHERNET: usize = size_of::<Ethernet>();

/// Leaves any packet that is to go into a tunnel bare behind an Ethernet header whose type means nothing: what of it shows
/// outside, and its tunnel. Or why it cannot be sent; `allows` says whether an inner packet of so many bytes can.
pub(super) fn lay_bare(
    packet: &mut Packet,
    which: &Which,
    allows: impl Fn(usize) -> bool,
) -> Result<(Shown, Tunnel), Gate> {
    let (start, length) = place_of(packet).map_err(|unfit| match unfit {
        Unfit::NotIp => NOT_IP,
        Unfit::Truncated => TRUNCATED,
    })?;
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

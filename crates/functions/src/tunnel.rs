//! What the tunnels over UDP share: the outer headers, how they are written in a few stores, how they are checked, and
//! what of the inner packet shows in them.

use forebay_packet::Packet;

pub(crate) mod bucket;
pub(crate) mod ecn;
pub(crate) mod entropy;
pub(crate) mod identification;
pub(crate) mod inside;
pub(crate) mod outer;
pub(crate) mod outer_ipv6;
pub(crate) mod receive;
pub mod settings;
#[cfg(test)]
pub(crate) mod testing;

/// Where in a batch the first packet is that is not as nearly all are, every one before having been seen to. Nothing is
/// counted on the way: what a loop over packets keeps in registers is scarce.
#[inline(always)]
pub(crate) fn first_unusual(batch: &mut [Packet], mut usual: impl FnMut(&mut Packet) -> bool) -> Option<usize> {
    let len = batch.len();
    let mut packets = batch.iter_mut();
    while let Some(packet) = packets.next() {
        if !usual(packet) {
            return Some(len - 1 - packets.len());
        }
    }
    None
}

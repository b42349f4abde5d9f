//! Shared code of tunnels over UDP: writing the outer headers in a few stores, checking them, and the fields of the
//! inner packet that they show.

use forebay_packet::Packet;

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

/// Calls `usual` for each packet until it returns false. Returns the index of that packet in the batch. The loop does
/// not count, because registers in packet loops are scarce.
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

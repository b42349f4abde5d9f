//! Tunnels over UDP: VXLAN, and the parts that all tunnels share.
//!
//! The network functions are `vxlan_encap` and `vxlan_decap`. The shared modules write the outer headers in a few
//! stores (`outer`, `outer_ipv6`, `identification`, `entropy`), check received headers (`receive`), and read fields of
//! the inner packet (`inside`, `ecn`). `settings` has the parameters. The crates `mobile` and `encryption` use these
//! modules, too.

#![forbid(unsafe_code)]

use forebay_packet::Packet;

automod::dir!(pub "src");

/// Calls `usual` for each packet until it returns false. Returns the index of the packet for which `usual` returned
/// false, or `None` if there was no such packet. The loop has no counter, because registers in packet loops are scarce.
/// The index is computed at the end, from the number of packets that were not visited.
#[inline(always)]
pub fn first_unusual(batch: &mut [Packet], mut usual: impl FnMut(&mut Packet) -> bool) -> Option<usize> {
    let len = batch.len();
    let mut packets = batch.iter_mut();
    while let Some(packet) = packets.next() {
        if !usual(packet) {
            return Some(len - 1 - packets.len());
        }
    }
    None
}

//! Tunnels over IPv6: the same T-PDUs behind other headers.

use forebay_graph::{Context, Gate};
use forebay_packet::Packet;
use forebay_packet::wire::gtpu::Options;

use super::NO_TUNNEL;
use super::bare::{gate_of, lay_bare};
use super::tunnels::Tunnel;
use super::which::Which;
use crate::tunnel::entropy::{Inner, Shown};
use crate::tunnel::outer::Refusal;
use crate::tunnel::outer_ipv6::{OVERHEAD, OuterIpv6};

/// Puts headers of IPv6 before packets.
pub(super) struct Headers {
    pub(super) outer: OuterIpv6,
    /// Flags and message type, as the upper bits of the header.
    pub(super) header: u64,
    pub(super) options: Options,
    /// The optional part of the header, of which as many bytes count as `options` have.
    pub(super) optional: [u8; 8],
}

impl Headers {
    /// Puts the packet behind an Ethernet header without tags into a tunnel.
    #[inline]
    fn put(&mut self, packet: &mut Packet, shown: Shown, tunnel: Tunnel, peer: &[u8; 16]) -> Result<(), Refusal> {
        let optional = self.optional.get(..self.options.len()).unwrap_or_default();
        self.outer.write(packet, shown, peer, self.header | u64::from(tunnel.teid), optional)?;
        if let Some(sequence) = &mut self.options.sequence {
            *sequence = sequence.wrapping_add(1);
            self.optional = self.options.emit().1;
        }
        Ok(())
    }

    /// Does what nearly all packets need, IPv4 with ports straight above Ethernet; `false`, and nothing changed, for the
    /// others and for those that cannot be sent on.
    #[inline]
    fn usual(&mut self, packet: &mut Packet, which: &Which) -> bool {
        let Some(inner) = Inner::of(packet, true) else { return false };
        let Some(tunnel) = which.of_usual(packet, inner) else { return false };
        let Some(peer) = which.peer(tunnel) else { return false };
        let shown = inner.shown();
        self.put(packet, shown, tunnel, peer).is_ok()
    }

    /// Does the same for any packet, or says why not.
    #[inline(never)]
    fn unusual(&mut self, packet: &mut Packet, which: &Which) -> Gate {
        let more = OVERHEAD + self.options.len();
        let (shown, tunnel) = match lay_bare(packet, which, |length| self.outer.allows(length + more)) {
            Ok(found) => found,
            Err(gate) => return gate,
        };
        let Some(peer) = which.peer(tunnel) else { return NO_TUNNEL };
        gate_of(self.put(packet, shown, tunnel, peer))
    }

    // Out of line, so that what it needs does not burden the loops for IPv4.
    #[inline(never)]
    pub(super) fn run(&mut self, which: &Which, batch: &mut [Packet], context: &mut Context<'_>) {
        for (index, packet) in batch.iter_mut().enumerate() {
            let gate = self.run_one(which, packet);
            if gate != Gate::FIRST {
                context.put(index, gate);
            }
        }
    }

    /// Puts headers before one packet, or says why not.
    #[inline(always)]
    pub(super) fn run_one(&mut self, which: &Which, packet: &mut Packet) -> Gate {
        if self.usual(packet, which) { Gate::FIRST } else { self.unusual(packet, which) }
    }
}

#[cfg(test)]
mod tests;

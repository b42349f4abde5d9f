//! GTP-U tunnels over IPv6.

use forebay_graph::{Context, Gate};
use forebay_packet::Packet;
use forebay_packet::wire::gtpu::Options;
use forebay_tunnels::entropy::{Inner, Shown};
use forebay_tunnels::outer::Refusal;
use forebay_tunnels::outer_ipv6::{OVERHEAD, OuterIpv6};

use super::NO_TUNNEL;
use super::bare::{gate_of, strip_to_ip};
use super::tunnels::Tunnel;
use super::which::TunnelSelector;

/// Puts outer IPv6, UDP and GTP-U headers before packets.
pub(super) struct Headers {
    pub(super) outer: OuterIpv6,
    /// The first eight bytes of the GTP-U header as a number: flags and message type. Length and tunnel are 0 here:
    /// [`OuterIpv6::write`] adds the length, and [`put`](Headers::put) the tunnel.
    pub(super) header: u64,
    /// The optional fields of the next packet: a sequence number, which increases with each packet, and a QoS flow.
    pub(super) options: Options,
    /// The optional part of the GTP-U header. The first `options.len()` bytes are sent.
    pub(super) optional: [u8; 8],
}

impl Headers {
    /// Puts the packet behind an Ethernet header without tags into a tunnel to `peer`. If it returns an error, the
    /// packet is unchanged.
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

    /// Encapsulates a usual packet: IPv4 with ports directly above Ethernet. Returns false, and changes nothing, for
    /// all other packets and for packets that cannot be sent.
    #[inline]
    fn usual(&mut self, packet: &mut Packet, selector: &TunnelSelector) -> bool {
        let Some(inner) = Inner::of(packet, true) else { return false };
        let Some(tunnel) = selector.of_usual(packet, inner) else { return false };
        let Some(peer) = selector.peer(tunnel) else { return false };
        let shown = inner.shown();
        self.put(packet, shown, tunnel, peer).is_ok()
    }

    /// Encapsulates any packet and returns [`Gate::FIRST`], or returns the gate of the error.
    #[inline(never)]
    fn unusual(&mut self, packet: &mut Packet, selector: &TunnelSelector) -> Gate {
        let more = OVERHEAD + self.options.len();
        let (shown, tunnel) = match strip_to_ip(packet, selector, |length| self.outer.allows(length + more)) {
            Ok(found) => found,
            Err(gate) => return gate,
        };
        let Some(peer) = selector.peer(tunnel) else { return NO_TUNNEL };
        gate_of(self.put(packet, shown, tunnel, peer))
    }

    // Out of line, so that it does not slow the loops for IPv4 down.
    #[inline(never)]
    pub(super) fn run(&mut self, selector: &TunnelSelector, batch: &mut [Packet], context: &mut Context<'_>) {
        for (index, packet) in batch.iter_mut().enumerate() {
            let gate = self.run_one(selector, packet);
            if gate != Gate::FIRST {
                context.put(index, gate);
            }
        }
    }

    /// Puts headers before one packet and returns [`Gate::FIRST`], or returns the gate of the error.
    #[inline(always)]
    pub(super) fn run_one(&mut self, selector: &TunnelSelector, packet: &mut Packet) -> Gate {
        if self.usual(packet, selector) { Gate::FIRST } else { self.unusual(packet, selector) }
    }
}

#[cfg(test)]
mod tests;

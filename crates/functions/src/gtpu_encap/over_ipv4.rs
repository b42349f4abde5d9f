//! Tunnels over IPv4.

use forebay_graph::{Context, Gate};
use forebay_packet::wire::gtpu::Options;
use forebay_packet::{Packet, Word};

use super::TRUNCATED;
use super::bare::{ETHERNET, gate_of, lay_bare};
use super::tunnels::Tunnel;
use super::which::{Which, said};
use crate::tunnel::entropy::{Inner, Shown};
use crate::tunnel::first_unusual;
use crate::tunnel::outer::{OVERHEAD, Outer, Refusal, Start};

/// Puts headers of IPv4 before packets.
pub(super) struct Headers {
    pub(super) outer: Outer,
    /// Flags and message type, as the upper bits of the header.
    pub(super) header: u64,
    pub(super) options: Options,
    /// The optional part of the header, and how many bytes of it count.
    pub(super) optional: [u8; 8],
    pub(super) length: usize,
    /// The metadata word with a packet's QoS flow, where each has its own.
    pub(super) qfi: Option<Word>,
}

impl Headers {
    /// Does what nearly all packets need, IPv4 with ports straight above Ethernet whose tunnel is `found`; `false`, and
    /// nothing changed, for the others and for those that cannot be sent on.
    #[inline(always)]
    fn usual<const OPTIONS: usize, const PLAIN: bool>(
        &mut self,
        header: u64,
        packet: &mut Packet,
        found: impl Fn(&Packet, &Inner) -> Option<Tunnel>,
    ) -> bool {
        // Padding is cut off elsewhere.
        let Some(inner) = Inner::of(packet, true) else { return false };
        let Some(tunnel) = found(packet, inner) else { return false };
        let shown = inner.shown();
        let Some(start) = Start::of(packet) else { return false };
        self.put::<OPTIONS, PLAIN>(header, packet, start, shown, tunnel).is_ok()
    }

    /// Puts the packet behind the Ethernet header into a tunnel. `header` is the field of that name, by value: in a loop it
    /// is read once.
    #[inline(always)]
    fn put<const OPTIONS: usize, const PLAIN: bool>(
        &mut self,
        header: u64,
        packet: &mut Packet,
        start: Start,
        shown: Shown,
        tunnel: Tunnel,
    ) -> Result<(), Refusal> {
        let header = header | u64::from(tunnel.teid);
        let tunnel_header = |length: u64| header + (length << 32);
        let Self { outer, optional, qfi, .. } = self;
        let mut optional = *optional;
        if OPTIONS == Options::CONTAINER
            && let Some(word) = qfi
        {
            Options::set_qfi(&mut optional, packet.word(*word) as u8);
        }
        outer.write::<OPTIONS, PLAIN>(packet, ETHERNET, start, shown, tunnel.peer, tunnel_header, optional)?;
        if OPTIONS > 0
            && let Some(sequence) = &mut self.options.sequence
        {
            *sequence = sequence.wrapping_add(1);
            self.optional = self.options.emit().1;
        }
        Ok(())
    }

    /// Does the same for any packet, or says why not.
    #[cold]
    #[inline(never)]
    fn unusual<const OPTIONS: usize>(&mut self, packet: &mut Packet, which: &Which) -> Gate {
        let (shown, tunnel) = match lay_bare(packet, which, |length| self.outer.allows(length + OVERHEAD + OPTIONS)) {
            Ok(found) => found,
            Err(gate) => return gate,
        };
        let Some(start) = Start::of(packet) else { return TRUNCATED };
        gate_of(self.put::<OPTIONS, false>(self.header, packet, start.with_ipv4(), shown, tunnel))
    }

    /// Puts headers before one packet, or says why not.
    #[inline]
    pub(super) fn run_one(&mut self, which: &Which, packet: &mut Packet) -> Gate {
        match self.length {
            0 => self.run_one_with::<0>(which, packet),
            4 => self.run_one_with::<4>(which, packet),
            _ => self.run_one_with::<8>(which, packet),
        }
    }

    #[inline(always)]
    fn run_one_with<const OPTIONS: usize>(&mut self, which: &Which, packet: &mut Packet) -> Gate {
        self.outer.begin(1);
        let any = |packet: &Packet, inner: &Inner| which.of_usual(packet, inner);
        if self.usual::<OPTIONS, false>(self.header, packet, any) {
            return Gate::FIRST;
        }
        self.unusual::<OPTIONS>(packet, which)
    }

    /// Puts headers before a batch's packets.
    #[inline(always)]
    pub(super) fn run(&mut self, which: &Which, batch: &mut [Packet], context: &mut Context<'_>) {
        match self.length {
            0 => self.run_with::<0>(which, batch, context),
            4 => self.run_with::<4>(which, batch, context),
            _ => self.run_with::<8>(which, batch, context),
        }
    }

    #[inline(always)]
    fn run_with<const OPTIONS: usize>(&mut self, which: &Which, batch: &mut [Packet], context: &mut Context<'_>) {
        let any = |packet: &Packet, inner: &Inner| which.of_usual(packet, inner);
        let header = self.header;
        // A loop of its own for one tunnel, of which all is known before, and for tunnels of users.
        let first = match (self.outer.is_plain(), which) {
            // By value: what follows from it is worked out once.
            (true, &Which::One(tunnel, _)) => {
                first_unusual(batch, |packet| self.usual::<OPTIONS, true>(header, packet, move |_, _| Some(tunnel)))
            }
            (true, Which::ByDestination(tunnels)) => {
                let by_destination = |_: &Packet, inner: &Inner| tunnels.ipv4.get(inner.destination().into());
                first_unusual(batch, |packet| self.usual::<OPTIONS, true>(header, packet, by_destination))
            }
            (true, &Which::BySession { teid, peer }) => first_unusual(batch, |packet| {
                self.usual::<OPTIONS, true>(header, packet, |packet: &Packet, _| said(packet, teid, peer))
            }),
            _ => {
                self.outer.begin(batch.len());
                first_unusual(batch, |packet| self.usual::<OPTIONS, false>(header, packet, any))
            }
        };
        if let Some(first) = first {
            self.run_from::<OPTIONS>(first, which, any, batch, context);
        }
    }

    /// The rest of a batch, from the first packet that is not usual on.
    #[inline(never)]
    fn run_from<const OPTIONS: usize>(
        &mut self,
        first: usize,
        which: &Which,
        any: impl Fn(&Packet, &Inner) -> Option<Tunnel>,
        batch: &mut [Packet],
        context: &mut Context<'_>,
    ) {
        let header = self.header;
        for (index, packet) in batch.iter_mut().enumerate().skip(first) {
            if index == first || !self.usual::<OPTIONS, false>(header, packet, &any) {
                let gate = self.unusual::<OPTIONS>(packet, which);
                if gate != Gate::FIRST {
                    context.put(index, gate);
                }
            }
        }
    }
}

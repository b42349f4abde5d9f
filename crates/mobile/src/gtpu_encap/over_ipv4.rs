//! GTP-U tunnels over IPv4.

use forebay_graph::{Context, Gate};
use forebay_packet::wire::gtpu::Options;
use forebay_packet::{Packet, Word};
use forebay_tunnels::entropy::{Inner, Shown};
use forebay_tunnels::first_unusual;
use forebay_tunnels::outer::{OVERHEAD, Outer, Refusal, Start};

use super::TRUNCATED;
use super::bare::{ETHERNET, gate_of, strip_to_ip};
use super::tunnels::Tunnel;
use super::which::{TunnelSelector, tunnel_in_words};

/// Puts outer IPv4, UDP and GTP-U headers before packets.
pub(super) struct Headers {
    pub(super) outer: Outer,
    /// The first eight bytes of the GTP-U header as a number: flags and message type. Length and tunnel are 0 here:
    /// [`put`](Headers::put) adds them for each packet.
    pub(super) header: u64,
    /// The optional fields of the next packet: a sequence number, which increases with each packet, and a QoS flow.
    pub(super) options: Options,
    /// The optional part of the GTP-U header.
    pub(super) optional: [u8; 8],
    /// The number of bytes of the optional part that are sent: 0, 4 or 8.
    pub(super) length: usize,
    /// The metadata word with a packet's QoS flow; `None` if all packets have the same flow, or no flow.
    pub(super) qfi: Option<Word>,
}

impl Headers {
    /// Encapsulates a usual packet: IPv4 with ports directly above Ethernet. `found` returns its tunnel. Returns false,
    /// and changes nothing, for all other packets and for packets that cannot be sent: then [`unusual`](Self::unusual)
    /// must process the packet. For the other parameters see [`put`](Self::put).
    #[inline(always)]
    fn usual<const OPTIONS: usize, const PLAIN: bool>(
        &mut self,
        header: u64,
        packet: &mut Packet,
        found: impl Fn(&Packet, &Inner) -> Option<Tunnel>,
    ) -> bool {
        // Padding is removed on the slow path.
        let Some(inner) = Inner::of(packet, true) else { return false };
        let Some(tunnel) = found(packet, inner) else { return false };
        let shown = inner.shown();
        let Some(start) = Start::of(packet) else { return false };
        self.put::<OPTIONS, PLAIN>(header, packet, start, shown, tunnel).is_ok()
    }

    /// Puts the IP packet behind the Ethernet header into a tunnel. If it returns an error, the packet is unchanged.
    ///
    /// - `OPTIONS` is `self.length`. `header` is `self.header`, passed by value so that a loop reads it once.
    /// - `PLAIN` leaves out the identification and the UDP checksum. It is allowed if `outer.is_plain()`. Without it,
    ///   `outer.begin` must have been called for the batch; that call does nothing if the headers are plain.
    /// - `start` becomes the outer Ethernet header: its EtherType must be that of IPv4.
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
        // The length counts all bytes after the first eight of the GTP-U header (TS 29.281 section 5.1).
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

    /// Encapsulates any packet and returns [`Gate::FIRST`], or returns the gate of the error. `outer.begin` must have
    /// been called for the batch, or the headers must be plain.
    #[cold]
    #[inline(never)]
    fn unusual<const OPTIONS: usize>(&mut self, packet: &mut Packet, selector: &TunnelSelector) -> Gate {
        let (shown, tunnel) =
            match strip_to_ip(packet, selector, |length| self.outer.allows(length + OVERHEAD + OPTIONS)) {
                Ok(found) => found,
                Err(gate) => return gate,
            };
        let Some(start) = Start::of(packet) else { return TRUNCATED };
        gate_of(self.put::<OPTIONS, false>(self.header, packet, start.with_ipv4(), shown, tunnel))
    }

    /// Puts headers before one packet and returns [`Gate::FIRST`], or returns the gate of the error.
    #[inline]
    pub(super) fn run_one(&mut self, selector: &TunnelSelector, packet: &mut Packet) -> Gate {
        match self.length {
            0 => self.run_one_with::<0>(selector, packet),
            4 => self.run_one_with::<4>(selector, packet),
            _ => self.run_one_with::<8>(selector, packet),
        }
    }

    #[inline(always)]
    fn run_one_with<const OPTIONS: usize>(&mut self, selector: &TunnelSelector, packet: &mut Packet) -> Gate {
        self.outer.begin(1);
        let any = |packet: &Packet, inner: &Inner| selector.of_usual(packet, inner);
        if self.usual::<OPTIONS, false>(self.header, packet, any) {
            return Gate::FIRST;
        }
        self.unusual::<OPTIONS>(packet, selector)
    }

    /// Puts headers before a batch's packets.
    #[inline(always)]
    pub(super) fn run(&mut self, selector: &TunnelSelector, batch: &mut [Packet], context: &mut Context<'_>) {
        match self.length {
            0 => self.run_with::<0>(selector, batch, context),
            4 => self.run_with::<4>(selector, batch, context),
            _ => self.run_with::<8>(selector, batch, context),
        }
    }

    #[inline(always)]
    fn run_with<const OPTIONS: usize>(
        &mut self,
        selector: &TunnelSelector,
        batch: &mut [Packet],
        context: &mut Context<'_>,
    ) {
        let any = |packet: &Packet, inner: &Inner| selector.of_usual(packet, inner);
        let header = self.header;
        // There are separate loops for a single tunnel, which is known in advance, for tunnels by user, and for tunnels
        // by session.
        let first = match (self.outer.is_plain(), selector) {
            // The tunnel is copied, so that everything derived from it is computed once.
            (true, &TunnelSelector::One(tunnel, _)) => {
                first_unusual(batch, |packet| self.usual::<OPTIONS, true>(header, packet, move |_, _| Some(tunnel)))
            }
            (true, TunnelSelector::ByDestination(tunnels)) => {
                let by_destination = |_: &Packet, inner: &Inner| tunnels.ipv4.get(inner.destination().into());
                first_unusual(batch, |packet| self.usual::<OPTIONS, true>(header, packet, by_destination))
            }
            (true, &TunnelSelector::BySession { teid, peer }) => first_unusual(batch, |packet| {
                self.usual::<OPTIONS, true>(header, packet, |packet: &Packet, _| tunnel_in_words(packet, teid, peer))
            }),
            _ => {
                self.outer.begin(batch.len());
                first_unusual(batch, |packet| self.usual::<OPTIONS, false>(header, packet, any))
            }
        };
        if let Some(first) = first {
            self.run_from::<OPTIONS>(first, selector, any, batch, context);
        }
    }

    /// Processes a batch from the packet at `first` on, which is the first packet that is not usual.
    #[inline(never)]
    fn run_from<const OPTIONS: usize>(
        &mut self,
        first: usize,
        selector: &TunnelSelector,
        any: impl Fn(&Packet, &Inner) -> Option<Tunnel>,
        batch: &mut [Packet],
        context: &mut Context<'_>,
    ) {
        let header = self.header;
        for (index, packet) in batch.iter_mut().enumerate().skip(first) {
            if index == first || !self.usual::<OPTIONS, false>(header, packet, &any) {
                let gate = self.unusual::<OPTIONS>(packet, selector);
                if gate != Gate::FIRST {
                    context.put(index, gate);
                }
            }
        }
    }
}

//! Puts users' packets into GTP-U tunnels: the way down to a mobile network's base stations.

mod tunnels;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::wire::gtpu::{self, Gtpu, Options};
use forebay_packet::wire::ipv4::Ipv4;
use forebay_packet::wire::ipv6::Ipv6;
use forebay_packet::{Network, Packet, Word};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::tunnel::entropy::{Inner, Shown};
use crate::tunnel::first_unusual;
use crate::tunnel::outer::{OVERHEAD, Outer, OuterSettings, Refusal, Start};
use crate::tunnel::settings::{Dscp, Endpoint, Identifier, SourcePort};
pub use tunnels::Source;
use tunnels::{Tunnel, Tunnels};

/// Parameters of `gtpu_encap`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The outer source address.
    source: Endpoint,
    /// The outer destination address: all packets', or that of `tunnels` without one of their own.
    peer: Option<Endpoint>,
    /// The tunnel endpoint identifier of all packets, from 1; written in decimal or hexadecimal.
    teid: Option<Identifier>,
    /// Instead of `teid`: a file's name or a list of tunnels, `USER TEID PEER`, where USER is an IPv4 address or an IPv6
    /// /64; or, with `by` a metadata word, its value.
    tunnels: Option<Source>,
    /// What a packet's tunnel is looked up by: `destination`, the inner destination address (the default), or one of the
    /// metadata words `tunnel` and `next_hop`.
    #[serde(default)]
    by: By,
    /// The outer UDP source port: `session` (the default), one of 49152 to 65535 by a hash of the inner addresses and
    /// ports, or a number, such as 2152.
    #[serde(default)]
    source_port: SourcePort,
    /// Whether the outer UDP checksum is computed; without it, it is 0: none.
    #[serde(default)]
    udp_checksum: bool,
    /// The outer differentiated services code point: `copy`, the inner one (the default), or 0 to 63.
    #[serde(default)]
    dscp: Dscp,
    /// Whether the outer packets may not be fragmented: `true` (the default) or `false`.
    #[serde(default = "yes")]
    df: bool,
    /// The outer time to live, 1 to 255.
    #[serde(default = "ttl")]
    ttl: u8,
    /// The longest outer packet in bytes, from 68; longer ones are dropped. Without it, what IPv4 can say: 65535.
    mtu: Option<u16>,
    /// Whether packets are numbered; only with one `teid`.
    #[serde(default)]
    sequence: bool,
    /// The QoS flow, 0 to 63, of a PDU Session Container, which 5G asks for on the way to a base station (TS 38.415).
    qfi: Option<u8>,
}

fn yes() -> bool {
    true
}

fn ttl() -> u8 {
    64
}

/// What a packet's tunnel is looked up by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum By {
    /// The inner destination address.
    #[default]
    Destination,
    /// The metadata word `tunnel`.
    Tunnel,
    /// The metadata word `next_hop`, which `ip_lookup` writes.
    NextHop,
}

const NOT_IP: Gate = Gate::drop(0);
const TRUNCATED: Gate = Gate::drop(1);
const NO_TUNNEL: Gate = Gate::drop(2);
const TOO_LONG: Gate = Gate::drop(3);
const NO_HEADROOM: Gate = Gate::drop(4);
const DROPS: &[Reason] = &[
    Reason { name: "not_ip", help: "The frame carries neither IPv4 nor IPv6, or is cut short inside the header." },
    Reason { name: "truncated", help: "The frame ends before the packet that its IP header announces." },
    Reason { name: "no_tunnel", help: "No tunnel is listed for the packet's user or number." },
    Reason { name: "too_long", help: "The outer packet would be longer than `mtu`." },
    Reason { name: "no_headroom", help: "There is no room before the frame for the outer headers." },
];

/// The function.
pub struct GtpuEncap {
    which: Which,
    headers: Headers,
}

/// Puts headers before packets.
struct Headers {
    outer: Outer,
    /// Flags and message type, as the upper bits of the header.
    header: u64,
    options: Options,
    /// The optional part of the header, of which as many bytes count as `options` have.
    optional: [u8; 8],
}

/// How a packet's tunnel is found.
enum Which {
    One(Tunnel),
    ByDestination(Tunnels),
    ByWord(Tunnels, Word),
}

impl Declare for GtpuEncap {
    type Params = Params;
    const NAME: &'static str = "gtpu_encap";
    const SUMMARY: &'static str = "puts IP packets into GTP-U tunnels over IPv4";
    const HELP: &'static str = "\
        The IP packet becomes a T-PDU (3GPP TS 29.281): its Ethernet header, VLAN tags and padding are taken off; \
        Ethernet, IPv4, UDP (to port 2152) and GTP-U headers are put before it. The outer Ethernet addresses are the \
        inner ones until `mac_rewrite` writes others. Either all packets go into one tunnel (`peer` and `teid`), or \
        each into that of its user (`tunnels`). In the second case an IPv6 user has a /64. For routes behind users let \
        `ip_lookup` with `to: word` find a number and take `by: next_hop`. The identification is 0 where packets may \
        not be fragmented (RFC 6864) and counts where they may. Congestion notification is copied (RFC 6040). Packets \
        that become too long are dropped; no ICMP message is made. The outer headers are 36 bytes, 4 more with \
        `sequence`, 8 more with `qfi`.";
    const EXAMPLE: &'static str = r#"{ source: 192.0.2.1, tunnels: ["10.60.0.1 0x1001 192.0.2.10", "2001:db8:60:1::/64 0x1002 192.0.2.11"], qfi: 9, mtu: 1500 }"#;
    const DROPS: &'static [Reason] = DROPS;
    const READS: &'static [&'static str] = &["tunnel", "next_hop"];
    // Numbers of packets are counted for each module; those of a tunnel belong to whoever has the tunnel.
    const STATE: StateKind = StateKind::SharedReadOnly;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let outer = Outer::new(&OuterSettings {
            source: params.source,
            source_port: params.source_port,
            destination_port: gtpu::PORT,
            udp_checksum: params.udp_checksum,
            dscp: params.dscp,
            df: params.df,
            ttl: params.ttl,
            mtu: params.mtu,
        })?;
        if params.sequence && setup.share().1 > 1 {
            let message = "on several workers numbers would come twice: name the module in one worker's `modules`";
            return Err(SetupError::at("sequence", message));
        }
        if params.sequence && params.teid.is_none() {
            let message = "packets are numbered tunnel by tunnel: allowed only with one `teid`";
            return Err(SetupError::at("sequence", message));
        }
        if let Some(qfi) = params.qfi.filter(|qfi| *qfi > 63) {
            return Err(SetupError::at("qfi", format!("{qfi} is no QoS flow: allowed are 0 to 63")));
        }
        let which = match (params.teid, &params.tunnels, params.peer) {
            (Some(Identifier(0)), ..) => {
                return Err(SetupError::at("teid", "0 is of no tunnel: allowed are 1 to 4294967295"));
            }
            (Some(_), None, _) if params.by != By::Destination => {
                return Err(SetupError::at("by", "there is nothing to look up with one `teid`: give `tunnels`"));
            }
            (Some(Identifier(teid)), None, Some(Endpoint(peer))) => Which::One(Tunnel { teid, peer }),
            (Some(_), None, None) => return Err(SetupError::at("peer", "a `teid` needs a `peer`")),
            (None, Some(source), peer) => {
                let tunnels = Tunnels::load(source, params.by != By::Destination, peer, setup)?;
                match params.by {
                    By::Destination => Which::ByDestination(tunnels),
                    By::Tunnel => Which::ByWord(tunnels, setup.word("tunnel")?),
                    By::NextHop => Which::ByWord(tunnels, setup.word("next_hop")?),
                }
            }
            _ => return Err(SetupError::new("give either 'teid' and 'peer', or 'tunnels'")),
        };
        let options = Options { sequence: params.sequence.then_some(0), qfi: params.qfi };
        let (flags, optional) = options.emit();
        let header = u64::from(Gtpu::PLAIN_G_PDU) << 48 | u64::from(flags) << 56;
        Ok(Self { which, headers: Headers { outer, header, options, optional } })
    }
}

impl Which {
    /// The tunnel of any packet.
    fn of(&self, packet: &mut Packet) -> Option<Tunnel> {
        match self {
            Self::One(tunnel) => Some(*tunnel),
            Self::ByDestination(tunnels) => match packet.ipv4() {
                Some(header) => tunnels.ipv4.get(u32::from_be_bytes(header.destination).into()),
                None => {
                    let destination = u128::from_be_bytes(packet.ipv6()?.destination);
                    tunnels.ipv6.get((destination >> 64) as u64)
                }
            },
            Self::ByWord(tunnels, word) => tunnels.ipv4.get(packet.word(*word).into()),
        }
    }

    /// Asks for the places of a large table that the batch's packets will be looked up in.
    fn prefetch(&self, batch: &mut [Packet]) {
        match self {
            Self::ByDestination(tunnels) if tunnels.ipv4.is_large() => {
                for packet in batch {
                    if let Some(header) = packet.ipv4() {
                        tunnels.ipv4.prefetch(u32::from_be_bytes(header.destination).into());
                    }
                }
            }
            Self::ByWord(tunnels, word) if tunnels.ipv4.is_large() => {
                batch.iter().for_each(|packet| tunnels.ipv4.prefetch(packet.word(*word).into()));
            }
            _ => {}
        }
    }
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
        let Self { outer, optional, .. } = self;
        outer.write::<OPTIONS, PLAIN>(packet, ETHERNET, start, shown, tunnel.peer, tunnel_header, *optional)?;
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
        let (network, start) = packet.network();
        let length = match network {
            Network::Ipv4 => packet.ipv4().map_or(0, |header| usize::from(header.total_length.get())),
            Network::Ipv6 => match packet.ipv6().map_or(0, |header| usize::from(header.payload_length.get())) {
                // What `Packet::network_end` takes it for.
                0 => packet.len() - start,
                payload => size_of::<Ipv6>() + payload,
            },
            Network::Other => return NOT_IP,
        };
        let fixed = if network == Network::Ipv4 { size_of::<Ipv4>() } else { size_of::<Ipv6>() };
        if length < fixed || length > packet.len() - start {
            return TRUNCATED;
        }
        let Some(tunnel) = which.of(packet) else { return NO_TUNNEL };
        if !self.outer.allows(length + OVERHEAD + OPTIONS) {
            return TOO_LONG;
        }
        let shown = Shown::of(packet);
        packet.truncate(start + length);
        // Tags go; the addresses move to where they end.
        packet.data_mut().copy_within(..12, start - ETHERNET);
        packet.strip(start - ETHERNET);
        let Some(start) = Start::of(packet) else { return TRUNCATED };
        match self.put::<OPTIONS, false>(self.header, packet, start.with_ipv4(), shown, tunnel) {
            Ok(()) => Gate::FIRST,
            Err(Refusal::TooLong) => TOO_LONG,
            Err(Refusal::NoRoom) => NO_HEADROOM,
        }
    }

    #[inline(always)]
    fn run<const OPTIONS: usize>(&mut self, which: &Which, batch: &mut [Packet], context: &mut Context<'_>) {
        let any = |packet: &Packet, inner: &Inner| match which {
            Which::One(tunnel) => Some(*tunnel),
            Which::ByDestination(tunnels) => tunnels.ipv4.get(inner.destination().into()),
            Which::ByWord(tunnels, word) => tunnels.ipv4.get(packet.word(*word).into()),
        };
        let header = self.header;
        // A loop of its own for one tunnel, of which all is known before, and for tunnels of users.
        let first = match (self.outer.is_plain(), which) {
            // By value: what follows from it is worked out once.
            (true, &Which::One(tunnel)) => {
                first_unusual(batch, |packet| self.usual::<OPTIONS, true>(header, packet, move |_, _| Some(tunnel)))
            }
            (true, Which::ByDestination(tunnels)) => {
                let by_destination = |_: &Packet, inner: &Inner| tunnels.ipv4.get(inner.destination().into());
                first_unusual(batch, |packet| self.usual::<OPTIONS, true>(header, packet, by_destination))
            }
            _ => first_unusual(batch, |packet| self.usual::<OPTIONS, false>(header, packet, any)),
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

const ETHERNET: usize = size_of::<forebay_packet::wire::ethernet::Ethernet>();

impl Function for GtpuEncap {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let Self { which, headers } = self;
        which.prefetch(batch);
        match headers.options.len() {
            0 => headers.run::<0>(which, batch, context),
            4 => headers.run::<4>(which, batch, context),
            _ => headers.run::<8>(which, batch, context),
        }
    }
}

register!(GtpuEncap);

#[cfg(test)]
mod tests;

//! Puts users' packets into GTP-U tunnels, on the way to the base stations of a mobile network.

mod bare;
mod over_ipv4;
mod over_ipv6;
mod tunnels;
mod which;

use std::net::IpAddr;

use forebay_graph::{
    Context, Declare, Fold, Function, Gate, PerBranch, Reason, Setup, SetupError, StateKind, register,
};
use forebay_packet::Packet;
use forebay_packet::wire::gtpu::{self, Gtpu, Options};
use forebay_tunnels::outer::{Outer, OuterSettings};
use forebay_tunnels::outer_ipv6::{OuterIpv6, OuterIpv6Settings};
use forebay_tunnels::settings::{AnyEndpoint, Dscp, Endpoint, Identifier, Qfi, SourcePort};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::upf_downlink::TUNNEL;
pub use tunnels::TunnelSource;
use tunnels::{Peers, Tunnel, Tunnels, check_kind};
use which::TunnelSelector;

/// Parameters of `gtpu_encap`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The outer source address. All outer packets have its family, IPv4 or IPv6.
    source: AnyEndpoint,
    /// The outer destination address. With `teid`, it is required, and all packets go to it. With `tunnels`, packets go
    /// to it if the line of their tunnel has no PEER.
    peer: Option<AnyEndpoint>,
    /// The tunnel endpoint identifier of all packets, from 1, in decimal or hexadecimal.
    teid: Option<Identifier>,
    /// The tunnels, instead of `teid`: a file's name or a list. Each line of the file, and each element of the list, is
    /// `USER TEID PEER`. PEER may be missing if `peer` is set. USER is an IPv4 address or an IPv6 /64. If `by` names a
    /// metadata word, USER is a value of this word.
    tunnels: Option<TunnelSource>,
    /// The key by which a packet's tunnel is found: `destination` (the default), `tunnel`, `next_hop` or `session`.
    /// `destination` is the inner destination address. `tunnel` and `next_hop` are the metadata words of these names.
    /// With `session`, `upf_downlink` has written tunnel and peer before.
    #[serde(default)]
    by: By,
    /// The outer UDP source port: `session` (the default: a port from 49152 to 65535, derived from the inner addresses
    /// and ports), or a number, such as 2152.
    #[serde(default)]
    #[schemars(extend("default" = "session"))]
    source_port: SourcePort,
    /// Computes the outer UDP checksum (`true`), or leaves the field 0 (`false`). The default is `false` over IPv4.
    /// Over IPv6 only `true` is allowed.
    udp_checksum: Option<bool>,
    /// The outer differentiated services code point: `copy` (the default: the inner code point), or 0 to 63.
    #[serde(default)]
    #[schemars(extend("default" = "copy"))]
    dscp: Dscp,
    /// Sets the don't-fragment bit of outer packets: `true` (the default) or `false`. Over IPv6 only `true` is allowed.
    #[serde(default = "yes")]
    df: bool,
    /// The outer time to live or hop limit, 1 to 255.
    #[serde(default = "ttl")]
    ttl: u8,
    /// The largest length of outer packets in bytes: at least 68, over IPv6 at least 1280. Longer packets are dropped.
    /// Without it, the limit is the largest length that the outer header can express.
    mtu: Option<u16>,
    /// Gives packets sequence numbers. Allowed only with one `teid`.
    #[serde(default)]
    sequence: bool,
    /// The QoS flow, 0 to 63, of a PDU Session Container, which 5G requires towards a base station (TS 38.415). With
    /// `by: session`, the value `session` is also allowed: the QoS flow that `upf_downlink` has written for the packet.
    qfi: Option<Qfi>,
}

fn yes() -> bool {
    true
}

fn ttl() -> u8 {
    64
}

/// The key by which a packet's tunnel is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
enum By {
    /// The inner destination address.
    #[default]
    Destination,
    /// The metadata word `tunnel`.
    Tunnel,
    /// The metadata word `next_hop`, which `ip_lookup` writes.
    NextHop,
    /// The metadata words that `upf_downlink` writes contain the tunnel itself.
    Session,
}

const NOT_IP: Gate = Gate::drop(0);
const TRUNCATED: Gate = Gate::drop(1);
const NO_TUNNEL: Gate = Gate::drop(2);
const TOO_LONG: Gate = Gate::drop(3);
const NO_HEADROOM: Gate = Gate::drop(4);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason { name: "not_ip", help: "The frame carries neither IPv4 nor IPv6, or is cut short inside the header." },
    Reason { name: "truncated", help: "The frame ends before the packet that its IP header announces." },
    Reason { name: "no_tunnel", help: "No tunnel is listed for the packet's user or number." },
    Reason { name: "too_long", help: "The outer packet would be longer than `mtu`." },
    Reason { name: "no_headroom", help: "There is no room before the frame for the outer headers." },
];

/// The network function `gtpu_encap`.
pub struct GtpuEncap {
    /// Finds the tunnel of a packet.
    selector: TunnelSelector,
    /// Writes the outer headers.
    headers: OuterHeaders,
}

/// Writes outer headers of IPv4 or IPv6.
enum OuterHeaders {
    Ipv4(over_ipv4::Headers),
    Ipv6(over_ipv6::Headers),
}

impl Declare for GtpuEncap {
    type Params = Params;
    const NAME: &'static str = "gtpu_encap";
    const SUMMARY: &'static str = "puts IP packets into GTP-U tunnels over IPv4 or IPv6";
    const HELP: &'static str = "\
        The IP packet becomes a T-PDU (3GPP TS 29.281). Its Ethernet header, VLAN tags and padding are removed. \
        Ethernet, IP, UDP (to port 2152) and GTP-U headers are put before it. The new Ethernet header has the \
        addresses of the old one: to write others, put `mac_rewrite` after this module. There are three ways to select \
        the tunnel: all packets go into one tunnel (`peer` and `teid`), each goes into its user's tunnel (`tunnels`), \
        or each goes into the tunnel that `upf_downlink` has found (`by: session`). With `tunnels`, an IPv6 user has a \
        /64. If users have networks behind them, put `ip_lookup` with `to: word` before, and use `by: next_hop`: the \
        next hop then selects the tunnel. Over IPv4, the identification field is 0 if packets may not be fragmented \
        (RFC 6864). Otherwise it comes from a counter that all modules with the same `source` share. Over IPv6, the \
        flow label is derived from the session (RFC 6438). Congestion notification is copied to the outer header (RFC \
        6040). Packets that become too long are dropped; no ICMP message is sent. The outer headers have 36 bytes over \
        IPv4 and 56 over IPv6, 4 more with `sequence`, 8 more with `qfi`.";
    const EXAMPLE: &'static str = "\
        { source: 192.0.2.1, tunnels: [\"10.60.0.1 0x1001 192.0.2.10\", \"2001:db8:60:1::/64 0x1002 192.0.2.11\"], \
        qfi: 9, mtu: 1500 }";
    const TRAFFIC: &'static str = "{ destination: 10.60.0.1/32 }";
    const DROPS: &'static [Reason] = DROPS;
    const READS: &'static [&'static str] = &["tunnel", "next_hop", "tunnel_teid", "tunnel_peer", "tunnel_qfi"];
    // Replicas share only a counter, for the identification of outer IPv4 packets. If several workers run the module,
    // `new` refuses sequence numbers.
    const STATE: StateKind = StateKind::SharedReadOnly;
    const FOLD: Option<Fold<Self>> = Some(|branches| Box::new(Folded(PerBranch::new(branches))));

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        if params.sequence && setup.share().1 > 1 {
            let (wrong, hint) =
                ("several workers would use the same sequence numbers", "name the module in one worker's `modules`");
            return Err(SetupError::with_hint("sequence", wrong, hint));
        }
        if params.sequence && params.teid.is_none() {
            let (wrong, hint) = ("sequence numbers belong to one tunnel", "leave out `sequence`, or set `teid`");
            return Err(SetupError::with_hint("sequence", wrong, hint));
        }
        let qfi = match params.qfi {
            Some(Qfi::Fixed(qfi)) if qfi > 63 => {
                return Err(SetupError::wrong("qfi", qfi, format!("{qfi} is not a QoS flow"), "0 to 63"));
            }
            Some(Qfi::Session) if params.by != By::Session => {
                let wrong = "'session' requires `by: session`";
                return Err(SetupError::wrong("qfi", "session", wrong, "0 to 63 with another `by`"));
            }
            Some(Qfi::Fixed(qfi)) => Some(qfi),
            Some(Qfi::Session) => Some(0),
            None => None,
        };
        if let Some(peer) = params.peer {
            check_kind(params.source, peer).map_err(|message| SetupError::at("peer", message))?;
        }
        let selector = match (params.teid, &params.tunnels, params.peer) {
            (None, None, None) if params.by == By::Session => {
                if params.source.0.is_ipv6() {
                    let wrong = format!("with `by: session` peers are IPv4, but {} is IPv6", params.source.0);
                    return Err(SetupError::wrong_single("source", params.source.0, wrong, "an IPv4 address"));
                }
                let [teid, peer, _] = TUNNEL;
                TunnelSelector::BySession { teid: setup.word(teid)?, peer: setup.word(peer)? }
            }
            _ if params.by == By::Session => {
                let (wrong, hint) = ("sessions determine tunnel and peer", "remove `teid`, `tunnels` and `peer`");
                return Err(SetupError::with_hint("by", wrong, hint));
            }
            (Some(Identifier(0)), ..) => {
                return Err(SetupError::wrong("teid", "0", "0 is not a tunnel", "1 to 4294967295"));
            }
            (Some(_), None, _) if params.by != By::Destination => {
                return Err(SetupError::with_hint("by", "with one `teid` there is no look-up", "use `tunnels`"));
            }
            (Some(Identifier(teid)), None, Some(AnyEndpoint(peer))) => {
                let mut peers = Peers::default();
                TunnelSelector::One(Tunnel { teid, peer: peers.name(peer) }, peers)
            }
            (Some(_), None, None) => return Err(SetupError::at("peer", "`teid` needs a `peer`")),
            (None, Some(source), peer) => {
                let tunnels = Tunnels::load(source, params.by != By::Destination, params.source, peer, setup)?;
                match params.by {
                    By::Destination => TunnelSelector::ByDestination(tunnels),
                    By::Tunnel => TunnelSelector::ByWord(tunnels, setup.word("tunnel")?),
                    By::NextHop | By::Session => TunnelSelector::ByWord(tunnels, setup.word("next_hop")?),
                }
            }
            _ => return Err(SetupError::new("give either 'teid' and 'peer', or 'tunnels'")),
        };
        let options = Options { sequence: params.sequence.then_some(0), qfi };
        let (flags, optional) = options.emit();
        let header = u64::from(Gtpu::PLAIN_G_PDU) << 48 | u64::from(flags) << 56;
        let headers = match params.source.0 {
            IpAddr::V4(source) => {
                let outer = params.over_ipv4(Endpoint(source.to_bits()), setup)?;
                let word = matches!(params.qfi, Some(Qfi::Session)).then(|| setup.word(TUNNEL[2])).transpose()?;
                OuterHeaders::Ipv4(over_ipv4::Headers {
                    outer,
                    header,
                    options,
                    optional,
                    length: options.len(),
                    qfi: word,
                })
            }
            IpAddr::V6(source) => {
                let outer = params.over_ipv6(source.octets())?;
                OuterHeaders::Ipv6(over_ipv6::Headers { outer, header, options, optional })
            }
        };
        Ok(Self { selector, headers })
    }
}

impl Params {
    /// Returns the writer of outer IPv4 headers.
    fn over_ipv4(&self, source: Endpoint, setup: &mut Setup<'_>) -> Result<Outer, SetupError> {
        let settings = OuterSettings {
            source,
            source_port: self.source_port,
            destination_port: gtpu::PORT,
            udp_checksum: self.udp_checksum.unwrap_or(false),
            dscp: self.dscp,
            df: self.df,
            ttl: self.ttl,
            mtu: self.mtu,
        };
        Outer::new(&settings, setup)
    }

    /// Returns the writer of outer IPv6 headers.
    fn over_ipv6(&self, source: [u8; 16]) -> Result<OuterIpv6, SetupError> {
        if self.udp_checksum == Some(false) {
            let wrong = "over IPv6 the checksum is mandatory (RFC 8200 section 8.1)";
            return Err(SetupError::wrong_single("udp_checksum", "false", wrong, "true"));
        }
        if !self.df {
            let wrong = "routers do not fragment IPv6 packets (RFC 8200 section 5)";
            return Err(SetupError::wrong_single("df", "false", wrong, "true"));
        }
        OuterIpv6::new(OuterIpv6Settings {
            source,
            source_port: self.source_port,
            destination_port: gtpu::PORT,
            dscp: self.dscp,
            hop_limit: self.ttl,
            mtu: self.mtu,
        })
    }
}

impl Function for GtpuEncap {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let Self { selector, headers } = self;
        selector.prefetch(batch);
        match headers {
            OuterHeaders::Ipv4(headers) => headers.run(selector, batch, context),
            OuterHeaders::Ipv6(headers) => headers.run(selector, batch, context),
        }
    }
}

/// The modules of several branches, which run as one. Each has its own tunnels and headers.
struct Folded(PerBranch<GtpuEncap>);

impl Function for Folded {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        if self.0.run_common(batch, context) {
            return;
        }
        let branches = context.branches();
        for (index, packet) in batch.iter_mut().enumerate() {
            let GtpuEncap { selector, headers } = self.0.of_mut(branches, packet);
            let gate = match headers {
                OuterHeaders::Ipv4(headers) => headers.run_one(selector, packet),
                OuterHeaders::Ipv6(headers) => headers.run_one(selector, packet),
            };
            if gate != Gate::FIRST {
                context.put(index, gate);
            }
        }
    }
}

register!(GtpuEncap);

#[cfg(test)]
mod tests;

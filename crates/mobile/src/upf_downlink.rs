//! The downlink of a user plane function: finds the user and bearer of each packet, applies the rate limits and charges
//! the packet.

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::{Network, Packet, Word};
use forebay_tunnels::inside::ip_packet_span;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::pdu_sessions::{Direction, GROUP, PacketFields, PduSessions, UserName, Verdict, Worker};

/// The metadata words for the tunnel of a packet, which `gtpu_encap` with `by: session` reads: the tunnel endpoint
/// identifier, the peer's IPv4 address, and the QoS flow.
pub(crate) const TUNNEL: [&str; 3] = ["tunnel_teid", "tunnel_peer", "tunnel_qfi"];

/// Parameters of `upf_downlink`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The name of a state `pdu_sessions`.
    state: String,
}

const UNKNOWN_USER: Gate = Gate::drop(0);
const OVER_RATE: Gate = Gate::drop(1);
const NO_TUNNEL: Gate = Gate::drop(2);
const NOT_IP: Gate = Gate::drop(3);
const UNDECIDABLE: Gate = Gate::drop(4);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason { name: "unknown_user", help: "The destination is not a user of any session." },
    Reason { name: "over_rate", help: "The packet exceeds the rate of its bearer or session." },
    Reason { name: "no_tunnel", help: "The user is idle: the session has no tunnel to the user." },
    Reason { name: "not_ip", help: "The frame is not IP, or ends before the packet that its header announces." },
    Reason {
        name: "undecidable",
        help: "The packet hides its protocol or ports, and a filter or rule needs them to decide whether it matches.",
    },
];

/// The network function `upf_downlink`.
pub struct UpfDownlink {
    /// The access of this worker to the sessions.
    worker: Worker,
    /// The words of [`TUNNEL`], in the same order.
    tunnel: [Word; 3],
}

impl Declare for UpfDownlink {
    type Params = Params;
    const NAME: &'static str = "upf_downlink";
    const SUMMARY: &'static str =
        "for packets to users: finds session and bearer by destination, applies rate limits, charges the packets";
    const HELP: &'static str = "\
        The downlink of a user plane function (3GPP TS 23.501 section 5.8). The session is the one whose user has the \
        destination address, or the IPv6 /64 that contains it. The first filter that matches the packet, in order of \
        precedence, selects the bearer. If no filter matches, the packet has the session's first bearer. Limits and \
        charging are as in `upf_uplink`. The packet's tunnel is written to the metadata words `tunnel_teid`, \
        `tunnel_peer` and `tunnel_qfi`, for `gtpu_encap` with `by: session`. Sessions can change while packets run: \
        see the tables `sessions`, `usage` and `ended`. Packets to a user without a tunnel are dropped; they do not \
        wait for a tunnel. Only the first fragment of a packet has ports: if filters or rules name ports, put \
        `reassemble` before. If a filter or rule names a protocol or ports, a packet that hides them is dropped as \
        `undecidable`: they are behind more than 8 IPv6 extension headers, or the packet is cut short (RFC 7113 \
        section 3).";
    const EXAMPLE: &'static str = "{ state: pdu_sessions }";
    const TRAFFIC: &'static str = "{ destination: 10.60.0.1/32 }";
    const DROPS: &'static [Reason] = DROPS;
    const WRITES: &'static [&'static str] = &TUNNEL;
    // All workers share limits and counts, without waiting.
    const STATE: StateKind = StateKind::SharedReadOnly;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let sessions = setup.state::<PduSessions>("state", &params.state)?;
        let [teid, peer, qfi] = TUNNEL;
        let tunnel = [setup.word(teid)?, setup.word(peer)?, setup.word(qfi)?];
        Ok(Self { worker: sessions.worker(Direction::Down, setup), tunnel })
    }
}

/// Returns the fields of a packet that the look-up needs.
#[inline(always)]
fn fields_of(packet: &mut Packet) -> PacketFields {
    let name = match packet.network().0 {
        Network::Ipv4 => packet.ipv4().map(|header| UserName::ipv4(header.destination)),
        Network::Ipv6 => packet.ipv6().map(|header| UserName::ipv6(header.destination)),
        Network::Other => None,
    };
    let length = ip_packet_span(packet).map_or(0, |(_, length)| length as u32);
    PacketFields { length, teid: 0, flow: 0, name }
}

impl Function for UpfDownlink {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let [teid, peer, qfi] = self.tunnel;
        for (chunk, packets) in batch.chunks_mut(GROUP).enumerate() {
            let mut fields = [PacketFields::default(); GROUP];
            for (packet, fields) in packets.iter_mut().zip(&mut fields) {
                *fields = fields_of(packet);
            }
            self.worker.down(packets, &fields, context.now(), |index, packet, verdict| {
                let gate = match verdict {
                    Verdict::Pass(tunnel) => {
                        packet.set_word(teid, tunnel.teid);
                        packet.set_word(peer, tunnel.peer);
                        return packet.set_word(qfi, tunnel.qfi.into());
                    }
                    Verdict::Unknown => UNKNOWN_USER,
                    Verdict::OverRate => OVER_RATE,
                    Verdict::Undecidable => UNDECIDABLE,
                    Verdict::NoTunnel => NO_TUNNEL,
                    Verdict::Unfit | Verdict::Spoofed | Verdict::WrongFlow => NOT_IP,
                };
                context.put(chunk * GROUP + index, gate);
            });
        }
    }
}

register!(UpfDownlink);

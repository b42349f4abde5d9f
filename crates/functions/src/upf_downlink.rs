//! What a user plane function does with packets that go to users: whose they are, by which bearer, what they cost.

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::{Network, Packet, Word};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::pdu_sessions::{Asked, GO, PduSessions, UserName, Verdict, Way, Worker};
use crate::tunnel::inside::place_of;

/// The metadata words that say which tunnel a packet goes into: the peer's number of it, the peer's address, the QoS flow.
pub(crate) const TUNNEL: [&str; 3] = ["tunnel_teid", "tunnel_peer", "tunnel_qfi"];

/// Parameters of `upf_downlink`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The name of a state of kind `pdu_sessions`.
    state: String,
}

const UNKNOWN_USER: Gate = Gate::drop(0);
const OVER_RATE: Gate = Gate::drop(1);
const NO_TUNNEL: Gate = Gate::drop(2);
const NOT_IP: Gate = Gate::drop(3);
const UNDECIDABLE: Gate = Gate::drop(4);
const DROPS: &[Reason] = &[
    Reason { name: "unknown_user", help: "The destination is no session's user." },
    Reason { name: "over_rate", help: "The packet exceeds the rate of its bearer or session." },
    Reason { name: "no_tunnel", help: "The session has no tunnel to the user, who is idle." },
    Reason { name: "not_ip", help: "The frame is no IP, or ends before its header says." },
    Reason {
        name: "undecidable",
        help: "The packet hides its protocol or ports, and a filter or a rule asks for them: which it meets is not known.",
    },
];

/// The function.
pub struct UpfDownlink {
    worker: Worker,
    tunnel: [Word; 3],
}

impl Declare for UpfDownlink {
    type Params = Params;
    const NAME: &'static str = "upf_downlink";
    const SUMMARY: &'static str =
        "looks packets to users up by their destination: their session, bearer, limits and charging";
    const HELP: &'static str = "\
        The way down of a user plane function (3GPP TS 23.501 section 5.8). The session is the one whose user has the \
        destination, or the IPv6 /64 that it lies in; the bearer is that of the first filter, by precedence, that is for the \
        packet, else the session's first. Limits and charging are as of `upf_uplink`. Which tunnel the packet is to go into is \
        written to the metadata words `tunnel_teid`, `tunnel_peer` and `tunnel_qfi`, for `gtpu_encap` with `by: session`. \
        Sessions come and go while packets run: tables `sessions`, `usage` and `ended`. Packets to users without a tunnel are \
        dropped, not kept until there is one. Fragments but the first show no ports; put `reassemble` before where filters \
        or rules name ports. \
        Where one names a protocol or ports, a packet that hides them is dropped as `undecidable` (behind more than 8 \
        IPv6 extension headers, or cut short; RFC 7113 section 3).";
    const EXAMPLE: &'static str = "{ state: pdu_sessions }";
    const TRAFFIC: &'static str = "{ destination: 10.60.0.1/32 }";
    const DROPS: &'static [Reason] = DROPS;
    const WRITES: &'static [&'static str] = &TUNNEL;
    // Limits and counts are shared by all workers, without waiting.
    const STATE: StateKind = StateKind::SharedReadOnly;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let sessions = setup.state::<PduSessions>("state", &params.state)?;
        let [teid, peer, qfi] = TUNNEL;
        let tunnel = [setup.word(teid)?, setup.word(peer)?, setup.word(qfi)?];
        Ok(Self { worker: sessions.worker(Way::Down, setup), tunnel })
    }
}

#[inline(always)]
fn ask(packet: &mut Packet) -> Asked {
    let name = match packet.network().0 {
        Network::Ipv4 => packet.ipv4().map(|header| UserName::ipv4(header.destination)),
        Network::Ipv6 => packet.ipv6().map(|header| UserName::ipv6(header.destination)),
        Network::Other => None,
    };
    let length = place_of(packet).map_or(0, |(_, length)| length as u32);
    Asked { length, teid: 0, flow: 0, name }
}

impl Function for UpfDownlink {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let [teid, peer, qfi] = self.tunnel;
        for (go, packets) in batch.chunks_mut(GO).enumerate() {
            let mut asked = [Asked::default(); GO];
            for (packet, asked) in packets.iter_mut().zip(&mut asked) {
                *asked = ask(packet);
            }
            self.worker.down(packets, &asked, context.now(), |index, packet, verdict| {
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
                context.put(go * GO + index, gate);
            });
        }
    }
}

register!(UpfDownlink);

//! What a user plane function does with packets that come from users: whose they are, whether they may, what they cost.

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::{Network, Packet, Word};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::pdu_sessions::{Asked, GO, PduSessions, UserName, Verdict, Way, Worker};
use crate::tunnel::inside::place_of;

/// The metadata word that `gtpu_decap` writes tunnels to.
const WORD: &str = "teid";

/// Parameters of `upf_uplink`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The name of a state of kind `pdu_sessions`.
    state: String,
}

const UNKNOWN_TEID: Gate = Gate::drop(0);
const SPOOFED: Gate = Gate::drop(1);
const OVER_RATE: Gate = Gate::drop(2);
const NOT_IP: Gate = Gate::drop(3);
const DROPS: &[Reason] = &[
    Reason { name: "unknown_teid", help: "The tunnel that the packet came by is no session's." },
    Reason { name: "spoofed", help: "The source is not the address of the tunnel's user." },
    Reason { name: "over_rate", help: "The packet exceeds the rate of its bearer or session." },
    Reason { name: "not_ip", help: "The packet is no IP, or ends before its header says." },
];

/// The function.
pub struct UpfUplink {
    worker: Worker,
    teid: Word,
}

impl Declare for UpfUplink {
    type Params = Params;
    const NAME: &'static str = "upf_uplink";
    const SUMMARY: &'static str = "looks packets from users up by their tunnel: their session, limits and charging";
    const HELP: &'static str = "\
        The way up of a user plane function (3GPP TS 23.501 section 5.8), behind `gtpu_decap`, which says in the metadata word \
        `teid` what tunnel a packet came by. The source must be the address of the tunnel's user, or in the user's IPv6 /64. \
        The packet is counted against its bearer's limit and, unless the bearer's rate is guaranteed, against its session's, and \
        dropped if it exceeds either; what passes is charged for: the IP packet's bytes, under the first rule that it meets. Where \
        bearers share a tunnel their filters say which has it. Sessions come and go while packets run: tables `sessions`, \
        `usage` and `ended`. Fragments but the first show no ports; put `reassemble` before where filters or rules name ports.";
    const EXAMPLE: &'static str = "{ state: pdu_sessions }";
    const TRAFFIC: &'static str = "{ source: 10.60.0.1/32 }";
    const DROPS: &'static [Reason] = DROPS;
    const READS: &'static [&'static str] = &[WORD];
    // Limits and counts are shared by all workers, without waiting.
    const STATE: StateKind = StateKind::SharedReadOnly;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let sessions = setup.state::<PduSessions>("state", &params.state)?;
        Ok(Self { worker: sessions.worker(Way::Up, setup), teid: setup.word(WORD)? })
    }
}

impl UpfUplink {
    #[inline(always)]
    fn ask(&self, packet: &mut Packet) -> Asked {
        let name = match packet.network().0 {
            Network::Ipv4 => packet.ipv4().map(|header| UserName::ipv4(header.source)),
            Network::Ipv6 => packet.ipv6().map(|header| UserName::ipv6(header.source)),
            Network::Other => None,
        };
        let length = place_of(packet).map_or(0, |(_, length)| length as u32);
        Asked { length, teid: packet.word(self.teid), name }
    }
}

impl Function for UpfUplink {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        for (go, packets) in batch.chunks_mut(GO).enumerate() {
            let mut asked = [Asked::default(); GO];
            for (packet, asked) in packets.iter_mut().zip(&mut asked) {
                *asked = self.ask(packet);
            }
            self.worker.up(packets, &asked, context.now(), |index, _, verdict| {
                let gate = match verdict {
                    Verdict::Pass(_) => return,
                    Verdict::Unknown => UNKNOWN_TEID,
                    Verdict::Spoofed => SPOOFED,
                    Verdict::OverRate => OVER_RATE,
                    Verdict::Unfit | Verdict::NoTunnel => NOT_IP,
                };
                context.put(go * GO + index, gate);
            });
        }
    }
}

register!(UpfUplink);

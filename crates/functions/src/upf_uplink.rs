//! What a user plane function does with packets that come from users: whose they are, whether they may, what they cost.

use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_measure::Counter;
use forebay_packet::{Network, Packet, Word};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::pdu_sessions::{Asked, GO, PduSessions, UserName, Verdict, Way, Worker};
use crate::tunnel::inside::place_of;

/// The metadata word that `gtpu_decap` writes tunnels to.
const WORD: &str = "teid";
/// The metadata word that `gtpu_decap` writes QoS flows to.
const QFI_WORD: &str = "uplink_qfi";

/// Parameters of `upf_uplink`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The name of a state of kind `pdu_sessions`.
    state: String,
    /// Drops (`drop`, the default) or only counts (`count`) packets under a QoS flow that is not their bearer's.
    #[serde(default)]
    qfi: WrongFlow,
}

/// Whether packets are dropped that come under a QoS flow which is not their bearer's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum WrongFlow {
    /// They are dropped and counted.
    #[default]
    Drop,
    /// They are counted and pass.
    Count,
}

const UNKNOWN_TEID: Gate = Gate::drop(0);
const SPOOFED: Gate = Gate::drop(1);
const OVER_RATE: Gate = Gate::drop(2);
const NOT_IP: Gate = Gate::drop(3);
const WRONG_QFI: Gate = Gate::drop(4);
const UNDECIDABLE: Gate = Gate::drop(5);
const DROPS: &[Reason] = &[
    Reason { name: "unknown_teid", help: "The tunnel that the packet came by is no session's." },
    Reason { name: "spoofed", help: "The source is not the address of the tunnel's user." },
    Reason { name: "over_rate", help: "The packet exceeds the rate of its bearer or session." },
    Reason { name: "not_ip", help: "The packet is no IP, or ends before its header says." },
    Reason { name: "wrong_qfi", help: "The packet names a QoS flow that is not that of its bearer (TS 23.501)." },
    Reason {
        name: "undecidable",
        help: "The packet hides its protocol or ports, and a filter or a rule asks for them: which it meets is not known.",
    },
];

/// The function.
pub struct UpfUplink {
    worker: Worker,
    teid: Word,
    qfi: Word,
    wrong: WrongFlow,
    counts: Arc<[Counter]>,
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
        bearers share a tunnel their filters say which has it. A packet that names a QoS flow (PDU Session \
        Container, TS 38.415) must name that of its bearer, or is dropped as `wrong_qfi`; with `qfi: count` it is \
        only counted as `mismatched` (TS 23.501 section 5.7.1.7). A packet that names none passes, as over 4G, and \
        so does every flow of a bearer without `qfi=`. A later fragment may be of any flow of its session. Sessions \
        come and go while packets run: tables `sessions`, `usage` and `ended`. Fragments but the first show no \
        ports; put `reassemble` before where filters or rules name ports. \
        Where one names a protocol or ports, a packet that hides them is dropped as `undecidable` (behind more than 8 \
        IPv6 extension headers, or cut short; RFC 7113 section 3).";
    const EXAMPLE: &'static str = "{ state: pdu_sessions }";
    const TRAFFIC: &'static str = "{ source: 10.60.0.1/32 }";
    const DROPS: &'static [Reason] = DROPS;
    const READS: &'static [&'static str] = &[WORD, QFI_WORD];
    // Limits and counts are shared by all workers, without waiting.
    const STATE: StateKind = StateKind::SharedReadOnly;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let sessions = setup.state::<PduSessions>("state", &params.state)?;
        Ok(Self {
            worker: sessions.worker(Way::Up, setup),
            teid: setup.word(WORD)?,
            qfi: setup.word(QFI_WORD)?,
            wrong: params.qfi,
            counts: setup.counters("qfi", ["mismatched".to_owned()]),
        })
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
        Asked { length, teid: packet.word(self.teid), flow: packet.word(self.qfi), name }
    }
}

impl Function for UpfUplink {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        for (go, packets) in batch.chunks_mut(GO).enumerate() {
            let mut asked = [Asked::default(); GO];
            for (packet, asked) in packets.iter_mut().zip(&mut asked) {
                *asked = self.ask(packet);
            }
            let (counts, wrong) = (&self.counts, self.wrong);
            let misaligned = || {
                counts[0].add(1);
                wrong == WrongFlow::Drop
            };
            self.worker.up(packets, &asked, context.now(), misaligned, |index, _, verdict| {
                let gate = match verdict {
                    Verdict::Pass(_) => return,
                    Verdict::Unknown => UNKNOWN_TEID,
                    Verdict::Spoofed => SPOOFED,
                    Verdict::OverRate => OVER_RATE,
                    Verdict::WrongFlow => WRONG_QFI,
                    Verdict::Undecidable => UNDECIDABLE,
                    Verdict::Unfit | Verdict::NoTunnel => NOT_IP,
                };
                context.put(go * GO + index, gate);
            });
        }
    }
}

register!(UpfUplink);

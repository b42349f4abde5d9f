//! The uplink of a user plane function: finds the user and bearer of each packet, checks the source, applies the rate
//! limits and charges the packet.

use std::net::Ipv4Addr;
use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_measure::Counter;
use forebay_packet::wire::gtpu::Signal;
use forebay_packet::{Network, Packet, Word};
use forebay_tables::answer_limit::AnswerLimit;
use forebay_tunnels::inside::ip_packet_span;
use forebay_tunnels::receive::Datagram;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::gtpu_decap::answer::Answer;
use crate::gtpu_decap::{DESTINATION_WORD, SOURCE_WORD};
use crate::pdu_sessions::{Direction, GROUP, PacketFields, PduSessions, UserName, Verdict, Worker};

/// The metadata word to which `gtpu_decap` writes tunnels.
const WORD: &str = "teid";
/// The metadata word to which `gtpu_decap` writes QoS flows.
const QFI_WORD: &str = "uplink_qfi";

/// Parameters of `upf_uplink`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The name of a state `pdu_sessions`.
    state: String,
    /// Drops (`drop`, the default) or only counts (`count`) packets with a QoS flow other than the QoS flow of their
    /// bearer.
    #[serde(default)]
    qfi: WrongFlow,
    /// The largest number of Error Indications per second. They leave by the gate `reply`, to senders of packets in a
    /// tunnel without a session. After a pause, this number may be sent at once. With 0, the default, none are sent,
    /// and there is no gate `reply`. A `gtpu_decap` with `keep_addresses: true` must be before this module.
    #[serde(default)]
    error_indications: u32,
}

/// The action for packets with a QoS flow other than the QoS flow of their bearer.
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
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason { name: "unknown_teid", help: "No session has the tunnel of the packet." },
    Reason { name: "spoofed", help: "The source is not the address of the tunnel's user." },
    Reason { name: "over_rate", help: "The packet exceeds the rate of its bearer or session." },
    Reason { name: "not_ip", help: "The packet is not IP, or ends before the packet that its header announces." },
    Reason { name: "wrong_qfi", help: "The QoS flow in the packet differs from that of its bearer (TS 23.501)." },
    Reason {
        name: "undecidable",
        help: "The packet hides its protocol or ports, and a filter or rule needs them to decide whether it matches.",
    },
];

const CREATES: &[Reason] =
    &[Reason { name: "error_indication", help: "Sent for a packet in a tunnel without a session." }];
/// Index in [`CREATES`].
const ERROR_INDICATION: usize = 0;
const REPLY: Gate = Gate::out(1);

/// Sends Error Indications about tunnels without a session, so that a base station learns that a session has ended.
struct Indications {
    /// The metadata word with the outer source address.
    source: Word,
    /// The metadata word with the outer destination address.
    destination: Word,
    /// The rate limit of Error Indications.
    bucket: AnswerLimit,
    counts: Arc<[Counter]>,
}

/// The index in [`Indications::counts`] of the number of packets whose sender cannot be answered.
const NO_ADDRESS: usize = 0;
/// The index in [`Indications::counts`] of the number of packets without an indication because of the rate limit, or
/// because the packet's chunk has no room for it.
const OVER_LIMIT: usize = 1;

impl Indications {
    /// Sends an indication to the sender of a packet (TS 29.281 section 7.3.1), within the rate limit. Only T-PDUs come
    /// to this function, so an Error Indication is never answered with another Error Indication.
    #[cold]
    fn send(&mut self, packet: &mut Packet, teid: u32, context: &mut Context<'_>) {
        let [peer, local] = [self.source, self.destination].map(|word| Ipv4Addr::from_bits(packet.word(word)).into());
        let (_, ip) = packet.network();
        let datagram =
            Datagram { ip, payload: ip, end: ip, class: 0, source: peer, destination: local, source_port: 0 };
        let signal = Signal::ErrorIndication { teid, peer: local };
        let Some(answer) = Answer::to(packet, &datagram, &signal, 0) else {
            self.counts[NO_ADDRESS].add(1);
            return;
        };
        if packet.len() + packet.tailroom() < answer.frame().len() || !self.bucket.take(context.now()) {
            self.counts[OVER_LIMIT].add(1);
            return;
        }
        if let Some(created) = context.create(ERROR_INDICATION, REPLY, packet) {
            created.write(answer.frame());
        }
    }
}

/// The network function `upf_uplink`.
pub struct UpfUplink {
    /// The access of this worker to the sessions.
    worker: Worker,
    /// The metadata word with the tunnel.
    teid: Word,
    /// The metadata word with the QoS flow.
    qfi: Word,
    /// The action for packets with a QoS flow other than the QoS flow of their bearer.
    wrong: WrongFlow,
    /// One counter: of packets with a QoS flow other than the QoS flow of their bearer.
    counts: Arc<[Counter]>,
    /// Sends Error Indications; `None` if they are off.
    indications: Option<Box<Indications>>,
}

impl Declare for UpfUplink {
    type Params = Params;
    const NAME: &'static str = "upf_uplink";
    const SUMMARY: &'static str =
        "for packets from users: finds session and bearer by tunnel, applies rate limits, charges the packets";
    const HELP: &'static str = "\
        The uplink of a user plane function (3GPP TS 23.501 section 5.8), after `gtpu_decap`, which writes the tunnel \
        of a packet to the metadata word `teid`. The source must be the address of the tunnel's user, or in the user's \
        IPv6 /64. The packet is counted against its bearer's limit. If the bearer's rate is not guaranteed, the packet \
        is also counted against its session's limit. A packet that exceeds a limit is dropped; otherwise the IP \
        packet's bytes are charged under the first rule that it matches. If bearers share a tunnel, their filters \
        select the bearer. If a packet names a QoS flow (PDU Session Container, TS 38.415) other than the QoS flow of \
        its bearer, it is dropped as `wrong_qfi`; with `qfi: count` it is only counted as `mismatched` (TS 23.501 \
        section 5.7.1.7). A packet that names no QoS flow passes, as in 4G. On a bearer without `qfi=`, packets of \
        every QoS flow pass. A fragment after the first may name any QoS flow of its session. Sessions can change \
        while packets run: see the tables `sessions`, `usage` and `ended`. Only the first fragment of a packet has \
        ports: if filters or rules name ports, put `reassemble` before. With `error_indications`, a base station that \
        sends in a tunnel without a session gets an Error Indication (TS 29.281 section 7.3.1) by the gate `reply`, \
        over IPv4 and untagged Ethernet. If a filter or rule names a protocol or ports, a packet that hides them is \
        dropped as `undecidable`: they are behind more than 8 IPv6 extension headers, or the packet is cut short (RFC \
        7113 section 3).";
    const EXAMPLE: &'static str = "{ state: pdu_sessions }";
    const TRAFFIC: &'static str = "{ source: 10.60.0.1/32 }";
    const DROPS: &'static [Reason] = DROPS;
    const CREATES: &'static [Reason] = CREATES;
    const READS: &'static [&'static str] = &[WORD, QFI_WORD, SOURCE_WORD, DESTINATION_WORD];
    // All workers share limits and counts, without waiting.
    const STATE: StateKind = StateKind::SharedReadOnly;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let sessions = setup.state::<PduSessions>("state", &params.state)?;
        let indications = if params.error_indications > 0 {
            setup.gates(["0", "reply"])?;
            let names = ["no_address", "over_limit"].map(str::to_owned);
            Some(Box::new(Indications {
                source: setup.word(SOURCE_WORD)?,
                destination: setup.word(DESTINATION_WORD)?,
                bucket: AnswerLimit::new(params.error_indications, setup.frequency()),
                counts: setup.counters("error_indications", names),
            }))
        } else {
            None
        };
        Ok(Self {
            worker: sessions.worker(Direction::Up, setup),
            teid: setup.word(WORD)?,
            qfi: setup.word(QFI_WORD)?,
            wrong: params.qfi,
            counts: setup.counters("qfi", ["mismatched".to_owned()]),
            indications,
        })
    }
}

impl UpfUplink {
    /// Returns the fields of a packet that the look-up needs.
    #[inline(always)]
    fn fields_of(&self, packet: &mut Packet) -> PacketFields {
        let name = match packet.network().0 {
            Network::Ipv4 => packet.ipv4().map(|header| UserName::ipv4(header.source)),
            Network::Ipv6 => packet.ipv6().map(|header| UserName::ipv6(header.source)),
            Network::Other => None,
        };
        let length = ip_packet_span(packet).map_or(0, |(_, length)| length as u32);
        PacketFields { length, teid: packet.word(self.teid), flow: packet.word(self.qfi), name }
    }

    /// Processes a batch in chunks of [`GROUP`] packets. Error Indications are sent only with `INDICATE`, so that
    /// modules without them need no time for them.
    #[inline(always)]
    fn pass<const INDICATE: bool>(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        for (chunk, packets) in batch.chunks_mut(GROUP).enumerate() {
            let mut fields = [PacketFields::default(); GROUP];
            for (packet, fields) in packets.iter_mut().zip(&mut fields) {
                *fields = self.fields_of(packet);
            }
            let (counts, wrong, indications) = (&self.counts, self.wrong, &mut self.indications);
            let misaligned = || {
                counts[0].add(1);
                wrong == WrongFlow::Drop
            };
            self.worker.up(packets, &fields, context.now(), misaligned, |index, packet, verdict| {
                let gate = match verdict {
                    Verdict::Pass(_) => return,
                    Verdict::Unknown => {
                        if INDICATE && let Some(indications) = indications {
                            indications.send(packet, fields[index].teid, context);
                        }
                        UNKNOWN_TEID
                    }
                    Verdict::Spoofed => SPOOFED,
                    Verdict::OverRate => OVER_RATE,
                    Verdict::WrongFlow => WRONG_QFI,
                    Verdict::Undecidable => UNDECIDABLE,
                    Verdict::Unfit | Verdict::NoTunnel => NOT_IP,
                };
                context.put(chunk * GROUP + index, gate);
            });
        }
    }

    /// Processes a batch with Error Indications. This is a separate function, so that it does not slow down modules
    /// without Error Indications.
    #[inline(never)]
    fn pass_or_indicate(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        self.pass::<true>(batch, context);
    }
}

impl Function for UpfUplink {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        match self.indications {
            None => self.pass::<false>(batch, context),
            Some(_) => self.pass_or_indicate(batch, context),
        }
    }
}

register!(UpfUplink);

#[cfg(test)]
mod tests;

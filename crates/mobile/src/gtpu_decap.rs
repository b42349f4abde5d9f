//! Takes users' packets out of GTP-U tunnels, and sends the answers required of a tunnel's end.

pub(crate) mod answer;
mod teids;

use std::net::IpAddr;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::wire::ethernet::{EtherType, Ethernet};
use forebay_packet::wire::gtpu::{self, Gtpu, Message, Signal, kind};
use forebay_packet::wire::ipv4::{self, Ipv4};
use forebay_packet::{Packet, Word};
use forebay_tables::answer_limit::AnswerLimit;
use forebay_tunnels::ecn;
use forebay_tunnels::first_unusual;
use forebay_tunnels::outer::Start;
use forebay_tunnels::receive::{Datagram, Fault, datagram, unwrap_ip};
use forebay_tunnels::settings::AnyEndpoint;
use schemars::JsonSchema;
use serde::Deserialize;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use answer::Answer;
use teids::Teids;
pub use teids::{File, Part, TeidSource};

/// The metadata word for the tunnel.
const WORD: &str = "teid";
/// The metadata word for the QoS flow, with [`HAS_QFI`] set if the packet names one.
const QFI_WORD: &str = "uplink_qfi";
/// The metadata word for the outer IPv4 source address, if addresses are kept.
pub(crate) const SOURCE_WORD: &str = "gtpu_source";
/// The metadata word for the outer IPv4 destination address, if addresses are kept.
pub(crate) const DESTINATION_WORD: &str = "gtpu_destination";
/// The bit of `uplink_qfi` that is set if the packet names a QoS flow. It is above the six bits of the flow's
/// identifier.
pub(crate) const HAS_QFI: u32 = 1 << 6;

/// Parameters of `gtpu_decap`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The tunnels that exist: `any`, a number, a range such as `0x1000-0x1fff`, a list of them, or `{ file: NAME }`
    /// with one per line.
    teids: TeidSource,
    /// The allowed outer destination addresses, IPv4 and IPv6, up to 8. Without them, every address is allowed.
    #[serde(default)]
    local: Vec<AnyEndpoint>,
    /// The largest number of error messages per second, 100 by default. The sender of a packet gets an error message if
    /// the tunnel is unknown, or if the packet has an unknown extension header that must be understood. After a pause,
    /// this number may be sent at once. With 0, none are sent.
    #[serde(default = "errors")]
    errors_per_second: u32,
    /// Keeps outer IPv4 addresses in the metadata words `gtpu_source` and `gtpu_destination` (0 over IPv6). An
    /// `upf_uplink` with `error_indications` needs `true`; the default is `false`.
    #[serde(default)]
    keep_addresses: bool,
    /// Verifies outer UDP checksums, and drops packets over IPv6 without one: `true` (the default) or `false`.
    #[serde(default = "yes")]
    verify: bool,
}

fn errors() -> u32 {
    100
}

fn yes() -> bool {
    true
}

const NOT_GTPU: Gate = Gate::drop(0);
const FRAGMENT: Gate = Gate::drop(1);
const BAD_LENGTH: Gate = Gate::drop(2);
const BAD_CHECKSUM: Gate = Gate::drop(3);
const MALFORMED: Gate = Gate::drop(4);
const UNKNOWN_TEID: Gate = Gate::drop(5);
const UNKNOWN_EXTENSION: Gate = Gate::drop(6);
const UNKNOWN_MESSAGE: Gate = Gate::drop(7);
const NOT_IP: Gate = Gate::drop(8);
const CONGESTION: Gate = Gate::drop(9);
const NO_ANSWER: Gate = Gate::drop(10);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason { name: "not_gtpu", help: "The frame is not UDP over IP to port 2152 of one of the local addresses." },
    Reason { name: "fragment", help: "The outer packet is a fragment." },
    Reason {
        name: "bad_length",
        help: "A length in the outer headers contradicts another length or the length of the frame.",
    },
    Reason { name: "bad_checksum", help: "The outer UDP checksum is wrong, or over IPv6 it is missing." },
    Reason {
        name: "malformed",
        help: "The GTP-U header has another version, is cut short, or has a wrong length or extension header length.",
    },
    Reason { name: "unknown_teid", help: "The tunnel is unknown." },
    Reason { name: "unknown_extension", help: "The packet has an unknown extension header that must be understood." },
    Reason { name: "unknown_message", help: "The message type does not exist in GTP-U." },
    Reason { name: "not_ip", help: "The payload has no complete IPv4 or IPv6 header." },
    Reason {
        name: "congestion",
        help: "The outer packet has met congestion, and the inner packet cannot be marked (RFC 6040).",
    },
    Reason {
        name: "no_answer",
        help: "The echo request cannot be answered: its source or destination is not a single host, or the chunk has \
               no room.",
    },
];

const REPLY: Gate = Gate::out(1);
const CONTROL: Gate = Gate::out(2);

/// The index in [`CREATES`] of error indications.
const ERROR_INDICATION: usize = 0;
/// The index in [`CREATES`] of supported extension headers notifications.
const SUPPORTED_EXTENSIONS: usize = 1;
const CREATES: &[Reason] = &[
    Reason { name: "error_indication", help: "Sent for a packet of a tunnel that does not exist." },
    Reason {
        name: "supported_extensions",
        help: "Sent for a packet with an unknown extension header that must be understood.",
    },
];

/// The headers of a usual packet: a T-PDU of IPv4 without options, directly above Ethernet. Fields that are compared
/// together form one number.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Plain {
    addresses: [u8; 12],
    /// EtherType; version and header length, traffic class, total length and identification of the outer IPv4 header.
    start: U64,
    /// Flags and fragment offset, time to live, protocol.
    middle: U32,
    checksum: U16,
    source: U32,
    destination: U32,
    source_port: U16,
    destination_port: U16,
    /// UDP's length and checksum; GTP-U's flags and message type, and length.
    end: U64,
    teid: U32,
    inner: Ipv4,
}

/// The bits of [`Plain::start`] that are compared: all except the identification and the upper seven bits of the
/// traffic class. The lowest bit of the traffic class is the bit that [`ecn::is_neutral`] checks.
const START: u64 = 0xffff_ff01_ffff_0000;
/// The bits of [`Plain::middle`] that are compared: the flag "more fragments", the fragment offset and the protocol.
const MIDDLE: u32 = 0x3fff_00ff;
/// The bits of the UDP checksum in [`Plain::end`].
const END_CHECKSUM: u64 = 0xffff << 32;

/// The number of bytes before the inner packet.
const HEADERS: usize = size_of::<Plain>() - size_of::<Ipv4>();
const ETHERNET: usize = size_of::<Ethernet>();

/// The network function `gtpu_decap`.
pub struct GtpuDecap {
    teids: Teids,
    /// The metadata word `teid`.
    word: Word,
    /// The metadata word `uplink_qfi`.
    qfi: Word,
    /// The metadata words for outer addresses, if these are kept.
    addresses: Option<Addresses>,
    local: Local,
    /// The rate limit of error messages.
    bucket: AnswerLimit,
    /// True if outer UDP checksums are verified.
    verify: bool,
}

/// The metadata words for outer addresses.
#[derive(Clone, Copy)]
struct Addresses {
    source: Word,
    destination: Word,
}

impl Addresses {
    /// Writes outer IPv4 addresses, as numbers in host byte order, to the metadata words. Over IPv6, the caller passes
    /// 0.
    #[inline(always)]
    fn keep(self, packet: &mut Packet, source: u32, destination: u32) {
        packet.set_word(self.source, source);
        packet.set_word(self.destination, destination);
    }
}

/// The allowed outer destination addresses.
struct Local {
    /// True if no address is listed. Every address is allowed then.
    any: bool,
    /// The IPv4 addresses, as numbers in host byte order.
    ipv4: Vec<u32>,
    ipv6: Vec<[u8; 16]>,
}

impl Local {
    /// Creates the set of the addresses that the configuration lists.
    fn of(listed: &[AnyEndpoint]) -> Self {
        let mut local = Self { any: listed.is_empty(), ipv4: Vec::new(), ipv6: Vec::new() };
        for AnyEndpoint(address) in listed {
            match address {
                IpAddr::V4(address) => local.ipv4.push(address.to_bits()),
                IpAddr::V6(address) => local.ipv6.push(address.octets()),
            }
        }
        local
    }

    /// Returns true if packets to an IPv4 address, a number in host byte order, are allowed.
    #[inline(always)]
    fn has_ipv4(&self, address: u32) -> bool {
        self.any || self.ipv4.contains(&address)
    }

    fn has(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.has_ipv4(address.to_bits()),
            IpAddr::V6(address) => self.any || self.ipv6.contains(&address.octets()),
        }
    }
}

impl Declare for GtpuDecap {
    type Params = Params;
    const NAME: &'static str = "gtpu_decap";
    const SUMMARY: &'static str = "takes IP packets out of GTP-U tunnels over IPv4 and IPv6";
    const HELP: &'static str = "\
        Gate `0`: the inner IPv4 or IPv6 packets of T-PDUs (3GPP TS 29.281) behind an Ethernet header that has the \
        outer addresses. The metadata word `teid` has their tunnel. The metadata word `uplink_qfi` has the QoS flow of \
        a PDU Session Container, for `upf_uplink`. Other extension headers and optional fields are skipped. A \
        congestion mark of the outer packet is passed on to the inner packet (RFC 6040). Gate `reply`: this module's \
        answers to echo requests, and its error messages. Gate `control`: echo responses, error indications, end \
        markers and notifications that other hosts have sent, unchanged. The sender of a packet in an unknown tunnel \
        gets an Error Indication. The sender of a packet with an unknown extension header that must be understood gets \
        a Supported Extension Headers Notification. At most `errors_per_second` of these two messages are sent. With \
        `keep_addresses: true`, `upf_uplink` can send Error Indications about tunnels that are known here but belong \
        to no session. The outer IPv4 checksum is not checked: to check it, put `ip_validate` before. Fragments are \
        not reassembled.";
    const EXAMPLE: &'static str =
        r#"{ teids: ["0x1000-0x1fff", 7], local: [192.0.2.1, "2001:db8::1"], errors_per_second: 10 }"#;
    const TRAFFIC: &'static str =
        "{ tunnel: { gtpu: { source: 198.18.0.1, destination: 192.0.2.1, teid: 4096, tunnels: 16 } } }";
    const DROPS: &'static [Reason] = DROPS;
    const CREATES: &'static [Reason] = CREATES;
    const WRITES: &'static [&'static str] = &[WORD, QFI_WORD, SOURCE_WORD, DESTINATION_WORD];
    // Each replica has its own rate limit of errors.
    const STATE: StateKind = StateKind::SharedReadOnly;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        const MOST: usize = 8;
        if params.local.len() > MOST {
            return Err(SetupError::not_allowed(
                "local",
                format!("{} addresses", params.local.len()),
                format!("up to {MOST}"),
            ));
        }
        setup.gates(["0", "reply", "control"])?;
        let (word, qfi) = (setup.word(WORD)?, setup.word(QFI_WORD)?);
        let addresses = if params.keep_addresses {
            Some(Addresses { source: setup.word(SOURCE_WORD)?, destination: setup.word(DESTINATION_WORD)? })
        } else {
            None
        };
        Ok(Self {
            teids: Teids::load(&params.teids, setup)?,
            word,
            qfi,
            addresses,
            local: Local::of(&params.local),
            bucket: AnswerLimit::new(params.errors_per_second, setup.frequency()),
            verify: params.verify,
        })
    }
}

impl GtpuDecap {
    /// Unwraps a plain T-PDU if `known` accepts its destination and tunnel. Returns false, and changes nothing, for all
    /// other packets: then [`unusual`](Self::unusual) must process the packet. With `KEEP` the outer addresses are kept
    /// in metadata words.
    #[inline(always)]
    fn usual<const KEEP: bool>(&self, packet: &mut Packet, known: impl Fn(u32, u32) -> bool) -> bool {
        let Some(plain) = packet.view::<Plain>(0) else { return false };
        let len = packet.len() as u64;
        // The packet must have no options and must not be a fragment. Every header must be at its expected offset, and
        // the length in every header must reach exactly to the end of the frame.
        let [ip, udp, inner] = [ETHERNET, ETHERNET + size_of::<Ipv4>(), HEADERS].map(|before| len - before as u64);
        let end = (udp << 48 | u64::from(Gtpu::PLAIN_G_PDU) << 16) + inner;
        // A checksum that is not verified counts as correct.
        let compared = if self.verify { u64::MAX } else { !END_CHECKSUM };
        let teid = plain.teid.get();
        let start = (u64::from(EtherType::IPV4) << 48 | 0x4500 << 32) + (ip << 16);
        if plain.start.get() & START != start
            || plain.middle.get() & MIDDLE != u32::from(ipv4::UDP)
            || plain.destination_port.get() != gtpu::PORT
            || plain.end.get() & compared != end
            || plain.inner.version_ihl != 0x45
            || !known(plain.destination.get(), teid)
        {
            return false;
        }
        let (source, destination) = (plain.source.get(), plain.destination.get());
        // `ethernet` contains the addresses and the EtherType. The inner packet is IPv4 too, so the EtherType stays
        // correct.
        let Some(ethernet) = Start::of(packet) else { return false };
        if !packet.unwrap_to_ipv4(HEADERS - ETHERNET, ETHERNET) {
            return false;
        }
        ethernet.put(packet.data_mut());
        packet.set_word(self.word, teid);
        // If the packet was in another tunnel before, the QoS flow of that tunnel must not remain here.
        packet.set_word(self.qfi, 0);
        if KEEP && let Some(addresses) = self.addresses {
            addresses.keep(packet, source, destination);
        }
        true
    }

    /// Unwraps a plain T-PDU like [`usual`](Self::usual), with the known tunnels and allowed addresses of this module.
    #[inline(always)]
    fn usual_of_any<const KEEP: bool>(&self, packet: &mut Packet) -> bool {
        self.usual::<KEEP>(packet, |destination, teid| self.local.has_ipv4(destination) && self.teids.contains(teid))
    }

    /// Processes any packet and returns its gate. Unwraps T-PDUs that are not plain, answers echo requests, and reports
    /// errors to senders.
    #[cold]
    #[inline(never)]
    fn unusual(&mut self, packet: &mut Packet, context: &mut Context<'_>) -> Gate {
        let datagram = match datagram(packet, gtpu::PORT, self.verify) {
            Ok(datagram) if self.local.has(datagram.destination) => datagram,
            Ok(_) | Err(Fault::Other) => return NOT_GTPU,
            Err(Fault::Fragment) => return FRAGMENT,
            Err(Fault::Length) => return BAD_LENGTH,
            Err(Fault::Checksum) => return BAD_CHECKSUM,
        };
        let bytes = packet.data().get(datagram.payload..datagram.end).unwrap_or_default();
        let Ok(message) = Message::parse(bytes) else { return MALFORMED };
        match message.kind {
            kind::G_PDU => {
                let Message { teid, qfi, not_understood, payload_at, payload, .. } = message;
                let start = datagram.payload + payload_at;
                let end = start + payload.len();
                if !self.teids.contains(teid) {
                    let signal = Signal::ErrorIndication { teid, peer: datagram.destination };
                    self.report_error(packet, &datagram, &signal, ERROR_INDICATION, context);
                    return UNKNOWN_TEID;
                }
                if not_understood.is_some() {
                    self.report_error(packet, &datagram, &Signal::SupportedExtensions, SUPPORTED_EXTENSIONS, context);
                    return UNKNOWN_EXTENSION;
                }
                if !unwrap_ip(packet, start, end) {
                    return NOT_IP;
                }
                packet.set_word(self.word, teid);
                packet.set_word(self.qfi, qfi.map_or(0, |qfi| HAS_QFI | u32::from(qfi)));
                if let Some(addresses) = self.addresses {
                    match (datagram.source, datagram.destination) {
                        (IpAddr::V4(peer), IpAddr::V4(local)) => {
                            addresses.keep(packet, peer.to_bits(), local.to_bits())
                        }
                        _ => addresses.keep(packet, 0, 0),
                    }
                }
                if ecn::pass_on(packet, datagram.class) { Gate::FIRST } else { CONGESTION }
            }
            kind::ECHO_REQUEST => {
                let sequence = message.sequence.unwrap_or(0);
                let answer = Answer::to(packet, &datagram, &Signal::EchoResponse, sequence);
                match answer {
                    Some(answer) if packet.write(answer.frame()) => REPLY,
                    _ => NO_ANSWER,
                }
            }
            kind::ECHO_RESPONSE | kind::ERROR_INDICATION | kind::SUPPORTED_EXTENSIONS | kind::END_MARKER => CONTROL,
            _ => UNKNOWN_MESSAGE,
        }
    }

    /// Sends an error message to the sender of a packet by the gate `reply`, within the rate limit. `reason` is an
    /// index in [`CREATES`]. The packet itself is unchanged: the caller drops it.
    fn report_error(
        &mut self,
        packet: &Packet,
        datagram: &Datagram,
        signal: &Signal,
        reason: usize,
        context: &mut Context<'_>,
    ) {
        let Some(answer) = Answer::to(packet, datagram, signal, 0) else { return };
        // The chunk of this frame must have room for the answer, which may be longer than the frame.
        if packet.len() + packet.tailroom() < answer.frame().len() || !self.bucket.take(context.now()) {
            return;
        }
        if let Some(created) = context.create(reason, REPLY, packet) {
            created.write(answer.frame());
        }
    }

    /// Processes a batch whose outer addresses are kept. It is a separate function, so that it does not slow down
    /// batches whose addresses are not kept.
    #[inline(never)]
    fn process_and_keep(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        if let Some(first) = first_unusual(batch, |packet| self.usual_of_any::<true>(packet)) {
            self.process_from::<true>(first, batch, context);
        }
    }

    /// Processes the rest of a batch. `first` is the index of the first packet that is not plain. Out of line, so that
    /// it does not slow down batches of plain packets.
    #[inline(never)]
    fn process_from<const KEEP: bool>(&mut self, first: usize, batch: &mut [Packet], context: &mut Context<'_>) {
        for (index, packet) in batch.iter_mut().enumerate().skip(first) {
            if index == first || !self.usual_of_any::<KEEP>(packet) {
                let gate = self.unusual(packet, context);
                if gate != Gate::FIRST {
                    context.put(index, gate);
                }
            }
        }
    }
}

impl Function for GtpuDecap {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        if self.addresses.is_some() {
            return self.process_and_keep(batch, context);
        }
        // Nearly all gateways know one range of tunnels: then one comparison per packet suffices.
        let first = match self.teids.only_range() {
            Some(range) if self.local.any => {
                first_unusual(batch, |packet| self.usual::<false>(packet, |_, teid| range.contains(teid)))
            }
            _ => first_unusual(batch, |packet| self.usual_of_any::<false>(packet)),
        };
        if let Some(first) = first {
            self.process_from::<false>(first, batch, context);
        }
    }
}

register!(GtpuDecap);

#[cfg(test)]
mod tests;

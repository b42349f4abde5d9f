//! Takes IP packets out of ESP tunnels: the inbound side of a VPN gateway.

mod associations;
mod window;

use std::net::IpAddr;
use std::sync::Arc;

use forebay_aead::{Aead, TAG};
use forebay_graph::{Context, Declare, Function, Gate, Reader, Reason, Setup, SetupError, StateKind, Table, register};
use forebay_measure::Counter;
use forebay_packet::wire::ipv4::{self, Ipv4};
use forebay_packet::wire::ipv6::{self, Ipv6};
use forebay_packet::{Network, Packet};
use forebay_tunnels::ecn;
use forebay_tunnels::receive::{Fault, datagram, unwrap_ip};
use schemars::JsonSchema;
use serde::Deserialize;
use zerocopy::FromBytes;

use crate::esp::lasting::Lasting;
use crate::esp::line::{Keys, Listed, PATH, name_of};
use crate::esp::{ESP, HEADER, IV, TRAILER, associated, next, nonce};
use crate::settings::Implementation;
use associations::{Associations, Inbounds, Step};
use window::Refused;

/// Parameters of `esp_decrypt`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The security associations: a list, or `{ file: NAME }` with one per line. Each is `SPI key=KEY`, with KEY as
    /// `@FILE` or 40 (AES-128) or 72 (AES-256) hexadecimal digits, the last 8 of which are the salt. Optional words
    /// follow: `peer=ADDRESS` and `local=ADDRESS` (the only outer addresses that are accepted), `for=PREFIX,...` (the
    /// only inner sources that are accepted), `esn`, `soft-packets=N`, `hard-packets=N`, `soft-bytes=N`,
    /// `hard-bytes=N`. Associations can be changed while packets run.
    #[serde(default = "none")]
    associations: Listed,
    /// The size of the window of accepted sequence numbers, which ends with the highest number that has come: 64 to
    /// 4096, by default 1024. Packets with lower numbers are dropped.
    #[serde(default = "window")]
    window: u16,
    /// The UDP destination port of ESP in UDP, such as 4500, if there is a NAT on the way. Without it, only ESP
    /// directly above IP is accepted.
    udp: Option<u16>,
    /// The implementation of AES: `hardware` uses the processor's AES instructions, `software` does without them,
    /// `auto` (the default) is `hardware` if the processor has the instructions and `software` otherwise.
    #[serde(default)]
    backend: Implementation,
}

fn none() -> Listed {
    Listed::List(Vec::new())
}

fn window() -> u16 {
    1_024
}

const NOT_ESP: Gate = Gate::drop(0);
const FRAGMENT: Gate = Gate::drop(1);
const BAD_LENGTH: Gate = Gate::drop(2);
const UNKNOWN_SPI: Gate = Gate::drop(3);
const WRONG_ADDRESS: Gate = Gate::drop(4);
const EXPIRED: Gate = Gate::drop(5);
const REPLAYED: Gate = Gate::drop(6);
const TOO_OLD: Gate = Gate::drop(7);
const FORGED: Gate = Gate::drop(8);
const BAD_PADDING: Gate = Gate::drop(9);
const NOT_IP: Gate = Gate::drop(10);
const WRONG_SOURCE: Gate = Gate::drop(11);
const CONGESTION: Gate = Gate::drop(12);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason { name: "not_esp", help: "The frame is neither IP protocol 50 (ESP) nor UDP to the port `udp`." },
    Reason { name: "fragment", help: "The outer packet is a fragment (RFC 4303 section 3.4.1)." },
    Reason { name: "bad_length", help: "A length contradicts another length, or the packet is too short for ESP." },
    Reason { name: "unknown_spi", help: "No security association has the packet's index (SPI)." },
    Reason { name: "wrong_address", help: "The outer addresses are not those of the security association." },
    Reason { name: "expired", help: "The security association has reached its limit of packets or bytes." },
    Reason { name: "replayed", help: "A packet with this sequence number has already come." },
    Reason { name: "too_old", help: "The sequence number lies before the window." },
    Reason { name: "forged", help: "The packet was not encrypted with the key, or has been changed since." },
    Reason {
        name: "bad_padding",
        help: "The padding bytes are not 1, 2, 3 and so on, or the padding is longer than the packet.",
    },
    Reason { name: "not_ip", help: "The payload is cut short, or is not of the IP version in the trailer." },
    Reason { name: "wrong_source", help: "The security association does not accept the inner source address." },
    Reason {
        name: "congestion",
        help: "The outer packet has met congestion, and the inner packet cannot be marked (RFC 6040).",
    },
];
/// The reasons of consumption. The number of a consuming gate is the index of its reason in this list.
const CONSUMES: &[Reason] = &[
    Reason { name: "dummy", help: "The packet is a dummy packet without payload (RFC 4303 section 2.6)." },
    Reason { name: "keepalive", help: "The packet is a NAT keepalive (RFC 3948 section 2.3)." },
];
const DUMMY: Gate = Gate::consume(0);
const KEEPALIVE: Gate = Gate::consume(1);
const IKE: Gate = Gate::out(1);

/// The network function `esp_decrypt`.
pub struct EspDecrypt {
    associations: Reader<Associations, Vec<Step>>,
    receiver: Receiver,
}

/// The settings, without the associations.
struct Receiver {
    /// The size of the window.
    window: u16,
    /// The destination port of ESP in UDP; `None` if only ESP directly above IP is accepted.
    udp: Option<u16>,
    /// The counter of associations that have reached their soft limit.
    soft: Arc<[Counter]>,
}

/// The location of ESP in a frame, with fields of the outer header.
#[derive(Clone, Copy)]
struct Located {
    /// The offset of the first byte of ESP in the frame.
    start: usize,
    /// The offset after the last byte of ESP.
    end: usize,
    /// The outer traffic class.
    class: u8,
    source: IpAddr,
    destination: IpAddr,
}

impl Declare for EspDecrypt {
    type Params = Params;
    const NAME: &'static str = "esp_decrypt";
    const SUMMARY: &'static str = "takes IP packets out of ESP tunnels, and decrypts them with AES-GCM";
    const HELP: &'static str = "\
        ESP in tunnel mode (RFC 4303) with AES-128-GCM or AES-256-GCM and a tag of 16 bytes (RFC 4106), over IPv4 or \
        IPv6, and in UDP if a port is given (RFC 3948). Gate `0`: the inner IPv4 or IPv6 packets, behind an Ethernet \
        header that has the outer addresses. The security parameters index (SPI) of a packet alone selects its \
        association. A packet whose sequence number has already come, or lies before the window, is dropped before \
        decryption. Only authentic packets move the window. With `esn`, sequence numbers have 64 bits (RFC 4303 \
        appendix A). Padding, next header and the inner packet's length are checked. Padding for traffic flow \
        confidentiality is removed. Dummy packets are consumed. A congestion mark of the outer packet is passed on to \
        the inner packet (RFC 6040). If an association reaches its soft limit, this is counted under `lifetime`. At \
        the hard limit, the association's packets are dropped. Fragments of outer packets are not reassembled. A \
        window belongs to one worker: with several workers, assign the module to one of them. With `udp`, packets of \
        the key exchange (IKE), which begin with four zero bytes, leave by the gate `ike`.";
    const EXAMPLE: &'static str = "\
        { associations: [\"0x1001 key=000102030405060708090a0b0c0d0e0fdeadbeef for=10.60.0.0/16,2001:db8:60::/48 \
        hard-packets=4000000000\"], udp: 4500 }";
    const DROPS: &'static [Reason] = DROPS;
    const CONSUMES: &'static [Reason] = CONSUMES;
    // One worker writes the window of an association, and must see all packets of the association.
    const STATE: StateKind = StateKind::Global;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        if !(window::LEAST..=window::MOST).contains(&params.window) {
            let (least, most) = (window::LEAST, window::MOST);
            return Err(SetupError::not_allowed("window", params.window, format!("{least} to {most}")));
        }
        if params.udp == Some(0) {
            return Err(SetupError::wrong("udp", "0", "0 is not a port", "1 to 65535, such as 4500"));
        }
        let backend = params.backend.backend().resolve();
        let backend = backend.map_err(|error| SetupError::at("backend", error.to_string()))?;
        let keys = Keys { base: setup.base().to_owned(), backend };
        let listed = params.associations.read(&associations::WORDS, &keys, setup, |_| Ok(()))?;
        let inbounds = setup.once_per_module(&name_of(&listed, &format!("{keys:?}")), |setup| {
            let states = Lasting::of("inbound associations", setup)?;
            Inbounds::new(listed, keys, states).map_err(|message| SetupError::at(PATH, message))
        })?;
        if params.udp.is_some() {
            setup.gates(["0", "ike"])?;
        }
        let associations = inbounds.reader();
        setup.table("associations", inbounds as Arc<dyn Table>);
        let soft = setup.counters("lifetime", ["soft".to_owned()]);
        Ok(Self { associations, receiver: Receiver { window: params.window, udp: params.udp, soft } })
    }
}

/// Locates ESP in an IPv4 packet whose header announces it. `ip` is the offset of the header.
fn in_ipv4(packet: &Packet, ip: usize) -> Result<Located, Gate> {
    let bytes = packet.data().get(ip..).ok_or(BAD_LENGTH)?;
    let (header, _) = Ipv4::ref_from_prefix(bytes).map_err(|_| BAD_LENGTH)?;
    if header.is_fragment() {
        return Err(FRAGMENT);
    }
    let start = ip + header.header_len().ok_or(BAD_LENGTH)?;
    let end = ip + usize::from(header.total_length.get());
    let (source, destination) = (header.source.into(), header.destination.into());
    Ok(Located { start, end, class: header.traffic_class, source, destination })
}

/// Locates ESP in an IPv6 packet whose headers announce it. `ip` is the offset of the IPv6 header.
fn in_ipv6(packet: &Packet, ip: usize) -> Result<Located, Gate> {
    let bytes = packet.data().get(ip..).ok_or(BAD_LENGTH)?;
    if ipv6::is_fragment(bytes, 0) {
        return Err(FRAGMENT);
    }
    let (header, _) = Ipv6::ref_from_prefix(bytes).map_err(|_| BAD_LENGTH)?;
    let (_, above) = ipv6::upper_layer(bytes, 0).ok_or(BAD_LENGTH)?;
    let end = ip + size_of::<Ipv6>() + usize::from(header.payload_length.get());
    let class = (header.version_class_label.get() >> 20) as u8;
    Ok(Located { start: ip + above, end, class, source: header.source.into(), destination: header.destination.into() })
}

impl Receiver {
    /// Finds ESP in a frame, or returns the gate of a frame without ESP.
    #[inline(always)]
    fn find(&self, packet: &mut Packet) -> Result<Located, Gate> {
        if let Some((header, room)) = packet.ipv4_and_room() {
            return match header.protocol {
                ESP => in_ipv4(packet, packet.len() - room),
                ipv4::UDP => self.find_in_udp(packet),
                _ => Err(NOT_ESP),
            };
        }
        match packet.network() {
            (Network::Ipv6, ip) => match ipv6::upper_protocol(packet.data().get(ip..).unwrap_or_default(), 0) {
                Some(ESP) => in_ipv6(packet, ip),
                Some(ipv4::UDP) => self.find_in_udp(packet),
                _ => Err(NOT_ESP),
            },
            _ => Err(NOT_ESP),
        }
    }

    /// Finds ESP in a UDP packet, or returns the gate of a packet that is something else.
    fn find_in_udp(&self, packet: &mut Packet) -> Result<Located, Gate> {
        let port = self.udp.ok_or(NOT_ESP)?;
        // The UDP checksum is not checked: NATs may have left it wrong (RFC 3948 section 2.1), and the tag is stronger.
        let found = datagram(packet, port, false).map_err(|fault| match fault {
            Fault::Other | Fault::Checksum => NOT_ESP,
            Fault::Fragment => FRAGMENT,
            Fault::Length => BAD_LENGTH,
        })?;
        match packet.data().get(found.payload..found.end).unwrap_or_default() {
            [0xff] => return Err(KEEPALIVE),
            [0, 0, 0, 0, ..] => return Err(IKE),
            _ => {}
        }
        let (source, destination) = (found.source, found.destination);
        Ok(Located { start: found.payload, end: found.end, class: found.class, source, destination })
    }

    /// Decrypts a packet and takes it out of its tunnel. Returns its gate, which may be the gate of an error. A packet
    /// that is authentic moves the window and counts in the lifetime, even if it is dropped afterwards.
    #[inline(always)]
    fn run(&self, associations: &Associations, packet: &mut Packet) -> Gate {
        let found = match self.find(packet) {
            Ok(found) => found,
            Err(gate) => return gate,
        };
        let Some(whole) = packet.data_mut().get_mut(found.start..found.end) else { return BAD_LENGTH };
        let Some((head, rest)) = whole.split_first_chunk::<HEADER>() else { return BAD_LENGTH };
        // The text (payload, padding and trailer) has a multiple of four bytes (RFC 4303 section 2.4), and at least
        // four.
        let Some(text) = rest.len().checked_sub(IV + TAG).filter(|text| *text >= 4 && text % 4 == 0) else {
            return BAD_LENGTH;
        };
        let [spi, low] =
            [&head[..4], &head[4..]].map(|word| word.iter().fold(0u32, |number, byte| number << 8 | u32::from(*byte)));
        let Some(association) = associations.get(spi) else { return UNKNOWN_SPI };
        if !association.is_between(found.source, found.destination) {
            return WRONG_ADDRESS;
        }
        let (line, keyed, receiving) = (&association.line, &association.keyed, &association.receiving);
        if !receiving.used.allows(&line.limits, text as u64) {
            return EXPIRED;
        }
        let sequence = if line.extended { receiving.window.extend(low, self.window) } else { Some(low.into()) };
        let Some(sequence) = sequence else { return TOO_OLD };
        match receiving.window.check(sequence, self.window) {
            Ok(()) => {}
            Err(Refused::Replayed) => return REPLAYED,
            Err(Refused::TooOld) => return TOO_OLD,
        }
        let (bytes, count) = associated(spi, sequence, line.extended);
        let Some((iv, rest)) = whole[HEADER..].split_first_chunk_mut::<IV>() else { return BAD_LENGTH };
        let Some((text, tag)) = rest.split_last_chunk_mut::<TAG>() else { return BAD_LENGTH };
        if keyed.key.open(&nonce(keyed.salt, *iv), &bytes[..count], text, tag).is_err() {
            return FORGED;
        }
        receiving.window.note(sequence);
        if receiving.used.count(&line.limits, text.len() as u64) {
            self.soft.iter().for_each(|counter| counter.add(1));
        }
        let inside = match inside(text) {
            Ok(inside) => inside,
            Err(gate) => return gate,
        };
        let start = found.start + HEADER + IV;
        if !association.admits(inside.source) {
            return WRONG_SOURCE;
        }
        if !unwrap_ip(packet, start, start + inside.length) {
            return NOT_IP;
        }
        if ecn::pass_on(packet, found.class) { Gate::FIRST } else { CONGESTION }
    }
}

/// The packet inside a tunnel.
struct Inner {
    /// The length of the IP packet, which begins where the text begins.
    length: usize,
    source: IpAddr,
}

/// Checks decrypted text and returns its packet, or the gate of the error. The padding must be correct. The packet must
/// be complete and have the announced type. A dummy packet returns the gate [`DUMMY`].
#[inline(always)]
fn inside(text: &[u8]) -> Result<Inner, Gate> {
    let Some((rest, &[pad, protocol])) = text.split_last_chunk::<TRAILER>() else { return Err(BAD_PADDING) };
    let Some((payload, padding)) = rest.len().checked_sub(pad.into()).map(|at| rest.split_at(at)) else {
        return Err(BAD_PADDING);
    };
    if padding.iter().zip(1u8..).any(|(byte, expected)| *byte != expected) {
        return Err(BAD_PADDING);
    }
    let (length, source) = match (protocol, payload.first().map(|byte| byte >> 4)) {
        (next::NONE, _) => return Err(DUMMY),
        (next::IPV4, Some(4)) => {
            let (header, _) = Ipv4::ref_from_prefix(payload).map_err(|_| NOT_IP)?;
            let length = usize::from(header.total_length.get());
            let least = header.header_len().ok_or(NOT_IP)?;
            (Some(length).filter(|length| *length >= least).ok_or(NOT_IP)?, header.source.into())
        }
        (next::IPV6, Some(6)) => {
            let (header, _) = Ipv6::ref_from_prefix(payload).map_err(|_| NOT_IP)?;
            (size_of::<Ipv6>() + usize::from(header.payload_length.get()), header.source.into())
        }
        _ => return Err(NOT_IP),
    };
    // A payload longer than its packet was padded to hide the packet's length (RFC 4303 section 2.7).
    if length > payload.len() { Err(NOT_IP) } else { Ok(Inner { length, source }) }
}

/// Fuzz entry: asserts that the inner packet lies within the text, for any text.
#[doc(hidden)]
pub fn fuzz_inside(text: &[u8]) {
    if let Ok(Inner { length, .. }) = inside(text) {
        assert!((size_of::<Ipv4>()..=text.len() - TRAILER).contains(&length), "{length} of {}", text.len());
    }
}

impl Function for EspDecrypt {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let Self { associations, receiver } = self;
        let associations = associations.read();
        let associations: &Associations = &associations;
        for (index, packet) in batch.iter_mut().enumerate() {
            let gate = receiver.run(associations, packet);
            if gate != Gate::FIRST {
                context.put(index, gate);
            }
        }
    }
}

register!(EspDecrypt);

#[cfg(test)]
mod tests;

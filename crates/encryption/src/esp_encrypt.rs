//! Puts IP packets into ESP tunnels: the outbound side of a VPN gateway.

mod associations;
mod headers;

use std::sync::Arc;

use forebay_aead::{Aead, Numbers, TAG, Usage};
use forebay_graph::{Context, Declare, Function, Gate, Reader, Reason, Setup, SetupError, StateKind, Table, register};
use forebay_measure::Counter;
use forebay_packet::wire::ethernet::Ethernet;
use forebay_packet::{Network, Packet, Word};
use forebay_tunnels::inside::{Unfit, ip_packet_span};
use forebay_tunnels::settings::{AnyEndpoint, Dscp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::esp::lasting::Lasting;
use crate::esp::line::{Keys, Listed, PATH, name_of};
use crate::esp::{HEADER, IV, TRAILER, associated, next, nonce};
use crate::settings::Implementation;
use crate::source;
use associations::{Associations, Outbound, Outbounds, Step, peer_of};
use headers::{Fragmenting, Headers, InnerFields, Route};

/// Parameters of `esp_encrypt`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The local end of the tunnels: the outer source address. All outer packets have its family, IPv4 or IPv6.
    source: AnyEndpoint,
    /// The security associations: a list, or `{ file: NAME }` with one per line. Each is `SPI key=KEY peer=ADDRESS`,
    /// with KEY as `@FILE` or 40 (AES-128) or 72 (AES-256) hexadecimal digits, the last 8 of which are the salt.
    /// Optional words follow: `for=PREFIX,...` (the inner destinations), `number=N` (with `by`), `udp=4500` (if there
    /// is a NAT on the way), `esn`, `soft-packets=N`, `hard-packets=N`, `soft-bytes=N`, `hard-bytes=N`. Associations
    /// can be changed while packets run.
    #[serde(default = "none")]
    associations: Listed,
    /// The key by which a packet's association is found: `destination` (the default), `tunnel` or `next_hop`. With
    /// `destination`, it is the association whose `for` prefix is the longest that contains the inner destination
    /// address. With `tunnel` or `next_hop`, the metadata word of this name contains the `number` of the association.
    #[serde(default)]
    by: By,
    /// The action for packets without an association: `drop` (the default) or `bypass`, which sends them to the gate
    /// of this name.
    #[serde(default)]
    unmatched: Unmatched,
    /// The implementation of AES: `hardware` uses the processor's AES instructions, `software` does without them,
    /// `auto` (the default) is `hardware` if the processor has the instructions and `software` otherwise.
    #[serde(default)]
    backend: Implementation,
    /// The outer differentiated services code point: `copy` (the default: the inner code point), or 0 to 63.
    #[serde(default)]
    #[schemars(extend("default" = "copy"))]
    dscp: Dscp,
    /// The don't-fragment bit of outer IPv4 packets: `copy` the inner one (the default), `set` or `clear`.
    #[serde(default)]
    df: DontFragment,
    /// The outer time to live or hop limit, 1 to 255.
    #[serde(default = "ttl")]
    ttl: u8,
    /// The largest length of outer packets in bytes: at least 68, over IPv6 at least 1280. Longer packets are dropped.
    /// Without it, the limit is the largest length that the outer header can express.
    mtu: Option<u16>,
    /// The number of bytes to which shorter inner packets are padded, 0 to 9000, so that their length is hidden. With 0
    /// (the default), packets are not padded.
    #[serde(default)]
    pad_to: u16,
}

fn none() -> Listed {
    Listed::List(Vec::new())
}

fn ttl() -> u8 {
    64
}

/// The key by which an association is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
enum By {
    /// The inner destination address.
    #[default]
    Destination,
    /// The metadata word `tunnel`.
    Tunnel,
    /// The metadata word `next_hop`.
    NextHop,
}

/// The action for packets without an association.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
enum Unmatched {
    /// They are dropped.
    #[default]
    Drop,
    /// They leave unchanged.
    Bypass,
}

/// The don't-fragment bit of outer packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
enum DontFragment {
    /// The bit of the inner packet.
    #[default]
    Copy,
    /// The bit is set.
    Set,
    /// The bit is clear.
    Clear,
}

const NOT_IP: Gate = Gate::drop(0);
const TRUNCATED: Gate = Gate::drop(1);
const NO_ASSOCIATION: Gate = Gate::drop(2);
const TOO_LONG: Gate = Gate::drop(3);
const NO_ROOM: Gate = Gate::drop(4);
const EXPIRED: Gate = Gate::drop(5);
const SEQUENCE_OVERFLOW: Gate = Gate::drop(6);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason { name: "not_ip", help: "The frame carries neither IPv4 nor IPv6, or is cut short inside the header." },
    Reason { name: "truncated", help: "The frame ends before the packet that its IP header announces." },
    Reason { name: "no_association", help: "The packet has no security association, and 'unmatched' is 'drop'." },
    Reason { name: "too_long", help: "The outer packet would be longer than `mtu`, or than its header can express." },
    Reason { name: "no_room", help: "The chunk has no room for outer headers, padding and tag." },
    Reason { name: "expired", help: "The security association has reached its limit of packets or bytes." },
    Reason {
        name: "sequence_overflow",
        help: "The security association has used its last sequence number (RFC 4303 section 3.3.3).",
    },
];
const BYPASS: Gate = Gate::out(1);

const ETHERNET: usize = size_of::<Ethernet>();

/// The network function `esp_encrypt`.
pub struct EspEncrypt {
    associations: Reader<Associations, Vec<Step>>,
    sender: Sender,
}

/// The settings and counters, without the associations.
struct Sender {
    headers: Headers,
    /// The source of initialisation vectors.
    numbers: Numbers,
    /// The counter of associations that have reached their soft limit.
    soft: Arc<[Counter]>,
    /// The metadata word with an association's number; `None` if the destination address selects the association.
    word: Option<Word>,
    /// The gate of packets without an association.
    unmatched: Gate,
    /// The largest length of an outer packet, in bytes from its IP header on.
    most: usize,
    /// The least length of the text before its trailer, in bytes.
    pad_to: usize,
}

impl Declare for EspEncrypt {
    type Params = Params;
    const NAME: &'static str = "esp_encrypt";
    const SUMMARY: &'static str = "encrypts IP packets with AES-GCM, and puts them into ESP tunnels";
    const HELP: &'static str = "\
        ESP in tunnel mode (RFC 4303) with AES-128-GCM or AES-256-GCM and a tag of 16 bytes (RFC 4106). The Ethernet \
        header, VLAN tags and padding are removed, and the IPv4 or IPv6 packet is encrypted in place. New headers are \
        put before it: Ethernet, IPv4 or IPv6, UDP if requested (RFC 3948), and ESP. ESP's padding and the tag are put \
        after it. The new Ethernet header has the addresses of the old one: to write others, put `mac_rewrite` after \
        this module. Sequence numbers begin with 1. With `esn` they have 64 bits, of which 32 are sent (RFC 4303 \
        section 2.2.1). After the last number no packet leaves. If several associations match a packet, the one added \
        last is used, so that keys change without a pause. If an association reaches its soft limit, this is counted \
        under `lifetime`. At the hard limit, the association's packets are dropped. Initialisation vectors come from \
        one counter of the process. It starts at the time of day, so that no vector is used twice if a restarted \
        process uses the same key. Sequence numbers begin with 1 again when the process restarts: the peer then takes \
        packets for replayed ones until it gets a new association. Traffic class and congestion notification are \
        copied (RFC 4301 section 5.1.2, RFC 6040). Fragments are encrypted as they are. The inner time to live is not \
        changed: the function `ttl` decrements it. Packets that become too long are dropped; no ICMP message is sent. \
        An association's numbers belong to one worker: with several workers, assign the module to one of them, or \
        split the prefixes among modules. With `unmatched: bypass`, packets without an association leave by the gate \
        `bypass`.";
    const EXAMPLE: &'static str = "\
        { source: 192.0.2.1, associations: [\"0x1001 key=000102030405060708090a0b0c0d0e0fdeadbeef peer=192.0.2.10 \
        for=10.60.0.0/16,2001:db8:60::/48 hard-packets=4000000000\"], mtu: 1500 }";
    const TRAFFIC: &'static str = "{ destination: 10.60.0.0/16 }";
    const DROPS: &'static [Reason] = DROPS;
    const READS: &'static [&'static str] = &["tunnel", "next_hop"];
    // One worker encrypts all packets, so that sequence numbers increase in the order in which the packets leave.
    const STATE: StateKind = StateKind::Global;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let AnyEndpoint(own) = params.source;
        if params.ttl == 0 {
            return Err(SetupError::wrong("ttl", "0", "with 0 the first router drops the packet", "1 to 255"));
        }
        let least = if own.is_ipv6() { 1_280 } else { 68 };
        if let Some(mtu) = params.mtu.filter(|mtu| *mtu < least) {
            return Err(SetupError::not_allowed("mtu", mtu, format!("{least} to 65535")));
        }
        if params.pad_to > 9_000 {
            return Err(SetupError::not_allowed("pad_to", params.pad_to, "0 to 9000"));
        }
        let backend = params.backend.backend().resolve();
        let backend = backend.map_err(|error| SetupError::at("backend", error.to_string()))?;
        let keys = Keys { base: setup.base().to_owned(), backend };
        let six = own.is_ipv6();
        let listed =
            params.associations.read(&associations::WORDS, &keys, setup, |line| peer_of(line, six).map(drop))?;
        let outbounds = setup.once_per_module(&name_of(&listed, &format!("{keys:?} {six}")), |setup| {
            let states = Lasting::of("outbound associations", setup)?;
            Outbounds::new(listed, keys, six, states).map_err(|message| SetupError::at(PATH, message))
        })?;
        let word = match params.by {
            By::Destination => None,
            By::Tunnel => Some(setup.word("tunnel")?),
            By::NextHop => Some(setup.word("next_hop")?),
        };
        let (unmatched, gates) = match params.unmatched {
            Unmatched::Drop => (NO_ASSOCIATION, &["0"][..]),
            Unmatched::Bypass => (BYPASS, &["0", "bypass"][..]),
        };
        setup.gates(gates.iter().copied())?;
        let fragmenting = match params.df {
            DontFragment::Copy => Fragmenting::Copied,
            DontFragment::Set => Fragmenting::Never,
            DontFragment::Clear => Fragmenting::Allowed,
        };
        let associations = outbounds.reader();
        setup.table("associations", outbounds as Arc<dyn Table>);
        let sender = Sender {
            headers: Headers::new(own, params.dscp, params.ttl, fragmenting, setup)?,
            numbers: Numbers::new(source(setup)?, Arc::new(Usage::default()), u64::MAX),
            soft: setup.counters("lifetime", ["soft".to_owned()]),
            word,
            unmatched,
            most: usize::from(params.mtu.unwrap_or(u16::MAX)),
            pad_to: params.pad_to.into(),
        };
        Ok(Self { associations, sender })
    }
}

impl Sender {
    /// Encrypts a packet, puts it into its tunnel and returns [`Gate::FIRST`], or returns the gate of the error and
    /// leaves the packet unchanged. `headers.begin` must have been called for the batch.
    #[inline(always)]
    fn run(&mut self, associations: &Associations, packet: &mut Packet) -> Gate {
        let (start, length) = match ip_packet_span(packet) {
            Ok(span) => span,
            Err(Unfit::NotIp) => return NOT_IP,
            Err(Unfit::Truncated) => return TRUNCATED,
        };
        let (inner, protocol, association) = match packet.network().0 {
            Network::Ipv4 => {
                let Some(header) = packet.ipv4() else { return NOT_IP };
                let inner =
                    InnerFields { class: header.traffic_class, whole: header.flags_fragment.get() & 0x4000 != 0 };
                let to = u32::from_be_bytes(header.destination);
                (inner, next::IPV4, self.find(associations, packet, |all| all.for_ipv4(to)))
            }
            _ => {
                let Some(header) = packet.ipv6() else { return NOT_IP };
                let class = (header.version_class_label.get() >> 20) as u8;
                let to = u128::from_be_bytes(header.destination);
                let inner = InnerFields { class, whole: true };
                (inner, next::IPV6, self.find(associations, packet, |all| all.for_ipv6(to)))
            }
        };
        let Some(association) = association else { return self.unmatched };
        self.encrypt(packet, (start, length), (inner, protocol), association)
    }

    /// Returns the association of a packet. `by_address` looks it up by the destination.
    #[inline(always)]
    fn find<'a>(
        &self,
        associations: &'a Associations,
        packet: &Packet,
        by_address: impl FnOnce(&'a Associations) -> Option<&'a Outbound>,
    ) -> Option<&'a Outbound> {
        match self.word {
            None => by_address(associations),
            Some(word) => associations.for_number(packet.word(word)),
        }
    }

    /// Encrypts the IP packet of `length` bytes at `start` with an association. Uses a sequence number only after all
    /// checks that can fail.
    #[inline(always)]
    fn encrypt(
        &mut self,
        packet: &mut Packet,
        (start, length): (usize, usize),
        (inner, protocol): (InnerFields, u8),
        association: &Outbound,
    ) -> Gate {
        let Outbound { line, keyed, peer, sending } = association;
        let route = Route { peer: *peer, udp: line.udp };
        // First, the text is padded to hide its length (traffic flow confidentiality, RFC 4303 section 2.7). Then it is
        // padded to a multiple of four bytes (section 2.4).
        let fixed = route.before() + HEADER + IV + TAG;
        let flat = self.pad_to.min(self.most.saturating_sub(fixed + TRAILER + 3)).max(length);
        let text = (flat + TRAILER).next_multiple_of(4);
        if fixed + text > self.most {
            return TOO_LONG;
        }
        let (before, behind) = (ETHERNET + route.before() + HEADER + IV, text - length + TAG);
        // The bytes of the frame before and after the IP packet also count as room, because they are removed.
        if packet.headroom() + start < before || packet.tailroom() + packet.len() - (start + length) < behind {
            return NO_ROOM;
        }
        if !sending.used.allows(&line.limits, length as u64) {
            return EXPIRED;
        }
        let Some(number) = self.numbers.take() else { return EXPIRED };
        let Some(sequence) = sending.next(association.last()) else { return SEQUENCE_OVERFLOW };
        let Some(macs) = packet.data().first_chunk::<12>().copied() else { return NOT_IP };
        packet.truncate(start + length);
        packet.strip(start);
        let pad = text - flat - TRAILER;
        let grown = packet.append(behind).map(|tail| {
            let (padding, rest) = tail.split_at_mut(flat - length + pad);
            padding.fill(0);
            // The padding bytes are 1, 2, 3 and so on (RFC 4303 section 2.4).
            padding.iter_mut().rev().take(pad).rev().zip(1..).for_each(|(byte, value)| *byte = value);
            (rest[0], rest[1]) = (pad as u8, protocol);
        });
        if grown.is_none() || packet.prepend(before).is_none() {
            return NO_ROOM;
        }
        let iv = number.to_be_bytes();
        let (bytes, count) = associated(line.spi, sequence, line.extended);
        let Some(payload) = packet.data_mut().get_mut(before..) else { return NO_ROOM };
        let Some((text, tag)) = payload.split_last_chunk_mut::<TAG>() else { return NO_ROOM };
        *tag = keyed.key.seal(&nonce(keyed.salt, iv), &bytes[..count], text);
        self.headers.write(packet, macs, inner, route, (line.spi, sequence as u32, iv));
        if sending.used.count(&line.limits, length as u64) {
            self.soft.iter().for_each(|counter| counter.add(1));
        }
        Gate::FIRST
    }
}

impl Function for EspEncrypt {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let Self { associations, sender } = self;
        let associations = associations.read();
        let associations: &Associations = &associations;
        sender.headers.begin(batch.len());
        for (index, packet) in batch.iter_mut().enumerate() {
            let gate = sender.run(associations, packet);
            if gate != Gate::FIRST {
                context.put(index, gate);
            }
        }
    }
}

register!(EspEncrypt);

#[cfg(test)]
mod tests;

//! `icmp_error`: sends ICMP errors (RFC 792, RFC 1812 section 4.3) and ICMPv6 errors (RFC 4443) to the senders of
//! rejected packets.
//!
//! A function that rejects packets can send them to a separate gate (`ttl: { expired: gate }`). This function turns
//! each rejected packet into the error about this packet, in the chunk of the packet. So errors need no additional
//! memory, whatever their number is. The errors go back to the senders and are routed like other packets.

use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_measure::Counter;
use forebay_packet::{Network, Packet, Word};
use forebay_units::Ticks;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::interface::Interface;
use forebay_tables::answer_limit::AnswerLimit;

mod message;

/// The metadata word with the number of the interface by which a packet came.
use crate::interface_in::WORD;

/// Parameters of `icmp_error`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The names of states `interface`, whose addresses are the sources of errors. If there are several, the metadata
    /// word `interface` of a packet selects the interface by its number. If no interface has this number, the first
    /// interface of the list is used.
    interfaces: Vec<String>,
    /// The type of error: `time_exceeded`, `no_route`, `host_unreachable`, `port_unreachable`, `prohibited`, `too_big`
    /// or `reassembly_time_exceeded`.
    error: ErrorType,
    /// With `too_big`: the maximum length of packets, 68 to 65535 bytes including the IP header.
    #[schemars(range(min = 68, max = 65_535))]
    mtu: Option<u16>,
    /// Maximum number of errors a second, 100 by default. After a pause, this number may be sent at once. With 0, none
    /// are sent.
    #[serde(default = "hundred")]
    errors_per_second: u32,
}

fn hundred() -> u32 {
    100
}

/// The type of error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ErrorType {
    /// The time to live or hop limit is exceeded.
    TimeExceeded,
    /// There is no route to the destination.
    NoRoute,
    /// The destination does not answer on its link.
    HostUnreachable,
    /// No program listens at the port.
    PortUnreachable,
    /// A filter prohibits the packet.
    Prohibited,
    /// The packet is too long for the next link and may not be fragmented.
    TooBig,
    /// Not all fragments came in time.
    ReassemblyTimeExceeded,
}

const NO_ERROR: Gate = Gate::drop(0);
const LIMITED: Gate = Gate::drop(1);
const NO_SOURCE: Gate = Gate::drop(2);
const NO_ROOM: Gate = Gate::drop(3);
const NOT_IP: Gate = Gate::drop(4);
const BAD_HEADER: Gate = Gate::drop(5);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason {
        name: "error_not_allowed",
        help: "The packet is an ICMP error, a later IPv4 fragment or a packet to a group, or its headers cannot be \
               read to their end, or its source is not the address of a single host.",
    },
    Reason { name: "limited", help: "The limit of errors a second is reached." },
    Reason { name: "no_source", help: "No interface has an address of the packet's IP version." },
    Reason { name: "no_room", help: "The chunk has no room for the error's headers." },
    Reason { name: "not_ip", help: "The frame carries neither IPv4 nor IPv6." },
    Reason { name: "bad_header", help: "The IP header is invalid, so the sender is not known." },
];

/// The network function `icmp_error`.
pub struct IcmpError {
    /// The interfaces whose addresses are sources of errors, at least one.
    interfaces: Vec<Arc<Interface>>,
    /// The metadata word with the number of the interface; `None` if there is only one interface.
    word: Option<Word>,
    types: ErrorTypes,
    /// The rate limit of errors.
    bucket: AnswerLimit,
    /// The numbers of errors that were sent: about IPv4 packets, and about IPv6 packets.
    counts: Arc<[Counter]>,
}

/// The types and codes of the error, and the MTU in the message.
#[derive(Clone, Copy, Debug)]
struct ErrorTypes {
    /// The ICMP type and code.
    v4: (u8, u8),
    /// The ICMPv6 type and code.
    v6: (u8, u8),
    /// The MTU in the message; 0 for all errors except `too_big`.
    mtu: u16,
    /// True if errors are also sent about IPv6 packets to groups. This holds for Packet Too Big, because path MTU
    /// discovery works for groups (RFC 4443 section 2.4 e.3).
    groups_v6: bool,
}

impl ErrorTypes {
    /// Returns the types and codes of RFC 792, RFC 1812 sections 4.3.3 and 5.2.7, and RFC 4443 section 3.
    fn of(error: ErrorType, mtu: u16) -> Self {
        let (v4, v6) = match error {
            ErrorType::TimeExceeded => ((11, 0), (3, 0)),
            ErrorType::ReassemblyTimeExceeded => ((11, 1), (3, 1)),
            ErrorType::NoRoute => ((3, 0), (1, 0)),
            ErrorType::HostUnreachable => ((3, 1), (1, 3)),
            ErrorType::PortUnreachable => ((3, 3), (1, 4)),
            ErrorType::Prohibited => ((3, 13), (1, 1)),
            ErrorType::TooBig => ((3, 4), (2, 0)),
        };
        Self { v4, v6, mtu, groups_v6: error == ErrorType::TooBig }
    }
}

impl Declare for IcmpError {
    type Params = Params;
    const NAME: &'static str = "icmp_error";
    const SUMMARY: &'static str = "turns rejected packets into ICMP and ICMPv6 errors";
    const HELP: &'static str = "\
        Replaces each packet by an ICMP error about it. The error is sent from the address of the interface by which \
        the packet came, to the packet's sender. After this module, a module such as `ip_lookup` finds the route to \
        the sender, and `interface_out` the Ethernet address. An IPv4 error has at most 576 bytes including the quoted \
        packet (RFC 1812 section 4.3.2.3), an IPv6 error at most 1280 bytes (RFC 4443). No error is sent about ICMP \
        errors, later fragments of IPv4, packets to multicast or broadcast addresses of any layer, and packets whose \
        source is not the address of a single host (RFC 1122 section 3.2.2, RFC 4443 section 2.4 e). RFC 4443 allows \
        errors about later fragments of IPv6, and allows Packet Too Big also about IPv6 multicast: these errors are \
        sent. An IPv6 packet whose extension headers cannot be read to their end may be an ICMP error itself, so no \
        error is sent about it. Packets about which no error is sent are dropped as `error_not_allowed`. A token \
        bucket limits the errors (RFC 4443 section 2.4 f). Packets come to this module from gates that a configuration \
        must request: `ttl: { expired: gate }`, `acl: { denied: gate }`, `mtu: { too_big: gate }`, `interface_out: { \
        unreachable: gate }`, and `ip_lookup` with a `miss` gate.";
    const EXAMPLE: &'static str = "{ interfaces: [interface], error: time_exceeded, errors_per_second: 1000 }";
    const TRAFFIC: &'static str = "{}";
    const DROPS: &'static [Reason] = DROPS;
    const READS: &'static [&'static str] = &[WORD];
    // Each replica has its own limit of errors.
    const STATE: StateKind = StateKind::SharedReadOnly;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        if !(1..=64).contains(&params.interfaces.len()) {
            return Err(SetupError::not_allowed(
                "interfaces",
                format!("{} interfaces", params.interfaces.len()),
                "1 to 64",
            ));
        }
        let mut interfaces: Vec<Arc<Interface>> = Vec::new();
        for (index, name) in params.interfaces.iter().enumerate() {
            let path = format!("interfaces[{index}]");
            let interface = setup.state::<Interface>(&path, name)?;
            let alike = |it: &Arc<Interface>| it.number.is_some() && it.number == interface.number;
            if let (Some(other), Some(number)) = (interfaces.iter().position(alike), interface.number) {
                let wrong = format!("'{}' and '{name}' both have the number {number}", params.interfaces[other]);
                return Err(SetupError::with_hint(path, wrong, "give each interface its own number"));
            }
            interfaces.push(interface);
        }
        let mtu = match (params.error, params.mtu) {
            (ErrorType::TooBig, Some(mtu)) if mtu >= 68 => mtu,
            (ErrorType::TooBig, Some(mtu)) => {
                return Err(SetupError::not_allowed("mtu", mtu, "68 to 65535 bytes"));
            }
            (ErrorType::TooBig, None) => {
                return Err(SetupError::with_hint(
                    "mtu",
                    "missing",
                    "set the maximum length of packets for `error: too_big`, such as 1500",
                ));
            }
            (_, None) => 0,
            (_, Some(mtu)) => {
                let wrong = format!("{mtu} is for `error: too_big` only");
                return Err(SetupError::with_hint("mtu", wrong, "leave out `mtu`, or set `error: too_big`"));
            }
        };
        let word = if interfaces.len() > 1 { Some(setup.word(WORD)?) } else { None };
        Ok(Self {
            interfaces,
            word,
            types: ErrorTypes::of(params.error, mtu),
            bucket: AnswerLimit::new(params.errors_per_second, setup.frequency()),
            counts: setup.counters("errors", ["IPv4", "IPv6"].map(str::to_owned)),
        })
    }
}

impl IcmpError {
    /// Returns the interface whose address is the source of the error about a packet.
    fn interface(&self, packet: &Packet) -> &Interface {
        let number = self.word.map(|word| packet.word(word));
        let by_number = number.and_then(|number| self.interfaces.iter().find(|it| it.number == Some(number)));
        // The list is not empty: `new` has checked this.
        by_number.unwrap_or(&self.interfaces[0])
    }

    /// Turns a packet into the error about it, or returns the gate of a packet without an error.
    fn make_error(&mut self, packet: &mut Packet, now: Ticks) -> Gate {
        let (network, start) = packet.network();
        let refused = match network {
            Network::Ipv4 => self.refuses_v4(packet, start),
            Network::Ipv6 => self.refuses_v6(packet, start),
            Network::Other => Some(NOT_IP),
        };
        if let Some(gate) = refused {
            return gate;
        }
        if !self.bucket.take(now) {
            return LIMITED;
        }
        let (gate, count) = match network {
            Network::Ipv4 => (self.make_v4(packet, start), 0),
            _ => (self.make_v6(packet, start), 1),
        };
        if gate == Gate::FIRST {
            self.counts[count].add(1);
        }
        gate
    }
}

impl Function for IcmpError {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let now = context.now();
        for (index, packet) in batch.iter_mut().enumerate() {
            let gate = self.make_error(packet, now);
            if gate != Gate::FIRST {
                context.put(index, gate);
            }
        }
    }
}

register!(IcmpError);

#[cfg(test)]
mod tests;

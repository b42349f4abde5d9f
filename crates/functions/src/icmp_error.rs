//! Tells senders why their packets went no further: ICMP (RFC 792, RFC 1812 section 4.3) and ICMPv6 (RFC 4443) errors.
//!
//! Who rejects packets puts them on a gate of its own where it is asked to (`ttl: { expired: gate }`), and here each becomes the
//! error about itself, in its own chunk: so an error takes no memory, whatever the flood. Errors are for the way back, and find it
//! as all packets do, through a router.

use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_measure::Counter;
use forebay_packet::{Network, Packet, Word};
use forebay_units::Ticks;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::interface::Interface;
use crate::tunnel::bucket::Bucket;

mod message;

/// The metadata word that says by which interface a packet came.
use crate::interface_in::WORD;

/// Parameters of `icmp_error`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The names of states of the kind `interface`, whose addresses errors come from: where there are several, that of the number
    /// in the metadata word `interface`, or else the first.
    interfaces: Vec<String>,
    /// What is told: `time_exceeded`, `no_route`, `host_unreachable`, `port_unreachable`, `prohibited`, `too_big` or
    /// `reassembly_time_exceeded`.
    error: Kind,
    /// With `too_big`: how long packets may be, 68 to 65535 bytes from the IP header on.
    mtu: Option<u16>,
    /// How many errors are sent a second, and as many at once after a pause; 100 by default, 0 for none.
    #[serde(default = "hundred")]
    errors_per_second: u32,
}

fn hundred() -> u32 {
    100
}

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// The time to live or hop limit is over.
    TimeExceeded,
    /// No route goes to the destination.
    NoRoute,
    /// The destination does not answer on its link.
    HostUnreachable,
    /// Nobody listens at the port.
    PortUnreachable,
    /// It is not allowed.
    Prohibited,
    /// The packet is too long for the next link, and may not be made shorter.
    TooBig,
    /// Not all fragments came in time.
    ReassemblyTimeExceeded,
}

const NOT_TOLD: Gate = Gate::drop(0);
const LIMITED: Gate = Gate::drop(1);
const NO_SOURCE: Gate = Gate::drop(2);
const NO_ROOM: Gate = Gate::drop(3);
const NOT_IP: Gate = Gate::drop(4);
const BAD_HEADER: Gate = Gate::drop(5);
const DROPS: &[Reason] = &[
    Reason {
        name: "not_told",
        help: "No error is sent about an error, a later IPv4 fragment, a group's packet, a packet whose headers cannot \
               be read to their end, or to an address that is no single host's.",
    },
    Reason { name: "limited", help: "More packets were rejected than are told of a second." },
    Reason { name: "no_source", help: "No interface has an address of the packet's family." },
    Reason { name: "no_room", help: "The chunk has no room for the error's headers." },
    Reason { name: "not_ip", help: "The frame carries neither IPv4 nor IPv6." },
    Reason { name: "bad_header", help: "The IP header is not sound: who sent the packet is not known." },
];

/// The function.
pub struct IcmpError {
    interfaces: Vec<Arc<Interface>>,
    word: Option<Word>,
    told: Told,
    bucket: Bucket,
    counts: Arc<[Counter]>,
}

/// Types and codes, and what is in the message's second word.
#[derive(Clone, Copy, Debug)]
struct Told {
    v4: (u8, u8),
    v6: (u8, u8),
    mtu: u16,
    /// Packet Too Big is told of packets to groups, too: path MTU discovery works for them (RFC 4443 section 2.4 e.3).
    groups_v6: bool,
}

impl Told {
    /// RFC 792 and RFC 1812 sections 4.3.3 and 5.2.7; RFC 4443 section 3.
    fn of(kind: Kind, mtu: u16) -> Self {
        let (v4, v6) = match kind {
            Kind::TimeExceeded => ((11, 0), (3, 0)),
            Kind::ReassemblyTimeExceeded => ((11, 1), (3, 1)),
            Kind::NoRoute => ((3, 0), (1, 0)),
            Kind::HostUnreachable => ((3, 1), (1, 3)),
            Kind::PortUnreachable => ((3, 3), (1, 4)),
            Kind::Prohibited => ((3, 13), (1, 1)),
            Kind::TooBig => ((3, 4), (2, 0)),
        };
        Self { v4, v6, mtu, groups_v6: kind == Kind::TooBig }
    }
}

impl Declare for IcmpError {
    type Params = Params;
    const NAME: &'static str = "icmp_error";
    const SUMMARY: &'static str = "makes ICMP and ICMPv6 errors of packets that others rejected";
    const HELP: &'static str = "\
        Each packet becomes the error about itself, from the address of the interface that it came by, to its sender; a router \
        behind finds the way and `interface_out` the Ethernet address. An error of IPv4 quotes as much as 576 bytes hold \
        (RFC 1812 section 4.3.2.3), one of IPv6 as much as 1280 (RFC 4443). None is made about ICMP \
        errors, later fragments of IPv4, packets to multicast or broadcast addresses of any layer, and packets from an \
        address that is no single host's (RFC 1122 section 3.2.2, RFC 4443 section 2.4 e). Later fragments of IPv6 are \
        answered: RFC 4443 does not except them. Packet Too Big is sent about IPv6 multicast, too. An IPv6 packet \
        whose extension headers cannot be read to their end may be an error, and none is made about it. These \
        packets are dropped as `not_told`. Errors are limited by a token bucket (RFC 4443 section 2.4 f). Packets \
        get here by gates that exist where they are asked for: `ttl: { expired: gate }`, `acl: { denied: gate }`, \
        `mtu: { too_big: gate }`, `interface_out: { unreachable: gate }`, and `ip_lookup` with a `miss` of its \
        own.";
    const EXAMPLE: &'static str = "{ interfaces: [interface], error: time_exceeded, errors_per_second: 1000 }";
    const TRAFFIC: &'static str = "{}";
    const DROPS: &'static [Reason] = DROPS;
    const READS: &'static [&'static str] = &[WORD];
    // The rate of errors is each replica's own.
    const STATE: StateKind = StateKind::SharedReadOnly;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        if !(1..=64).contains(&params.interfaces.len()) {
            let message = format!("{} interfaces: allowed are 1 to 64", params.interfaces.len());
            return Err(SetupError::at("interfaces", message));
        }
        let mut interfaces: Vec<Arc<Interface>> = Vec::new();
        for (index, name) in params.interfaces.iter().enumerate() {
            let place = format!("interfaces[{index}]");
            let interface = setup.state::<Interface>(&place, name)?;
            let alike = |it: &Arc<Interface>| it.number.is_some() && it.number == interface.number;
            if let (Some(other), Some(number)) = (interfaces.iter().position(alike), interface.number) {
                let message =
                    format!("'{}' and '{name}' have the number {number}: give each its own", params.interfaces[other]);
                return Err(SetupError::at(place, message));
            }
            interfaces.push(interface);
        }
        let mtu = match (params.error, params.mtu) {
            (Kind::TooBig, Some(mtu)) if mtu >= 68 => mtu,
            (Kind::TooBig, Some(mtu)) => {
                return Err(SetupError::at("mtu", format!("{mtu}: allowed are 68 to 65535 bytes")));
            }
            (Kind::TooBig, None) => {
                return Err(SetupError::at("mtu", "it is missing: 'too_big' says how long packets may be"));
            }
            (_, None) => 0,
            (_, Some(_)) => return Err(SetupError::at("mtu", "it is told with 'error: too_big' only")),
        };
        let word = if interfaces.len() > 1 { Some(setup.word(WORD)?) } else { None };
        Ok(Self {
            interfaces,
            word,
            told: Told::of(params.error, mtu),
            bucket: Bucket::new(params.errors_per_second, setup.frequency()),
            counts: setup.counters("errors", ["IPv4", "IPv6"].map(str::to_owned)),
        })
    }
}

impl IcmpError {
    /// The interface that speaks of a packet.
    fn interface(&self, packet: &Packet) -> &Interface {
        let number = self.word.map(|word| packet.word(word));
        let by_number = number.and_then(|number| self.interfaces.iter().find(|it| it.number == Some(number)));
        // There is one at least.
        by_number.unwrap_or(&self.interfaces[0])
    }

    fn tell(&mut self, packet: &mut Packet, now: Ticks) -> Gate {
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
            Network::Ipv4 => (self.tell_v4(packet, start), 0),
            _ => (self.tell_v6(packet, start), 1),
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
            let gate = self.tell(packet, now);
            if gate != Gate::FIRST {
                context.put(index, gate);
            }
        }
    }
}

register!(IcmpError);

#[cfg(test)]
mod tests;

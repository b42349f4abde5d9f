//! `static_nat`: translates IPv4 addresses prefix by prefix.

mod mappings;
mod quoted;
mod side;
mod table;
use crate::undecidable::HIDES_ADDRESSES;

use std::sync::Arc;

use forebay_graph::effect::{Edit, Effect, rewrite_ipv4_address};
use forebay_graph::{
    Context, Declare, Fold, Function, Gate, PerBranch, Reader, Reason, Setup, SetupError, StateKind, register,
};
use forebay_packet::wire::ipv4::ICMP;
use forebay_packet::{Network, Packet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use mappings::Mapping;
use mappings::Mappings;
use table::MappingChange;
pub use table::{StateParams, StaticMappings};

/// Parameters of `static_nat`. Give the mappings either here or in a state.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// `out` translates sources from inside to outside. `in` translates destinations back.
    direction: Direction,
    /// The mappings. Prefixes of one side may not overlap.
    mappings: Option<Vec<Mapping>>,
    /// The name of a state `static_mappings`, which both directions can share.
    state: Option<String>,
    /// Action for IPv4 packets without a mapping: `pass` (the default) or `drop`.
    #[serde(default)]
    unmatched: Unmatched,
}

/// Direction of packets.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Direction {
    /// From inside to outside.
    Out,
    /// From outside to inside.
    In,
}

/// Action for IPv4 packets without a mapping.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Unmatched {
    /// Passes them unchanged.
    #[default]
    Pass,
    /// Drops them as `unmatched`.
    Drop,
}

// The gates of the drop reasons. The numbers are the indices in `DROPS`.
const UNMATCHED: Gate = Gate::drop(0);
const UNDECIDABLE: Gate = Gate::drop(1);
const DROPS: &[Reason] = &[
    Reason { name: "unmatched", help: "The packet's address has no mapping, and `unmatched` is `drop`." },
    Reason { name: "undecidable", help: HIDES_ADDRESSES },
];

/// The network function `static_nat`.
pub struct StaticNat {
    mappings: Reader<Mappings, Vec<MappingChange>>,
    translator: Translator,
}

/// The direction of translation, and the gate for addresses without a mapping.
#[derive(Clone, Copy)]
struct Translator {
    direction: Direction,
    unmatched: Gate,
}

impl Declare for StaticNat {
    type Params = Params;
    const NAME: &'static str = "static_nat";
    const SUMMARY: &'static str = "translates IPv4 addresses prefix by prefix";
    const HELP: &'static str = "\
        Static translation of RFC 3022 (basic NAT, fixed assignment): the prefix is replaced and the host bits stay, \
        so each inside address has one outside address. With `direction: out` the source is translated, with \
        `direction: in` the destination. The two translations reverse each other. The checksums of the IPv4 header and \
        of TCP, UDP, UDP-Lite and DCCP are updated by the difference (RFC 1624 equation 3). A UDP checksum of 0, which \
        means that there is none, stays 0. Every fragment is translated. Only the first fragment has a transport \
        checksum to update. The packet that an ICMP error quotes is translated too, except in redirects (RFC 3022 \
        section 4.3). Other ICMP messages contain no address. Addresses in payloads (FTP, SIP) are not translated. An \
        authentication header covers the addresses: a receiver refuses the translated packet (RFC 3715 section 2.1). \
        IPv6 packets and frames that are not IP pass unchanged. A frame is dropped as `undecidable` if it may be IP, \
        but its IP header is behind more than 4 VLAN tags or cannot be read.";
    const EXAMPLE: &'static str = "{ direction: out, mappings: [{ inside: 10.0.0.0/24, outside: 192.0.2.0/24 }] }";
    const TRAFFIC: &'static str = "{ source: 10.0.0.0/24 }";
    const DROPS: &'static [Reason] = DROPS;
    const STATE: StateKind = StateKind::SharedReadOnly;
    const FOLD: Option<Fold<Self>> = Some(|branches| Box::new(Folded(PerBranch::new(branches))));
    const EFFECT: bool = true;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let mappings = match (params.mappings, params.state) {
            (Some(mappings), None) => {
                let key = format!("mappings {}", serde_json::to_string(&mappings).unwrap_or_default());
                setup.once_per_module(&key, |_| StaticMappings::of(&mappings))?
            }
            (None, Some(name)) => setup.state::<StaticMappings>("state", &name)?,
            _ => return Err(SetupError::new("give either 'mappings' or the name of a 'state' that has them")),
        };
        let unmatched = if params.unmatched == Unmatched::Drop { UNMATCHED } else { Gate::FIRST };
        let translator = Translator { direction: params.direction, unmatched };
        let reader = mappings.reader();
        setup.table("mappings", mappings as Arc<dyn forebay_graph::Table>);
        Ok(Self { mappings: reader, translator })
    }
}

/// Returns the gate for a packet without a readable IPv4 header.
#[cold]
#[inline(never)]
fn not_ipv4(packet: &mut Packet) -> Gate {
    if packet.hides_network() { UNDECIDABLE } else { Gate::FIRST }
}

impl Translator {
    /// Returns the new address, or `None` if the address has no mapping in this direction. Both are in host byte order.
    #[inline]
    fn translate(self, mappings: &Mappings, address: u32) -> Option<u32> {
        match self.direction {
            Direction::Out => mappings.inside.translate(address),
            Direction::In => mappings.outside.translate(address),
        }
    }

    /// Returns the protocol of an IPv4 packet, and its new address if the address has a mapping. Returns `None` for
    /// other packets.
    #[inline(always)]
    fn translated(self, mappings: &Mappings, packet: &mut Packet) -> Option<(u8, Option<[u8; 4]>)> {
        let header = packet.ipv4()?;
        let address = if self.direction == Direction::Out { header.source } else { header.destination };
        Some((header.protocol, self.translate(mappings, u32::from_be_bytes(address)).map(u32::to_be_bytes)))
    }

    /// Translates a packet and returns its gate.
    #[inline(always)]
    fn pass(self, mappings: &Mappings, packet: &mut Packet) -> Gate {
        let Some((protocol, address)) = self.translated(mappings, packet) else { return not_ipv4(packet) };
        let gate = match address {
            // The packet is IPv4, so the rewrite succeeds.
            Some(address) => rewrite_ipv4_address(packet, self.direction == Direction::In, address)
                .map_or(self.unmatched, |()| Gate::FIRST),
            None => self.unmatched,
        };
        if protocol == ICMP {
            // An error goes in the opposite direction of the packet that it quotes.
            quoted::translate(packet, self.direction == Direction::Out, |address| self.translate(mappings, address));
        }
        gate
    }
}

impl Function for StaticNat {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let Self { mappings, translator } = self;
        let (mappings, translator) = (mappings.read(), *translator);
        let mappings: &Mappings = &mappings;
        for (index, packet) in batch.iter_mut().enumerate() {
            let gate = translator.pass(mappings, packet);
            if gate != Gate::FIRST {
                context.put(index, gate);
            }
        }
    }

    fn effect(&self, packet: &mut Packet) -> Option<Effect> {
        let Some((protocol, address)) = self.translator.translated(&self.mappings.live().look(), packet) else {
            // ARP packets pass, and packets whose network layer cannot be determined are dropped. Both may have the
            // same session key, which then consists of their Ethernet addresses. So the effect on the key is unknown.
            let known = packet.network().0 != Network::Other;
            return known.then(|| Effect::to(not_ipv4(packet)));
        };
        // An echo and an error between the same hosts have the same session key. The error needs more than a new
        // address, because the packet that it quotes is translated too. So the effect on the key is unknown.
        if protocol == ICMP {
            return None;
        }
        let Some(address) = address else { return Some(Effect::to(self.translator.unmatched)) };
        Some(Effect {
            edits: vec![Edit::Ipv4Address { destination: self.translator.direction == Direction::In, address }],
            gate: Gate::FIRST,
        })
    }
}

/// The modules of several branches.
struct Folded(PerBranch<StaticNat>);

impl Function for Folded {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        if self.0.run_common(batch, context) {
            return;
        }
        let branches = context.branches();
        // Splitting the batch by branch would cost more than fetching the mappings of each packet.
        for (index, packet) in batch.iter_mut().enumerate() {
            let StaticNat { mappings, translator } = self.0.of_mut(branches, packet);
            let gate = translator.pass(&mappings.read(), packet);
            if gate != Gate::FIRST {
                context.put(index, gate);
            }
        }
    }
}

register!(StaticNat);

#[cfg(test)]
mod tests;

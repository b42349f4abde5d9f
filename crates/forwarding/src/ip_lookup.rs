//! Sends packets to the next hop of the longest prefix that contains their destination.
//!
//! The IPv4 destinations of a batch are collected, looked up at once and turned into gates, each in a loop without
//! branches that depend on the traffic. Packets that are not IPv4 are handled afterwards.

use forebay_graph::effect::{Edit, Effect};
use forebay_graph::{
    Context, Declare, Fold, Function, Gate, MAX_GATES, PerBranch, Reader, Reason, Setup, SetupError, StateKind,
    register,
};
use forebay_packet::{MAX_BATCH, Network, Packet, Word};
use forebay_tables::lpm::{MAX_NEXT_HOP, NO_ROUTE};
use forebay_tables::parameters::{NoMatch, numbered};
use forebay_units::wording::range;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod routes;
mod tables;

pub use routes::{Source, Synthetic};
pub use tables::RouteTables;
use tables::{Fibs, Limit, Loaded, Log};

/// The metadata word for the next hop.
const WORD: &str = "next_hop";

/// Parameters of `ip_lookup`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The routes: a file's name, a list such as `["10.0.0.0/8 3"]`, or `{ synthetic: 10000, next_hops: 16 }`.
    routes: Option<Source>,
    /// Instead of `routes`: the name of a shared state `routes`.
    state: Option<String>,
    /// The number of next hops. By default, it is one more than the greatest number in the routes and `miss`. Each next
    /// hop has a gate, except with `to: word`.
    next_hops: Option<u32>,
    /// The action for packets that match no route: `drop` (the default), or the number of the next hop that they go to.
    #[serde(default)]
    #[schemars(extend("default" = "drop"))]
    miss: NoMatch,
    /// The destination of the result: `gate` (the default), the metadata `word` or `both`.
    #[serde(default)]
    to: To,
}

/// Where the next hop is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
enum To {
    /// Each next hop is a gate.
    #[default]
    Gate,
    /// There is one gate; later functions find the next hop in the metadata word `next_hop`.
    Word,
    /// Each next hop is a gate, and is in the metadata word `next_hop` too.
    Both,
}

const NO_ROUTE_DROP: Gate = Gate::drop(0);
const NOT_IP: Gate = Gate::drop(1);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason { name: "no_route", help: "No route contains the destination, and 'miss' is 'drop'." },
    Reason { name: "not_ip", help: "The frame carries neither IPv4 nor IPv6, or is cut short inside the header." },
];

/// The network function `ip_lookup`.
pub struct IpLookup {
    /// The routes, which the control plane may change between two batches.
    routes: Reader<Fibs, Log>,
    /// Maps next hops to gates and to values of the metadata word.
    mapping: NextHopMapping,
    /// The metadata word for the next hop; `None` with `to: gate`.
    word: Option<Word>,
    scratch: Box<Scratch>,
    /// The limits of this module, and of the modules that it replaces when folded.
    limits: Vec<Limit>,
}

/// Maps next hops to gates and metadata words.
#[derive(Clone, Copy, PartialEq, Eq)]
struct NextHopMapping {
    /// The bits of a next hop that select the gate: all, or none if there is one gate.
    gate_mask: u16,
    /// The next hop of packets without a route; [`NO_ROUTE`] if they are dropped.
    miss: u32,
    /// The gate of packets without a route.
    miss_gate: Gate,
}

/// Buffers for a batch. Each batch overwrites the buffers. The buffers are not cleared in between, because that would
/// take longer than the lookups.
struct Scratch {
    /// By packet: the IPv4 destination; 0 for a packet that is not IPv4.
    ipv4: [u32; MAX_BATCH],
    /// The destinations of the IPv6 packets, side by side.
    ipv6: [u128; MAX_BATCH],
    /// The indexes in the batch of the packets in `ipv6`.
    ipv6_at: [u8; MAX_BATCH],
    /// The next hops of the packets in `ipv6`.
    ipv6_next_hops: [u32; MAX_BATCH],
    /// By packet: the next hop; [`NO_ROUTE`] if no route matches.
    next_hops: [u32; MAX_BATCH],
}

const _: () = assert!(MAX_BATCH <= 1 + u8::MAX as usize, "`ipv6_at` holds indexes in a batch");

impl Declare for IpLookup {
    type Params = Params;
    const NAME: &'static str = "ip_lookup";
    const SUMMARY: &'static str =
        "finds the next hop of the longest prefix that contains the destination, IPv4 and IPv6";
    const HELP: &'static str = "\
        Gates are named by the numbers of the next hops, from 0. A file of routes has one route per line, for example \
        `10.0.0.0/8 3`. IPv4 and IPv6 routes may be mixed, and comments begin with #. The file's name is relative to \
        the configuration. Several modules can share a table as a state `routes`. `{ synthetic: n, next_hops: k, seed: \
        s, ipv6: m }` generates n IPv4 routes and m (none by default) IPv6 routes in a mix of lengths like the \
        Internet's, with next hops from 0 to k - 1. Some of them divide 198.18.0.0/15 (RFC 2544) and 2001:2::/48 (RFC \
        5180) into equal parts that go to the next hops in turn. So every address of these ranges has a route, and \
        traffic to a whole range reaches every next hop. With `to: word`, all packets leave by one gate, and the next \
        hop is in the metadata word `next_hop`. With `to: both`, the next hop selects the gate, and is also in the \
        metadata word. Checksums, lengths and time to live are not checked.";
    const EXAMPLE: &'static str =
        r#"{ routes: ["0.0.0.0/0 0", "10.0.0.0/8 1", "2001:db8::/32 2"], next_hops: 4, miss: 3 }"#;
    const TRAFFIC: &'static str = "{ destination: [10.0.0.0/8, 198.19.0.0/16] }";
    const DROPS: &'static [Reason] = DROPS;
    const WRITES: &'static [&'static str] = &[WORD];
    const STATE: StateKind = StateKind::SharedReadOnly;
    const FOLD: Option<Fold<Self>> = Some(|branches| match Self::shared(branches) {
        Ok(one) => Box::new(one),
        Err(branches) => Box::new(Folded(PerBranch::new(branches))),
    });
    const EFFECT: bool = true;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let to_gates = params.to != To::Word;
        let most = if to_gates { MAX_GATES as u32 } else { MAX_NEXT_HOP + 1 };
        let allowed = params.next_hops.unwrap_or(most);
        if !(1..=most).contains(&allowed) {
            return Err(SetupError::wrong(
                "next_hops",
                allowed,
                format!("{allowed} next hops"),
                format!("1 to {most}"),
            ));
        }
        let last = allowed - 1;
        let tables = match (&params.routes, &params.state) {
            (Some(source), None) => {
                let key = source.key(last, setup);
                let loaded = setup.once(&key, |setup| Loaded::read(source, last, setup))?;
                setup.once_per_module(&key, |_| Ok(RouteTables::of(&loaded)))?
            }
            (None, Some(name)) => setup.state::<RouteTables>("state", name)?,
            _ => return Err(SetupError::new("give either 'routes' or 'state'")),
        };
        let mut next_hops = params.next_hops.unwrap_or_else(|| tables.next_hops().max(1));
        // Only shared routes can exceed the limit of this module: they may have been read, or changed, before the
        // module existed.
        let name = params.state.unwrap_or_default();
        let beyond = |greatest: u32, last: u32| {
            let wrong = format!("the state '{name}' has next hop {greatest}");
            SetupError::wrong("state", greatest, wrong, range(0, last))
        };
        if tables.next_hops() > allowed {
            return Err(beyond(tables.next_hops() - 1, last));
        }
        let miss = match params.miss {
            NoMatch::Drop => NO_ROUTE,
            NoMatch::Gate(miss) if u32::from(miss) <= last => u32::from(miss),
            NoMatch::Gate(miss) => {
                let wrong = format!("next hop {miss} is out of range");
                return Err(SetupError::wrong("miss", miss, wrong, range(0, last)));
            }
        };
        if params.next_hops.is_none() && miss != NO_ROUTE {
            next_hops = next_hops.max(miss + 1);
        }
        if to_gates {
            setup.gates(numbered(next_hops as u16))?;
        }
        let word = if params.to == To::Gate { None } else { Some(setup.word(WORD)?) };
        let gate_mask = if to_gates { u16::MAX } else { 0 };
        let miss_gate = if miss == NO_ROUTE { NO_ROUTE_DROP } else { Gate::out(miss as u16 & gate_mask) };
        let mapping = NextHopMapping { gate_mask, miss, miss_gate };
        let last = if to_gates { next_hops - 1 } else { last };
        let (routes, limit) = tables.reader(last).map_err(|greatest| beyond(greatest, last))?;
        setup.table("routes", tables);
        Ok(Self { routes, mapping, word, scratch: Box::new(Scratch::new()), limits: vec![limit] })
    }
}

impl IpLookup {
    /// Returns one module that replaces all modules, if they share one state and map its next hops in the same way.
    /// Otherwise returns the modules as an error.
    fn shared(mut all: Vec<Self>) -> Result<Self, Vec<Self>> {
        let equal = |a: &Self, b: &Self| {
            std::ptr::eq(a.routes.live(), b.routes.live()) && a.mapping == b.mapping && a.word == b.word
        };
        if !all.windows(2).all(|pair| equal(&pair[0], &pair[1])) {
            return Err(all);
        }
        let Some(mut one) = all.pop() else { return Err(all) };
        one.limits.extend(all.into_iter().flat_map(|other| other.limits));
        Ok(one)
    }
}

impl NextHopMapping {
    /// Returns the gate of a packet; `next_hop` is [`NO_ROUTE`] if no route matched.
    #[inline(always)]
    fn gate(self, next_hop: u32) -> Gate {
        if next_hop == NO_ROUTE { self.miss_gate } else { Gate::out(next_hop as u16 & self.gate_mask) }
    }

    /// Returns the value of the metadata word: [`NO_ROUTE`] only for packets that are dropped.
    #[inline(always)]
    fn stored(self, next_hop: u32) -> u32 {
        if next_hop == NO_ROUTE { self.miss } else { next_hop }
    }
}

impl Scratch {
    fn new() -> Self {
        Self {
            ipv4: [0; MAX_BATCH],
            ipv6: [0; MAX_BATCH],
            ipv6_at: [0; MAX_BATCH],
            ipv6_next_hops: [0; MAX_BATCH],
            next_hops: [0; MAX_BATCH],
        }
    }

    /// Looks up the IPv6 packets of a batch, and sets the gates of packets that are not IP to [`NOT_IP`]. Does not
    /// change the gates and next hops of IPv4 packets. Must run after the IPv4 lookup, which gives all packets a gate.
    #[inline(never)]
    fn process_others(&mut self, tables: &Fibs, mapping: NextHopMapping, batch: &mut [Packet], gates: &mut [Gate]) {
        let (mut count, table) = (0, tables.ipv6.as_ref());
        for (index, (packet, gate)) in batch.iter_mut().zip(&mut *gates).enumerate() {
            match packet.network().0 {
                Network::Ipv4 => {}
                Network::Ipv6 => {
                    let address = packet.ipv6().map_or(0, |header| u128::from_be_bytes(header.destination));
                    if let Some(table) = table {
                        table.prefetch(address);
                    }
                    (self.ipv6[count], self.ipv6_at[count]) = (address, index as u8);
                    count += 1;
                }
                Network::Other => *gate = NOT_IP,
            }
        }
        let (addresses, next_hops) = (&self.ipv6[..count], &mut self.ipv6_next_hops[..count]);
        match table {
            Some(table) => {
                table.begin_all(addresses, next_hops);
                table.finish(addresses, next_hops);
            }
            None => next_hops.fill(NO_ROUTE),
        }
        for (&at, &next_hop) in self.ipv6_at[..count].iter().zip(&self.ipv6_next_hops) {
            self.next_hops[usize::from(at)] = next_hop;
            gates[usize::from(at)] = mapping.gate(next_hop);
        }
    }
}

/// Returns the next hop of one packet, [`NO_ROUTE`] without a route; `None` if the packet is not IP.
#[inline]
fn lookup(tables: &Fibs, packet: &mut Packet) -> Option<u32> {
    if let Some(header) = packet.ipv4() {
        return Some(tables.ipv4.lookup(u32::from_be_bytes(header.destination)));
    }
    let address = u128::from_be_bytes(packet.ipv6()?.destination);
    Some(tables.ipv6.as_ref().map_or(NO_ROUTE, |table| table.lookup(address)))
}

impl Function for IpLookup {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let Self { routes, mapping, word, scratch, .. } = self;
        let tables = routes.read();
        let tables: &Fibs = &tables;
        let (mapping, len) = (*mapping, batch.len());
        let mut others = false;
        for (packet, address) in batch.iter_mut().zip(&mut scratch.ipv4) {
            let header = packet.ipv4();
            others |= header.is_none();
            // Packets other than IPv4 are looked up as if sent to 0.0.0.0, and overwritten later.
            *address = header.map_or(0, |header| u32::from_be_bytes(header.destination));
            tables.ipv4.prefetch(*address);
        }
        let (addresses, next_hops) = (&scratch.ipv4[..len], &mut scratch.next_hops[..len]);
        tables.ipv4.begin_all(addresses, next_hops);
        tables.ipv4.finish(addresses, next_hops);
        let gates = context.each();
        for (gate, &next_hop) in gates.iter_mut().zip(&scratch.next_hops) {
            *gate = mapping.gate(next_hop);
        }
        if others {
            scratch.process_others(tables, mapping, batch, gates);
        }
        if let Some(word) = *word {
            for (packet, &next_hop) in batch.iter_mut().zip(&scratch.next_hops) {
                packet.set_word(word, mapping.stored(next_hop));
            }
        }
    }

    fn effect(&self, packet: &mut Packet) -> Option<Effect> {
        let Some(next_hop) = lookup(&self.routes.live().look(), packet) else { return Some(Effect::to(NOT_IP)) };
        let (gate, stored) = (self.mapping.gate(next_hop), self.mapping.stored(next_hop));
        let word = self.word.filter(|_| stored != NO_ROUTE);
        Some(Effect { edits: word.map(|word| Edit::Word(word, stored)).into_iter().collect(), gate })
    }
}

/// The modules of several branches, which run as one. Each packet is looked up in the routes of its branch.
struct Folded(PerBranch<IpLookup>);

impl Function for Folded {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        if self.0.run_common(batch, context) {
            return;
        }
        let branches = context.branches();
        for (packet, gate) in batch.iter_mut().zip(context.each()) {
            let IpLookup { routes, mapping, word, .. } = self.0.of_mut(branches, packet);
            let Some(next_hop) = lookup(&routes.read(), packet) else {
                *gate = NOT_IP;
                continue;
            };
            *gate = mapping.gate(next_hop);
            if let Some(word) = *word {
                packet.set_word(word, mapping.stored(next_hop));
            }
        }
    }
}

register!(IpLookup);

#[cfg(test)]
mod tests;

//! A connection-tracking firewall: passes the packets of connections that the rules permit to open.

mod connections;
mod shown;
mod tracked;
mod tracker;

use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Gate, Own, Reason, Setup, SetupError, StateKind, register};
use forebay_measure::Counter;
use forebay_packet::{Packet, wire::ipv4::TCP};
use forebay_tables::plain::Plain;
use forebay_tables::rule_list::{Judge, Rules};
use forebay_tables::sessions::{Found, GROUP, Sessions, Slot, Spot, Tuple4, Tuple6};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::connection::flags::ACK;
use crate::connection::{ENDS, ENDS_WOKEN, Phase, Shown, are_impossible, opens};
use crate::listing::{LOOKS_WHEN_WOKEN, LOOKS_WITH_PACKETS, Listing, ServingModule, add_table, serve_requests};
pub use connections::{ConnectionLookup, Connections, ConnectionsParams, LentConnections};
use connections::{Settings, Tables};
use tracked::{Tracked, Tuple};
use tracker::{COUNTERS, Refusal, Tracker};

/// Parameters of `firewall`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The name of a state `connections`.
    state: String,
    /// Rules that permit packets to open a connection, in the syntax of the rules of `acl`. Without rules, `default`
    /// decides.
    rules: Option<Rules>,
    /// Decision for a packet that no rule matches and that would open a connection: `deny` (the default) or `permit`.
    #[serde(default)]
    default: Unmatched,
}

/// Decision for packets that no rule matches.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Unmatched {
    /// Drops them.
    #[default]
    Deny,
    /// Lets them open a connection.
    Permit,
}

// The gates of the drop reasons. The numbers are the indices in `DROPS`.
const DENIED: Gate = Gate::drop(0);
const NO_SESSION: Gate = Gate::drop(1);
const FRAGMENT: Gate = Gate::drop(2);
const FLAGS: Gate = Gate::drop(3);
const HALF_OPEN: Gate = Gate::drop(4);
const FULL: Gate = Gate::drop(5);
const MALFORMED: Gate = Gate::drop(6);
const BUSY: Gate = Gate::drop(7);
const UNDECIDABLE: Gate = Gate::drop(8);
const DROPS: &[Reason] = &[
    Reason { name: "denied", help: "The packet would open a connection that the rules do not permit." },
    Reason { name: "no_session", help: "The packet belongs to no connection and cannot open one." },
    Reason { name: "fragment", help: "The packet is a fragment, so its ports are not known: put `reassemble` before." },
    Reason { name: "flags", help: "The TCP control bits are a combination that no TCP sends." },
    Reason {
        name: "half_open",
        help: "The number of TCP connections with an incomplete handshake has reached its limit.",
    },
    Reason { name: "full", help: "There is no room for another connection." },
    Reason {
        name: "malformed",
        help: "The transport header is cut short, or an ICMP error does not quote the ports of a packet.",
    },
    Reason { name: "busy", help: "Another worker holds the connections; this should never happen." },
    Reason {
        name: "undecidable",
        help: "The packet hides its addresses, protocol or ports, so its connection is not known.",
    },
];

/// Returns the gate for a packet that may not open a connection.
fn gate(refusal: Refusal) -> Gate {
    match refusal {
        Refusal::Session => NO_SESSION,
        Refusal::HalfOpen => HALF_OPEN,
        Refusal::Full => FULL,
    }
}

/// The network function `firewall`.
pub struct Firewall {
    /// The worker's connections, which all modules with this state share.
    tables: Arc<Own<Tables>>,
    settings: Settings,
    rules: Option<Judge>,
    /// The decision if there are no rules. The rules have the same decision for packets that no rule matches.
    default: Unmatched,
    /// The counters ([`COUNTERS`]) of the connections over IPv4 and over IPv6.
    counters: [Arc<[Counter]>; 2],
    serving_module: ServingModule,
}

impl Declare for Firewall {
    type Params = Params;
    const NAME: &'static str = "firewall";
    const SUMMARY: &'static str = "passes packets of connections that the rules permit";
    const HELP: &'static str = "\
        Connection tracking for IPv4 and IPv6. A packet of a known connection passes, from either side. Any other \
        packet may open a connection if the rules permit it. Otherwise it is dropped. Modules with the same state \
        share its connections. Usually there are two such modules: one for outgoing packets, whose rules say which \
        packets may open a connection, and one for incoming packets. A TCP connection is opened by a SYN and followed \
        through its handshake, its end and resets (RFC 5382, RFC 7857, RFC 6146 section 3.5.2.2). Sequence numbers are \
        not checked. If packets follow a reset, the connection returns to its previous state. UDP, ICMP queries and \
        other protocols have time-outs. For ICMP queries the direction counts: two hosts that query each other with \
        the same identifier have two connections. An ICMP error passes if it quotes a packet of a connection, or its \
        first fragment, and is sent to the sender of that packet. ICMP messages of other types have no replies: the \
        rules decide in each direction which of them pass. ICMPv6 messages between neighbours on a link always pass \
        (RFC 4890 section 4.4.1). These are messages of neighbour discovery and of certification paths with a hop \
        limit of 255, and messages of multicast listeners and of multicast router discovery with a hop limit of 1 and \
        a link-local source. The table 'connections' lists the connections; they can be ended there. Fragments are \
        dropped: put `reassemble` before. Frames that are not IP pass. A packet that hides its addresses, protocol or \
        ports (behind more than 4 VLAN tags or 8 IPv6 extension headers, or cut short) is dropped as `undecidable` \
        (RFC 7113 section 3).";
    const EXAMPLE: &'static str = "\
        { state: connections, rules: [permit udp from 198.18.0.0/15 to any] }";
    const TRAFFIC: &'static str = "{}";
    const DROPS: &'static [Reason] = DROPS;
    const STATE: StateKind = StateKind::PerSession;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let connections = setup.state::<Connections>("state", &params.state)?;
        let permits = params.default == Unmatched::Permit;
        let rules = params.rules.map(|rules| Judge::new(&rules, permits, setup)).transpose()?;
        let settings = connections.settings_of_worker(setup.share().1);
        let listing = Listing::of(&connections.key, setup)?;
        let operators = listing.operator_side(setup.share());
        let tables = connections.tables(&operators, setup)?;
        add_table(&listing, &shown::CONNECTIONS, settings.clock, &connections.key, setup)?;
        let counters = ["connections, IPv4", "connections, IPv6"]
            .map(|heading| setup.gauges(heading, COUNTERS.map(str::to_owned)));
        let serving_module = ServingModule::new(operators, setup.frequency());
        Ok(Self { tables, settings, rules, default: params.default, counters, serving_module })
    }
}

/// The keys of a group of packets. A packet that is not plain has the default key, which no connection has.
struct Group {
    keys: [Tuple4; GROUP],
    /// TCP's control bits (0 for other protocols), and true if the key is the packet's reversed 5-tuple.
    flags: [(u8, bool); GROUP],
    /// The first bucket and the signature of each key, by which the key is looked up and inserted.
    spots: [Spot; GROUP],
}

/// Packets of a group that would open a connection. Bit n stands for the packet at index n.
#[derive(Clone, Copy, Debug, Default)]
struct NewConnections {
    /// The packets whose decision is known from `permitted`. If the rules permit such a packet, it opens a connection,
    /// except if an earlier packet of the group has opened this connection.
    known: u32,
    /// The packets in `known` that the rules permit.
    permitted: u32,
}

impl Firewall {
    /// Applies the rules, all at once, to packets that would open a connection. Bit n of `missing` is set if no
    /// connection was found for the packet at index n. Of these packets, the rules are applied to plain packets whose
    /// flags may open a connection, and only to the first packet of each connection. The caller handles the other
    /// packets one by one.
    #[inline(never)]
    fn judge_new(&mut self, tracker: &Tracker<Tuple4>, group: &Group, missing: u32) -> NewConnections {
        // If this group could exceed the limit of half-open connections, leave its TCP packets to `judge_one`, which
        // checks the limit before it evaluates the rules.
        let tcp = tracker.has_room_for(GROUP, &self.settings);
        let opens = |at: &usize| match group.keys[*at].protocol() {
            0 => false,
            TCP => tcp && opens(group.flags[*at].0),
            _ => true,
        };
        let opening = (0..GROUP).filter(|at| missing >> at & 1 == 1 && opens(at)).fold(0, |bits, at| bits | 1 << at);
        let known = Sessions::<Tracked<Tuple4>>::first_ones(&group.keys, &group.spots, opening);
        let (mut tuples, mut count, mut remaining) = ([Tuple4::default(); GROUP], 0, known);
        while remaining != 0 {
            let at = remaining.trailing_zeros() as usize % GROUP;
            remaining &= remaining - 1;
            tuples[count] = if group.flags[at].1 { group.keys[at].reversed() } else { group.keys[at] };
            count += 1;
        }
        let mut permits = [self.default == Unmatched::Permit; GROUP];
        if let Some(rules) = &mut self.rules {
            rules.permits_each(&tuples[..count], &mut permits);
        }
        tracker.table.make_ready(count, |_| {});
        let (mut permitted, mut remaining) = (0, known);
        for permits in &permits[..count] {
            permitted |= u32::from(*permits) << remaining.trailing_zeros();
            remaining &= remaining - 1;
        }
        NewConnections { known, permitted }
    }

    /// Handles any packet and returns its gate.
    #[inline(never)]
    fn judge_one(&mut self, tables: &mut Tables, packet: &mut Packet, now: Slot) -> Gate {
        match Shown::<Tuple4>::of(packet) {
            Shown::NotThis => {
                let shown = Shown::<Tuple6>::of(packet);
                self.judge(&mut tables.v6, shown, packet, now)
            }
            shown => self.judge(&mut tables.v4, shown, packet, now),
        }
    }

    /// Handles a packet of one IP version with these headers and returns its gate. Updates or opens its connection.
    fn judge<T: Tuple>(&mut self, tracker: &mut Tracker<T>, shown: Shown<T>, packet: &mut Packet, now: Slot) -> Gate {
        let headers = match shown {
            Shown::Packet(headers) | Shown::Message(headers) => headers,
            Shown::Error(quoted) => {
                // An ICMP error goes to the sender of the packet that it quotes (RFC 792, RFC 4443 section 3). An error
                // to another host is forged.
                let is_genuine = quoted.is_answered_by(packet) && tracker.find(quoted.ordered().0, now).is_some();
                return if is_genuine { Gate::FIRST } else { NO_SESSION };
            }
            Shown::Fragment => return FRAGMENT,
            Shown::Malformed if packet.hidden().is_some() => return UNDECIDABLE,
            Shown::Malformed => return MALFORMED,
            Shown::NotThis if packet.hidden().is_some() => return UNDECIDABLE,
            Shown::Neighbour | Shown::NotThis => return Gate::FIRST,
        };
        if headers.protocol == TCP && are_impossible(headers.flags) {
            return FLAGS;
        }
        let key = headers.tuple.ordered();
        let found = tracker.find(key.0, now);
        if found.is_some() {
            tracker.passes(found, key.1, headers.flags, &self.settings, now);
            return Gate::FIRST;
        }
        if let Err(refusal) = tracker.may_open(&headers, &self.settings) {
            return gate(refusal);
        }
        let permits = match &mut self.rules {
            Some(rules) => rules.permits(packet),
            None => self.default == Unmatched::Permit,
        };
        if !permits {
            return DENIED;
        }
        let spot = tracker.table.spot(key.0);
        tracker
            .open(spot, key.0, key.1, (headers.protocol, headers.flags), &self.settings, now)
            .map_or_else(gate, |()| Gate::FIRST)
    }

    /// Publishes the counters, and schedules the next call without packets if there are connections.
    fn publish_and_schedule(&mut self, tables: &Tables, context: &mut Context<'_>) {
        self.publish(tables);
        self.serving_module.schedule(tables.is_empty(), context);
    }

    /// Publishes the counters.
    fn publish(&self, tables: &Tables) {
        tables.v4.publish_counters(&self.counters[0]);
        tables.v6.publish_counters(&self.counters[1]);
        tables.worker_side.publish([tables.v4.table.len(), tables.v6.table.len()]);
    }
}

impl Function for Firewall {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let own = Arc::clone(&self.tables);
        let Some(mut tables) = own.lend() else { return context.all(BUSY) };
        let tables = &mut *tables;
        let now = self.settings.clock.slot(context.now());
        tables.expire(now, batch.len() as u32 + ENDS);
        serve_requests(tables, LOOKS_WITH_PACKETS, context);
        for (number, packets) in batch.chunks_mut(GROUP).enumerate() {
            let mut plain =
                Group { keys: [Tuple4::default(); GROUP], flags: [(0, false); GROUP], spots: [Spot::default(); GROUP] };
            let mut found = [Found::NONE; GROUP];
            for ((packet, key), flags) in packets.iter().zip(&mut plain.keys).zip(&mut plain.flags) {
                // A packet that is not plain keeps a key that no connection has: protocol 0 is not used.
                let Some(plain) = Plain::of(packet) else { continue };
                let (ordered, turned) = plain.tuple().ordered();
                (*key, *flags) = (ordered, (plain.flags(), turned));
            }
            tables.v4.table.find_group(&plain.keys[..packets.len()], &mut plain.spots, &mut found[..packets.len()]);
            let missing = (0..packets.len()).filter(|at| !found[*at].is_some()).fold(0, |bits, at| bits | 1 << at);
            let new =
                if missing == 0 { NewConnections::default() } else { self.judge_new(&tables.v4, &plain, missing) };
            let (removals, mut openings) = (tables.v4.table.removals(), tables.v4.opened());
            for (at, (packet, found)) in packets.iter_mut().zip(found).enumerate() {
                let (table, key, (flags, turned)) = (&mut tables.v4.table, plain.keys[at], plain.flags[at]);
                if found.is_some() && (table.removals() == removals || table.is_still(found, key)) {
                    let (tracked, ends) = table.lasts(found);
                    let connection = tracked.connection;
                    // Every packet of an established TCP connection has the flag ACK, except for resets. For a packet
                    // without ACK, `judge_one` checks whether the flags are impossible.
                    let odd = connection.phase() == Phase::TcpEstablished && flags & ACK == 0;
                    if *ends > now && connection.goes_on(flags, tracked.is_reply(turned)) && !odd {
                        *ends = self.settings.timeouts.end(connection.phase(), now);
                        continue;
                    }
                }
                // An earlier packet that was not plain may have opened the connection of this plain packet.
                let known = new.known >> at & 1 == 1
                    && (tables.v4.opened() == openings || !tables.v4.table.find_at(plain.spots[at], key).is_some());
                let gate = if !known {
                    self.judge_one(tables, packet, now)
                } else if new.permitted >> at & 1 == 1 {
                    let spot = plain.spots[at];
                    let opened = tables.v4.open(spot, key, turned, (key.protocol(), flags), &self.settings, now);
                    openings += u64::from(opened.is_ok());
                    opened.map_or_else(gate, |()| Gate::FIRST)
                } else {
                    DENIED
                };
                if gate != Gate::FIRST {
                    context.put(number * GROUP + at, gate);
                }
            }
        }
        if self.serving_module.is_due(context.now(), tables.is_empty()) {
            self.publish_and_schedule(tables, context);
        }
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        let own = Arc::clone(&self.tables);
        let Some(mut tables) = own.lend() else { return };
        let now = self.settings.clock.slot(context.now());
        tables.expire(now, ENDS_WOKEN);
        if tables.is_due() {
            context.look_at(context.now());
        }
        serve_requests(&mut *tables, LOOKS_WHEN_WOKEN, context);
        self.publish_and_schedule(&tables, context);
    }

    fn begins(&self) -> bool {
        // A first call without packets starts the expiry of the previous configuration's connections, even if no packet
        // comes.
        true
    }

    fn close(&mut self) -> Result<(), String> {
        // Publish the last values.
        if let Some(tables) = self.tables.lend() {
            self.publish(&tables);
        }
        Ok(())
    }
}

register!(Firewall);

#[cfg(test)]
mod tests;

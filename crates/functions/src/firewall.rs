//! Lets packets of connections pass that were opened as rules allow: a connection-tracking firewall.

mod shown;
mod tracked;
mod tracker;

use std::sync::Arc;

use forebay_graph::{
    Context, Declare, DeclareState, Function, Gate, Lent, Own, Reason, Setup, SetupError, StateKind, register,
};
use forebay_measure::Counter;
use forebay_packet::{Packet, wire::ipv4::TCP};
use forebay_units::Ticks;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::acl::{Judge, Rules};
use crate::connection::flags::ACK;
use crate::connection::{
    ENDS, ENDS_WOKEN, FoundSession, Headers, Phase, Plain, SessionLookup, SessionRow, Shown, SlotClock, TimeoutParams,
    Timeouts, are_impossible, opens,
};
use crate::listing::{Attendant, Desk, LOOKS, Listing, Part, WOKEN, attend, hand_out};
use crate::nat::WhenFull;
use crate::parameters::no_memory;
use crate::tables::sessions::{Found, GO, MOST, Sessions, Slot, Spot, Tuple4, Tuple6};
use tracked::{Tracked, Tuple};
use tracker::{COUNTERS, No, Tracker};

/// Parameters of a state of the kind `connections`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectionsParams {
    /// How many connections there can be, of each IP version and over all workers, 1 to 268435456: 65536 by default. Each takes 74 bytes of
    /// each IP version, set aside at the start.
    #[schemars(extend("default" = 65_536))]
    sessions: Option<usize>,
    /// What happens when there are as many: the one that would end soonest is given up (`evict`, the default), or the new one
    /// is refused (`refuse`, dropped as `full`).
    #[serde(default)]
    when_full: WhenFull,
    /// How many TCP connections may wait for the end of their handshake: half of `sessions` by default. Beyond, new ones are
    /// dropped as `half_open`, so that a flood of SYN leaves room for others.
    half_open: Option<usize>,
    /// Whether TCP connections that were there before are taken up by any packet: `false` by default, only a SYN opens one.
    #[serde(default)]
    pick_up: bool,
    /// How long connections are remembered without a packet.
    #[serde(default)]
    timeouts: TimeoutParams,
}

/// Connections that modules share: a state of the kind `connections`.
pub struct Connections {
    key: String,
    sessions: usize,
    settings: Settings,
}

/// What holds for every worker's connections.
#[derive(Clone, Copy)]
struct Settings {
    when_full: WhenFull,
    half_open: usize,
    picks_up: bool,
    timeouts: Timeouts,
    clock: SlotClock,
}

impl DeclareState for Connections {
    type Params = ConnectionsParams;
    const NAME: &'static str = "connections";
    const SUMMARY: &'static str = "connections that firewall modules share, those of both directions";
    const EXAMPLE: &'static str = "{ sessions: 100000 }";

    fn new(params: ConnectionsParams, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let sessions = params.sessions.unwrap_or(1 << 16);
        if !(1..=MOST).contains(&sessions) {
            return Err(SetupError::at("sessions", format!("{sessions}: allowed are 1 to {MOST}")));
        }
        let half_open = params.half_open.unwrap_or(sessions.div_ceil(2));
        if !(1..=sessions).contains(&half_open) {
            return Err(SetupError::at(
                "half_open",
                format!("{half_open}: allowed are 1 to {sessions}, as many as `sessions`"),
            ));
        }
        let clock = SlotClock::new(setup.frequency());
        let timeouts = Timeouts::new(&params.timeouts, clock, "timeouts")?;
        let key = format!("connections {} {}", setup.name(), serde_json::to_string(&params).unwrap_or_default());
        let (when_full, picks_up) = (params.when_full, params.pick_up);
        Ok(Self { key, sessions, settings: Settings { when_full, half_open, picks_up, timeouts, clock } })
    }
}

impl Connections {
    /// This worker's tables, the same for all modules that name this state.
    fn tables(&self, part: &Arc<Part>, setup: &mut Setup<'_>) -> Result<Arc<Own<Tables>>, SetupError> {
        let (secret, share, timeouts) = (setup.secret(), setup.share(), self.settings.timeouts);
        setup.own(&self.key, |_| {
            let (most, longest) = (self.sessions.div_ceil(share.1), timeouts.longest());
            let lack =
                |ip| no_memory("state", format!("a table of {most} connections of {ip} (the state's `sessions`)"));
            let v4 = Tracker::new(most, secret, longest).map_err(lack("IPv4"))?;
            let v6 = Tracker::new(most, secret.rotate_left(7), longest).map_err(lack("IPv6"))?;
            Ok(Tables { v4, v6, timeouts, now: 0, desk: part.desk() })
        })
    }

    /// The tables of this worker, for a module that only looks sessions up.
    pub(crate) fn lookup(&self, setup: &mut Setup<'_>) -> Result<SessionLookup, SetupError> {
        let part = Listing::of(&self.key, setup)?.part(setup.share());
        let most = self.sessions.div_ceil(setup.share().1);
        let (key, settings) = (self.key.clone(), self.settings);
        Ok(SessionLookup::Connections(ConnectionLookup { key, tables: self.tables(&part, setup)?, most, settings }))
    }
}

/// A worker's connections, for [lookups](SessionLookup).
pub struct ConnectionLookup {
    key: String,
    tables: Arc<Own<Tables>>,
    /// The most connections of an IP version.
    most: usize,
    settings: Settings,
}

impl ConnectionLookup {
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn rows(&self) -> usize {
        2 * (self.most + 1)
    }

    pub(crate) fn lend(&self) -> Option<LentConnections<'_>> {
        Some(LentConnections { tables: self.tables.lend()?, most: self.most, settings: &self.settings })
    }
}

/// A worker's connections while they are lent.
pub struct LentConnections<'a> {
    tables: Lent<'a, Tables>,
    most: usize,
    settings: &'a Settings,
}

impl LentConnections<'_> {
    /// Whether TCP connections are opened by any packet.
    pub(crate) fn picks_up(&self) -> bool {
        self.settings.picks_up
    }

    pub(crate) fn find_v4(&self, headers: &Headers<Tuple4>, now: Ticks) -> Option<FoundSession> {
        self.tables.v4.known(headers.tuple, self.settings.clock.slot(now), 0)
    }

    pub(crate) fn find_v6(&self, headers: &Headers<Tuple6>, now: Ticks) -> Option<FoundSession> {
        self.tables.v6.known(headers.tuple, self.settings.clock.slot(now), self.most + 1)
    }

    pub(crate) fn mark(&mut self, row: SessionRow) {
        match row.index.checked_sub(self.most + 1) {
            Some(number) => self.tables.v6.mark(number),
            None => self.tables.v4.mark(row.index),
        }
    }
}

/// Parameters of `firewall`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The name of a state of kind `connections`.
    state: String,
    /// Which packets may open a connection, written as those of `acl`; without it, as `default` says.
    rules: Option<Rules>,
    /// What happens to packets that would open a connection and that no rule matches: `deny` (the default) or `permit`.
    #[serde(default)]
    default: Unmatched,
}

/// What happens where no rule matches.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Unmatched {
    /// They are dropped.
    #[default]
    Deny,
    /// They open a connection.
    Permit,
}

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
    Reason { name: "denied", help: "The packet would open a connection, and the rules do not permit it." },
    Reason { name: "no_session", help: "The packet is of no connection that there is, and is none that opens one." },
    Reason {
        name: "fragment",
        help: "A fragment does not show its ports, or what follows does not: put `reassemble` before.",
    },
    Reason { name: "flags", help: "TCP control bits that no TCP sends." },
    Reason { name: "half_open", help: "As many TCP connections wait for the end of their handshake as may." },
    Reason { name: "full", help: "There is no room for another connection." },
    Reason {
        name: "malformed",
        help: "The transport's header is cut short, or an ICMP error does not quote the ports of a packet.",
    },
    Reason { name: "busy", help: "Another worker has the connections, which cannot be." },
    Reason {
        name: "undecidable",
        help: "The packet hides its addresses, protocol or ports: which connection it is of is not known.",
    },
];

/// Where a packet goes that may not open a connection.
fn gate(no: No) -> Gate {
    match no {
        No::Session => NO_SESSION,
        No::HalfOpen => HALF_OPEN,
        No::Full => FULL,
    }
}

/// A worker's connections.
struct Tables {
    v4: Tracker<Tuple4>,
    v6: Tracker<Tuple6>,
    timeouts: Timeouts,
    /// The slot that it is.
    now: Slot,
    desk: Desk,
}

/// The function.
pub struct Firewall {
    tables: Arc<Own<Tables>>,
    settings: Settings,
    rules: Option<Judge>,
    default: Unmatched,
    counters: [Arc<[Counter]>; 2],
    attendant: Attendant,
}

impl Declare for Firewall {
    type Params = Params;
    const NAME: &'static str = "firewall";
    const SUMMARY: &'static str = "lets packets of connections pass that were opened as rules allow";
    const HELP: &'static str = "\
        Connection tracking for IPv4 and IPv6. A packet of a connection passes, from either side; another one may \
        open a connection if the rules permit it, and is dropped otherwise. Modules with one state share its \
        connections: one for what goes out, whose rules say what may, and one for what comes in. TCP is opened by \
        a SYN and followed through its handshake, its end and resets (RFC 5382, RFC 7857, RFC 6146 section \
        3.5.2.2); sequence numbers are not looked at, and traffic after a reset leads back to where the connection \
        was. UDP, ICMP queries and other protocols have time-outs. Of an ICMP query the direction counts: two \
        hosts that ask each other by one identifier have two connections. ICMP errors pass where they quote a \
        packet of a connection, or its first fragment, and are sent to its sender. ICMP messages of other types \
        have no answers: the rules say which may pass, each way. ICMPv6 messages between neighbours of a link \
        always pass (RFC 4890 section 4.4.1): neighbour discovery and certification paths with a hop limit of 255, \
        multicast listener messages and multicast router discovery with a hop limit of 1 from a link-local source. \
        The table 'connections' lists what there is, and ends it where asked. Fragments are dropped: put \
        `reassemble` before. Frames that are not IP pass; a packet \
        that hides its addresses, protocol or ports (behind more than 4 VLAN tags or 8 IPv6 extension headers, or cut \
        short) does not (RFC 7113 section 3).";
    const EXAMPLE: &'static str = "\
        { state: connections, rules: [permit udp from 198.18.0.0/15 to any] }";
    const TRAFFIC: &'static str = "{}";
    const DROPS: &'static [Reason] = DROPS;
    const STATE: StateKind = StateKind::PerSession;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let connections = setup.state::<Connections>("state", &params.state)?;
        let permits = params.default == Unmatched::Permit;
        let rules = params.rules.map(|rules| Judge::new(rules, permits, setup)).transpose()?;
        let settings = connections.settings;
        let listing = Listing::of(&connections.key, setup)?;
        let part = listing.part(setup.share());
        let tables = connections.tables(&part, setup)?;
        hand_out(&listing, &shown::CONNECTIONS, settings.clock, &connections.key, setup)?;
        let counters = ["connections, IPv4", "connections, IPv6"]
            .map(|heading| setup.gauges(heading, COUNTERS.map(str::to_owned)));
        let attendant = Attendant::new(part, setup.frequency());
        Ok(Self { tables, settings, rules, default: params.default, counters, attendant })
    }
}

/// The plain packets of a go: what each shows of its connection.
struct Go {
    keys: [Tuple4; GO],
    /// TCP's control bits, and whether the key is that of the other way.
    flags: [(u8, bool); GO],
    spots: [Spot; GO],
}

/// The packets of a go that would open a connection, a bit each: those of which that is certain as long as nobody else has
/// opened it, and those of them that may.
#[derive(Clone, Copy, Debug, Default)]
struct New {
    known: u32,
    permitted: u32,
}

impl Firewall {
    /// Judges those of the packets `missing` together that open a connection: they are plain, have the flags for it and are the
    /// first ones of theirs. The others are looked at one by one.
    #[inline(never)]
    fn judge_new(&mut self, tracker: &Tracker<Tuple4>, go: &Go, missing: u32) -> New {
        // Were there more that are half open than may be, rules would be asked in vain.
        let tcp = tracker.has_room_for(GO, &self.settings);
        let opens = |at: &usize| match go.keys[*at].protocol() {
            0 => false,
            TCP => tcp && opens(go.flags[*at].0),
            _ => true,
        };
        let opening = (0..GO).filter(|at| missing >> at & 1 == 1 && opens(at)).fold(0, |bits, at| bits | 1 << at);
        let known = Sessions::<Tracked<Tuple4>>::first_ones(&go.keys, &go.spots, opening);
        let (mut asked, mut count, mut left) = ([Tuple4::default(); GO], 0, known);
        while left != 0 {
            let at = left.trailing_zeros() as usize % GO;
            left &= left - 1;
            asked[count] = if go.flags[at].1 { go.keys[at].reversed() } else { go.keys[at] };
            count += 1;
        }
        let mut permits = [self.default == Unmatched::Permit; GO];
        if let Some(rules) = &mut self.rules {
            rules.permits_each(&asked[..count], &mut permits);
        }
        tracker.table.make_ready(count, |_| {});
        let (mut permitted, mut left) = (0, known);
        for permits in &permits[..count] {
            permitted |= u32::from(*permits) << left.trailing_zeros();
            left &= left - 1;
        }
        New { known, permitted }
    }

    /// Any packet.
    #[inline(never)]
    fn slowly(&mut self, tables: &mut Tables, packet: &mut Packet, now: Slot) -> Gate {
        match Shown::<Tuple4>::of(packet) {
            Shown::NotThis => {
                let shown = Shown::<Tuple6>::of(packet);
                self.judge(&mut tables.v6, shown, packet, now)
            }
            shown => self.judge(&mut tables.v4, shown, packet, now),
        }
    }

    fn judge<T: Tuple>(&mut self, tracker: &mut Tracker<T>, shown: Shown<T>, packet: &mut Packet, now: Slot) -> Gate {
        let headers = match shown {
            Shown::Packet(headers) | Shown::Message(headers) => headers,
            Shown::Error(quoted) => {
                // It is sent to who sent what it quotes (RFC 792, RFC 4443 section 3); what is sent to somebody else only
                // pretends to be about a connection.
                let about = quoted.is_answered_by(packet) && tracker.find(quoted.ordered().0, now).is_some();
                return if about { Gate::FIRST } else { NO_SESSION };
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
        if let Err(no) = tracker.may_open(&headers, &self.settings) {
            return gate(no);
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

    fn look_after(&mut self, tables: &Tables, context: &mut Context<'_>) {
        self.tell(tables);
        self.attendant.looked(tables.is_empty(), context);
    }

    /// Tells what is counted.
    fn tell(&self, tables: &Tables) {
        tables.v4.tell(&self.counters[0]);
        tables.v6.tell(&self.counters[1]);
        tables.desk.tell([tables.v4.table.len(), tables.v6.table.len()]);
    }
}

impl Tables {
    fn is_empty(&self) -> bool {
        self.v4.table.is_empty() && self.v6.table.is_empty()
    }

    /// Whether connections that may have ended are still to be looked at.
    fn is_due(&mut self) -> bool {
        self.v4.table.is_due(self.now) || self.v6.table.is_due(self.now)
    }

    #[inline]
    fn expire(&mut self, now: Slot, looks: u32) {
        self.now = now;
        if self.v4.table.is_due(now) {
            self.v4.expire(now, looks);
        }
        if self.v6.table.is_due(now) {
            self.v6.expire(now, looks);
        }
    }
}

impl Function for Firewall {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let own = Arc::clone(&self.tables);
        let Some(mut tables) = own.lend() else { return context.all(BUSY) };
        let tables = &mut *tables;
        let now = self.settings.clock.slot(context.now());
        tables.expire(now, batch.len() as u32 + ENDS);
        attend(tables, LOOKS, context);
        for (go, packets) in batch.chunks_mut(GO).enumerate() {
            let mut plain = Go { keys: [Tuple4::default(); GO], flags: [(0, false); GO], spots: [Spot::default(); GO] };
            let mut found = [Found::NONE; GO];
            for ((packet, key), flags) in packets.iter().zip(&mut plain.keys).zip(&mut plain.flags) {
                // What is not plain is of no session by this key: nothing has protocol 0.
                let Some(plain) = Plain::of(packet) else { continue };
                let (ordered, turned) = plain.tuple().ordered();
                (*key, *flags) = (ordered, (plain.flags(), turned));
            }
            tables.v4.table.find_go(&plain.keys[..packets.len()], &mut plain.spots, &mut found[..packets.len()]);
            let missing = (0..packets.len()).filter(|at| !found[*at].is_some()).fold(0, |bits, at| bits | 1 << at);
            let new = if missing == 0 { New::default() } else { self.judge_new(&tables.v4, &plain, missing) };
            let (removals, mut openings) = (tables.v4.table.removals(), tables.v4.opened());
            for (at, (packet, found)) in packets.iter_mut().zip(found).enumerate() {
                let (table, key, (flags, turned)) = (&mut tables.v4.table, plain.keys[at], plain.flags[at]);
                if found.is_some() && (table.removals() == removals || table.is_still(found, key)) {
                    let (tracked, ends) = table.lasts(found);
                    let connection = tracked.connection;
                    // A flag that TCP must always have is missing: that is looked at closely.
                    let odd = connection.phase() == Phase::TcpEstablished && flags & ACK == 0;
                    if *ends > now && connection.goes_on(flags, tracked.is_reply(turned)) && !odd {
                        *ends = self.settings.timeouts.end(connection.phase(), now);
                        continue;
                    }
                }
                // A packet that was not plain may have opened the connection of one that is.
                let known = new.known >> at & 1 == 1
                    && (tables.v4.opened() == openings || !tables.v4.table.find_at(plain.spots[at], key).is_some());
                let gate = if !known {
                    self.slowly(tables, packet, now)
                } else if new.permitted >> at & 1 == 1 {
                    let spot = plain.spots[at];
                    let opened = tables.v4.open(spot, key, turned, (key.protocol(), flags), &self.settings, now);
                    openings += u64::from(opened.is_ok());
                    opened.map_or_else(gate, |()| Gate::FIRST)
                } else {
                    DENIED
                };
                if gate != Gate::FIRST {
                    context.put(go * GO + at, gate);
                }
            }
        }
        if self.attendant.is_due(context.now(), tables.is_empty()) {
            self.look_after(tables, context);
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
        attend(&mut *tables, WOKEN, context);
        self.look_after(&tables, context);
    }

    fn begins(&self) -> bool {
        // Connections of the configuration before are looked after though no packet comes.
        true
    }

    fn close(&mut self) -> Result<(), String> {
        // What has come since it was told last.
        if let Some(tables) = self.tables.lend() {
            self.tell(&tables);
        }
        Ok(())
    }
}

register!(state Connections);
register!(Firewall);

#[cfg(test)]
mod tests;

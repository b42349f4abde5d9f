//! Lets packets of connections pass that were opened as rules allow: a connection-tracking firewall.

mod tracked;
mod tracker;

use std::sync::Arc;

use forebay_graph::{
    Context, Declare, DeclareState, Function, Gate, Own, Reason, Setup, SetupError, StateKind, register,
};
use forebay_measure::{Counter, Nanos};
use forebay_packet::wire::ipv4::TCP;
use forebay_packet::{Packet, Ticks};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::acl::{Judge, Rules};
use crate::connection::flags::ACK;
use crate::connection::{Phase, Plain, Shown, SlotClock, TimeoutParams, Timeouts, are_impossible, opens};
use crate::nat::WhenFull;
use crate::tables::sessions::{Before, Found, MOST, Slot, Tuple4, Tuple6};
use tracked::Tuple;
use tracker::{COUNTERS, No, Tracker};

/// Parameters of a state of the kind `connections`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectionsParams {
    /// How many connections there can be, of each IP version and over all workers: 65536 by default. Each takes 74 bytes over
    /// IPv4 and IPv6 alike, once it is used.
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
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
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
        help: "The transport's header is cut short, or it is ICMP that neither asks, answers nor tells of an error.",
    },
    Reason { name: "busy", help: "Another worker has the connections, which cannot be." },
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
}

/// The function.
pub struct Firewall {
    tables: Arc<Own<Tables>>,
    settings: Settings,
    rules: Option<Judge>,
    default: Unmatched,
    counters: [Arc<[Counter]>; 2],
    period: Ticks,
    next: Ticks,
}

/// Packets that are looked up in one go.
const GO: usize = 32;

impl Declare for Firewall {
    type Params = Params;
    const NAME: &'static str = "firewall";
    const SUMMARY: &'static str = "lets packets of connections pass that were opened as rules allow";
    const HELP: &'static str = "\
        Connection tracking for IPv4 and IPv6. A packet of a connection passes, from either side; another one may open a \
        connection if the rules permit it, and is dropped otherwise. Modules with one state share its connections: one for \
        what goes out, whose rules say what may, and one for what comes in. TCP is opened by a SYN and followed through its \
        handshake, its end and resets (RFC 5382, RFC 7857); sequence numbers are not looked at. UDP, ICMP queries and other \
        protocols have time-outs. ICMP errors pass where they are about a packet of a connection; neighbour discovery \
        (RFC 4890 section 4.4.1) always passes. Fragments are dropped: put `reassemble` before. Frames that are not IP pass.";
    const EXAMPLE: &'static str = "\
        { state: connections, rules: ['@198.18.0.0/15 0.0.0.0/0 0 : 65535 0 : 65535 0x11/0xff permit'] }";
    const TRAFFIC: &'static str = "{}";
    const DROPS: &'static [Reason] = DROPS;
    const STATE: StateKind = StateKind::PerSession;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let connections = setup.state::<Connections>("state", &params.state)?;
        let permits = params.default == Unmatched::Permit;
        let rules = params.rules.map(|rules| Judge::new(rules, permits, setup)).transpose()?;
        let settings = connections.settings;
        let secret = setup.secret();
        let tables = setup.own(&connections.key, |setup| {
            let most = connections.sessions.div_ceil(setup.share().1);
            let made = Tracker::new(most, secret).zip(Tracker::new(most, secret.rotate_left(7)));
            let (v4, v6) =
                made.ok_or_else(|| SetupError::at("state", format!("no memory for tables of {most} connections")))?;
            Ok(Tables { v4, v6 })
        })?;
        let counters = ["connections, IPv4", "connections, IPv6"]
            .map(|heading| setup.counters(heading, COUNTERS.map(str::to_owned)));
        let period = setup.frequency().ticks(Nanos(250_000_000));
        Ok(Self { tables, settings, rules, default: params.default, counters, period, next: Ticks::ZERO })
    }
}

/// The packets of a go that would open a connection, a bit each: those of which that is certain, and those that may.
#[derive(Clone, Copy, Debug, Default)]
struct New {
    known: u32,
    permitted: u32,
}

impl Firewall {
    /// Judges those of the packets `missing` together that open a connection for certain: they are plain, have the flags for
    /// it and are the first ones of theirs. The others are looked at one by one.
    #[inline(never)]
    fn judge_new(
        &mut self,
        tracker: &Tracker<Tuple4>,
        keys: &[Tuple4; GO],
        flags: &[(u8, bool); GO],
        missing: u32,
    ) -> New {
        let (mut asked, mut places, mut count) = ([Tuple4::default(); GO], [0; GO], 0);
        let mut before = Before::default();
        // Were there more that are half open than may be, rules would be asked in vain.
        let tcp = tracker.has_room_for(GO, &self.settings);
        let mut left = missing;
        while left != 0 {
            let at = left.trailing_zeros() as usize % GO;
            left &= left - 1;
            let (key, (flags, turned)) = (keys[at], flags[at]);
            let opening = key.protocol() != TCP || tcp && opens(flags);
            if key.protocol() != 0 && opening && before.is_new(key, tracker.table.seed()) {
                (asked[count], places[count]) = (if turned { key.reversed() } else { key }, at);
                count += 1;
            }
        }
        let mut permitted = [self.default == Unmatched::Permit; GO];
        if let Some(rules) = &mut self.rules {
            rules.permits_each(&asked[..count], &mut permitted);
        }
        tracker.table.make_ready(count, |_| {});
        places[..count].iter().zip(permitted).fold(New::default(), |New { known, permitted }, (at, permits)| New {
            known: known | 1 << at,
            permitted: permitted | u32::from(permits) << at,
        })
    }

    /// A packet that is known to open a connection, if it may.
    #[inline(always)]
    fn open_plain(
        &mut self,
        tracker: &mut Tracker<Tuple4>,
        key: (Tuple4, bool),
        flags: u8,
        permitted: bool,
        now: Slot,
    ) -> Gate {
        if !permitted {
            return DENIED;
        }
        tracker.open(key, key.0.protocol(), flags, &self.settings, now).map_or_else(gate, |()| Gate::FIRST)
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
            Shown::Packet(headers) => headers,
            Shown::Error(quoted) => {
                let about = tracker.find(quoted.ordered().0, now);
                return if about.is_some() { Gate::FIRST } else { NO_SESSION };
            }
            Shown::Fragment => return FRAGMENT,
            Shown::Malformed => return MALFORMED,
            Shown::Neighbour | Shown::NotThis => return Gate::FIRST,
        };
        if headers.protocol == TCP && are_impossible(headers.flags) {
            return FLAGS;
        }
        let key = headers.tuple.ordered();
        let found = tracker.find(key.0, now);
        if found.is_some() {
            let may = tracker.passes(found, key.1, (headers.flags, headers.asks), &self.settings, now);
            return if may { Gate::FIRST } else { NO_SESSION };
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
        tracker.open(key, headers.protocol, headers.flags, &self.settings, now).map_or_else(gate, |()| Gate::FIRST)
    }

    fn look_after(&mut self, tables: &Tables, context: &mut Context<'_>) {
        tables.v4.tell(&self.counters[0]);
        tables.v6.tell(&self.counters[1]);
        self.next = context.now() + self.period;
        if !(tables.v4.table.is_empty() && tables.v6.table.is_empty()) {
            context.wake_at(self.next);
        }
    }
}

impl Tables {
    #[inline]
    fn expire(&mut self, now: Slot, looks: u32) {
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
        tables.expire(now, batch.len() as u32 + GO as u32);
        for (go, packets) in batch.chunks_mut(GO).enumerate() {
            let mut keys = [Tuple4::default(); GO];
            let mut flags = [(0, false); GO];
            let mut found = [Found::NONE; GO];
            for ((packet, key), flags) in packets.iter().zip(&mut keys).zip(&mut flags) {
                // What is not plain is of no session by this key: nothing has protocol 0.
                let Some(plain) = Plain::of(packet) else { continue };
                let (ordered, turned) = plain.tuple().ordered();
                (*key, *flags) = (ordered, (plain.flags(), turned));
            }
            tables.v4.table.find_each(&keys[..packets.len()], &mut found[..packets.len()]);
            let missing = (0..packets.len()).filter(|at| !found[*at].is_some()).fold(0, |bits, at| bits | 1 << at);
            let mut new =
                if missing == 0 { New::default() } else { self.judge_new(&tables.v4, &keys, &flags, missing) };
            let removals = tables.v4.table.removals();
            for (at, (packet, (found, flags))) in packets.iter_mut().zip(found.into_iter().zip(flags)).enumerate() {
                let table = &mut tables.v4.table;
                if found.is_some() && (table.removals() == removals || table.is_still(found, keys[at])) {
                    let (tracked, (flags, turned)) = (table.get(found), flags);
                    let connection = tracked.connection;
                    // A flag that TCP must always have is missing: that is looked at closely.
                    let odd = connection.phase() == Phase::TcpEstablished && flags & ACK == 0;
                    let there = table.ends(found) > now;
                    if there && connection.goes_on(flags, tracked.is_reply(turned)) && !odd {
                        table.keep_until(found, self.settings.timeouts.end(connection.phase(), now));
                        continue;
                    }
                }
                let gate = if new.known >> at & 1 == 1 {
                    let permitted = new.permitted >> at & 1 == 1;
                    self.open_plain(&mut tables.v4, (keys[at], flags.1), flags.0, permitted, now)
                } else {
                    let opened = tables.v4.opened();
                    let gate = self.slowly(tables, packet, now);
                    if tables.v4.opened() != opened {
                        // It may be the connection of a packet after it, which is plainer.
                        new.known = 0;
                    }
                    gate
                };
                if gate != Gate::FIRST {
                    context.put(go * GO + at, gate);
                }
            }
        }
        if context.now() >= self.next {
            self.look_after(tables, context);
        }
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        let own = Arc::clone(&self.tables);
        let Some(mut tables) = own.lend() else { return };
        let now = self.settings.clock.slot(context.now());
        tables.expire(now, 1 << 10);
        self.look_after(&tables, context);
    }
}

register!(state Connections);
register!(Firewall);

#[cfg(test)]
mod tests;

//! A worker's translator: its sessions, and what happens to each packet.

mod shown;

use std::sync::Arc;

use forebay_graph::{Context, Gate, SetupError, share};
use forebay_measure::Counter;
use forebay_packet::{
    Network, Packet, SessionKey,
    wire::ipv4::{ICMP, TCP, UDP},
};
use forebay_units::Ticks;

use super::allocations::Allocations;
use super::allotment::Allotment;
use super::bindings::{Bindings, Endpoint};
use super::ports::Ports;
use super::reasons::{FRAGMENT, FULL, HAIRPIN, NO_PORT, NO_SESSION, NOT_INSIDE, PROTOCOL, UNDECIDABLE};
use super::translation::{Direction, Translation};
use super::{Filtering, Nat, WhenFull, packets, translate_error};
use crate::connection::{
    Connection, ENDS, FoundSession, Headers, Plain, SessionRow, Shown, SlotClock, Timeouts, opens,
};
use crate::listing::{Desk, Part};
use crate::parameters::no_memory;
use crate::tables::sessions::{Found, GO, Refused, Seed, Sessions, Slot, Spot, Tuple4};
pub(crate) use shown::{BINDINGS, SESSIONS};

/// What is counted of sessions, in this order.
pub(crate) const COUNTERS: [&str; 5] = ["open", "opened", "ended", "evicted", "refused"];

/// Ports that are looked at for one by which packets come back to their worker, as many times as there are workers. One in as
/// many as there are workers leads back, so that none in this many does by chance once in e⁶⁴ times; where most of those are
/// taken that would, no packet is to look through all 65536.
const LOOKS: usize = 64;

/// A worker's translator.
pub(crate) struct Translator {
    table: Sessions<Translation>,
    bindings: Bindings,
    ports: Ports,
    /// The first address of the pool, and how many there are.
    pool: (u32, u32),
    when_full: WhenFull,
    filtering: Filtering,
    timeouts: Timeouts,
    clock: SlotClock,
    share: (usize, usize),
    allotment: Allotment,
    allocations: Allocations,
    desk: Desk,
    /// The slot that it is.
    now: Slot,
    opened: u64,
    ended: u64,
    evicted: u64,
    refused: u64,
}

impl Translator {
    pub(super) fn new(
        nat: &Nat,
        sessions: usize,
        share: (usize, usize),
        secret: u64,
        part: &Arc<Part>,
    ) -> Result<Self, SetupError> {
        let lack = || no_memory("state", format!("a table of {sessions} sessions (the state's `sessions`)"));
        // A session has its binding before another one gives way to it.
        let bindings = sessions + 1;
        let mut new = Self {
            table: Sessions::new(sessions, Seed::new(secret)).map_err(lack())?.lasting(nat.timeouts.longest()),
            bindings: Bindings::new(
                bindings,
                nat.forwards.len(),
                nat.ports_per_address,
                nat.filtering == Filtering::EndpointIndependent,
                secret,
            )
            .map_err(lack())?,
            ports: Ports::new(nat.pool.1, secret ^ 3)
                .map_err(no_memory("state", format!("the ports of {} addresses (the state's `pool`)", nat.pool.1)))?,
            pool: nat.pool,
            when_full: nat.when_full,
            filtering: nat.filtering,
            timeouts: nat.timeouts,
            clock: nat.clock,
            share,
            allotment: Allotment::new(nat, secret ^ 4),
            allocations: Allocations::new(share),
            desk: part.desk(),
            now: 0,
            opened: 0,
            ended: 0,
            evicted: 0,
            refused: 0,
        };
        for (protocol, outside, inside) in &nat.forwards {
            new.ports.reserve(outside.0 - nat.pool.0, *protocol, outside.1);
            let inside = Endpoint::new(inside.0, inside.1, *protocol, 0);
            // As many places as there are forwards are theirs.
            let bound = new.bindings.forward(inside, Endpoint::new(outside.0, outside.1, *protocol, 1));
            bound.map_err(|refused| SetupError::at("state", format!("forwards: {refused}")))?;
        }
        Ok(new)
    }

    /// Returns the session of a packet with this 5-tuple, before or after its translation, if it has not ended. The
    /// session stays as it is.
    pub(super) fn known(&self, tuple: Tuple4, now: Ticks) -> Option<FoundSession> {
        let now = self.clock.slot(now);
        [(tuple, Direction::Out), (tuple.reversed(), Direction::In)].into_iter().find_map(|(key, inside)| {
            let found = self.table.find(key);
            if !found.is_some() || self.table.ends(found) <= now {
                return None;
            }
            // A packet to outside has the inside tuple before its translation, and the reversed outside one after it.
            let outwards = (found.side() == Translation::INSIDE) == (inside == Direction::Out);
            let session = self.table.get(found);
            let direction = if outwards { Direction::Out } else { Direction::In };
            let row = SessionRow { index: found.number() as usize, marked: session.connection.is_marked() };
            Some(FoundSession { connection: session.connection, reply: session.is_reply(direction), row })
        })
    }

    /// Marks the session of this number, which is there.
    pub(super) fn mark(&mut self, number: usize) {
        let found = self.table.numbered(number as u32);
        self.table.get_mut(found).connection.mark();
    }

    /// Begins a call: sessions that have ended are removed, a few at a time.
    #[inline]
    pub(crate) fn begin(&mut self, context: &Context<'_>, packets: u32) {
        self.now = self.clock.slot(context.now());
        self.allocations.begin(context.now());
        if self.table.is_due(self.now) {
            self.expire(packets + ENDS);
        }
    }

    #[inline(never)]
    fn expire(&mut self, mut looks: u32) {
        while let Some(session) = self.table.expire(self.now, &mut looks) {
            self.ended += 1;
            self.release(&session);
        }
    }

    /// Whether sessions that may have ended are still to be looked at.
    pub(super) fn is_due(&mut self) -> bool {
        self.table.is_due(self.now)
    }

    /// Whether sessions wait for their end.
    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Tells what is counted ([`COUNTERS`]).
    pub(crate) fn tell(&self, counters: &Arc<[Counter]>) {
        let values = [self.table.len() as u64, self.opened, self.ended, self.evicted, self.refused];
        for (counter, value) in counters.iter().zip(values) {
            counter.set(value);
        }
        self.publish();
    }

    /// Translates packets of one direction, and puts those on their gates that do not go on through the first. `hairpin` is
    /// where packets go that come from inside and go there again.
    #[inline(always)]
    pub(crate) fn process(
        &mut self,
        batch: &mut [Packet],
        context: &mut Context<'_>,
        direction: Direction,
        ways: Ways,
    ) {
        let side = if direction == Direction::Out { Translation::INSIDE } else { Translation::OUTSIDE };
        for (go, packets) in batch.chunks_mut(GO).enumerate() {
            let mut keys = [Tuple4::default(); GO];
            let mut spots = [Spot::default(); GO];
            let mut found = [Found::NONE; GO];
            for (packet, key) in packets.iter().zip(&mut keys) {
                // What is not plain is of no session by this key: nothing has protocol 0.
                *key = Plain::of(packet).map_or(Tuple4::default(), Plain::tuple);
            }
            self.table.find_go(&keys[..packets.len()], &mut spots, &mut found[..packets.len()]);
            let missing = (0..packets.len()).filter(|at| !found[*at].is_some()).fold(0, |bits, at| bits | 1 << at);
            if missing != 0 && direction == Direction::Out {
                self.make_ready(&keys, missing);
            }
            let (removals, opened) = (self.table.removals(), self.opened);
            for (at, (packet, mut found)) in packets.iter_mut().zip(found).enumerate() {
                let key = keys[at];
                if found.is_some() && self.table.removals() != removals && !self.table.is_still(found, key) {
                    found = Found::NONE;
                }
                // A packet before it may have opened its session.
                if !found.is_some() && self.opened != opened {
                    found = self.table.find_at(spots[at], key);
                }
                if found.is_some() && found.side() == side && self.quickly(packet, found, direction) {
                    continue;
                }
                let opens = !found.is_some() && direction == Direction::Out;
                let gate = if opens { self.open_plain(packet, key, spots[at]) } else { None };
                let gate = gate.unwrap_or_else(|| match direction {
                    Direction::Out => self.goes_out(packet, ways),
                    Direction::In => self.step(packet, direction, ways).map_or_else(|gate| gate, |_| Gate::FIRST),
                });
                if gate != Gate::FIRST {
                    context.put(go * GO + at, gate);
                }
            }
        }
    }

    /// Packets of these keys may open sessions: what that takes is asked for.
    #[inline(never)]
    fn make_ready(&self, keys: &[Tuple4; GO], missing: u32) {
        let (mut left, mut searches) = (missing, 0);
        while left != 0 {
            let key = keys[left.trailing_zeros() as usize % GO];
            left &= left - 1;
            // What is not plain is of no protocol, and is looked at by itself.
            if key.protocol() == 0 {
                continue;
            }
            let endpoint = inside_endpoint(key);
            self.bindings.prefetch(endpoint);
            if let Some((number, range)) = self.allotment.of(endpoint.address()) {
                searches += 1;
                self.ports.prefetch(searches, number, key.protocol(), range);
            }
        }
        self.table.make_ready(missing.count_ones() as usize, |session| {
            self.bindings.prefetch(inside_endpoint(session.inside()));
            self.bindings.prefetch_numbered(session.binding());
            let (address, port) = session.becomes(Direction::Out);
            let number = u32::from_be_bytes(address).wrapping_sub(self.pool.0);
            self.ports.prefetch_port(number, session.inside().protocol(), port);
        });
    }

    /// Translates a plain packet of a session that goes on as before.
    #[inline(always)]
    fn quickly(&mut self, packet: &mut Packet, found: Found, direction: Direction) -> bool {
        // Only plain ones are of a session by their key.
        let Some(plain) = Plain::known_mut(packet) else { return false };
        let (session, ends) = self.table.lasts(found);
        let there = *ends > self.now;
        if !(there && session.connection.goes_on(plain.flags(), session.is_reply(direction))) {
            return false;
        }
        // A session that leads to the pool itself has two.
        let to = u32::from_be_bytes(plain.ip.destination).wrapping_sub(self.pool.0);
        if direction == Direction::Out && to < self.pool.1 {
            return false;
        }
        session.translate(plain, direction);
        *ends = self.timeouts.end(session.connection.phase(), self.now);
        packet.forget_session();
        true
    }

    /// Opens the session of a packet to outside that is of none, and translates it: where it goes. `None` where it is not
    /// plain or opens none.
    #[inline(never)]
    fn open_plain(&mut self, packet: &mut Packet, inside: Tuple4, spot: Spot) -> Option<Gate> {
        let plain = Plain::of_mut(packet)?;
        let (flags, protocol) = (plain.flags(), inside.protocol());
        if protocol == TCP && !opens(flags) || self.is_of_pool(u32::from_be_bytes(plain.ip.destination)) {
            return None;
        }
        let headers = Headers { tuple: inside, protocol, flags, asks: true };
        let found = match self.open_outwards(&headers, spot) {
            Ok(found) => found,
            Err(gate) => return Some(gate),
        };
        self.table.get(found).translate(plain, Direction::Out);
        packet.forget_session();
        Some(Gate::FIRST)
    }

    #[inline(always)]
    fn is_of_pool(&self, address: u32) -> bool {
        address.wrapping_sub(self.pool.0) < self.pool.1
    }

    /// Any packet to outside.
    #[inline(never)]
    fn goes_out(&mut self, packet: &mut Packet, ways: Ways) -> Gate {
        let to_pool = self.leads_to_pool(packet) == Some(true);
        if to_pool && ways.hairpin == HAIRPIN {
            // Before it opens a session and takes a port.
            return HAIRPIN;
        }
        let opened = self.opened;
        let found = match self.step(packet, Direction::Out, ways) {
            Ok(found) => found,
            Err(gate) => return gate,
        };
        if !to_pool {
            return Gate::FIRST;
        }
        // RFC 4787 REQ-9, hairpinning: it goes out as if from outside, and in again.
        let opened = (self.opened != opened).then(|| self.table.get(found).inside());
        match (self.step(packet, Direction::In, ways), opened) {
            (Ok(_), _) => ways.hairpin,
            (Err(dropped), Some(key)) if self.table.is_still(found, key) => {
                // It does not get there: nothing is to be left of the session that it has opened.
                self.end(found);
                dropped
            }
            (Err(dropped), _) => dropped,
        }
    }

    /// Whether a packet's destination is of the pool, if it is IPv4.
    #[inline(always)]
    fn leads_to_pool(&self, packet: &mut Packet) -> Option<bool> {
        packet.ipv4().map(|ip| self.is_of_pool(u32::from_be_bytes(ip.destination)))
    }

    /// Translates any packet in one direction: its session, none of what stays as it is and of errors. Otherwise where it goes
    /// instead.
    #[inline(never)]
    fn step(&mut self, packet: &mut Packet, direction: Direction, ways: Ways) -> Result<Found, Gate> {
        if direction == Direction::In && self.leads_to_pool(packet) == Some(false) {
            // IPv4 that is not for the pool: nothing that this translation has anything to do with.
            return if ways.others == Gate::FIRST { Ok(Found::NONE) } else { Err(ways.others) };
        }
        match Shown::<Tuple4>::of(packet) {
            Shown::NotThis if packet.hides_network() => Err(UNDECIDABLE),
            Shown::NotThis => Ok(Found::NONE),
            Shown::Fragment => Err(FRAGMENT),
            // No answer belongs to a message that is no query: such are not translated (RFC 5508 REQ-11).
            Shown::Malformed | Shown::Message(_) | Shown::Neighbour => Err(PROTOCOL),
            Shown::Packet(headers) if !matches!(headers.protocol, TCP | UDP | ICMP) => Err(PROTOCOL),
            Shown::Error(quoted) => self.error(packet, quoted, direction).map(|()| Found::NONE).ok_or(NO_SESSION),
            Shown::Packet(headers) => {
                let found = self.session(&headers, direction)?;
                let session = self.table.get_mut(found);
                session.connection.passes(headers.flags, session.is_reply(direction));
                let (phase, becomes) = (session.connection.phase(), session.becomes(direction));
                self.timeouts.renew(&mut self.table, found, phase, self.now);
                packets::translate(packet, direction, becomes).map(|()| found).ok_or(PROTOCOL)
            }
        }
    }

    /// An ICMP error: of the session whose packet it quotes. It keeps no session alive (RFC 5508 section 4.2).
    fn error(&mut self, packet: &mut Packet, quoted: Tuple4, direction: Direction) -> Option<()> {
        let found = self.table.find(quoted.reversed());
        let side = if direction == Direction::Out { Translation::INSIDE } else { Translation::OUTSIDE };
        if !found.is_some() || found.side() != side || self.table.ends(found) <= self.now {
            return None;
        }
        translate_error(packet, direction, self.table.get(found).becomes(direction))
    }

    /// The session of a packet, a new one where it may open one.
    fn session(&mut self, headers: &Headers<Tuple4>, direction: Direction) -> Result<Found, Gate> {
        let mut found = self.table.find(headers.tuple);
        let side = if direction == Direction::Out { Translation::INSIDE } else { Translation::OUTSIDE };
        if found.is_some() && self.table.ends(found) <= self.now {
            // Its turn to be removed has not come yet: many have ended at once.
            self.end(found);
            found = Found::NONE;
        }
        if found.is_some() && found.side() == side {
            return Ok(found);
        }
        if !headers.asks || found.is_some() || headers.tuple.protocol() == TCP && !opens(headers.flags) {
            return Err(NO_SESSION);
        }
        match direction {
            Direction::Out => self.open_outwards(headers, self.table.spot(headers.tuple)),
            Direction::In => self.open_inwards(headers),
        }
    }

    /// Opens a session, whose key inside has this spot.
    fn open_outwards(&mut self, headers: &Headers<Tuple4>, spot: Spot) -> Result<Found, Gate> {
        let inside = headers.tuple;
        let protocol = inside.protocol();
        let endpoint = inside_endpoint(inside);
        let shared = self.share.1 == 1;
        let known = if shared { self.bindings.find(endpoint) } else { None };
        let (outer, number) = match known {
            Some((found, binding)) => {
                self.bindings.hold(found);
                (binding.outside, found.number())
            }
            None => self.bind(inside, endpoint, shared)?,
        };
        let address = outer.address().to_be_bytes();
        let (mine, theirs) = inside.ports();
        // An answer's numbers differ as its query's do.
        let peer = if protocol == ICMP { outer.port().wrapping_add(theirs.wrapping_sub(mine)) } else { theirs };
        let ports = (peer, outer.port());
        let outside = Tuple4::new(inside.destination(), address, ports, protocol);
        self.open(headers, (inside, outside), spot, number, Direction::Out)
    }

    fn open_inwards(&mut self, headers: &Headers<Tuple4>) -> Result<Found, Gate> {
        let outside = headers.tuple;
        let protocol = outside.protocol();
        let endpoint = Endpoint::new(u32::from_be_bytes(outside.destination()), outside.ports().1, protocol, 1);
        let (found, binding) = self.bindings.find(endpoint).ok_or(NO_SESSION)?;
        let open = binding.is_forward() || self.filtering == Filtering::EndpointIndependent;
        if !open || protocol == ICMP {
            return Err(NO_SESSION);
        }
        self.bindings.hold(found);
        let address = binding.inside.address().to_be_bytes();
        let inside = Tuple4::new(address, outside.source(), (binding.inside.port(), outside.ports().0), protocol);
        self.open(headers, (inside, outside), self.table.spot(inside), found.number(), Direction::In)
    }

    /// Gives an inside port an outside one; the number of their binding.
    fn bind(&mut self, inside: Tuple4, endpoint: Endpoint, shared: bool) -> Result<(Endpoint, u32), Gate> {
        let of = self.bindings.may(endpoint).ok_or(NO_PORT)?;
        let (protocol, (mine, shares)) = (inside.protocol(), self.share);
        let (number, range) = self.allotment.of(endpoint.address()).ok_or(NOT_INSIDE)?;
        let outer = self.pool.0 + number;
        let remote = (inside.destination(), inside.ports().1);
        let comes_back = |port: u16| shares == 1 || share(outside_hash(remote, outer, port, protocol), shares) == mine;
        let looks = LOOKS * shares;
        let port = self.ports.take(number, protocol, range, endpoint.port(), looks, comes_back);
        // The parity of the inside port is kept as long as there are such ports.
        let port = port
            .or_else(|| self.ports.take(number, protocol, range, endpoint.port() ^ 1, looks, comes_back))
            .ok_or(NO_PORT)?;
        let outer = Endpoint::new(outer, port, protocol, 1);
        if let Ok(binding) = self.bindings.insert(endpoint, outer, shared, of) {
            self.tell_allocated(endpoint, outer);
            return Ok((outer, binding));
        }
        self.ports.give_back(number, protocol, port);
        self.refused += 1;
        Err(FULL)
    }

    /// Takes a session in whose binding is held already.
    fn open(
        &mut self,
        headers: &Headers<Tuple4>,
        tuples: (Tuple4, Tuple4),
        inside: Spot,
        binding: u32,
        opened: Direction,
    ) -> Result<Found, Gate> {
        let connection = Connection::new(headers.protocol, headers.flags, ICMP);
        let session = Translation::new(tuples, binding, connection, opened);
        let ends = self.timeouts.end(connection.phase(), self.now);
        let mut told = self.table.insert_at(inside, session, ends);
        if told == Err(Refused::Full)
            && self.when_full == WhenFull::Evict
            && let Some(given_up) = self.table.give_up()
        {
            self.evicted += 1;
            self.release(&given_up);
            told = self.table.insert_at(inside, session, ends);
        }
        match told {
            Ok(found) => {
                self.opened += 1;
                Ok(found)
            }
            Err(_) => {
                self.refused += 1;
                self.release(&session);
                Err(FULL)
            }
        }
    }

    /// Ends a session before its time.
    fn end(&mut self, found: Found) {
        let session = self.table.remove(found);
        self.ended += 1;
        self.release(&session);
    }

    /// A session has ended: its port is free if no other has it.
    fn release(&mut self, session: &Translation) {
        if let Some(outer) = self.bindings.release(session.binding()) {
            self.ports.give_back(outer.address() - self.pool.0, outer.protocol(), outer.port());
            self.tell_released(inside_endpoint(session.inside()), outer);
        }
    }
}

/// The inside port of a packet to outside.
fn inside_endpoint(inside: Tuple4) -> Endpoint {
    Endpoint::new(u32::from_be_bytes(inside.source()), inside.ports().0, inside.protocol(), 0)
}

/// Where packets go that do not go on through the first gate.
#[derive(Clone, Copy)]
pub(crate) struct Ways {
    /// From inside to inside, by outside addresses; [`HAIRPIN`] drops them.
    pub(crate) hairpin: Gate,
    /// Not for the pool; the first gate lets them pass as they are.
    pub(crate) others: Gate,
}

impl Ways {
    /// What is not for the pool is dropped.
    pub(crate) const DROP_OTHERS: Gate = NO_SESSION;
}

/// The hash by which workers are told apart, of packets that come back.
fn outside_hash((address, remote): ([u8; 4], u16), outer: u32, port: u16, protocol: u8) -> u32 {
    let wide = |address: [u8; 4]| {
        let mut wide = [0; 16];
        wide[..4].copy_from_slice(&address);
        wide
    };
    // A query is spread by its identifier.
    let (source_port, destination_port) = if protocol == ICMP { (port, port) } else { (remote, port) };
    let (source, destination) = (wide(address), wide(outer.to_be_bytes()));
    let network = Network::Ipv4;
    SessionKey { network, source, destination, source_port, destination_port, protocol }.symmetric_hash()
}

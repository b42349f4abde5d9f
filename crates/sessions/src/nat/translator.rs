//! A worker's translator: its sessions, and the translation of each packet.

mod opening;
mod shown;

use std::sync::Arc;

use forebay_graph::{Context, Gate, SetupError};
use forebay_measure::Counter;
use forebay_packet::{
    Packet,
    wire::ipv4::{ICMP, TCP, UDP},
};
use forebay_tables::parameters::no_memory;
use forebay_tables::plain::Plain;
use forebay_tables::sessions::{Found, GROUP, Seed, Sessions, Slot, Spot, Tuple4};
use forebay_units::Ticks;

use super::allocations::Allocations;
use super::allotment::Allotment;
use super::bindings::{Bindings, Endpoint};
use super::ports::Ports;
use super::reasons::{FRAGMENT, HAIRPIN, NO_SESSION, PROTOCOL, UNDECIDABLE};
use super::translation::{Direction, Translation};
use super::{Filtering, Nat, WhenFull, packets, translate_error};
use crate::connection::{ENDS, FoundSession, Headers, SessionRow, Shown, SlotClock, Timeouts, opens};
use crate::listing::{OperatorSide, WorkerSide};
use opening::inside_endpoint;
pub(crate) use shown::{BINDINGS, SESSIONS};

/// The names of the counters of sessions, in the order of their indices.
pub(crate) const COUNTERS: [&str; 5] = ["open", "opened", "ended", "evicted", "refused"];

/// A worker's translator.
pub(crate) struct Translator {
    table: Sessions<Translation>,
    bindings: Bindings,
    ports: Ports,
    /// The first address of the pool, in host byte order, and the number of addresses.
    pool: (u32, u32),
    when_full: WhenFull,
    filtering: Filtering,
    timeouts: Timeouts,
    clock: SlotClock,
    /// The worker's number and the number of workers.
    share: (usize, usize),
    allotment: Allotment,
    /// The log of allocated and released outside ports.
    allocations: Allocations,
    worker_side: WorkerSide,
    /// The time slot of the present call.
    now: Slot,
    // The numbers of sessions so far. The number of open sessions is the length of the table.
    opened: u64,
    ended: u64,
    evicted: u64,
    refused: u64,
}

impl Translator {
    /// Creates a translator for up to `sessions` sessions, with the forwards of the state. `share` is the worker's
    /// number and the number of workers. `secret` seeds the hashes and the choice of ports.
    pub(super) fn new(
        nat: &Nat,
        sessions: usize,
        share: (usize, usize),
        secret: u64,
        operators: &Arc<OperatorSide>,
    ) -> Result<Self, SetupError> {
        let lack = || no_memory("state", format!("a table of {sessions} sessions (the state's `sessions`)"));
        // A new session gets its binding before another session is evicted, so one more binding is needed.
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
            worker_side: operators.worker_side(),
            now: 0,
            opened: 0,
            ended: 0,
            evicted: 0,
            refused: 0,
        };
        for (protocol, outside, inside) in &nat.forwards {
            new.ports.reserve(outside.0 - nat.pool.0, *protocol, outside.1);
            let inside = Endpoint::new(inside.0, inside.1, *protocol, 0);
            // The table has room for all forwards.
            let bound = new.bindings.forward(inside, Endpoint::new(outside.0, outside.1, *protocol, 1));
            bound.map_err(|refused| SetupError::at("state", format!("forwards: {refused}")))?;
        }
        Ok(new)
    }

    /// Returns the session of a packet, if the session has not ended. `tuple` is the packet's 5-tuple before or after
    /// its translation. The session does not change.
    pub(super) fn known(&self, tuple: Tuple4, now: Ticks) -> Option<FoundSession> {
        let now = self.clock.slot(now);
        [(tuple, Direction::Out), (tuple.reversed(), Direction::In)].into_iter().find_map(|(key, inside)| {
            let found = self.table.find(key);
            if !found.is_some() || self.table.ends(found) <= now {
                return None;
            }
            // A packet to outside has the session's inside tuple before its translation, and the reversed outside tuple
            // after it. Every other match is a packet from outside.
            let outwards = (found.side() == Translation::INSIDE) == (inside == Direction::Out);
            let session = self.table.get(found);
            let direction = if outwards { Direction::Out } else { Direction::In };
            let row = SessionRow { index: found.number() as usize, marked: session.connection.is_marked() };
            Some(FoundSession { connection: session.connection, reply: session.is_reply(direction), row })
        })
    }

    /// Marks the session of this number, which must exist.
    pub(super) fn mark(&mut self, number: usize) {
        let found = self.table.numbered(number as u32);
        self.table.get_mut(found).connection.mark();
    }

    /// Begins a call: sets the present time slot, so it must come first in each call, and removes sessions that have
    /// ended. Examines one session for each of `packets` packets, and [`ENDS`] more.
    #[inline]
    pub(crate) fn begin(&mut self, context: &Context<'_>, packets: u32) {
        self.now = self.clock.slot(context.now());
        self.allocations.begin(context.now());
        if self.table.is_due(self.now) {
            self.expire(packets + ENDS);
        }
    }

    /// Removes sessions that have ended. Examines up to `looks` sessions.
    #[inline(never)]
    fn expire(&mut self, mut looks: u32) {
        while let Some(session) = self.table.expire(self.now, &mut looks) {
            self.ended += 1;
            self.release(&session);
        }
    }

    /// Returns true if the table still has sessions to check, because their time-outs may be over.
    pub(super) fn is_due(&mut self) -> bool {
        self.table.is_due(self.now)
    }

    /// Returns true if there are no sessions.
    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Publishes the counters ([`COUNTERS`]).
    pub(crate) fn publish_counters(&self, counters: &Arc<[Counter]>) {
        let values = [self.table.len() as u64, self.opened, self.ended, self.evicted, self.refused];
        for (counter, value) in counters.iter().zip(values) {
            counter.set(value);
        }
        self.publish();
    }

    /// Translates packets of one direction. Packets that do not leave through the first gate are assigned another gate.
    #[inline(always)]
    pub(crate) fn process(
        &mut self,
        batch: &mut [Packet],
        context: &mut Context<'_>,
        direction: Direction,
        outputs: Outputs,
    ) {
        let side = if direction == Direction::Out { Translation::INSIDE } else { Translation::OUTSIDE };
        for (group, packets) in batch.chunks_mut(GROUP).enumerate() {
            let mut keys = [Tuple4::default(); GROUP];
            let mut spots = [Spot::default(); GROUP];
            let mut found = [Found::NONE; GROUP];
            for (packet, key) in packets.iter().zip(&mut keys) {
                // A packet that is not plain gets a key that no session has: protocol 0 is not used.
                *key = Plain::of(packet).map_or(Tuple4::default(), Plain::tuple);
            }
            self.table.find_group(&keys[..packets.len()], &mut spots, &mut found[..packets.len()]);
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
                // An earlier packet of the batch may have opened the session.
                if !found.is_some() && self.opened != opened {
                    found = self.table.find_at(spots[at], key);
                }
                if found.is_some() && found.side() == side && self.quickly(packet, found, direction) {
                    continue;
                }
                let opens = !found.is_some() && direction == Direction::Out;
                let gate = if opens { self.open_plain(packet, key, spots[at]) } else { None };
                let gate = gate.unwrap_or_else(|| match direction {
                    Direction::Out => self.goes_out(packet, outputs),
                    Direction::In => self.step(packet, direction, outputs).map_or_else(|gate| gate, |_| Gate::FIRST),
                });
                if gate != Gate::FIRST {
                    context.put(group * GROUP + at, gate);
                }
            }
        }
    }

    /// Prefetches the entries that are needed if packets open sessions. Bit n of `missing` is set if no session was
    /// found for the key at index n of `keys`.
    #[inline(never)]
    fn make_ready(&self, keys: &[Tuple4; GROUP], missing: u32) {
        let (mut remaining, mut searches) = (missing, 0);
        while remaining != 0 {
            let key = keys[remaining.trailing_zeros() as usize % GROUP];
            remaining &= remaining - 1;
            // A packet that is not plain has protocol 0. It is handled separately.
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

    /// Translates a plain packet that does not change the state of its session. `found` is this session. Returns false
    /// if the packet needs the general case ([`step`](Self::step)); then the packet is not changed.
    #[inline(always)]
    fn quickly(&mut self, packet: &mut Packet, found: Found, direction: Direction) -> bool {
        // `process` looks up sessions only for plain packets, so this packet is plain.
        let Some(plain) = Plain::known_mut(packet) else { return false };
        let (session, ends) = self.table.lasts(found);
        let live = *ends > self.now;
        if !(live && session.connection.goes_on(plain.flags(), session.is_reply(direction))) {
            return false;
        }
        // A packet from inside to an address of the pool belongs to two sessions (hairpinning).
        let to = u32::from_be_bytes(plain.ip.destination).wrapping_sub(self.pool.0);
        if direction == Direction::Out && to < self.pool.1 {
            return false;
        }
        session.translate(plain, direction);
        *ends = self.timeouts.end(session.connection.phase(), self.now);
        packet.forget_session();
        true
    }

    /// Opens a session for a packet to outside, translates the packet and returns its gate. Returns `None` if the
    /// packet is not plain or may not open a session.
    #[inline(never)]
    fn open_plain(&mut self, packet: &mut Packet, inside: Tuple4, spot: Spot) -> Option<Gate> {
        let plain = Plain::of_mut(packet)?;
        let (flags, protocol) = (plain.flags(), inside.protocol());
        if protocol == TCP && !opens(flags) || self.is_of_pool(u32::from_be_bytes(plain.ip.destination)) {
            return None;
        }
        let headers = Headers { tuple: inside, protocol, flags, may_open: true };
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

    /// Translates any packet to outside, and back inside if it goes to an address of the pool. Returns its gate.
    #[inline(never)]
    fn goes_out(&mut self, packet: &mut Packet, outputs: Outputs) -> Gate {
        let to_pool = self.leads_to_pool(packet) == Some(true);
        if to_pool && outputs.hairpin == HAIRPIN {
            // Drop the packet before it opens a session and takes a port.
            return HAIRPIN;
        }
        let opened = self.opened;
        let found = match self.step(packet, Direction::Out, outputs) {
            Ok(found) => found,
            Err(gate) => return gate,
        };
        if !to_pool {
            return Gate::FIRST;
        }
        // RFC 4787 REQ-9, hairpinning: the packet is translated as if it had gone outside and come back.
        let opened = (self.opened != opened).then(|| self.table.get(found).inside());
        match (self.step(packet, Direction::In, outputs), opened) {
            (Ok(_), _) => outputs.hairpin,
            (Err(dropped), Some(key)) if self.table.is_still(found, key) => {
                // The packet does not arrive, so the session that it opened is removed.
                self.end(found);
                dropped
            }
            (Err(dropped), _) => dropped,
        }
    }

    /// Returns true if an IPv4 packet's destination belongs to the pool. Returns `None` for other packets.
    #[inline(always)]
    fn leads_to_pool(&self, packet: &mut Packet) -> Option<bool> {
        packet.ipv4().map(|ip| self.is_of_pool(u32::from_be_bytes(ip.destination)))
    }

    /// Translates any packet in one direction and returns its session. Returns `Found::NONE` for an ICMP error and for
    /// a packet that passes unchanged. The error is the gate to which the packet goes instead.
    #[inline(never)]
    fn step(&mut self, packet: &mut Packet, direction: Direction, outputs: Outputs) -> Result<Found, Gate> {
        if direction == Direction::In && self.leads_to_pool(packet) == Some(false) {
            // An IPv4 packet to an address outside the pool is not translated.
            return if outputs.others == Gate::FIRST { Ok(Found::NONE) } else { Err(outputs.others) };
        }
        match Shown::<Tuple4>::of(packet) {
            Shown::NotThis if packet.hides_network() => Err(UNDECIDABLE),
            Shown::NotThis => Ok(Found::NONE),
            Shown::Fragment => Err(FRAGMENT),
            // A message that is not a query has no reply, so it is not translated (RFC 5508 REQ-11).
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

    /// Translates an ICMP error by the session of the packet that it quotes. The error does not extend the session (RFC
    /// 5508 section 4.2).
    fn error(&mut self, packet: &mut Packet, quoted: Tuple4, direction: Direction) -> Option<()> {
        let found = self.table.find(quoted.reversed());
        let side = if direction == Direction::Out { Translation::INSIDE } else { Translation::OUTSIDE };
        if !found.is_some() || found.side() != side || self.table.ends(found) <= self.now {
            return None;
        }
        translate_error(packet, direction, self.table.get(found).becomes(direction))
    }
}

/// Gates of packets that do not leave through the first gate.
#[derive(Clone, Copy)]
pub(crate) struct Outputs {
    /// The gate of packets from inside to an outside address that belongs to an inside host. [`HAIRPIN`] drops them.
    pub(crate) hairpin: Gate,
    /// The gate of packets from outside whose destination is not in the pool. The first gate lets them pass unchanged.
    pub(crate) others: Gate,
}

impl Outputs {
    /// The value of [`others`](Self::others) that drops the packets.
    pub(crate) const DROP_OTHERS: Gate = NO_SESSION;
}

//! A worker's part of a balancer: its sessions, and the forwarding of each packet.

mod shown;

use std::sync::Arc;

use forebay_graph::{Context, Gate};
use forebay_measure::Counter;
use forebay_memory::NoMemory;
use forebay_packet::Packet;
use forebay_packet::wire::ipv4::{ICMP, TCP, UDP};
use forebay_tables::plain::Plain;
use forebay_tables::sessions::{Found, GROUP, Refused, Seed, Sessions, Slot, Tuple4};

use super::Settings;
use super::outcome::{CLASH, FRAGMENT, FULL, MALFORMED, NO_BACKEND, NO_SERVICE, Outputs, UNDECIDABLE};
use super::roster::{BackendEntry, Roster};
use super::services::{Hop, Mode, Replies, Services};
use super::session::{Balanced, passes_alone};
use crate::connection::flags::RST;
use crate::connection::{Connection, ENDS, Headers, Phase, Shown, opens};
use crate::listing::{OperatorSide, WorkerSide};
use crate::nat::{self, Direction, WhenFull};

/// A worker's sessions.
pub(crate) struct Distributor {
    table: Sessions<Balanced>,
    /// The backends of all sessions. Each session stores the index of its backend here.
    roster: Roster,
    /// The services of the present configuration.
    services: Arc<Services>,
    /// The time slot of the present call.
    now: Slot,
    // The counters of sessions so far. The number of open sessions is the length of the table.
    opened: u64,
    ended: u64,
    evicted: u64,
    refused: u64,
    worker_side: WorkerSide,
}

pub(super) use shown::SESSIONS;

/// A decision for a packet: the new destination address and port, and the way to the backend.
type Delivery = (([u8; 4], u16), Hop);

impl Distributor {
    /// Creates a table for up to `sessions` sessions. `secret` seeds the hashes of their keys.
    pub(super) fn new(
        services: Arc<Services>,
        sessions: usize,
        secret: u64,
        operators: &Arc<OperatorSide>,
    ) -> Result<Self, NoMemory> {
        let table = Sessions::new(sessions, Seed::new(secret))?.lasting(services.settings.timeouts.longest());
        let mut roster = Roster::default();
        let fits = roster.adopt(&services);
        debug_assert!(fits, "a configuration has fewer backends than the roster has entries");
        Ok(Self {
            table,
            roster,
            services,
            now: 0,
            opened: 0,
            ended: 0,
            evicted: 0,
            refused: 0,
            worker_side: operators.worker_side(),
        })
    }

    /// Begins a call of a module with these services. Must come first in each call, because it sets the present time
    /// slot. If the services are those of a new configuration, takes them over. Removes sessions that have ended:
    /// examines one for each of `packets` packets, and [`ENDS`] more.
    #[inline]
    pub(crate) fn begin(&mut self, context: &Context<'_>, packets: u32, services: &Arc<Services>) {
        if !self.is_of(services) {
            self.adopt(services);
        }
        self.now = services.settings.clock.slot(context.now());
        if self.table.is_due(self.now) {
            self.expire(packets + ENDS);
        }
    }

    /// Returns true if these are the services of the present configuration.
    pub(crate) fn is_of(&self, services: &Arc<Services>) -> bool {
        Arc::ptr_eq(&self.services, services)
    }

    /// Takes over a changed configuration. Called at the first batch after the change.
    #[cold]
    fn adopt(&mut self, services: &Arc<Services>) {
        self.services = Arc::clone(services);
        self.table.last_up_to(services.settings.timeouts.longest());
        if !self.roster.adopt(services) {
            // The roster is full of former backends. Their sessions would end at their next packet anyway, so end them
            // now.
            let mut from = 0;
            while let Some(found) = self.absent(from) {
                from = found.number() + 1;
                self.end(found);
            }
            let fits = self.roster.adopt(services);
            debug_assert!(fits, "a configuration has fewer backends than the roster has entries");
        }
    }

    /// Returns the first session, from the session number `from` on, whose backend is not in the configuration.
    fn absent(&self, from: u32) -> Option<Found> {
        let absent = |session: &Balanced| !self.roster.get(session.backend).present;
        self.table.iter(from).find(|(_, session)| absent(session)).map(|(found, _)| found)
    }

    /// Removes sessions that have ended. Examines up to `looks` sessions.
    #[inline(never)]
    fn expire(&mut self, mut looks: u32) {
        while let Some(session) = self.table.expire(self.now, &mut looks) {
            self.ended += 1;
            self.count_removed(&session);
        }
    }

    /// Removes a session from the table at once, and counts it as ended.
    fn end(&mut self, found: Found) {
        let session = self.table.remove(found);
        self.ended += 1;
        self.count_removed(&session);
    }

    /// Updates the roster for a session that was removed from the table.
    fn count_removed(&mut self, session: &Balanced) {
        self.roster.get_mut(session.backend).open -= 1;
    }

    /// Returns true if the table still has sessions to check, because their time-outs may be over.
    pub(crate) fn is_due(&mut self) -> bool {
        self.table.is_due(self.now)
    }

    /// Returns true if there are no sessions.
    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Publishes the counters ([`COUNTERS`](super::COUNTERS), [`BACKENDS`](super::BACKENDS)). `backends` must belong to
    /// the present configuration ([`is_of`](Self::is_of)).
    pub(crate) fn publish(&self, sessions: &[Counter], backends: &[Arc<[Counter]>; 3]) {
        let values = [self.table.len() as u64, self.opened, self.ended, self.evicted, self.refused];
        sessions.iter().zip(values).for_each(|(counter, value)| counter.set(value));
        for (at, entry) in self.roster.present().enumerate() {
            let BackendEntry { open, opened, packets, .. } = *entry;
            for (counters, value) in backends.iter().zip([open, opened, packets]) {
                counters[at].set(value);
            }
        }
        self.worker_side.publish([self.table.len(), 0]);
    }

    /// Sends packets for a service to its backend. Packets that do not leave through the first gate are assigned
    /// another gate.
    #[inline(always)]
    pub(crate) fn forward(&mut self, batch: &mut [Packet], context: &mut Context<'_>, outputs: Outputs) {
        self.each(batch, context, Balanced::CLIENT, |it, packet, found| {
            let quick = found.is_some_and(|found| it.forward_plain(packet, found, outputs));
            if quick { Gate::FIRST } else { it.forward_any(packet, outputs).unwrap_or_else(|gate| gate) }
        });
    }

    /// Gives replies of backends the service's address and port.
    #[inline(always)]
    pub(crate) fn back(&mut self, batch: &mut [Packet], context: &mut Context<'_>, outputs: Outputs) {
        if self.services.settings.replies == Replies::Endpoint {
            for (at, packet) in batch.iter_mut().enumerate() {
                if !self.back_by_endpoint(packet) {
                    put(context, at, self.back_any(packet, outputs));
                }
            }
            return;
        }
        self.each(batch, context, Balanced::SERVER, |it, packet, found| {
            let quick = found.is_some_and(|found| it.back_plain(packet, found));
            if quick { Gate::FIRST } else { it.back_any(packet, outputs) }
        });
    }

    /// Calls `pass` for each packet, and assigns the packet to the gate that `pass` returns. `pass` gets the packet's
    /// session if the packet is plain and its key is the session's key of this `side` ([`Balanced::CLIENT`] or
    /// [`Balanced::SERVER`]). Otherwise `pass` gets `None`.
    #[inline(always)]
    fn each(
        &mut self,
        batch: &mut [Packet],
        context: &mut Context<'_>,
        side: u32,
        mut pass: impl FnMut(&mut Self, &mut Packet, Option<Found>) -> Gate,
    ) {
        for (group, packets) in batch.chunks_mut(GROUP).enumerate() {
            let mut keys = [Tuple4::default(); GROUP];
            let mut found = [Found::NONE; GROUP];
            for (packet, key) in packets.iter().zip(&mut keys) {
                // A packet that is not plain gets a key that no session has: protocol 0 is not used.
                *key = Plain::of(packet).map_or(Tuple4::default(), Plain::tuple);
            }
            self.table.find_each(&keys[..packets.len()], &mut found[..packets.len()]);
            // The sessions of the whole group were looked up first. A packet of the group may remove sessions, so a
            // result is checked again after a removal.
            let removals = self.table.removals();
            for (at, (packet, found)) in packets.iter_mut().zip(found).enumerate() {
                let is_current =
                    self.table.removals() == removals || found.is_some() && self.table.is_still(found, keys[at]);
                let usable = found.is_some() && found.side() == side && is_current;
                let gate = pass(self, packet, usable.then_some(found));
                put(context, group * GROUP + at, gate);
            }
        }
    }

    /// Forwards a plain packet that does not change the state of its session. `found` is this session. Returns false if
    /// the packet needs the general case ([`forward_any`](Self::forward_any)); then the packet is not changed.
    #[inline(always)]
    fn forward_plain(&mut self, packet: &mut Packet, found: Found, outputs: Outputs) -> bool {
        // `each` looks up sessions only for plain packets, so this packet is plain.
        let Some(plain) = Plain::known_mut(packet) else { return false };
        let (session, ends) = self.table.lasts(found);
        let backend = self.roster.get_mut(session.backend);
        if *ends <= self.now || !backend.present || !session.connection.goes_on(plain.flags(), false) {
            return false;
        }
        backend.packets += 1;
        if backend.hop == Hop::Route {
            session.forward(plain);
            packet.forget_session();
        } else {
            outputs.direct(packet, backend.hop);
        }
        *ends = self.services.settings.timeouts.end(session.connection.phase(), self.now);
        true
    }

    /// Translates a plain reply that does not change the state of its session. `found` is this session. Returns false
    /// if the packet needs the general case ([`back_any`](Self::back_any)); then the packet is not changed.
    #[inline(always)]
    fn back_plain(&mut self, packet: &mut Packet, found: Found) -> bool {
        let Some(plain) = Plain::known_mut(packet) else { return false };
        let (session, ends) = self.table.lasts(found);
        if *ends <= self.now || !session.connection.goes_on(plain.flags(), true) {
            return false;
        }
        session.back(plain);
        *ends = self.services.settings.timeouts.end(session.connection.phase(), self.now);
        packet.forget_session();
        true
    }

    /// Gives a plain packet of a backend the address and port of its service. The backend is recognised by its own
    /// address and port. Returns false if the packet needs the general case.
    #[inline(always)]
    fn back_by_endpoint(&self, packet: &mut Packet) -> bool {
        let Some(plain) = Plain::of_mut(packet) else { return false };
        let server = plain.tuple();
        let Some(service) = self.service_of(server) else { return false };
        let client = Tuple4::new(server.destination(), service.0, (server.ports().1, service.1), server.protocol());
        Balanced::new(client, server, Connection::default(), 0).back(plain);
        packet.forget_session();
        true
    }

    /// Returns the address and port of the service to which a backend's packet with this 5-tuple belongs. The source of
    /// the packet identifies the service (`replies: endpoint`). Returns `None` if the source is not a backend with
    /// `mode: nat`.
    fn service_of(&self, server: Tuple4) -> Option<([u8; 4], u16)> {
        self.services.service_of(server.source(), server.ports().0, server.protocol())
    }

    /// Forwards any packet, to a service or not. Returns its gate. An error is the gate of a packet that is dropped.
    #[inline(never)]
    fn forward_any(&mut self, packet: &mut Packet, outputs: Outputs) -> Result<Gate, Gate> {
        let ours = |it: &Self, packet: &mut Packet| packet.ipv4().is_some_and(|ip| it.services.have(ip.destination));
        match Shown::<Tuple4>::of(packet) {
            Shown::Fragment if ours(self, packet) => Err(FRAGMENT),
            Shown::Malformed if ours(self, packet) => Err(MALFORMED),
            Shown::NotThis if packet.hides_network() => Err(UNDECIDABLE),
            Shown::Error(quoted) => {
                // The error is about a reply; the quoted packet went to the client. The error does not extend the
                // session (RFC 5508 section 4.2).
                let client = quoted.reversed();
                let Some((becomes, hop)) = self.known(client).or_else(|| self.chosen(client)) else {
                    return Ok(outputs.others);
                };
                if hop == Hop::Route {
                    nat::translate_error(packet, Direction::In, becomes).ok_or(MALFORMED)?;
                } else {
                    outputs.direct(packet, hop);
                }
                Ok(Gate::FIRST)
            }
            Shown::Packet(headers) if matches!(headers.protocol, TCP | UDP) => {
                let Some((becomes, hop)) = self.deliver(&headers)? else { return Ok(outputs.others) };
                if hop == Hop::Route {
                    nat::translate(packet, Direction::In, becomes).ok_or(MALFORMED)?;
                } else {
                    outputs.direct(packet, hop);
                }
                Ok(Gate::FIRST)
            }
            _ => Ok(outputs.others),
        }
    }

    /// Returns the session of a key, or `Found::NONE`. A session whose time-out is over is removed and not returned.
    fn live(&mut self, key: Tuple4) -> Found {
        let found = self.table.find(key);
        if !found.is_some() || self.table.ends(found) > self.now {
            return found;
        }
        // The session has ended, but it has not been removed yet.
        self.end(found);
        Found::NONE
    }

    /// As [`live`](Self::live), but only for a session whose backend is in the configuration. If the backend is not,
    /// ends the session: then a new backend is chosen, and another session can use the keys.
    fn present(&mut self, key: Tuple4) -> Found {
        let found = self.live(key);
        if !found.is_some() || self.roster.get(self.table.get(found).backend).present {
            return found;
        }
        self.end(found);
        Found::NONE
    }

    /// Returns the delivery of a client's packet, if the packet has a session and the session's backend is in the
    /// configuration. The session does not change.
    fn known(&mut self, client: Tuple4) -> Option<Delivery> {
        let found = self.live(client);
        if !found.is_some() || found.side() != Balanced::CLIENT {
            return None;
        }
        let session = self.table.get(found);
        let backend = self.roster.get(session.backend);
        backend.present.then(|| (session.backend_end(), backend.hop))
    }

    /// Returns the delivery that a new session of this client would get. Opens no session. Returns `None` if the packet
    /// is not for a service, or if no backend of the service takes new sessions.
    fn chosen(&self, client: Tuple4) -> Option<Delivery> {
        let backend = self.services.of(client)?.pick(client)?;
        let backend = &self.services.backends[backend];
        Some((backend.end_of(client.ports().1), backend.hop))
    }

    /// Returns the delivery of a client's packet, by its session or a new session. Returns `None` if the packet is not
    /// for a service. An error is the gate of a packet that is dropped.
    fn deliver(&mut self, headers: &Headers<Tuple4>) -> Result<Option<Delivery>, Gate> {
        let client = headers.tuple;
        let mut found = self.present(client);
        if found.is_some() && found.side() != Balanced::CLIENT {
            return Err(CLASH);
        }
        // The client uses its ports again for a new connection. The new session may get another backend.
        if found.is_some() && self.table.get(found).connection.phase() == Phase::TcpClosing && opens(headers.flags) {
            self.end(found);
            found = Found::NONE;
        }
        if !found.is_some() {
            if self.services.of(client).is_none() {
                return Ok(None);
            }
            // A reset without a session goes to the backend that its session would have.
            if headers.flags & RST != 0 {
                return self.chosen(client).map(Some).ok_or(NO_BACKEND);
            }
            found = self.open(headers)?;
        } else {
            self.follow(found, headers.flags, false);
        }
        let session = self.table.get(found);
        let backend = self.roster.get_mut(session.backend);
        backend.packets += 1;
        Ok(Some((session.backend_end(), backend.hop)))
    }

    /// Updates the connection of a session, and its time-out, for a packet with these TCP flags (0 for UDP). `reply` is
    /// true for a packet of the backend.
    fn follow(&mut self, found: Found, flags: u8, reply: bool) {
        let session = self.table.get_mut(found);
        let protocol = session.protocol();
        if self.roster.get(session.backend).one_way && !reply {
            passes_alone(&mut session.connection, protocol, flags);
        } else {
            session.connection.passes(flags, reply);
        }
        let phase = session.connection.phase();
        self.services.settings.timeouts.renew(&mut self.table, found, phase, self.now);
    }

    /// Opens a session for a packet to a service. An error is the gate of a packet that is dropped.
    fn open(&mut self, headers: &Headers<Tuple4>) -> Result<Found, Gate> {
        let client = headers.tuple;
        let services = Arc::clone(&self.services);
        let service = services.of(client).ok_or(NO_SERVICE)?;
        let number = service.pick(client).ok_or(NO_BACKEND)?;
        let backend = &services.backends[number];
        let server = match service.mode {
            Mode::Direct => client.reversed(),
            Mode::Nat => {
                let (address, port) = backend.end_of(client.ports().1);
                Tuple4::new(address, client.source(), (port, client.ports().0), client.protocol())
            }
        };
        if self.present(server).is_some() {
            return Err(CLASH);
        }
        let mut connection = Connection::new(headers.protocol, headers.flags, ICMP);
        if backend.one_way {
            passes_alone(&mut connection, headers.protocol, headers.flags);
        }
        let entry = self.roster.of(number);
        let session = Balanced::new(client, server, connection, entry);
        let Settings { timeouts, when_full, .. } = self.services.settings;
        let ends = timeouts.end(connection.phase(), self.now);
        let mut inserted = self.table.insert(session, ends);
        if inserted == Err(Refused::Full)
            && when_full == WhenFull::Evict
            && let Some(evicted) = self.table.evict_soonest()
        {
            self.evicted += 1;
            self.count_removed(&evicted);
            inserted = self.table.insert(session, ends);
        }
        let Ok(found) = inserted else {
            self.refused += 1;
            return Err(FULL);
        };
        self.opened += 1;
        let entry = self.roster.get_mut(entry);
        (entry.open, entry.opened) = (entry.open + 1, entry.opened + 1);
        Ok(found)
    }

    /// Handles any packet, from a backend or not. Returns its gate.
    #[inline(never)]
    fn back_any(&mut self, packet: &mut Packet, outputs: Outputs) -> Gate {
        let theirs = |it: &Self, packet: &mut Packet| packet.ipv4().is_some_and(|ip| it.services.translate(ip.source));
        let gate = |translated: Option<()>| if translated.is_some() { Gate::FIRST } else { MALFORMED };
        match Shown::<Tuple4>::of(packet) {
            Shown::Fragment if theirs(self, packet) => FRAGMENT,
            Shown::Malformed if theirs(self, packet) => MALFORMED,
            Shown::NotThis if packet.hides_network() => UNDECIDABLE,
            Shown::Error(quoted) => {
                // The error is about a client's packet, as the backend saw it.
                let Some(becomes) = self.service_end_of(quoted.reversed()) else { return outputs.others };
                gate(nat::translate_error(packet, Direction::Out, becomes))
            }
            Shown::Packet(headers) if matches!(headers.protocol, TCP | UDP) => {
                let found = self.live(headers.tuple);
                if self.services.settings.replies == Replies::Session
                    && found.is_some()
                    && found.side() == Balanced::SERVER
                {
                    self.follow(found, headers.flags, true);
                }
                let Some(becomes) = self.service_end_of(headers.tuple) else { return outputs.others };
                gate(nat::translate(packet, Direction::Out, becomes))
            }
            _ => outputs.others,
        }
    }

    /// Returns the address and port of the service that become the source of a backend's packet, or `None` if the
    /// packet is not a reply.
    fn service_end_of(&mut self, server: Tuple4) -> Option<([u8; 4], u16)> {
        if self.services.settings.replies == Replies::Endpoint {
            return self.service_of(server);
        }
        let found = self.live(server);
        let is = found.is_some() && found.side() == Balanced::SERVER;
        is.then(|| self.table.get(found).service_end())
    }
}

/// Assigns the packet at index `at` to its gate. Packets are on the first gate by default.
#[inline(always)]
fn put(context: &mut Context<'_>, at: usize, gate: Gate) {
    if gate != Gate::FIRST {
        context.put(at, gate);
    }
}

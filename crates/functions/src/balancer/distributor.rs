//! A worker's part of a balancer: its sessions, and what happens to each packet.

mod shown;

use std::sync::Arc;

use forebay_graph::{Context, Gate};
use forebay_measure::Counter;
use forebay_memory::NoMemory;
use forebay_packet::Packet;
use forebay_packet::wire::ipv4::{ICMP, TCP, UDP};

use super::Settings;
use super::outcome::{CLASH, FRAGMENT, FULL, MALFORMED, NO_BACKEND, NO_SERVICE, UNDECIDABLE, Ways};
use super::roster::{Place, Roster};
use super::services::{Hop, Mode, Replies, Services};
use super::session::{Balanced, passes_alone};
use crate::connection::flags::RST;
use crate::connection::{Connection, ENDS, Headers, Phase, Plain, Shown, opens};
use crate::listing::{Desk, Part};
use crate::nat::{self, Direction, WhenFull};
use crate::tables::sessions::{Found, GO, Refused, Seed, Sessions, Slot, Tuple4};

/// A worker's sessions.
pub(crate) struct Distributor {
    table: Sessions<Balanced>,
    roster: Roster,
    /// The present configuration's.
    services: Arc<Services>,
    /// The slot that it is.
    now: Slot,
    opened: u64,
    ended: u64,
    evicted: u64,
    refused: u64,
    desk: Desk,
}

pub(super) use shown::SESSIONS;

/// What is done with a packet: which way, what its address becomes, by which hop.
type Delivery = (([u8; 4], u16), Hop);

impl Distributor {
    /// Room for so many sessions.
    pub(super) fn new(
        services: Arc<Services>,
        sessions: usize,
        secret: u64,
        part: &Arc<Part>,
    ) -> Result<Self, NoMemory> {
        let table = Sessions::new(sessions, Seed::new(secret))?.lasting(services.settings.timeouts.longest());
        let mut roster = Roster::default();
        let fits = roster.adopt(&services);
        debug_assert!(fits, "a configuration has fewer backends than there are places");
        Ok(Self { table, roster, services, now: 0, opened: 0, ended: 0, evicted: 0, refused: 0, desk: part.desk() })
    }

    /// Begins a call of a module with these services: sessions that have ended are removed, a few at a time.
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

    /// Whether these are the services that it has now.
    pub(crate) fn is_of(&self, services: &Arc<Services>) -> bool {
        Arc::ptr_eq(&self.services, services)
    }

    /// A changed configuration: its first batch.
    #[cold]
    fn adopt(&mut self, services: &Arc<Services>) {
        self.services = Arc::clone(services);
        self.table.last_up_to(services.settings.timeouts.longest());
        if !self.roster.adopt(services) {
            // Sessions of more former backends than can be told apart: what they would come to anyway.
            let mut from = 0;
            while let Some(found) = self.absent(from) {
                from = found.number() + 1;
                self.end(found);
            }
            let fits = self.roster.adopt(services);
            debug_assert!(fits, "a configuration has fewer backends than there are places");
        }
    }

    /// The first session, from this number on, whose backend is gone.
    fn absent(&self, from: u32) -> Option<Found> {
        let gone = |session: &Balanced| !self.roster.get(session.place).present;
        self.table.iter(from).find(|(_, session)| gone(session)).map(|(found, _)| found)
    }

    #[inline(never)]
    fn expire(&mut self, mut looks: u32) {
        while let Some(session) = self.table.expire(self.now, &mut looks) {
            self.ended += 1;
            self.left(&session);
        }
    }

    /// Ends a session before its time.
    fn end(&mut self, found: Found) {
        let session = self.table.remove(found);
        self.ended += 1;
        self.left(&session);
    }

    fn left(&mut self, session: &Balanced) {
        self.roster.get_mut(session.place).open -= 1;
    }

    /// Whether sessions that may have ended are still to be looked at.
    pub(crate) fn is_due(&mut self) -> bool {
        self.table.is_due(self.now)
    }

    /// Whether sessions wait for their end.
    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Tells what is counted ([`COUNTERS`](super::COUNTERS), [`BACKENDS`](super::BACKENDS)).
    pub(crate) fn tell(&self, sessions: &[Counter], backends: &[Arc<[Counter]>; 3]) {
        let values = [self.table.len() as u64, self.opened, self.ended, self.evicted, self.refused];
        sessions.iter().zip(values).for_each(|(counter, value)| counter.set(value));
        for (at, place) in self.roster.present().enumerate() {
            let Place { open, opened, packets, .. } = *place;
            for (counters, value) in backends.iter().zip([open, opened, packets]) {
                counters[at].set(value);
            }
        }
        self.desk.tell([self.table.len(), 0]);
    }

    /// Sends what is for a service to its backend, and puts those packets on their gates that do not go on through the first.
    #[inline(always)]
    pub(crate) fn forward(&mut self, batch: &mut [Packet], context: &mut Context<'_>, ways: Ways) {
        self.each(batch, context, Balanced::CLIENT, |it, packet, found| {
            let quick = found.is_some_and(|found| it.forward_quickly(packet, found, ways));
            if quick { Gate::FIRST } else { it.forward_slowly(packet, ways).unwrap_or_else(|gate| gate) }
        });
    }

    /// Gives what backends answer the service's address and port.
    #[inline(always)]
    pub(crate) fn back(&mut self, batch: &mut [Packet], context: &mut Context<'_>, ways: Ways) {
        if self.services.settings.replies == Replies::Endpoint {
            for (at, packet) in batch.iter_mut().enumerate() {
                if !self.speak_quickly(packet) {
                    put(context, at, self.back_slowly(packet, ways));
                }
            }
            return;
        }
        self.each(batch, context, Balanced::SERVER, |it, packet, found| {
            let quick = found.is_some_and(|found| it.back_quickly(packet, found));
            if quick { Gate::FIRST } else { it.back_slowly(packet, ways) }
        });
    }

    /// Looks sessions of plain packets up, of one side, and does to each packet what `pass` does.
    #[inline(always)]
    fn each(
        &mut self,
        batch: &mut [Packet],
        context: &mut Context<'_>,
        side: u32,
        mut pass: impl FnMut(&mut Self, &mut Packet, Option<Found>) -> Gate,
    ) {
        for (go, packets) in batch.chunks_mut(GO).enumerate() {
            let mut keys = [Tuple4::default(); GO];
            let mut found = [Found::NONE; GO];
            for (packet, key) in packets.iter().zip(&mut keys) {
                // What is not plain is of no session by this key: nothing has protocol 0.
                *key = Plain::of(packet).map_or(Tuple4::default(), Plain::tuple);
            }
            self.table.find_each(&keys[..packets.len()], &mut found[..packets.len()]);
            let removals = self.table.removals();
            for (at, (packet, found)) in packets.iter_mut().zip(found).enumerate() {
                let there =
                    self.table.removals() == removals || found.is_some() && self.table.is_still(found, keys[at]);
                let usable = found.is_some() && found.side() == side && there;
                let gate = pass(self, packet, usable.then_some(found));
                put(context, go * GO + at, gate);
            }
        }
    }

    /// Sends a plain packet on of a session that goes on as before.
    #[inline(always)]
    fn forward_quickly(&mut self, packet: &mut Packet, found: Found, ways: Ways) -> bool {
        // Only plain ones are of a session by their key.
        let Some(plain) = Plain::known_mut(packet) else { return false };
        let (session, ends) = self.table.lasts(found);
        let place = self.roster.get_mut(session.place);
        if *ends <= self.now || !place.present || !session.connection.goes_on(plain.flags(), false) {
            return false;
        }
        place.packets += 1;
        if place.hop == Hop::Route {
            session.forward(plain);
            packet.forget_session();
        } else {
            direct(packet, place.hop, ways);
        }
        *ends = self.services.settings.timeouts.end(session.connection.phase(), self.now);
        true
    }

    #[inline(always)]
    fn back_quickly(&mut self, packet: &mut Packet, found: Found) -> bool {
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

    /// Gives a plain packet of a backend the address and port of the service that it speaks for.
    #[inline(always)]
    fn speak_quickly(&self, packet: &mut Packet) -> bool {
        let Some(plain) = Plain::of_mut(packet) else { return false };
        let server = plain.tuple();
        let Some(name) = self.speaks_for(server) else { return false };
        let client = Tuple4::new(server.destination(), name.0, (server.ports().1, name.1), server.protocol());
        Balanced::new(client, server, Connection::default(), 0).back(plain);
        packet.forget_session();
        true
    }

    /// In whose name a backend sends packets of this 5-tuple.
    fn speaks_for(&self, server: Tuple4) -> Option<([u8; 4], u16)> {
        self.services.speaks_for(server.source(), server.ports().0, server.protocol())
    }

    /// Any packet to a service, or to none.
    #[inline(never)]
    fn forward_slowly(&mut self, packet: &mut Packet, ways: Ways) -> Result<Gate, Gate> {
        let ours = |it: &Self, packet: &mut Packet| packet.ipv4().is_some_and(|ip| it.services.have(ip.destination));
        match Shown::<Tuple4>::of(packet) {
            Shown::Fragment if ours(self, packet) => Err(FRAGMENT),
            Shown::Malformed if ours(self, packet) => Err(MALFORMED),
            Shown::NotThis if packet.hides_network() => Err(UNDECIDABLE),
            Shown::Error(quoted) => {
                // Of a reply; what it quotes went to the client. It keeps no session alive (RFC 5508 section 4.2).
                let client = quoted.reversed();
                let Some((becomes, hop)) = self.known(client).or_else(|| self.chosen(client)) else {
                    return Ok(ways.others);
                };
                if hop == Hop::Route {
                    nat::translate_error(packet, Direction::In, becomes).ok_or(MALFORMED)?;
                } else {
                    direct(packet, hop, ways);
                }
                Ok(Gate::FIRST)
            }
            Shown::Packet(headers) if matches!(headers.protocol, TCP | UDP) => {
                let Some((becomes, hop)) = self.deliver(&headers)? else { return Ok(ways.others) };
                if hop == Hop::Route {
                    nat::translate(packet, Direction::In, becomes).ok_or(MALFORMED)?;
                } else {
                    direct(packet, hop, ways);
                }
                Ok(Gate::FIRST)
            }
            _ => Ok(ways.others),
        }
    }

    /// The session of a key, if it has not ended.
    fn live(&mut self, key: Tuple4) -> Found {
        let found = self.table.find(key);
        if !found.is_some() || self.table.ends(found) > self.now {
            return found;
        }
        // Its turn to be removed has not come yet.
        self.end(found);
        Found::NONE
    }

    /// The same, if its backend is still there: the session of one that is not is to choose again, and keeps no other from its
    /// place.
    fn present(&mut self, key: Tuple4) -> Found {
        let found = self.live(key);
        if !found.is_some() || self.roster.get(self.table.get(found).place).present {
            return found;
        }
        self.end(found);
        Found::NONE
    }

    /// The backend of a packet's session, where there is one.
    fn known(&mut self, client: Tuple4) -> Option<Delivery> {
        let found = self.live(client);
        if !found.is_some() || found.side() != Balanced::CLIENT {
            return None;
        }
        let session = self.table.get(found);
        let place = self.roster.get(session.place);
        place.present.then(|| (session.backend_end(), place.hop))
    }

    /// The backend that a new session would have.
    fn chosen(&self, client: Tuple4) -> Option<Delivery> {
        let backend = self.services.of(client)?.pick(client)?;
        let backend = &self.services.backends[backend];
        Some((backend.end_of(client.ports().1), backend.hop))
    }

    /// What a packet becomes: of its session, or of a new one; `None` where it is for no service.
    fn deliver(&mut self, headers: &Headers<Tuple4>) -> Result<Option<Delivery>, Gate> {
        let client = headers.tuple;
        let mut found = self.present(client);
        if found.is_some() && found.side() != Balanced::CLIENT {
            return Err(CLASH);
        }
        // The same ports again, which may have another backend.
        if found.is_some() && self.table.get(found).connection.phase() == Phase::TcpClosing && opens(headers.flags) {
            self.end(found);
            found = Found::NONE;
        }
        if !found.is_some() {
            if self.services.of(client).is_none() {
                return Ok(None);
            }
            // Who resets a connection that is not known ends it wherever it would be.
            if headers.flags & RST != 0 {
                return self.chosen(client).map(Some).ok_or(NO_BACKEND);
            }
            found = self.open(headers)?;
        } else {
            self.follow(found, headers.flags, false);
        }
        let session = self.table.get(found);
        let place = self.roster.get_mut(session.place);
        place.packets += 1;
        Ok(Some((session.backend_end(), place.hop)))
    }

    /// A packet passes that may change how long its session is remembered.
    fn follow(&mut self, found: Found, flags: u8, reply: bool) {
        let session = self.table.get_mut(found);
        let protocol = session.protocol();
        if self.roster.get(session.place).one_way && !reply {
            passes_alone(&mut session.connection, protocol, flags);
        } else {
            session.connection.passes(flags, reply);
        }
        let phase = session.connection.phase();
        self.services.settings.timeouts.renew(&mut self.table, found, phase, self.now);
    }

    /// Takes a new session in.
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
        let place = self.roster.of(number);
        let session = Balanced::new(client, server, connection, place);
        let Settings { timeouts, when_full, .. } = self.services.settings;
        let ends = timeouts.end(connection.phase(), self.now);
        let mut told = self.table.insert(session, ends);
        if told == Err(Refused::Full)
            && when_full == WhenFull::Evict
            && let Some(given_up) = self.table.give_up()
        {
            self.evicted += 1;
            self.left(&given_up);
            told = self.table.insert(session, ends);
        }
        let Ok(found) = told else {
            self.refused += 1;
            return Err(FULL);
        };
        self.opened += 1;
        let place = self.roster.get_mut(place);
        (place.open, place.opened) = (place.open + 1, place.opened + 1);
        Ok(found)
    }

    /// Any packet from a backend, or from somebody else.
    #[inline(never)]
    fn back_slowly(&mut self, packet: &mut Packet, ways: Ways) -> Gate {
        let theirs = |it: &Self, packet: &mut Packet| packet.ipv4().is_some_and(|ip| it.services.translate(ip.source));
        let done = |done: Option<()>| if done.is_some() { Gate::FIRST } else { MALFORMED };
        match Shown::<Tuple4>::of(packet) {
            Shown::Fragment if theirs(self, packet) => FRAGMENT,
            Shown::Malformed if theirs(self, packet) => MALFORMED,
            Shown::NotThis if packet.hides_network() => UNDECIDABLE,
            Shown::Error(quoted) => {
                // Of what a client sent, as the backend saw it.
                let Some(becomes) = self.name_of(quoted.reversed()) else { return ways.others };
                done(nat::translate_error(packet, Direction::Out, becomes))
            }
            Shown::Packet(headers) if matches!(headers.protocol, TCP | UDP) => {
                let found = self.live(headers.tuple);
                if self.services.settings.replies == Replies::Session
                    && found.is_some()
                    && found.side() == Balanced::SERVER
                {
                    self.follow(found, headers.flags, true);
                }
                let Some(becomes) = self.name_of(headers.tuple) else { return ways.others };
                done(nat::translate(packet, Direction::Out, becomes))
            }
            _ => ways.others,
        }
    }

    /// In whose name a backend's packet is sent on.
    fn name_of(&mut self, server: Tuple4) -> Option<([u8; 4], u16)> {
        if self.services.settings.replies == Replies::Endpoint {
            return self.speaks_for(server);
        }
        let found = self.live(server);
        let is = found.is_some() && found.side() == Balanced::SERVER;
        is.then(|| self.table.get(found).service_end())
    }
}

/// Puts a packet on its gate where that is not the first.
#[inline(always)]
fn put(context: &mut Context<'_>, at: usize, gate: Gate) {
    if gate != Gate::FIRST {
        context.put(at, gate);
    }
}

/// Sends a packet that stays as it is to its backend.
#[inline(always)]
fn direct(packet: &mut Packet, hop: Hop, ways: Ways) {
    match (hop, ways.word) {
        (Hop::Mac(mac), _) => {
            if let Some(destination) = packet.data_mut().first_chunk_mut::<6>() {
                *destination = mac;
            }
        }
        (Hop::Word(number), Some(word)) => packet.set_word(word, number),
        _ => {}
    }
}

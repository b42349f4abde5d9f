//! The sessions of a translator: which packet opens a session, which outside port the session gets, and how it ends.

use forebay_graph::{Gate, share};
use forebay_packet::wire::ipv4::{ICMP, TCP};
use forebay_packet::{Network, SessionKey};
use forebay_tables::sessions::{Found, Refused, Spot, Tuple4};

use super::Translator;
use crate::connection::{Connection, Headers, opens};
use crate::nat::bindings::Endpoint;
use crate::nat::reasons::{FULL, NO_PORT, NO_SESSION, NOT_INSIDE};
use crate::nat::translation::{Direction, Translation};
use crate::nat::{Filtering, WhenFull};

/// Limit of free ports that a search examines, to be multiplied by the number of workers. With several workers a port
/// is suitable only if replies to it reach the session's worker. With n workers about one port in n is suitable, so a
/// search of 64·n free ports fails by chance once in e⁶⁴ times. The limit keeps a packet from searching all 65536 ports
/// when most suitable ports are in use.
const LOOKS: usize = 64;

impl Translator {
    /// Returns the session of a packet, or opens a session if the packet may do so. An error is the gate of a packet
    /// that is dropped.
    pub(super) fn session(&mut self, headers: &Headers<Tuple4>, direction: Direction) -> Result<Found, Gate> {
        let mut found = self.table.find(headers.tuple);
        let side = if direction == Direction::Out { Translation::INSIDE } else { Translation::OUTSIDE };
        if found.is_some() && self.table.ends(found) <= self.now {
            // The session has ended, but many sessions ended at once and it has not been removed yet.
            self.end(found);
            found = Found::NONE;
        }
        if found.is_some() && found.side() == side {
            return Ok(found);
        }
        if !headers.may_open || found.is_some() || headers.tuple.protocol() == TCP && !opens(headers.flags) {
            return Err(NO_SESSION);
        }
        match direction {
            Direction::Out => self.open_outwards(headers, self.table.spot(headers.tuple)),
            Direction::In => self.open_inwards(headers),
        }
    }

    /// Opens a session from inside. `spot` must belong to the 5-tuple in `headers`. An error is the gate of a packet
    /// that is dropped.
    pub(super) fn open_outwards(&mut self, headers: &Headers<Tuple4>, spot: Spot) -> Result<Found, Gate> {
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
        // A reply has the same relation between its two numbers as its query.
        let peer = if protocol == ICMP { outer.port().wrapping_add(theirs.wrapping_sub(mine)) } else { theirs };
        let ports = (peer, outer.port());
        let outside = Tuple4::new(inside.destination(), address, ports, protocol);
        self.open(headers, (inside, outside), spot, number, Direction::Out)
    }

    /// Opens a session from outside, for an outside port whose binding allows this.
    pub(super) fn open_inwards(&mut self, headers: &Headers<Tuple4>) -> Result<Found, Gate> {
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

    /// Allocates an outside port to an inside port and adds the binding, which has one session. Returns the outside
    /// port and the number of the binding. `shared` is true if all sessions of the inside port use this binding. After
    /// an error, no port is allocated. The error is the gate of a packet that is dropped.
    pub(super) fn bind(&mut self, inside: Tuple4, endpoint: Endpoint, shared: bool) -> Result<(Endpoint, u32), Gate> {
        let of = self.bindings.may(endpoint).ok_or(NO_PORT)?;
        let (protocol, (mine, shares)) = (inside.protocol(), self.share);
        let (number, range) = self.allotment.of(endpoint.address()).ok_or(NOT_INSIDE)?;
        let outer = self.pool.0 + number;
        let remote = (inside.destination(), inside.ports().1);
        let comes_back = |port: u16| shares == 1 || share(outside_hash(remote, outer, port, protocol), shares) == mine;
        let looks = LOOKS * shares;
        let port = self.ports.take(number, protocol, range, endpoint.port(), looks, comes_back);
        // If no port has the parity of the inside port, take one of the other parity.
        let port = port
            .or_else(|| self.ports.take(number, protocol, range, endpoint.port() ^ 1, looks, comes_back))
            .ok_or(NO_PORT)?;
        let outer = Endpoint::new(outer, port, protocol, 1);
        if let Ok(binding) = self.bindings.insert(endpoint, outer, shared, of) {
            self.log_allocated(endpoint, outer);
            return Ok((outer, binding));
        }
        self.ports.give_back(number, protocol, port);
        self.refused += 1;
        Err(FULL)
    }

    /// Inserts a session. The caller must have counted the session in its binding. After an error, the binding has been
    /// released.
    pub(super) fn open(
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
        let mut inserted = self.table.insert_at(inside, session, ends);
        if inserted == Err(Refused::Full)
            && self.when_full == WhenFull::Evict
            && let Some(evicted) = self.table.evict_soonest()
        {
            self.evicted += 1;
            self.release(&evicted);
            inserted = self.table.insert_at(inside, session, ends);
        }
        match inserted {
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

    /// Removes a session from the table at once, and counts it as ended.
    pub(super) fn end(&mut self, found: Found) {
        let session = self.table.remove(found);
        self.ended += 1;
        self.release(&session);
    }

    /// Releases the binding of a session that has ended. Its port is freed if no other session uses it.
    pub(super) fn release(&mut self, session: &Translation) {
        if let Some(outer) = self.bindings.release(session.binding()) {
            self.ports.give_back(outer.address() - self.pool.0, outer.protocol(), outer.port());
            self.log_released(inside_endpoint(session.inside()), outer);
        }
    }
}

/// Returns the inside port of a packet to outside.
pub(super) fn inside_endpoint(inside: Tuple4) -> Endpoint {
    Endpoint::new(u32::from_be_bytes(inside.source()), inside.ports().0, inside.protocol(), 0)
}

/// Returns the hash that selects the worker of a reply: a packet from the peer (`address` and `remote`) to the outside
/// address `outer` (in host byte order) and `port`.
fn outside_hash((address, remote): ([u8; 4], u16), outer: u32, port: u16, protocol: u8) -> u32 {
    let wide = |address: [u8; 4]| {
        let mut wide = [0; 16];
        wide[..4].copy_from_slice(&address);
        wide
    };
    // The worker of a query's reply is selected by the identifier.
    let (source_port, destination_port) = if protocol == ICMP { (port, port) } else { (remote, port) };
    let (source, destination) = (wide(address), wide(outer.to_be_bytes()));
    let network = Network::Ipv4;
    SessionKey { network, source, destination, source_port, destination_port, protocol }.symmetric_hash()
}

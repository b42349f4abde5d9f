//! A translator's sessions and bindings as operators see them.

use super::{Endpoint, Translation, Translator};
use crate::connection::shown_ports;
use crate::journal::Pen;
use crate::listing::{Age, Desk, End, Kind, Row, Shown};
use crate::nat::allocations::Entry;
use crate::tables::sessions::Session;

/// The table of sessions.
pub(crate) const SESSIONS: Kind = Kind {
    name: "sessions",
    ends: &["inside", "peer", "outside"],
    tables: 0..1,
    syntax: "remove WHICH   ends sessions: a line as it is shown ends that one, and 'all', or addresses, prefixes, ADDRESS:PORT, \
             inside=, peer=, outside=, protocol=, state=, worker= end all of which all of that holds",
    ended: true,
};

/// The table of bindings.
pub(crate) const BINDINGS: Kind = Kind {
    name: "bindings",
    ends: &["inside", "outside"],
    tables: 1..2,
    syntax: "bindings end with their sessions: remove those of the table sessions",
    ended: false,
};

impl Translator {
    /// Tells how many sessions and bindings there are to who may ask.
    pub(crate) fn publish(&self) {
        // Forwards that nobody uses are not shown, so that without sessions there is nothing to be asked for.
        let own = self.share.1 == 1 && !self.table.is_empty();
        let bindings = if own { self.bindings.len() } else { self.table.len() };
        self.desk.tell([self.table.len(), bindings]);
    }

    /// An inside port was given an outside one.
    #[inline(always)]
    pub(super) fn tell_allocated(&mut self, inside: Endpoint, outside: Endpoint) {
        if !self.allotment.is_computed(inside.address()) {
            self.allocations.allocate(outside.protocol(), ends(inside), ends(outside));
        }
    }

    /// The same for its end.
    #[inline(always)]
    pub(super) fn tell_released(&mut self, inside: Endpoint, outside: Endpoint) {
        if !self.allotment.is_computed(inside.address()) {
            self.allocations.release(outside.protocol(), ends(inside), ends(outside));
        }
    }

    /// Ports that are given out are told there from now on.
    pub(crate) fn log_to(&mut self, pen: Pen<Entry>) {
        self.allocations.go_to(pen);
    }
}

fn ends(endpoint: Endpoint) -> (u32, u16) {
    (endpoint.address(), endpoint.port())
}

fn end((address, port): (u32, u16)) -> Option<End> {
    Some(End::ipv4(address.to_be_bytes(), port))
}

impl Shown for Translator {
    fn desk(&mut self) -> &mut Desk {
        &mut self.desk
    }

    fn places(&self, table: u8) -> u32 {
        match table {
            0 => self.table.places(),
            // With several workers each session has a binding of its own, which does not know its inside port.
            1 if self.share.1 > 1 => self.table.places(),
            1 => self.bindings.places(),
            _ => 0,
        }
    }

    fn row(&self, table: u8, place: u32) -> Option<Row> {
        if table == 1 && self.share.1 == 1 {
            let (inside, outside, sessions) = self.bindings.placed(place).filter(|(.., sessions)| *sessions > 0)?;
            let both = [end(ends(inside)), end(ends(outside)), None];
            return Some(Row::new(outside.protocol(), both, None).used_by(sessions));
        }
        let (_, session, until) = self.table.placed(place)?;
        let left = until.checked_sub(self.now).filter(|left| *left > 0)?;
        let (inside, outside) = (session.inside(), session.key(Translation::OUTSIDE));
        let (from, to) = shown_ports(inside.protocol(), inside.ports());
        let inner = Some(End::ipv4(inside.source(), from));
        let peer = Some(End::ipv4(inside.destination(), to));
        let outer = Some(End::ipv4(outside.destination(), outside.ports().1));
        if table == 1 {
            return Some(Row::new(inside.protocol(), [inner, outer, None], None).used_by(1));
        }
        let phase = session.connection.phase();
        let idle = self.timeouts.span(phase).saturating_sub(left);
        Some(Row::new(inside.protocol(), [inner, peer, outer], Some(Age { phase, idle, left })))
    }

    fn end(&mut self, table: u8, place: u32) {
        if let Some((found, ..)) = self.table.placed(place).filter(|_| table == 0) {
            Translator::end(self, found);
        }
    }
}

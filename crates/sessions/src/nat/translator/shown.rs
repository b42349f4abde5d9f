//! A translator's sessions and bindings, as operators see them.

use super::{Endpoint, Translation, Translator};
use crate::connection::shown_ports;
use crate::listing::{Age, End, Row, TableType, WorkerSide, WorkerTables};
use crate::nat::allocations::Entry;
use forebay_tables::journal::LineWriter;
use forebay_tables::sessions::Session;

/// The table of sessions.
pub(crate) const SESSIONS: TableType = TableType {
    name: "sessions",
    ends: &["inside", "peer", "outside"],
    tables: 0..1,
    syntax: "remove WHICH   ends the sessions that match WHICH: a line of the table, 'all', or a combination of \
             addresses, prefixes, ADDRESS:PORT, inside=, peer=, outside=, protocol=, state= and worker=",
    ended: true,
};

/// The table of bindings.
pub(crate) const BINDINGS: TableType = TableType {
    name: "bindings",
    ends: &["inside", "outside"],
    tables: 1..2,
    syntax: "bindings end with their sessions: remove the sessions in the table sessions",
    ended: false,
};

impl Translator {
    /// Publishes the number of sessions and bindings for operators' requests.
    pub(crate) fn publish(&self) {
        // Forwards without sessions are not shown, so without sessions there are no bindings to show.
        let own = self.share.1 == 1 && !self.table.is_empty();
        let bindings = if own { self.bindings.len() } else { self.table.len() };
        self.worker_side.publish([self.table.len(), bindings]);
    }

    /// Logs that an inside port got an outside port. Computed ports are not logged.
    #[inline(always)]
    pub(super) fn log_allocated(&mut self, inside: Endpoint, outside: Endpoint) {
        if !self.allotment.is_computed(inside.address()) {
            self.allocations.allocate(outside.protocol(), ends(inside), ends(outside));
        }
    }

    /// Logs that an inside port lost its outside port. Computed ports are not logged.
    #[inline(always)]
    pub(super) fn log_released(&mut self, inside: Endpoint, outside: Endpoint) {
        if !self.allotment.is_computed(inside.address()) {
            self.allocations.release(outside.protocol(), ends(inside), ends(outside));
        }
    }

    /// Sets the log that receives allocated and released ports from now on.
    pub(crate) fn log_to(&mut self, writer: LineWriter<Entry>) {
        self.allocations.go_to(writer);
    }
}

fn ends(endpoint: Endpoint) -> (u32, u16) {
    (endpoint.address(), endpoint.port())
}

fn end((address, port): (u32, u16)) -> Option<End> {
    Some(End::ipv4(address.to_be_bytes(), port))
}

impl WorkerTables for Translator {
    fn worker_side(&mut self) -> &mut WorkerSide {
        &mut self.worker_side
    }

    fn index_limit(&self, table: u8) -> u32 {
        match table {
            0 => self.table.number_bound(),
            // With several workers each session has its own binding, which does not store the inside port.
            1 if self.share.1 > 1 => self.table.number_bound(),
            1 => self.bindings.number_bound(),
            _ => 0,
        }
    }

    fn row(&self, table: u8, index: u32) -> Option<Row> {
        if table == 1 && self.share.1 == 1 {
            let (inside, outside, sessions) = self.bindings.binding_at(index).filter(|(.., sessions)| *sessions > 0)?;
            let both = [end(ends(inside)), end(ends(outside)), None];
            return Some(Row::new(outside.protocol(), both, None).used_by(sessions));
        }
        let (_, session, until) = self.table.session_at(index)?;
        let remaining = until.checked_sub(self.now).filter(|remaining| *remaining > 0)?;
        let (inside, outside) = (session.inside(), session.key(Translation::OUTSIDE));
        let (from, to) = shown_ports(inside.protocol(), inside.ports());
        let inner = Some(End::ipv4(inside.source(), from));
        let peer = Some(End::ipv4(inside.destination(), to));
        let outer = Some(End::ipv4(outside.destination(), outside.ports().1));
        if table == 1 {
            return Some(Row::new(inside.protocol(), [inner, outer, None], None).used_by(1));
        }
        let phase = session.connection.phase();
        let idle = self.timeouts.span(phase).saturating_sub(remaining);
        Some(Row::new(inside.protocol(), [inner, peer, outer], Some(Age { phase, idle, remaining })))
    }

    fn end(&mut self, table: u8, index: u32) {
        if let Some((found, ..)) = self.table.session_at(index).filter(|_| table == 0) {
            Translator::end(self, found);
        }
    }
}

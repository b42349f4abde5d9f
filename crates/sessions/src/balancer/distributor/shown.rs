//! A balancer's sessions, as operators see them.

use super::{Balanced, Distributor};
use crate::listing::{Age, End, Row, TableType, WorkerSide, WorkerTables};
use forebay_tables::sessions::Session;

/// The table of sessions.
pub(in crate::balancer) const SESSIONS: TableType = TableType {
    name: "sessions",
    ends: &["client", "service", "backend"],
    tables: 0..1,
    syntax: "remove WHICH   ends the sessions that match WHICH, so that new backends are chosen: a line of the table, \
             'all', or a combination of addresses, prefixes, ADDRESS:PORT, client=, service=, backend=, protocol=, \
             state= and worker=",
    ended: true,
};

impl WorkerTables for Distributor {
    fn worker_side(&mut self) -> &mut WorkerSide {
        &mut self.worker_side
    }

    fn index_limit(&self, table: u8) -> u32 {
        if table == 0 { self.table.number_bound() } else { 0 }
    }

    fn row(&self, _: u8, index: u32) -> Option<Row> {
        let (_, session, until) = self.table.session_at(index)?;
        let remaining = until.checked_sub(self.now).filter(|remaining| *remaining > 0)?;
        let client = session.key(Balanced::CLIENT);
        let (from, to) = client.ports();
        // With `mode: direct` the session's keys do not contain the backend's address.
        let backend = self.roster.get(session.backend).end();
        let port = if backend.port() == 0 { to } else { backend.port() };
        let ends = [
            Some(End::ipv4(client.source(), from)),
            Some(End::ipv4(client.destination(), to)),
            Some(End::ipv4(backend.address().to_be_bytes(), port)),
        ];
        let phase = session.connection.phase();
        let idle = self.services.settings.timeouts.span(phase).saturating_sub(remaining);
        Some(Row::new(session.protocol(), ends, Some(Age { phase, idle, remaining })))
    }

    fn end(&mut self, _: u8, index: u32) {
        if let Some((found, ..)) = self.table.session_at(index) {
            Distributor::end(self, found);
        }
    }
}

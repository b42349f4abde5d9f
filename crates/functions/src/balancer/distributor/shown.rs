//! A balancer's sessions as operators see them.

use super::{Balanced, Distributor};
use crate::listing::{Age, Desk, End, Kind, Row, Shown};
use crate::tables::sessions::Session;

/// The table of sessions.
pub(in crate::balancer) const SESSIONS: Kind = Kind {
    name: "sessions",
    ends: &["client", "service", "backend"],
    tables: 0..1,
    syntax: "remove WHICH   ends sessions, so that they choose a backend anew: a line as it is shown ends that one, and 'all', or \
             addresses, prefixes, ADDRESS:PORT, client=, service=, backend=, protocol=, state=, worker= end all of which all of \
             that holds",
    ended: true,
};

impl Shown for Distributor {
    fn desk(&mut self) -> &mut Desk {
        &mut self.desk
    }

    fn places(&self, table: u8) -> u32 {
        if table == 0 { self.table.places() } else { 0 }
    }

    fn row(&self, _: u8, place: u32) -> Option<Row> {
        let (_, session, until) = self.table.placed(place)?;
        let left = until.checked_sub(self.now).filter(|left| *left > 0)?;
        let client = session.key(Balanced::CLIENT);
        let (from, to) = client.ports();
        // Of `mode: direct` only the roster knows it.
        let backend = self.roster.get(session.place).end();
        let port = if backend.port() == 0 { to } else { backend.port() };
        let ends = [
            Some(End::ipv4(client.source(), from)),
            Some(End::ipv4(client.destination(), to)),
            Some(End::ipv4(backend.address().to_be_bytes(), port)),
        ];
        let phase = session.connection.phase();
        let idle = self.services.settings.timeouts.span(phase).saturating_sub(left);
        Some(Row::new(session.protocol(), ends, Some(Age { phase, idle, left })))
    }

    fn end(&mut self, _: u8, place: u32) {
        if let Some((found, ..)) = self.table.placed(place) {
            Distributor::end(self, found);
        }
    }
}

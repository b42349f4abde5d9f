//! A worker's connections, as operators see them.

use super::Tables;
use super::tracked::Tuple;
use super::tracker::Tracker;
use crate::connection::{Timeouts, shown_ports};
use crate::listing::{Age, End, Row, TableType, WorkerSide, WorkerTables};
use forebay_tables::sessions::{Slot, Tuple4, Tuple6};

/// The table of connections.
pub(super) const CONNECTIONS: TableType = TableType {
    name: "connections",
    ends: &["from", "to"],
    tables: 0..2,
    syntax: "remove WHICH   ends the connections that match WHICH: a line of the table, 'all', or a combination of \
             addresses, prefixes, ADDRESS:PORT, [IPV6]:PORT, from=, to=, protocol=, state= and worker=",
    ended: true,
};

/// A 5-tuple that can be shown.
trait Ends {
    fn protocol(&self) -> u8;
    /// Returns the source and the destination as they are shown. The third end is `None`.
    fn ends(&self) -> [Option<End>; 3];
}

impl Ends for Tuple4 {
    fn protocol(&self) -> u8 {
        (*self).protocol()
    }

    fn ends(&self) -> [Option<End>; 3] {
        let (from, to) = shown_ports((*self).protocol(), self.ports());
        [Some(End::ipv4(self.source(), from)), Some(End::ipv4(self.destination(), to)), None]
    }
}

impl Ends for Tuple6 {
    fn protocol(&self) -> u8 {
        (*self).protocol()
    }

    fn ends(&self) -> [Option<End>; 3] {
        let (from, to) = shown_ports((*self).protocol(), self.ports());
        [Some(End::ipv6(self.source(), from)), Some(End::ipv6(self.destination(), to)), None]
    }
}

/// Returns the row of a connection. Returns `None` if there is no connection with this index, or if the connection has
/// ended.
fn row<T: Tuple + Ends>(tracker: &Tracker<T>, index: u32, timeouts: &Timeouts, now: Slot) -> Option<Row> {
    let (_, tracked, until) = tracker.table.session_at(index)?;
    let remaining = until.checked_sub(now).filter(|remaining| *remaining > 0)?;
    let (opener, phase) = (tracked.opener(), tracked.connection.phase());
    let idle = timeouts.span(phase).saturating_sub(remaining);
    Some(Row::new(opener.protocol(), opener.ends(), Some(Age { phase, idle, remaining })))
}

fn end<T: Tuple>(tracker: &mut Tracker<T>, index: u32) {
    if let Some((found, ..)) = tracker.table.session_at(index) {
        tracker.end(found);
    }
}

impl WorkerTables for Tables {
    fn worker_side(&mut self) -> &mut WorkerSide {
        &mut self.worker_side
    }

    fn index_limit(&self, table: u8) -> u32 {
        match table {
            0 => self.v4.table.number_bound(),
            1 => self.v6.table.number_bound(),
            _ => 0,
        }
    }

    fn row(&self, table: u8, index: u32) -> Option<Row> {
        match table {
            0 => row(&self.v4, index, &self.timeouts, self.now),
            _ => row(&self.v6, index, &self.timeouts, self.now),
        }
    }

    fn end(&mut self, table: u8, index: u32) {
        match table {
            0 => end(&mut self.v4, index),
            _ => end(&mut self.v6, index),
        }
    }
}

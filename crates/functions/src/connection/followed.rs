//! The session of a packet, for modules that look sessions up and never open, renew or end one.

use forebay_packet::{Packet, Ticks};

use super::{Connection, Headers, Shown, opens};
use crate::tables::sessions::{Tuple4, Tuple6};
use forebay_packet::wire::ipv4::TCP;

/// A session that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// How far it is.
    pub connection: Connection,
    /// Whether the packet comes from the side that did not open it.
    pub reply: bool,
    /// Its entry of the table.
    pub row: SessionRow,
}

/// A session's entry of a table, for other modules that keep something about the session beside the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// The entry's index among those of both IP versions. A later session may get the same index.
    pub index: usize,
    /// Whether [`Followed::mark`] was called for this session. A new session is not marked.
    pub marked: bool,
}

/// A worker's table of sessions, for looking up. A session whose end is past is none.
pub trait Followed: Send {
    /// The key that the table is kept under. Another table has another key.
    fn key(&self) -> &str;
    /// The number of entries. The index of each row is smaller.
    fn rows(&self) -> usize;
    /// The session of a packet of IPv4.
    fn find_v4(&self, headers: &Headers<Tuple4>, now: Ticks) -> Option<Known>;
    /// The session of a packet of IPv6.
    fn find_v6(&self, headers: &Headers<Tuple6>, now: Ticks) -> Option<Known>;
    /// Marks the session of a row that was just found. The mark ends with the session.
    fn mark(&self, row: SessionRow);
}

/// The answer of a table of sessions about a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Whether its session is established once the packet has passed.
    pub established: bool,
    /// Whether the side that opened the session sent it, where that is known.
    pub to_server: Option<bool>,
    /// The session's entry of the table, if it has one.
    pub row: Option<SessionRow>,
}

impl Standing {
    /// Looks up the session of a packet. Packets that show no ports, ICMP errors and other messages without an answer
    /// have none.
    #[inline(never)]
    pub fn of(packet: &mut Packet, table: &dyn Followed, now: Ticks) -> Self {
        if let Shown::Packet(headers) = Shown::<Tuple4>::of(packet) {
            return Self::with(&headers, table.find_v4(&headers, now));
        }
        match Shown::<Tuple6>::of(packet) {
            Shown::Packet(headers) => Self::with(&headers, table.find_v6(&headers, now)),
            _ => Self::default(),
        }
    }

    fn with<T>(headers: &Headers<T>, known: Option<Known>) -> Self {
        match known {
            // The table may have seen the packet, or not: after it has passed the connection is the same.
            Some(Known { mut connection, reply, row }) => {
                connection.mark();
                connection.passes(headers.flags, reply);
                // A packet that opens another session on these ports removes the mark. That session has no entry yet.
                let row = connection.is_marked().then_some(row);
                Self { established: connection.is_established(reply), to_server: Some(!reply), row }
            }
            // The module that opens sessions may be behind this one.
            None => {
                let first = headers.asks && (headers.protocol != TCP || opens(headers.flags));
                Self { established: false, to_server: first.then_some(true), row: None }
            }
        }
    }
}

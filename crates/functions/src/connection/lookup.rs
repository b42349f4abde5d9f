//! The sessions of packets, for modules that look sessions up and never open, renew or end one.

use forebay_packet::{Packet, wire::ipv4::TCP};
use forebay_units::Ticks;

use super::{Connection, Headers, Shown, opens};
use crate::firewall::{ConnectionLookup, LentConnections};
use crate::nat::{LentNat, NatLookup};
use crate::tables::sessions::{Tuple4, Tuple6};

/// A session that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundSession {
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
    /// Whether [`LentSessions::mark`] was called for this session. A new session is not marked.
    pub marked: bool,
}

/// A worker's table of sessions, for lookups. A session whose end is past is not found.
pub enum SessionLookup {
    /// That of a state of the kind `connections`.
    Connections(ConnectionLookup),
    /// That of a state of the kind `nat`.
    Nat(NatLookup),
}

impl SessionLookup {
    /// The key that the table is kept under. Another table has another key.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Connections(table) => table.key(),
            Self::Nat(table) => table.key(),
        }
    }

    /// The number of entries. The index of each row is smaller.
    #[must_use]
    pub fn rows(&self) -> usize {
        match self {
            Self::Connections(table) => table.rows(),
            Self::Nat(table) => table.rows(),
        }
    }

    /// Lends the table. `None` while it is lent to another module.
    #[must_use]
    pub fn lend(&self) -> Option<LentSessions<'_>> {
        match self {
            Self::Connections(table) => table.lend().map(LentSessions::Connections),
            Self::Nat(table) => table.lend().map(LentSessions::Nat),
        }
    }
}

/// A table of sessions while it is lent.
pub enum LentSessions<'a> {
    /// That of a state of the kind `connections`.
    Connections(LentConnections<'a>),
    /// That of a state of the kind `nat`.
    Nat(LentNat<'a>),
}

impl LentSessions<'_> {
    /// Marks the session of a row that was just found. The mark ends with the session.
    pub fn mark(&mut self, row: SessionRow) {
        match self {
            Self::Connections(table) => table.mark(row),
            Self::Nat(table) => table.mark(row),
        }
    }

    /// Looks up the session of a packet. ICMP errors and other messages without an answer have none. `None` if the
    /// packet does not show its session: it is a fragment, or its transport header is cut short.
    #[inline(never)]
    pub fn standing(&self, packet: &mut Packet, now: Ticks) -> Option<SessionStanding> {
        match Shown::<Tuple4>::of(packet) {
            Shown::NotThis => self.of_shown(&Shown::<Tuple6>::of(packet), |headers| match self {
                Self::Connections(table) => table.find_v6(headers, now),
                // Only IPv4 is translated.
                Self::Nat(_) => None,
            }),
            shown => self.of_shown(&shown, |headers| match self {
                Self::Connections(table) => table.find_v4(headers, now),
                Self::Nat(table) => table.find_v4(headers, now),
            }),
        }
    }

    fn of_shown<T>(
        &self,
        shown: &Shown<T>,
        find: impl FnOnce(&Headers<T>) -> Option<FoundSession>,
    ) -> Option<SessionStanding> {
        let headers = match shown {
            Shown::Packet(headers) => headers,
            Shown::Error(_) | Shown::Message(_) | Shown::Neighbour => return Some(SessionStanding::default()),
            Shown::Fragment | Shown::Malformed | Shown::NotThis => return None,
        };
        if let Some(found) = find(headers) {
            return Some(SessionStanding::of(found, headers.flags));
        }
        // The module that opens sessions may be behind this one.
        let opens = headers.protocol != TCP || opens(headers.flags) || self.picks_up();
        let to_server = (headers.asks && opens).then_some(true);
        Some(SessionStanding { to_server, ..SessionStanding::default() })
    }

    /// Whether any TCP packet may open a session, else only a SYN.
    fn picks_up(&self) -> bool {
        match self {
            Self::Connections(table) => table.picks_up(),
            Self::Nat(_) => false,
        }
    }
}

/// The answer of a table of sessions about a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStanding {
    /// Whether its session is established once the packet has passed.
    pub established: bool,
    /// Whether the side that opened the session sent it, where that is known.
    pub to_server: Option<bool>,
    /// The session's entry of the table, if it has one.
    pub row: Option<SessionRow>,
}

impl SessionStanding {
    /// The table may have seen the packet, or not: after it has passed the connection is the same.
    fn of(found: FoundSession, flags: u8) -> Self {
        let FoundSession { mut connection, reply, row } = found;
        connection.mark();
        connection.passes(flags, reply);
        // A packet that opens another session on these ports removes the mark. That session has no entry yet.
        let row = connection.is_marked().then_some(row);
        Self { established: connection.is_established(reply), to_server: Some(!reply), row }
    }
}

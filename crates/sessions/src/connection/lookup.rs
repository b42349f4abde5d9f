//! Session lookups for modules that never open, renew or end a session.

use forebay_packet::{Packet, wire::ipv4::TCP};
use forebay_tables::sessions::{Tuple4, Tuple6};
use forebay_units::Ticks;

use super::{Connection, Headers, Shown, opens};
use crate::firewall::{ConnectionLookup, LentConnections};
use crate::nat::{LentNat, NatLookup};

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundSession {
    /// State of the connection.
    pub connection: Connection,
    /// True if the packet comes from the side that did not open the connection.
    pub reply: bool,
    /// The session's entry in the table.
    pub row: SessionRow,
}

/// A session's entry in a table, for modules that store something about the session outside of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// The entry's index among the entries of both IP versions. A later session may get the same index.
    pub index: usize,
    /// True if [`LentSessions::mark`] was called for this session. A new session is not marked.
    pub marked: bool,
}

/// A worker's table of sessions, for lookups. A session that has ended is not found.
pub enum SessionLookup {
    /// The table of a state `connections`.
    Connections(ConnectionLookup),
    /// The table of a state `nat`.
    Nat(NatLookup),
}

impl SessionLookup {
    /// Returns the key that identifies the table. Different tables have different keys.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Connections(table) => table.key(),
            Self::Nat(table) => table.key(),
        }
    }

    /// Returns an upper bound of [`SessionRow::index`]: each index is smaller.
    #[must_use]
    pub fn rows(&self) -> usize {
        match self {
            Self::Connections(table) => table.rows(),
            Self::Nat(table) => table.rows(),
        }
    }

    /// Lends the table. Returns `None` while the table is lent to another module.
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
    /// The table of a state `connections`.
    Connections(LentConnections<'a>),
    /// The table of a state `nat`.
    Nat(LentNat<'a>),
}

impl LentSessions<'_> {
    /// Marks the session of this row, which [`standing`](Self::standing) must have returned during this loan of the
    /// table. The mark ends with the session.
    pub fn mark(&mut self, row: SessionRow) {
        match self {
            Self::Connections(table) => table.mark(row),
            Self::Nat(table) => table.mark(row),
        }
    }

    /// Looks up the session of a packet. The result has default values for ICMP errors and for other ICMP messages that
    /// no message replies to, because they have no session. Returns `None` if the session cannot be known: the packet
    /// is a fragment or not IP, or its transport header is cut short.
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

    /// Returns the standing of a packet, with `find` as the lookup of its session.
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
        // The module that opens sessions may come after this one, so the packet may open a session.
        let opens = headers.protocol != TCP || opens(headers.flags) || self.picks_up();
        let to_server = (headers.may_open && opens).then_some(true);
        Some(SessionStanding { to_server, ..SessionStanding::default() })
    }

    /// Returns true if any TCP packet may open a session. Otherwise only a SYN may.
    fn picks_up(&self) -> bool {
        match self {
            Self::Connections(table) => table.picks_up(),
            Self::Nat(_) => false,
        }
    }
}

/// The state of a packet's session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStanding {
    /// True if the session is established after the packet.
    pub established: bool,
    /// True if the packet's sender opened the session. `None` if this is not known.
    pub to_server: Option<bool>,
    /// The session's entry in the table, if it has one.
    pub row: Option<SessionRow>,
}

impl SessionStanding {
    /// Returns the standing after a packet with these TCP flags (0 for other protocols). The result is the same whether
    /// the module that opens sessions has already handled the packet or handles it later.
    fn of(found: FoundSession, flags: u8) -> Self {
        let FoundSession { mut connection, reply, row } = found;
        connection.mark();
        connection.passes(flags, reply);
        // A packet that opens a new session with these ports removes the mark. The new session has no entry yet.
        let row = connection.is_marked().then_some(row);
        Self { established: connection.is_established(reply), to_server: Some(!reply), row }
    }
}

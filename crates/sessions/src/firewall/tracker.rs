//! A worker's connections of one IP version, and how packets change them.

use std::sync::Arc;

use forebay_measure::Counter;
use forebay_memory::NoMemory;
use forebay_tables::sessions::{Found, Refused, Seed, Sessions, Slot, Spot};

use super::Settings;
use super::tracked::{Tracked, Tuple};
use crate::connection::{Connection, FoundSession, Headers, Phase, SessionRow, opens};
use crate::nat::WhenFull;

/// The names of the counters, in the order of their indices.
pub(super) const COUNTERS: [&str; 6] = ["open", "half open", "opened", "ended", "evicted", "refused"];

/// Reason why a packet may not open a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The packet can only occur within a connection.
    Session,
    /// The limit of half-open connections is reached.
    HalfOpen,
    /// The table is full.
    Full,
}

/// The connections of one IP version.
pub(super) struct Tracker<T: Tuple> {
    pub(super) table: Sessions<Tracked<T>>,
    /// Number of TCP connections whose handshake is not complete.
    half_open: u64,
    // The numbers of connections so far. The number of open connections is the length of the table.
    opened: u64,
    ended: u64,
    evicted: u64,
    refused: u64,
}

impl<T: Tuple> Tracker<T> {
    /// Creates a table for up to `most` connections that last up to `longest` slots. `secret` seeds the hashes of keys.
    pub(super) fn new(most: usize, secret: u64, longest: Slot) -> Result<Self, NoMemory> {
        let table = Sessions::new(most, Seed::new(secret))?.lasting(longest);
        Ok(Self { table, half_open: 0, opened: 0, ended: 0, evicted: 0, refused: 0 })
    }

    /// Removes connections that have ended. Examines up to `looks` connections.
    pub(super) fn expire(&mut self, now: Slot, mut looks: u32) {
        while let Some(removed) = self.table.expire(now, &mut looks) {
            self.ended += 1;
            self.count_removed(removed.connection);
        }
    }

    /// Returns the connection of a key, or [`Found::NONE`]. Removes a connection that has ended.
    pub(super) fn find(&mut self, key: T, now: Slot) -> Found {
        let found = self.table.find(key);
        if !found.is_some() || self.table.ends(found) > now {
            return found;
        }
        // The connection has ended, but has not been removed yet, because many connections ended at once.
        self.end(found);
        Found::NONE
    }

    /// Returns the connection of a packet with this 5-tuple, if the connection has not ended. The connection does not
    /// change. The index of its row is `first` plus its number in the table.
    pub(super) fn known(&self, tuple: T, now: Slot, first: usize) -> Option<FoundSession> {
        let (key, turned) = tuple.ordered();
        let found = self.table.find(key);
        if !found.is_some() || self.table.ends(found) <= now {
            return None;
        }
        let tracked = self.table.get(found);
        let row = SessionRow { index: first + found.number() as usize, marked: tracked.connection.is_marked() };
        Some(FoundSession { connection: tracked.connection, reply: tracked.is_reply(turned), row })
    }

    /// Marks the connection of this number, which must exist.
    pub(super) fn mark(&mut self, number: usize) {
        let found = self.table.numbered(number as u32);
        self.table.get_mut(found).connection.mark();
    }

    /// Removes a connection from the table at once, and counts it as ended.
    pub(super) fn end(&mut self, found: Found) {
        let removed = self.table.remove(found);
        self.ended += 1;
        self.count_removed(removed.connection);
    }

    /// Updates the count of half-open connections for a connection that was removed.
    fn count_removed(&mut self, connection: Connection) {
        self.half_open -= u64::from(connection.phase() == Phase::TcpOpening);
    }

    /// Updates a connection and its end for a packet. `turned` is true if the packet's key is the reversed 5-tuple.
    pub(super) fn passes(&mut self, found: Found, turned: bool, flags: u8, settings: &Settings, now: Slot) {
        let tracked = self.table.get_mut(found);
        let (before, reply) = (tracked.connection.phase(), tracked.is_reply(turned));
        tracked.connection.passes(flags, reply);
        let after = tracked.connection.phase();
        self.half_open += u64::from(after == Phase::TcpOpening);
        self.half_open -= u64::from(before == Phase::TcpOpening);
        settings.timeouts.renew(&mut self.table, found, after, now);
    }

    /// Checks whether a packet may be the first packet of a connection, and returns the reason as an error if it may
    /// not. Does not evaluate the rules, and does not check whether the table is full.
    pub(super) fn may_open(&self, headers: &Headers<T>, settings: &Settings) -> Result<(), Refusal> {
        let Headers { flags, may_open, protocol, .. } = *headers;
        let tcp = protocol == forebay_packet::wire::ipv4::TCP;
        if !may_open || tcp && !opens(flags) && !settings.picks_up {
            return Err(Refusal::Session);
        }
        if tcp && self.half_open >= settings.half_open as u64 {
            return Err(Refusal::HalfOpen);
        }
        Ok(())
    }

    /// Returns the number of connections opened so far.
    pub(super) fn opened(&self) -> u64 {
        self.opened
    }

    /// Returns true if `more` additional TCP connections may be half open.
    pub(super) fn has_room_for(&self, more: usize, settings: &Settings) -> bool {
        self.half_open + more as u64 <= settings.half_open as u64
    }

    /// Inserts a connection for its first packet. No connection may have this key. `spot` belongs to the key, and
    /// `turned` is true if the key is the packet's reversed 5-tuple. The caller has checked
    /// [`may_open`](Self::may_open) and the rules. The only error is [`Refusal::Full`].
    #[inline(always)]
    pub(super) fn open(
        &mut self,
        spot: Spot,
        key: T,
        turned: bool,
        (protocol, flags): (u8, u8),
        settings: &Settings,
        now: Slot,
    ) -> Result<(), Refusal> {
        let connection = Connection::new(protocol, flags, T::ICMP);
        let tracked = Tracked::new(key, turned, connection);
        let ends = settings.timeouts.end(connection.phase(), now);
        let mut inserted = self.table.insert_at(spot, tracked, ends);
        if inserted == Err(Refused::Full)
            && settings.when_full == WhenFull::Evict
            && let Some(evicted) = self.table.evict_soonest()
        {
            self.evicted += 1;
            self.count_removed(evicted.connection);
            inserted = self.table.insert_at(spot, tracked, ends);
        }
        if inserted.is_err() {
            self.refused += 1;
            return Err(Refusal::Full);
        }
        self.opened += 1;
        self.half_open += u64::from(connection.phase() == Phase::TcpOpening);
        Ok(())
    }

    /// Publishes the counters ([`COUNTERS`]).
    pub(super) fn publish_counters(&self, counters: &Arc<[Counter]>) {
        let values = [self.table.len() as u64, self.half_open, self.opened, self.ended, self.evicted, self.refused];
        for (counter, value) in counters.iter().zip(values) {
            counter.set(value);
        }
    }
}

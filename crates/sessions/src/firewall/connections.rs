//! The state `connections`: a table of connections for each worker, which firewall modules share.

use std::sync::Arc;

use forebay_graph::{DeclareState, Lent, Own, Setup, SetupError, register};
use forebay_tables::parameters::no_memory;
use forebay_tables::sessions::{MOST, Slot, Tuple4, Tuple6};
use forebay_units::Ticks;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tracker::Tracker;
use crate::connection::{FoundSession, Headers, SessionLookup, SessionRow, SlotClock, TimeoutParams, Timeouts};
use crate::listing::{Listing, OperatorSide, WorkerSide};
use crate::nat::WhenFull;

/// Parameters of the state `connections`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectionsParams {
    /// Maximum number of connections of each IP version, over all workers: 1 to 268435456, 65536 by default. For each,
    /// 74 bytes for IPv4 and 74 bytes for IPv6 are allocated at the start.
    #[schemars(extend("default" = 65_536))]
    sessions: Option<usize>,
    /// Action for a new connection when the table is full: `evict` (the default) ends the connection that would end
    /// soonest, `refuse` drops the new connection's packet as `full`.
    #[serde(default)]
    pub(super) when_full: WhenFull,
    /// Maximum number of TCP connections of each IP version whose handshake is not complete, over all workers: half of
    /// `sessions` by default. Workers divide it evenly, rounded up. When this number is reached, packets that would
    /// open another TCP connection are dropped as `half_open`. So a flood of SYNs leaves room for other connections.
    half_open: Option<usize>,
    /// Whether any packet of a TCP connection can open its entry, so that connections that are older than this table
    /// are accepted. With `false` (the default) only a SYN opens a connection.
    #[serde(default)]
    pick_up: bool,
    /// How long a connection is kept without a packet.
    #[serde(default)]
    timeouts: TimeoutParams,
}

/// The state `connections`, which modules share.
pub struct Connections {
    /// The key of the workers' tables. The next configuration takes over the tables if its key is the same.
    pub(super) key: String,
    /// The maximum number of connections of each IP version over all workers.
    pub(super) sessions: usize,
    /// The settings with the limits of all workers.
    settings: Settings,
}

/// Settings of the connections, with the limits of one worker (except in [`Connections`]).
#[derive(Clone, Copy)]
pub(super) struct Settings {
    pub(super) when_full: WhenFull,
    /// The maximum number of half-open TCP connections of each IP version.
    pub(super) half_open: usize,
    /// True if any packet may open a TCP connection. Otherwise only a SYN may.
    pub(super) picks_up: bool,
    pub(super) timeouts: Timeouts,
    pub(super) clock: SlotClock,
}

impl DeclareState for Connections {
    type Params = ConnectionsParams;
    const NAME: &'static str = "connections";
    const SUMMARY: &'static str = "connections that the firewall modules of both directions share";
    const EXAMPLE: &'static str = "{ sessions: 100000 }";

    fn new(params: ConnectionsParams, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let sessions = params.sessions.unwrap_or(1 << 16);
        if !(1..=MOST).contains(&sessions) {
            return Err(SetupError::not_allowed("sessions", sessions, format!("1 to {MOST}")));
        }
        let half_open = params.half_open.unwrap_or(sessions.div_ceil(2));
        if !(1..=sessions).contains(&half_open) {
            return Err(SetupError::not_allowed(
                "half_open",
                half_open,
                format!("1 to {sessions}, as many as `sessions`"),
            ));
        }
        let clock = SlotClock::new(setup.frequency());
        let timeouts = Timeouts::new(&params.timeouts, clock, "timeouts")?;
        let key = format!("connections {} {}", setup.name(), serde_json::to_string(&params).unwrap_or_default());
        let (when_full, picks_up) = (params.when_full, params.pick_up);
        Ok(Self { key, sessions, settings: Settings { when_full, half_open, picks_up, timeouts, clock } })
    }
}

impl Connections {
    /// Returns the settings for one of `workers` workers that have a part of the sessions each.
    pub(super) fn settings_of_worker(&self, workers: usize) -> Settings {
        Settings { half_open: self.settings.half_open.div_ceil(workers), ..self.settings }
    }

    /// Returns this worker's tables. They are the same for all modules that name this state.
    ///
    /// # Errors
    /// There is not enough memory for the tables, as a fault of the parameter `state`.
    pub(super) fn tables(
        &self,
        operators: &Arc<OperatorSide>,
        setup: &mut Setup<'_>,
    ) -> Result<Arc<Own<Tables>>, SetupError> {
        let (secret, share, timeouts) = (setup.secret(), setup.share(), self.settings.timeouts);
        setup.once_per_worker(&self.key, |_| {
            let (most, longest) = (self.sessions.div_ceil(share.1), timeouts.longest());
            let lack =
                |ip| no_memory("state", format!("a table of {most} connections of {ip} (the state's `sessions`)"));
            let v4 = Tracker::new(most, secret, longest).map_err(lack("IPv4"))?;
            let v6 = Tracker::new(most, secret.rotate_left(7), longest).map_err(lack("IPv6"))?;
            Ok(Tables { v4, v6, timeouts, now: 0, worker_side: operators.worker_side() })
        })
    }

    /// Returns this worker's tables for a module that only looks up sessions.
    ///
    /// # Errors
    /// There is not enough memory for the tables, as a fault of the parameter `state`.
    pub fn lookup(&self, setup: &mut Setup<'_>) -> Result<SessionLookup, SetupError> {
        let operators = Listing::of(&self.key, setup)?.operator_side(setup.share());
        let most = self.sessions.div_ceil(setup.share().1);
        let (key, settings) = (self.key.clone(), self.settings_of_worker(setup.share().1));
        Ok(SessionLookup::Connections(ConnectionLookup {
            key,
            tables: self.tables(&operators, setup)?,
            most,
            settings,
        }))
    }
}

/// A worker's connections, for [session lookups](SessionLookup). The methods are those of [`SessionLookup`].
///
/// The index of a row ([`SessionRow::index`]) is the connection's number in the table of its IP version. For IPv6,
/// `most + 1` is added, so that the indices of both versions differ.
pub struct ConnectionLookup {
    key: String,
    tables: Arc<Own<Tables>>,
    /// Maximum number of connections of an IP version on this worker.
    most: usize,
    settings: Settings,
}

impl ConnectionLookup {
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn rows(&self) -> usize {
        2 * (self.most + 1)
    }

    pub(crate) fn lend(&self) -> Option<LentConnections<'_>> {
        Some(LentConnections { tables: self.tables.lend()?, most: self.most, settings: &self.settings })
    }
}

/// A worker's connections while they are lent.
pub struct LentConnections<'a> {
    tables: Lent<'a, Tables>,
    most: usize,
    settings: &'a Settings,
}

impl LentConnections<'_> {
    /// Returns true if any packet may open a TCP connection. Otherwise only a SYN may.
    pub(crate) fn picks_up(&self) -> bool {
        self.settings.picks_up
    }

    pub(crate) fn find_v4(&self, headers: &Headers<Tuple4>, now: Ticks) -> Option<FoundSession> {
        self.tables.v4.known(headers.tuple, self.settings.clock.slot(now), 0)
    }

    pub(crate) fn find_v6(&self, headers: &Headers<Tuple6>, now: Ticks) -> Option<FoundSession> {
        self.tables.v6.known(headers.tuple, self.settings.clock.slot(now), self.most + 1)
    }

    pub(crate) fn mark(&mut self, row: SessionRow) {
        match row.index.checked_sub(self.most + 1) {
            Some(number) => self.tables.v6.mark(number),
            None => self.tables.v4.mark(row.index),
        }
    }
}

/// A worker's connections.
pub(super) struct Tables {
    pub(super) v4: Tracker<Tuple4>,
    pub(super) v6: Tracker<Tuple6>,
    pub(super) timeouts: Timeouts,
    /// Present time slot.
    pub(super) now: Slot,
    pub(super) worker_side: WorkerSide,
}

impl Tables {
    pub(super) fn is_empty(&self) -> bool {
        self.v4.table.is_empty() && self.v6.table.is_empty()
    }

    /// Returns true if a table still has connections to check, because their time-outs may be over.
    pub(super) fn is_due(&mut self) -> bool {
        self.v4.table.is_due(self.now) || self.v6.table.is_due(self.now)
    }

    /// Sets the present time slot and removes connections that have ended. Examines up to `looks` connections of each
    /// IP version.
    #[inline]
    pub(super) fn expire(&mut self, now: Slot, looks: u32) {
        self.now = now;
        if self.v4.table.is_due(now) {
            self.v4.expire(now, looks);
        }
        if self.v6.table.is_due(now) {
            self.v6.expire(now, looks);
        }
    }
}

register!(state Connections);

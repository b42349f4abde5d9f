//! The local socket of a running pipeline: a line of JSON asks, lines of JSON answer (`docs/live.md`).
//!
//! Who may open the socket may change the pipeline: it is made in a folder that only its owner can enter.

mod client;
mod connections;
mod ending;
mod ledger;
mod lines;
mod moving;
#[allow(
    unsafe_code,
    reason = "the standard library connects to a socket only blocking, and does not report who listens"
)]
mod peer;
mod place;
mod server;
mod service;
mod values;

pub use client::{Client, ClientError};
pub use ending::Ending;
pub use ledger::Ledger;
pub use lines::Patience;
pub(crate) use place::own_folder;
pub use place::{Listing, Located, PlaceError, find, place, place_named, running};
pub use server::{Bound, Server};
pub use service::{About, Drops, DropsOf, Service, Stories, TraceOf, warn_of};
pub use values::{Configuration, DroppedPacket, Ended, Hello, PROTOCOL};

use forebay_graph::event::Event;
use forebay_graph::report::{GraphReport, Report};
use forebay_graph::{Action, Census};
use forebay_pipeline::WantedWorkers;
use serde::{Deserialize, Serialize};

use crate::moves::Moved;
use crate::reload::Reloaded;

/// The longest line.
pub const MOST_LINE: usize = 1 << 20;

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The instance, and the requests that it serves.
    Hello {},
    /// The configuration in force, without secrets.
    Config {},
    /// What has happened: since this connection asked last, and since the beginning.
    Report {},
    /// To change to the configuration in `file` (a path on the server, or `usecase:NAME`); without one, to what stands now in
    /// the file that the pipeline was started from. Settings of the start and of earlier reloads stay, unless `forget`.
    Reload {
        /// Which file.
        #[serde(default)]
        file: Option<String>,
        /// Further settings, `key=value`, each in place of those of its key.
        #[serde(default)]
        set: Option<Vec<String>>,
        /// Whether the settings before are left out.
        #[serde(default)]
        forget: bool,
    },
    /// To move modules of the configuration in force to other workers.
    Move {
        /// The modules with their workers, the most wanted first.
        modules: Vec<WantedWorkers>,
        /// How many may move at most; without it, all of them.
        #[serde(default)]
        most: Option<usize>,
        /// Whether modules move whose sessions are lost by it.
        #[serde(default)]
        lose_sessions: bool,
    },
    /// The pipeline's graph: modules, ports, and where packets go.
    Graph {},
    /// Which tables can be changed.
    Tables {},
    /// Entries of a table, from the one after `after`.
    Entries {
        /// The module.
        module: String,
        /// The table; without it, the module's only one.
        #[serde(default)]
        table: Option<String>,
        /// The last entry that is known already.
        #[serde(default)]
        after: Option<String>,
        /// Which ones, where the table knows how to choose: `10.0.0.0/8`, of one of sessions.
        #[serde(default)]
        filter: Option<String>,
        /// How many at most.
        most: usize,
    },
    /// To change a table. The changes follow, a line each, and end with an empty line. Answered when all are made.
    Change {
        /// The module.
        module: String,
        /// The table; without it, the module's only one.
        #[serde(default)]
        table: Option<String>,
    },
    /// To follow the next `count` packets; answered by a line for each.
    Trace {
        /// How many.
        count: u64,
        /// Which: `tcp and dst port 443`.
        #[serde(default)]
        filter: Option<String>,
    },
    /// To be sent the packets that are dropped from now on.
    Drops {
        /// How many at most; without it, as long as the client reads.
        #[serde(default)]
        count: Option<u64>,
        /// For how long, in nanoseconds.
        #[serde(default)]
        for_ns: Option<u64>,
        /// Which: `tcp and dst port 443`.
        #[serde(default)]
        filter: Option<String>,
    },
    /// To have an action applied.
    Act {
        /// The module that it is for.
        module: String,
        /// The action; its own number of the module is not looked at.
        action: Action,
    },
    /// The events that follow the one with number `after`.
    Events {
        /// The last event that is known already; without it, all that are kept.
        #[serde(default)]
        after: u64,
        /// Whether those that are recorded later are sent, too, as they come: further answers follow, until the client
        /// goes away or the run ends.
        #[serde(default)]
        follow: bool,
    },
    /// To end the run.
    Stop {
        /// To be answered once it has ended.
        #[serde(default)]
        wait: bool,
    },
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The instance.
    Hello(Hello),
    /// The configuration in force.
    Config(Box<Configuration>),
    /// What has happened.
    Report {
        /// Since this connection asked last.
        recent: Box<Report>,
        /// Since the beginning.
        whole: Box<Report>,
        /// Where every packet is, to the packet: each worker has said so between two turns, a moment after the rest was
        /// read. `None` where one did not answer.
        census: Option<Census>,
    },
    /// The configuration has been changed.
    Reloaded(Reloaded),
    /// Modules have moved.
    Moved(Moved),
    /// The pipeline's graph.
    Graph(Box<GraphReport>),
    /// Tables that can be changed.
    Tables(Vec<TableTold>),
    /// Entries of a table.
    Entries(Vec<String>),
    /// A table has been changed.
    Changed {
        /// How many changes were made.
        made: u64,
        /// How many entries those put in, took out or put others in the place of: of sessions, one change may end many.
        #[serde(default)]
        entries: u64,
        /// The first of those that were refused: number from 1, and why.
        refused: Vec<(u64, String)>,
        /// How many were refused.
        refusals: u64,
        /// Warnings about those that were made.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// Events, oldest first. A gap in their numbers: older ones are not kept any more.
    Events(Vec<Event>),
    /// A traced packet's way, in words.
    Story(String),
    /// There are no more of them.
    Told,
    /// A packet that was dropped.
    Dropped(DroppedPacket),
    /// The watching of dropped packets has ended.
    Watched {
        /// How many were sent.
        sent: u64,
        /// How many were dropped faster than they could be sent.
        lost: u64,
    },
    /// The run has ended.
    Ended(Box<Ended>),
    /// Done.
    Done,
    /// Not done: why.
    Error(String),
}

/// A table that can be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableTold {
    /// The module.
    pub module: String,
    /// Its name: `routes`.
    pub table: String,
    /// How many entries it has.
    pub entries: usize,
    /// How changes are written.
    pub syntax: String,
}

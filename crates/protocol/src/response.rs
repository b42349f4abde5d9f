//! Responses of a running pipeline: one line of JSON each.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::census::Census;
use crate::change::{Moved, Reloaded};
use crate::check::Checked;
use crate::event::Event;
use crate::graph::GraphReport;
use crate::report::{Packets, Report};
use crate::watch::Tick;

/// A response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// The instance.
    Hello(Hello),
    /// The configuration in force.
    Config(Box<Configuration>),
    /// The report of the run. Its figures have six significant digits.
    Report {
        /// The report of the time since the last `report` request of this connection, if it was requested.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        recent: Option<Box<Report>>,
        /// The report of the time since the start of the run.
        whole: Box<Report>,
        /// The exact number of packets of each origin and fate. Each worker counts between two turns, shortly after the
        /// other counters were read. `None` if a worker did not respond, and in the responses to `watch`, whose ticks
        /// continue the counters of this report.
        census: Option<Census>,
    },
    /// The changes of one interval.
    Tick(Box<Tick>),
    /// A configuration that was checked.
    Checked(Box<Checked>),
    /// The configuration was changed.
    Reloaded(Reloaded),
    /// Modules were moved.
    Moved(Moved),
    /// The pipeline's graph.
    Graph(Box<GraphReport>),
    /// The tables that can be changed.
    Tables(Vec<TableSummary>),
    /// Entries of a table.
    Entries(Vec<String>),
    /// A table was changed.
    Changed {
        /// The number of changes that were made.
        made: u64,
        /// The number of entries that the changes added, removed or replaced. One change of a session table may end
        /// many sessions.
        #[serde(default)]
        entries: u64,
        /// The first refused changes: the number of the change, counted from 1, and the reason.
        refused: Vec<(u64, String)>,
        /// The number of refused changes.
        refusals: u64,
        /// Warnings about changes that were made.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// Events, oldest first. A gap in their numbers means that older events are no longer kept.
    Events(Vec<Event>),
    /// The path of one traced packet, in words.
    Story(String),
    /// The end of a trace.
    Traced,
    /// A dropped packet.
    Dropped(DroppedPacket),
    /// The end of a stream of dropped packets.
    Watched {
        /// The number of packets that were sent.
        sent: u64,
        /// The number of packets that were lost because they were dropped faster than they could be sent.
        lost: u64,
    },
    /// The run has ended.
    Ended(Box<Ended>),
    /// The request was carried out.
    Done,
    /// The request was refused: the reason.
    Error(String),
}

/// The instance that responds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hello {
    /// The protocol version: [`VERSION`](crate::VERSION).
    pub protocol: u32,
    /// The program's version.
    pub forebay: String,
    /// The pipeline's name.
    pub pipeline: String,
    /// The name that was given to the run with `--name`; `None` if there is none.
    pub instance: Option<String>,
    /// The process ID.
    pub pid: u32,
    /// The time of its start (RFC 3339).
    pub started: String,
    /// The number of workers.
    pub workers: usize,
    /// The requests that it serves.
    pub capabilities: Vec<String>,
}

/// The configuration in force. Every secret in it is `***`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Configuration {
    /// The text as YAML, with the settings applied and without comments.
    pub text: String,
    /// The settings that were given with the configuration. The text contains them.
    pub settings: Vec<String>,
    /// A version that changes with each accepted change of the configuration. It contains no information about secrets.
    pub version: String,
    /// The number of accepted changes since the start.
    pub changes: u64,
    /// The name of the configuration in messages, usually its file.
    pub file: String,
    /// Tables whose entries were changed, and the number of changes. These tables differ from the text.
    pub tables: BTreeMap<String, u64>,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ended {
    /// The exit code of its process.
    pub exit: u8,
    /// The length of the run, in seconds.
    pub duration_s: f64,
    /// Where every packet is.
    pub packets: Packets,
    /// Errors of the run.
    pub troubles: Vec<String>,
}

/// A packet that was dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DroppedPacket {
    /// Its arrival time, in nanoseconds since 1970.
    pub at_ns: u64,
    /// The module and the reason: `route.no_route`.
    pub reason: String,
    /// Its bytes, in hexadecimal digits.
    pub frame: String,
    /// Its length in bytes. `frame` may be only its first part.
    pub length: usize,
}

/// A table that can be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TableSummary {
    /// The module.
    pub module: String,
    /// The table's name: `routes`.
    pub table: String,
    /// The number of its entries.
    pub entries: usize,
    /// The syntax of changes.
    pub syntax: String,
}

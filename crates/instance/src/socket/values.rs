//! Responses about a running pipeline: plain values, with a version of their own.

use std::collections::BTreeMap;

use forebay_graph::report::Packets;
use serde::{Deserialize, Serialize};

/// The version of the protocol. It changes when a request, an answer or a field goes or means something else; more may
/// come without that.
pub const PROTOCOL: u32 = 1;

/// The instance that responds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// The program's version.
    pub forebay: String,
    /// The pipeline's name.
    pub pipeline: String,
    /// The name that the run was given to be found by; `None` where it was given none.
    pub instance: Option<String>,
    /// The number of its process.
    pub pid: u32,
    /// When it was started (RFC 3339).
    pub started: String,
    /// How many workers it has.
    pub workers: usize,
    /// Requests that it answers.
    pub capabilities: Vec<String>,
}

/// The configuration in force. Secrets in it are `***`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// The text as YAML: settings are in it, comments are not.
    pub text: String,
    /// Settings that were given with it, and are in the text.
    pub settings: Vec<String>,
    /// Another one after each change of the configuration that was accepted. Nothing follows from its digits.
    pub version: String,
    /// How many changes of the configuration have been accepted since the start.
    pub changes: u64,
    /// Its name in messages: mostly its file.
    pub file: String,
    /// Tables whose entries were changed by themselves, and how often: they differ from the text.
    pub tables: BTreeMap<String, u64>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// The exit code of its process.
    pub exit: u8,
    /// How long it ran, in seconds.
    pub duration_s: f64,
    /// Where every packet is.
    pub packets: Packets,
    /// Faults of the run.
    pub troubles: Vec<String>,
}

/// A packet that was dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedPacket {
    /// When it arrived, in nanoseconds after 1970.
    pub at_ns: u64,
    /// Where and why it was dropped: `route.no_route`.
    pub reason: String,
    /// Its bytes, in hexadecimal digits.
    pub frame: String,
    /// How long it was; longer than `frame` where that is only a part.
    pub length: usize,
}

//! Events of a run that its operator should know.
//!
//! Ports and functions only count. The instance reads the counters and records events from them.

mod name;
mod text;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use forebay_units::text::{is_control, on_one_line, without_control};
pub use name::{EventName, Level};

/// An event with its time and fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Its number. The first event of a run has number 1, and the number increases by 1 for each event.
    pub id: u64,
    /// The time at which it was recorded: RFC 3339 in UTC, with milliseconds.
    pub time: String,
    /// Its level.
    pub level: Level,
    /// The name of the event.
    pub event: EventName,
    /// The pipeline's name; empty before the configuration has been read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pipeline: String,
    /// The subject of the event, and counters, by name.
    #[serde(flatten)]
    pub fields: BTreeMap<String, Value>,
    /// The event in a sentence, and what the operator can do next.
    #[serde(rename = "msg")]
    pub message: String,
}

impl Event {
    /// Returns the event as one line of `name=value` pairs (logfmt), without the line's end. Text from outside cannot
    /// end the line or control a terminal.
    #[must_use]
    pub fn to_logfmt(&self) -> String {
        text::logfmt(self)
    }

    /// Returns the event as one line of JSON, without the line's end. Text from outside cannot end the line or control
    /// a terminal.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Numbers and texts are always serialisable.
        without_control(&serde_json::to_string(self).unwrap_or_default())
    }
}

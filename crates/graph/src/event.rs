//! Events: what happened to a run that its operator should know, as plain values.
//!
//! Ports and functions only count. The control side looks at the counters, records an [`Event`], and keeps the last of
//! them in an [`EventLog`], from where they are printed, sent by the socket, or shown in a table.

mod limit;
mod log;
mod name;
mod text;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use limit::{LIMIT, Limit};
pub use log::{EventLog, KEPT};
pub use name::{EventName, Level};
pub use text::{is_acting, without_acting};

/// Something that happened, with its time and fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its number: 1 for the first of a run, and one more for each that follows.
    pub id: u64,
    /// When it was recorded: RFC 3339 in UTC, with milliseconds.
    pub time: String,
    /// How much it matters.
    pub level: Level,
    /// The name of the event.
    pub event: EventName,
    /// The pipeline's name; empty until the configuration has been read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pipeline: String,
    /// The subject of the event, and counts.
    #[serde(flatten)]
    pub fields: BTreeMap<String, Value>,
    /// The same in a sentence, and what to do.
    #[serde(rename = "msg")]
    pub message: String,
}

impl Event {
    /// The event as one line of `name=value` pairs (logfmt), without its end. Text from outside cannot end it or act
    /// on a terminal.
    #[must_use]
    pub fn to_logfmt(&self) -> String {
        text::logfmt(self)
    }

    /// The event as one line of JSON, without its end, with the same guarantee.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Numbers, texts and names of fields: all can be written.
        text::without_acting(&serde_json::to_string(self).unwrap_or_default())
    }
}

/// An event that is about to be recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    name: EventName,
    fields: BTreeMap<String, Value>,
    message: String,
}

impl NewEvent {
    /// An event with its message.
    #[must_use]
    pub fn new(name: EventName, message: impl Into<String>) -> Self {
        Self { name, fields: BTreeMap::new(), message: message.into() }
    }

    /// The same with a field. `field` is none of [`Event`]'s own: `id`, `time`, `level`, `event`, `pipeline`, `msg`.
    #[must_use]
    pub fn with(mut self, field: &'static str, value: impl Into<Value>) -> Self {
        debug_assert!(!["id", "time", "level", "event", "pipeline", "msg"].contains(&field), "{field}");
        self.fields.insert(field.to_owned(), value.into());
        self
    }

    /// The same with a field where there is a value.
    #[must_use]
    pub fn with_some(self, field: &'static str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(field, value),
            None => self,
        }
    }
}

#[cfg(test)]
mod tests;

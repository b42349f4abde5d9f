//! The log of a run's events: a bounded ring of events with increasing numbers. The live display of a terminal, the
//! socket and log files read the log.

mod limit;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use forebay_protocol::event::{Event, EventName};
use serde_json::Value;

pub use limit::{LIMIT, Limit};

/// The number of events that a log keeps. When a log has more, its oldest event is removed.
pub const KEPT: usize = 1_024;
/// The longest text of an event, in bytes. Longer texts are cut, because a configuration can have thousands of errors.
const LONGEST: usize = 4_096;

/// An event before it is recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    name: EventName,
    fields: BTreeMap<String, Value>,
    message: String,
}

impl NewEvent {
    /// Returns an event with a message.
    #[must_use]
    pub fn new(name: EventName, message: impl Into<String>) -> Self {
        Self { name, fields: BTreeMap::new(), message: message.into() }
    }

    /// Adds a field. Its name must not be one of [`Event`]'s own: `id`, `time`, `level`, `event`, `pipeline`, `msg`.
    #[must_use]
    pub fn with(mut self, field: &'static str, value: impl Into<Value>) -> Self {
        debug_assert!(!["id", "time", "level", "event", "pipeline", "msg"].contains(&field), "{field}");
        self.fields.insert(field.to_owned(), value.into());
        self
    }

    /// Adds a field if there is a value.
    #[must_use]
    pub fn with_some(self, field: &'static str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(field, value),
            None => self,
        }
    }
}

/// The events of a run. Several threads may record and read them.
#[derive(Debug, Default)]
pub struct EventLog {
    /// The pipeline's name. It is unknown until the configuration has been read.
    pipeline: OnceLock<String>,
    /// The last events, with numbers that increase by 1.
    ring: Mutex<VecDeque<Event>>,
    /// Notified when an event is recorded.
    recorded: Condvar,
}

impl EventLog {
    /// Sets the name of the pipeline for the events that follow. Only the first call has an effect.
    pub fn set_pipeline(&self, name: &str) {
        let _ = self.pipeline.set(name.to_owned());
    }

    /// Records an event with the present time.
    pub fn record(&self, new: NewEvent) {
        let NewEvent { name, mut fields, mut message } = new;
        shorten(&mut message);
        for field in fields.values_mut() {
            if let Value::String(text) = field {
                shorten(text);
            }
        }
        let mut ring = self.lock();
        // Read under the lock, so that times have the order of the numbers.
        let time = format!("{:.3}", jiff::Timestamp::now());
        let id = ring.back().map_or(1, |last| last.id + 1);
        let pipeline = self.pipeline.get().cloned().unwrap_or_default();
        ring.push_back(Event { id, time, level: name.level(), event: name, pipeline, fields, message });
        if ring.len() > KEPT {
            ring.pop_front();
        }
        drop(ring);
        self.recorded.notify_all();
    }

    /// Returns the kept events with a number above `id`; all kept events for 0.
    #[must_use]
    pub fn after(&self, id: u64) -> Vec<Event> {
        following(&self.lock(), id)
    }

    /// Returns the kept events with a number above `id`. If there are none, waits for the next event for up to
    /// `patience`; if none is recorded in this time, the result is empty.
    #[must_use]
    pub fn wait_after(&self, id: u64, patience: Duration) -> Vec<Event> {
        let is_old = |ring: &mut VecDeque<Event>| ring.back().is_none_or(|last| last.id <= id);
        let waited = self.recorded.wait_timeout_while(self.lock(), patience, is_old);
        following(&waited.unwrap_or_else(PoisonError::into_inner).0, id)
    }

    /// Returns the last `count` events, oldest first.
    #[must_use]
    pub fn recent(&self, count: usize) -> Vec<Event> {
        let ring = self.lock();
        ring.iter().skip(ring.len().saturating_sub(count)).cloned().collect()
    }

    /// Locks the ring. Ignores that a thread panicked with the lock: that thread has recorded a whole event or none.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Cuts a text after at most [`LONGEST`] bytes, and marks the cut by ` …`.
fn shorten(text: &mut String) {
    if text.len() > LONGEST {
        text.truncate(text.floor_char_boundary(LONGEST));
        text.push_str(" …");
    }
}

/// Returns the events with a number above `id`.
fn following(ring: &VecDeque<Event>, id: u64) -> Vec<Event> {
    let from = ring.partition_point(|event| event.id <= id);
    ring.range(from..).cloned().collect()
}

#[cfg(test)]
mod tests;

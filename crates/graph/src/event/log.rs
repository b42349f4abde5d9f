//! The last events of a run, for all that read them: a bounded ring with increasing numbers.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::{Event, NewEvent};

/// How many events a log keeps; older ones go.
pub const KEPT: usize = 1_024;
/// The longest text in an event, in bytes: a configuration can have thousands of errors.
pub(super) const LONGEST: usize = 4_096;

/// The events of a run.
#[derive(Debug, Default)]
pub struct EventLog {
    pipeline: OnceLock<String>,
    ring: Mutex<VecDeque<Event>>,
    recorded: Condvar,
}

impl EventLog {
    /// Names the pipeline in events from now on. The first name stays.
    pub fn set_pipeline(&self, name: &str) {
        let _ = self.pipeline.set(name.to_owned());
    }

    /// Records an event, with the present time.
    pub fn record(&self, new: NewEvent) {
        let NewEvent { name, mut fields, mut message } = new;
        shorten(&mut message);
        for field in fields.values_mut() {
            if let Value::String(text) = field {
                shorten(text);
            }
        }
        let mut ring = self.lock();
        // Under the lock: times are in the order of the numbers.
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

    /// Returns the events that follow the one with number `id`, as far as they are kept; all that are kept with 0.
    #[must_use]
    pub fn after(&self, id: u64) -> Vec<Event> {
        following(&self.lock(), id)
    }

    /// The same, but waits up to `patience` for the first one.
    #[must_use]
    pub fn wait_after(&self, id: u64, patience: Duration) -> Vec<Event> {
        let is_old = |ring: &mut VecDeque<Event>| ring.back().is_none_or(|last| last.id <= id);
        let waited = self.recorded.wait_timeout_while(self.lock(), patience, is_old);
        following(&waited.unwrap_or_else(PoisonError::into_inner).0, id)
    }

    /// Returns the last `count` events, oldest first: for a table that shows them.
    #[must_use]
    pub fn recent(&self, count: usize) -> Vec<Event> {
        let ring = self.lock();
        ring.iter().skip(ring.len().saturating_sub(count)).cloned().collect()
    }

    /// A thread that panicked while it had the lock recorded a whole event or none.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shorten(text: &mut String) {
    if text.len() > LONGEST {
        text.truncate(text.floor_char_boundary(LONGEST));
        text.push_str(" …");
    }
}

fn following(ring: &VecDeque<Event>, id: u64) -> Vec<Event> {
    let from = ring.partition_point(|event| event.id <= id);
    ring.range(from..).cloned().collect()
}

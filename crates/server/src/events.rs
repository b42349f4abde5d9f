//! The events that the server sends to its viewers.
//!
//! Every event has a number. A viewer that was disconnected names the last number that it knows, and receives the
//! events since then, as far as they are kept. The queue of a viewer is bounded: a viewer that is too slow misses
//! events, and then receives the whole state again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

/// The largest number of events that wait for a viewer. All viewers share the memory of the events.
const QUEUE: usize = 256;
/// The number of events that are kept for viewers that connect again. Counters are not kept.
const KEPT: usize = 512;

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A pipeline was found, has become silent, sends again, or has ended.
    Instance,
    /// An alarm began, has another cause, or ended.
    Alarm,
    /// A pipeline has recorded an event.
    Event,
    /// The decisions of a pipeline's controller.
    Decisions,
    /// The counters of a pipeline since its start.
    Report,
    /// The changes of a pipeline's counters since its last report.
    Tick,
}

impl EventKind {
    /// Returns the name of the type in the stream.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Instance => "instance",
            Self::Alarm => "alarm",
            Self::Event => "event",
            Self::Decisions => "decisions",
            Self::Report => "report",
            Self::Tick => "tick",
        }
    }

    /// Returns whether the event has counters. These events come at each `interval`, and an old one has no
    /// use.
    #[must_use]
    pub fn is_counters(self) -> bool {
        matches!(self, Self::Report | Self::Tick)
    }
}

/// An event.
#[derive(Debug)]
pub struct ServerEvent {
    /// The number, from 1. It increases by 1.
    pub id: u64,
    /// The type.
    pub kind: EventKind,
    /// The pipeline that the event is about, if it is about one.
    pub instance: Option<String>,
    /// The content: a JSON object.
    pub data: String,
}

/// The events of the server.
#[derive(Debug)]
pub struct Events {
    /// A text that differs after each start of the server. Event numbers of an earlier server have no meaning.
    epoch: String,
    kept: Mutex<Kept>,
    sender: broadcast::Sender<Arc<ServerEvent>>,
}

#[derive(Debug, Default)]
struct Kept {
    last: u64,
    events: VecDeque<Arc<ServerEvent>>,
}

/// The events since a number.
#[derive(Debug)]
pub enum Since {
    /// All events since then, except those of counters.
    Events(Vec<Arc<ServerEvent>>),
    /// Events are missing: they are no longer kept, or the number is one of an earlier server.
    Missing,
}

/// Returns the content of an event about a pipeline: a JSON object with its name, and `value` under `key`. The value is
/// written at once, without a tree of JSON values, because counters come every second.
pub(crate) fn content(instance: &str, key: &str, value: &impl Serialize) -> String {
    // Texts and plain data can always be written.
    let written = serde_json::to_string(value).unwrap_or_default();
    format!("{{\"instance\":{},\"{key}\":{written}}}", serde_json::Value::from(instance))
}

impl Default for Events {
    fn default() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            epoch: format!("{:x}", since.as_millis()),
            kept: Mutex::default(),
            sender: broadcast::Sender::new(QUEUE),
        }
    }
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an event to all viewers. Returns its number.
    pub fn publish(&self, kind: EventKind, instance: Option<&str>, data: String) -> u64 {
        let mut kept = self.lock();
        kept.last += 1;
        let event = Arc::new(ServerEvent { id: kept.last, kind, instance: instance.map(str::to_owned), data });
        if !kind.is_counters() {
            if kept.events.len() == KEPT {
                kept.events.pop_front();
            }
            kept.events.push_back(Arc::clone(&event));
        }
        // An error means that there is no viewer.
        let _ = self.sender.send(event);
        kept.last
    }

    /// Returns a queue of all later events, with the number of the last event before them.
    #[must_use]
    pub fn subscribe(&self) -> (broadcast::Receiver<Arc<ServerEvent>>, u64) {
        let kept = self.lock();
        (self.sender.subscribe(), kept.last)
    }

    /// Returns the text that identifies an event in the stream.
    #[must_use]
    pub fn tag(&self, id: u64) -> String {
        format!("{}-{id}", self.epoch)
    }

    /// Returns the events after the one that `tag` identifies, up to the number `until`.
    #[must_use]
    pub fn since(&self, tag: &str, until: u64) -> Since {
        let id = tag.strip_prefix(&self.epoch).and_then(|rest| rest.strip_prefix('-')?.parse::<u64>().ok());
        let kept = self.lock();
        let Some(id) = id.filter(|id| *id <= kept.last) else { return Since::Missing };
        // If the oldest kept event is older than the known one, all events after the known one are kept.
        let is_complete = kept.events.len() < KEPT || kept.events.front().is_some_and(|oldest| oldest.id <= id);
        if !is_complete {
            return Since::Missing;
        }
        Since::Events(kept.events.iter().filter(|event| event.id > id && event.id <= until).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(since: Since) -> Option<Vec<u64>> {
        match since {
            Since::Events(events) => Some(events.iter().map(|event| event.id).collect()),
            Since::Missing => None,
        }
    }

    #[test]
    fn events_since_a_number_are_complete_or_missing() {
        let events = Events::default();
        let publish = |kind| events.publish(kind, Some("gw"), "{}".to_owned());
        for kind in [EventKind::Instance, EventKind::Tick, EventKind::Event, EventKind::Alarm] {
            publish(kind);
        }
        let since = |id, until| ids(events.since(&events.tag(id), until));
        assert_eq!(since(0, 4), Some(vec![1, 3, 4]));
        assert_eq!(since(1, 3), Some(vec![3]));
        assert_eq!(since(4, 4), Some(vec![]));
        assert_eq!(since(5, 9), None, "this event does not exist yet");
        assert_eq!(ids(events.since("0-1", 4)), None, "an earlier server");
        assert_eq!(ids(events.since("", 4)), None);
        (0..KEPT).for_each(|_| {
            publish(EventKind::Event);
        });
        assert_eq!(since(4, u64::MAX), None, "the event before the oldest kept one may be missing");
        assert_eq!(since(5, u64::MAX).map(|ids| ids.len()), Some(KEPT - 1));
    }

    #[test]
    fn a_queue_begins_after_the_reported_number() {
        let events = Events::default();
        events.publish(EventKind::Event, None, "{}".to_owned());
        let (mut queue, last) = events.subscribe();
        assert_eq!(last, 1);
        events.publish(EventKind::Event, None, "{}".to_owned());
        assert_eq!(queue.try_recv().expect("an event").id, 2);
    }
}

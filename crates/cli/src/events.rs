//! Prints the events of a run on standard error, a line each.

use std::io::Write;
use std::sync::Arc;

use clap::ValueEnum;
use forebay_graph::event::{Event, EventLog, EventName, NewEvent};

use crate::printed;

/// How events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line of NAME=VALUE pairs
    #[default]
    Logfmt,
    /// A JSON object a line
    Json,
}

impl LogFormat {
    /// The event as a line, without its end.
    pub(crate) fn line(self, event: &Event) -> String {
        match self {
            Self::Logfmt => event.to_logfmt(),
            Self::Json => event.to_json(),
        }
    }
}

/// The events of a run, and how far they are printed.
pub(crate) struct Events {
    log: Arc<EventLog>,
    format: LogFormat,
    printed: u64,
}

impl Events {
    pub(crate) fn new(format: LogFormat) -> Self {
        Self { log: Arc::default(), format, printed: 0 }
    }

    /// Where events are recorded, and can be looked at.
    pub(crate) fn log(&self) -> &Arc<EventLog> {
        &self.log
    }

    pub(crate) fn record(&self, event: NewEvent) {
        self.log.record(event);
    }

    /// Records an event without fields.
    pub(crate) fn say(&self, name: EventName, message: impl Into<String>) {
        self.log.record(NewEvent::new(name, message));
    }

    /// Prints the events that are not printed yet.
    pub(crate) fn print(&mut self) {
        for event in self.log.after(self.printed) {
            self.printed = event.id;
            // A standard error that is gone does not end the run.
            let _ = writeln!(printed::err(), "{}", self.format.line(&event));
        }
    }
}

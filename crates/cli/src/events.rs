//! Prints the events of a run on standard error, a line each.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use forebay_instance::events::{EventLog, NewEvent};
use forebay_protocol::event::{Event, EventName};
use serde_json::json;

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

    /// The line in the place of so many events that the run did not keep until they could be printed.
    fn gap(self, missing: u64) -> String {
        let what = if missing == 1 { "event is" } else { "events are" };
        let message = format!("{missing} {what} not printed: more came meanwhile than the run keeps");
        match self {
            Self::Logfmt => format!("level=warn not_printed={missing} msg=\"{message}\""),
            Self::Json => json!({ "level": "warn", "not_printed": missing, "msg": message }).to_string(),
        }
    }
}

/// How long the end of a run waits for who reads standard error.
const LAST: Duration = Duration::from_secs(1);

/// The events of a run, and how far they are printed.
pub(crate) struct Events {
    log: Arc<EventLog>,
    format: LogFormat,
    printed: u64,
    /// Bytes of events that count as printed and that standard error has not taken yet.
    rest: Vec<u8>,
}

impl Events {
    pub(crate) fn new(format: LogFormat) -> Self {
        Self { log: Arc::default(), format, printed: 0, rest: Vec::new() }
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

    /// Prints the events that are not printed yet, as far as standard error takes them.
    /// The run goes on if standard error is not read.
    pub(crate) fn print(&mut self) {
        self.print_until(Instant::now());
    }

    /// The same at the end, which waits a second for who reads standard error, and no longer.
    pub(crate) fn print_last(&mut self) {
        self.print_until(Instant::now() + LAST);
    }

    fn print_until(&mut self, until: Instant) {
        printed::write_err(&mut self.rest, until);
        while self.rest.is_empty() {
            let mut text = printed::Printed(Vec::new());
            self.print_to(&mut text);
            if text.0.is_empty() {
                return;
            }
            self.rest = text.0;
            printed::write_err(&mut self.rest, until);
        }
    }

    fn print_to(&mut self, out: &mut impl Write) {
        for event in self.log.after(self.printed) {
            let missing = event.id - self.printed - 1;
            // A standard error that is gone does not end the run.
            if missing > 0 {
                let _ = writeln!(out, "{}", self.format.gap(missing));
            }
            let _ = writeln!(out, "{}", self.format.line(&event));
            self.printed = event.id;
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_instance::events::KEPT;

    use super::*;

    /// Events that a run no longer kept when they could be printed were left out without a word.
    #[test]
    fn events_that_are_not_kept_until_they_are_printed_are_counted() {
        let message = "3 events are not printed: more came meanwhile than the run keeps";
        for (format, gap) in [
            (LogFormat::Logfmt, format!("level=warn not_printed=3 msg=\"{message}\"")),
            (LogFormat::Json, json!({ "level": "warn", "msg": message, "not_printed": 3 }).to_string()),
        ] {
            let mut events = Events::new(format);
            let mut print = |more: usize| {
                (0..more).for_each(|_| events.say(EventName::Started, "it runs"));
                let mut out = Vec::new();
                events.print_to(&mut out);
                String::from_utf8(out).expect("UTF-8")
            };
            assert_eq!(print(2).lines().count(), 2);
            let many = print(KEPT + 3);
            let mut lines = many.lines();
            assert_eq!(lines.next(), Some(gap.as_str()));
            assert_eq!(lines.count(), KEPT);
            assert_eq!(print(KEPT).lines().count(), KEPT, "none is missing");
            assert!(print(KEPT + 1).contains("1 event is not printed"));
        }
    }
}

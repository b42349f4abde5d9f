//! Prints the events of a run on standard error, one line each.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use forebay_instance::events::{EventLog, NewEvent};
use forebay_protocol::event::{Event, EventName};
use serde_json::json;

use crate::printed;

/// The format of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line of NAME=VALUE pairs
    #[default]
    Logfmt,
    /// One JSON object per line
    Json,
}

impl LogFormat {
    /// Formats the event as a line, without the line end.
    pub(crate) fn line(self, event: &Event) -> String {
        match self {
            Self::Logfmt => event.to_logfmt(),
            Self::Json => event.to_json(),
        }
    }

    /// Formats the line that is printed instead of discarded events. The run has discarded `missing` events before they
    /// were printed.
    fn gap(self, missing: u64) -> String {
        let what = if missing == 1 { "event is" } else { "events are" };
        let message = format!("{missing} {what} not printed: there were more events than the run stores");
        match self {
            Self::Logfmt => format!("level=warn not_printed={missing} msg=\"{message}\""),
            Self::Json => json!({ "level": "warn", "not_printed": missing, "msg": message }).to_string(),
        }
    }
}

/// Maximum time that the end of a run waits for the reader of standard error.
const LAST: Duration = Duration::from_secs(1);

/// The events of a run, and how far they have been printed.
pub(crate) struct Events {
    log: Arc<EventLog>,
    format: LogFormat,
    /// The number of the last event that was printed.
    printed: u64,
    /// Bytes of printed events that standard error has not yet accepted.
    rest: Vec<u8>,
}

impl Events {
    pub(crate) fn new(format: LogFormat) -> Self {
        Self { log: Arc::default(), format, printed: 0, rest: Vec::new() }
    }

    /// Returns the log in which events are recorded.
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

    /// Prints new events, as far as standard error accepts them without waiting. So the run continues even if no
    /// process reads standard error.
    pub(crate) fn print(&mut self) {
        self.print_until(Instant::now());
    }

    /// Prints new events at the end of the run. Waits at most a second for the reader of standard error.
    pub(crate) fn print_last(&mut self) {
        self.print_until(Instant::now() + LAST);
    }

    /// Prints new events until all are printed or standard error has not accepted them by `until`.
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

    /// Writes new events to `out`. They then count as printed.
    fn print_to(&mut self, out: &mut impl Write) {
        for event in self.log.after(self.printed) {
            let missing = event.id - self.printed - 1;
            // A closed standard error does not end the run.
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

    /// Regression: events that were discarded before they could be printed were left out silently.
    #[test]
    fn events_that_are_not_kept_until_they_are_printed_are_counted() {
        let message = "3 events are not printed: there were more events than the run stores";
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

//! The server's own log: lines of logfmt or JSON on standard error, in the format of a pipeline's events.

use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use forebay_protocol::event::{Level, on_one_line, without_control};
use serde::Serialize;

/// The largest number of lines in a [`SPAN`]. Requests cause lines, so their number is limited.
const MOST: u32 = 100;
/// The time in which at most [`MOST`] lines are written.
const SPAN: Duration = Duration::from_secs(10);

/// The server's log.
#[derive(Debug)]
pub struct Log {
    /// The beginning of the present span, the number of its lines, and the number of lines that were left out.
    span: Mutex<(Instant, u32, u64)>,
    /// Whether the lines are JSON.
    is_json: bool,
}

/// A line of the log. The fields are in the order in which they are written.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    level: Level,
    event: &'a str,
    program: &'static str,
    msg: &'a str,
}

impl Log {
    /// Creates a log with lines of JSON or of logfmt.
    #[must_use]
    pub fn new(is_json: bool) -> Self {
        Self { span: Mutex::new((Instant::now(), 0, 0)), is_json }
    }

    /// Writes an expected change.
    pub fn info(&self, event: &str, message: &str) {
        self.write(Level::Info, event, message);
    }

    /// Writes something that needs attention.
    pub fn warn(&self, event: &str, message: &str) {
        self.write(Level::Warn, event, message);
    }

    /// Writes something that does not work.
    pub fn error(&self, event: &str, message: &str) {
        self.write(Level::Error, event, message);
    }

    fn write(&self, level: Level, event: &str, message: &str) {
        let mut span = self.span.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if span.0.elapsed() >= SPAN {
            if span.2 > 0 {
                self.print(Level::Warn, "lines_left_out", &format!("{} lines of the log were left out", span.2));
            }
            *span = (Instant::now(), 0, 0);
        }
        if span.1 == MOST {
            span.2 += 1;
        } else {
            span.1 += 1;
            self.print(level, event, message);
        }
    }

    fn print(&self, level: Level, event: &str, message: &str) {
        let time = format!("{:.3}", jiff::Timestamp::now());
        let line = if self.is_json {
            let line = Line { time, level, event, program: "serve", msg: message };
            // Texts can always be written.
            without_control(&serde_json::to_string(&line).unwrap_or_default())
        } else {
            // A text from outside is quoted as JSON, so that it cannot end the line.
            let message = serde_json::Value::from(on_one_line(message));
            format!("time={time} level={level} event={event} program=serve msg={message}")
        };
        // A log that no process reads must not stop the server.
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    }
}

//! Progress of a long task: a bar on a terminal, otherwise a line every ten seconds.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::format::counted;
use crate::printed;

/// Time between two lines without a terminal.
const LINES: Duration = Duration::from_secs(10);

/// A progress bar for the steps of a task's parts.
pub(crate) struct Bar {
    shown: ProgressBar,
    /// The current part.
    part: String,
    /// The number of steps of the current part.
    steps: usize,
    /// The time of the next line without a terminal.
    next_line: Instant,
}

impl Bar {
    pub(crate) fn new() -> Self {
        Self { shown: ProgressBar::hidden(), part: String::new(), steps: 0, next_line: Instant::now() + LINES }
    }

    /// Sets the name of the part whose steps follow.
    pub(crate) fn part(&mut self, name: &str) {
        self.part = name.to_owned();
    }

    /// Begins a part with this number of steps.
    pub(crate) fn begin(&mut self, steps: usize) {
        let style = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {pos}/{len} {wide_msg}");
        self.end();
        self.shown = ProgressBar::new(steps as u64);
        self.steps = steps;
        // The template is constant, so an error in it would show in every run.
        self.shown.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        // Keep the bar moving during a long step.
        self.shown.enable_steady_tick(Duration::from_millis(200));
    }

    /// Prints the expected duration of the part.
    pub(crate) fn expect(&self, what: &str, seconds: f64) {
        self.line(&format!("{}{what}, about {}", self.name(), lasting(seconds)));
    }

    /// Prints a line above the bar.
    pub(crate) fn note(&self, text: &str) {
        self.line(text);
    }

    /// Shows the number of completed steps and the current step.
    pub(crate) fn at(&mut self, done: usize, what: &str) {
        self.shown.set_position(done as u64);
        self.shown.set_message(what.to_owned());
        if !io::stderr().is_terminal() && Instant::now() >= self.next_line {
            self.next_line = Instant::now() + LINES;
            self.line(&format!("{}{done} of {}: {what}", self.name(), self.steps));
        }
    }

    /// Shows that one more step is complete, and the current step.
    pub(crate) fn step(&mut self, what: &str) {
        let done = usize::try_from(self.shown.position()).unwrap_or(usize::MAX);
        self.at(done.saturating_add(1), what);
    }

    /// Formats the number of steps of the part.
    pub(crate) fn steps(&self) -> String {
        counted(self.steps as u64, "step")
    }

    /// Removes the bar.
    pub(crate) fn end(&self) {
        self.shown.finish_and_clear();
    }

    /// Prints a line, above the bar if there is one. Write errors are ignored, because progress is not essential.
    fn line(&self, text: &str) {
        if io::stderr().is_terminal() {
            self.shown.suspend(|| drop(writeln!(printed::err(), "{text}")));
        } else {
            let _ = writeln!(printed::err(), "{text}");
        }
    }

    /// Returns the name of the current part with a colon, as the beginning of a line. Returns an empty text if the part
    /// has no name.
    fn name(&self) -> String {
        if self.part.is_empty() { String::new() } else { format!("{}: ", self.part) }
    }
}

/// Formats a duration in a suitable unit.
fn lasting(seconds: f64) -> String {
    match seconds {
        ..90.0 => format!("{:.0} s", seconds.max(1.0)),
        ..5400.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

//! How far something long is: on a terminal a bar, elsewhere a line every ten seconds.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::format::counted;
use crate::printed;

/// The time between two lines where there is no terminal.
const LINES: Duration = Duration::from_secs(10);

/// A bar for the steps of one part after the other.
pub(crate) struct Bar {
    shown: ProgressBar,
    /// The part that is being made.
    part: String,
    steps: usize,
    next_line: Instant,
}

impl Bar {
    pub(crate) fn new() -> Self {
        Self { shown: ProgressBar::hidden(), part: String::new(), steps: 0, next_line: Instant::now() + LINES }
    }

    /// Names the part whose steps follow.
    pub(crate) fn part(&mut self, name: &str) {
        self.part = name.to_owned();
    }

    /// Begins a part of so many steps.
    pub(crate) fn begin(&mut self, steps: usize) {
        let style = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {pos}/{len} {wide_msg}");
        self.end();
        self.shown = ProgressBar::new(steps as u64);
        self.steps = steps;
        // The template is this program's own: a mistake in it would show in every run.
        self.shown.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        // What was said last stays in motion while a step takes its time.
        self.shown.enable_steady_tick(Duration::from_millis(200));
    }

    /// Says how long the part may take.
    pub(crate) fn expect(&self, what: &str, seconds: f64) {
        self.line(&format!("{}{what}, about {}", self.name(), lasting(seconds)));
    }

    /// Prints a line beside what is shown.
    pub(crate) fn note(&self, text: &str) {
        self.line(text);
    }

    /// Shows that so many steps are done, and what is done now.
    pub(crate) fn at(&mut self, done: usize, what: &str) {
        self.shown.set_position(done as u64);
        self.shown.set_message(what.to_owned());
        if !io::stderr().is_terminal() && Instant::now() >= self.next_line {
            self.next_line = Instant::now() + LINES;
            self.line(&format!("{}{done} of {}: {what}", self.name(), self.steps));
        }
    }

    /// The same, one step after the one before.
    pub(crate) fn step(&mut self, what: &str) {
        let done = usize::try_from(self.shown.position()).unwrap_or(usize::MAX);
        self.at(done.saturating_add(1), what);
    }

    /// How many steps the part has.
    pub(crate) fn steps(&self) -> String {
        counted(self.steps as u64, "step")
    }

    /// Takes the bar away.
    pub(crate) fn end(&self) {
        self.shown.finish_and_clear();
    }

    /// Prints a line, above the bar where there is one. Progress that cannot be written ends nothing.
    fn line(&self, text: &str) {
        if io::stderr().is_terminal() {
            self.shown.suspend(|| drop(writeln!(printed::err(), "{text}")));
        } else {
            let _ = writeln!(printed::err(), "{text}");
        }
    }

    fn name(&self) -> String {
        if self.part.is_empty() { String::new() } else { format!("{}: ", self.part) }
    }
}

/// A time in the unit that suits it.
fn lasting(seconds: f64) -> String {
    match seconds {
        ..90.0 => format!("{:.0} s", seconds.max(1.0)),
        ..5400.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

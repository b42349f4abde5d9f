//! Recordings of a controller's snapshots and decisions as lines of JSON, for inspection and for replay with another
//! controller.
//!
//! The first line has the pipeline's [`Layout`], and so has the first line after each change of the configuration. Each
//! other line has one period, or a move of modules.

use std::io::{self, BufRead, Read, Write};

use forebay_graph::controllers;
use forebay_protocol::{Decision, Layout, Snapshot, report::MoveReport};
use forebay_units::Nanos;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::controller_runner::Settings;
use crate::replay::{Summary, replay};

mod figures;

/// A line of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The controlled pipeline and its controller, from here on.
    Begin(Begin),
    /// A period.
    Period(Period),
    /// Modules have moved to another worker. A `begin` line follows.
    Moved(MoveReport),
}

/// The controlled pipeline and its controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    /// The controller's name.
    pub controller: String,
    /// The controller's parameters.
    #[serde(default)]
    pub params: Value,
    /// The decision period in seconds.
    pub period_s: f64,
    /// The fraction of each delay objective that is kept in reserve.
    pub guard: f64,
    /// The pipeline.
    pub layout: Layout,
}

/// A period, and the decisions after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Period {
    /// The observed figures.
    pub snapshot: Snapshot,
    /// The decisions.
    pub actions: Decision,
}

/// Receives snapshots and decisions.
pub trait Log: Send {
    /// Receives the controlled pipeline and its controller.
    fn begin(&mut self, settings: &Settings, layout: &Layout);
    /// Receives a period and the decisions after it.
    fn period(&mut self, snapshot: &Snapshot, actions: &Decision);
    /// Receives a move of modules; [`begin`](Self::begin) follows.
    fn moved(&mut self, _moved: &MoveReport) {}
}

/// Writes a recording. Reports the first error, and then writes nothing more.
pub struct Recorder<W> {
    /// The file; `None` after an error.
    out: Option<W>,
    /// Receives the first error.
    trouble: Box<dyn FnMut(io::Error) + Send>,
}

impl<W: Write + Send> Recorder<W> {
    /// Creates a recorder that writes to `out` and passes the first error to `trouble`.
    pub fn new(out: W, trouble: impl FnMut(io::Error) + Send + 'static) -> Self {
        Self { out: Some(out), trouble: Box::new(trouble) }
    }

    /// Writes a line. On an error, reports it and writes nothing from then on.
    fn write(&mut self, line: &Line) {
        let Some(out) = &mut self.out else { return };
        let written = serde_json::to_writer(&mut *out, line).map_err(io::Error::from);
        // Flush each line, so that readers of the file see whole periods.
        if let Err(error) = written.and_then(|()| writeln!(out)).and_then(|()| out.flush()) {
            self.out = None;
            (self.trouble)(error);
        }
    }
}

impl<W: Write + Send> Log for Recorder<W> {
    fn begin(&mut self, settings: &Settings, layout: &Layout) {
        self.write(&Line::Begin(Begin {
            controller: settings.controller.name.to_owned(),
            params: settings.params.clone(),
            period_s: settings.period.0 as f64 / 1e9,
            guard: settings.guard,
            layout: layout.clone(),
        }));
    }

    fn period(&mut self, snapshot: &Snapshot, actions: &Decision) {
        self.write(&Line::Period(Period { snapshot: snapshot.clone(), actions: actions.clone() }));
    }

    fn moved(&mut self, moved: &MoveReport) {
        self.write(&Line::Moved(moved.clone()));
    }
}

/// The reasons why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// A line is not a line of a recording.
    #[error("line {line}, column {column}: {message}: use a file that `forebay run --decisions` wrote")]
    Line {
        /// The line number, from 1.
        line: usize,
        /// The column.
        column: usize,
        /// The fault.
        message: String,
    },
    /// A period does not match its pipeline.
    #[error(
        "line {line}: this period has {modules} modules and {flows} flows, but the recorded pipeline has {} modules \
         and {} flows: use a file that `forebay run --decisions` wrote",
        of_layout.0,
        of_layout.1
    )]
    Shape {
        /// The line number, from 1.
        line: usize,
        /// The number of modules in the period.
        modules: usize,
        /// The number of flows in the period.
        flows: usize,
        /// The numbers of modules and of flows in the recorded pipeline.
        of_layout: (usize, usize),
    },
    /// A figure is out of range.
    #[error("line {line}: {figure}")]
    Figure {
        /// The line number, from 1.
        line: usize,
        /// The figure, and the allowed range.
        figure: String,
    },
    /// A period comes before the first `begin` line.
    #[error("line {line}: a period comes before the first `begin`: use a file that `forebay run --decisions` wrote")]
    Early {
        /// The line number, from 1.
        line: usize,
    },
    /// The file is compressed.
    #[error("the file is compressed by gzip: unpack it first (`gunzip`)")]
    Compressed,
    /// The file is empty.
    #[error("the file is empty: use a file that `forebay run --decisions` wrote")]
    Empty,
}

impl RecordingError {
    /// Returns the error of a line that the parser does not accept.
    fn line(line: usize, error: &serde_json::Error) -> Self {
        let (message, column) = (error.to_string(), error.column());
        // Each line is parsed separately, so the parser always reports line 1.
        let message = message.trim_end_matches(&format!(" at line 1 column {column}")).to_owned();
        Self::Line { line, column, message }
    }
}

/// The longest line in bytes: a hundred times the need of a pipeline with 5 000 modules.
const LONGEST: u64 = 1 << 28;

/// The first bytes of a gzip file (RFC 1952 section 2.3.1).
const GZIP: &[u8] = &[0x1f, 0x8b];

/// The content of a recording.
#[derive(Debug, PartialEq)]
pub struct Recorded {
    /// Each `begin` with the periods after it.
    pub parts: Vec<(Begin, Vec<Period>)>,
    /// True if the last line was incomplete and has been dropped.
    pub cut: bool,
}

/// Reads a recording. An incomplete last line is dropped, because a run that ended early may have written it.
///
/// # Errors
/// Returns a [`RecordingError`] if the file cannot be read or is invalid.
pub fn read(input: impl BufRead) -> Result<Recorded, RecordingError> {
    let (mut parts, mut cut): (Vec<(Begin, Vec<Period>)>, bool) = (Vec::new(), false);
    let mut lines = lines(input, LONGEST).enumerate().peekable();
    while let Some((at, text)) = lines.next() {
        let (line, text) = (at + 1, text?);
        let figure = |figure| RecordingError::Figure { line, figure };
        match serde_json::from_slice(&text) {
            Ok(Line::Begin(begin)) => {
                figures::begin(&begin).map_err(figure)?;
                parts.push((begin, Vec::new()));
            }
            Ok(Line::Period(period)) => {
                let Some((begin, periods)) = parts.last_mut() else { return Err(RecordingError::Early { line }) };
                let of_layout = (begin.layout.modules.len(), begin.layout.flows.len());
                let (modules, flows) = (period.snapshot.modules.len(), period.snapshot.flows.len());
                if (modules, flows) != of_layout {
                    return Err(RecordingError::Shape { line, modules, flows, of_layout });
                }
                figures::period(&begin.layout, &period).map_err(figure)?;
                periods.push(period);
            }
            // A module's worker does not matter for decisions on triggers.
            Ok(Line::Moved(_)) => {}
            Err(error) if error.is_eof() && lines.peek().is_none() && !parts.is_empty() => cut = true,
            Err(_) if at == 0 && text.starts_with(GZIP) => return Err(RecordingError::Compressed),
            Err(error) => return Err(RecordingError::line(line, &error)),
        }
    }
    if parts.is_empty() { Err(RecordingError::Empty) } else { Ok(Recorded { parts, cut }) }
}

/// Returns the lines without their line breaks. They are bytes, because the file may end within a character. A line of
/// `longest` bytes or more gives an error.
fn lines(mut input: impl BufRead, longest: u64) -> impl Iterator<Item = io::Result<Vec<u8>>> {
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        match Read::take(&mut input, longest).read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(read) if read as u64 == longest && !line.ends_with(b"\n") => {
                let message = format!("a line has {longest} bytes or more: allowed are shorter lines");
                Some(Err(io::Error::new(io::ErrorKind::InvalidData, message)))
            }
            Ok(_) => {
                line.pop_if(|last| *last == b'\n');
                Some(Ok(line))
            }
            Err(error) => Some(Err(error)),
        }
    })
}

/// Fuzz target: a valid recording must be the same after it is written and read again, and every controller must decide
/// on it.
pub fn fuzz_recording(bytes: &[u8]) {
    let Ok(Recorded { parts, .. }) = read(bytes) else { return };
    for (begin, periods) in parts {
        let mut text = Vec::new();
        let mut again = Recorder::new(&mut text, |error| panic!("memory takes what is written: {error}"));
        again.write(&Line::Begin(begin.clone()));
        periods.iter().for_each(|period| again.write(&Line::Period(period.clone())));
        drop(again);
        let again = read(&text[..]).expect("what was read can be written and read");
        assert_eq!(again, Recorded { parts: vec![(begin.clone(), periods.clone())], cut: false });
        for controller in controllers() {
            let params = if controller.name == "static" { serde_json::json!({ "trigger": 8 }) } else { Value::Null };
            let period = Nanos((begin.period_s * 1e9) as u64);
            let settings = Settings { controller, params, period, guard: begin.guard, workers: 1 };
            let replayed = replay(&begin, &periods, &settings).expect("the parameters are valid");
            assert_eq!(Summary::of(&replayed).periods, periods.len());
        }
    }
}

#[cfg(test)]
mod tests;

//! What a controller saw and decided, period by period, as lines of JSON: to be looked at, and decided anew by another.
//!
//! A line with the pipeline's [`Layout`] comes first, and again whenever the configuration changed; a line for each period follows.

use std::io::{self, BufRead, Read, Write};

use forebay_graph::report::MoveReport;
use forebay_graph::{Actions, Layout, Snapshot, controllers};
use forebay_measure::Nanos;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::pilot::Settings;
use crate::replay::{Summary, replay};

mod figures;

/// A line of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// What is controlled from here on, and by what.
    Begin(Begin),
    /// A period.
    Period(Period),
    /// Modules have changed their worker: what is controlled comes next.
    Moved(MoveReport),
}

/// What is controlled, and by what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    /// The controller's name.
    pub controller: String,
    /// Its parameters.
    #[serde(default)]
    pub params: Value,
    /// How often it decides, in seconds.
    pub period_s: f64,
    /// The part of each objective in reserve.
    pub guard: f64,
    /// The pipeline.
    pub layout: Layout,
}

/// A period, and what was decided after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Period {
    /// What was seen.
    pub snapshot: Snapshot,
    /// What was decided.
    pub actions: Actions,
}

/// Sees what is decided.
pub trait Log: Send {
    /// What is controlled from here on.
    fn begin(&mut self, settings: &Settings, layout: &Layout);
    /// A period, and what was decided after it.
    fn period(&mut self, snapshot: &Snapshot, actions: &Actions);
    /// Modules have changed their worker; [`begin`](Self::begin) follows.
    fn moved(&mut self, _moved: &MoveReport) {}
}

/// Writes a recording; what goes wrong is told once, and nothing more is written.
pub struct Recorder<W> {
    out: Option<W>,
    trouble: Box<dyn FnMut(io::Error) + Send>,
}

impl<W: Write + Send> Recorder<W> {
    /// To `out`; `trouble` is told the first failure.
    pub fn new(out: W, trouble: impl FnMut(io::Error) + Send + 'static) -> Self {
        Self { out: Some(out), trouble: Box::new(trouble) }
    }

    fn write(&mut self, line: &Line) {
        let Some(out) = &mut self.out else { return };
        let written = serde_json::to_writer(&mut *out, line).map_err(io::Error::from);
        // A line at a time: who watches the file sees whole periods.
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

    fn period(&mut self, snapshot: &Snapshot, actions: &Actions) {
        self.write(&Line::Period(Period { snapshot: snapshot.clone(), actions: actions.clone() }));
    }

    fn moved(&mut self, moved: &MoveReport) {
        self.write(&Line::Moved(moved.clone()));
    }
}

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// A line that is none of a recording.
    #[error("line {line}, column {column}: {told}: allowed is what `forebay run --decisions` writes")]
    Line {
        /// Its number.
        line: usize,
        /// Where in it.
        column: usize,
        /// What is wrong with it.
        told: String,
    },
    /// A period of another pipeline than was told.
    #[error(
        "line {line}: a period with {modules} modules and {flows} flows: the pipeline has {} modules and {} flows",
        of_layout.0,
        of_layout.1
    )]
    Shape {
        /// Its number.
        line: usize,
        /// Modules in it.
        modules: usize,
        /// Flows in it.
        flows: usize,
        /// Those of the pipeline.
        of_layout: (usize, usize),
    },
    /// A figure that cannot be.
    #[error("line {line}: {figure}")]
    Figure {
        /// The line's number.
        line: usize,
        /// Which, and what is allowed.
        figure: String,
    },
    /// A period before it was told what is controlled.
    #[error("line {line}: a period before any `begin`: allowed first is what `forebay run --decisions` writes first")]
    Early {
        /// Its number.
        line: usize,
    },
    /// It is compressed.
    #[error("it is compressed by gzip: allowed is what `forebay run --decisions` writes: unpack it (`gunzip`)")]
    Compressed,
    /// There is nothing in it.
    #[error("nothing is recorded there: allowed is what `forebay run --decisions` writes")]
    Empty,
}

impl RecordingError {
    fn line(line: usize, error: &serde_json::Error) -> Self {
        let (told, column) = (error.to_string(), error.column());
        // Each line is read by itself, and is that reader's first.
        let told = told.trim_end_matches(&format!(" at line 1 column {column}")).to_owned();
        Self::Line { line, column, told }
    }
}

/// The longest line, in bytes: a hundred times what a pipeline of 5 000 modules needs.
const LONGEST: u64 = 1 << 28;

/// How a file that gzip has compressed begins (RFC 1952 section 2.3.1).
const GZIP: &[u8] = &[0x1f, 0x8b];

/// What a recording has.
#[derive(Debug, PartialEq)]
pub struct Recorded {
    /// Each `begin` with the periods after it.
    pub parts: Vec<(Begin, Vec<Period>)>,
    /// Whether its last line was not written to its end: it is left out.
    pub cut: bool,
}

/// Reads a recording.
///
/// # Errors
/// [`RecordingError`].
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
            // Which worker a module is on is the same to whoever decides on triggers.
            Ok(Line::Moved(_)) => {}
            Err(error) if error.is_eof() && lines.peek().is_none() && !parts.is_empty() => cut = true,
            Err(_) if at == 0 && text.starts_with(GZIP) => return Err(RecordingError::Compressed),
            Err(error) => return Err(RecordingError::line(line, &error)),
        }
    }
    if parts.is_empty() { Err(RecordingError::Empty) } else { Ok(Recorded { parts, cut }) }
}

/// Its lines, as bytes: what is cut off may end within a character. One that is too long is no line of a recording.
fn lines(mut input: impl BufRead, longest: u64) -> impl Iterator<Item = io::Result<Vec<u8>>> {
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        match Read::take(&mut input, longest).read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(read) if read as u64 == longest && !line.ends_with(b"\n") => {
                let told = format!("a line of {longest} bytes and more: allowed are shorter ones");
                Some(Err(io::Error::new(io::ErrorKind::InvalidData, told)))
            }
            Ok(_) => {
                line.pop_if(|last| *last == b'\n');
                Some(Ok(line))
            }
            Err(error) => Some(Err(error)),
        }
    })
}

/// Any bytes, for fuzzing: what is read is the same when it has been written and read again, and every controller decides on it.
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
            let told = replay(&begin, &periods, &settings).expect("parameters that it takes");
            assert_eq!(Summary::of(&told).periods, periods.len());
        }
    }
}

#[cfg(test)]
mod tests;

//! A program that is measured in processes of its own, one a run.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use forebay_graph::report::LostLines;
use serde::Deserialize;

use crate::compare::Side;
use crate::measurement::Measurement;

/// The variable that makes the environment of each run another one.
const FILLER: &str = "FOREBAY_FILLER";
/// The variable that tells a process that is run for a comparison or a count whom it is to end with.
pub const PARENT: &str = "FOREBAY_PARENT";
/// How much is told of what a program says.
const MOST_LINES: usize = 20;

/// A build of Forebay, with what it is to measure.
#[derive(Clone, Debug)]
pub struct Build {
    /// The program.
    pub program: PathBuf,
    /// The pipeline and its settings, as `forebay measure` takes them.
    pub arguments: Vec<String>,
    /// How long a run measures.
    pub span: Duration,
    /// Lines that files of modules lacked, in all runs.
    pub lost_lines: Vec<LostLines>,
    runs: u64,
    stamp: Option<Stamp>,
}

/// By what it is known that a program's file is still the same: a build that goes on beside a measurement puts another in its
/// place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// Of the file at `path`, if there is one.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let told = path.metadata().ok()?;
        Some(Self { inode: told.ino(), size: told.size(), changed: (told.mtime(), told.mtime_nsec()) })
    }
}

/// Why a program cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// It cannot be run.
    #[error("{}: {error}", .program.display())]
    Io {
        /// The program.
        program: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// It is another one than at the beginning.
    #[error("{} was replaced while it was measured: build first, then measure", .program.display())]
    Replaced {
        /// The program.
        program: PathBuf,
    },
    /// It failed.
    #[error("{} {}: {told}", .program.display(), .arguments.join(" "))]
    Failed {
        /// The program.
        program: PathBuf,
        /// What it was given.
        arguments: Vec<String>,
        /// What it said.
        told: String,
    },
}

impl Build {
    /// A program that measures a pipeline for `span` a run.
    #[must_use]
    pub fn new(program: PathBuf, arguments: Vec<String>, span: Duration) -> Self {
        let stamp = Stamp::of(&program);
        Self { program, arguments, span, lost_lines: Vec::new(), runs: 0, stamp }
    }

    /// One run with the instructions counted.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn count(&mut self) -> Result<Measurement, BuildError> {
        self.measure(&[])
    }

    fn is_the_same(&self) -> Result<(), BuildError> {
        let same = self.stamp == Stamp::of(&self.program);
        if same { Ok(()) } else { Err(BuildError::Replaced { program: self.program.clone() }) }
    }

    fn measure(&mut self, more: &[&str]) -> Result<Measurement, BuildError> {
        self.is_the_same()?;
        self.runs += 1;
        // Where the stack begins depends on the size of the environment, and code is faster or slower by it (Mytkowicz et
        // al., "Producing wrong data without doing anything obviously wrong!", 2009): another one in each run.
        let filler = OsString::from("x".repeat((self.runs.wrapping_mul(0x9e37_79b9) % 4_096) as usize));
        let output = Command::new(&self.program)
            .arg("measure")
            .args(&self.arguments)
            .args(["--json", "--duration", &format!("{}us", self.span.as_micros())])
            .args(more)
            .env(FILLER, filler)
            .env(PARENT, std::process::id().to_string())
            .stdin(Stdio::null())
            .output()
            .map_err(|error| BuildError::Io { program: self.program.clone(), error })?;
        // 1: the run is void, and says so.
        self.is_the_same()?;
        let done = matches!(output.status.code(), Some(0 | 1));
        let measurement: Option<Measurement> = serde_json::from_slice(&output.stdout).ok().filter(|_| done);
        let lost = measurement.iter().flat_map(|measurement| &measurement.lost_lines);
        lost.for_each(|lines| lines.add_to(&mut self.lost_lines));
        measurement.ok_or_else(|| BuildError::Failed {
            program: self.program.clone(),
            arguments: std::iter::once("measure".to_owned()).chain(self.arguments.clone()).collect(),
            told: told(&output, "no measurement"),
        })
    }
}

/// What a program has built in, as pipelines are named: `usecase:NAME`, `function:NAME`.
///
/// # Errors
/// [`BuildError`]: it does not say.
pub fn built_in(program: &Path) -> Result<BTreeSet<String>, BuildError> {
    #[derive(Deserialize)]
    struct Listed {
        name: String,
    }
    let mut all = BTreeSet::new();
    for (kind, of) in [("usecases", "usecase"), ("functions", "function")] {
        let arguments = ["list", kind, "--json"].map(str::to_owned);
        let output = Command::new(program)
            .args(&arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| BuildError::Io { program: program.to_owned(), error })?;
        let listed: Option<Vec<Listed>> = serde_json::from_slice(&output.stdout).ok();
        let listed = listed.filter(|_| output.status.success()).ok_or_else(|| BuildError::Failed {
            program: program.to_owned(),
            arguments: arguments.to_vec(),
            told: told(&output, "no list: it is no build of Forebay"),
        })?;
        all.extend(listed.into_iter().map(|listed| format!("{of}:{}", listed.name)));
    }
    Ok(all)
}

/// The end of what a program said that did not do what it was to.
pub(crate) fn told(output: &Output, otherwise: &str) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = text.trim().lines().collect();
    match &lines[lines.len().saturating_sub(MOST_LINES)..] {
        [] => format!("{otherwise} ({})", output.status),
        last => last.join("\n"),
    }
}

impl Side for Build {
    type Error = BuildError;

    fn run(&mut self) -> Result<Measurement, BuildError> {
        self.measure(&["--no-count"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_replaced_is_not_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("forebay");
        std::fs::write(&program, "one").expect("it can be written");
        let mut build = Build::new(program.clone(), vec!["p.yaml".to_owned()], Duration::from_millis(1));
        // It is no program: that is told, not that it was replaced.
        assert!(matches!(build.run(), Err(BuildError::Io { .. })));
        let other = folder.path().join("other");
        std::fs::write(&other, "one").expect("it can be written");
        std::fs::rename(&other, &program).expect("the same folder");
        assert!(matches!(build.run(), Err(BuildError::Replaced { .. })));
    }
}

//! Measures a build of Forebay in separate processes, one per run.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use forebay_protocol::report::LostLines;
use serde::Deserialize;

use crate::compare::Side;
use crate::measurement::Measurement;
use crate::program::{PARENT, Stamp, last_lines};

/// The environment variable whose value has another length in each run, so that the environment has another size. The
/// value has no other use.
const FILLER: &str = "FOREBAY_FILLER";

/// A build of Forebay, and the pipeline that it measures.
#[derive(Clone, Debug)]
pub struct MeasuredBuild {
    /// The program.
    pub program: PathBuf,
    /// The pipeline and its settings, as arguments of `forebay measure`.
    pub arguments: Vec<String>,
    /// The measured time of a run.
    pub span: Duration,
    /// Lines that are missing in files of modules, over all runs.
    pub lost_lines: Vec<LostLines>,
    runs: u64,
    stamp: Option<Stamp>,
}

/// A program cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The program cannot be started.
    #[error("{}: {error}", .program.display())]
    Io {
        /// The program.
        program: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The file was replaced after the beginning.
    #[error("{} was replaced while it was measured: build first, then measure", .program.display())]
    Replaced {
        /// The program.
        program: PathBuf,
    },
    /// The program failed, or did not print the expected result.
    #[error("{} {}: {output}", .program.display(), .arguments.join(" "))]
    Failed {
        /// The program.
        program: PathBuf,
        /// Its arguments. For a measurement, without those that every run has (`--json`, `--duration`, `--no-count`).
        arguments: Vec<String>,
        /// The end of its error output.
        output: String,
    },
}

impl MeasuredBuild {
    /// Creates a build that measures a pipeline for `span` in each run.
    #[must_use]
    pub fn new(program: PathBuf, arguments: Vec<String>, span: Duration) -> Self {
        let stamp = Stamp::of(&program);
        Self { program, arguments, span, lost_lines: Vec::new(), runs: 0, stamp }
    }

    /// Runs once, with instructions counted.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn count(&mut self) -> Result<Measurement, BuildError> {
        self.measure(&[])
    }

    /// Returns an error if the program file was replaced since [`new`](Self::new).
    fn check_unchanged(&self) -> Result<(), BuildError> {
        let same = self.stamp == Stamp::of(&self.program);
        if same { Ok(()) } else { Err(BuildError::Replaced { program: self.program.clone() }) }
    }

    /// Runs `forebay measure` once, with the additional arguments `more`, and adds its lost lines to `lost_lines`. A
    /// void run is not an error.
    fn measure(&mut self, more: &[&str]) -> Result<Measurement, BuildError> {
        self.check_unchanged()?;
        self.runs += 1;
        // The position of the stack depends on the size of the environment, and changes the speed of code (Mytkowicz et
        // al., "Producing wrong data without doing anything obviously wrong!", 2009). So the size differs in each run.
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
        self.check_unchanged()?;
        // Exit code 1 means that the run is void. The measurement states this too (`chain.void`).
        let done = matches!(output.status.code(), Some(0 | 1));
        let measurement: Option<Measurement> = serde_json::from_slice(&output.stdout).ok().filter(|_| done);
        let lost = measurement.iter().flat_map(|measurement| &measurement.lost_lines);
        lost.for_each(|lines| lines.add_to(&mut self.lost_lines));
        measurement.ok_or_else(|| BuildError::Failed {
            program: self.program.clone(),
            arguments: std::iter::once("measure".to_owned()).chain(self.arguments.clone()).collect(),
            output: last_lines(&output, "no measurement"),
        })
    }
}

/// Returns the names of all built-in pipelines of a program: `usecase:NAME`, `function:NAME`.
///
/// # Errors
/// [`BuildError`]: the program does not list them.
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
            output: last_lines(&output, "no list: it is not a build of Forebay"),
        })?;
        all.extend(listed.into_iter().map(|listed| format!("{of}:{}", listed.name)));
    }
    Ok(all)
}

impl Side for MeasuredBuild {
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
        let mut build = MeasuredBuild::new(program.clone(), vec!["p.yaml".to_owned()], Duration::from_millis(1));
        // The file is not a program. The error reports that, not that the file was replaced.
        assert!(matches!(build.run(), Err(BuildError::Io { .. })));
        let other = folder.path().join("other");
        std::fs::write(&other, "one").expect("it can be written");
        std::fs::rename(&other, &program).expect("the same folder");
        assert!(matches!(build.run(), Err(BuildError::Replaced { .. })));
    }
}

//! Reads callgrind's profiles: the own instructions of each function, and the instructions of its callees.
//!
//! The format is described in the valgrind manual, "Callgrind Format Specification". Function names are not compressed
//! (`--compress-strings=no`). Positions are ignored.

use std::collections::HashMap;
use std::path::Path;

/// A profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CallgrindError {
    /// The file cannot be read.
    #[error("callgrind's profile cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// A line does not follow the format.
    #[error("line {line} of callgrind's profile: '{text}' does not follow its format")]
    Line {
        /// The line number, from 1.
        line: usize,
        /// The text of the line.
        text: String,
    },
    /// The totals are missing or do not agree with the lines, for example because the disk was full.
    #[error("callgrind's profile is incomplete: the sum of its lines is {sum} instructions, but its totals line {}: \
             check that the disk has space, and count again",
        totals.map_or_else(|| "is missing".to_owned(), |totals| format!("has {totals}")))]
    Cut {
        /// The sum of its lines.
        sum: u64,
        /// The totals that the file states.
        totals: Option<u64>,
    },
    /// No instructions were counted.
    #[error(
        "callgrind counted no instructions: the program must have its symbols, and the pipeline must still receive \
         packets after the warm-up"
    )]
    Nothing,
}

/// Instruction counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstructionProfile {
    /// By function: its own instructions, and the instructions of its callees.
    functions: HashMap<String, (u64, u64)>,
}

impl InstructionProfile {
    /// Reads a file.
    ///
    /// # Errors
    /// [`CallgrindError`].
    pub fn read(file: &Path) -> Result<Self, CallgrindError> {
        Self::parse(&std::fs::read_to_string(file)?)
    }

    /// Reads a profile's text.
    ///
    /// # Errors
    /// [`CallgrindError`].
    pub fn parse(text: &str) -> Result<Self, CallgrindError> {
        let mut profile = Self::default();
        let (mut function, mut after_call, mut totals) = (None::<String>, false, None);
        for (number, line) in text.lines().enumerate() {
            let wrong = || CallgrindError::Line { line: number + 1, text: line.to_owned() };
            if let Some(name) = line.strip_prefix("fn=") {
                function = Some(name.to_owned());
            } else if line.starts_with("calls=") {
                after_call = true;
            } else if let Some(value) = line.strip_prefix("totals:") {
                totals = Some(value.trim().parse().map_err(|_| wrong())?);
            } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
                let Some(function) = &function else { return Err(wrong()) };
                // A position of one column, and a cost. A line without a cost means 0.
                let cost = line.split_ascii_whitespace().nth(1).map_or(Ok(0), str::parse).map_err(|_| wrong())?;
                let entry = profile.functions.entry(function.clone()).or_default();
                // The line after a call has the cost of the callee.
                if std::mem::take(&mut after_call) {
                    entry.1 += cost;
                } else {
                    entry.0 += cost;
                }
            }
        }
        // Without this check, a truncated profile would look like a faster program.
        let sum = profile.total();
        if totals != Some(sum) {
            return Err(CallgrindError::Cut { sum, totals });
        }
        if sum == 0 { Err(CallgrindError::Nothing) } else { Ok(profile) }
    }

    /// Returns the number of all instructions.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.own("")
    }

    /// Returns the own instructions of functions whose names contain `part`.
    #[must_use]
    pub fn own(&self, part: &str) -> u64 {
        self.functions.iter().filter(|(name, _)| name.contains(part)).map(|(_, (own, _))| own).sum()
    }

    /// Returns the instructions of the callees of functions whose names contain `part`. The instructions of these
    /// functions themselves ([`own`](Self::own)) are not included.
    #[must_use]
    pub fn called_by(&self, part: &str) -> u64 {
        self.functions.iter().filter(|(name, _)| name.contains(part)).map(|(_, (_, called))| called).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "\
version: 1
positions: line
events: Ir
summary: 115

fl=a.rs
fn=forebay_bench::named::m1::call
10 3
cfn=work
calls=2 40
+1 100
* 2

fn=forebay_bench::named::m10::call
cfn=work
calls=1 40
11 10
fn=work
40 110
totals: 115
";

    #[test]
    fn instructions_of_callees_are_separate_from_own_instructions() {
        let profile = InstructionProfile::parse(PROFILE).expect("a profile");
        assert_eq!(profile.total(), 115);
        assert_eq!([profile.called_by("::named::m1::"), profile.called_by("::named::m10::")], [100, 10]);
        assert_eq!(profile.called_by("::named::m2::"), 0);
        assert_eq!([profile.own("::named::m1::"), profile.own("work")], [5, 110]);
    }

    #[test]
    fn an_invalid_profile_is_refused() {
        let error = |text: &str| InstructionProfile::parse(text).expect_err("no profile").to_string();
        assert_eq!(error("fn=a\n1 x\n"), "line 2 of callgrind's profile: '1 x' does not follow its format");
        assert_eq!(error("1 2\n"), "line 1 of callgrind's profile: '1 2' does not follow its format");
        assert!(error("totals: 0\n").contains("counted no instructions"));
    }

    #[test]
    fn a_profile_that_was_cut_off_is_refused() {
        assert!(InstructionProfile::parse(PROFILE).is_ok());
        for end in 0..PROFILE.len() - 2 {
            let cut = InstructionProfile::parse(&PROFILE[..end]);
            assert!(cut.is_err(), "accepted with {end} bytes: {cut:?}");
        }
    }
}

//! Reads callgrind's profiles: instructions by function, and of all that a function calls.
//!
//! The format is in the valgrind manual, "Callgrind Format Specification". Names are written whole
//! (`--compress-strings=no`); positions, which are not needed, are passed over.

use std::collections::HashMap;
use std::path::Path;

/// A profile that makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file cannot be read.
    #[error("callgrind's profile cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// A line is not of the format.
    #[error("line {line} of callgrind's profile: '{text}' is none of its format")]
    Line {
        /// Which, from 1.
        line: usize,
        /// What stands there.
        text: String,
    },
    /// Its end is missing, or does not agree with the rest: the disk was full.
    #[error("callgrind's profile is not whole: its lines come to {sum} instructions, it says {}",
        totals.map_or_else(|| "nothing of them".to_owned(), |totals| totals.to_string()))]
    Cut {
        /// What its lines come to.
        sum: u64,
        /// What its last line says.
        totals: Option<u64>,
    },
    /// Nothing was counted.
    #[error(
        "callgrind has counted nothing: the pipeline gets no packets after the first ones, which are not counted, or \
         the program's symbols are missing"
    )]
    Nothing,
}

/// Instructions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// By function: its own, and those of what it calls.
    functions: HashMap<String, (u64, u64)>,
}

impl Profile {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn read(file: &Path) -> Result<Self, ProfileError> {
        Self::parse(&std::fs::read_to_string(file)?)
    }

    /// Reads a profile's text.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let mut profile = Self::default();
        let (mut function, mut after_call, mut totals) = (None::<String>, false, None);
        for (number, line) in text.lines().enumerate() {
            let wrong = || ProfileError::Line { line: number + 1, text: line.to_owned() };
            if let Some(name) = line.strip_prefix("fn=") {
                function = Some(name.to_owned());
            } else if line.starts_with("calls=") {
                after_call = true;
            } else if let Some(told) = line.strip_prefix("totals:") {
                totals = Some(told.trim().parse().map_err(|_| wrong())?);
            } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
                let Some(function) = &function else { return Err(wrong()) };
                // A position of one column, and what it cost; a line may end before the cost, which is nothing then.
                let cost = line.split_ascii_whitespace().nth(1).map_or(Ok(0), str::parse).map_err(|_| wrong())?;
                let entry = profile.functions.entry(function.clone()).or_default();
                // The line after a call says what the callee cost.
                if std::mem::take(&mut after_call) {
                    entry.1 += cost;
                } else {
                    entry.0 += cost;
                }
            }
        }
        // A profile that was cut off would pass for a cheaper program.
        let sum = profile.total();
        if totals != Some(sum) {
            return Err(ProfileError::Cut { sum, totals });
        }
        if sum == 0 { Err(ProfileError::Nothing) } else { Ok(profile) }
    }

    /// All instructions.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.own("")
    }

    /// The own instructions of functions whose names have `part`.
    #[must_use]
    pub fn own(&self, part: &str) -> u64 {
        self.functions.iter().filter(|(name, _)| name.contains(part)).map(|(_, (own, _))| own).sum()
    }

    /// The instructions of all that is called by functions whose names have `part`, without their own.
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
fn=forebay_lean::named::m1::call
10 3
cfn=work
calls=2 40
+1 100
* 2

fn=forebay_lean::named::m10::call
cfn=work
calls=1 40
11 10
fn=work
40 110
totals: 115
";

    #[test]
    fn what_a_name_calls_is_told_from_what_it_does_itself() {
        let profile = Profile::parse(PROFILE).expect("a profile");
        assert_eq!(profile.total(), 115);
        assert_eq!([profile.called_by("::named::m1::"), profile.called_by("::named::m10::")], [100, 10]);
        assert_eq!(profile.called_by("::named::m2::"), 0);
        assert_eq!([profile.own("::named::m1::"), profile.own("work")], [5, 110]);
    }

    #[test]
    fn what_is_no_profile_is_refused() {
        let told = |text: &str| Profile::parse(text).expect_err("no profile").to_string();
        assert_eq!(told("fn=a\n1 x\n"), "line 2 of callgrind's profile: '1 x' is none of its format");
        assert_eq!(told("1 2\n"), "line 1 of callgrind's profile: '1 2' is none of its format");
        assert!(told("totals: 0\n").contains("counted nothing"));
    }

    #[test]
    fn a_profile_that_was_cut_off_is_refused() {
        assert!(Profile::parse(PROFILE).is_ok());
        for end in 0..PROFILE.len() - 2 {
            let cut = Profile::parse(&PROFILE[..end]);
            assert!(cut.is_err(), "whole with {end} bytes: {cut:?}");
        }
    }
}

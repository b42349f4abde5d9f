//! The errors of a configuration, with their places.
//!
//! A configuration is read completely before errors are reported, so that its author sees all of them at once.

use std::fmt;
use std::path::Path;

pub use forebay_graph::nearest;
use forebay_graph::secret::without_keys;

use crate::secrets::{SecretWords, shown_setting};

/// A place in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceLocation {
    /// The setting (`--set`) with this number, from 0.
    Set(usize),
    /// A line and column of the text, both from 1.
    Line(u32, u32),
}

impl SourceLocation {
    /// The beginning of the text.
    pub const START: Self = Self::Line(1, 1);

    /// Returns the place for messages. `file` is the name of the file as messages show it.
    pub(crate) fn shown(self, file: &str, sets: &[String]) -> String {
        match self {
            Self::Set(number) => {
                format!("--set {}", sets.get(number).map(|set| shown_setting(set)).unwrap_or_default())
            }
            Self::Line(line, _) => format!("{file}:{line}"),
        }
    }
}

/// An error of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The place of the error.
    pub place: SourceLocation,
    /// The value, what is wrong with it and what is allowed.
    pub message: String,
    /// The place as text: `gateway.yaml:12`, or `--set batch=0`.
    pub shown: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.shown, self.message)
    }
}

/// All errors of a configuration, in the order of its lines. Never empty. Displayed with one line for each error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct Problems {
    /// The problems.
    pub all: Vec<Problem>,
}

/// Collects the errors of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    found: Vec<(SourceLocation, String)>,
}

impl Findings {
    pub(crate) fn add(&mut self, place: SourceLocation, message: impl Into<String>) {
        self.found.push((place, message.into()));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns the errors in order, each once. `file` has the text `text`, and `sets` are its settings. Words that may
    /// be secrets are removed from the messages.
    pub(crate) fn finish(mut self, file: &str, text: &str, sets: &[String]) -> Result<(), Problems> {
        if self.found.is_empty() {
            return Ok(());
        }
        self.found.sort();
        self.found.dedup();
        let secret = SecretWords::of(text, sets);
        let file = shown_file(file);
        let show = |(place, message): (SourceLocation, String)| {
            let message = secret.remove(&message);
            Problem { place, message, shown: place.shown(&file, sets) }
        };
        Err(Problems { all: self.found.into_iter().map(show).collect() })
    }
}

/// Returns the name of a configuration file as messages show it. Hides parts of a name without a file: it may be a key
/// or a misplaced setting.
#[must_use]
pub fn shown_file(file: &str) -> String {
    match file {
        file if Path::new(file).exists() => file.to_owned(),
        file if file.contains('=') => shown_setting(file),
        file => without_keys(file),
    }
}

/// Quotes a value for a message: shortened, and on one line.
pub(crate) fn quote(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut short: String = text.chars().take(LONGEST).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(LONGEST).is_some() {
        short.push('…');
    }
    format!("'{short}'")
}

/// Lists names for a message. Shortens long lists.
#[must_use]
pub fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const MOST: usize = 24;
    let names: Vec<_> = names.into_iter().collect();
    let mut text = names[..names.len().min(MOST)].join(", ");
    if names.len() > MOST {
        text.push_str(&format!(" and {} more", names.len() - MOST));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_value_is_short_and_on_one_line() {
        assert_eq!(quote("a\nb"), "'a\u{fffd}b'");
        assert_eq!(quote(&"x".repeat(61)), format!("'{}…'", "x".repeat(60)));
    }

    #[test]
    fn problems_come_in_the_order_of_lines_each_once() {
        let mut findings = Findings::default();
        findings.add(SourceLocation::Line(7, 1), "later");
        findings.add(SourceLocation::Line(2, 5), "first");
        findings.add(SourceLocation::Line(7, 1), "later");
        findings.add(SourceLocation::Set(0), "set");
        let problems = findings.finish("a.yaml", "", &["batch=0".to_owned()]).expect_err("problems");
        assert_eq!(problems.to_string(), "--set batch=0: set\na.yaml:2: first\na.yaml:7: later");
    }
}

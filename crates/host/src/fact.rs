//! Facts: values from the kernel's files with the file as evidence, or the reason why a value is unknown.

use std::fmt;

use serde::Serialize;

use crate::tree::Unknown;

/// A value that the kernel may report, with the file from which it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact<T> {
    /// The path of the file on its machine.
    pub path: String,
    /// The value, or the reason why it is unknown.
    pub known: Result<Known<T>, Unknown>,
}

/// A value, and the text from which it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known<T> {
    /// The value.
    pub value: T,
    /// The text in the file, or a summary of it.
    pub text: String,
}

impl<T> Fact<T> {
    /// Creates a fact from a line or another part of a file.
    pub(crate) fn part(path: &str, text: &str, value: T) -> Self {
        Self { path: path.to_owned(), known: Ok(Known { value, text: text.to_owned() }) }
    }

    /// Creates an unknown fact.
    pub(crate) fn unknown(path: &str, why: Unknown) -> Self {
        Self { path: path.to_owned(), known: Err(why) }
    }

    /// Returns the value if it is known.
    #[must_use]
    pub fn value(&self) -> Option<&T> {
        self.known.as_ref().ok().map(|known| &known.value)
    }

    /// Returns the reason if the value is unknown.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        self.known.as_ref().err().map(ToString::to_string)
    }

    /// Returns the file and its text, or the reason if the value is unknown.
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        let value = self.known.as_ref().map_or_else(ToString::to_string, |known| known.text.clone());
        let origin = if self.known.is_ok() { Origin::Read } else { Origin::Derived };
        Evidence { path: self.path.clone(), value, origin }
    }
}

/// The origin of the value in evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The value is the text of the file.
    Read,
    /// The value was computed from the file, for example a share of time, or describes a missing part of the file.
    Derived,
}

/// A file and a value that support a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// The path of the file on its machine.
    pub path: String,
    /// The value.
    pub value: String,
    /// The origin of the value: the file's text, or a computation.
    pub origin: Origin,
}

impl Evidence {
    /// Creates evidence that was computed from a file.
    pub(crate) fn derived(path: &str, value: impl Into<String>) -> Self {
        Self { path: path.to_owned(), value: value.into(), origin: Origin::Derived }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = if self.value.is_empty() { "(empty)" } else { &self.value };
        write!(f, "{}: {value}", self.path)
    }
}

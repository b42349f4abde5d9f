//! A fact: what the kernel says, with the file that says so; or why that cannot be known.

use std::fmt;

use serde::Serialize;

use crate::tree::Unknown;

/// Something that the kernel may report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact<T> {
    /// The file, as the machine calls it.
    pub path: String,
    /// What it says.
    pub known: Result<Known<T>, Unknown>,
}

/// What a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known<T> {
    /// What it means.
    pub value: T,
    /// The words of the file.
    pub text: String,
}

impl<T> Fact<T> {
    /// A line or part of a file that says this.
    pub(crate) fn part(path: &str, text: &str, value: T) -> Self {
        Self { path: path.to_owned(), known: Ok(Known { value, text: text.to_owned() }) }
    }

    /// Something that cannot be known.
    pub(crate) fn unknown(path: &str, why: Unknown) -> Self {
        Self { path: path.to_owned(), known: Err(why) }
    }

    /// The value, if it is known.
    #[must_use]
    pub fn value(&self) -> Option<&T> {
        self.known.as_ref().ok().map(|known| &known.value)
    }

    /// Why it is not known, if it is not.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        self.known.as_ref().err().map(ToString::to_string)
    }

    /// The file and its words; of what is not known, why.
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        let value = self.known.as_ref().map_or_else(ToString::to_string, |known| known.text.clone());
        let origin = if self.known.is_ok() { Origin::Read } else { Origin::Derived };
        Evidence { path: self.path.clone(), value, origin }
    }
}

/// Where a value in evidence comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The words stand in the file.
    Read,
    /// It was worked out from the file: a share of time, what is missing in it.
    Derived,
}

/// What a finding rests on: a file and what it says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// The file, as the machine calls it.
    pub path: String,
    /// What it says.
    pub value: String,
    /// Whether these are its words.
    pub origin: Origin,
}

impl Evidence {
    /// Something worked out from a file.
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

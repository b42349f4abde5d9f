//! The faults for which a function, port or state cannot be created.

use std::fmt;

use forebay_protocol::check::Fault;

use crate::names::{allowed_names, listed};

/// One or more faults for which a function, port or state cannot be created. The path of a fault is the position in the
/// parameters (`rules[3].action`).
#[derive(Debug, Default, thiserror::Error)]
#[error("{}", self.faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct SetupError {
    /// The faults, in the order in which they were found. Empty if the faults are reported elsewhere.
    pub faults: Vec<Fault>,
}

impl SetupError {
    /// Creates a fault of the parameters as a whole.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self::at("", message)
    }

    /// Creates a fault of the parameter at `path`.
    #[must_use]
    pub fn at(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of(path, Fault::new(message))
    }

    /// Creates the fault of the parameter at `path` with a message of [several lines](Fault::lines).
    #[must_use]
    pub fn lines(path: impl Into<String>, message: &str) -> Self {
        Self::of(path, Fault::lines(message))
    }

    /// Creates the fault of the parameter at `path`, whose value is not allowed.
    #[must_use]
    pub fn not_allowed(path: impl Into<String>, value: impl fmt::Display, allowed: impl Into<String>) -> Self {
        Self::of(path, Fault::not_allowed(value, allowed))
    }

    /// Creates the fault of the parameter at `path`, whose value is not allowed. `wrong` says why and should name the
    /// value.
    #[must_use]
    pub fn wrong(
        path: impl Into<String>,
        value: impl fmt::Display,
        wrong: impl fmt::Display,
        allowed: impl Into<String>,
    ) -> Self {
        Self::of(path, Fault::wrong(value, wrong, allowed))
    }

    /// Creates a fault like [`wrong`](Self::wrong), but a single value or form is allowed.
    #[must_use]
    pub fn wrong_single(
        path: impl Into<String>,
        value: impl fmt::Display,
        wrong: impl fmt::Display,
        allowed: impl Into<String>,
    ) -> Self {
        Self::of(path, Fault::wrong_single(value, wrong, allowed))
    }

    /// Creates a fault like [`wrong`](Self::wrong), but these names are allowed: none, one or several.
    #[must_use]
    pub fn wrong_name<'a>(
        path: impl Into<String>,
        value: impl fmt::Display,
        wrong: impl fmt::Display,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let names: Vec<_> = names.into_iter().collect();
        let message = format!("{wrong}: {}", allowed_names(names.iter().copied()));
        let (value, allowed) = (Some(value.to_string()), Some(listed(names)));
        Self::of(path, Fault { value, allowed, ..Fault::new(message) })
    }

    /// Creates a fault of the parameter at `path` with a hint, which says what to write instead.
    #[must_use]
    pub fn with_hint(path: impl Into<String>, wrong: impl fmt::Display, hint: impl Into<String>) -> Self {
        Self::of(path, Fault::with_hint(wrong, hint))
    }

    /// Creates an error with one fault, of the parameter at `path`.
    pub(crate) fn of(path: impl Into<String>, fault: Fault) -> Self {
        let path: String = path.into();
        let path = if path == "." { String::new() } else { path };
        Self { faults: vec![Fault { path, ..fault }] }
    }

    /// Adds the faults of another error.
    pub fn and(&mut self, other: Self) {
        self.faults.extend(other.faults);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_is_followed_by_the_allowed_names() {
        let cases: [(&[&str], &str, &str); 3] = [
            (&[], "use: no key has id 3: none is allowed", "none"),
            (&["1"], "use: no key has id 3: allowed is 1", "1"),
            (&["1", "2"], "use: no key has id 3: allowed are 1, 2", "1, 2"),
        ];
        for (names, text, allowed) in cases {
            let error = SetupError::wrong_name("use", 3, "no key has id 3", names.iter().copied());
            assert_eq!(error.to_string(), text);
            let [fault] = &error.faults[..] else { panic!("{error:?}") };
            assert_eq!((fault.value.as_deref(), fault.allowed.as_deref()), (Some("3"), Some(allowed)));
        }
    }
}

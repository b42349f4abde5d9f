//! Why a function, port or state cannot be made.

/// Why a function, port or state cannot be made: one or more faults.
#[derive(Debug, Default, thiserror::Error)]
#[error("{}", self.faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct SetupError {
    /// The faults, in the order they were found; empty if they are reported elsewhere.
    pub faults: Vec<Fault>,
}

/// One thing that is wrong with the parameters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{message}", self.path, if self.path.is_empty() { "" } else { ": " })]
pub struct Fault {
    /// Where in the parameters (`rules[3].action`); empty for the whole.
    pub path: String,
    /// The value that is wrong and what is allowed.
    pub message: String,
}

impl SetupError {
    /// A fault of the parameters as a whole.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self::at("", message)
    }

    /// A fault of the parameter at `path`.
    #[must_use]
    pub fn at(path: impl Into<String>, message: impl Into<String>) -> Self {
        let path: String = path.into();
        let path = if path == "." { String::new() } else { path };
        Self { faults: vec![Fault { path, message: message.into() }] }
    }

    /// Adds another's faults.
    pub fn and(&mut self, other: Self) {
        self.faults.extend(other.faults);
    }
}

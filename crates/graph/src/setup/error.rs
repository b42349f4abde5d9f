//! The faults for which a function, port or state cannot be created.

/// One or more faults for which a function, port or state cannot be created.
#[derive(Debug, Default, thiserror::Error)]
#[error("{}", self.faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct SetupError {
    /// The faults, in the order in which they were found. Empty if the faults are reported elsewhere.
    pub faults: Vec<Fault>,
}

/// One fault in the parameters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{message}", self.path, if self.path.is_empty() { "" } else { ": " })]
pub struct Fault {
    /// The position in the parameters (`rules[3].action`). Empty if the fault concerns the parameters as a whole.
    pub path: String,
    /// The value that is wrong, and the allowed values.
    pub message: String,
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
        let path: String = path.into();
        let path = if path == "." { String::new() } else { path };
        Self { faults: vec![Fault { path, message: message.into() }] }
    }

    /// Adds the faults of another error.
    pub fn and(&mut self, other: Self) {
        self.faults.extend(other.faults);
    }
}

//! Faults with their places in a configuration.

use forebay_protocol::check::Fault;

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
}

/// A fault, and its place before the name of the text is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocatedFault {
    pub(crate) place: SourceLocation,
    pub(crate) fault: Fault,
}

impl LocatedFault {
    pub(crate) fn new(place: SourceLocation, message: impl Into<String>) -> Self {
        Self { place, fault: Fault::new(message) }
    }
}

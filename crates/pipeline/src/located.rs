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

/// A fault and its place. The place has no file name yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocatedFault {
    pub(crate) place: SourceLocation,
    /// In a box, because parsers return this struct in a `Result` whose other value is small.
    pub(crate) fault: Box<Fault>,
}

impl LocatedFault {
    pub(crate) fn new(place: SourceLocation, message: impl Into<String>) -> Self {
        Self::from_fault(place, Fault::new(message))
    }

    /// Creates the fault. Shortens its value, because a value from a text can have any length.
    pub(crate) fn from_fault(place: SourceLocation, fault: Fault) -> Self {
        Self { place, fault: Box::new(fault.with_short_value()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_a_fault_is_short() {
        let fault = Fault::not_allowed("x".repeat(100_000), "1 to 9");
        let found = LocatedFault::from_fault(SourceLocation::START, fault);
        assert_eq!(found.fault.value, Some(format!("{}…", "x".repeat(60))));
    }
}

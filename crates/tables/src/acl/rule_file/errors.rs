//! The problems of a rule file. Each message contains the file and the line, the wrong value and the allowed values.

use std::fmt;

use crate::acl::MAX_RULES;
use crate::acl::readable::RuleSyntaxError;

/// A problem of one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The line is not UTF-8.
    #[error("the line is not text: allowed is UTF-8")]
    NotText,
    /// The line is in the readable form and has a wrong word.
    #[error(transparent)]
    Readable(RuleSyntaxError),
    /// The line ends before this field.
    #[error(
        "the line ends before the {0}; a rule is \"@source destination low : high low : high protocol/mask \
         [flags/mask] [permit|deny|count]\""
    )]
    Ends(&'static str),
    /// Not a prefix.
    #[error(
        "'{value}' is not a valid {what}; allowed are an IPv4 address with a length of 0 to 32 or an IPv6 address with \
         a length of 0 to 128, such as 10.1.0.0/16"
    )]
    RulePrefix {
        /// The field.
        what: &'static str,
        /// The value in the file.
        value: String,
    },
    /// Source and destination differ in family.
    #[error("the destination '{0}' is of another address family than the source; allowed is one family for both")]
    Families(String),
    /// Not a port.
    #[error("'{value}' is not a valid {what}; allowed are 0 to 65535")]
    Port {
        /// The field.
        what: &'static str,
        /// The value in the file.
        value: String,
    },
    /// No colon between the ports.
    #[error("'{value}' is not the ':' between the {what}s; allowed is 'low : high'")]
    Colon {
        /// The field.
        what: &'static str,
        /// The value in the file.
        value: String,
    },
    /// The first port of a range is greater than the last.
    #[error("the {what}s {low} : {high} are in the wrong order; the lower comes first")]
    Backwards {
        /// The field.
        what: &'static str,
        /// First port.
        low: u16,
        /// Last port.
        high: u16,
    },
    /// Not a protocol.
    #[error("'{0}' is not a valid protocol; allowed is value/mask, each 0 to 255 or 0x00 to 0xFF, such as 0x06/0xFF")]
    Protocol(String),
    /// Neither flags nor an action.
    #[error(
        "'{0}' is not a valid flags field or action; allowed is flags/mask, each 0x0000 to 0xFFFF, then permit, deny \
         or count"
    )]
    Tail(String),
    /// More words follow the end of the rule.
    #[error("'{0}' follows the end of the rule; nothing is allowed after the action")]
    Surplus(String),
    /// The file has more rules than are allowed.
    #[error("the file has more than {MAX_RULES} rules: allowed are up to {MAX_RULES}; the rest is not read")]
    TooMany,
}

/// A problem with its file and line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct RuleLineError {
    /// The file's name as given.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The problem.
    pub problem: Problem,
}

/// The problems of a file, in order. At most 50 are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileErrors {
    /// The problems that were kept.
    pub errors: Vec<RuleLineError>,
    /// The number of further problems.
    pub further: usize,
}

impl fmt::Display for FileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            write!(f, "{}{error}", if index == 0 { "" } else { "\n" })?;
        }
        if self.further > 0 {
            write!(f, "\n{} further problems", self.further)?;
        }
        Ok(())
    }
}

impl std::error::Error for FileErrors {}

//! Refused lines of a rule file: the reason, and the entry in the list of skipped lines.

use forebay_graph::short;
use serde::{Deserialize, Serialize};

/// The reason why a line is refused.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    /// The option, action or other word that is refused.
    pub keyword: String,
    /// The fault and the allowed values.
    pub message: String,
    /// The rule's number, if it can be read.
    pub sid: Option<u32>,
    /// True if the rule drops packets.
    pub drops: bool,
    /// True if the line is refused even if unknown rules are skipped, because it exceeds a size limit.
    pub always: bool,
}

impl Refused {
    pub(super) fn new(keyword: &str, message: String) -> Self {
        Self { keyword: short(keyword), message, sid: None, drops: false, always: false }
    }

    /// Returns a function that converts a message to a refusal with this keyword, for `map_err`.
    pub(super) fn of(keyword: &str) -> impl FnOnce(String) -> Self {
        let keyword = keyword.to_owned();
        move |message| Self::new(&keyword, message)
    }

    /// Converts the refusal to an entry of the list of skipped lines.
    pub(super) fn skipped(self, file: &str, line: usize) -> Skipped {
        Skipped { file: file.to_owned(), line, sid: self.sid, keyword: self.keyword, reason: self.message }
    }
}

/// A line of a rule file that was skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The file, or the parameter if the rules are in the configuration.
    pub file: String,
    /// The line in which the rule begins, from 1.
    pub line: usize,
    /// The rule's number, if it can be read.
    pub sid: Option<u32>,
    /// The option, action or other word that is refused. Empty if the line is not a rule.
    pub keyword: String,
    /// The fault and the allowed values.
    pub reason: String,
}

/// Returns true if a rule drops packets, judged by its first word.
pub(super) fn drops(text: &str) -> bool {
    let word = text.split(|letter: char| letter.is_ascii_whitespace() || letter == '(').next().unwrap_or("");
    ["drop", "block", "sdrop"].contains(&word) || word.starts_with("reject")
}

/// Returns the number (`sid`) in the text of a rule, also if the rest of the rule is invalid. Returns `None` if the
/// text has no valid number.
pub(super) fn sid_of(text: &str) -> Option<u32> {
    let mut rest = text;
    while let Some(at) = rest.find("sid") {
        let before = rest[..at].trim_ascii_end();
        let behind = rest[at + 3..].trim_ascii_start();
        if (before.ends_with([';', '(']) || before.is_empty())
            && let Some(value) = behind.strip_prefix(':')
        {
            let digits: String = value.trim_ascii_start().chars().take_while(char::is_ascii_digit).collect();
            return digits.parse().ok().filter(|sid| *sid > 0);
        }
        rest = &rest[at + 3..];
    }
    None
}

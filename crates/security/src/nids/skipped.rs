//! The table of skipped rules: one JSON object per line, in the order of the file.

use forebay_graph::{Outcome, Table, Verb, short};

use super::parse::Skipped;

/// A table of the lines of a rule file that were skipped.
pub struct SkippedTable(Vec<String>);

const SYNTAX: &str = "read-only: load another rule file to change it";

impl SkippedTable {
    /// Creates the table of these lines.
    #[must_use]
    pub fn new(skipped: &[Skipped]) -> Self {
        Self(skipped.iter().filter_map(|skipped| serde_json::to_string(skipped).ok()).collect())
    }
}

impl Table for SkippedTable {
    fn syntax(&self) -> &'static str {
        SYNTAX
    }

    fn apply(&self, changes: &[&str]) -> Outcome {
        let mut outcome = Outcome::default();
        for (at, change) in changes.iter().enumerate() {
            let result = Verb::split(change, SYNTAX)
                .and_then(|(verb, _)| Err(format!("'{verb}' cannot change skipped rules: the table is {SYNTAX}")));
            outcome.note(at, result);
        }
        outcome
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn entries(&self, after: Option<&str>, most: usize) -> Result<Vec<String>, String> {
        let from = match after {
            None => 0,
            Some(line) => 1 + self.0.iter().position(|known| known == line).ok_or_else(|| {
                let line = short(line);
                format!(
                    "'{line}' is not a line of the table of skipped rules: `forebay show table NAME` lists the lines"
                )
            })?,
        };
        Ok(self.0.iter().skip(from).take(most).cloned().collect())
    }
}

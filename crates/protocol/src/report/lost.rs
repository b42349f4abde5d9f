//! Lines that a run could not write to a log, a file of alerts or a capture of copies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The lines (or copied packets) of one module that are missing in its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostLines {
    /// The module's name.
    pub module: String,
    /// The heading of its counters: `alerts`, `log`, `copies`.
    pub lines: String,
    /// Lines above the rate that the configuration allows.
    pub over_rate: u64,
    /// Lines that were lost because the ring to the writer was full.
    pub lost: u64,
    /// Lines that the disk did not accept, or whose file was removed.
    pub unwritten: u64,
}

impl LostLines {
    /// Returns the sum of all causes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.over_rate + self.lost + self.unwritten
    }

    /// Returns a sentence with the causes.
    #[must_use]
    pub fn in_words(&self) -> String {
        let causes = [
            (self.over_rate, "over rate"),
            (self.lost, "lost: they came faster than they were written"),
            (self.unwritten, "unwritten: the disk did not accept them, or the file was removed"),
        ];
        let causes = causes.iter().filter(|(count, _)| *count > 0).map(|(count, cause)| format!("{count} {cause}"));
        let causes = causes.collect::<Vec<_>>().join("; ");
        let (module, heading, total) = (&self.module, &self.lines, self.total());
        let noun = if heading == "copies" { "packets" } else { "lines" };
        format!("{module}: {heading}: {total} {noun} are not in the file ({causes})")
    }

    /// Returns whether both entries belong to the same file.
    #[must_use]
    pub fn is_of(&self, other: &Self) -> bool {
        (&self.module, &self.lines) == (&other.module, &other.lines)
    }

    /// Adds the counts to the entry of the same file in `all`, or appends an entry.
    pub fn add_to(&self, all: &mut Vec<Self>) {
        match all.iter_mut().find(|lines| lines.is_of(self)) {
            Some(lines) => {
                lines.over_rate += self.over_rate;
                lines.lost += self.lost;
                lines.unwritten += self.unwritten;
            }
            None => all.push(self.clone()),
        }
    }
}

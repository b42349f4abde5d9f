//! The charges of ended sessions, as a table.

use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, MutexGuard};

use forebay_graph::{Outcome, Table, Verb, foreign_words, short};

use super::{Books, Core, Ended, show};

/// The charges of ended sessions. A line stays until an operator removes it.
pub(in crate::pdu_sessions) struct EndedTable(pub(in crate::pdu_sessions) Arc<Core>);

const ENDED: &str = "remove NUMBER   removes the charges of an ended session";

impl EndedTable {
    /// Makes the counts of ended sessions final, if no worker still reads these sessions. Then returns the control
    /// data.
    fn settled(&self) -> MutexGuard<'_, Books> {
        let mut books = self.0.books();
        if !books.ending.is_empty() {
            // This change is empty. It reports whether all workers have left the copy with the ended sessions. Before
            // that, the counts of these sessions are not final.
            if self.0.live.change_with_readers(|_, _, workers_left| workers_left) {
                books.settle(&self.0.accounts);
            }
        }
        books
    }
}

impl Table for EndedTable {
    fn syntax(&self) -> &'static str {
        ENDED
    }

    fn apply(&self, changes: &[&str]) -> Outcome {
        let mut outcome = Outcome::default();
        let mut books = self.settled();
        for (at, change) in changes.iter().enumerate() {
            let result = Verb::split(change, ENDED).and_then(|(verb, entry)| {
                let number = ended(entry)?;
                if verb != Verb::Remove {
                    return Err(format!("entries are only added when sessions end: allowed is {ENDED}"));
                }
                let current = books
                    .ended
                    .get(&number)
                    .ok_or_else(|| format!("{number} does not exist: `forebay show table NAME` lists the numbers"))?;
                if let Some((_, word)) = foreign_words(entry, &line(number, current)).next() {
                    let word = short(word);
                    return Err(format!("'{word}' differs from the listed line of {number}: write remove {number}"));
                }
                books.ended.remove(&number);
                Ok(())
            });
            outcome.note(at, result);
        }
        outcome
    }

    fn len(&self) -> usize {
        self.settled().ended.len()
    }

    fn entries(&self, after: Option<&str>, most: usize) -> Result<Vec<String>, String> {
        let after = after.map(ended).transpose()?;
        let books = self.settled();
        let behind = books.ended.range((after.map_or(Unbounded, Excluded), Unbounded));
        Ok(behind.map(|(number, it)| line(*number, it)).take(most).collect())
    }
}

/// Formats the line of an ended session.
fn line(number: u64, ended: &Ended) -> String {
    show(&format!("{number} {}", ended.user), &ended.usage)
}

/// Parses the number at the beginning of a line of an ended session.
fn ended(line: &str) -> Result<u64, String> {
    let word = line.split_ascii_whitespace().next().unwrap_or_default();
    let shown = short(word);
    word.parse()
        .map_err(|_| format!("'{shown}' is not the number of an ended session: write the number of a listed line"))
}

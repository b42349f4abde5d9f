//! What sessions that have ended were charged for, as a table.

use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, MutexGuard};

use forebay_graph::{Outcome, Table, Verb, foreign_words};

use super::{Books, Core, Ended, show};

/// What sessions that have ended were charged for, until somebody takes it out.
pub(in crate::pdu_sessions) struct EndedTable(pub(in crate::pdu_sessions) Arc<Core>);

const ENDED: &str = "remove NUMBER   what a session that has ended was charged for: it is told no more";

impl EndedTable {
    /// The books, with what has ended in them.
    fn settled(&self) -> MutexGuard<'_, Books> {
        let mut books = self.0.books();
        if !books.ending.is_empty() {
            // A change of nothing, to be told whether anybody still reads a copy that had what has ended: if so its counts are
            // not final yet.
            if self.0.live.change_told(|_, _, left| left) {
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
                    return Err(format!("sessions end by themselves: allowed is {ENDED}"));
                }
                let there = books.ended.get(&number).ok_or_else(|| format!("{number} is not there"))?;
                if let Some((_, word)) = foreign_words(entry, &line(number, there)).next() {
                    let word: String = word.chars().take(60).collect();
                    return Err(format!("'{word}' is not of {number} as it is listed: write remove {number}"));
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

/// A session that has ended as it is listed.
fn line(number: u64, ended: &Ended) -> String {
    show(&format!("{number} {}", ended.user), &ended.usage)
}

/// The number that a line of what has ended begins with.
fn ended(line: &str) -> Result<u64, String> {
    let word = line.split_ascii_whitespace().next().unwrap_or_default();
    let short: String = word.chars().take(60).collect();
    word.parse().map_err(|_| format!("'{short}' is no number of a session that has ended"))
}

//! Workers' tables of sessions as operators see them: listed, chosen from, ended one by one, while packets run.
//!
//! A table belongs to its worker, and nobody else may look into it. So an operator's question is put into a ring, which the
//! worker looks at once a batch; it goes through a few places of its table at a time, between batches and when it is woken, and
//! sends what it found back. Neither ever waits for the other: the worker makes no system call and takes no memory, since what
//! it fills comes with the question.

mod desk;
mod row;
mod select;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_graph::{Outcome, Setup, SetupError, Table, Verb};

use desk::Question;
pub(crate) use desk::{Attendant, Desk, LOOKS, Part, WOKEN, attend};
pub(crate) use row::{Age, End, Row};
pub use select::fuzz_selector;
use select::{Selector, place};

use crate::connection::SlotClock;

/// A worker's tables, gone through by place.
pub(crate) trait Shown {
    /// Where questions come in.
    fn desk(&mut self) -> &mut Desk;

    /// How many places of a table were ever used; 0 of one that it has not.
    fn places(&self, table: u8) -> u32;

    /// What is at a place, if anything is.
    fn row(&self, table: u8, place: u32) -> Option<Row>;

    /// Ends what is at a place.
    fn end(&mut self, table: u8, place: u32);
}

/// How a kind of table is shown.
#[derive(Debug)]
pub(crate) struct Kind {
    /// The table's name: `sessions`.
    pub(crate) name: &'static str,
    /// What a row's ends are called.
    pub(crate) ends: &'static [&'static str],
    /// Which of a worker's tables it is made of.
    pub(crate) tables: Range<u8>,
    /// How changes are written; where nothing can be ended, beginning with why not.
    pub(crate) syntax: &'static str,
    /// Whether what is in it can be ended.
    pub(crate) ended: bool,
}

/// Where all workers' tables of one state are asked.
#[derive(Default)]
pub(crate) struct Listing(Mutex<BTreeMap<(usize, usize), Arc<Part>>>);

impl Listing {
    /// That of a state, whose key says what it is made of: the same as long as configurations that follow each other have it.
    pub(crate) fn of(key: &str, setup: &mut Setup<'_>) -> Result<Arc<Self>, SetupError> {
        setup.handed_on(&format!("listing {key}"), |_| Ok(Self::default()))
    }

    /// That of the worker with this share of the sessions, of how many.
    pub(crate) fn part(&self, share: (usize, usize)) -> Arc<Part> {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(parts.entry(share).or_default())
    }

    /// Those that somebody looks after, with their workers' numbers.
    fn parts(&self) -> Vec<(usize, Arc<Part>)> {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let attended = parts.iter().filter(|(_, part)| part.is_attended());
        attended.map(|((worker, _), part)| (*worker, Arc::clone(part))).collect()
    }
}

/// Hands out a table of a state.
pub(crate) fn hand_out(
    listing: &Arc<Listing>,
    kind: &'static Kind,
    clock: SlotClock,
    key: &str,
    setup: &mut Setup<'_>,
) -> Result<(), SetupError> {
    let view = setup.handed_on(&format!("listing {} {key}", kind.name), |_| {
        Ok(View { listing: Arc::clone(listing), kind, clock })
    })?;
    setup.table(kind.name, view);
    Ok(())
}

/// A table over all workers.
struct View {
    listing: Arc<Listing>,
    kind: &'static Kind,
    clock: SlotClock,
}

/// The most rows of one question.
const ROWS: usize = 4_096;
/// The most places that a worker goes through for one question; then it is asked on.
const WALK: u32 = 1 << 16;

impl View {
    /// Goes through all places, from one on, and gives rows to `each` with their worker until it has enough; how many were ended.
    fn walk(
        &self,
        select: &Selector,
        from: Option<(usize, u8, u32)>,
        ends: bool,
        mut each: impl FnMut(usize, &Row) -> bool,
    ) -> Result<u64, String> {
        let mut ended = 0;
        let from = from.unwrap_or((0, self.kind.tables.start, 0));
        for (worker, part) in self.listing.parts() {
            if worker < from.0 || select.worker.is_some_and(|it| it != worker) || part.open() == 0 {
                continue;
            }
            let mut at = if worker == from.0 { (from.1, from.2) } else { (self.kind.tables.start, 0) };
            while at.0 < self.kind.tables.end {
                let rows = Vec::with_capacity(if ends { 0 } else { ROWS });
                let question =
                    Question { select: *select, table: at.0, place: at.1, walk: WALK, ends, rows, ..Question::NONE };
                let answer = part.ask(question).ok_or_else(|| format!("worker {worker} does not answer"))?;
                ended += answer.ended;
                if !answer.rows.iter().all(|row| each(worker, row)) {
                    return Ok(ended);
                }
                at = if answer.over { (at.0 + 1, 0) } else { (at.0, answer.place) };
            }
        }
        Ok(ended)
    }

    /// Ends what a line means; how many those were.
    fn end(&self, line: &str) -> Result<u64, String> {
        let Kind { syntax, ends, .. } = self.kind;
        let (verb, entry) = Verb::split(line, syntax)?;
        if verb != Verb::Remove {
            return Err(format!("packets make what is in this table: allowed is {}", Verb::Remove.form(syntax)));
        }
        if !self.kind.ended {
            return Err((*syntax).to_owned());
        }
        let there = entry.split_ascii_whitespace().any(|word| word.starts_with("at="));
        if !there {
            let ended = self.walk(&Selector::parse(entry, ends)?, None, true, |_, _| true)?;
            return if ended > 0 { Ok(ended) } else { Err(format!("nothing there is '{}'", short(entry))) };
        }
        // A line as it was shown: what is at its place, if that is still the same.
        let (select, (worker, table, place)) = (Selector::of_line(entry, ends)?, place(entry)?);
        let part = self.listing.parts().into_iter().find(|(number, part)| *number == worker && part.open() > 0);
        let question = Question { select, table, place, walk: 1, ends: true, ..Question::NONE };
        let is_ours = self.kind.tables.contains(&table);
        let answer = part.filter(|_| is_ours).map(|(_, part)| part.ask(question));
        match answer {
            Some(None) => Err(format!("worker {worker} does not answer")),
            Some(Some(answer)) if answer.ended > 0 => Ok(answer.ended),
            _ => Err(format!("'{}' is there no more", short(entry))),
        }
    }
}

fn short(text: &str) -> String {
    text.chars().take(120).collect()
}

impl Table for View {
    fn syntax(&self) -> &'static str {
        self.kind.syntax
    }

    fn apply(&self, changes: &[&str]) -> Outcome {
        let mut outcome = Outcome::default();
        for (at, change) in changes.iter().enumerate() {
            outcome.note_entries(at, self.end(change));
        }
        outcome
    }

    fn len(&self) -> usize {
        let open = |part: &Part| self.kind.tables.clone().map(|table| part.len(table)).sum::<usize>();
        self.listing.parts().iter().map(|(_, part)| open(part)).sum()
    }

    fn entries(&self, after: Option<&str>, most: usize) -> Result<Vec<String>, String> {
        self.chosen("all", after, most)
    }

    fn chosen(&self, filter: &str, after: Option<&str>, most: usize) -> Result<Vec<String>, String> {
        let select = Selector::parse(filter, self.kind.ends)?;
        let from = after.map(place).transpose()?.map(|(worker, table, place)| (worker, table, place + 1));
        let mut lines = Vec::new();
        if most > 0 {
            self.walk(&select, from, false, |worker, row| {
                lines.push(row.line(worker, self.kind.ends, self.clock));
                lines.len() < most
            })?;
        }
        Ok(lines)
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

//! Workers' tables of sessions as operators see them: operators list, select and end sessions while packets run.
//!
//! A table belongs to its worker, and no other thread may read it. So an operator's request goes into a ring, which the
//! worker checks once per batch. The worker visits a few entries of its table at a time, between batches and when it is
//! woken, and sends the matching rows back. The worker never waits for the operator. It makes no system call and
//! allocates no memory, because the request brings the memory for the rows.

mod requests;
mod row;
mod select;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_graph::{Outcome, Setup, SetupError, Table, Verb, short};

use requests::Request;
pub(crate) use requests::{
    LOOKS_WHEN_WOKEN, LOOKS_WITH_PACKETS, OperatorSide, ServingModule, WorkerSide, serve_requests,
};
pub(crate) use row::{Age, End, Row};
pub use select::fuzz_selector;
use select::{Selector, position};

use crate::connection::SlotClock;

/// A worker's tables, whose entries are visited by index. A worker's tables are numbered from 0.
pub(crate) trait WorkerTables {
    /// Returns the receiver of requests for these tables.
    fn worker_side(&mut self) -> &mut WorkerSide;

    /// Returns an upper bound of the indices that were ever used in a table: each index is smaller. Returns 0 for a
    /// table that does not exist.
    fn index_limit(&self, table: u8) -> u32;

    /// Returns the row at an index, or `None` if there is no entry or the entry has ended.
    fn row(&self, table: u8, index: u32) -> Option<Row>;

    /// Ends the entry at an index, if there is one.
    fn end(&mut self, table: u8, index: u32);
}

/// Presentation of a type of table.
#[derive(Debug)]
pub(crate) struct TableType {
    /// The table's name, such as `sessions`.
    pub(crate) name: &'static str,
    /// Names of the ends of a row, such as `inside`.
    pub(crate) ends: &'static [&'static str],
    /// The numbers of the [`WorkerTables`] that are shown as one table under this name.
    pub(crate) tables: Range<u8>,
    /// Syntax of changes. If entries cannot be ended, the text begins with the reason.
    pub(crate) syntax: &'static str,
    /// True if operators can end entries.
    pub(crate) ended: bool,
}

/// The operators' side of all workers' tables of one state. The key is the worker's number and the number of workers.
#[derive(Default)]
pub(crate) struct Listing(Mutex<BTreeMap<(usize, usize), Arc<OperatorSide>>>);

impl Listing {
    /// Returns the listing of a state. The key describes the state: configurations whose state has the same key share
    /// the listing.
    pub(crate) fn of(key: &str, setup: &mut Setup<'_>) -> Result<Arc<Self>, SetupError> {
        setup.handed_over(&format!("listing {key}"), |_| Ok(Self::default()))
    }

    /// Returns the operators' side of one worker's tables. `share` is the worker's number and the number of workers.
    pub(crate) fn operator_side(&self, share: (usize, usize)) -> Arc<OperatorSide> {
        let mut workers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(workers.entry(share).or_default())
    }

    /// Returns the workers' numbers and tables, for workers that have a module which serves requests.
    fn workers(&self) -> Vec<(usize, Arc<OperatorSide>)> {
        let workers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let served = workers.iter().filter(|(_, operators)| operators.is_served());
        served.map(|((worker, _), operators)| (*worker, Arc::clone(operators))).collect()
    }
}

/// Adds a table of a state to the tables of the module. `key` is the key of the listing. Modules with the same key
/// share the table.
pub(crate) fn add_table(
    listing: &Arc<Listing>,
    table_type: &'static TableType,
    clock: SlotClock,
    key: &str,
    setup: &mut Setup<'_>,
) -> Result<(), SetupError> {
    let view = setup.handed_over(&format!("listing {} {key}", table_type.name), |_| {
        Ok(View { listing: Arc::clone(listing), table_type, clock })
    })?;
    setup.table(table_type.name, view);
    Ok(())
}

/// A table of the entries of all workers.
struct View {
    listing: Arc<Listing>,
    table_type: &'static TableType,
    clock: SlotClock,
}

/// Maximum number of rows of a response.
const ROWS: usize = 4_096;
/// Maximum number of entries that a worker visits for one request. The next request continues behind these entries.
const WALK: u32 = 1 << 16;

impl View {
    /// Visits all entries from the position `from` (worker, table, index) on, or all entries if it is `None`. Calls
    /// `each` with the worker and the row of each matching entry, until `each` returns false. With `ends`, matching
    /// entries are ended instead. Returns the number of ended entries. Returns an error if a worker does not respond.
    fn walk(
        &self,
        select: &Selector,
        from: Option<(usize, u8, u32)>,
        ends: bool,
        mut each: impl FnMut(usize, &Row) -> bool,
    ) -> Result<u64, String> {
        let mut ended = 0;
        let from = from.unwrap_or((0, self.table_type.tables.start, 0));
        for (worker, operators) in self.listing.workers() {
            if worker < from.0 || select.worker.is_some_and(|it| it != worker) || operators.open() == 0 {
                continue;
            }
            let mut at = if worker == from.0 { (from.1, from.2) } else { (self.table_type.tables.start, 0) };
            while at.0 < self.table_type.tables.end {
                let rows = Vec::with_capacity(if ends { 0 } else { ROWS });
                let request =
                    Request { select: *select, table: at.0, index: at.1, walk: WALK, ends, rows, ..Request::NONE };
                let response = operators.request(request).ok_or_else(|| silent(worker))?;
                ended += response.ended;
                if !response.rows.iter().all(|row| each(worker, row)) {
                    return Ok(ended);
                }
                at = if response.over { (at.0 + 1, 0) } else { (at.0, response.index) };
            }
        }
        Ok(ended)
    }

    /// Ends the entries that a line selects. Returns their number.
    fn end(&self, line: &str) -> Result<u64, String> {
        let TableType { syntax, ends, .. } = self.table_type;
        let (verb, entry) = Verb::split(line, syntax)?;
        if verb != Verb::Remove {
            return Err(format!("only packets create entries of this table: allowed is {}", Verb::Remove.form(syntax)));
        }
        if !self.table_type.ended {
            return Err((*syntax).to_owned());
        }
        let is_shown_line = entry.split_ascii_whitespace().any(|word| word.starts_with("at="));
        if !is_shown_line {
            let ended = self.walk(&Selector::parse(entry, ends)?, None, true, |_, _| true)?;
            return if ended > 0 {
                Ok(ended)
            } else {
                Err(format!("no entry matches '{}': `forebay show table NAME` lists the entries", short(entry)))
            };
        }
        // The line was copied from the table: end the entry at its position, if it is still the same entry.
        let (select, (worker, table, index)) = (Selector::of_line(entry, ends)?, position(entry)?);
        let operators =
            self.listing.workers().into_iter().find(|(number, operators)| *number == worker && operators.open() > 0);
        let request = Request { select, table, index, walk: 1, ends: true, ..Request::NONE };
        let is_ours = self.table_type.tables.contains(&table);
        let response = operators.filter(|_| is_ours).map(|(_, operators)| operators.request(request));
        match response {
            Some(None) => Err(silent(worker)),
            Some(Some(response)) if response.ended > 0 => Ok(response.ended),
            _ => Err(format!("'{}' no longer exists", short(entry))),
        }
    }
}

/// Returns the error of a worker that does not respond in time.
fn silent(worker: usize) -> String {
    format!("worker {worker} does not respond: try again later")
}

impl Table for View {
    fn syntax(&self) -> &'static str {
        self.table_type.syntax
    }

    fn apply(&self, changes: &[&str]) -> Outcome {
        let mut outcome = Outcome::default();
        for (at, change) in changes.iter().enumerate() {
            outcome.note_entries(at, self.end(change));
        }
        outcome
    }

    fn len(&self) -> usize {
        let open =
            |operators: &OperatorSide| self.table_type.tables.clone().map(|table| operators.len(table)).sum::<usize>();
        self.listing.workers().iter().map(|(_, operators)| open(operators)).sum()
    }

    fn entries(&self, after: Option<&str>, most: usize) -> Result<Vec<String>, String> {
        self.chosen("all", after, most)
    }

    fn chosen(&self, filter: &str, after: Option<&str>, most: usize) -> Result<Vec<String>, String> {
        let select = Selector::parse(filter, self.table_type.ends)?;
        let from = after.map(position).transpose()?.map(|(worker, table, index)| (worker, table, index + 1));
        let mut lines = Vec::new();
        if most > 0 {
            self.walk(&select, from, false, |worker, row| {
                lines.push(row.line(worker, self.table_type.ends, self.clock));
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

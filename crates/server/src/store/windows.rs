//! Windows of 5 minutes: the samples of one window and layout become one row.
//!
//! A row is written in the transaction that adds the first sample of the next window or layout. It is computed from the
//! stored samples, so that neither a restart nor a crash loses a sample. An instance that ended has no next sample, so
//! [`Store::prune`](super::Store::prune) writes its last row.

use std::collections::BTreeSet;

use rusqlite::Connection;

use super::{StoreError, blob, sums::SampleSum};

/// The length of a window, in milliseconds.
pub(super) const WINDOW: i64 = 300_000;

/// Returns the beginning of the window that `at` is in.
pub(super) fn window_of(at: i64) -> i64 {
    at.div_euclid(WINDOW).saturating_mul(WINDOW)
}

/// The samples of one instance and layout in one window. The numbers are those of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group {
    pub instance: i64,
    pub layout: i64,
    /// The beginning of the window.
    pub begin: i64,
}

impl Group {
    /// Returns the end of the window.
    pub(super) fn end(&self) -> i64 {
        self.begin.saturating_add(WINDOW)
    }

    /// The parameters of the statements that select the samples of the group.
    fn parameters(&self) -> (i64, i64, i64, i64) {
        (self.instance, self.layout, self.begin, self.end())
    }
}

const SAMPLES: &str = "
SELECT sample FROM ten_seconds WHERE instance = ?1 AND layout = ?2 AND at >= ?3 AND at < ?4 ORDER BY at, id";

/// Keeps the present row if it was computed from more samples: the others were removed since then.
const WRITE: &str = "
INSERT INTO five_minutes (instance, layout, at, samples, sample) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (instance, at, layout) DO UPDATE SET samples = excluded.samples, sample = excluded.sample
WHERE excluded.samples >= five_minutes.samples";

const IS_CLOSED: &str = "
SELECT (SELECT count(*) FROM ten_seconds WHERE instance = ?1 AND layout = ?2 AND at >= ?3 AND at < ?4)
    <= coalesce((SELECT samples FROM five_minutes WHERE instance = ?1 AND layout = ?2 AND at = ?3), 0)";

const LAST: &str = "SELECT at, layout FROM ten_seconds WHERE instance = ?1 ORDER BY at DESC, id DESC LIMIT 1";

/// Writes the row of a group. A group can be closed again after more samples were added.
///
/// A damaged sample is left out: queries report it, but it does not keep an instance from adding samples.
pub(super) fn close(connection: &Connection, group: Group) -> Result<(), StoreError> {
    let mut sum: Option<SampleSum> = None;
    let mut samples = 0i64;
    let mut statement = connection.prepare_cached(SAMPLES)?;
    let mut rows = statement.query(group.parameters())?;
    while let Some(row) = rows.next()? {
        samples += 1;
        let bytes = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
        if let Ok(sample) = blob::decode(bytes) {
            sum.get_or_insert_default().add(&sample);
        }
    }
    let Some(sum) = sum else { return Ok(()) };
    let encoded = blob::encode(&sum.sample()).map_err(|error| StoreError::Encoding(error.to_string()))?;
    let mut statement = connection.prepare_cached(WRITE)?;
    statement.execute((group.instance, group.layout, group.begin, samples, encoded))?;
    Ok(())
}

/// Writes the row of a group if it is missing, or was computed before the last sample was added.
fn close_if_open(connection: &Connection, group: Group) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(IS_CLOSED)?;
    let is_closed: bool = statement.query_row(group.parameters(), |row| row.get(0))?;
    if is_closed { Ok(()) } else { close(connection, group) }
}

/// Writes the row of the last group of an instance if its window has ended.
pub(super) fn close_ended(connection: &Connection, instance: i64, now: i64) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(LAST)?;
    let mut rows = statement.query((instance,))?;
    let Some(row) = rows.next()? else { return Ok(()) };
    let group = Group { instance, layout: row.get(1)?, begin: window_of(row.get(0)?) };
    if group.end() <= now { close_if_open(connection, group) } else { Ok(()) }
}

/// Writes the missing rows of an instance for samples before `end`, which are about to be removed.
pub(super) fn close_before(connection: &Connection, instance: i64, end: i64) -> Result<(), StoreError> {
    let mut groups = BTreeSet::new();
    {
        let mut statement =
            connection.prepare_cached("SELECT at, layout FROM ten_seconds WHERE instance = ?1 AND at < ?2")?;
        let mut rows = statement.query((instance, end))?;
        while let Some(row) = rows.next()? {
            groups.insert(Group { instance, layout: row.get(1)?, begin: window_of(row.get(0)?) });
        }
    }
    groups.into_iter().try_for_each(|group| close_if_open(connection, group))
}

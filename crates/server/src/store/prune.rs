//! Removal of old rows, and of the oldest ones when the database is too large.
//!
//! Samples are removed in whole windows of 5 minutes, so that no row of 5 minutes is computed from a part of them.

use rusqlite::Connection;

use super::{
    DAY, Resolution, Store, StoreError, remembered,
    windows::{WINDOW, close_before, close_ended, window_of},
};

const OLDEST: &str = "
SELECT min(at) FROM (
    SELECT (SELECT min(at) FROM ten_seconds WHERE instance = instances.id) AS at FROM instances
    UNION ALL SELECT (SELECT min(at) FROM five_minutes WHERE instance = instances.id) FROM instances
)";

const UNUSED: &str = "
DELETE FROM layouts
WHERE NOT EXISTS (SELECT 1 FROM ten_seconds WHERE layout = layouts.id)
    AND NOT EXISTS (SELECT 1 FROM five_minutes WHERE layout = layouts.id);
DELETE FROM instances WHERE NOT EXISTS (SELECT 1 FROM layouts WHERE instance = instances.id);
";

impl Store {
    /// Removes samples of 10 seconds that are older than 24 hours, rows of 5 minutes that are older than 7 days, and
    /// remembered responses that are older than 24 hours. `now` is in milliseconds since 1970. If the database is then
    /// above its limit of bytes, removes the oldest samples of all instances, and gives the space back to the system.
    ///
    /// Writes missing rows of 5 minutes first. The server calls this about once a minute.
    ///
    /// # Errors
    /// Returns an error if the database cannot be changed: then nothing is removed. Also returns an error if the space
    /// cannot be given back, after the rows were removed.
    pub fn prune(&mut self, now: i64) -> Result<(), StoreError> {
        // Instances and layouts may be removed, and their numbers given to others.
        self.last.clear();
        let most = i64::try_from(self.limits.bytes).unwrap_or(i64::MAX);
        let transaction = self.connection.transaction()?;
        remembered::remove_expired(&transaction, now)?;
        let samples_end = window_of(now.saturating_sub(DAY));
        let rows_end = window_of(now.saturating_sub(7 * DAY));
        for instance in instances(&transaction)? {
            close_ended(&transaction, instance, now)?;
            close_before(&transaction, instance, samples_end)?;
            remove_before(&transaction, Resolution::TenSeconds, instance, samples_end)?;
            remove_before(&transaction, Resolution::FiveMinutes, instance, rows_end)?;
        }
        while used(&transaction)? > most && remove_oldest(&transaction)? {}
        transaction.execute_batch(UNUSED)?;
        transaction.commit()?;
        if allocated(&self.connection)? > most {
            release(&self.connection)?;
        }
        Ok(())
    }
}

fn instances(connection: &Connection) -> Result<Vec<i64>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT id FROM instances")?;
    let numbers = statement.query_map([], |row| row.get(0))?;
    Ok(numbers.collect::<Result<_, _>>()?)
}

/// Removes the rows of an instance before `end`, and returns their number.
fn remove_before(
    connection: &Connection,
    resolution: Resolution,
    instance: i64,
    end: i64,
) -> Result<usize, StoreError> {
    let sql = format!("DELETE FROM {} WHERE instance = ?1 AND at < ?2", resolution.table());
    Ok(connection.prepare_cached(&sql)?.execute((instance, end))?)
}

/// Removes the oldest 5 minutes of all instances. Returns `false` if there was nothing to remove.
fn remove_oldest(connection: &Connection) -> Result<bool, StoreError> {
    let oldest: Option<i64> = connection.prepare_cached(OLDEST)?.query_row([], |row| row.get(0))?;
    let Some(oldest) = oldest else { return Ok(false) };
    let end = window_of(oldest).saturating_add(WINDOW);
    let mut removed = 0;
    for instance in instances(connection)? {
        removed += remove_before(connection, Resolution::TenSeconds, instance, end)?;
        removed += remove_before(connection, Resolution::FiveMinutes, instance, end)?;
    }
    Ok(removed > 0)
}

fn pragma(connection: &Connection, name: &str) -> Result<i64, StoreError> {
    Ok(connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))?)
}

/// Returns the size of the database in bytes, with its free pages.
fn allocated(connection: &Connection) -> Result<i64, StoreError> {
    Ok(pragma(connection, "page_count")?.saturating_mul(pragma(connection, "page_size")?))
}

/// Returns the size of the database in bytes, without its free pages.
pub(super) fn used(connection: &Connection) -> Result<i64, StoreError> {
    let free = pragma(connection, "freelist_count")?.saturating_mul(pragma(connection, "page_size")?);
    Ok(allocated(connection)? - free)
}

/// Gives free pages back to the system.
fn release(connection: &Connection) -> Result<(), StoreError> {
    {
        let mut statement = connection.prepare("PRAGMA incremental_vacuum")?;
        let mut rows = statement.query([])?;
        // Each step frees one page.
        while rows.next()?.is_some() {}
    }
    // The file becomes shorter when the log of changes is copied into it.
    let mut statement = connection.prepare("PRAGMA wal_checkpoint(TRUNCATE)")?;
    statement.exists([])?;
    Ok(())
}

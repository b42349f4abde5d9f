//! The store of the server: the audit log, remembered responses, and the history of flows and modules.
//!
//! It is one SQLite database. A call blocks until the disk has the data, so the server calls the store from a thread of
//! its own. The database is held exclusively: two servers with one file would delete each other's history.

mod audit;
mod blob;
mod database;
mod error;
mod history;
mod prune;
mod query;
mod remembered;
mod sample;
mod schema;
mod sums;
mod windows;

#[cfg(test)]
mod tests;

use std::{collections::HashMap, path::Path};

use rusqlite::Connection;

pub use self::{
    audit::{AuditRecord, WriteBegun, WriteEnded},
    error::StoreError,
    query::{Figures, FlowFigures, History, HistoryQuery, ModuleFigures, Resolution, Subject, TotalFigures},
    remembered::{IdempotencyKey, Remembered},
    sample::{FlowPoint, ModulePoint, Sample, SampleLayout},
};

/// A day in milliseconds.
const DAY: i64 = 24 * 60 * 60 * 1000;

/// The limits of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// The size of the database, in bytes, above which [`Store::prune`] removes the oldest samples of all instances.
    /// The audit log counts, and is never removed.
    pub bytes: u64,
    /// The largest number of remembered responses of one client.
    pub remembered: u32,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self { bytes: 200_000_000, remembered: 1_000 }
    }
}

/// An open store.
pub struct Store {
    connection: Connection,
    limits: StoreLimits,
    /// The last sample of each instance that has sent one since the last [`Store::prune`].
    last: HashMap<String, history::LastSample>,
}

impl Store {
    /// Opens the database at `path`, and creates it with mode 0600 if it does not exist. Without a path, the database
    /// is in memory.
    ///
    /// # Errors
    /// Returns an error if another server uses the file, if the file is not a store or was written by a newer program,
    /// or if the file cannot be created or opened.
    pub fn open(path: Option<&Path>, limits: StoreLimits) -> Result<Self, StoreError> {
        Ok(Self { connection: database::open(path)?, limits, last: HashMap::new() })
    }

    /// Checks that the database can be read. This is a cheap query.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read.
    pub fn check(&mut self) -> Result<(), StoreError> {
        let mut statement = self.connection.prepare_cached("SELECT id FROM audit_begun LIMIT 1")?;
        statement.exists([])?;
        Ok(())
    }

    /// Returns the size of the database, in bytes.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn bytes(&mut self) -> Result<u64, StoreError> {
        let count = |name: &str| self.connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        Ok((count("page_count")? * count("page_size")?).unsigned_abs())
    }
}

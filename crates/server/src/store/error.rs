//! The errors of the store.

use std::path::PathBuf;

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process holds the database.
    #[error("the store {} is in use by another server: stop it, or name another file with `store`", .path.display())]
    InUse {
        /// The path of the database.
        path: PathBuf,
    },
    /// The file is not an SQLite database. It was not changed.
    #[error("{} is not an SQLite database: name a store, or a file that does not exist, with `store`", .path.display())]
    NotADatabase {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file is an SQLite database, but not a store. It was not changed.
    #[error(
        "{} is a database of another program: name a store, or a file that does not exist, with `store`",
        .path.display()
    )]
    Foreign {
        /// The path of the file.
        path: PathBuf,
    },
    /// A newer program wrote the database. It was not changed.
    #[error(
        "the store {} has version {found}, and this program knows versions up to {known}: use a newer program, or name \
         another file with `store`",
        .path.display()
    )]
    TooNew {
        /// The path of the database.
        path: PathBuf,
        /// The version of its schema.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// The file cannot be created.
    #[error(
        "cannot create the store {}: {source}: let the server's user write to the folder, or name another file with \
         `store`",
        .path.display()
    )]
    Create {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file cannot be opened.
    #[error(
        "cannot open the store {}: {source}: check the file, its folder and its disk, or name another file with \
         `store`",
        .path.display()
    )]
    Open {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        source: rusqlite::Error,
    },
    /// A query failed.
    #[error("store: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A row has content that this program did not write.
    #[error("store: row {row} of table '{table}' is damaged: {reason}")]
    Damaged {
        /// The table.
        table: &'static str,
        /// The `id` of the row.
        row: i64,
        /// The reason.
        reason: String,
    },
    /// A sample does not fit its layout.
    #[error(
        "a sample has {modules} modules and {flows} flows, but its layout has {layout_modules} modules and \
         {layout_flows} flows: the numbers must be equal"
    )]
    Mismatch {
        /// The number of modules in the sample.
        modules: usize,
        /// The number of flows in the sample.
        flows: usize,
        /// The number of modules in the layout.
        layout_modules: usize,
        /// The number of flows in the layout.
        layout_flows: usize,
    },
    /// Too many orders wait for the store.
    #[error("the disk is too slow, or full: too many writes wait: try again later")]
    Busy,
    /// The idempotency key of a write has a record.
    #[error("another request has this Idempotency-Key: use a new key for each change")]
    KeyInUse,
    /// A sample or layout cannot be encoded.
    #[error("store: a sample cannot be encoded: {0}")]
    Encoding(String),
    /// The end of a write was reported that never began, or has ended.
    #[error("write {0} of the audit log is unknown or has ended: each write begins once and ends once")]
    NotBegun(i64),
}

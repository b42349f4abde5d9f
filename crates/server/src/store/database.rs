//! Opens the database, and refuses files that are in use or are not a store.
//!
//! SQLite checks a file when it reads it first. So the file is read before a setting that writes to it, and a refused
//! file stays as it was.

use std::{fs::OpenOptions, io::ErrorKind, os::unix::fs::OpenOptionsExt, path::Path, time::Duration};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::{
    error::StoreError,
    schema::{self, APPLICATION, VERSION},
};

/// The number of prepared statements that are kept.
const STATEMENTS: usize = 48;
/// The longest wait for a lock once the database is open. Another process then has a lock at most for the moment in
/// which it tries to open the file.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// Settings that do not write to the file. The first one holds the file from the first read to the end, and lets
/// SQLite do without shared memory. The cache is limited to 1 MiB.
const READING: &str = "
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA mmap_size = 0;
PRAGMA cache_size = -1024;
PRAGMA foreign_keys = ON;
PRAGMA recursive_triggers = ON;
PRAGMA trusted_schema = OFF;
";

/// Settings that write to the file. The first two have an effect on a new file only: pages of 8 KiB hold two samples of
/// 323 modules each, and pages of 4 KiB one or none.
const WRITING: &str = "
PRAGMA page_size = 8192;
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA journal_size_limit = 4194304;
PRAGMA wal_autocheckpoint = 256;
";

/// Opens or creates the database. Without a path, it is in memory.
pub(super) fn open(path: Option<&Path>) -> Result<Connection, StoreError> {
    let shown = path.unwrap_or(Path::new(":memory:"));
    let mut connection = match path {
        None => Connection::open_in_memory(),
        Some(path) => {
            create(path)?;
            // SQLite gives a meaning to `:memory:` and to an empty path, but not behind a folder.
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            Connection::open_with_flags(Path::new(".").join(path), flags)
        }
    }
    .map_err(|error| refusal(shown, error))?;
    let header = read_header(&connection).map_err(|error| refusal(shown, error))?;
    let version = header.check(shown)?;
    if version > 0 {
        check_tables(&connection).map_err(|error| refusal(shown, error))?;
    }
    prepare(&mut connection, version).map_err(|error| refusal(shown, error))?;
    Ok(connection)
}

/// Creates the file if it does not exist. SQLite gives the mode of the database to its other files.
fn create(path: &Path) -> Result<(), StoreError> {
    // An existing file is not opened: closing it would release the locks that this process has on it.
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(source) => Err(StoreError::Create { path: path.to_owned(), source }),
    }
}

/// The facts that decide whether a file is a store.
struct Header {
    application: i64,
    version: i64,
    is_empty: bool,
}

impl Header {
    /// Returns the version of the tables: 0 for a new database.
    fn check(&self, path: &Path) -> Result<i64, StoreError> {
        let path = path.to_owned();
        if self.application == 0 && self.is_empty {
            return Ok(0);
        }
        if self.application != APPLICATION || self.version < 1 {
            return Err(StoreError::Foreign { path });
        }
        if self.version > VERSION {
            return Err(StoreError::TooNew { path, found: self.version, known: VERSION });
        }
        Ok(self.version)
    }
}

/// Takes hold of the file and reads its header.
fn read_header(connection: &Connection) -> Result<Header, rusqlite::Error> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // A file that another server holds stays held, so there is nothing to wait for.
    connection.busy_timeout(Duration::ZERO)?;
    connection.execute_batch(READING)?;
    Ok(Header {
        application: connection.query_row("PRAGMA application_id", [], |row| row.get(0))?,
        version: connection.query_row("PRAGMA user_version", [], |row| row.get(0))?,
        is_empty: connection.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))?,
    })
}

/// Reads the beginning of each table, so that damage is reported at the start and not at the first request.
fn check_tables(connection: &Connection) -> Result<(), rusqlite::Error> {
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    let mut names = connection.prepare(tables)?;
    let names = names.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    for name in names {
        let sql = format!("SELECT count(*) FROM (SELECT rowid FROM \"{name}\" LIMIT 1)");
        connection.query_row(&sql, [], |_| Ok(()))?;
    }
    Ok(())
}

/// Completes the settings, and brings the tables to the present version.
fn prepare(connection: &mut Connection, version: i64) -> Result<(), rusqlite::Error> {
    connection.execute_batch(WRITING)?;
    schema::migrate(connection, version)?;
    connection.busy_timeout(LOCK_WAIT)
}

/// Returns the error for a failure before the database is open.
fn refusal(path: &Path, error: rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::InUse { path },
        Some(ErrorCode::NotADatabase) => StoreError::NotADatabase { path },
        _ => StoreError::Open { path, source: error },
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, path::PathBuf};

    use super::*;
    use crate::store::{Store, StoreLimits};

    fn temporary() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        (folder, path)
    }

    fn try_open(path: &Path) -> Result<Store, StoreError> {
        Store::open(Some(path), StoreLimits::default())
    }

    fn refused(path: &Path) -> String {
        try_open(path).err().expect("the file is refused").to_string()
    }

    #[test]
    fn a_new_store_has_the_settings_and_is_private() {
        let (_folder, path) = temporary();
        let mut store = try_open(&path).unwrap();
        store.check().unwrap();
        let text = |name: &str| -> String {
            let sql = format!("SELECT CAST({name} AS TEXT) FROM pragma_{name}");
            store.connection.query_row(&sql, [], |row| row.get(0)).unwrap()
        };
        assert_eq!([text("journal_mode"), text("locking_mode")], ["wal", "exclusive"]);
        assert_eq!([text("page_size"), text("auto_vacuum"), text("synchronous")], ["8192", "2", "2"]);
        assert_eq!([text("foreign_keys"), text("cache_size"), text("user_version")], ["1", "-1024", "1"]);
        for name in ["store", "store-wal"] {
            let mode = path.with_file_name(name).metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        assert!(!path.with_file_name("store-shm").exists(), "an exclusive holder needs no shared memory");
    }

    #[test]
    fn a_second_opener_is_refused_until_the_first_has_closed() {
        let (_folder, path) = temporary();
        for _ in 0..2 {
            let first = try_open(&path).unwrap();
            let expected = format!(
                "the store {} is in use by another server: stop it, or name another file with `store`",
                path.display()
            );
            assert_eq!(refused(&path), expected);
            drop(first);
        }
        try_open(&path).unwrap();
    }

    #[test]
    fn files_that_are_not_a_store_are_refused_and_not_changed() {
        let (_folder, path) = temporary();
        for content in [&b"text"[..], &[0; 5000], &b"SQLite format 3\0"[..]] {
            std::fs::write(&path, content).unwrap();
            let error = refused(&path);
            assert!(error.contains("is not an SQLite database: name a store"), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), content);
        }
        std::fs::remove_file(&path).unwrap();
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (a)").unwrap();
        let before = std::fs::read(&path).unwrap();
        assert!(refused(&path).contains("is a database of another program"));
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn a_newer_store_is_refused() {
        let (_folder, path) = temporary();
        drop(try_open(&path).unwrap());
        Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
        let error = refused(&path);
        assert!(error.contains("has version 99, and this program knows versions up to 1"), "{error}");
    }

    #[test]
    fn paths_that_cannot_be_a_file_are_refused() {
        let (folder, path) = temporary();
        assert!(refused(folder.path()).starts_with("cannot open the store "));
        assert!(refused(&path.join("below")).starts_with("cannot create the store "));
    }

    #[test]
    fn an_empty_file_becomes_a_store() {
        let (_folder, path) = temporary();
        std::fs::write(&path, "").unwrap();
        try_open(&path).unwrap().check().unwrap();
    }
}

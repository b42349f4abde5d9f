//! The tables of the store, and the steps from each version of them to the next.

use rusqlite::Connection;

/// Marks the file as a store: `Fore` in ASCII, in the header field `application_id`.
pub(super) const APPLICATION: i64 = 0x466f_7265;

/// The newest version of the tables. The header field `user_version` has the version of a file.
pub(super) const VERSION: i64 = STEPS.len() as i64;

/// The steps. Step 0 creates the tables of version 1.
const STEPS: &[&str] = &[FIRST];

/// The tables of version 1.
///
/// The audit log has a trigger on `INSERT` too, because `INSERT OR REPLACE` may delete a row without the trigger on
/// `DELETE`. Samples have a row number and no other key: rows in the order of time are written at the end of the table,
/// and removed from its beginning. A row of `five_minutes` was computed from `samples` rows of `ten_seconds`.
const FIRST: &str = "
CREATE TABLE audit_begun (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms INTEGER NOT NULL,
    who TEXT NOT NULL,
    user TEXT,
    role TEXT NOT NULL,
    peer TEXT NOT NULL,
    method TEXT NOT NULL,
    path TEXT NOT NULL,
    instance TEXT,
    version_before TEXT,
    request TEXT
) STRICT;
CREATE TABLE audit_ended (
    id INTEGER PRIMARY KEY REFERENCES audit_begun,
    at_ms INTEGER NOT NULL,
    status INTEGER NOT NULL,
    version_after TEXT,
    result TEXT
) STRICT;
CREATE TRIGGER audit_begun_update BEFORE UPDATE ON audit_begun
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_begun_delete BEFORE DELETE ON audit_begun
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_begun_insert BEFORE INSERT ON audit_begun
WHEN EXISTS (SELECT 1 FROM audit_begun WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_ended_update BEFORE UPDATE ON audit_ended
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_ended_delete BEFORE DELETE ON audit_ended
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_ended_insert BEFORE INSERT ON audit_ended
WHEN EXISTS (SELECT 1 FROM audit_ended WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

CREATE TABLE remembered (
    id INTEGER PRIMARY KEY,
    who TEXT NOT NULL,
    key TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    request BLOB NOT NULL,
    status INTEGER NOT NULL,
    content_type TEXT NOT NULL,
    etag TEXT NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (who, key)
) STRICT;
CREATE INDEX remembered_at ON remembered (at_ms);

CREATE TABLE instances (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;
CREATE TABLE layouts (
    id INTEGER PRIMARY KEY,
    instance INTEGER NOT NULL REFERENCES instances,
    names BLOB NOT NULL
) STRICT;
CREATE INDEX layouts_instance ON layouts (instance);
CREATE TABLE ten_seconds (
    id INTEGER PRIMARY KEY,
    instance INTEGER NOT NULL REFERENCES instances,
    at INTEGER NOT NULL,
    layout INTEGER NOT NULL REFERENCES layouts,
    sample BLOB NOT NULL
) STRICT;
CREATE INDEX ten_seconds_at ON ten_seconds (instance, at);
CREATE INDEX ten_seconds_layout ON ten_seconds (layout);
CREATE TABLE five_minutes (
    id INTEGER PRIMARY KEY,
    instance INTEGER NOT NULL REFERENCES instances,
    at INTEGER NOT NULL,
    layout INTEGER NOT NULL REFERENCES layouts,
    samples INTEGER NOT NULL,
    sample BLOB NOT NULL,
    UNIQUE (instance, at, layout)
) STRICT;
CREATE INDEX five_minutes_layout ON five_minutes (layout);
";

/// Brings the tables from version `from` to [`VERSION`]. Each step is one transaction.
pub(super) fn migrate(connection: &mut Connection, from: i64) -> Result<(), rusqlite::Error> {
    let numbered = (1i64..).zip(STEPS);
    for (version, step) in numbered.filter(|(version, _)| *version > from) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(step)?;
        transaction
            .execute_batch(&format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {version};"))?;
        transaction.commit()?;
    }
    Ok(())
}

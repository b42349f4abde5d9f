//! The audit log: each write of a client, with its author and its result.
//!
//! The beginning of a write is recorded before its effect, and its end after it. So a write has a record also if the
//! server is killed meanwhile. Triggers in the database refuse to change or remove a record.

use rusqlite::ErrorCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::{IdempotencyKey, Store, StoreError, remembered};

/// The beginning of a write. It is recorded before the write has an effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WriteBegun {
    /// The time, in milliseconds since 1970.
    pub at_ms: i64,
    /// The author: the name of a token, or a user of this host.
    pub who: String,
    /// The user of this host that the token belongs to.
    pub user: Option<String>,
    /// The role that allows the write.
    pub role: String,
    /// The address of the client.
    pub peer: String,
    /// The method of the request.
    pub method: String,
    /// The path of the request.
    pub path: String,
    /// The instance that the write changes.
    pub instance: Option<String>,
    /// The version of the instance's configuration before the write.
    pub version_before: Option<String>,
    /// The content of the request, without secrets.
    pub request: Option<String>,
}

/// The end of a write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WriteEnded {
    /// The time, in milliseconds since 1970.
    pub at_ms: i64,
    /// The status code of the response.
    pub status: u16,
    /// The version of the instance's configuration after the write.
    pub version_after: Option<String>,
    /// The result, or the reason for which the write was refused.
    pub result: Option<String>,
}

/// A record of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AuditRecord {
    /// The number of the record. A later record has a larger number.
    pub id: i64,
    /// The beginning of the write.
    #[serde(flatten)]
    pub begun: WriteBegun,
    /// The end of the write. `null` means that the write still runs, that the server was killed, or that the end could
    /// not be recorded. In the last two cases, the effect is unknown. With the status 502, 503 or 504, it can be
    /// unknown: `result` says so.
    pub ended: Option<WriteEnded>,
}

const BEGIN: &str = "
INSERT INTO audit_begun (at_ms, who, user, role, peer, method, path, instance, version_before, request)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

const END: &str = "INSERT INTO audit_ended (id, at_ms, status, version_after, result) VALUES (?1, ?2, ?3, ?4, ?5)";

const READ: &str = "
SELECT begun.id, begun.at_ms, who, user, role, peer, method, path, instance, version_before, request,
    ended.at_ms, status, version_after, result
FROM audit_begun AS begun LEFT JOIN audit_ended AS ended ON ended.id = begun.id
WHERE begun.id < ?1 ORDER BY begun.id DESC LIMIT ?2";

impl Store {
    /// Records that a write begins, with the idempotency key of its request, and returns the number of the record. The
    /// record is on the disk when this returns.
    ///
    /// # Errors
    /// Returns an error if the record cannot be written, or if the key has a record. The write must then not be done.
    pub fn begin_write(&mut self, write: &WriteBegun, key: Option<&IdempotencyKey>) -> Result<i64, StoreError> {
        let transaction = self.connection.transaction()?;
        if let Some(key) = key {
            remembered::begin(&transaction, key, write.at_ms, self.limits.remembered)?;
        }
        let id = transaction.prepare_cached(BEGIN)?.insert((
            write.at_ms,
            &write.who,
            &write.user,
            &write.role,
            &write.peer,
            &write.method,
            &write.path,
            &write.instance,
            &write.version_before,
            &write.request,
        ))?;
        transaction.commit()?;
        Ok(id)
    }

    /// Records the end of the write with the number `id`.
    ///
    /// # Errors
    /// Returns an error if no such write has begun, if it has ended, or if the record cannot be written.
    pub fn end_write(&mut self, id: i64, ended: &WriteEnded) -> Result<(), StoreError> {
        let mut statement = self.connection.prepare_cached(END)?;
        let done = statement.execute((id, ended.at_ms, ended.status, &ended.version_after, &ended.result));
        match done {
            Ok(_) => Ok(()),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                Err(StoreError::NotBegun(id))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns up to `most` records, newest first. With `before`, only records with smaller numbers are returned.
    ///
    /// # Errors
    /// Returns an error if the log cannot be read.
    pub fn audit(&mut self, before: Option<i64>, most: usize) -> Result<Vec<AuditRecord>, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut statement = self.connection.prepare_cached(READ)?;
        let records = statement.query_map((before.unwrap_or(i64::MAX), most), |row| {
            let begun = WriteBegun {
                at_ms: row.get(1)?,
                who: row.get(2)?,
                user: row.get(3)?,
                role: row.get(4)?,
                peer: row.get(5)?,
                method: row.get(6)?,
                path: row.get(7)?,
                instance: row.get(8)?,
                version_before: row.get(9)?,
                request: row.get(10)?,
            };
            let ended = match row.get::<_, Option<i64>>(11)? {
                None => None,
                Some(at_ms) => {
                    let (status, version_after, result) = (row.get(12)?, row.get(13)?, row.get(14)?);
                    Some(WriteEnded { at_ms, status, version_after, result })
                }
            };
            Ok(AuditRecord { id: row.get(0)?, begun, ended })
        })?;
        Ok(records.collect::<Result<_, _>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreLimits;

    fn begun(at_ms: i64) -> WriteBegun {
        WriteBegun {
            at_ms,
            who: "deploy".into(),
            user: Some("alice".into()),
            role: "operator".into(),
            peer: "127.0.0.1:4000".into(),
            method: "PUT".into(),
            path: "/api/v1/instances/edge/config".into(),
            instance: Some("edge".into()),
            version_before: Some("5f3a".into()),
            request: None,
        }
    }

    fn ended(at_ms: i64) -> WriteEnded {
        WriteEnded { at_ms, status: 200, version_after: Some("1b2c".into()), result: Some("reloaded".into()) }
    }

    #[test]
    fn records_are_read_newest_first_and_survive_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let mut store = Store::open(Some(&path), StoreLimits::default()).unwrap();
        let ids: Vec<i64> = (0..5).map(|at| store.begin_write(&begun(at), None).unwrap()).collect();
        store.end_write(ids[1], &ended(9)).unwrap();
        drop(store);
        let mut store = Store::open(Some(&path), StoreLimits::default()).unwrap();
        let all = store.audit(None, 10).unwrap();
        assert_eq!(all.iter().map(|record| record.id).rev().collect::<Vec<_>>(), ids);
        let with_end: Vec<i64> = all.iter().filter(|record| record.ended.is_some()).map(|record| record.id).collect();
        assert_eq!(with_end, [ids[1]]);
        assert_eq!(all[3], AuditRecord { id: ids[1], begun: begun(1), ended: Some(ended(9)) });
        let older = store.audit(Some(ids[3]), 2).unwrap();
        assert_eq!(older.iter().map(|record| record.id).collect::<Vec<_>>(), [ids[2], ids[1]]);
        assert!(store.audit(Some(ids[0]), 2).unwrap().is_empty());
        assert!(store.begin_write(&begun(5), None).unwrap() > ids[4], "numbers go on after a restart");
    }

    #[test]
    fn a_record_has_the_fields_of_its_beginning() {
        let record = AuditRecord { id: 1, begun: begun(2), ended: None };
        let json = serde_json::to_value(&record).unwrap();
        assert_eq!(json["id"], 1);
        assert_eq!(json["at_ms"], 2);
        assert_eq!(json["who"], "deploy");
        assert!(json["ended"].is_null());
    }

    #[test]
    fn a_write_ends_once_and_only_if_it_has_begun() {
        let mut store = Store::open(None, StoreLimits::default()).unwrap();
        let id = store.begin_write(&begun(1), None).unwrap();
        store.end_write(id, &ended(2)).unwrap();
        for wrong in [id, id + 1] {
            let error = store.end_write(wrong, &ended(3)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("write {wrong} of the audit log is unknown or has ended")), "{error}");
        }
        assert_eq!(store.audit(None, 9).unwrap()[0].ended, Some(ended(2)));
    }

    #[test]
    fn no_statement_changes_or_removes_a_record() {
        let mut store = Store::open(None, StoreLimits::default()).unwrap();
        let id = store.begin_write(&begun(1), None).unwrap();
        store.end_write(id, &ended(2)).unwrap();
        let before = store.audit(None, 9).unwrap();
        for statement in [
            "UPDATE audit_begun SET who = 'other'",
            "UPDATE audit_ended SET status = 500",
            "DELETE FROM audit_begun",
            "DELETE FROM audit_ended",
            "INSERT OR REPLACE INTO audit_begun (id, at_ms, who, role, peer, method, path) \
             VALUES (1, 0, '', '', '', '', '')",
            "REPLACE INTO audit_ended (id, at_ms, status) VALUES (1, 0, 500)",
            "INSERT INTO audit_ended (id, at_ms, status) VALUES (1, 0, 1) ON CONFLICT (id) DO UPDATE SET status = 1",
        ] {
            let error = store.connection.execute_batch(statement).unwrap_err().to_string();
            assert!(error.contains("append-only"), "{statement}: {error}");
        }
        assert_eq!(store.audit(None, 9).unwrap(), before);
    }
}

//! Remembered responses: a client that repeats a request with the same idempotency key gets the first response again.

use rusqlite::{Connection, ErrorCode, OptionalExtension};

use super::{DAY, Store, StoreError};

/// The idempotency key of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The client. Each has keys of its own.
    pub who: String,
    /// The key.
    pub key: String,
    /// The SHA-256 of the request. The same key with another request is an error of the client.
    pub request: [u8; 32],
}

/// The response to a request with an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// The SHA-256 of the request.
    pub request: [u8; 32],
    /// The status code; 0 if the request has begun, and its response is not known. `content_type`, `etag` and `body`
    /// are then empty.
    pub status: u16,
    /// The media type of the body.
    pub content_type: String,
    /// The version of the configuration after the request; empty if the response has none.
    pub etag: String,
    /// The body.
    pub body: Vec<u8>,
}

const FIND: &str = "
SELECT request, status, content_type, etag, body FROM remembered WHERE who = ?1 AND key = ?2 AND at_ms > ?3";

const KEEP: &str = "
INSERT INTO remembered (who, key, at_ms, request, status, content_type, etag, body)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (who, key) DO UPDATE SET at_ms = excluded.at_ms, request = excluded.request, status = excluded.status,
    content_type = excluded.content_type, etag = excluded.etag, body = excluded.body";

const BEGIN: &str = "
INSERT INTO remembered (who, key, at_ms, request, status, content_type, etag, body)
VALUES (?1, ?2, ?3, ?4, 0, '', '', x'')";

const RELEASE: &str = "DELETE FROM remembered WHERE who = ?1 AND key = ?2 AND request = ?3";

/// Removes all but the newest responses of a client, in the order of their requests: the clock may be set back.
const LIMIT: &str = "
DELETE FROM remembered WHERE id IN
    (SELECT id FROM remembered WHERE who = ?1 ORDER BY id DESC LIMIT -1 OFFSET ?2)";

/// Removes the responses that are older than 24 hours.
pub(super) fn remove_expired(connection: &Connection, now: i64) -> Result<(), rusqlite::Error> {
    let mut statement = connection.prepare_cached("DELETE FROM remembered WHERE at_ms <= ?1")?;
    statement.execute((now.saturating_sub(DAY),))?;
    Ok(())
}

/// Records that a request with this key has begun, at `now`. If the client then has more keys than `most`, the oldest
/// are removed.
///
/// # Errors
/// Returns [`StoreError::KeyInUse`] if the key has a record.
pub(super) fn begin(connection: &Connection, key: &IdempotencyKey, now: i64, most: u32) -> Result<(), StoreError> {
    remove_expired(connection, now)?;
    let IdempotencyKey { who, key, request } = key;
    let begun = connection.prepare_cached(BEGIN)?.execute((who, key, now, request));
    match begun {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            return Err(StoreError::KeyInUse);
        }
        begun => begun?,
    };
    connection.prepare_cached(LIMIT)?.execute((who, most))?;
    Ok(())
}

impl Store {
    /// Returns the response to the request that the client `who` sent with this key in the 24 hours before `now`.
    /// `now` is in milliseconds since 1970.
    ///
    /// # Errors
    /// Returns an error if the response cannot be read.
    pub fn remembered(&mut self, who: &str, key: &str, now: i64) -> Result<Option<Remembered>, StoreError> {
        let mut statement = self.connection.prepare_cached(FIND)?;
        let found = statement.query_row((who, key, now.saturating_sub(DAY)), |row| {
            let (request, status, content_type) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(Remembered { request, status, content_type, etag: row.get(3)?, body: row.get(4)? })
        });
        Ok(found.optional()?)
    }

    /// Removes the record of a request that was refused: it may be sent again with the same key.
    ///
    /// # Errors
    /// Returns an error if the record cannot be removed.
    pub fn release(&mut self, key: &IdempotencyKey) -> Result<(), StoreError> {
        self.connection.prepare_cached(RELEASE)?.execute((&key.who, &key.key, &key.request))?;
        Ok(())
    }

    /// Remembers a response for 24 hours. An earlier response for the same key is replaced. If the client has more
    /// responses than the limit, its oldest are removed.
    ///
    /// # Errors
    /// Returns an error if the response cannot be written.
    pub fn remember(&mut self, who: &str, key: &str, response: &Remembered, now: i64) -> Result<(), StoreError> {
        let transaction = self.connection.transaction()?;
        remove_expired(&transaction, now)?;
        let Remembered { request, status, content_type, etag, body } = response;
        transaction.prepare_cached(KEEP)?.execute((who, key, now, request, status, content_type, etag, body))?;
        transaction.prepare_cached(LIMIT)?.execute((who, self.limits.remembered))?;
        transaction.commit()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreLimits;

    fn response(number: u8) -> Remembered {
        Remembered {
            request: [number; 32],
            status: 201,
            content_type: "application/json".into(),
            etag: format!("\"{number}\""),
            body: vec![number; usize::from(number)],
        }
    }

    #[test]
    fn a_response_is_remembered_for_a_day_and_for_its_client() {
        let mut store = Store::open(None, StoreLimits::default()).unwrap();
        store.remember("a", "key", &response(0), 1000).unwrap();
        assert_eq!(store.remembered("a", "key", 1000).unwrap(), Some(response(0)));
        assert_eq!(store.remembered("a", "key", 1000 + DAY - 1).unwrap(), Some(response(0)));
        assert_eq!(store.remembered("a", "key", 1000 + DAY).unwrap(), None);
        assert_eq!(store.remembered("b", "key", 1000).unwrap(), None);
        assert_eq!(store.remembered("a", "other", 1000).unwrap(), None);
        store.remember("a", "key", &response(7), 2000).unwrap();
        assert_eq!(store.remembered("a", "key", 2000).unwrap(), Some(response(7)));
    }

    #[test]
    fn a_request_that_has_begun_is_known_until_it_is_released_or_has_a_response() {
        let mut store = Store::open(None, StoreLimits::default()).unwrap();
        let key = IdempotencyKey { who: "a".into(), key: "key".into(), request: [7; 32] };
        let begun = crate::store::WriteBegun { at_ms: 1000, ..Default::default() };
        store.begin_write(&begun, Some(&key)).unwrap();
        let known = store.remembered("a", "key", 1000).unwrap().unwrap();
        assert_eq!((known.request, known.status, known.body.len()), ([7; 32], 0, 0));
        // Another request cannot take or release the key meanwhile: it would be made a second time.
        let other = IdempotencyKey { request: [8; 32], ..key.clone() };
        let records = store.audit(None, 9).unwrap().len();
        assert!(matches!(store.begin_write(&begun, Some(&other)), Err(StoreError::KeyInUse)));
        store.release(&other).unwrap();
        assert_eq!(store.remembered("a", "key", 1000).unwrap(), Some(known));
        assert_eq!(store.audit(None, 9).unwrap().len(), records);
        store.release(&key).unwrap();
        assert_eq!(store.remembered("a", "key", 1000).unwrap(), None);
        store.begin_write(&begun, Some(&key)).unwrap();
        store.remember("a", "key", &response(7), 1001).unwrap();
        assert_eq!(store.remembered("a", "key", 1001).unwrap(), Some(response(7)));
    }

    #[test]
    fn old_responses_and_those_above_the_limit_are_removed() {
        let mut store = Store::open(None, StoreLimits { remembered: 3, ..StoreLimits::default() }).unwrap();
        let count = |store: &Store| -> i64 {
            store.connection.query_row("SELECT count(*) FROM remembered", [], |row| row.get(0)).unwrap()
        };
        for number in 0..5u8 {
            store.remember("a", &number.to_string(), &response(number), i64::from(number)).unwrap();
        }
        let kept: Vec<bool> = (0..5).map(|key| store.remembered("a", &key.to_string(), 5).unwrap().is_some()).collect();
        assert_eq!(kept, [false, false, true, true, true]);
        // Keys that have begun count, and those of another client do not.
        let key = IdempotencyKey { who: "a".into(), key: "begun".into(), request: [9; 32] };
        store.begin_write(&crate::store::WriteBegun { at_ms: 5, ..Default::default() }, Some(&key)).unwrap();
        store.remember("c", "other", &response(1), 0).unwrap();
        assert!(store.remembered("a", "2", 5).unwrap().is_none() && store.remembered("a", "3", 5).unwrap().is_some());
        store.release(&key).unwrap();
        store.prune(3 + DAY).unwrap();
        assert_eq!(count(&store), 1);
        store.remember("b", "new", &response(1), 100 + DAY).unwrap();
        assert_eq!(count(&store), 1);
    }
}

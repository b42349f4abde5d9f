//! Remembered responses: a client that repeats a request with the same idempotency key gets the first response again.

use rusqlite::{Connection, OptionalExtension};

use super::{DAY, Store, StoreError};

/// The idempotency key of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
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
    /// The status code; 0 if the request has begun, and has no response. The other fields are then empty.
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

const FORGET: &str = "DELETE FROM remembered WHERE who = ?1 AND key = ?2";

/// Removes all but the newest responses.
const LIMIT: &str = "
DELETE FROM remembered WHERE id IN (SELECT id FROM remembered ORDER BY at_ms DESC, id DESC LIMIT -1 OFFSET ?1)";

/// Removes the responses that are older than 24 hours.
pub(super) fn forget(connection: &Connection, now: i64) -> Result<(), rusqlite::Error> {
    let mut statement = connection.prepare_cached("DELETE FROM remembered WHERE at_ms <= ?1")?;
    statement.execute((now.saturating_sub(DAY),))?;
    Ok(())
}

/// Records that a request with this key has begun, at `now`.
pub(super) fn begin(connection: &Connection, key: &Key, now: i64) -> Result<(), rusqlite::Error> {
    let Key { who, key, request } = key;
    let none: [u8; 0] = [];
    connection.prepare_cached(KEEP)?.execute((who, key, now, request, 0, "", "", none))?;
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
    pub fn forget(&mut self, key: &Key) -> Result<(), StoreError> {
        self.connection.prepare_cached(FORGET)?.execute((&key.who, &key.key))?;
        Ok(())
    }

    /// Remembers a response for 24 hours. An earlier response for the same key is replaced. If there are more responses
    /// than the limit, the oldest are removed.
    ///
    /// # Errors
    /// Returns an error if the response cannot be written.
    pub fn remember(&mut self, who: &str, key: &str, response: &Remembered, now: i64) -> Result<(), StoreError> {
        let transaction = self.connection.transaction()?;
        forget(&transaction, now)?;
        let Remembered { request, status, content_type, etag, body } = response;
        transaction.prepare_cached(KEEP)?.execute((who, key, now, request, status, content_type, etag, body))?;
        transaction.prepare_cached(LIMIT)?.execute((self.limits.remembered,))?;
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
    fn a_request_that_has_begun_is_known_until_it_is_forgotten_or_has_a_response() {
        let mut store = Store::open(None, StoreLimits::default()).unwrap();
        let key = Key { who: "a".into(), key: "key".into(), request: [7; 32] };
        let begun = crate::store::WriteBegun { at_ms: 1000, ..Default::default() };
        store.begin_write(&begun, Some(&key)).unwrap();
        let known = store.remembered("a", "key", 1000).unwrap().unwrap();
        assert_eq!((known.request, known.status, known.body.len()), ([7; 32], 0, 0));
        store.forget(&key).unwrap();
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
        store.prune(3 + DAY).unwrap();
        assert_eq!(count(&store), 1);
        store.remember("b", "new", &response(1), 100 + DAY).unwrap();
        assert_eq!(count(&store), 1);
    }
}

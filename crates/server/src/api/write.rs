//! The steps that every write has: the audit log before and after it, and responses that are remembered.

use std::sync::Arc;

use axum::Json;
use axum::body::to_bytes;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use forebay_units::secret::without_keys;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::sync::OwnedMutexGuard;

use crate::access::{Access, Peer};
use crate::history::now_ms;
use crate::instances::Instance;
use crate::problem::Problem;
use crate::shared::Shared;
use crate::store::{IdempotencyKey, Remembered, StoreError, WriteBegun, WriteEnded};

/// The header by which a client marks a request that it may repeat.
const KEY: &str = "idempotency-key";
/// The longest key.
pub(super) const MAX_KEY: usize = 128;
/// The largest part of a request that the audit log keeps, in bytes.
const MAX_TEXT: usize = 4_096;
/// The parameter of table entries that is a secret, as changes have it.
const SECRET: &str = "key=";
/// The longest response that is remembered, in bytes.
const MAX_BODY: usize = 16 << 10;

/// A write before it is made.
pub(super) struct Write<'w> {
    pub(super) shared: &'w Arc<Shared>,
    pub(super) access: &'w Access,
    pub(super) peer: Peer,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) instance: &'w Instance,
    pub(super) version_before: Option<String>,
    /// The content of the request for the audit log, which has it without its secrets.
    pub(super) summary: String,
}

/// The result of a write that was made.
pub(super) struct Made {
    pub(super) response: Response,
    pub(super) version_after: Option<String>,
    /// The result for the audit log.
    pub(super) result: String,
}

impl Made {
    /// Creates the result of a write whose response is `body`.
    pub(super) fn of(body: &impl Serialize, result: impl Into<String>) -> Self {
        Self { response: Json(body).into_response(), version_after: None, result: result.into() }
    }
}

impl Write<'_> {
    /// Records the write in the audit log, and then makes it. A write that cannot be recorded is not made.
    ///
    /// The write continues if the client goes away, so that its record is complete, and so that its response is
    /// remembered before the next write of the pipeline has its turn.
    pub(super) async fn make(
        self,
        turn: OwnedMutexGuard<()>,
        repeatable: Option<Repeatable>,
        work: impl Future<Output = Result<Made, Problem>> + Send + 'static,
    ) -> Result<Response, Problem> {
        let begun = self.begun();
        // The semaphore is never closed.
        let change = Arc::clone(&self.shared.changes).acquire_owned().await;
        let shared = Arc::clone(self.shared);
        let finished = tokio::spawn(async move {
            let (_turn, _change) = (turn, change);
            let key = repeatable.as_ref().map(|Repeatable(key)| key.clone());
            let recorded = shared.store.with(move |store| store.begin_write(&begun, key.as_ref())).await;
            let trouble = recorded.as_ref().err().filter(|error| !matches!(error, StoreError::KeyInUse));
            shared.alarms.store(trouble.map(ToString::to_string));
            let id = recorded?;
            let made = work.await;
            let ended = match &made {
                Ok(made) => WriteEnded {
                    at_ms: now_ms(),
                    status: made.response.status().as_u16(),
                    version_after: made.version_after.clone(),
                    result: Some(shorten(&made.result)),
                },
                Err(problem) => WriteEnded {
                    at_ms: now_ms(),
                    status: problem.status,
                    version_after: None,
                    result: Some(shorten(&problem.detail)),
                },
            };
            // The pipeline has changed already. Without this record, the log shows that the effect is unknown.
            let trouble = shared.store.with(move |store| store.end_write(id, &ended)).await.err();
            shared.alarms.store(trouble.map(|trouble| trouble.to_string()));
            match (made, repeatable) {
                (Ok(made), Some(repeatable)) => repeatable.keep(&shared, made.response).await,
                (Err(problem), Some(repeatable)) => {
                    if !problem.is_effect_unknown {
                        repeatable.release(&shared).await;
                    }
                    Err(problem)
                }
                (made, None) => made.map(|made| made.response),
            }
        });
        finished
            .await
            .unwrap_or_else(|_| Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the change was interrupted")))
    }

    /// Returns the record of the write's beginning.
    fn begun(&self) -> WriteBegun {
        let (user, role) = match self.access {
            Access::Token { user, role, .. } => (user.clone(), format!("{role:?}").to_lowercase()),
            _ => (None, String::new()),
        };
        WriteBegun {
            at_ms: now_ms(),
            who: self.access.who(),
            user,
            role,
            peer: self.peer.to_string(),
            method: self.method.to_string(),
            path: shorten(&without_secrets(&self.path)),
            instance: Some(self.instance.name().to_owned()),
            version_before: self.version_before.clone(),
            request: Some(shorten(&without_secrets(&self.summary))),
        }
    }
}

/// Returns a request without its secrets: the value of each parameter [`SECRET`], and each other word that may be a
/// key. The audit log is kept forever.
fn without_secrets(text: &str) -> String {
    let word = |word: &str| match word.strip_prefix(SECRET) {
        Some(value) if !value.trim_end().is_empty() => {
            format!("{SECRET}***{}", &value[value.trim_end().len()..])
        }
        _ => word.to_owned(),
    };
    let words: String = text.split_inclusive(char::is_whitespace).map(word).collect();
    without_keys(&words)
}

/// Returns at most the first [`MAX_TEXT`] bytes of a text.
fn shorten(text: &str) -> String {
    if text.len() <= MAX_TEXT {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(MAX_TEXT)])
}

/// A request that its client may repeat.
pub(super) struct Repeatable(IdempotencyKey);

impl Repeatable {
    /// Returns the key of a request; `None` if the request has none.
    pub(super) fn of(headers: &HeaderMap, access: &Access, parts: &[&[u8]]) -> Result<Option<Self>, Problem> {
        let Some(key) = headers.get(KEY) else { return Ok(None) };
        let is_key = |key: &&str| (1..=MAX_KEY).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
        let Some(key) = key.to_str().ok().filter(is_key) else {
            return Err(Problem::invalid(format!(
                "the header Idempotency-Key: allowed are 1 to {MAX_KEY} visible characters of ASCII"
            )));
        };
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Ok(Some(Self(IdempotencyKey { who: access.who(), key: key.to_owned(), request: hash.finalize().into() })))
    }

    /// Returns the response to the same request, if it was made before.
    ///
    /// # Errors
    /// Another request had the key. Or the request was sent before, and its response was not kept: the pipeline did not
    /// respond, the pipeline or the server ended before the response, or the response was too long.
    pub(super) async fn response(&self, shared: &Shared) -> Result<Option<Response>, Problem> {
        let IdempotencyKey { who, key, request } = self.0.clone();
        let known = shared.store.with(move |store| store.remembered(&who, &key, now_ms())).await?;
        let Some(known) = known else { return Ok(None) };
        if known.request != request {
            return Err(StoreError::KeyInUse.into());
        }
        if known.status == 0 {
            let detail = "a request with this Idempotency-Key was sent before, and its response was not kept: the \
                          change may have been made: check for it, and use a new key for the next change";
            return Err(Problem::new(StatusCode::CONFLICT, detail));
        }
        let status = StatusCode::from_u16(known.status).unwrap_or(StatusCode::OK);
        let mut response = (status, known.body).into_response();
        let content_type = HeaderValue::from_str(&known.content_type);
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, content_type.unwrap_or(HeaderValue::from_static("application/json")));
        if let Ok(etag) = HeaderValue::from_str(&known.etag)
            && !etag.is_empty()
        {
            response.headers_mut().insert(header::ETAG, etag);
        }
        response.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("true"));
        Ok(Some(response))
    }

    /// Allows the key of a request that was refused to be used again.
    async fn release(self, shared: &Shared) {
        let released = shared.store.with(move |store| store.release(&self.0)).await;
        shared.alarms.store(released.err().map(|trouble| trouble.to_string()));
    }

    /// Keeps a response for a day.
    async fn keep(self, shared: &Shared, response: Response) -> Result<Response, Problem> {
        let (parts, body) = response.into_parts();
        // The body is in memory already.
        let body = to_bytes(body, usize::MAX)
            .await
            .map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the response cannot be read"))?;
        if body.len() > MAX_BODY {
            return Ok(Response::from_parts(parts, body.into()));
        }
        let text = |name: header::HeaderName| {
            parts.headers.get(name).and_then(|text| text.to_str().ok()).unwrap_or_default().to_owned()
        };
        let remembered = Remembered {
            request: self.0.request,
            status: parts.status.as_u16(),
            content_type: text(header::CONTENT_TYPE),
            etag: text(header::ETAG),
            body: body.to_vec(),
        };
        let kept =
            shared.store.with(move |store| store.remember(&self.0.who, &self.0.key, &remembered, now_ms())).await;
        // The change was made: its response is better than an error.
        shared.alarms.store(kept.err().map(|trouble| trouble.to_string()));
        Ok(Response::from_parts(parts, body.into()))
    }
}

//! The parts of a request. A part that is not allowed is a problem that says what is allowed.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, MatchedPath, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use forebay_units::secret::without_keys;
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::openapi;
use crate::instances::Instance;
use crate::problem::Problem;
use crate::shared::Shared;

/// Refuses a query at a path without parameters. The other paths refuse unknown keys themselves.
pub(super) async fn check_query(path: MatchedPath, request: Request, next: Next) -> Result<Response, Problem> {
    // A HEAD is a GET without the body.
    let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
    let has_query = request.uri().query().is_some_and(|query| !query.is_empty());
    if has_query && openapi::has_query(path.as_str(), method) == Some(false) {
        return Err(Problem::invalid("the query: this path has no parameters"));
    }
    Ok(next.run(request).await)
}

/// The parameters of the query.
pub(super) struct Parameters<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Parameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query
            .map(|Query(value)| Self(value))
            .map_err(|error: QueryRejection| Problem::invalid(wrong_query(&error.body_text())))
    }
}

/// Returns the error of a query with what is allowed.
fn wrong_query(error: &str) -> String {
    let error = error.strip_prefix("Failed to deserialize query string: ").unwrap_or(error);
    // The errors of numbers and flags do not say what is allowed.
    let allowed = if error.contains("`true` or `false`") {
        ": allowed are true and false"
    } else if error.contains("digit found in string")
        || error.contains("number too")
        || error.contains("integer from empty")
    {
        ": allowed is a whole number"
    } else {
        ""
    };
    format!("the query: {error}{allowed}")
}

/// The parts of the path.
pub(super) struct Segments<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Segments<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(value)| Self(value)).map_err(|error: PathRejection| Problem::invalid(error.body_text()))
    }
}

/// The body of a request. [`text`](Self::text) and [`json`](Self::json) check its media type.
pub(super) struct Body {
    /// The media type, in lower case, without parameters.
    pub(super) media_type: String,
    pub(super) bytes: Bytes,
}

impl FromRequest<Arc<Shared>> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<Self, Problem> {
        let most = shared.settings().limits.body_bytes;
        let media_type = media_type(request.headers());
        let too_long = || Problem::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {most} bytes"));
        let declared =
            request.headers().get(header::CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse::<u64>().ok());
        if declared.is_some_and(|declared| declared > most as u64) {
            // The body is not read: the connection cannot be used for another request.
            return Err(too_long().with_header(header::CONNECTION, "close"));
        }
        let (mut stream, mut bytes) = (request.into_body().into_data_stream(), Vec::new());
        let until = Instant::now() + Duration::from_secs(shared.settings().limits.patience_s.into());
        let late = |_| {
            Problem::new(StatusCode::REQUEST_TIMEOUT, "the body was not complete in time: see `limits.patience_s`")
                .with_header(header::CONNECTION, "close")
        };
        while let Some(part) = timeout_at(until, stream.next()).await.map_err(late)? {
            let part = part.map_err(|_| {
                Problem::invalid("the body is incomplete, or its chunks have faults")
                    .with_header(header::CONNECTION, "close")
            })?;
            if bytes.len() + part.len() > most {
                return Err(too_long().with_header(header::CONNECTION, "close"));
            }
            bytes.extend_from_slice(&part);
        }
        Ok(Self { media_type, bytes: bytes.into() })
    }
}

impl Body {
    /// Returns the body as a text of one of these media types.
    pub(super) fn text(&self, allowed: &[&str]) -> Result<&str, Problem> {
        self.check_type(allowed)?;
        std::str::from_utf8(&self.bytes)
            .map_err(|error| Problem::invalid(format!("the body: the byte at {} is not UTF-8", error.valid_up_to())))
    }

    /// Returns the body as JSON.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        self.check_type(&["application/json"])?;
        // Serde would accept a list of the values, too.
        if self.bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err(Problem::invalid("the body: allowed is a JSON object"));
        }
        serde_json::from_slice(&self.bytes).map_err(|error| {
            // JSON with a wrong value is not malformed (RFC 9110 section 15.5.21).
            let status = if error.is_data() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::BAD_REQUEST };
            Problem::new(status, without_keys(&format!("the body: {error}")))
        })
    }

    fn check_type(&self, allowed: &[&str]) -> Result<(), Problem> {
        if allowed.contains(&self.media_type.as_str()) {
            return Ok(());
        }
        let detail = format!("the header Content-Type: allowed is {}", allowed.join(" or "));
        Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
    }
}

/// Returns the media type of a request, in lower case and without parameters.
fn media_type(headers: &HeaderMap) -> String {
    let text = headers.get(header::CONTENT_TYPE).and_then(|text| text.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Returns the pipeline of this name.
pub(super) fn find(shared: &Shared, name: &str) -> Result<Arc<Instance>, Problem> {
    shared.instances.get(name).ok_or_else(|| {
        let known: Vec<_> = shared.instances.list().iter().map(|instance| instance.name().to_owned()).collect();
        Problem::unknown("pipeline", name, &known)
    })
}

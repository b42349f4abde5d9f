//! Errors of the API: problem details (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use forebay_protocol::ClientError;
use forebay_protocol::check::Fault;
use forebay_units::secret::without_keys;
use schemars::JsonSchema;
use serde::Serialize;

use crate::store::StoreError;

/// The media type of problem details.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// An error of the API, as its client receives it (RFC 9457 section 3).
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Problem {
    /// The type of the problem: a URI reference that does not change.
    #[serde(rename = "type")]
    pub kind: String,
    /// The problem in a few words.
    pub title: &'static str,
    /// The status of the response.
    pub status: u16,
    /// What is wrong with this request, and what to do.
    pub detail: String,
    /// The faults of a configuration, each with its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// Headers of the response.
    #[serde(skip)]
    headers: Vec<(header::HeaderName, String)>,
    /// Whether a change may have been made, although its request has failed.
    #[serde(skip)]
    pub(crate) is_effect_unknown: bool,
}

impl Problem {
    /// Creates a problem.
    #[must_use]
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        let kind = format!("urn:forebay:problem:{}", title.to_ascii_lowercase().replace([' ', '\''], "-"));
        Self {
            kind,
            title,
            status: status.as_u16(),
            detail: detail.into(),
            faults: Vec::new(),
            headers: Vec::new(),
            is_effect_unknown: false,
        }
    }

    /// Adds a header to the response.
    #[must_use]
    pub fn with_header(mut self, name: header::HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Marks that a change may have been made.
    #[must_use]
    pub(crate) fn with_unknown_effect(self) -> Self {
        Self { is_effect_unknown: true, ..self }
    }

    /// Creates the problem of a configuration with faults.
    #[must_use]
    pub fn faults(faults: Vec<Fault>) -> Self {
        let detail = format!(
            "the configuration has {} and is not used",
            forebay_units::wording::counted(faults.len() as i128, "fault")
        );
        Self { faults, ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail) }
    }

    /// Creates the problem of a name that does not exist. `known` are the names that exist.
    #[must_use]
    pub fn unknown(noun: &str, name: &str, known: &[String]) -> Self {
        let known =
            if known.is_empty() { "there is none".to_owned() } else { format!("there are {}", known.join(", ")) };
        // The name may be as long as a request.
        let name: String = name.chars().take(100).collect();
        Self::new(StatusCode::NOT_FOUND, format!("no {noun} is called '{}': {known}", without_keys(&name)))
    }

    /// Creates the problem of a query, a path or a body that is not allowed. A key in a wrong place is not repeated.
    #[must_use]
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, without_keys(&detail.into()))
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Self {
        let status = match &error {
            ClientError::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
            ClientError::Silent | ClientError::SilentAfterChange => StatusCode::GATEWAY_TIMEOUT,
            ClientError::Ended { .. } | ClientError::Connect { .. } => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_GATEWAY,
        };
        let is_effect_unknown = match &error {
            ClientError::SilentAfterChange | ClientError::Broken(_) | ClientError::Malformed(_) => true,
            ClientError::Ended { is_change, .. } => *is_change,
            _ => false,
        };
        let problem = Self { is_effect_unknown, ..Self::new(status, error.to_string()) };
        // A client that repeats a change of unknown effect may make it twice.
        let can_repeat = status == StatusCode::SERVICE_UNAVAILABLE && !is_effect_unknown;
        if can_repeat { problem.with_header(header::RETRY_AFTER, "2") } else { problem }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::KeyInUse) {
            return Self::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string());
        }
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()).with_header(header::RETRY_AFTER, "5")
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // All fields are texts and numbers.
        let body = serde_json::to_string(&self).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, PROBLEM_JSON)], body).into_response();
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

//! Whether the server works, and the description of the API.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::Server;
use crate::problem::Problem;

/// Returns `ok` while the server runs.
#[utoipa::path(get, path = "/healthz", tag = "health", security(()),
    responses((status = 200, description = "The server runs.", body = String, content_type = "text/plain")))]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Returns `ready` if the server can do its work: the store can be read, and the root helper responds.
#[utoipa::path(get, path = "/readyz", tag = "health",
    responses((status = 200, description = "The server can do its work.", body = String, content_type = "text/plain")))]
pub(super) async fn readyz(State(shared): Server) -> Result<&'static str, Problem> {
    shared.store.with(|store| store.check()).await?;
    if let Some(helper) = shared.helper.clone() {
        let identity = tokio::task::spawn_blocking(move || helper.identity()).await;
        if !matches!(identity, Ok(Ok(_))) {
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the root helper does not respond"));
        }
    }
    Ok("ready\n")
}

/// Returns the description of the API (OpenAPI 3.1).
#[utoipa::path(get, path = "/api/v1/openapi.json", tag = "health",
    responses((status = 200, description = "The description.", body = serde_json::Value,
        content_type = "application/json")))]
pub(super) async fn openapi_json() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], super::openapi::text()).into_response()
}

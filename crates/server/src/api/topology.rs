//! The cores, caches and memory nodes of this machine.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::Server;
use crate::problem::Problem;

/// Returns the topology of this machine at the start of the server, as `forebay topology --json` prints it.
#[utoipa::path(get, path = "/api/v1/topology", tag = "host",
    responses((status = 200, description = "The topology.", body = ref("#/components/schemas/TopologyReport"),
        content_type = "application/json")))]
pub(super) async fn topology(State(shared): Server) -> Result<Response, Problem> {
    match &shared.topology {
        Ok(topology) => {
            let text = serde_json::to_string(topology)
                .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
            Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
        }
        Err(why) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("the topology is unknown: {why}"))),
    }
}

//! The audit log.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Server;
use super::extract::Parameters;
use crate::guard::Admin;
use crate::problem::Problem;
use crate::store::AuditRecord;

/// The largest number of records in a response.
const MOST: usize = 1_000;

/// The query of the audit log.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    before: Option<i64>,
    most: Option<usize>,
}

/// Records of the audit log.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AuditLog {
    /// The records, newest first.
    records: Vec<AuditRecord>,
}

/// Returns the writes that came over HTTP, newest first. A record without an end means that the effect is unknown.
#[utoipa::path(get, path = "/api/v1/audit", tag = "audit", security(("token" = [])),
    params(("before" = Option<i64>, Query, description = "The number of the oldest record that the client knows."),
        ("most" = Option<u64>, Query, description = "The largest number of records; 100 by default.",
            minimum = 1, maximum = 1000)),
    responses((status = 200, description = "The records.", body = ref("#/components/schemas/AuditLog"))))]
pub(super) async fn audit(
    State(shared): Server,
    _: Admin,
    Parameters(query): Parameters<AuditQuery>,
) -> Result<Json<AuditLog>, Problem> {
    let most = query.most.unwrap_or(100);
    if !(1..=MOST).contains(&most) {
        return Err(Problem::invalid(format!("most {most}: allowed are 1 to {MOST}")));
    }
    let records = shared.store.with(move |store| store.audit(query.before, most)).await?;
    Ok(Json(AuditLog { records }))
}

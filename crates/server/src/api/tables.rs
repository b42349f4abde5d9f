//! The tables of a pipeline.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use forebay_protocol::response::TableSummary;
use forebay_protocol::{ClientError, Request, Response as Answer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{Body, Parameters, Segments, find};
use super::instances::other_response;
use super::write::{Made, Repeatable, Write};
use super::{Server, config};
use crate::guard::{Allowed, Operator, Viewer};
use crate::instances::Instance;
use crate::problem::Problem;
use crate::shared::Shared;

/// The largest number of entries in a response.
const MOST: usize = 10_000;
/// The number of entries in a response by default.
const DEFAULT: usize = 1_000;
/// The media types of changes.
const TYPES: &[&str] = &["text/plain"];

/// The tables of a pipeline.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct TableList {
    /// The tables that can be changed.
    tables: Vec<TableSummary>,
}

/// Entries of a table.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct EntryList {
    /// The entries, in the table's order.
    entries: Vec<String>,
}

/// A table that was changed.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct TableChanged {
    /// The number of changes that were made.
    made: u64,
    /// The number of entries that the changes added, removed or replaced.
    entries: u64,
    /// The first refused changes: the number of the change, counted from 1, and the reason.
    refused: Vec<(u64, String)>,
    /// The number of refused changes.
    refusals: u64,
    /// Warnings about changes that were made.
    warnings: Vec<String>,
}

/// Returns the tables of a pipeline that can be changed.
#[utoipa::path(get, path = "/api/v1/instances/{name}/tables", operation_id = "list_tables", tag = "tables",
    params(("name" = String, Path, description = "The name of the pipeline.")),
    responses((status = 200, description = "The tables.", body = ref("#/components/schemas/TableList"))))]
pub(super) async fn list(
    State(shared): Server,
    _: Viewer,
    Segments(name): Segments<String>,
) -> Result<Json<TableList>, Problem> {
    match find(&shared, &name)?.request(&shared.sockets, &Request::Tables {}).await? {
        Answer::Tables(tables) => Ok(Json(TableList { tables })),
        _ => Err(other_response()),
    }
}

/// The query of a table's entries.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EntryQuery {
    after: Option<String>,
    filter: Option<String>,
    most: Option<usize>,
}

/// Returns entries of a table.
#[utoipa::path(get, path = "/api/v1/instances/{name}/tables/{module}/{table}", tag = "tables",
    params(("name" = String, Path, description = "The name of the pipeline."),
        ("module" = String, Path, description = "The name of the module."),
        ("table" = String, Path, description = "The name of the table."),
        ("after" = Option<String>, Query, description = "The last entry that the client knows."),
        ("filter" = Option<String>, Query, description = "A filter, for tables of sessions: `10.0.0.0/24 tcp`."),
        ("most" = Option<u64>, Query, description = "The largest number of entries.", minimum = 1, maximum = 10000)),
    responses((status = 200, description = "The entries.", body = ref("#/components/schemas/EntryList"))))]
pub(super) async fn entries(
    State(shared): Server,
    _: Viewer,
    Segments((name, module, table)): Segments<(String, String, String)>,
    Parameters(query): Parameters<EntryQuery>,
) -> Result<Json<EntryList>, Problem> {
    let most = query.most.unwrap_or(DEFAULT);
    if !(1..=MOST).contains(&most) {
        return Err(Problem::invalid(format!("most {most}: allowed are 1 to {MOST}")));
    }
    let request = Request::Entries { module, table: Some(table), after: query.after, filter: query.filter, most };
    let instance = find(&shared, &name)?;
    match instance.request(&shared.sockets, &request).await {
        Ok(Answer::Entries(entries)) => Ok(Json(EntryList { entries })),
        Ok(_) => Err(other_response()),
        Err(error) => {
            if let (ClientError::Refused(_), Request::Entries { module, table: Some(table), .. }) = (&error, &request) {
                check_table(&shared, &instance, module, table).await?;
            }
            Err(error.into())
        }
    }
}

/// Checks that the pipeline has the table.
async fn check_table(shared: &Shared, instance: &Instance, module: &str, table: &str) -> Result<(), Problem> {
    let Answer::Tables(tables) = instance.request(&shared.sockets, &Request::Tables {}).await? else {
        return Err(other_response());
    };
    if tables.iter().any(|known| known.module == module && known.table == table) {
        return Ok(());
    }
    let known: Vec<_> = tables.iter().map(|known| format!("{}.{}", known.module, known.table)).collect();
    let name: String = format!("{module}.{table}").chars().take(100).collect();
    Err(Problem::unknown("table", &name, &known))
}

/// Changes entries of a table, one change a line. A refused change does not prevent the others.
#[utoipa::path(post, path = "/api/v1/instances/{name}/tables/{module}/{table}/changes", tag = "tables",
    params(("name" = String, Path, description = "The name of the pipeline."),
        ("module" = String, Path, description = "The name of the module."),
        ("table" = String, Path, description = "The name of the table.")),
    request_body(content = String, content_type = "text/plain",
        description = "The changes, one a line: `add 10.2.0.0/16 1`. The list of tables has their syntax."),
    responses((status = 200, description = "The changes were made; `refused` has those that were not.",
        body = ref("#/components/schemas/TableChanged"))))]
pub(super) async fn change(
    State(shared): Server,
    Allowed(access, peer): Operator,
    Segments((name, module, table)): Segments<(String, String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let instance = find(&shared, &name)?;
    let text = body.text(TYPES)?.to_owned();
    let lines: Vec<_> =
        text.lines().map(str::trim_end).filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
    if lines.is_empty() {
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "the body has no change: write one a line"));
    }
    // `key=@FILE` would make the pipeline open any file of its user.
    if let Some(at) = lines.iter().position(|line| line.contains("=@")) {
        let detail = format!("change {}: a change over HTTP may not name a file: write the value itself", at + 1);
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
    }
    let path = format!("/api/v1/instances/{name}/tables/{module}/{table}/changes");
    let repeatable = Repeatable::of(&headers, &access, &[b"POST", path.as_bytes(), text.as_bytes()])?;
    check_table(&shared, &instance, &module, &table).await?;
    let turn = Arc::clone(&instance.writes).lock_owned().await;
    if let Some(known) = &repeatable
        && let Some(response) = known.response(&shared).await?
    {
        return Ok(response);
    }
    let version = config::version(&shared, &instance).await;
    let write = Write {
        shared: &shared,
        access: &access,
        peer,
        method: Method::POST,
        path,
        instance: &instance,
        version_before: version.clone(),
        summary: lines.join("\n"),
    };
    let work = {
        let (shared, instance) = (Arc::clone(&shared), Arc::clone(&instance));
        async move {
            let request = Request::Change { module, table: Some(table) };
            let lines: Vec<_> = lines.iter().map(String::as_str).collect();
            let answer = instance.request_with(&shared.sockets, &request, &lines).await?;
            let Answer::Changed { made, entries, refused, refusals, warnings } = answer else {
                return Err(other_response().with_unknown_effect());
            };
            let result = format!("{made} made, {refusals} refused, {entries} entries");
            let body = TableChanged { made, entries, refused, refusals, warnings };
            Ok(Made { version_after: version, ..Made::of(&body, result) })
        }
    };
    write.make(turn, repeatable, work).await
}

//! Changes of single values, and moves of modules.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use forebay_protocol::{Action, Request, Response as Answer, WantedWorkers};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::extract::{Body, Segments, find};
use super::instances::other_response;
use super::write::{Made, Repeatable, Write};
use super::{Server, config};
use crate::access::{Access, Peer};
use crate::guard::{Allowed, Operator};
use crate::instances::Instance;
use crate::problem::Problem;
use crate::shared::Shared;

/// A value of a module to set.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WantedAction {
    /// The module.
    #[schemars(length(min = 1))]
    module: String,
    /// The action. The module index in the action is ignored.
    action: Action,
}

/// Moves of modules.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WantedMoves {
    /// The modules with their workers, in order of priority.
    #[schemars(length(min = 1))]
    modules: Vec<WantedWorkers>,
    /// The largest number of modules that may move. If it is missing, there is no limit.
    #[serde(default)]
    most: Option<usize>,
    /// Whether modules may move even if they lose their sessions.
    #[serde(default)]
    lose_sessions: bool,
}

/// A change that was made.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Done {
    /// True.
    done: bool,
}

/// Sets a value of a module until the next change of the configuration: its trigger, hold limit, weight or rate.
#[utoipa::path(post, path = "/api/v1/instances/{name}/actions", tag = "changes",
    params(("name" = String, Path, description = "The name of the pipeline.")),
    request_body(content = ref("#/components/schemas/WantedAction"), content_type = "application/json"),
    responses((status = 200, description = "All workers have set the value.",
        body = ref("#/components/schemas/Done"))))]
pub(super) async fn act(
    State(shared): Server,
    Allowed(access, peer): Operator,
    Segments(name): Segments<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let instance = find(&shared, &name)?;
    let wanted: WantedAction = body.json()?;
    // It concerns all sources, and some values of it end the run.
    if matches!(wanted.action, Action::SetOffer { .. }) {
        let detail = "set_offer is no action of a module: allowed are set_trigger, set_hold, set_weight and set_rate";
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
    }
    let request = Request::Act { module: wanted.module.clone(), action: wanted.action.clone() };
    let path = format!("/api/v1/instances/{name}/actions");
    let change = Change { shared: &shared, instance: &instance, access: &access, peer, path };
    change
        .make(&headers, &body, request, json!(wanted).to_string(), |answer| match answer {
            Answer::Done => Ok(Made::of(&Done { done: true }, "done")),
            _ => Err(other_response().with_unknown_effect()),
        })
        .await
}

/// Moves modules to other workers, while packets keep flowing.
#[utoipa::path(post, path = "/api/v1/instances/{name}/moves", tag = "changes",
    params(("name" = String, Path, description = "The name of the pipeline.")),
    request_body(content = ref("#/components/schemas/WantedMoves"), content_type = "application/json"),
    responses((status = 200, description = "The moves.", body = ref("#/components/schemas/Moved"))))]
pub(super) async fn move_modules(
    State(shared): Server,
    Allowed(access, peer): Operator,
    Segments(name): Segments<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let instance = find(&shared, &name)?;
    let wanted: WantedMoves = body.json()?;
    if wanted.modules.is_empty() {
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "modules: name at least one module to move"));
    }
    let summary = json!(wanted).to_string();
    let WantedMoves { modules, most, lose_sessions } = wanted;
    let path = format!("/api/v1/instances/{name}/moves");
    let change = Change { shared: &shared, instance: &instance, access: &access, peer, path };
    let request = Request::Move { modules, most, lose_sessions };
    change
        .make(&headers, &body, request, summary, |answer| match answer {
            Answer::Moved(moved) => {
                let result = format!("{} moved, {} not moved", moved.moves.len(), moved.remaining.len());
                Ok(Made::of(&moved, result))
            }
            _ => Err(other_response().with_unknown_effect()),
        })
        .await
}

/// A change of a pipeline by one request.
struct Change<'c> {
    shared: &'c Arc<Shared>,
    instance: &'c Arc<Instance>,
    access: &'c Access,
    peer: Peer,
    path: String,
}

impl Change<'_> {
    /// Sends the request, with its records in the audit log.
    async fn make(
        self,
        headers: &HeaderMap,
        body: &Body,
        request: Request,
        summary: String,
        result: impl FnOnce(Answer) -> Result<Made, Problem> + Send + 'static,
    ) -> Result<Response, Problem> {
        let Self { shared, instance, access, peer, path } = self;
        let repeatable = Repeatable::of(headers, access, &[b"POST", path.as_bytes(), &body.bytes])?;
        let turn = Arc::clone(&instance.writes).lock_owned().await;
        if let Some(known) = &repeatable
            && let Some(response) = known.response(shared).await?
        {
            return Ok(response);
        }
        let version_before = config::version(shared, instance).await;
        let write = Write { shared, access, peer, method: Method::POST, path, instance, version_before, summary };
        let work = {
            let (shared, instance) = (Arc::clone(shared), Arc::clone(instance));
            async move {
                let answer = instance.request(&shared.sockets, &request).await?;
                let made = result(answer)?;
                instance.reports.clear().await;
                Ok(Made { version_after: config::version(&shared, &instance).await, ..made })
            }
        };
        write.make(turn, repeatable, work).await
    }
}

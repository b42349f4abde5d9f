//! What pipelines do now: their state, graph, counters, events and alarms.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use forebay_protocol::event::Event;
use forebay_protocol::report::{
    ChangeReport, ControlReport, FlowReport, ModuleReport, Packets, PortReport, WorkerReport,
};
use forebay_protocol::{GraphReport, Report, Request, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Server;
use super::extract::{Parameters, Segments, find};
use crate::alarms::Alarm;
use crate::guard::Viewer;
use crate::overview::InstanceOverview;
use crate::problem::Problem;
use crate::shared::Shared;

/// All pipelines of this host.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct InstanceList {
    /// The pipelines, by name. One that has ended stays in the list for an hour.
    instances: Vec<InstanceOverview>,
    /// The number of active alarms, with those of the server.
    alarms: usize,
}

/// The active alarms.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AlarmList {
    /// The alarms: critical ones first, then in the order of their beginning.
    alarms: Vec<Alarm>,
}

/// The modules of a pipeline.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ModuleList {
    /// The modules in topological order.
    modules: Vec<ModuleReport>,
}

/// The flows of a pipeline.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct FlowList {
    /// The flows.
    flows: Vec<FlowReport>,
}

/// The ports of a pipeline.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct PortList {
    /// The ports.
    ports: Vec<PortReport>,
}

/// The workers of a pipeline.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct WorkerList {
    /// The workers.
    workers: Vec<WorkerReport>,
}

/// The controller of a pipeline with its decisions.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Decisions {
    /// The controller; `null` if the pipeline has none.
    control: Option<ControlReport>,
    /// The last changes of triggers that the server has seen, oldest first: at most 200.
    changes: Vec<ChangeReport>,
}

/// Events of a pipeline.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct EventList {
    /// The events, oldest first. A gap in their numbers means that older events are no longer kept.
    events: Vec<Event>,
}

/// Returns the state of all pipelines of this host.
#[utoipa::path(get, path = "/api/v1/instances", tag = "instances",
    responses((status = 200, description = "The pipelines.", body = ref("#/components/schemas/InstanceList"))))]
pub(super) async fn list(State(shared): Server) -> Json<InstanceList> {
    let all = shared.instances.list();
    let instances = all.iter().map(|instance| InstanceOverview::of(&shared, instance)).collect();
    Json(InstanceList { instances, alarms: shared.alarms.list().len() })
}

/// Returns the state of a pipeline.
#[utoipa::path(get, path = "/api/v1/instances/{name}", tag = "instances",
    params(("name" = String, Path, description = "The name of the pipeline.")),
    responses((status = 200, description = "The state.", body = ref("#/components/schemas/InstanceOverview"))))]
pub(super) async fn overview(
    State(shared): Server,
    Segments(name): Segments<String>,
) -> Result<Json<InstanceOverview>, Problem> {
    Ok(Json(InstanceOverview::of(&shared, &*find(&shared, &name)?)))
}

/// Returns the graph of a pipeline.
#[utoipa::path(get, path = "/api/v1/instances/{name}/graph", tag = "instances",
    params(("name" = String, Path, description = "The name of the pipeline.")),
    responses((status = 200, description = "The graph.", body = ref("#/components/schemas/GraphReport"))))]
pub(super) async fn graph(
    State(shared): Server,
    Segments(name): Segments<String>,
) -> Result<Json<GraphReport>, Problem> {
    match find(&shared, &name)?.request(&shared.sockets, &Request::Graph {}).await? {
        Response::Graph(graph) => Ok(Json(*graph)),
        _ => Err(other_response()),
    }
}

/// Returns the problem of a response that does not belong to the request.
pub(super) fn other_response() -> Problem {
    Problem::new(axum::http::StatusCode::BAD_GATEWAY, "the pipeline sent a response to another request")
}

/// Returns a report of the whole run that is at most a second old.
async fn report(shared: &Shared, name: &str) -> Result<Arc<Report>, Problem> {
    let instance = find(shared, name)?;
    Ok(instance.reports.get(&instance, &shared.sockets).await?)
}

/// Returns the modules of a pipeline with their counters since the start of the run.
#[utoipa::path(get, path = "/api/v1/instances/{name}/modules", tag = "instances",
    params(("name" = String, Path, description = "The name of the pipeline.")),
    responses((status = 200, description = "The modules.", body = ref("#/components/schemas/ModuleList"))))]
pub(super) async fn modules(
    State(shared): Server,
    Segments(name): Segments<String>,
) -> Result<Json<ModuleList>, Problem> {
    Ok(Json(ModuleList { modules: report(&shared, &name).await?.modules.clone() }))
}

/// Returns one module, also with its counters per rule or table entry.
#[utoipa::path(get, path = "/api/v1/instances/{name}/modules/{module}", tag = "instances",
    params(("name" = String, Path, description = "The name of the pipeline."),
        ("module" = String, Path, description = "The name of the module.")),
    responses((status = 200, description = "The module.", body = ref("#/components/schemas/ModuleReport"))))]
pub(super) async fn module(
    State(shared): Server,
    _: Viewer,
    Segments((name, module)): Segments<(String, String)>,
) -> Result<Json<ModuleReport>, Problem> {
    let instance = find(&shared, &name)?;
    let known =
        instance.live().whole.map(|whole| whole.modules.iter().map(|module| module.name.clone()).collect::<Vec<_>>());
    let known = known.unwrap_or_default();
    let unknown = || Problem::unknown("module", &module, &known);
    if !known.contains(&module) {
        return Err(unknown());
    }
    let request = Request::Report { recent: false, rules: vec![module.clone()], histograms: false };
    match instance.request(&shared.sockets, &request).await? {
        Response::Report { whole, .. } => {
            let found = whole.modules.into_iter().find(|found| found.name == module);
            found.map(Json).ok_or_else(unknown)
        }
        _ => Err(other_response()),
    }
}

/// Returns the flows of a pipeline with their delays since the start of the run.
#[utoipa::path(get, path = "/api/v1/instances/{name}/flows", tag = "instances",
    params(("name" = String, Path, description = "The name of the pipeline.")),
    responses((status = 200, description = "The flows.", body = ref("#/components/schemas/FlowList"))))]
pub(super) async fn flows(State(shared): Server, Segments(name): Segments<String>) -> Result<Json<FlowList>, Problem> {
    let mut flows = report(&shared, &name).await?.flows.clone();
    // The distributions are for metrics: they are most of the length.
    flows.iter_mut().for_each(|flow| flow.delay_counts = None);
    Ok(Json(FlowList { flows }))
}

/// Returns the ports of a pipeline with their counters since the start of the run.
#[utoipa::path(get, path = "/api/v1/instances/{name}/ports", tag = "instances",
    params(("name" = String, Path, description = "The name of the pipeline.")),
    responses((status = 200, description = "The ports.", body = ref("#/components/schemas/PortList"))))]
pub(super) async fn ports(State(shared): Server, Segments(name): Segments<String>) -> Result<Json<PortList>, Problem> {
    Ok(Json(PortList { ports: report(&shared, &name).await?.ports.clone() }))
}

/// Returns the workers of a pipeline.
#[utoipa::path(get, path = "/api/v1/instances/{name}/workers", tag = "instances",
    params(("name" = String, Path, description = "The name of the pipeline.")),
    responses((status = 200, description = "The workers.", body = ref("#/components/schemas/WorkerList"))))]
pub(super) async fn workers(
    State(shared): Server,
    Segments(name): Segments<String>,
) -> Result<Json<WorkerList>, Problem> {
    Ok(Json(WorkerList { workers: report(&shared, &name).await?.workers.clone() }))
}

/// Returns where every packet of a pipeline is, with drops by reason.
#[utoipa::path(get, path = "/api/v1/instances/{name}/drops", tag = "instances",
    params(("name" = String, Path, description = "The name of the pipeline.")),
    responses((status = 200, description = "The packets.", body = ref("#/components/schemas/Packets"))))]
pub(super) async fn drops(State(shared): Server, Segments(name): Segments<String>) -> Result<Json<Packets>, Problem> {
    Ok(Json(report(&shared, &name).await?.packets.clone()))
}

/// Returns the controller of a pipeline with its last decisions.
#[utoipa::path(get, path = "/api/v1/instances/{name}/decisions", tag = "instances",
    params(("name" = String, Path, description = "The name of the pipeline.")),
    responses((status = 200, description = "The controller.", body = ref("#/components/schemas/Decisions"))))]
pub(super) async fn decisions(
    State(shared): Server,
    _: Viewer,
    Segments(name): Segments<String>,
) -> Result<Json<Decisions>, Problem> {
    let control = report(&shared, &name).await?.control.clone();
    let changes = find(&shared, &name)?.changes();
    Ok(Json(Decisions { control, changes }))
}

/// The query of a pipeline's events.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventQuery {
    #[serde(default)]
    after: u64,
}

/// Returns the events that a pipeline keeps: the last 1024.
#[utoipa::path(get, path = "/api/v1/instances/{name}/events", tag = "instances",
    params(("name" = String, Path, description = "The name of the pipeline."),
        ("after" = Option<u64>, Query, description = "The number of the last event that the client knows.",
            minimum = 0)),
    responses((status = 200, description = "The events.", body = ref("#/components/schemas/EventList"))))]
pub(super) async fn instance_events(
    State(shared): Server,
    Segments(name): Segments<String>,
    Parameters(query): Parameters<EventQuery>,
) -> Result<Json<EventList>, Problem> {
    let most = i64::MAX.unsigned_abs();
    if query.after > most {
        return Err(Problem::invalid(format!("after {}: allowed are 0 to {most}", query.after)));
    }
    let request = Request::Events { after: query.after, follow: false };
    match find(&shared, &name)?.request(&shared.sockets, &request).await? {
        Response::Events(events) => Ok(Json(EventList { events })),
        _ => Err(other_response()),
    }
}

/// Returns the active alarms of all pipelines and of the server.
#[utoipa::path(get, path = "/api/v1/alarms", tag = "instances",
    responses((status = 200, description = "The alarms.", body = ref("#/components/schemas/AlarmList"))))]
pub(super) async fn alarms(State(shared): Server) -> Json<AlarmList> {
    Json(AlarmList { alarms: shared.alarms.list() })
}

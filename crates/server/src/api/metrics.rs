//! The metrics of all pipelines and of the server.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use forebay_protocol::Report;
use futures_util::future::join_all;
use serde::Deserialize;

use super::Server;
use super::extract::Parameters;
use crate::instances::{Instance, Status};
use crate::metrics::{self, InstanceMetrics, Options, ServerMetrics};
use crate::process;

/// The query of the metrics.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    #[serde(default)]
    all_modules: bool,
}

/// Returns the metrics of all pipelines and of the server, in the format that the client prefers.
#[utoipa::path(get, path = "/metrics", tag = "metrics",
    params(("all_modules" = Option<bool>, Query,
        description = "Whether each of 64 and more equal modules has its own series.")),
    responses((status = 200, description = "The metrics: Prometheus text, OpenMetrics, or Prometheus protobuf.",
        body = String, content_type = "text/plain")))]
pub(super) async fn metrics(
    State(shared): Server,
    Parameters(query): Parameters<Query>,
    headers: HeaderMap,
) -> Response {
    // A pipeline that has ended on purpose has no series: Prometheus sees that it is gone. A killed one is down.
    let mut all = shared.instances.list();
    all.retain(|instance| instance.status() != Status::Ended);
    // A pipeline that does not respond has no figures. Its `forebay_instance_up` is 0.
    let reports = join_all(all.iter().map(async |instance| match instance.status() {
        Status::Running => instance.reports.get(instance, &shared.sockets).await.ok(),
        _ => None,
    }))
    .await;
    let describe = |(instance, report): (&'_ Arc<Instance>, &'_ Option<Arc<Report>>)| {
        let started = instance.hello().started.parse::<jiff::Timestamp>().ok();
        let changes = instance.live().configuration.map(|(_, changes)| changes);
        (started.map(|at| at.as_millisecond() as f64 / 1e3), changes.filter(|_| report.is_some()))
    };
    let described: Vec<_> = all.iter().zip(&reports).map(describe).collect();
    let instances: Vec<_> = all
        .iter()
        .zip(&reports)
        .zip(described)
        .map(|((instance, report), (started_s, config_changes))| InstanceMetrics {
            name: instance.name(),
            is_up: report.is_some(),
            hello: Some(instance.hello()),
            started_s,
            report: report.as_deref(),
            config_changes,
            alarms: shared.alarms.count(instance.name()),
        })
        .collect();
    let usage = process::usage();
    let is_in_memory = shared.settings().store.as_deref() == Some(Path::new("memory"));
    let store_bytes = if is_in_memory { None } else { shared.store.with(|store| store.bytes()).await.ok() };
    let server = ServerMetrics {
        version: shared.version,
        started_s: Some(shared.started_ms as f64 / 1e3),
        requests: std::array::from_fn(|class| shared.counts.responses[class + 2].load(Ordering::Relaxed)),
        viewers: shared.counts.viewers.load(Ordering::Relaxed),
        store_bytes,
        resident_bytes: usage.resident_bytes,
        cpu_s: usage.cpu_s,
    };
    let options = Options { all_modules: query.all_modules || shared.settings().metrics.all_modules };
    let mut families = metrics::families(&instances, &server, &options);
    shared.steady.lock().unwrap_or_else(PoisonError::into_inner).hold(&mut families, &instances);
    let format = metrics::negotiate(headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()));
    ([(header::CONTENT_TYPE, format.content_type())], metrics::encode(format, &families)).into_response()
}

//! Traces of packets.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use forebay_protocol::{Request, Response as Answer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use super::Server;
use super::extract::{Parameters, Segments, find};
use crate::guard::Viewer;
use crate::problem::Problem;

/// The largest number of packets in a response.
const MOST: u64 = 100;
/// The longest time of a trace, in milliseconds.
const LONGEST_MS: u64 = 9_000;

/// The query of a trace.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TraceQuery {
    count: Option<u64>,
    filter: Option<String>,
    for_ms: Option<u64>,
}

/// Traced packets.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Trace {
    /// The path of each packet, in words.
    stories: Vec<String>,
    /// Whether the trace has as many packets as requested. Otherwise its time was over before.
    complete: bool,
}

/// Traces the next packets of a pipeline. While it traces, the pipeline is slower.
#[utoipa::path(get, path = "/api/v1/instances/{name}/trace", tag = "instances",
    params(("name" = String, Path, description = "The name of the pipeline."),
        ("count" = Option<u64>, Query, description = "The number of packets, 1 by default.",
            minimum = 1, maximum = 100),
        ("filter" = Option<String>, Query, description = "A filter: `tcp and dst port 443`."),
        ("for_ms" = Option<u64>, Query, description = "The longest time, in milliseconds; 1000 by default.",
            minimum = 1, maximum = 9000)),
    responses((status = 200, description = "The traces.", body = ref("#/components/schemas/Trace"))))]
pub(super) async fn trace(
    State(shared): Server,
    _: Viewer,
    Segments(name): Segments<String>,
    Parameters(query): Parameters<TraceQuery>,
) -> Result<Json<Trace>, Problem> {
    let (count, for_ms) = (query.count.unwrap_or(1), query.for_ms.unwrap_or(1_000));
    for (key, value, most) in [("count", count, MOST), ("for_ms", for_ms, LONGEST_MS)] {
        if !(1..=most).contains(&value) {
            return Err(Problem::invalid(format!("{key} {value}: allowed are 1 to {most}")));
        }
    }
    let instance = find(&shared, &name)?;
    let Ok(_one) = instance.traces.try_acquire() else {
        let detail = "another trace of this pipeline runs: try again later";
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).with_header(header::RETRY_AFTER, "10"));
    };
    let mut connection = instance.connect(&shared.sockets).await?;
    let until = Instant::now() + Duration::from_millis(for_ms);
    let mut stories = Vec::new();
    let request = Request::Trace { count, filter: query.filter };
    let mut answer = timeout_at(until, connection.request(&request)).await;
    loop {
        match answer {
            Ok(Ok(Answer::Story(story))) => stories.push(story),
            // When the connection is dropped, the instance ends the trace.
            Ok(Ok(_)) | Err(_) => break,
            Ok(Err(error)) => return Err(error.into()),
        }
        answer = timeout_at(until, connection.next()).await;
    }
    let complete = stories.len() as u64 == count;
    Ok(Json(Trace { stories, complete }))
}

//! The history of pipelines.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Server;
use super::extract::{Parameters, Segments};
use crate::history::now_s;
use crate::problem::Problem;
use crate::shared::Shared;
use crate::store::{Figures, History, HistoryQuery, Resolution, Subject};

/// The largest number of points in a response.
const MOST: usize = 10_000;
/// The seconds of a day.
const DAY: i64 = 86_400;

/// The query of a history.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    module: Option<String>,
    flow: Option<String>,
    from: Option<i64>,
    to: Option<i64>,
    resolution: Option<String>,
    most: Option<usize>,
}

/// Figures over time, by column. All columns have the same length.
///
/// There is no row for a time without a sample, or at which the module or flow did not exist.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "History")]
pub(super) struct HistoryPage {
    /// The length of the intervals.
    resolution: Resolution,
    /// The times, in seconds since 1970: the end of 10 seconds, or the beginning of 5 minutes that is a multiple of 5
    /// minutes. No time is repeated.
    at: Vec<i64>,
    /// The time that the figures cover, in seconds. It is shorter if the pipeline or server did not run all the time.
    interval_s: Vec<Option<f32>>,
    /// The figures.
    figures: Figures,
    /// The time of the next row, if there are more rows than requested: the `from` of the next query.
    next: Option<i64>,
}

impl From<History> for HistoryPage {
    fn from(history: History) -> Self {
        let History { resolution, at, interval_s, figures, next } = history;
        let seconds = |ms: i64| ms.div_euclid(1_000);
        Self { resolution, at: at.into_iter().map(seconds).collect(), interval_s, figures, next: next.map(seconds) }
    }
}

/// Returns figures of the last day (every 10 s) or week (every 5 minutes): of a flow, of a module, or of the pipeline.
#[utoipa::path(get, path = "/api/v1/instances/{name}/history", tag = "instances",
    params(("name" = String, Path, description = "The name of the pipeline. It may have ended."),
        ("module" = Option<String>, Query, description = "The module."),
        ("flow" = Option<String>, Query, description = "The flow."),
        ("from" = Option<i64>, Query,
            description = "The beginning, in seconds since 1970; by default a day before the end."),
        ("to" = Option<i64>, Query, description = "The end, in seconds since 1970; by default now."),
        ("resolution" = Option<String>, Query,
            description = "The time between two points: `10s` (the default) or `5m`.", pattern = "^(10s|5m)$"),
        ("most" = Option<u64>, Query,
            description = "The largest number of points. If there are more, `next` begins the next page.",
            minimum = 1, maximum = 10000)),
    responses((status = 200, description = "The figures, in columns.", body = ref("#/components/schemas/History"))))]
pub(super) async fn history(
    State(shared): Server,
    Segments(name): Segments<String>,
    Parameters(query): Parameters<Query>,
) -> Result<Json<HistoryPage>, Problem> {
    let subject = match (query.module, query.flow) {
        (None, None) => Subject::Total,
        (Some(module), None) => Subject::Module(module),
        (None, Some(flow)) => Subject::Flow(flow),
        (Some(_), Some(_)) => return Err(Problem::invalid("allowed is `module` or `flow`, not both")),
    };
    let resolution = match query.resolution.as_deref() {
        None | Some("10s") => Resolution::TenSeconds,
        Some("5m") => Resolution::FiveMinutes,
        Some(_) => return Err(Problem::invalid("resolution: allowed are 10s and 5m")),
    };
    let most = query.most.unwrap_or(MOST);
    if !(1..=MOST).contains(&most) {
        return Err(Problem::invalid(format!("most {most}: allowed are 1 to {MOST}")));
    }
    let to = query.to.unwrap_or_else(now_s);
    let from = query.from.unwrap_or_else(|| to.saturating_sub(DAY));
    let is_known = shared.instances.get(&name).is_some();
    let unknown = unknown_subject(&shared, &name, &subject);
    // The store counts milliseconds.
    let (from, to) = (from.saturating_mul(1_000), to.saturating_mul(1_000));
    let history = shared.store.with(move |store| {
        if !is_known && !store.instances_with_history()?.contains(&name) {
            return Ok(Err(name));
        }
        store.history(&HistoryQuery { instance: name, subject, from, to, resolution, most }).map(Ok)
    });
    let history = history.await?;
    if let (Ok(History { at, .. }), Some(unknown)) = (&history, unknown)
        && at.is_empty()
    {
        return Err(unknown);
    }
    history.map(|history| Json(history.into())).map_err(|name| {
        let known: Vec<_> = shared.instances.list().iter().map(|instance| instance.name().to_owned()).collect();
        Problem::unknown("pipeline", &name, &known)
    })
}

/// Returns the problem of a subject that the configuration in force does not have. It may have history nevertheless.
fn unknown_subject(shared: &Shared, name: &str, subject: &Subject) -> Option<Problem> {
    let whole = shared.instances.get(name)?.live().whole?;
    let (noun, subject, known): (_, _, Vec<String>) = match subject {
        Subject::Total => return None,
        Subject::Module(module) => ("module", module, whole.modules.iter().map(|it| it.name.clone()).collect()),
        Subject::Flow(flow) => ("flow", flow, whole.flows.iter().map(|it| it.name.clone()).collect()),
    };
    (!known.contains(subject)).then(|| Problem::unknown(noun, subject, &known))
}

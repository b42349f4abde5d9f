//! The HTTP API, version 1.

mod audit;
mod changes;
mod config;
mod extract;
mod functions;
mod health;
mod history;
mod instances;
mod metrics;
mod openapi;
mod stream;
mod tables;
mod topology;
mod trace;
mod write;

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::guard::guard;
use crate::page;
use crate::problem::Problem;
use crate::shared::Shared;

pub use openapi::openapi;

/// The state that handlers share.
type Server = axum::extract::State<Arc<Shared>>;

/// Returns all routes with their descriptions.
fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new()
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(metrics::metrics))
        .routes(routes!(health::openapi_json))
        .routes(routes!(instances::list))
        .routes(routes!(instances::overview))
        .routes(routes!(instances::graph))
        .routes(routes!(instances::modules))
        .routes(routes!(instances::module))
        .routes(routes!(instances::flows))
        .routes(routes!(instances::ports))
        .routes(routes!(instances::workers))
        .routes(routes!(instances::drops))
        .routes(routes!(instances::decisions))
        .routes(routes!(instances::instance_events))
        .routes(routes!(config::get, config::put))
        .routes(routes!(tables::list))
        .routes(routes!(tables::entries))
        .routes(routes!(tables::change))
        .routes(routes!(changes::act))
        .routes(routes!(changes::move_modules))
        .routes(routes!(trace::trace))
        .routes(routes!(history::history))
        .routes(routes!(instances::alarms))
        .routes(routes!(stream::events))
        .routes(routes!(audit::audit))
        .routes(routes!(topology::topology))
        .routes(routes!(functions::function))
}

/// Returns the service that responds to requests.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let (router, _) = routes().split_for_parts();
    router
        .route_layer(from_fn(extract::check_query))
        .merge(page::routes())
        .fallback(async || {
            Problem::new(StatusCode::NOT_FOUND, "there is nothing at this path: see /api/v1/openapi.json")
        })
        .method_not_allowed_fallback(async || {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this path has other methods: see the header Allow")
        })
        .layer(from_fn_with_state(Arc::clone(&shared), guard))
        .with_state(shared)
}

//! The configuration of a pipeline.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use forebay_protocol::check::Checked;
use forebay_protocol::response::Configuration;
use forebay_protocol::{ClientError, Reloaded, Request, Response as Answer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Server;
use super::extract::{Body, Parameters, Segments, find};
use super::instances::other_response;
use super::write::{Made, Repeatable, Write};
use crate::guard::{Admin, Allowed, Viewer};
use crate::instances::Instance;
use crate::problem::Problem;
use crate::shared::Shared;

/// The media types of a configuration.
const TYPES: &[&str] = &["application/yaml", "text/yaml", "application/x-yaml"];

/// A configuration that was put in force, or checked.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ConfigurationResult {
    /// Whether the configuration was only checked (`dry_run`).
    dry_run: bool,
    /// The version of the configuration in force now.
    version: String,
    /// The result of the reload; `null` if the configuration was only checked.
    reloaded: Option<Reloaded>,
    /// The result of the check.
    checked: Checked,
}

/// Returns the configuration in force. Every secret in it is `***`.
#[utoipa::path(get, path = "/api/v1/instances/{name}/config", tag = "configuration",
    params(("name" = String, Path, description = "The name of the pipeline.")),
    responses((status = 200, description = "The configuration. The header ETag has its version.",
        body = ref("#/components/schemas/Configuration"), headers(("ETag" = String, description = "The version.")))))]
pub(super) async fn get(
    State(shared): Server,
    _: Viewer,
    Segments(name): Segments<String>,
) -> Result<Response, Problem> {
    let configuration = configuration(&shared, &*find(&shared, &name)?).await?;
    let tag = tag(&configuration.version);
    Ok(([(header::ETAG, tag)], Json(configuration)).into_response())
}

async fn configuration(shared: &Shared, instance: &Instance) -> Result<Configuration, Problem> {
    match instance.request(&shared.sockets, &Request::Config {}).await? {
        Answer::Config(configuration) => Ok(*configuration),
        _ => Err(other_response()),
    }
}

/// Returns the entity tag of a version.
fn tag(version: &str) -> HeaderValue {
    // A version has digits only.
    HeaderValue::from_str(&format!("\"{version}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// The query of a new configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PutQuery {
    #[serde(default)]
    dry_run: bool,
}

/// Puts another configuration in force, completely or not at all. A `***` in it stands for the secret in force.
#[utoipa::path(put, path = "/api/v1/instances/{name}/config", tag = "configuration",
    params(("name" = String, Path, description = "The name of the pipeline."),
        ("dry_run" = Option<bool>, Query, description = "Whether the configuration is only checked."),
        ("If-Match" = Option<String>, Header,
            description = "The version that the client has changed: an ETag of GET.")),
    request_body(content = String, content_type = "application/yaml", description = "The configuration, in YAML."),
    responses((status = 200, description = "The configuration is in force, or was checked.",
        body = ref("#/components/schemas/ConfigurationResult"),
        headers(("ETag" = String, description = "The version.")))))]
pub(super) async fn put(
    State(shared): Server,
    Allowed(access, peer): Admin,
    Segments(name): Segments<String>,
    Parameters(query): Parameters<PutQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let instance = find(&shared, &name)?;
    let text = body.text(TYPES)?.to_owned();
    let wanted = wanted_version(&headers)?;
    let path = format!("/api/v1/instances/{name}/config");
    let repeatable = Repeatable::of(&headers, &access, &[b"PUT", path.as_bytes(), wanted.as_bytes(), text.as_bytes()])?;
    let repeatable = repeatable.filter(|_| !query.dry_run);
    // Writes of this server come one after the other. The instance itself refuses the reload if another program has
    // changed the configuration meanwhile.
    let turn = Arc::clone(&instance.writes).lock_owned().await;
    if let Some(known) = &repeatable
        && let Some(response) = known.response(&shared).await?
    {
        return Ok(response);
    }
    let now = configuration(&shared, &instance).await?.version;
    if !wanted.is_empty() && wanted != now {
        return Err(stale(&now));
    }
    let config_paths = config_paths(&shared);
    let request = Request::Check { text: text.clone(), config_paths: Some(config_paths.clone()) };
    let checked = match instance.request(&shared.sockets, &request).await? {
        Answer::Checked(checked) => *checked,
        _ => return Err(other_response()),
    };
    if query.dry_run && checked.faults.is_empty() {
        let result = ConfigurationResult { dry_run: true, version: now.clone(), reloaded: None, checked };
        return Ok(([(header::ETAG, tag(&now))], Json(result)).into_response());
    }
    if query.dry_run {
        return Err(Problem::faults(checked.faults));
    }
    let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    let write = Write {
        shared: &shared,
        access: &access,
        peer,
        method: Method::PUT,
        path,
        instance: &instance,
        version_before: Some(now.clone()),
        // The text may contain secrets.
        summary: format!("{} bytes, SHA-256 {}", text.len(), crate::access::hexadecimal(&hash)),
    };
    let work = reload(Arc::clone(&shared), Arc::clone(&instance), text, config_paths, now, checked);
    write.make(turn, repeatable, work).await
}

/// Returns the folders in which configurations may name files.
fn config_paths(shared: &Shared) -> Vec<String> {
    shared.settings().config_paths.iter().map(|path| path.display().to_string()).collect()
}

/// Returns the version that a request names; empty for any version.
fn wanted_version(headers: &HeaderMap) -> Result<String, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else {
        let detail = "the header If-Match is missing: read the configuration, and send its ETag, so that no change of \
                      another person is lost";
        return Err(Problem::new(StatusCode::PRECONDITION_REQUIRED, detail));
    };
    let text = value.to_str().map(str::trim).ok();
    if text == Some("*") {
        return Ok(String::new());
    }
    let version = text.and_then(|text| text.strip_prefix('"')?.strip_suffix('"')).filter(|version| is_tag(version));
    let wrong = || Problem::invalid("the header If-Match: allowed is one ETag in quotes, or *");
    version.map(str::to_owned).ok_or_else(wrong)
}

/// Returns whether a text is the content of an entity tag, in ASCII (RFC 9110 section 8.8.3).
fn is_tag(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"')
}

fn stale(now: &str) -> Problem {
    let detail = format!("the configuration has changed: its version is {now}: read it again, and repeat the change");
    Problem::new(StatusCode::PRECONDITION_FAILED, detail).with_header(header::ETAG, format!("\"{now}\""))
}

/// Puts a configuration in force that was checked.
async fn reload(
    shared: Arc<Shared>,
    instance: Arc<Instance>,
    text: String,
    config_paths: Vec<String>,
    before: String,
    checked: Checked,
) -> Result<Made, Problem> {
    if !checked.faults.is_empty() {
        return Err(Problem::faults(checked.faults));
    }
    let request = Request::Reload {
        file: None,
        text: Some(text),
        config_paths: Some(config_paths),
        set: None,
        forget: false,
        if_version: Some(before.clone()),
    };
    let answer = instance.request(&shared.sockets, &request).await;
    let version = configuration(&shared, &instance).await.map(|configuration| configuration.version);
    instance.reports.clear().await;
    match (answer, version) {
        (Ok(Answer::Reloaded(reloaded)), version) => {
            // If the pipeline ends just now, its version is unknown.
            let version = version.unwrap_or_default();
            let result = serde_json::to_string(&reloaded.change).unwrap_or_default();
            let body =
                ConfigurationResult { dry_run: false, version: version.clone(), reloaded: Some(reloaded), checked };
            let mut made = Made::of(&body, result);
            made.response.headers_mut().insert(header::ETAG, tag(&version));
            made.version_after = Some(version);
            Ok(made)
        }
        (Err(ClientError::Refused(_)), Ok(now)) if now != before => Err(stale(&now)),
        (Err(error), _) => Err(error.into()),
        (Ok(_), _) => Err(other_response().with_unknown_effect()),
    }
}

/// Returns the version of the configuration in force, for the audit log. `None` if the pipeline does not respond.
pub(super) async fn version(shared: &Shared, instance: &Instance) -> Option<String> {
    configuration(shared, instance).await.ok().map(|configuration| configuration.version)
}

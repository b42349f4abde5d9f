//! The description of the API (OpenAPI 3.1), from the code of the handlers.
//!
//! The schemas of bodies are those of the protocol's own types. OpenAPI 3.1 uses JSON Schema 2020-12, so they are
//! inserted as they are.

use std::collections::HashMap;
use std::sync::OnceLock;

use axum::http::Method;
use forebay_host::topology::TopologyReport;
use forebay_protocol::report::{ModuleReport, Packets};
use forebay_protocol::response::Configuration;
use forebay_protocol::{GraphReport, Moved};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use super::write::MAX_KEY;
use super::{audit, changes, config, history, instances, tables, trace};
use crate::overview::InstanceOverview;
use crate::problem::{PROBLEM_JSON, Problem};

/// Returns the description of the API as text.
pub(super) fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| openapi().to_string())
}

/// Returns whether an operation has parameters in the query; `None` if there is no such operation.
///
/// Only this is kept: the whole description takes more than a megabyte of memory.
pub(super) fn has_query(path: &str, method: &Method) -> Option<bool> {
    static KNOWN: OnceLock<HashMap<String, HashMap<String, bool>>> = OnceLock::new();
    let is_query = |parameter: &Value| parameter["in"] == "query";
    let takes_query =
        |operation: &Value| operation["parameters"].as_array().is_some_and(|all| all.iter().any(is_query));
    let operations = |item: &Value| {
        let all = item.as_object().into_iter().flatten();
        all.map(|(method, operation)| (method.to_ascii_uppercase(), takes_query(operation))).collect()
    };
    let known = KNOWN.get_or_init(|| {
        let description = openapi();
        let paths = description["paths"].as_object().into_iter().flatten();
        paths.map(|(path, item)| (path.clone(), operations(item))).collect()
    });
    known.get(path)?.get(method.as_str()).copied()
}

/// Returns the description of the API.
#[must_use]
pub fn openapi() -> Value {
    let (_, generated) = super::routes().split_for_parts();
    // The generated description is plain data.
    let mut description = serde_json::to_value(generated).unwrap_or_default();
    description["info"] = json!({
        "title": "Forebay",
        "version": "1",
        "description": "The pipelines of one host. Errors are problem details (RFC 9457). Times are seconds since \
                        1970, unless a name ends in another unit.",
        "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
    });
    description["components"] = json!({
        "schemas": schemas(),
        "securitySchemes": {
            "token": { "type": "http", "scheme": "bearer", "description": "A token of `forebay token`." },
        },
        "parameters": {
            "IdempotencyKey": {
                "name": "Idempotency-Key",
                "in": "header",
                "description": "A key of the client. The same request with the same key is made once. It gets the \
                                same response; or 409, if the first response was not kept.",
                "schema": { "type": "string", "minLength": 1, "maxLength": MAX_KEY, "pattern": "^[!-~]+$" },
            },
        },
        "responses": {
            "Problem": {
                "description": "The request was refused, or could not be carried out.",
                "content": { PROBLEM_JSON: { "schema": { "$ref": "#/components/schemas/Problem" } } },
            },
        },
    });
    let paths = description["paths"].as_object_mut().into_iter().flatten();
    for (method, operation) in paths.filter_map(|(_, path)| path.as_object_mut()).flatten() {
        operation["responses"]["default"] = json!({ "$ref": "#/components/responses/Problem" });
        if operation["security"].is_null() {
            // A change needs a token. Some reads need one, all accept one.
            operation["security"] =
                if method == "get" { json!([{ "token": [] }, {}]) } else { json!([{ "token": [] }]) };
        }
        if let Some(parameters) = operation.get_mut("parameters").and_then(Value::as_array_mut) {
            parameters.iter_mut().for_each(restrict);
            if ["put", "post"].contains(&method.as_str()) {
                parameters.push(json!({ "$ref": "#/components/parameters/IdempotencyKey" }));
            }
        }
        if operation["requestBody"].is_object() {
            operation["requestBody"]["required"] = true.into();
        }
    }
    // The schema of a body in YAML is that of its content, not of its text.
    let body = &mut description["paths"]["/api/v1/instances/{name}/config"]["put"]["requestBody"];
    body["content"]["application/yaml"]["schema"] = json!({ "type": "object" });
    // A JSON Schema is an object.
    let function = &mut description["paths"]["/api/v1/functions/{function}"]["get"]["responses"]["200"]["content"];
    function["application/json"]["schema"] = json!({ "type": "object", "required": ["description"] });
    let mut action = description["components"]["schemas"]["Action"].clone();
    if let Some(all) = action["oneOf"].as_array_mut() {
        all.retain(|one| one["properties"]["set_offer"].is_null());
    }
    description["components"]["schemas"]["WantedAction"]["properties"]["action"] = action;
    description
}

/// Completes the schema of a parameter by what its handler requires.
fn restrict(parameter: &mut Value) {
    let more = match parameter["name"].as_str() {
        Some("If-Match") => {
            parameter["required"] = true.into();
            json!({ "pattern": r#"^(\*|"[!#-~]+")$"# })
        }
        Some("resolution") => json!({ "enum": ["10s", "5m"] }),
        Some("filter") => json!({ "minLength": 1 }),
        Some("after") if parameter["schema"]["type"] == "integer" => json!({ "maximum": i64::MAX }),
        _ => json!({}),
    };
    if let (Some(schema), Value::Object(more)) = (parameter["schema"].as_object_mut(), more) {
        // A header is a text, or missing: it cannot be null.
        if schema.get("type").is_some_and(Value::is_array) {
            schema.insert("type".to_owned(), "string".into());
        }
        schema.extend(more);
    }
}

/// Returns the schemas of all bodies, by name.
fn schemas() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.meta_schema = None;
    settings.definitions_path = "/components/schemas".into();
    let mut generator = settings.into_generator();
    fn add<T: JsonSchema>(generator: &mut SchemaGenerator) {
        generator.subschema_for::<T>();
    }
    for add in [
        add::<Problem>,
        add::<InstanceOverview>,
        add::<instances::InstanceList>,
        add::<instances::ModuleList>,
        add::<ModuleReport>,
        add::<instances::FlowList>,
        add::<instances::PortList>,
        add::<instances::WorkerList>,
        add::<Packets>,
        add::<instances::Decisions>,
        add::<instances::EventList>,
        add::<instances::AlarmList>,
        add::<GraphReport>,
        add::<Configuration>,
        add::<config::ConfigurationResult>,
        add::<tables::TableList>,
        add::<tables::EntryList>,
        add::<tables::TableChanged>,
        add::<changes::WantedAction>,
        add::<changes::WantedMoves>,
        add::<changes::Done>,
        add::<Moved>,
        add::<trace::Trace>,
        add::<history::HistoryPage>,
        add::<audit::AuditLog>,
        add::<TopologyReport>,
    ] {
        add(&mut generator);
    }
    Value::Object(generator.take_definitions(true))
}

//! The parameters of functions.

use std::borrow::Cow;
use std::fmt;

use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::extract::Segments;
use crate::problem::Problem;

/// The JSON Schema of configurations.
const SCHEMA: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema/forebay.schema.json"));
/// The place of the functions in it.
const FUNCTIONS: [&str; 4] = ["properties", "modules", "additionalProperties", "properties"];

/// Returns the JSON Schema of a function's parameters, with their descriptions.
#[utoipa::path(get, path = "/api/v1/functions/{function}", tag = "functions",
    params(("function" = String, Path, description = "The name of the function.")),
    responses((status = 200, description = "The JSON Schema.", body = serde_json::Value)))]
pub(super) async fn function(Segments(function): Segments<String>) -> Result<Json<Value>, Problem> {
    let [a, b, c, d] = FUNCTIONS;
    let schema = Part(&[a, b, c, d, &function]).deserialize(&mut serde_json::Deserializer::from_slice(SCHEMA));
    let failed = |error: serde_json::Error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    schema.map_err(failed)?.map(Json).ok_or_else(|| {
        let detail = format!("this server has no description of a function '{function}'");
        Problem::new(StatusCode::NOT_FOUND, detail)
    })
}

/// Reads the part of a document at a path of keys; `None` if there is none. The rest is skipped: all of it would take
/// several megabytes of memory.
struct Part<'p>(&'p [&'p str]);

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        if self.0.is_empty() { Value::deserialize(from).map(Some) } else { from.deserialize_map(self) }
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = Option<Value>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            match self.0 {
                [first, rest @ ..] if *first == key => found = map.next_value_seed(Part(rest))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn parameters_have_descriptions() {
        let Json(schema) = function(Segments("acl".to_owned())).await.expect("a function of this name exists");
        assert!(schema["description"].is_string(), "{schema}");
        assert!(schema["properties"]["default"]["description"].is_string(), "{schema}");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_unknown_function_is_not_found() {
        for name in ["nosuch", "", "properties"] {
            let problem = function(Segments(name.to_owned())).await.expect_err("no function has this name");
            assert_eq!((problem.status, problem.detail.contains("no description")), (404, true));
        }
    }
}

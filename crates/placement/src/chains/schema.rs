//! The JSON Schema of CHAINS.yaml. Editors use it, and files are checked with it.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::ChainSection;

/// Returns the JSON Schema (2020-12) of a file of chains. It contains every function and type of state that is linked.
#[must_use]
pub fn schema() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut chain = ChainSection::json_schema(&mut settings.into_generator()).to_value();
    chain["description"] = json!("A chain of functions that a class of traffic passes.");
    let pipeline = forebay_pipeline::schema();
    let part = |name: &str| pipeline["properties"][name].clone();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Forebay chains",
        "type": "object",
        "required": ["chains"],
        "additionalProperties": false,
        "properties": {
            "name": part("name"),
            "batch": part("batch"),
            "state": part("state"),
            "modules": part("modules"),
            "models": {
                "type": "object", "additionalProperties": { "type": "string", "minLength": 1 },
                "description": "The models of functions, by the names in chains. By default a function has the model \
                                of its own name and parameters.",
            },
            "chains": { "type": "array", "minItems": 1, "description": "The chains to place.", "items": chain },
        },
    })
}

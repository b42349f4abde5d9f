//! Describes parameters of a JSON Schema in words.

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::Value;

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Parameter {
    /// The name.
    pub(super) name: String,
    /// The allowed values, in words.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// True if the parameter must be given.
    pub(super) required: bool,
    /// The default, if it can be written in a word.
    pub(super) default: Option<String>,
    /// The description.
    pub(super) help: String,
}

impl From<&forebay_pipeline::Parameter> for Parameter {
    fn from(parameter: &forebay_pipeline::Parameter) -> Self {
        let default = Some(parameter.default).filter(|default| !default.is_empty());
        Self {
            name: parameter.name.to_owned(),
            kind: parameter.value.to_owned(),
            required: false,
            default: default.map(str::to_owned),
            help: parameter.help.to_owned(),
        }
    }
}

/// Returns the parameters that a schema describes.
pub(super) fn parameters(schema: fn(&mut SchemaGenerator) -> Schema) -> Vec<Parameter> {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let schema = schema(&mut settings.into_generator()).to_value();
    if !schema["properties"].is_object() {
        // The schema is no mapping: the parameter is the whole value.
        let help = schema["description"].as_str().unwrap_or_default().to_owned();
        let whole = Parameter {
            name: "(the value itself)".to_owned(),
            kind: kind(&schema),
            required: true,
            default: None,
            help,
        };
        let empty = schema.get("type").is_some_and(|it| it == "object" || it == "null");
        return if empty && schema.get("additionalProperties").is_none_or(|it| it == false) {
            Vec::new()
        } else {
            vec![whole]
        };
    }
    let mut all = Vec::new();
    keys("", &schema, &mut all);
    all
}

/// Collects the keys of a mapping, required keys first. Each key is followed by the keys of its value: `timeouts`, then
/// `timeouts.udp`. `within` is the path of the mapping, with a dot at its end.
fn keys(within: &str, schema: &Value, all: &mut Vec<Parameter>) {
    let required = |name: &str| schema["required"].as_array().is_some_and(|names| names.iter().any(|it| it == name));
    let mut properties: Vec<_> = schema["properties"].as_object().into_iter().flatten().collect();
    properties.sort_by_key(|(name, _)| (!required(name), *name));
    for (name, of) in properties {
        let path = format!("{within}{name}");
        // Alternatives may share keys.
        if all.iter().all(|known| known.name != path) {
            all.push(Parameter {
                name: path.clone(),
                kind: kind(of),
                required: required(name),
                default: of.get("default").and_then(stated),
                help: of["description"].as_str().unwrap_or_default().to_owned(),
            });
        }
        keys_of_alternatives(&path, of, all);
    }
}

/// Collects the keys of every form of a value: the keys of a mapping, of a list's items (`backends[].weight`), and of
/// alternatives.
fn keys_of_alternatives(path: &str, of: &Value, all: &mut Vec<Parameter>) {
    keys(&format!("{path}."), of, all);
    if let Some(items) = of.get("items") {
        keys_of_alternatives(&format!("{path}[]"), items, all);
    }
    for choice in ["anyOf", "oneOf"].iter().filter_map(|key| of[key].as_array()).flatten() {
        keys_of_alternatives(path, choice, all);
    }
}

/// Formats a default. In a mapping, keys without a value are left out, because they have defaults of their own.
fn stated(default: &Value) -> Option<String> {
    match default {
        Value::Null => None,
        Value::Object(keys) => {
            let given = keys.iter().filter(|(_, value)| !value.is_null());
            let given: serde_json::Map<_, _> = given.map(|(key, value)| (key.clone(), value.clone())).collect();
            (!given.is_empty()).then(|| Value::Object(given).to_string())
        }
        other => Some(other.to_string()),
    }
}

/// Describes the allowed values in words.
fn kind(schema: &Value) -> String {
    if let Some(only) = schema.get("const") {
        return only.to_string().replace('"', "");
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(|it| it.to_string().replace('"', "")).collect::<Vec<_>>().join(" or ");
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(choices) = schema[key].as_array() {
            let mut kinds: Vec<_> = choices.iter().map(kind).filter(|it| it != "nothing").collect();
            kinds.dedup();
            return kinds.join(" or ");
        }
    }
    let named = |kind: &str| match kind {
        "string" => "text".to_owned(),
        "integer" => format!("whole number{}", range(schema)),
        "number" => format!("number{}", range(schema)),
        "boolean" => "true or false".to_owned(),
        "array" => format!("list of {}", schema.get("items").map_or("anything".to_owned(), kind_in_list)),
        "object" => match schema["properties"].as_object() {
            Some(properties) => {
                let keys: Vec<_> = properties.keys().map(String::as_str).collect();
                format!("{{ {} }}", keys.join(", "))
            }
            None => "mapping".to_owned(),
        },
        "null" => "nothing".to_owned(),
        other => other.to_owned(),
    };
    match &schema["type"] {
        Value::String(of) => named(of),
        Value::Array(kinds) => {
            let kinds: Vec<_> = kinds.iter().filter_map(Value::as_str).filter(|it| *it != "null").map(named).collect();
            kinds.join(" or ")
        }
        _ => "anything".to_owned(),
    }
}

/// Describes the items of a list; alternatives are put in parentheses.
fn kind_in_list(items: &Value) -> String {
    let kind = kind(items);
    if kind.contains(" or ") { format!("({kind})") } else { kind }
}

fn range(schema: &Value) -> String {
    let (least, most) = (schema.get("minimum").filter(|it| it.as_f64() != Some(0.0)), schema.get("maximum"));
    match (least, most) {
        (Some(least), Some(most)) => format!(" {least} to {most}"),
        (None, Some(most)) => format!(" up to {most}"),
        (Some(least), None) => format!(" from {least}"),
        (None, None) => String::new(),
    }
}

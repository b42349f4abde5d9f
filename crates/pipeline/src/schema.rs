//! The JSON Schema of the language, generated from the registered declarations. Editors use the schema, and the first
//! check of a configuration compares the configuration with the schema. `schema/` has a copy: run `make schema` after
//! each change of a description or a parameter.

use std::sync::OnceLock;

use forebay_packet::MAX_BATCH;
use forebay_protocol::SchedulerKind;
use forebay_units::Nanos;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::conform::Rules;
use crate::language::{Buffer, Flow, Fold, MOST_WORKERS, PoolSection, Share, Worker};
use crate::yaml;

/// Returns the JSON Schema (2020-12) of a configuration, with every linked function, port and kind of state.
#[must_use]
pub fn schema() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    // Each parameter has its own schema, without references whose names depend on other registered types.
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut generator = settings.into_generator();
    let functions =
        forebay_graph::functions().into_iter().map(|it| (it.name, it.summary, it.help, it.example, it.schema));
    let functions = kinds("A function and its parameters.", functions, &mut generator);
    let ports = forebay_graph::ports().into_iter().map(|it| (it.name, it.summary, it.help, it.example, it.schema));
    let ports = kinds("A kind of port and its parameters.", ports, &mut generator);
    let states = forebay_graph::states().into_iter().map(|it| (it.name, it.summary, "", it.example, it.schema));
    let states = kinds("A kind of state and its parameters.", states, &mut generator);
    let control = control(&mut generator);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Forebay pipeline",
        "type": "object",
        "required": ["ports", "pipeline"],
        "additionalProperties": false,
        "properties": {
            "name": {
                "type": "string", "minLength": 1, "pattern": ONE_LINE,
                "description": "The pipeline's name, without control characters; the file's by default.",
            },
            "batch": {
                "type": "integer", "minimum": 1, "maximum": MAX_BATCH,
                "description": "The largest batch, in packets; 32 by default.",
            },
            "seed": {
                "type": "integer", "minimum": 0, "maximum": u64::MAX,
                "description": "The seed of all random numbers; 1 by default.",
            },
            "pool": section::<PoolSection>(&mut generator),
            "ports": named("Where packets enter and leave, by name.", ports),
            "state": named("Objects that modules share, by name.", states),
            "modules": named("The pipeline's functions with their input queues, by name.", functions),
            "buffers": named(
                "Input queues that wait for packets, by module name.", section::<Buffer>(&mut generator),
            ),
            "fold": section::<Fold>(&mut generator),
            "scheduler": section::<SchedulerKind>(&mut generator),
            "shares": named(
                "Shares of the worker's time, by module name.", section::<Share>(&mut generator),
            ),
            "pipeline": {
                "type": "array", "minItems": 1,
                "description": "Where packets go: lines such as `port -> module -> module[gate] -> port`.",
                "items": { "type": "string", "description": "Ports, modules and gates with `->` between." },
            },
            "flows": {
                "type": "array", "items": section::<Flow>(&mut generator),
                "description": "Named paths with objectives of delay and of rate. By default, every path is a flow.",
            },
            "workers": {
                "type": "array", "minItems": 1, "items": section::<Worker>(&mut generator),
                "description": "Threads that run the pipeline or parts of it. One by default.",
            },
            "control": control,
        },
    })
}

/// Returns the schema of the section `control`.
fn control(generator: &mut SchemaGenerator) -> Value {
    let declared = forebay_graph::controllers();
    let names: Vec<_> = declared.iter().map(|it| it.name).collect();
    let each = declared.into_iter().map(|it| (it.name, it.summary, it.help, it.example, it.schema));
    let with_parameters = kinds("A controller and its parameters.", each, generator);
    json!({
        "type": "object", "required": ["batching"], "additionalProperties": false,
        "description": "The controller that sets the triggers while the pipeline runs, so that flows keep their delay \
            objectives with the fewest cycles.",
        "properties": {
            "batching": {
                "anyOf": [{ "type": "string", "enum": names }, with_parameters, { "type": "null" }],
                "description": "The controller: its name, or its name with its parameters.",
            },
            "period": merged(
                section::<Nanos>(generator), "The period of the controller's decisions, 1ms to 1h; 100ms by default.",
            ),
            "guard": {
                "type": "number", "minimum": 0, "exclusiveMaximum": 1,
                "description": "The part of each delay objective that is kept in reserve; 0.05 by default.",
            },
            "workers": {
                "type": "integer", "minimum": 1, "maximum": MOST_WORKERS,
                "description": "The largest number of workers that the controller may use. If it is larger than the \
                    number of workers under `workers`, modules may move while packets run: if a flow cannot keep its \
                    objective beside other flows on one worker, the modules of the other flows move to another \
                    worker. By default no module moves.",
            },
        },
    })
}

/// Returns the schema with another description.
fn merged(mut schema: Value, description: &str) -> Value {
    schema["description"] = json!(description);
    schema
}

/// The pattern of the names of ports, modules and state.
pub(crate) const NAME: &str = "^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?$";

/// The pattern of a text without control characters. Tables and messages print such a text as a part of a line.
pub(crate) const ONE_LINE: &str = "^[^\\x00-\\x1f\\x7f-\\x9f]*$";

/// Returns the schema of a mapping from names to values with the schema `each`.
fn named(description: &str, each: Value) -> Value {
    json!({
        "type": "object", "description": description,
        "propertyNames": { "pattern": NAME },
        "additionalProperties": each,
    })
}

/// Returns the schema of a type.
fn section<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

/// The name, summary, help, example and schema of the parameters of a function, port, state or controller.
type KindDeclaration = (&'static str, &'static str, &'static str, &'static str, fn(&mut SchemaGenerator) -> Schema);

/// Returns the schema of a mapping with one key: the name of a kind, with the parameters of that kind.
fn kinds(description: &str, kinds: impl Iterator<Item = KindDeclaration>, generator: &mut SchemaGenerator) -> Value {
    let mut properties = Map::new();
    for (name, summary, help, example, schema) in kinds {
        let params = schema(generator).to_value();
        let needs_none = params.get("required").is_none_or(|required| required.as_array().is_some_and(Vec::is_empty));
        let mut entry = match params {
            // A kind without required parameters may be written without a value: `t: { ttl: }`.
            params if needs_none => json!({ "anyOf": [params, { "type": "null" }] }),
            params => params,
        };
        entry["description"] = json!(summary);
        if !help.is_empty() {
            entry["markdownDescription"] = json!(format!("{summary}\n\n{help}"));
        }
        if let Ok(example) = yaml::parse(example, &mut Vec::new()) {
            entry["examples"] = json!([example.to_json()]);
        }
        properties.insert(name.to_owned(), entry);
    }
    json!({
        "type": "object", "description": description, "minProperties": 1, "maxProperties": 1,
        "properties": properties, "additionalProperties": false,
    })
}

/// Returns the rules of the schema. Creates them at the first call.
pub(crate) fn rules() -> &'static Rules {
    static RULES: OnceLock<Rules> = OnceLock::new();
    RULES.get_or_init(|| Rules::new(schema()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::FaultCollector;

    #[test]
    fn every_example_conforms_to_its_schema() {
        let functions = forebay_graph::functions().into_iter().map(|it| ("modules", it.name, it.example));
        let ports = forebay_graph::ports().into_iter().map(|it| ("ports", it.name, it.example));
        let states = forebay_graph::states().into_iter().map(|it| ("state", it.name, it.example));
        for (section, name, example) in functions.chain(ports).chain(states) {
            let mut faults = FaultCollector::default();
            let text = format!("{section}: {{ x: {{ {name}: {example} }} }}\n");
            let root = yaml::parse(&text, &mut faults.located);
            let root = root.unwrap_or_else(|found| panic!("{name}: {}", found.fault));
            faults.check(rules(), &root);
            if faults.within(&[section, "x"]) {
                panic!("{name}: {}", faults.finish("its example", "", &[]).expect_err("a misfit"));
            }
        }
    }
}

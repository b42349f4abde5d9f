//! The documents of the server agree with it: the stored schemas, the description of the API, and the examples and
//! tables of docs/server.md.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::server::{FOREBAY, Pipeline, Server, Tokens, folder};

/// Returns the path of a file of the repository.
pub(crate) fn repository(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(repository(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns what `forebay schema` prints.
fn schema(name: &str) -> Value {
    let output = Command::new(FOREBAY).args(["schema", name]).output().expect("the command can be started");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn the_stored_schemas_are_current() {
    for (name, file) in [("openapi", "openapi.json"), ("serve", "serve.schema.json"), ("tokens", "tokens.schema.json")]
    {
        let stored: Value = serde_json::from_str(&read(&format!("schema/{file}"))).expect("JSON");
        assert!(stored == schema(name), "schema/{file} is not current: run `make schema`");
    }
}

/// The methods of operations.
const METHODS: &[&str] = &["get", "put", "post", "delete", "patch", "head", "options", "trace"];

/// Returns all operations of a description: the path, the method and the operation.
fn operations(description: &Value) -> Vec<(&str, &str, &Value)> {
    let paths = description["paths"].as_object().expect("paths").iter();
    paths
        .flat_map(|(path, item)| {
            let methods = item.as_object().expect("operations").iter();
            methods.map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
        })
        .collect()
}

/// Adds all values with the key `$ref`.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(target) if name == "$ref" => drop(found.insert(target.clone())),
                    value => references(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

/// Returns the parameters in a path.
fn parameters_of(path: &str) -> BTreeSet<String> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).map(str::to_owned).collect()
}

#[test]
fn the_description_of_the_api_is_valid() {
    let description = schema("openapi");
    assert!(
        description["openapi"].as_str().is_some_and(|version| version.starts_with("3.1.")),
        "{}",
        description["openapi"]
    );
    assert!(description["info"]["title"].is_string() && description["info"]["version"].is_string());
    let mut targets = BTreeSet::new();
    references(&description, &mut targets);
    assert!(targets.len() > 20, "{targets:?}");
    for target in &targets {
        let pointer = target.strip_prefix('#').unwrap_or_else(|| panic!("{target} is in another document"));
        assert!(description.pointer(pointer).is_some(), "{target} does not exist");
    }
    let mut faults = Vec::new();
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations(&description) {
        let place = format!("{method} {path}");
        let mut check = |holds: bool, fault: &str| {
            if !holds {
                faults.push(format!("{place}: {fault}"));
            }
        };
        check(METHODS.contains(&method), "no method");
        let is_sentence = |key: &str| operation[key].as_str().is_some_and(|text| text.ends_with('.'));
        check(is_sentence("summary") || is_sentence("description"), "no description");
        check(operation["tags"].as_array().is_some_and(|tags| !tags.is_empty()), "no tag");
        let id = operation["operationId"].as_str().unwrap_or_default();
        check(!id.is_empty() && ids.insert(id.to_owned()), "its operationId is missing or not unique");
        let resolved = |parameter: &Value| match parameter["$ref"].as_str() {
            Some(target) => description.pointer(target.trim_start_matches('#')).cloned().unwrap_or_default(),
            None => parameter.clone(),
        };
        let parameters: Vec<_> = operation["parameters"].as_array().into_iter().flatten().map(resolved).collect();
        let of_path = parameters.iter().filter(|parameter| parameter["in"] == "path");
        let declared: BTreeSet<_> =
            of_path.clone().filter_map(|parameter| parameter["name"].as_str()).map(str::to_owned).collect();
        check(declared == parameters_of(path), "the parameters of its path are not those declared");
        check(of_path.clone().all(|parameter| parameter["required"] == true), "a parameter of a path is required");
        check(
            parameters.iter().all(|parameter| parameter["description"].is_string()),
            "a parameter has no description",
        );
        check(parameters.iter().all(|parameter| parameter["schema"].is_object()), "a parameter has no schema");
        check(operation["responses"]["200"]["content"].is_object(), "no response 200");
        check(operation["responses"]["default"].is_object(), "no response for problems");
        check(method == "get" || operation["requestBody"]["content"].is_object(), "no body");
    }
    assert!(faults.is_empty(), "{faults:#?}");
    for (name, schema) in description["components"]["schemas"].as_object().expect("schemas") {
        let mut schema = schema.clone();
        schema["components"] = description["components"].clone();
        assert!(jsonschema::draft202012::new(&schema).is_ok(), "{name} is no schema");
    }
}

/// Finds properties that are in milliseconds, and whose names do not say so.
fn in_milliseconds(name: &str, value: &Value, found: &mut Vec<String>) {
    for (property, schema) in value["properties"].as_object().into_iter().flatten() {
        let description = schema["description"].as_str().unwrap_or_default();
        if description.contains("milliseconds since") && !property.ends_with("_ms") {
            found.push(format!("{name}.{property}"));
        }
        in_milliseconds(&format!("{name}.{property}"), schema, found);
    }
}

#[test]
fn times_are_seconds_unless_the_name_has_another_unit() {
    let description = schema("openapi");
    assert!(description["info"]["description"].as_str().is_some_and(|text| text.contains("seconds since 1970")));
    let mut found = Vec::new();
    for (name, schema) in description["components"]["schemas"].as_object().expect("schemas") {
        in_milliseconds(name, schema, &mut found);
    }
    assert!(found.is_empty(), "{found:?}");
}

/// Returns the first cells of the first table whose heading begins with these cells.
fn first_cells(page: &str, heading: &str) -> Vec<String> {
    let start = format!("| {heading} |");
    let lines = page.lines().skip_while(|line| !line.starts_with(&start)).take_while(|line| line.starts_with('|'));
    let cell = |line: &str| line.trim_matches('|').split(" | ").next().unwrap_or_default().trim().to_owned();
    lines.skip(2).map(cell).collect()
}

/// Returns the texts in backquotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_page_has_all_routes_and_no_others() {
    let page = read("docs/server.md");
    let mut listed = BTreeSet::new();
    for cell in first_cells(&page, "request | response") {
        let mut methods = Vec::new();
        let mut last = String::new();
        // `GET`, `PUT PATH` is two methods of a path, and `GET PATH`, `NAME` is a path beside the first one.
        for text in quoted(&cell) {
            let (method, path) = match text.split_once(' ') {
                Some((method, path)) => (Some(method), path.split('?').next().unwrap_or_default().to_owned()),
                None if text.bytes().all(|byte| byte.is_ascii_uppercase()) => (Some(text), String::new()),
                None => (None, format!("{}/{text}", last.rsplit_once('/').expect("a path before it").0)),
            };
            methods.extend(method);
            if !path.is_empty() {
                listed.extend(methods.iter().map(|method| format!("{method} {path}")));
                last = path;
            }
        }
    }
    let description = schema("openapi");
    let name = |path: &str| {
        let path = path.replace("{name}", "NAME").replace("{module}", "MODULE").replace("{table}", "TABLE");
        path.replace("{function}", "FUNCTION")
    };
    let described = operations(&description);
    let described = described.iter().map(|(path, method, _)| format!("{} {}", method.to_uppercase(), name(path)));
    assert_eq!(listed, described.collect::<BTreeSet<_>>());
}

#[test]
fn the_page_has_all_alarms_and_no_others() {
    let page = read("docs/server.md");
    let listed: Vec<String> =
        first_cells(&page, "alarm").iter().flat_map(|cell| quoted(cell)).map(str::to_owned).collect();
    let description = schema("openapi");
    let names = description["components"]["schemas"]["AlarmName"]["oneOf"].as_array().expect("names").iter();
    let known: BTreeSet<_> = names.filter_map(|name| name["const"].as_str()).map(str::to_owned).collect();
    assert!(known.len() > 10, "{known:?}");
    assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>(), known);
    assert_eq!(listed.len(), known.len(), "each alarm is listed once: {listed:?}");
}

#[test]
fn the_page_has_all_settings_with_their_defaults() {
    let page = read("docs/server.md");
    let settings = schema("serve");
    let keys =
        |value: &Value| value["properties"].as_object().expect("settings").keys().cloned().collect::<BTreeSet<_>>();
    let mut known = keys(&settings);
    // `metrics` has one setting, which has a row of its own.
    known.remove("metrics");
    known.extend(keys(&settings["properties"]["metrics"]).iter().map(|key| format!("metrics.{key}")));
    // The first table with this heading has the settings, the second one the limits.
    let (first, second) = page.split_once("### Limits").expect("a section");
    let listed = |page: &str| {
        first_cells(page, "setting").iter().flat_map(|cell| quoted(cell)).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    assert_eq!(listed(first), known);
    let limits = &settings["properties"]["limits"];
    assert_eq!(listed(second), keys(limits));
    for (name, limit) in limits["properties"].as_object().expect("limits") {
        let row = second.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).expect("a row");
        assert!(row.ends_with(&format!("| {} |", limit["default"])), "{row}: the default is {}", limit["default"]);
    }
    let tls = first.lines().find(|line| line.starts_with("| `tls` |")).expect("a row");
    let listed: BTreeSet<_> = quoted(tls).into_iter().skip(1).map(str::to_owned).collect();
    assert_eq!(listed, keys(&settings["properties"]["tls"]));
    let tokens = schema("tokens");
    let key_rows =
        first_cells(&page, "key").iter().flat_map(|cell| quoted(cell)).map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(key_rows, keys(&tokens["properties"]["tokens"]["items"]));
}

/// Returns the blocks of shell commands.
fn examples(page: &str) -> Vec<String> {
    let blocks = page.split("```sh\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap_or_default().to_owned()).collect()
}

/// Ends the output of a block in the shell.
const END: &str = "--- end of the block ---";

#[test]
fn the_examples_of_the_page_work() {
    for program in ["curl", "jq"] {
        let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
        if !found {
            return crate::print(&format!("skipped: the_examples_of_the_page_work: {program} is not installed"));
        }
    }
    let blocks = examples(&read("docs/server.md"));
    assert!(blocks.len() >= 6, "{blocks:?}");
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    let _pipeline = Pipeline::start(folder.path(), "edge");
    let server = Server::with(folder.path(), &tokens.setting(), &[]);
    server.wait_for("edge", "running");
    // An error of the server ends the shell: `jq` would read it as a value that is missing.
    let mut script = "curl() { command curl --fail-with-body \"$@\"; }\n".to_owned();
    for block in &blocks {
        script += &format!("{block}echo '{END}'\n");
    }
    let work = tempfile::tempdir().expect("a writable folder for temporary files");
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .current_dir(work.path())
        .env("URL", format!("http://{}/api/v1", server.address))
        .env("TOKEN", &tokens.admin)
        .output()
        .expect("bash");
    let out = String::from_utf8_lossy(&output.stdout);
    let outputs: Vec<&str> = out.split(END).map(str::trim).collect();
    let failed = outputs.len() - 1;
    assert!(
        output.status.success(),
        "block {failed}: {}\n{out}{}",
        blocks[failed.min(blocks.len() - 1)],
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(outputs.len(), blocks.len() + 1);
    for (block, output) in blocks.iter().zip(&outputs) {
        assert!(!output.is_empty(), "no output: {block}");
        assert!(
            !output.contains("urn:forebay:problem") && !output.lines().any(|line| line == "null"),
            "{block}: {output}"
        );
    }
}

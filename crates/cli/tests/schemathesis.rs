//! The API against its own description: Schemathesis derives requests from the OpenAPI document, valid and invalid
//! ones, sends them to a real server, and checks the responses.

#[allow(dead_code, reason = "the tests of the server use the rest")]
#[path = "serve/http.rs"]
mod http;
#[allow(dead_code, reason = "the tests of the server use the rest")]
#[path = "serve/server.rs"]
mod server;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use server::{Pipeline, Server, Tokens, folder};

const ENVIRONMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/python/bin/st");
const INSTALLER: &str = include_str!("../../../scripts/install-python");
/// The examples per operation in `make test`.
const SHORT: u32 = 3;
/// The examples per operation in one round. A round must end before its pipeline.
const ROUND: u32 = 60;

/// The settings of Schemathesis. All checks are on.
///
/// Most requests name things that exist, so that they reach more than the search for names. Some checks take other
/// statuses than by default:
///
/// - The schema of a request cannot say which modules, tables, entries, filters and configurations a pipeline accepts
///   (422), nor which version a configuration has (412).
/// - A configuration without `If-Match` is refused with the status for that (428, RFC 6585 section 3). A wrong version
///   is refused before a wrong configuration (412).
const SETTINGS: &str = r#"
hooks = "hooks.py"

[dictionaries.pipeline]
values = ["edge"]
[dictionaries.module]
values = ["route", "fw", "a", "b"]
[dictionaries.table]
values = ["routes", "rules"]

[parameters]
"path.name" = { dictionary = "pipeline", probability = 0.9 }
"path.module" = { dictionary = "module", probability = 0.8 }
"path.table" = { dictionary = "table", probability = 0.8 }
"body.module" = { dictionary = "module", probability = 0.8 }
"body.modules[*].module" = { dictionary = "module", probability = 0.8 }

[checks.missing_required_header]
expected-statuses = [400, 401, 428]

[[operations]]
include-operation-id = ["entries", "trace", "change", "act", "move_modules", "put"]
checks.positive_data_acceptance.expected-statuses = ["2xx", 404, 412, 422]

[[operations]]
include-operation-id = "put"
checks.negative_data_rejection.expected-statuses = [400, 401, 403, 404, 405, 406, 409, 412, 415, 422, 428]
"#;

/// OpenAPI cannot say that only one of two parameters is allowed.
const HOOKS: &str = r#"
import schemathesis


@schemathesis.hook
def filter_case(context, case):
    query = case.query
    return not (isinstance(query, dict) and "module" in query and "flow" in query)
"#;

/// Prints a line. The test harness would hide the output of `println`.
fn print(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Returns the program, or the reason why there is none.
fn program() -> Result<PathBuf, String> {
    let pinned = INSTALLER.lines().find_map(|line| line.trim().strip_prefix("[schemathesis]="));
    let pinned = pinned.expect("the installer names the version");
    let mut found = "it is not installed".to_owned();
    // Another program has the short name, too.
    for program in [ENVIRONMENT, "schemathesis"] {
        let Ok(output) = Command::new(program).arg("--version").output() else { continue };
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if version.ends_with(&format!("version {pinned}")) {
            return Ok(program.into());
        }
        found = format!("there is '{version}'");
    }
    Err(format!("it needs Schemathesis {pinned} (scripts/install-python schemathesis), and {found}"))
}

/// Rewrites the lists of types by position. Schemathesis 4.32.5 turns them into a form that it then refuses.
fn rewrite_tuples(schema: &mut Value) {
    match schema {
        Value::Object(parts) => {
            if let Some(types) = parts.remove("prefixItems") {
                parts.insert("items".to_owned(), json!({ "anyOf": types }));
            }
            parts.values_mut().for_each(rewrite_tuples);
        }
        Value::Array(parts) => parts.iter_mut().for_each(rewrite_tuples),
        _ => {}
    }
}

/// Runs Schemathesis with this number of examples per operation, and returns its report, after checking that it has no
/// findings.
fn run(program: &Path, examples: u32, seed: u32) -> Value {
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    let pipeline = Pipeline::start(folder.path(), "edge");
    let settings = format!("{}\nlimits: {{ requests_per_second: 1000000 }}", tokens.setting());
    let server = Server::with(folder.path(), &settings, &[]);
    server.wait_for("edge", "running");

    let work = folder.path().join("work");
    fs::create_dir(&work).expect("a writable folder");
    let mut document = server.get("/api/v1/openapi.json").json();
    rewrite_tuples(&mut document);
    for (name, text) in [("openapi.json", document.to_string().as_str()), ("st.toml", SETTINGS), ("hooks.py", HOOKS)] {
        fs::write(work.join(name), text).expect("a writable folder");
    }
    let url = format!("http://{}", server.address);
    let output = Command::new(program)
        .args(["--config-file", "st.toml", "run", "openapi.json", "--url", &url])
        .args(["--header", &format!("Authorization: Bearer {}", tokens.admin)])
        // This stream does not end.
        .args(["--exclude-path", "/api/v1/events"])
        .args(["--checks", "all", "--continue-on-failure", "--no-shrink", "--warnings", "off", "--no-color"])
        .args(["--max-examples", &examples.to_string(), "--seed", &seed.to_string(), "--request-timeout", "60"])
        .args(["--report", "json", "--report-json-path", "report.json"])
        // A proxy of the environment cannot reach loopback.
        .envs([("NO_PROXY", "*"), ("no_proxy", "*")])
        .current_dir(&work)
        .output()
        .expect("it is installed");
    let out = String::from_utf8_lossy(&output.stdout);
    let report = fs::read_to_string(work.join("report.json"));
    let report = report.unwrap_or_else(|error| panic!("no report: {error}: {out}{output:?}"));
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert!(report["failures"] == json!([]) && report["errors"] == json!([]), "{out}");
    assert!(output.status.success(), "{out}");
    let operations = &report["operations"];
    let count = |key: &str| operations[key].as_u64().expect("a number");
    assert_eq!((count("tested"), count("selected") + 1), (count("selected"), count("total")), "{operations}");
    for phase in ["coverage", "fuzzing", "stateful"] {
        assert_eq!(report["phases"][phase]["status"], "success", "{out}");
    }

    server.wait_for("edge", "running");
    assert_eq!(server.end(), Some(0));
    pipeline.end();
    report
}

/// Returns how many valid requests for an operation were accepted.
fn accepted(report: &Value, operation: &str) -> u64 {
    let phases = report["valid_rates"][operation].as_object().unwrap_or_else(|| panic!("{operation}: {report}"));
    phases.values().map(|phase| phase["accepted"].as_u64().expect("a number")).sum()
}

/// `FOREBAY_API_EXAMPLES` is the number of examples per operation. 300 give more than 10 000 requests.
#[test]
fn responses_are_as_the_description_of_the_api_says() {
    let program = match program() {
        Ok(program) => program,
        Err(why) => return print(&format!("skipped: responses_are_as_the_description_of_the_api_says: {why}")),
    };
    let all = std::env::var("FOREBAY_API_EXAMPLES").map_or(SHORT, |text| text.parse().expect("a number of examples"));
    let mut requests = 0;
    for round in 0..all.div_ceil(ROUND) {
        let report = run(&program, (all - round * ROUND).min(ROUND), round + 1);
        requests += report["test_cases"]["generated"].as_u64().expect("a number");
        // Otherwise, only refusals were tested. Valid changes are tested by `every_response_matches_its_schema`: random
        // ones are seldom valid.
        for operation in [
            "GET /api/v1/instances/{name}/history",
            "GET /api/v1/instances/{name}/modules/{module}",
            "GET /api/v1/instances/{name}/trace",
        ] {
            assert!(accepted(&report, operation) > 0, "{operation}: no valid request was accepted: {report}");
        }
    }
    print(&format!("{requests} requests of Schemathesis, {all} examples per operation"));
    let least = if all >= 300 { 10_000 } else { 100 };
    assert!(requests > least, "{requests} requests: {least} are needed");
}

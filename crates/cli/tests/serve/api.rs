//! The HTTP API: what each endpoint returns, and the parts that all responses have.

mod alarms;
mod changes;
mod configuration;
mod repeated;
mod stream;
mod wrong;

use std::io::{BufReader, Write};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Barrier;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::{Response, connect, exchange, read_head, request};
use crate::server::{FOREBAY, Pipeline, Server, Tokens, folder, wait_for};

/// A pipeline whose firewall denies half of the packets. The low rate leaves time for the other tests.
const EDGE: &str = "
ports:
  in: { generator: { rate: 1kpps, destination: 10.0.0.0/16 } }
  out: { sink: }
modules:
  fw: { acl: { rules: ['deny udp from any to 10.0.128.0/17', 'permit any'] } }
  route: { ip_lookup: { routes: ['0.0.0.0/0 0', '10.0.0.0/8 1'] } }
  a: { counter: }
  b: { counter: }
pipeline:
  - in -> fw -> route
  - route[0] -> a -> out
  - route[1] -> b -> out
flows:
  - { name: video, path: 'route[1] -> b', slo: 10s }
";

/// A pipeline that has processed two packets and then waits: its counters do not change while they are compared.
const QUIET: &str = "
ports:
  in: { generator: { rate: 0.001pps, destination: 10.0.0.0/16, sessions: 100 } }
  keep: { generator: { rate: 0.001pps } }
  out: { sink: }
modules:
  fw: { acl: { rules: ['deny udp from any to 10.0.0.0/17', 'permit any'] } }
  a: { counter: }
pipeline:
  - in -> fw -> a -> out
  - keep -> a
flows:
  - { name: video, path: 'fw -> a', slo: 10s }
";

/// The path of the pipeline.
const INSTANCE: &str = "/api/v1/instances/edge";
/// The media types of changes.
const YAML: &str = "application/yaml";
const TEXT: &str = "text/plain";
const JSON: &str = "application/json";

/// The headers of a request with a token, a media type, and further headers.
fn headers<'h>(authorization: &'h str, content_type: &'h str, more: &[(&'h str, &'h str)]) -> Vec<(&'h str, &'h str)> {
    [&[("Authorization", authorization), ("Content-Type", content_type)][..], more].concat()
}

/// A pipeline with the name `edge`, and a server with a token of each role.
struct Site {
    server: Server,
    pipeline: Pipeline,
    tokens: Tokens,
    folder: TempDir,
}

impl Site {
    fn start(text: &str) -> Self {
        Self::with(text, &[])
    }

    /// Starts the pipeline with further arguments.
    fn with(text: &str, more: &[&str]) -> Self {
        let folder = folder();
        let tokens = Tokens::make(folder.path());
        let pipeline = Pipeline::of(folder.path(), "edge", text, more);
        let settings = format!("{}\nlimits: {{ requests_per_second: 100000 }}", tokens.setting());
        let server = Server::with(folder.path(), &settings, &[]);
        let site = Self { server, pipeline, tokens, folder };
        wait_for("the counters of edge", || {
            let response = site.server.get(INSTANCE);
            response.status == 200 && response.json()["config_version"].is_string()
        });
        site
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("edge.sock")
    }

    /// Reads below the path of the pipeline, with the rights of an administrator.
    fn read(&self, path: &str) -> Value {
        let response = self.server.get_as(&self.tokens.admin, &format!("{INSTANCE}{path}"));
        assert_eq!(response.status, 200, "{path}: {}", response.body);
        response.json()
    }

    /// Sends a change to a path below the pipeline.
    fn post(&self, token: &str, path: &str, content_type: &str, more: &[(&str, &str)], body: &str) -> Response {
        let authorization = format!("Bearer {token}");
        let path = format!("{INSTANCE}{path}");
        self.server.send("POST", &path, &headers(&authorization, content_type, more), body)
    }

    /// Puts a configuration in force that replaces a version.
    fn put(&self, if_match: &str, text: &str) -> Response {
        self.put_at("/config", &[("If-Match", if_match)], text)
    }

    fn put_at(&self, path: &str, more: &[(&str, &str)], text: &str) -> Response {
        let authorization = format!("Bearer {}", self.tokens.admin);
        self.server.send("PUT", &format!("{INSTANCE}{path}"), &headers(&authorization, YAML, more), text)
    }

    /// Returns the entity tag of the configuration in force.
    fn version(&self) -> String {
        let response = self.server.get_as(&self.tokens.viewer, &format!("{INSTANCE}/config"));
        response.header("etag").expect("a version").to_owned()
    }

    /// Runs a command with the pipeline's socket, and returns its output.
    fn command(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(FOREBAY);
        command.args(arguments).arg("--socket").arg(self.socket());
        let output = command.output().expect("the command can be started");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Returns what `forebay show … --json` prints.
    fn shown(&self, arguments: &[&str]) -> Value {
        let printed = self.command(&[&["show"][..], arguments, &["--json"][..]].concat());
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"))
    }

    /// Returns the records of the audit log, oldest first.
    fn audit(&self) -> Vec<Value> {
        let response = self.server.get_as(&self.tokens.admin, "/api/v1/audit?most=1000");
        assert_eq!(response.status, 200, "{}", response.body);
        let mut records = list(&response.json(), "records");
        records.reverse();
        records
    }
}

/// Sends requests at the same time, each over a connection of its own. Returns the responses in the same order.
fn at_once(address: &str, requests: &[String]) -> Vec<Response> {
    let start = Barrier::new(requests.len());
    let send = |request: &String| {
        let mut stream = connect(address);
        start.wait();
        exchange(&mut stream, request.as_bytes())
    };
    let send = &send;
    std::thread::scope(|scope| {
        let threads: Vec<_> = requests.iter().map(|request| scope.spawn(move || send(request))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn list(value: &Value, name: &str) -> Vec<Value> {
    value[name].as_array().unwrap_or_else(|| panic!("{name} is a list: {value}")).clone()
}

/// Removes the figures that depend on the time of the report.
fn without_time(mut value: Value) -> Value {
    const TIMED: &[&str] = &[
        "rate_pps",
        "share",
        "busy",
        "timing_share",
        "turns",
        "busy_turns",
        "residue_ticks_per_turn",
        "machine_stalls",
        "machine_time",
    ];
    match &mut value {
        Value::Object(fields) => {
            fields.retain(|name, _| !TIMED.contains(&name.as_str()));
            fields.values_mut().for_each(|value| *value = without_time(value.take()));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| *value = without_time(value.take())),
        _ => {}
    }
    value
}

#[test]
fn the_api_and_the_command_line_show_the_same() {
    let site = Site::start(QUIET);
    wait_for("both packets", || site.read("/drops")["in"] == 2 && site.read("/drops")["in_flight"] == 0);
    let drops = site.read("/drops");
    assert_eq!((&drops["out"], &drops["dropped"]), (&json!(1), &json!({ "fw.denied": 1 })));
    assert_eq!(drops, site.shown(&["drops"]));
    for what in ["flows", "ports", "workers"] {
        assert_eq!(
            without_time(site.read(&format!("/{what}"))[what].clone()),
            without_time(site.shown(&[what])),
            "{what}"
        );
    }
    let without_counters = |modules: &Value| {
        let mut modules = without_time(modules.clone());
        modules.as_array_mut().into_iter().flatten().for_each(|module| module["counters"] = Value::Null);
        modules
    };
    // The list has no counters per rule: an access list has thousands of them.
    let (modules, shown) = (site.read("/modules"), site.shown(&["modules"]));
    assert_eq!(without_counters(&modules["modules"]), without_counters(&shown));
    assert!(modules["modules"][0]["counters"].get("rules, IPv4").is_none(), "{modules}");
    let module = site.read("/modules/fw");
    assert_eq!(without_time(module.clone()), without_time(site.shown(&["modules", "fw"])[0].clone()));
    let rules = module["counters"]["rules, IPv4"].as_object().expect("counters per rule");
    assert_eq!(rules.values().filter_map(Value::as_u64).sum::<u64>(), 1, "{rules:?}");
    assert_eq!(site.read("/config"), site.shown(&["config"]));
    assert_eq!(site.read("/tables")["tables"], site.shown(&["tables"]));
    let printed = site.command(&["show", "table", "fw"]);
    assert_eq!(site.read("/tables/fw/rules")["entries"], json!(printed.lines().collect::<Vec<_>>()));
    let printed = site.command(&["show", "events", "--json"]);
    let events: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(site.read("/events")["events"], json!(events));
    assert_eq!(site.read(&format!("/events?after={}", events[0]["id"]))["events"], json!(events[1..]));
}

#[test]
fn a_pipeline_with_traffic_shows_its_graph_rates_traces_and_decisions() {
    let site = Site::start(&format!("{EDGE}control: {{ batching: optimal }}\n"));
    let graph = site.read("/graph");
    let names = |list_name: &str| list(&graph, list_name).iter().map(|it| it["name"].clone()).collect::<Vec<_>>();
    assert_eq!(
        (names("modules"), names("ports")),
        (vec![json!("fw"), json!("route"), json!("a"), json!("b")], vec![json!("in"), json!("out")])
    );
    let edges = list(&graph, "edges");
    assert!(edges.contains(&json!({ "from": "route", "gate": "1", "to": "b" })), "{edges:?}");
    wait_for("a rate", || {
        site.read("")["in_pps"].as_f64() > Some(0.0) && site.read("")["dropped_pps"].as_f64() > Some(0.0)
    });
    let overview = site.read("");
    assert_eq!(
        (&overview["status"], &overview["objectives"], &overview["workers"]),
        (&json!("running"), &json!(1), &json!(1))
    );
    assert_eq!(overview["config_version"], site.read("/config")["version"]);
    let all = site.server.get("/api/v1/instances").json();
    assert_eq!((list(&all, "instances").len(), &all["instances"][0]["pid"]), (1, &overview["pid"]));
    wait_for("a period of the controller", || site.read("/decisions")["control"]["periods"].as_u64() > Some(0));
    let (decisions, shown) = (site.read("/decisions"), site.shown(&["control"]));
    for key in ["controller", "period_ms", "guard"] {
        assert_eq!(decisions["control"][key], shown["control"][key], "{key}");
    }
    let trace = site.read("/trace?count=2&for_ms=9000&filter=udp%20and%20dst%20net%2010.0.0.0/17");
    assert_eq!((list(&trace, "stories").len(), &trace["complete"]), (2, &json!(true)), "{trace}");
    assert!(
        list(&trace, "stories").iter().all(|story| story.as_str().is_some_and(|story| story.contains("left by out")))
    );
    let none = site.read("/trace?for_ms=200&filter=tcp");
    assert_eq!(none, json!({ "stories": [], "complete": false }));
    let modules = list(&site.read("/modules"), "modules");
    assert!(modules[0]["dropped"].as_u64() > Some(0), "{modules:?}");
    assert_eq!(
        (site.server.get("/healthz").body, site.server.get("/readyz").body),
        ("ok\n".to_owned(), "ready\n".to_owned())
    );
    wait_for("metrics", || site.server.get("/metrics").body.contains("forebay_instance_up{instance=\"edge\"} 1\n"));
    let printed = Command::new(FOREBAY).args(["schema", "openapi"]).output().expect("the command can be started");
    let printed: Value = serde_json::from_slice(&printed.stdout).expect("JSON");
    assert_eq!(site.server.get("/api/v1/openapi.json").json(), printed);
}

/// Checks a value against a schema of the description of the API.
fn check(description: &Value, schema: &Value, value: &Value, what: &str) {
    assert!(schema.as_object().is_some_and(|rules| !rules.is_empty()), "{what}: the description has no schema");
    let mut schema = schema.clone();
    schema["components"] = description["components"].clone();
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let wrong: Vec<_> = validator.iter_errors(value).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{what}: {wrong:?}: {value}");
}

#[test]
fn every_response_matches_its_schema() {
    let site = Site::start(EDGE);
    let description = site.server.get("/api/v1/openapi.json").json();
    let of_200 = |method: &str, path: &str| {
        description["paths"][path][method]["responses"]["200"]["content"][JSON]["schema"].clone()
    };
    let put = site.put("*", EDGE);
    let changed =
        site.post(&site.tokens.operator, "/tables/route/routes/changes", TEXT, &[], "add 10.1.0.0/16 1\nwrong\n");
    let done = r#"{"module":"route","action":{"set_trigger":{"module":0,"trigger":4}}}"#;
    let done = site.post(&site.tokens.operator, "/actions", JSON, &[], done);
    let moves = r#"{"modules":[{"module":"a","to":[0]}]}"#;
    let moved = site.post(&site.tokens.operator, "/moves", JSON, &[], moves);
    let name = "/api/v1/instances/{name}";
    for (method, path, response) in [
        ("put", format!("{name}/config"), &put),
        ("post", format!("{name}/tables/{{module}}/{{table}}/changes"), &changed),
        ("post", format!("{name}/actions"), &done),
        ("post", format!("{name}/moves"), &moved),
    ] {
        assert_eq!(response.status, 200, "{path}: {}", response.body);
        check(&description, &of_200(method, &path), &response.json(), &path);
    }
    let mut checked = 0;
    for (path, operations) in description["paths"].as_object().expect("paths") {
        let schema = of_200("get", path);
        if operations["get"].is_null() || schema.is_null() || path.ends_with("/openapi.json") {
            continue;
        }
        let filled = path.replace("{name}", "edge").replace("{module}", "fw").replace("{table}", "rules");
        let filled = filled.replace("{function}", "acl");
        let response = site.server.get_as(&site.tokens.admin, &filled);
        assert_eq!(
            (response.status, response.header("content-type")),
            (200, Some(JSON)),
            "{filled}: {}",
            response.body
        );
        check(&description, &schema, &response.json(), &filled);
        checked += 1;
    }
    assert!(checked >= 17, "{checked}");
    let problem = json!({ "$ref": "#/components/schemas/Problem" });
    for response in [site.put("*", "modules: {}\n"), site.put("\"x\"", EDGE), site.server.get("/nothing")] {
        assert!(response.status >= 400);
        check(&description, &problem, &response.json(), "a problem");
    }
}

/// Checks the headers that protect a client, also in errors.
fn check_headers(response: &Response, what: &str) {
    let policy = response.header("content-security-policy").unwrap_or_default();
    assert!(policy.starts_with("default-src 'none'"), "{what}: {policy}");
    assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{what}");
    assert_eq!(response.header("cache-control"), Some("no-store"), "{what}");
    let is_refused = |name: &str| name.starts_with("access-control-") || name == "set-cookie" || name == "server";
    assert!(!response.headers.iter().any(|(name, _)| is_refused(name)), "{what}: {:?}", response.headers);
}

#[test]
fn every_response_has_the_security_headers() {
    let site = Site::start(EDGE);
    let admin = format!("Bearer {}", site.tokens.admin);
    let viewer = format!("Bearer {}", site.tokens.viewer);
    let config = format!("{INSTANCE}/config");
    /// The expected status, and the method, path, headers and body of a request.
    type Case<'c> = (u16, &'c str, &'c str, &'c [(&'c str, &'c str)], &'c str);
    let cases: &[Case<'_>] = &[
        (200, "GET", "/healthz", &[], ""),
        (200, "GET", "/metrics", &[], ""),
        (200, "GET", "/api/v1/openapi.json", &[], ""),
        (200, "GET", "/api/v1/instances", &[("Origin", "http://localhost")], ""),
        (200, "GET", &config, &[("Authorization", &viewer)], ""),
        (400, "GET", "/api/v1/audit?most=0", &[("Authorization", &admin)], ""),
        (401, "GET", &config, &[], ""),
        (403, "GET", "/api/v1/audit", &[("Authorization", &viewer)], ""),
        (403, "GET", "/api/v1/instances", &[("Origin", "http://evil.example")], ""),
        (404, "GET", "/api/v1/instances/nope", &[], ""),
        (404, "GET", "/nothing", &[], ""),
        (405, "DELETE", "/api/v1/instances", &[], ""),
        (405, "OPTIONS", "/api/v1/instances", &[], ""),
        (412, "PUT", &config, &headers(&admin, YAML, &[("If-Match", "\"x\"")]), EDGE),
        (415, "PUT", &config, &headers(&admin, TEXT, &[("If-Match", "*")]), EDGE),
        (421, "GET", "/healthz", &[("Host", "evil.example")], ""),
        (422, "PUT", &config, &headers(&admin, YAML, &[("If-Match", "*")]), "modules: {}"),
        (428, "PUT", &config, &headers(&admin, YAML, &[]), EDGE),
    ];
    for (status, method, path, headers, body) in cases {
        let response = site.server.send(method, path, headers, body);
        assert_eq!(response.status, *status, "{method} {path}: {}", response.body);
        check_headers(&response, &format!("{method} {path}"));
        if *status >= 400 {
            response.problem(*status);
        }
    }
    let mut stream = connect(&site.server.address);
    stream.write_all(request("GET", "/api/v1/events", &[], "").as_bytes()).expect("the server listens");
    let (status, headers) = read_head(&mut BufReader::new(stream));
    check_headers(&Response { status, headers, body: String::new() }, "the stream of events");
}

//! A real Prometheus scrapes the server: each query of the dashboard and of the rules returns data.

#[allow(dead_code, reason = "the tests of the server use the rest")]
#[path = "serve/http.rs"]
mod http;
#[allow(dead_code, reason = "the tests of the server use the rest")]
#[path = "serve/server.rs"]
mod server;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use http::{connect, exchange, request};
use server::{Pipeline, Server, folder, give, wait_for};

const DASHBOARD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/grafana/forebay.json");
const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus/rules.yaml");
const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus/tests.yaml");

/// A pipeline that has all that queries are about: objectives of delay and rate, drops for several reasons, lines that
/// are missing in a file, and a controller.
const PIPELINE: &str = "
ports:
  in:
    generator:
      rate: 20kpps
      destination: [10.0.0.0/16, 10.1.0.0/16, 192.0.2.0/24]
      destination_port: 53-56
      sessions: 64
  out: { sink: }
modules:
  fw: { acl: { rules: ['deny udp to any port 53', 'permit any'] } }
  route: { ip_lookup: { routes: ['10.0.0.0/16 0', '10.1.0.0/16 1'] } }
  ids: { nids: { rules: ['alert ip any any -> any any (sid:1;)'], alerts: { file: alerts.json, rate: 10 } } }
  a: { counter: }
  b: { counter: }
pipeline:
  - in -> fw -> route
  - route[0] -> ids -> a -> out
  - route[1] -> b -> out
flows:
  - { name: video, path: 'route[1] -> b', slo: 100ms, min_rate: 1kpps }
  - { name: bulk, path: 'route[0] -> ids -> a', min_rate: 100kbps }
control: { batching: optimal, period: 100ms }
";

/// Prints a line. The test harness would hide the output of `println`.
fn print(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Returns whether the programs are installed. Otherwise prints that the test is skipped.
fn has(test: &str, programs: &[&str]) -> bool {
    for program in programs {
        if let Err(error) = Command::new(program).arg("--version").output() {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{program}: {error}");
            print(&format!("skipped: {test}: no {program}: {error}"));
            return false;
        }
    }
    true
}

/// A pipeline with its server.
struct Scene {
    pipeline: Pipeline,
    server: Server,
    folder: TempDir,
}

impl Scene {
    /// Starts the pipeline, with two workers if the machine has two cores, and a server with a file as its store.
    fn start() -> Self {
        let folder = folder();
        let store = folder.path().join("store");
        fs::create_dir(&store).expect("a writable folder");
        give(&store);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = if cores > 1 { "[{}, { modules: [b] }]" } else { "[{}]" };
        let pipeline = Pipeline::of(folder.path(), "edge", &format!("{PIPELINE}workers: {workers}\n"), &[]);
        let settings = format!("store: '{}'", store.join("serve.db").display());
        let server = Server::with(folder.path(), &settings, &[]);
        server.wait_for("edge", "running");
        Self { pipeline, server, folder }
    }
}

/// The largest number of ports that are tried.
const ATTEMPTS: usize = 5;

/// A running Prometheus. It is killed when this value is dropped.
struct Prometheus {
    process: Child,
    address: String,
}

impl Prometheus {
    /// Starts a Prometheus that scrapes the server of `scene` each second, and waits until it is ready.
    fn start(scene: &Scene, more: &[&str]) -> Self {
        let config = scene.folder.path().join("prometheus.yml");
        let text = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}
rule_files: ['{RULES}']
scrape_configs:
  - job_name: forebay
    honor_labels: true
    static_configs: [{{ targets: ['{}'] }}]
",
            scene.server.address
        );
        fs::write(&config, text).expect("a writable folder");
        // Another process may take the free port before Prometheus does.
        for _ in 0..ATTEMPTS {
            let address = free_address();
            let path = scene.folder.path().join("prometheus.log");
            let log = fs::File::create(&path).expect("a writable folder");
            let process = Command::new("prometheus")
                .arg(format!("--config.file={}", config.display()))
                .arg(format!("--storage.tsdb.path={}", scene.folder.path().join("data").display()))
                .arg(format!("--web.listen-address={address}"))
                .args(more)
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .expect("it is installed");
            let prometheus = RefCell::new(Self { process, address });
            let has_ended = || prometheus.borrow_mut().process.try_wait().expect("a child").is_some();
            let is_ready = || {
                let prometheus = prometheus.borrow();
                TcpStream::connect(&prometheus.address).is_ok() && prometheus.get("/-/ready").is_some()
            };
            wait_for("Prometheus to be ready", || has_ended() || is_ready());
            if !has_ended() {
                return prometheus.into_inner();
            }
            let log = fs::read_to_string(&path).expect("own file");
            assert!(log.contains("address already in use"), "{log}");
        }
        panic!("Prometheus finds no free port");
    }

    /// Returns the body of a response with the status 200.
    fn get(&self, path: &str) -> Option<String> {
        let response = exchange(&mut connect(&self.address), request("GET", path, &[], "").as_bytes());
        (response.status == 200).then_some(response.body)
    }

    /// Returns the content of a response of its API.
    fn api(&self, path: &str) -> Value {
        let body = self.get(path).unwrap_or_else(|| panic!("Prometheus refuses {path}"));
        let response: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(response["status"], "success", "{path}: {response}");
        response["data"].clone()
    }

    /// Returns the present values of an expression that are numbers.
    fn query(&self, expression: &str) -> Vec<f64> {
        let data = self.api(&format!("/api/v1/query?query={}", encode(expression)));
        let samples = data["result"].as_array().expect("a vector").clone();
        let values = samples.iter().filter_map(|sample| sample["value"][1].as_str()?.parse::<f64>().ok());
        values.filter(|value| value.is_finite()).collect()
    }

    /// Waits until the expression has a value.
    fn wait_for_data(&self, expression: &str) {
        wait_for(&format!("a value of {expression}"), || !self.query(expression).is_empty());
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns an address of loopback that no process uses at present.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").to_string()
}

/// Writes a text for the query of a URL (RFC 3986 section 2.1).
fn encode(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect()
}

/// Adds all queries of a part of the dashboard.
fn add_queries(part: &Value, queries: &mut BTreeSet<String>) {
    match part {
        Value::Object(parts) => {
            if let Some(query) = parts.get("expr").and_then(Value::as_str) {
                let query = query.replace("$instance", ".*").replace("$__rate_interval", "5s");
                assert!(!query.contains('$'), "a variable without a value: {query}");
                queries.insert(query);
            }
            parts.values().for_each(|part| add_queries(part, queries));
        }
        Value::Array(parts) => parts.iter().for_each(|part| add_queries(part, queries)),
        _ => {}
    }
}

/// Returns the names of series in an expression, each with its conditions: `up{job="forebay"}`.
fn selectors(expression: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(start) = rest.find(|letter: char| letter.is_ascii_alphabetic()) {
        rest = &rest[start..];
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_:".contains(letter);
        let mut end = rest.find(|letter: char| !is_name(letter)).unwrap_or(rest.len());
        let name = &rest[..end];
        if rest[end..].starts_with('{') {
            end += rest[end..].find('}').expect("the end of the conditions") + 1;
        }
        if name.starts_with("forebay") || name == "up" {
            found.push(rest[..end].to_owned());
        }
        rest = &rest[end..];
    }
    found
}

/// Returns all rules.
fn rules() -> Vec<Value> {
    let rules: Value = serde_saphyr::from_str(&fs::read_to_string(RULES).expect("the rules")).expect("YAML");
    let groups = rules["groups"].as_array().expect("groups").clone();
    groups.iter().flat_map(|group| group["rules"].as_array().expect("rules").clone()).collect()
}

#[test]
fn selectors_are_found_in_expressions() {
    let found =
        selectors("rate(forebay_a_total{x=~\"up|b\"}[5m]) / ignoring (x) group_left () forebay:b > 1 and up == 0");
    assert_eq!(found, ["forebay_a_total{x=~\"up|b\"}", "forebay:b", "up"]);
}

#[test]
fn every_query_of_the_dashboard_and_of_the_rules_returns_data() {
    if !has("every_query_of_the_dashboard_and_of_the_rules_returns_data", &["prometheus"]) {
        return;
    }
    let mut scene = Scene::start();
    let prometheus = Prometheus::start(&scene, &[]);
    // A reload gives data to the query that marks changes of the configuration. The counters continue over it.
    prometheus.wait_for_data("forebay_config_changes_total == 0 and forebay_packets_in_total > 0");
    scene.pipeline.signal(Signal::HUP);
    prometheus.wait_for_data("forebay_config_changes_total == 1");
    let before = prometheus.query("forebay_packets_in_total")[0];
    prometheus.wait_for_data(&format!("forebay_packets_in_total > {before}"));
    for counter in
        ["packets_in", "packets_out", "module_packets", "flow_packets", "worker_turns", "worker_busy_seconds"]
    {
        let resets = prometheus.query(&format!("resets(forebay_{counter}_total[5m])"));
        assert!(!resets.is_empty() && resets.iter().all(|count| *count == 0.0), "{counter}: {resets:?}");
    }

    let dashboard: Value = serde_json::from_str(&fs::read_to_string(DASHBOARD).expect("the dashboard")).expect("JSON");
    let mut queries = BTreeSet::new();
    add_queries(&dashboard, &mut queries);
    assert!(queries.len() > 30, "{queries:?}");
    for rule in rules() {
        // An alert has no value while it is not active, so its series are checked instead.
        queries.extend(selectors(rule["expr"].as_str().expect("an expression")));
        queries.extend(rule["record"].as_str().map(str::to_owned));
    }
    for query in &queries {
        prometheus.wait_for_data(query);
    }
    let variable = "label_values(forebay_instance_up, instance)";
    assert!(dashboard["templating"].to_string().contains(variable), "the variable `instance`");
    let values = prometheus.api("/api/v1/label/instance/values?match[]=forebay_instance_up");
    assert_eq!(values, serde_json::json!(["edge"]));
    let targets = prometheus.api("/api/v1/targets");
    let target = &targets["activeTargets"][0];
    assert!(target["health"] == "up" && target["lastError"] == "", "{target}");
    let evaluated = prometheus.api("/api/v1/rules");
    let groups = evaluated["groups"].as_array().expect("groups").iter();
    for rule in groups.flat_map(|group| group["rules"].as_array().expect("rules")) {
        assert_eq!(rule["health"], "ok", "{rule}");
    }

    // At this rate, the new run needs minutes for the old counts.
    let slower = fs::read_to_string(&scene.pipeline.file).expect("own file").replace("20kpps", "100pps");
    fs::write(&scene.pipeline.file, slower).expect("own file");
    scene.pipeline.kill();
    prometheus.wait_for_data("forebay_instance_up == 0");
    let file = scene.pipeline.file.clone();
    scene.pipeline = Pipeline::run(scene.folder.path(), "edge", &file, &[]);
    prometheus.wait_for_data("resets(forebay_packets_in_total[5m]) == 1");
}

#[test]
fn prometheus_reads_native_histograms() {
    if !has("prometheus_reads_native_histograms", &["prometheus"]) {
        return;
    }
    let scene = Scene::start();
    let prometheus = Prometheus::start(&scene, &["--enable-feature=native-histograms"]);
    prometheus.wait_for_data("histogram_count(forebay_flow_delay_seconds{flow=\"video\"}) > 0");
    prometheus.wait_for_data("histogram_quantile(0.99, rate(forebay_flow_delay_seconds{flow=\"video\"}[5s])) > 0");
    // The classic histograms and the other families come in the same format.
    prometheus.wait_for_data("forebay_module_batch_packets_bucket");
    prometheus.wait_for_data("rate(forebay_packets_in_total[5s]) > 0");
    assert_eq!(prometheus.query("up{job=\"forebay\"}"), [1.0]);
}

/// Runs promtool, with `input` as its standard input, and checks that it has no complaint.
fn promtool(arguments: &[&str], input: &str) {
    let mut promtool = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it is installed");
    let mut stdin = promtool.stdin.take().expect("piped");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    let output = promtool.wait_with_output().expect("it ends");
    assert!(output.status.success() && output.stderr.is_empty(), "promtool {arguments:?}: {output:?}");
}

#[test]
fn promtool_accepts_the_metrics_the_rules_and_their_tests() {
    if !has("promtool_accepts_the_metrics_the_rules_and_their_tests", &["promtool"]) {
        return;
    }
    assert!(Path::new(TESTS).exists());
    promtool(&["check", "rules", RULES], "");
    promtool(&["test", "rules", TESTS], "");
    let scene = Scene::start();
    // The server has the first counters.
    let metrics = || scene.server.get("/metrics").body;
    wait_for("metrics of the flow", || metrics().contains("forebay_flow_delay_seconds_bucket{"));
    promtool(&["check", "metrics"], &metrics());
}

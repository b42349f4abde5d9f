//! Commands and requests that inspect a running pipeline: `show config`, `show control`, `drops`, `report`.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use forebay_protocol::report::FlowReport;
use forebay_protocol::{Client, Request, Response};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::running::{PIPELINE, Running, json, temporary};
use crate::{File, forebay};

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn the_printed_configuration_can_be_run() {
    let running = Running::of(PIPELINE);
    let first = json(&running.request(&["show", "config", "--json"]));
    assert_eq!(keys(&first), ["changes", "file", "settings", "tables", "text", "version"]);
    running.request(&["table", "route", "add 10.8.0.0/16 0", "add 10.9.0.0/16 0"]).success();
    let changed = json(&running.request(&["show", "config", "--json"]));
    assert_eq!((&changed["version"], &changed["tables"]["route.routes"]), (&first["version"], &2.into()));
    // The version changes with each accepted change, even if nothing is different.
    running.request(&["reload"]).success();
    let same = json(&running.request(&["show", "config", "--json"]));
    assert!(same["version"] != first["version"] && same["text"] == first["text"], "{same}");
    assert_eq!(running.request(&["reload", "--set", "batch=7"]).code, Some(2));
    assert_eq!(json(&running.request(&["show", "config", "--json"]))["version"], same["version"]);
    running.request(&["reload", "--set", "ports.in.generator.rate=50kpps"]).success();
    let printed = running.request(&["show", "config"]).success();
    for line in [
        "# with --set ports.in.generator.rate=50kpps\n",
        "# route.routes: 2 changes of entries, which this text does not contain: see `forebay show table route`\n",
        "  in: { generator: { rate: 50kpps, destination: 10.0.0.0/16 } }\n",
        "after 2 accepted changes\n",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    // The printed text is a configuration.
    let file = File::new(&printed);
    let parts = |graph: Value| ["modules", "ports", "edges"].map(|part| graph[part].clone());
    let again = parts(forebay(&["graph", file.path(), "--json"]).json());
    assert_eq!(again, parts(running.request(&["graph", "--json"]).json()));
    // A reload that recreates the table has the entries of the text.
    running.request(&["reload", "--set", "modules.route.ip_lookup.routes=['0.0.0.0/0 0', '10.0.0.0/9 1']"]).success();
    assert_eq!(keys(&json(&running.request(&["show", "config", "--json"]))["tables"]).len(), 0);
}

#[test]
fn control_is_shown_by_flow_and_by_trigger() {
    let text = format!(
        "{PIPELINE}flows: [{{ name: video, path: 'route[1] -> b', slo: 1s }}]\ncontrol: {{ batching: optimal, \
            period: 5ms }}\n"
    );
    let running = Running::of(&text);
    let control = json(&running.request(&["show", "control", "--json"]));
    assert_eq!(keys(&control), ["control", "flows", "modules", "window_s"]);
    let flow = &control["flows"][0];
    let fields =
        ["actual_us", "kept", "min_rate_pps", "name", "percentile", "rate_kept", "rate_pps", "slack_us", "slo_us"];
    assert_eq!((keys(flow), &flow["name"]), (fields.to_vec(), &"video".into()));
    let number = |name: &str| flow[name].as_f64().expect(name);
    assert!((number("slo_us") - number("actual_us") - number("slack_us")).abs() < 0.01, "{flow}");
    for module in control["modules"].as_array().expect("a list") {
        assert_eq!(keys(module), ["batch_mean", "change", "name", "trigger"]);
        if let Some(change) = module["change"].as_object() {
            assert!(change["module"] == module["name"] && change["why"].is_string(), "{module}");
        }
    }
    assert_eq!((&control["control"]["controller"], &control["control"]["period_ms"]), (&"optimal".into(), &5.0.into()));
    let printed = running.request(&["show", "control"]).success();
    assert!(
        printed.starts_with("optimal every 5.000 ms, guard ") && printed.contains("video  p99 1.000 s"),
        "{printed}"
    );
    // Without a controller, the output suggests the command that sets one.
    let running = Running::start();
    let printed = running.request(&["show", "control"]).success();
    assert!(printed.contains("`forebay reload --set control.batching=optimal`"), "{printed}");
    assert_eq!(json(&running.request(&["show", "control", "--json"]))["control"], Value::Null);
}

/// Returns the first flow of the report since the last request of this kind, and of the report of the whole run.
fn reported(client: &mut Client, histograms: bool) -> [FlowReport; 2] {
    match client.request(&Request::Report { recent: true, rules: Vec::new(), histograms }) {
        Ok(Response::Report { recent: Some(recent), whole, .. }) => {
            [*recent, *whole].map(|mut report| report.flows.remove(0))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn distributions_of_delays_are_reported_on_request_only() {
    let running = Running::of(&format!("{PIPELINE}flows: [{{ name: video, path: 'route[1] -> b', slo: 1s }}]\n"));
    let mut client = Client::connect(&running.path("s")).expect("it listens");
    // The pipeline needs some time until its first packet leaves.
    while reported(&mut client, false)[1].packets == 0 {}
    for flow in reported(&mut client, true) {
        let counts = flow.delay_counts.as_ref().expect("it was requested");
        assert_eq!((counts.samples(), flow.packets), (flow.delay_us.samples, flow.delay_us.samples));
        assert!(counts.buckets.iter().all(|(_, count)| *count > 0), "{counts:?}");
        assert!(counts.buckets.is_sorted_by(|(before, _), (bound, _)| before < bound), "{counts:?}");
        if let Some(mean) = flow.delay_us.mean {
            // The report rounds the mean to six digits.
            let exact = counts.sum_us / counts.samples() as f64;
            assert!((exact - mean).abs() <= 1e-5 * mean, "{flow:?}");
        }
    }
    let [recent, whole] = reported(&mut client, false);
    assert!(whole.packets > 0 && recent.delay_counts.is_none() && whole.delay_counts.is_none(), "{whole:?}");
    match client.stream(&Request::Watch { interval_ms: 100 }) {
        Ok(Response::Report { whole, .. }) => assert!(whole.flows[0].delay_counts.is_none(), "{whole:?}"),
        other => panic!("{other:?}"),
    }
    drop(client);
    let last = running.end();
    assert!(last["flows"][0]["packets"].as_u64() > Some(0), "{last}");
    assert!(last["flows"][0].get("delay_counts").is_none(), "{last}");
}

#[test]
fn the_drops_command_shows_and_writes_dropped_packets() {
    let running = Running::of(&PIPELINE.replace("100kpps", "2kpps").replace("b -> out", "b -> drop"));
    let done = running.request(&["drops", "--count", "3", "--json"]);
    let lines: Vec<Value> = done.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 4, "{}", done.out);
    for line in &lines[..3] {
        assert_eq!(keys(line), ["at_ns", "frame", "length", "reason"]);
        let frame = line["frame"].as_str().expect("digits");
        let is_whole = frame.len() as u64 == 2 * line["length"].as_u64().expect("a length");
        assert!(line["reason"] == "unwanted" && is_whole && frame.starts_with("0200000000"), "{line}");
    }
    assert_eq!((&lines[3]["sent"], keys(&lines[3])), (&3.into(), vec!["lost", "sent"]));
    let text = running.request(&["drops", "--count", "2", "--filter", "udp"]).out;
    assert!(text.lines().count() == 2 && text.lines().all(|line| line.contains("  unwanted  length 60")), "{text}");
    // A filter that matches no packet ends after its duration.
    let none = running.request(&["drops", "--duration", "50ms", "--filter", "tcp"]);
    assert_eq!((none.code, none.out.as_str()), (Some(0), ""));

    let folder = temporary();
    let path = folder.path().join("dropped.pcapng");
    let path = path.to_str().expect("UTF-8");
    let done = running.request(&["drops", "--write", path, "--count", "5"]);
    assert!(done.out.starts_with("5 dropped packets written to "), "{}{}", done.out, done.err);
    let bytes = std::fs::read(path).expect("it was written");
    let comments = bytes.windows(8).filter(|part| part == b"unwanted").count();
    assert_eq!((&bytes[..4], comments), (&[0x0a, 0x0d, 0x0d, 0x0a][..], 5));
    for (arguments, expected) in [
        (&["drops", "--write", "/nowhere/x.pcapng", "--count", "1"][..], "--write: "),
        (&["drops", "--write", "x.pcap", "--count", "1"], "--write: "),
        (&["drops", "--filter", "tcp foo"], "--filter 'tcp foo': column 5"),
        (&["drops", "--count", "0"], "'0'"),
    ] {
        let done = running.request(arguments);
        assert!(done.code == Some(2) && done.err.contains(expected), "{arguments:?}: {}", done.err);
    }
    // Clients that send a request and do not read, or disconnect, do not disturb the run.
    let silent = running.connect(b"{\"do\":\"drops\"}\n");
    drop(running.connect(b"{\"do\":\"drops\",\"count\":1}\n{\"do\":\"dro"));
    assert_eq!(running.request(&["drops", "--count", "1"]).out.lines().count(), 1);
    let refused = running.request(&["drops", "--count", "1", "--socket-is-not", "x"]);
    assert_eq!(refused.code, Some(2));
    let report = running.end();
    drop(silent);
    let dropped = report["packets"]["dropped"]["unwanted"].as_u64().expect("a count");
    assert_eq!(Some(dropped), report["packets"]["in"].as_u64());
}

/// Returns a pipeline that drops packets, the process of a `drops` command that watches it, and the lines of the
/// command's output after the first one.
fn watched() -> (Running, Child, Lines<BufReader<ChildStdout>>) {
    let running = Running::of(&PIPELINE.replace("100kpps", "2kpps").replace("b -> out", "b -> drop"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let command = command.args(["drops", "--json", "--socket", &running.socket()]).stdout(Stdio::piped());
    let mut watching = command.spawn().expect("the command can be started");
    let mut lines = BufReader::new(watching.stdout.take().expect("piped")).lines();
    assert!(lines.next().expect("a packet").expect("UTF-8").contains("unwanted"));
    (running, watching, lines)
}

/// Regression test: after `kill -9` of the pipeline, the command reported 0 packets, and that none was missing. A
/// later version reported this correctly, but its exit code was 0.
#[test]
fn the_drops_command_counts_the_packets_of_a_pipeline_that_is_killed() {
    let (mut running, mut watching, lines) = watched();
    running.kill();
    let rest: Vec<_> = lines.map(|line| line.expect("UTF-8")).collect();
    assert_eq!(watching.wait().expect("it ends").code(), Some(1));
    // The first packet was read before, and the last line is not a packet.
    let last: Value = serde_json::from_str(rest.last().expect("the last line")).expect("JSON");
    assert_eq!((&last["sent"], &last["lost"]), (&rest.len().into(), &Value::Null));
}

/// Regression test: the run ended without the last response, so that the number of missing packets was unknown.
#[test]
fn the_drops_command_ends_with_the_run() {
    let (running, mut watching, lines) = watched();
    running.signal(Signal::TERM);
    let last = lines.last().expect("the last line").expect("UTF-8");
    let last: Value = serde_json::from_str(&last).expect("JSON");
    let code = if last["lost"].as_u64().expect("a number") == 0 { 0 } else { 1 };
    assert_eq!(watching.wait().expect("it ends").code(), Some(code), "{last}");
    running.ended();
}

/// Regression test: on a suspended pipeline, the command ignored the first signal, and `--duration`.
#[test]
fn the_drops_command_does_not_wait_for_a_suspended_pipeline() {
    let (running, mut watching, lines) = watched();
    running.signal(Signal::STOP);
    let id = i32::try_from(watching.id()).ok().and_then(Pid::from_raw).expect("not 0");
    kill_process(id, Signal::INT).expect("it runs");
    let last = lines.last().expect("the last line").expect("UTF-8");
    assert_eq!(watching.wait().expect("it ends").code(), Some(1));
    assert_eq!(serde_json::from_str::<Value>(&last).expect("JSON")["lost"], Value::Null, "{last}");
    let done = running.request(&["drops", "--duration", "50ms"]);
    assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{}", done.err);
    assert!(
        done.err.contains("the pipeline does not respond: the number of missing packets is unknown"),
        "{}",
        done.err
    );
    running.signal(Signal::CONT);
}

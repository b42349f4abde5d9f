//! Several clients of a running pipeline: the output of `show`, `top` and `table`, and its cost.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::forebay;
use crate::running::{PIPELINE, Running, json, packets, temporary};

/// Checks that all packets are accounted for. Packets that a busy machine loses before they enter are reported, too.
fn assert_accounted(running: &Running) {
    let drops = running.request(&["show", "drops"]).success();
    let is_accounted = drops.contains("every packet accounted for") || drops.contains(" LOST before they entered");
    assert!(is_accounted && !drops.contains("UNACCOUNTED"), "{drops}");
}

#[test]
fn a_running_pipeline_is_shown_and_changed_without_losing_packets() {
    let running = Running::start();
    let modules = json(&running.request(&["show", "modules", "--json"]));
    assert!(packets(&modules, "route") > 0);
    assert_eq!(packets(&modules, "a"), 0, "each packet matches the longer prefix");
    assert_accounted(&running);
    for what in ["flows", "ports", "workers", "tables"] {
        let done = running.request(&["show", what]);
        assert!(done.code == Some(0) && !done.out.is_empty(), "{what}: {}", done.err);
        json(&running.request(&["show", what, "--json"]));
    }
    let trace = running.request(&["show", "trace", "--count", "2"]);
    assert!(trace.out.contains("packet 1 from in") && trace.out.contains("left by out"), "{}", trace.out);

    // The table is changed, and keeps the change when all other parts are reloaded.
    let done = running.request(&["table", "route", "replace 10.0.0.0/8 0", "add 192.0.2.0/24 1"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "2 changes made, 0 refused\n"), "{}", done.err);
    let refused = running.request(&["table", "route", "remove 203.0.113.0/24"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("203.0.113.0/24"), "{}", refused.err);
    running.write(
        &PIPELINE
            .replace("b: { counter: }", "b: { counter: }\n  c: { mac_swap: }")
            .replace("-> b -> out", "-> b -> c -> out"),
    );
    let reloaded = json(&running.request(&["reload", "--json"]))["reloaded"].clone();
    // The two branches ran folded, and differ now, so both are created again.
    assert_eq!((reloaded["kept"].as_u64(), reloaded["missing"].as_i64()), (Some(1), Some(0)), "{reloaded}");
    assert_eq!([&reloaded["added"], &reloaded["changed"]], [&serde_json::json!(["c"]), &serde_json::json!(["a", "b"])]);
    let entries = running.request(&["show", "table", "route"]).out;
    assert!(entries.contains("192.0.2.0/24 1") && entries.contains("10.0.0.0/8 0"), "{entries}");
    let modules = json(&running.request(&["show", "modules", "--json"]));
    assert!(packets(&modules, "a") > 0, "the changed route is followed");

    // An invalid configuration changes nothing.
    for wrong in ["ports: {", "", "batch: 7", &PIPELINE.replace("counter", "count"), &format!("batch: 8\n{PIPELINE}")] {
        running.write(wrong);
        let done = running.request(&["reload"]);
        assert_eq!(done.code, Some(2), "{wrong}");
        assert!(done.err.starts_with("error: "), "{}", done.err);
    }
    assert!(running.request(&["show", "modules"]).out.contains("mac_swap"));
    let missing = running.request(&["reload", "not-there.yaml"]);
    assert!(missing.code == Some(2) && missing.err.contains("not-there.yaml"), "{}", missing.err);

    let report = running.end();
    assert_eq!(report["packets"]["in"], report["packets"]["out"]);
    assert_eq!(report["packets"]["dropped"], serde_json::json!({}));
}

#[test]
fn each_response_accounts_for_all_packets_while_packets_are_dropped() {
    // Half of the packets have no route.
    let dropping = PIPELINE.replace("100kpps", "2Mpps").replace("'0.0.0.0/0 0', '10.0.0.0/8 1'", "'10.0.0.0/17 1'");
    let running = Running::of(&dropping);
    let sum = |reasons: &Value| reasons.as_object().expect("reasons").values().filter_map(Value::as_u64).sum::<u64>();
    let (mut responses, mut before) = (0, 0);
    while responses < 30 {
        let drops = json(&running.request(&["show", "drops", "--json"]));
        let count = |key: &str| drops[key].as_u64().expect("a number");
        let waiting = count("queued") + count("held") + count("in_flight");
        let ended = count("out") + sum(&drops["dropped"]) + sum(&drops["consumed"]) + waiting;
        assert_eq!(count("in") + sum(&drops["created"]), ended, "{drops}");
        assert!(count("in") >= before, "{before} had entered: {drops}");
        before = count("in");
        // Counts only responses after the first packets were sent and dropped.
        responses += u32::from(count("out") > 0 && sum(&drops["dropped"]) > 0);
    }
    let report = running.end();
    assert!(
        report["packets"]["dropped"]["route.no_route"].as_u64() > Some(0)
            && report["packets"]["dropped"]["since"].is_null()
    );
}

/// Regression: a second trace ended the first one without a message, and so did a reload. A run that wrote dropped
/// packets could not be traced.
#[test]
fn each_trace_gets_the_packets_that_it_requested() {
    let folder = temporary();
    let drops = folder.path().join("drops.pcapng").display().to_string();
    let running = Running::in_folder(folder, PIPELINE, &["--drops", &drops]);
    let socket = running.socket();
    let mut first = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["show", "trace", "--count", "2", "--filter", "host 192.0.2.1", "--socket"])
        .arg(&socket)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command can be started");
    // No packet so far matches the filter of the first trace.
    for _ in 0..3 {
        let second = running.request(&["show", "trace", "--count", "2"]);
        assert!(second.out.contains("packet 1 from in") && second.out.contains("packet 2 from in"), "{}", second.out);
    }
    assert!(first.try_wait().expect("a child").is_none(), "it waits");
    running.write(&PIPELINE.replace("destination: 10.0.0.0/16", "destination: 192.0.2.1"));
    json(&running.request(&["reload", "--json"]));
    let mut trace = String::new();
    first.stdout.take().expect("piped").read_to_string(&mut trace).expect("UTF-8");
    assert!(first.wait().expect("it ends").success());
    assert_eq!(trace.matches("left by out").count(), 2, "{trace}");
    // A client that disconnects before the end of its trace does not disturb the others.
    let mut gone = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["show", "trace", "--filter", "arp", "--socket"])
        .arg(&socket)
        .spawn()
        .expect("the command can be started");
    assert!(running.request(&["show", "trace"]).out.contains("left by out"));
    gone.kill().expect("it runs");
    gone.wait().expect("it ends");
    assert!(running.request(&["show", "trace"]).out.contains("left by out"));
    running.end();
}

#[test]
fn top_without_a_terminal_prints_lines_and_ends_with_the_pipeline() {
    let running = Running::start();
    let mut top = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["top", "--interval", "100ms", "--socket", &running.socket()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command can be started");
    let mut lines = BufReader::new(top.stdout.take().expect("piped")).lines();
    let first = lines.next().expect("a line").expect("UTF-8");
    assert!(first.contains("pps"), "{first}");
    running.end();
    let last = lines.map(|line| line.expect("UTF-8")).last().expect("a line");
    assert_eq!(last, "the pipeline has ended");
    assert!(top.wait().expect("it ends").success());
}

/// Regression: after its first second, a run without a live table polled without a pause and used a whole core.
#[test]
fn a_run_without_a_live_table_does_not_use_a_whole_core() {
    let running = Running::in_folder(temporary(), PIPELINE, &["--interval", "100ms"]);
    let thread = format!("/proc/{0}/task/{0}/schedstat", running.id());
    let cpu_nanos = || {
        let text = std::fs::read_to_string(&thread).expect("Linux provides this file");
        text.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok()).expect("a number")
    };
    std::thread::sleep(std::time::Duration::from_millis(200));
    let (before, start) = (cpu_nanos(), std::time::Instant::now());
    std::thread::sleep(std::time::Duration::from_millis(500));
    let (took, of) = (cpu_nanos() - before, start.elapsed().as_nanos() as u64);
    assert!(took * 10 < of, "{took} ns of {of}");
    running.end();
}

/// Regression: a folder instead of a file of changes was reported as a broken connection.
#[test]
fn a_folder_as_standard_input_is_refused() {
    let running = Running::start();
    let folder = std::fs::File::open(running.path(".")).expect("a folder");
    let done = running.request_with_input(&["table", "route"], folder.into());
    let expected = "standard input is a folder: write changes as arguments";
    assert!(done.code == Some(2) && done.err.contains(expected), "{}", done.err);
}

#[test]
fn invalid_requests_are_refused_with_the_allowed_values() {
    let running = Running::start();
    for (arguments, expected) in [
        (
            &["table", "a", "add x"][..],
            "module 'a' has no table that can be changed: there are the tables route.routes",
        ),
        (
            &["table", "route.routs", "add x"],
            "no table 'routs' (did you mean 'route.routes'?): there are the tables route.routes",
        ),
        (
            &["show", "table", "rout"],
            "no module is called 'rout' (did you mean 'route'?): there are the tables route.routes",
        ),
        (&["show", "table", "rout.routes"], "(did you mean 'route.routes'?)"),
        (&["show", "table", "nothing"], "no module is called 'nothing': there are the tables route.routes"),
        (&["show", "table"], "show table: name one of route.routes"),
        (&["show", "tables", "route"], "(did you mean `show table route`?)"),
        (&["show", "trace", "--filter", "foo"], "foo"),
        (&["table", "route", "remove\n10.0.0.0/8"], "more than one line"),
    ] {
        let done = running.request(arguments);
        assert!(done.code == Some(2) && done.err.contains(expected), "{arguments:?}: {}", done.err);
    }
    let unreachable = forebay(&["top", "--socket", "/nowhere/at/all"]);
    assert!(
        unreachable.code == Some(2) && unreachable.err.contains("/nowhere/at/all: no socket is there"),
        "{}",
        unreachable.err
    );
    let file = running.path("pipeline.yaml");
    let none = forebay(&["show", "modules", "--json", "--socket", file.to_str().expect("UTF-8")]);
    assert!(none.code == Some(2) && none.err.contains("that is not a socket"), "{}", none.err);
    let error: Value = serde_json::from_str(none.out.trim()).expect("JSON");
    assert_eq!(
        error,
        serde_json::json!({
            "error": format!("{}: that is not a socket: `forebay list running` shows the sockets", file.display())
        })
    );
    let refused = running.request(&["reload", "--json", "--set", "batch=7"]);
    let error: Value = serde_json::from_str(refused.out.trim()).expect("JSON");
    assert!(
        error["error"].as_str().is_some_and(|why| why.contains("batch: 32 cannot become 7 while packets run")),
        "{error}"
    );
    // The run responds to any request with an error, and continues.
    for nonsense in [
        &b"\n"[..],
        b"{}\n",
        b"{\"do\":\"dance\"}\n",
        b"\xff\xfe\n",
        &[b'x'; 3 << 20],
        b"{\"do\":\"report\",\"more\":1}\n",
    ] {
        let mut stream = running.connect(b"");
        // A request that is too long is cut off while it is sent.
        let _ = stream.write_all(nonsense);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut response = String::new();
        let _ = stream.read_to_string(&mut response);
        assert!(response.is_empty() || response.starts_with("{\"error\""), "{response}");
    }
    assert_accounted(&running);
    let occupied = forebay(&["run", "usecase:rc", "--no-live", "--socket", &running.socket()]);
    assert!(
        occupied.code == Some(2) && occupied.err.contains("another pipeline listens on this path"),
        "{}",
        occupied.err
    );
}

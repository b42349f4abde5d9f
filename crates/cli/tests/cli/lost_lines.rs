//! Lines missing from a module's file: the end of a run reports them, with exit code 1.

use std::io::{BufRead, BufReader, Write};

use crate::running::{PIPELINE, Running, wait_for};
use crate::{File, forebay};

/// A rule that matches each packet.
const RULE: &str = "alert ip any any -> any any (sid:1;)";
/// Number of packets of the capture. Each packet causes an alert.
const PACKETS: u64 = 9_000;

/// Writes a capture, and beside it a configuration that reads it and writes alerts with these further parameters.
fn replay(alerts: &str) -> File {
    let file = File::new("");
    let config =
        |ports: &str, modules: &str, line: &str| format!("ports: {ports}\nmodules: {modules}\npipeline: [ {line} ]\n");
    let generating = config(
        &format!("{{ in: {{ generator: {{ count: {PACKETS} }} }}, out: {{ pcap: {{ write: in.pcap }} }} }}"),
        "{ hop: { ttl: } }",
        "in -> hop -> out",
    );
    std::fs::write(file.path(), generating).expect("a file");
    forebay(&["run", file.path(), "--virtual", "--no-live"]).success();
    let text = config(
        "{ in: { pcap: { read: in.pcap, speed: fast } }, out: { sink: } }",
        &format!("{{ ids: {{ nids: {{ rules: ['{RULE}'], alerts: {{ file: a.json{alerts} }} }} }} }}"),
        "in -> ids -> out",
    );
    std::fs::write(file.path(), text).expect("a file");
    file
}

fn lines(file: &File) -> u64 {
    std::fs::read_to_string(file.beside("a.json")).expect("the file").lines().count() as u64
}

#[test]
fn a_replay_at_full_speed_loses_no_alert() {
    for simulated in [&[][..], &["--virtual"]] {
        let file = replay("");
        let done = forebay(&[&["run", file.path(), "--json", "--no-live", "--no-socket"], simulated].concat());
        assert_eq!(done.code, Some(0), "{}", done.err);
        let counts = &done.json()["modules"][0]["counters"]["alerts"];
        assert_eq!((counts["written"].as_u64(), counts["over rate"].as_u64()), (Some(PACKETS), Some(0)), "{counts}");
        assert!(done.json().get("lost_lines").is_none() && !done.err.contains("not in the file"), "{}", done.err);
        assert_eq!(lines(&file), PACKETS);
    }
}

#[test]
fn lost_alerts_are_reported_with_exit_code_1() {
    let file = replay(", rate: 10");
    let done = forebay(&["run", file.path(), "--json", "--no-live", "--virtual"]);
    assert_eq!(done.code, Some(1), "{}", done.err);
    let written = lines(&file);
    let lost = PACKETS - written;
    assert!(written >= 10 && lost > 0, "{written}");
    let expected = format!("ids: alerts: {lost} lines are not in the file ({lost} over rate)");
    assert!(done.err.contains(&expected), "{}", done.err);
    let found = &done.json()["lost_lines"];
    assert_eq!(
        *found,
        serde_json::json!([{ "module": "ids", "lines": "alerts", "over_rate": lost, "lost": 0, "unwritten": 0 }])
    );
}

/// Regression: a reload forgot the losses of the modules and ports that it removed, and the next report counted all of
/// them again.
#[test]
fn losses_before_a_reload_are_in_the_last_report() {
    let lossy = format!(
        "ports:
  in: {{ generator: {{ rate: 1kpps }} }}
  flood: {{ generator: {{ rate: 10Gpps }} }}
  out: {{ sink: }}
modules: {{ ids: {{ nids: {{ rules: ['{RULE}'], alerts: {{ file: a.json, rate: 10 }} }} }} }}
pipeline: [ in -> ids -> out, flood -> ids ]
"
    );
    let running = Running::of(&lossy);
    let report = || {
        let done = running.request(&["show", "modules", "--json"]);
        let modules: serde_json::Value = serde_json::from_str(done.out.trim()).expect("JSON");
        modules[0]["counters"]["alerts"]["over rate"].as_u64().expect("a number")
    };
    wait_for("a lost line", || report() > 0);
    let before = report();
    // Reports of one connection: the recent part of a report begins at the previous report.
    let mut stream = running.connect(b"{\"do\":\"report\",\"recent\":true}\n");
    let mut responses = BufReader::new(stream.try_clone().expect("a second handle")).lines();
    let mut next_report = || {
        let line = responses.next().expect("a response").expect("UTF-8");
        let response: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        response["report"].clone()
    };
    let first = next_report();
    running.write(PIPELINE);
    running.request(&["reload"]).success();
    stream.write_all(b"{\"do\":\"report\",\"recent\":true}\n").expect("it listens");
    let second = next_report();
    let of = |report: &serde_json::Value, span: &str| {
        let lines = report[span]["lost_lines"][0]["over_rate"].as_u64().unwrap_or(0);
        [report[span]["packets"]["lost"].as_u64().expect("a number"), lines]
    };
    let [whole, before_reload, recent] = [of(&second, "whole"), of(&first, "whole"), of(&second, "recent")];
    assert_eq!(recent, [whole[0] - before_reload[0], whole[1] - before_reload[1]], "{first} {second}");
    drop((responses, stream));
    let (code, last, err) = running.end_with();
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("ids: alerts: ") && err.contains("lines are not in the file"), "{err}");
    let lost = &last["lost_lines"];
    assert!(lost[0]["module"] == "ids" && lost[0]["over_rate"].as_u64() >= Some(before), "{lost}");
    assert!(last["modules"].as_array().expect("a list").iter().all(|module| module["name"] != "ids"), "{last}");
    assert!(last["ports"].as_array().expect("a list").iter().all(|port| port["name"] != "flood"), "{last}");
    // Packets of `flood`, whose rate no worker can process.
    assert!(last["packets"]["lost"].as_u64() > Some(0), "{last}");
}

#[test]
fn a_simulation_and_a_measurement_report_lost_lines() {
    let file = File::new(&format!(
        "ports: {{ in: {{ generator: {{ rate: 1Mpps }} }}, out: {{ sink: }} }}
modules: {{ ids: {{ nids: {{ rules: ['{RULE}'], alerts: {{ file: a.json, rate: 10 }} }} }} }}
pipeline: [ in -> ids -> out ]
"
    ));
    let incomplete = "ids: alerts: ";
    let done = forebay(&["simulate", file.path(), "--duration", "10ms", "--cost", "nids=100+10", "--json"]);
    assert!(done.code == Some(1) && done.err.contains(incomplete), "{:?} {}", done.code, done.err);
    assert!(done.json()["lost_lines"][0]["over_rate"].as_u64() > Some(0), "{}", done.out);
    let done = forebay(&["measure", file.path(), "--no-count", "--duration", "50ms"]);
    assert!(done.err.contains(incomplete), "{}", done.err);
}

/// Simulated time waits for the disk. Regression: a run wrote fewer packets than it dropped, and copied fewer than
/// passed.
#[test]
fn captures_of_simulated_runs_are_complete() {
    let file = File::new(
        "ports: { in: { generator: { count: 8000, rate: 1Gpps, queue: 8000, size: 1500 } }, out: { sink: } }
modules: { copies: { tap: { file: copies.pcap } }, wall: { acl: { rules: [], default: deny } } }
pipeline: [ in -> copies -> wall -> out ]
",
    );
    let done = forebay(&["run", file.path(), "--virtual", "--json", "--drops", &file.beside("drops.pcapng")]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(
        done.err.contains("8000 dropped packets written to ") && !done.err.contains("more are missing"),
        "{}",
        done.err
    );
    assert_eq!(done.json()["modules"][0]["counters"]["copies"], serde_json::json!({ "copied": 8000, "lost": 0 }));
}

/// Regression: each of two workers that share a file reported its fault.
#[test]
fn a_fault_of_a_file_that_workers_share_is_reported_once() {
    let file = replay("");
    let script = "ulimit -f 4; exec \"$0\" run \"$1\" --workers 2 --virtual --json";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_forebay"), file.path()]);
    let done = crate::CommandResult::of(command.output().expect("a shell"));
    let fault = "module 'ids': cannot write ";
    assert!(done.code == Some(2) && done.err.matches(fault).count() == 1, "{}", done.err);
}

/// The faults are a file that cannot be written, and a capture that ends in the middle of a packet.
#[test]
fn faults_before_a_reload_are_in_the_last_message() {
    let file = File::new(
        "ports: { in: { generator: { count: 100 } }, out: { pcap: { write: whole.pcap } } }
modules: { hop: { ttl: } }
pipeline: [ in -> hop -> out ]
",
    );
    forebay(&["run", file.path(), "--virtual"]).success();
    let whole = std::fs::read(file.beside("whole.pcap")).expect("it was written");
    std::fs::write(file.beside("cut.pcap"), &whole[..whole.len() - 10]).expect("a writable folder");
    let faulty = format!(
        "ports:
  in: {{ generator: {{ rate: 1kpps }} }}
  cut: {{ pcap: {{ read: {}, speed: fast }} }}
  full: {{ pcap: {{ write: /dev/full }} }}
modules: {{ hop: {{ ttl: }}, copies: {{ tap: {{ file: /dev/full }} }} }}
pipeline: [ in -> hop -> copies -> full, cut -> hop ]
",
        file.beside("cut.pcap")
    );
    let running = Running::of(&faulty);
    let received = |port: &str| {
        let done = running.request(&["show", "ports", port, "--json"]);
        done.out.contains("\"received\":99")
    };
    wait_for("the capture's packets", || received("cut"));
    running.write(PIPELINE);
    running.request(&["reload"]).success();
    let (code, _, err) = running.end_with();
    assert_eq!(code, Some(2), "{err}");
    for part in
        ["port 'cut': the capture ends in the middle", "port 'full': cannot write", "module 'copies': cannot write"]
    {
        assert!(err.contains(part), "{part}: {err}");
    }
}

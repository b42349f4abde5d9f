//! Lines that a module's file should have and has not: the end of a run reports them, and the answer is no.

use crate::{File, forebay};

/// A rule that matches each packet.
const RULE: &str = "alert ip any any -> any any (sid:1;)";
/// How many packets the capture has, each of which is an alert.
const PACKETS: u64 = 9_000;

/// Writes a capture beside the configuration, which reads it and writes alerts with these further parameters.
fn replay(alerts: &str) -> File {
    let file = File::new("");
    let config =
        |ports: &str, modules: &str, line: &str| format!("ports: {ports}\nmodules: {modules}\npipeline: [ {line} ]\n");
    let made = config(
        &format!("{{ in: {{ generator: {{ count: {PACKETS} }} }}, out: {{ pcap: {{ write: in.pcap }} }} }}"),
        "{ hop: { ttl: } }",
        "in -> hop -> out",
    );
    std::fs::write(file.path(), made).expect("a file");
    forebay(&["run", file.path(), "--virtual", "--no-live"]).well();
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
fn a_replay_as_fast_as_it_goes_loses_no_alert() {
    for simulated in [&[][..], &["--virtual"]] {
        let file = replay("");
        let done = forebay(&[&["run", file.path(), "--json", "--no-live", "--no-socket"], simulated].concat());
        assert_eq!(done.code, Some(0), "{}", done.err);
        let counts = &done.json()["modules"][0]["counters"]["alerts"];
        assert_eq!((counts["written"].as_u64(), counts["over rate"].as_u64()), (Some(PACKETS), Some(0)), "{counts}");
        assert!(done.json().get("lost_lines").is_none() && !done.err.contains("not complete"), "{}", done.err);
        assert_eq!(lines(&file), PACKETS);
    }
}

#[test]
fn lost_alerts_are_reported_and_the_answer_is_no() {
    let file = replay(", rate: 10");
    let done = forebay(&["run", file.path(), "--json", "--no-live", "--virtual"]);
    assert_eq!(done.code, Some(1), "{}", done.err);
    let written = lines(&file);
    let lost = PACKETS - written;
    assert!(written >= 10 && lost > 0, "{written}");
    let expected = format!("ids: the file of alerts is not complete: {lost} lines are not in it ({lost} over rate)");
    assert!(done.err.contains(&expected), "{}", done.err);
    let found = &done.json()["lost_lines"];
    assert_eq!(
        *found,
        serde_json::json!([{ "module": "ids", "lines": "alerts", "over_rate": lost, "lost": 0, "unwritten": 0 }])
    );
}

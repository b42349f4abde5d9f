//! Events of runs: on standard error in both formats, over the socket, and in the documentation.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use forebay_protocol::event::{EventName, is_control};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::running::{PIPELINE, Running, temporary, wait_for};
use crate::{File, forebay};

/// The format in which events are written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Format {
    Logfmt,
    Json,
}

impl Format {
    const BOTH: [Self; 2] = [Self::Logfmt, Self::Json];

    fn name(self) -> &'static str {
        if self == Self::Json { "json" } else { "logfmt" }
    }

    /// Parses lines, each of which must be an event. In logfmt every value is a string.
    fn read(self, lines: &str) -> Vec<Value> {
        assert!(!lines.contains(is_control), "{lines:?}");
        let read = |line| if self == Self::Json { serde_json::from_str(line).ok() } else { pairs(line) };
        lines.lines().map(|line| read(line).unwrap_or_else(|| panic!("{self:?}: no event: {line}"))).collect()
    }
}

fn pairs(line: &str) -> Option<Value> {
    let (mut event, mut rest) = (serde_json::Map::new(), line);
    while !rest.is_empty() {
        let (name, value) = rest.split_once('=')?;
        let (text, more) = if value.starts_with('"') {
            let mut values = serde_json::Deserializer::from_str(value).into_iter::<String>();
            let text = values.next()?.ok()?;
            (text, &value[values.byte_offset()..])
        } else {
            let end = value.find(' ').unwrap_or(value.len());
            (value[..end].to_owned(), &value[end..])
        };
        event.insert(name.to_owned(), text.into());
        rest = more.strip_prefix(' ').unwrap_or(more);
    }
    (event.contains_key("time") && event.contains_key("level")).then(|| event.into())
}

fn names(events: &[Value]) -> BTreeSet<&str> {
    events.iter().filter_map(|event| event["event"].as_str()).collect()
}

/// Returns the first event with this name.
fn one<'e>(events: &'e [Value], name: &str) -> &'e Value {
    events.iter().find(|event| event["event"] == name).unwrap_or_else(|| panic!("no {name}: {events:#?}"))
}

#[test]
fn standard_error_of_a_service_contains_only_events() {
    for format in Format::BOTH {
        let mut running = Running::as_service(PIPELINE, &["--log-format", format.name()]);
        running.request(&["table", "route", "add 10.77.0.0/16 1", "add nonsense", "remove 10.77.0.0/16"]);
        running.request(&["table", "route", "add \u{1b}[2J\"\r evil event=port_lost"]);
        running.request(&["reload"]).success();
        running.write("name: x\nports: \u{202e}\u{7}{");
        running.signal(Signal::HUP);
        let mut lines = running.line("reload_refused");
        lines += &running.line("logs_reopened");
        running.write(PIPELINE);
        running.signal(Signal::USR1);
        lines += &running.line("SIGUSR1: logs");
        let (code, _, rest) = running.end_with();
        assert_eq!(code, Some(0), "{rest}");
        let events = format.read(&(lines + &rest));
        let expected = ["logs_reopened", "reload_accepted", "reload_refused", "table_changed"];
        assert_eq!(names(&events), expected.into(), "{format:?}");
        for event in &events {
            assert!(event["time"].as_str().is_some_and(|time| time.ends_with('Z') && time.len() == 24), "{event}");
            assert_eq!(event["pipeline"], "pipeline", "{event}");
        }
        let changed = one(&events, "table_changed");
        let expected = ["2", "1", "route"].map(Value::from);
        let shown = |name: &str| match &changed[name] {
            Value::Number(number) => Value::from(number.to_string()),
            other => other.clone(),
        };
        assert_eq!(["made", "refused", "module"].map(shown), expected, "{changed}");
        assert_eq!(one(&events, "reload_accepted")["by"], "socket");
        let refused = one(&events, "reload_refused");
        assert!(refused["by"] == "SIGHUP" && refused["level"] == "warn", "{refused}");
    }
}

#[test]
fn stored_events_are_shown_and_followed() {
    let mut running = Running::start();
    let socket = running.socket();
    let shown = running.request(&["show", "events"]).success();
    let events = Format::Logfmt.read(&shown);
    assert_eq!(names(&events), ["listening", "started"].into(), "{shown}");
    let mut follower = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let follower = follower.args(["show", "events", "--follow", "--json", "--count", "1", "--socket", &socket]);
    let mut follower = follower.stdout(Stdio::piped()).spawn().expect("it can be started");
    let mut lines = BufReader::new(follower.stdout.take().expect("piped"));
    let mut next = || {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).expect("UTF-8") > 0, "it ended");
        Format::Json.read(&line).remove(0)
    };
    // First the last stored event, then new ones.
    assert_eq!((&next()["event"], &last_id(&running)), (&json!("listening"), &2));
    running.request(&["reload"]).success();
    let reload = next();
    assert_eq!((&reload["event"], &reload["id"]), (&json!("reload_accepted"), &json!(3)));
    running.line("reload_accepted");
    let refused = running.request(&["show", "modules", "--follow"]);
    let why = "error: --follow does not apply to `show modules`; it is allowed with `show events`\n";
    assert_eq!((refused.code, refused.err.as_str()), (Some(2), why));
    running.end();
    assert_eq!(follower.wait().expect("it ends").code(), Some(0));
}

/// Returns the number of the last event.
fn last_id(running: &Running) -> u64 {
    let shown = running.request(&["show", "events", "--json", "--count", "1"]).success();
    Format::Json.read(&shown)[0]["id"].as_u64().expect("a number")
}

/// A pipeline that loses packets and lines. Each type of loss is reported once although there are thousands.
pub(crate) const LOSSES: &str = "
name: losses
pool: { chunks: 64, frame: 128 }
ports:
  in: { pcap: { read: in.pcap, speed: fast } }
  out: { sink: }
modules:
  slow: { shaper: { rate: 10Mbps, burst: 2KiB, held: 32 } }
  ids:
    nids: { unknown: skip, rules: ['alert ip any any -> any any (sid:1;)', 'x'], alerts: { file: a.json, rate: 1 } }
  fw: { acl: { rules: [deny sctp from any to any, permit sctp from any to 192.0.2.1] } }
pipeline: [ in -> ids -> fw -> slow -> out ]
";

/// Writes the capture that [`LOSSES`] reads. It is in the same folder.
pub(crate) fn capture_of_losses(file: &File) {
    let made = File::new(
        "ports:
  in: { generator: { count: 3000, size: [ { size: 60, weight: 9 }, { size: 500, weight: 1 } ] } }
  out: { pcap: { write: in.pcap } }
modules: { hop: { ttl: } }
pipeline: [ in -> hop -> out ]
",
    );
    forebay(&["run", made.path(), "--virtual"]).success();
    std::fs::copy(made.beside("in.pcap"), file.beside("in.pcap")).expect("it was written");
}

#[test]
fn losses_are_reported_as_events_with_counts() {
    for format in Format::BOTH {
        let file = File::new(LOSSES);
        capture_of_losses(&file);
        let drops = file.beside("drops.pcapng");
        let arguments = ["--no-socket", "--no-live", "--json", "--drops", &drops, "--log-format", format.name()];
        let done = forebay(&[&["run", file.path()], &arguments[..]].concat());
        let events = format.read(&done.err);
        for name in ["started", "rules_skipped", "log_lost", "oversize", "drops_written"] {
            assert!(names(&events).contains(name), "{name}: {}", done.err);
        }
        let count = |name: &str| one(&events, name)["count"].to_string().replace('"', "");
        assert_eq!(count("rules_skipped"), "1");
        let report = done.json();
        let oversize: u64 = events.iter().filter(|event| event["event"] == "oversize").map(number).sum();
        assert_eq!(oversize, report["ports"][0]["skipped"]["oversize"].as_u64().expect("a number"), "{}", done.err);
    }
}

/// A simulated run reports its end by events.
#[test]
fn the_end_of_a_simulated_run_is_an_event() {
    let endless = File::new(PIPELINE);
    let limited = File::new(&PIPELINE.replace("rate: 100kpps", "rate: 1pps, count: 9"));
    for format in Format::BOTH {
        for (file, duration, name) in [(&endless, None, "duration_set"), (&limited, Some("1s"), "port_unread")] {
            let more = duration.map_or(vec![], |duration| vec!["--duration", duration]);
            let run = ["run", file.path(), "--virtual", "--log-format", format.name()];
            let done = forebay(&[&run[..], &more].concat());
            assert_eq!(done.code, Some(0), "{}", done.err);
            assert_eq!(one(&format.read(&done.err), name)["port"], "in", "{}", done.err);
        }
    }
}

fn number(event: &Value) -> u64 {
    event["count"].to_string().replace('"', "").parse().expect("a number")
}

/// Returns a pipeline that reads frames of other stations: one station has the pipeline's address, and many send ARP
/// requests.
pub(crate) fn many_neighbours() -> File {
    let arp = |sender: [u8; 4], mac: u8, operation: u8| {
        let station = [2, 0, 0, 0, 1, mac];
        let mut frame = [&[0xff; 6][..], &station, &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation], &station, &sender].concat();
        frame.extend([&[0; 6][..], &[192, 0, 2, 1]].concat());
        frame.resize(60, 0);
        frame
    };
    let mut frames = vec![arp([192, 0, 2, 1], 9, 1); 3];
    frames.extend((10..200).map(|host| arp([192, 0, 2, host], host, 1)));
    let mut capture = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1].map(u32::to_le_bytes).concat();
    for frame in &frames {
        let length = frame.len() as u32;
        capture.extend([0, 0, length, length].map(u32::to_le_bytes).concat());
        capture.extend(frame);
    }
    let file = File::new(
        "ports: { in: { pcap: { read: in.pcap, speed: fast } }, out: { sink: } }
state: { lan: { interface: { mac: '02:00:00:00:00:01', addresses: [192.0.2.1/24] } } }
modules: { arrive: { interface_in: { interface: lan, answers_per_second: 10 } } }
pipeline:
  - in -> arrive
  - arrive[0] -> out
  - arrive[local] -> drop
  - arrive[reply] -> out
",
    );
    std::fs::write(file.beside("in.pcap"), &capture).expect("a writable folder");
    file
}

#[test]
fn an_address_conflict_and_a_neighbour_flood_are_events() {
    let file = many_neighbours();
    let done = forebay(&["run", file.path(), "--no-socket", "--no-live", "--json"]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    let events = Format::Logfmt.read(&done.err);
    let conflict = one(&events, "address_conflict");
    assert!(conflict["module"] == "arrive" && conflict["count"] == "3", "{conflict}");
    let flood = one(&events, "neighbour_flood");
    assert!(flood["module"] == "arrive" && number(flood) > 100, "{flood}");
}

/// Regression: `run --json` printed nothing on standard output if it failed before the report.
#[test]
fn an_error_is_a_json_object_with_the_json_option() {
    let broken = File::new("ports: {\n");
    for format in Format::BOTH {
        let run = |file: &str, more: &[&str]| {
            forebay(&[&["run", file, "--json", "--no-socket", "--log-format", format.name()], more].concat())
        };
        for (file, part) in [(broken.path(), "yaml"), ("/nowhere.yaml", "cannot be read")] {
            let done = run(file, &[]);
            assert_eq!(done.code, Some(2), "{}", done.err);
            assert!(done.json()["error"].as_str().is_some_and(|why| why.contains(part)), "{}", done.out);
            if format == Format::Json {
                let events = format.read(&done.err);
                assert_eq!(one(&events, "run_failed")["msg"], done.json()["error"]);
            } else {
                assert!(done.err.starts_with("error: "), "{}", done.err);
            }
        }
        let well = run("usecase:gw", &["--virtual", "--duration", "1ms"]);
        assert!(well.code == Some(0) && well.json().get("error").is_none(), "{}", well.err);
    }
}

/// Regression: a service that printed a line of rates each second filled its log.
#[test]
fn rates_are_printed_only_with_an_interval() {
    let file = File::new(PIPELINE);
    let run = |more: &[&str]| {
        forebay(&[&["run", file.path(), "--no-socket", "--json", "--duration", "1500ms"], more].concat())
    };
    let (silent, loud) = (run(&[]), run(&["--interval", "200ms"]));
    assert!(silent.code == Some(0) && !silent.err.contains(" pps "), "{}", silent.err);
    assert!(loud.code == Some(0) && loud.err.contains(" pps "), "{}", loud.err);
}

#[test]
fn every_event_is_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/events.md");
    let text = std::fs::read_to_string(path).expect("it exists");
    for name in EventName::ALL {
        let row = format!("| `{name}` | {} |", name.level());
        assert!(text.contains(&row), "docs/events.md has no row {row}");
    }
    let levels = ["error", "warn", "info"];
    let is_row =
        |line: &&str| line.starts_with("| `") && line.split('|').nth(2).is_some_and(|it| levels.contains(&it.trim()));
    let rows = text.lines().filter(is_row).count();
    assert_eq!(rows, EventName::ALL.len(), "docs/events.md has rows of events that do not exist");
}

/// Tests which configuration a run starts from: the file or the state.
#[test]
fn a_changed_file_replaces_the_stored_configuration() {
    let folder = temporary();
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (file, state, old) = (path("edge.yaml"), path("state"), path("state.old"));
    let write = |name: &str| std::fs::write(&file, format!("name: {name}\n{PIPELINE}")).expect("a writable folder");
    let run = |more: &[&str]| {
        let arguments = ["run", &file, "--no-socket", "--json", "--duration", "10ms", "--state", &state];
        forebay(&[&arguments[..], more].concat())
    };
    let starts_as = |more: &[&str], name: &str, event: Option<(&str, &str)>| {
        let done = run(more);
        assert!(done.code == Some(0) && done.json()["pipeline"] == name, "{more:?}: {}{}", done.out, done.err);
        let events = Format::Logfmt.read(&done.err);
        match event {
            Some((event, why)) => assert_eq!(one(&events, event)["why"], why, "{}", done.err),
            None => assert!(!done.err.contains("event=state_"), "{}", done.err),
        }
        done.err
    };
    let mode = |path: &str| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777
    };
    write("first");
    starts_as(&["--prefer", "state"], "first", None);
    starts_as(&[], "first", Some(("state_used", "unchanged")));
    // File times and settings do not count as changes.
    write("first");
    let err = starts_as(&["--set", "name=other"], "first", Some(("state_used", "unchanged")));
    assert!(err.contains("ignored=\"--set name=other\""), "{err}");
    let before = std::fs::read(&state).expect("it exists");
    write("second");
    assert!(std::fs::metadata(&old).is_err());
    starts_as(&["--prefer", "state"], "first", Some(("state_used", "prefer")));
    // A broken file is refused, and nothing changes.
    std::fs::write(&file, "ports: {\n").expect("a writable folder");
    let refused = run(&[]);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.contains("edge.yaml:") && refused.err.contains("use --prefer state"), "{}", refused.err);
    std::fs::write(&file, b"\xff").expect("a writable folder");
    assert_eq!(run(&[]).code, Some(2));
    assert!(std::fs::metadata(&old).is_err() && std::fs::read(&state).expect("it exists") == before);
    std::fs::remove_file(&file).expect("it exists");
    starts_as(&[], "first", Some(("state_used", "no_file")));
    write("second");
    starts_as(&[], "second", Some(("state_replaced", "changed")));
    assert!(std::fs::read(&old).expect("it was stored") == before && (mode(&old), mode(&state)) == (0o600, 0o600));
    starts_as(&[], "second", Some(("state_used", "unchanged")));
    starts_as(&["--prefer", "file", "--set", "name=third"], "third", Some(("state_replaced", "prefer")));
    // Settings that only the state has are reported. They are no longer in force.
    write("fourth");
    let err = starts_as(&[], "fourth", Some(("state_replaced", "changed")));
    assert!(err.contains("dropped=\"--set name=third\""), "{err}");
    // A state of an older version has no hash.
    let text = std::fs::read_to_string(&state).expect("it exists");
    let mut older: Value = serde_json::from_str(&text).expect("JSON");
    older.as_object_mut().and_then(|older| older.remove("started_from")).expect("a fingerprint");
    std::fs::write(&state, older.to_string()).expect("a writable folder");
    write("fifth");
    starts_as(&[], "fourth", Some(("state_used", "no_hash")));
    starts_as(&[], "fourth", Some(("state_used", "unchanged")));
    let none = forebay(&["run", &file, "--prefer", "file"]);
    assert!(none.code == Some(2) && none.err.contains("--state"), "{}", none.err);
    // A use case counts as unchanged as long as it has the same name.
    let case = |name: &str, more: &[&str]| {
        let arguments = ["run", name, "--no-socket", "--json", "--duration", "10ms", "--state", &state];
        let done = forebay(&[&arguments[..], more].concat());
        assert_eq!(done.code, Some(0), "{}", done.err);
        done.err
    };
    assert!(case("usecase:gw", &["--set", "n=2"]).contains("why=other_file"));
    assert!(case("usecase:gw", &["--set", "n=3"]).contains("why=unchanged"));
    assert!(case("usecase:l2l3", &[]).contains("why=other_file"));
}

/// Regression: the log reported that a refused file had replaced the state, and then that the state was unchanged.
#[test]
fn a_refused_file_is_not_reported_to_replace_the_state() {
    let folder = temporary();
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (file, state) = (path("edge.yaml"), path("state"));
    let run = |text: &str, more: &[&str]| {
        std::fs::write(&file, text).expect("a writable folder");
        let arguments = ["run", &file, "--no-socket", "--json", "--duration", "10ms", "--state", &state];
        forebay(&[&arguments[..], more].concat())
    };
    run(PIPELINE, &[]).success();
    for more in [&[][..], &["--prefer", "file"]] {
        for wrong in ["ports: {\n", "ports: { in: { sink: {}, tap: {} } }\n"] {
            let refused = run(wrong, more);
            assert_eq!(refused.code, Some(2), "{}", refused.err);
            assert!(refused.err.contains("is unchanged: "), "{}", refused.err);
            assert!(!refused.err.contains("state_replaced"), "{}", refused.err);
        }
        let done = run(&format!("name: x{}\n{PIPELINE}", more.len()), more);
        assert_eq!(done.code, Some(0), "{}", done.err);
        let events = Format::Logfmt.read(&done.err);
        let message = one(&events, "state_replaced")["msg"].as_str().expect("a text");
        assert!(message.contains("was moved from") && std::path::Path::new(&path("state.old")).exists(), "{message}");
    }
}

/// A reload from another file is newer than the file from which the run was started, and than the earlier changes of
/// that file.
#[test]
fn a_reload_is_newer_than_the_file() {
    let running = Running::start();
    let (file, other) = (running.path("pipeline.yaml"), running.path("other.yaml"));
    std::fs::write(&other, format!("name: other\n{PIPELINE}")).expect("a writable folder");
    running.write(&format!("name: passed_over\n{PIPELINE}"));
    running.request(&["reload", other.to_str().expect("UTF-8")]).success();
    let (_, folder) = running.end_keeping();
    let at = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let start = || {
        let done = forebay(&[
            "run",
            &at("pipeline.yaml"),
            "--no-socket",
            "--json",
            "--duration",
            "10ms",
            "--state",
            &at("state"),
        ]);
        done.json()["pipeline"].clone()
    };
    assert_eq!(start(), "other");
    std::fs::write(&file, format!("name: edited\n{PIPELINE}")).expect("a writable folder");
    assert_eq!(start(), "edited");
    wait_for("the previous state", || folder.path().join("state.old").exists());
}

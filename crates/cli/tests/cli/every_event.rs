//! A run produces each type of event. Each event is printed in both formats and parsed again by parsers that share no
//! code with the printer.
//!
//! [`scenario`] names the run that produces each type. A type without a run does not compile.

mod logfmt;
mod wan;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use forebay_protocol::event::{Event, EventName};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::events::{LOSSES, capture_of_losses, many_neighbours};
use crate::moves::two_workers;
use crate::running::{PIPELINE, Running, temporary, wait_for};
use crate::terminal::Terminal;
use crate::{CommandResult, File, ROUTER};

/// A run that produces events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scenario {
    /// A service with a reload, a table change and signals.
    Service,
    /// A run with a server that is killed.
    Http,
    /// A service whose modules move.
    Moving,
    /// A service whose pool is empty.
    Pool,
    /// A run that loses packets, lines and rules. Its state and drops are in files with hostile names.
    Losses,
    /// Runs in simulated time.
    Simulated,
    /// A run that sees many neighbours.
    Neighbours,
    /// A run whose packets are held for a long time.
    Held,
    /// A run whose terminal is closed.
    Terminal,
    /// A run with a controller and without a profile.
    Unprofiled,
    /// A run that does not start.
    Refused,
    /// A run between kernel interfaces.
    Wan,
}

/// Returns the run that produces this type of event.
fn scenario(name: EventName) -> Scenario {
    use EventName as E;
    match name {
        E::Started
        | E::Listening
        | E::ReloadAccepted
        | E::ReloadRefused
        | E::TableChanged
        | E::ObjectiveMissed
        | E::ObjectiveKept
        | E::LogsReopened
        | E::LogNotReopened => Scenario::Service,
        E::HttpStarted | E::HttpEnded => Scenario::Http,
        E::Moved => Scenario::Moving,
        E::PoolLow => Scenario::Pool,
        E::StateUsed
        | E::StateReplaced
        | E::RulesSkipped
        | E::RulesHidden
        | E::LogLost
        | E::Oversize
        | E::DropsWritten => Scenario::Losses,
        E::DurationSet | E::PortUnread | E::NothingTraced => Scenario::Simulated,
        E::AddressConflict | E::NeighbourFlood => Scenario::Neighbours,
        E::Waiting => Scenario::Held,
        E::TerminalLost => Scenario::Terminal,
        E::CostsLearnt => Scenario::Unprofiled,
        E::RunFailed => Scenario::Refused,
        E::ArpFlux | E::LinkDown | E::LinkUp | E::PortLost | E::PortRemade => Scenario::Wan,
    }
}

/// External text that tries to forge a line, send escape sequences to a terminal, or end a value.
const HOSTILE: &str = "x\" =\\\nlevel=error event=port_lost msg=\"\u{1b}[2J\r\t\0\u{7f}\u{9b}2J\u{2028}\u{202e}é😀";

/// The name of a file that is not UTF-8, and the text that is printed for it.
const NOT_UTF8: (&[u8], &str) = (b"\xff\n\x1b[2J\" event=port_lost", "\u{fffd}\n\u{1b}[2J\" event=port_lost");

#[test]
fn every_event_is_produced_and_parsed_in_both_formats() {
    let mut scenarios: BTreeMap<Scenario, Vec<EventName>> = BTreeMap::new();
    for name in EventName::ALL {
        scenarios.entry(scenario(*name)).or_default().push(*name);
    }
    for (scenario, expected) in scenarios {
        let Some(events) = produced(scenario) else { continue };
        for name in expected {
            assert!(events.iter().any(|event| event.event == name), "{scenario:?}: no {name}: {events:#?}");
        }
        for event in &events {
            assert_parsed(event);
            assert_documented(event);
            let hostile = |value: &mut Value| {
                if value.is_string() {
                    *value = HOSTILE.into();
                }
            };
            let mut forged = Event { message: HOSTILE.to_owned(), pipeline: HOSTILE.to_owned(), ..event.clone() };
            forged.fields.values_mut().for_each(hostile);
            assert_parsed(&forged);
        }
    }
}

/// Prints an event in both formats, and compares each field with the result of the parsers.
fn assert_parsed(event: &Event) {
    let fields = event.fields.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let pipeline = (!event.pipeline.is_empty()).then(|| ("pipeline", event.pipeline.clone().into()));
    let fixed = [("time", &*event.time), ("level", level(event)), ("event", event.event.as_str())];
    let fixed = fixed.map(|(name, value)| (name, Value::from(value)));
    let expected: Vec<(&str, Value)> =
        fixed.into_iter().chain(pipeline).chain(fields).chain([("msg", event.message.clone().into())]).collect();

    let line = event.to_logfmt();
    let read = logfmt::parse(&line).unwrap_or_else(|why| panic!("{why}: {line:?}"));
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let expected_texts: Vec<_> = expected.iter().map(|(name, value)| ((*name).to_owned(), text(value))).collect();
    assert_eq!(read, expected_texts, "{line}");

    let line = event.to_json();
    assert!(!line.chars().any(logfmt::is_forbidden), "{line:?}");
    let read: BTreeMap<String, Value> = serde_json::from_str(&line).unwrap_or_else(|why| panic!("{why}: {line:?}"));
    let numbered = [("id".to_owned(), Value::from(event.id))];
    let expected: BTreeMap<_, _> =
        expected.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(numbered).collect();
    assert_eq!(read, expected, "{line}");
}

fn level(event: &Event) -> &'static str {
    match event.event.level() {
        forebay_protocol::event::Level::Error => "error",
        forebay_protocol::event::Level::Warn => "warn",
        forebay_protocol::event::Level::Info => "info",
    }
}

/// Checks that the event's row in the documentation has each of its fields.
fn assert_documented(event: &Event) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/events.md");
    let text = std::fs::read_to_string(path).expect("it exists");
    let mut known = BTreeSet::new();
    for line in text.lines() {
        let cells: Vec<_> = line.split('|').collect();
        let [_, name, _, fields, _, _] = cells[..] else { continue };
        // Some rows refer to the fields of the previous row.
        if !fields.contains("the same") {
            known = fields.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        }
        if name.trim().trim_matches('`') == event.event.as_str() {
            let unknown: Vec<_> = event.fields.keys().filter(|field| !known.contains(*field)).collect();
            assert!(unknown.is_empty(), "docs/events.md: {} has no {unknown:?}", event.event);
            return;
        }
    }
    panic!("docs/events.md has no row {}", event.event);
}

/// Returns the events of a run. If this machine cannot run the scenario, prints the reason and returns `None`.
fn produced(scenario: Scenario) -> Option<Vec<Event>> {
    Some(match scenario {
        Scenario::Service => service(),
        Scenario::Http => http(),
        Scenario::Moving => return moving(),
        Scenario::Pool => pool(),
        Scenario::Losses => losses(),
        Scenario::Simulated => simulated(),
        Scenario::Neighbours => {
            let file = many_neighbours();
            of(&run(["--no-socket"], file.path()))
        }
        Scenario::Held => held(),
        Scenario::Terminal => return terminal(),
        Scenario::Unprofiled => unprofiled(),
        Scenario::Refused => {
            let name = HOSTILE.replace('\0', "");
            let events = of(&run(["--no-socket"], &name));
            assert!(events.last().is_some_and(|event| event.message.contains("port_lost")), "{events:?}");
            events
        }
        Scenario::Wan => return wan::events(),
    })
}

/// Parses the events of standard error. It contains nothing else.
fn read(lines: &str) -> Vec<Event> {
    let read = |line| serde_json::from_str(line).unwrap_or_else(|why| panic!("no event: {why}: {line}"));
    lines.lines().map(read).collect()
}

fn of(done: &CommandResult) -> Vec<Event> {
    read(&done.err)
}

/// Runs a pipeline until it ends.
fn run<S: AsRef<OsStr>>(more: impl IntoIterator<Item = S>, file: &str) -> CommandResult {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(["run", "--no-live", "--json", "--log-format", "json"]).args(more).arg(file);
    CommandResult::of(command.output().expect("the command can be started"))
}

fn service() -> Vec<Event> {
    // Few packets reach the NAT. The scenario needs only its log.
    let text = |slo: &str| {
        let text = PIPELINE.replace("modules:\n", "modules:\n  out_nat: { nat_out: { state: n } }\n");
        text.replace("route[0] -> a -> out", "route[0] -> a -> out_nat -> out")
            + &format!("flows:\n  - {{ name: video, path: 'route[1] -> b', slo: {slo} }}\n")
            + "state: { n: { nat: { pool: 192.0.2.0/28, log: { file: ports.json } } } }\n"
    };
    let mut running = Running::as_service(&text("1ns"), &["--log-format", "json"]);
    let mut lines = running.line("objective_missed");
    running.write(&text("100s"));
    running.request(&["reload"]).success();
    lines += &running.line("objective_kept");
    running.request(&["table", "route", "add 10.77.0.0/16 1", &format!("add {}", HOSTILE.replace(['\0', '\n'], ""))]);
    running.write(&format!("ports: {{ {HOSTILE:?}"));
    running.signal(Signal::HUP);
    lines += &running.line("logs_reopened");
    let log = running.path("ports.json");
    let _ = std::fs::remove_file(&log);
    std::fs::create_dir(&log).expect("its name is free");
    running.signal(Signal::USR1);
    lines += &running.line("log_not_reopened");
    // The run stores the events, and shows the same in both formats.
    let stored = read(&running.request(&["show", "events", "--json"]).success());
    let shown = running.request(&["show", "events"]).success();
    let shown = &shown.lines().collect::<Vec<_>>()[..stored.len()];
    assert_eq!(*shown, stored.iter().map(Event::to_logfmt).collect::<Vec<_>>());
    let find = |name: EventName| stored.iter().find(|event| event.event == name).expect("it was printed");
    let (missed, met) = (find(EventName::ObjectiveMissed), find(EventName::ObjectiveKept));
    assert!(missed.fields["flow"] == "video" && missed.fields["slo_us"] == 0.001, "{missed:?}");
    assert!(met.fields["flow"] == "video" && met.fields["slo_us"] == 100e6, "{met:?}");
    for event in read(&lines) {
        assert!(stored.contains(&event), "{event:?}: {stored:#?}");
    }
    running.end_with();
    stored
}

/// Runs a pipeline with a server, which is then killed.
fn http() -> Vec<Event> {
    let mut running = Running::as_service(PIPELINE, &["--log-format", "json", "--http", "127.0.0.1:0"]);
    let mut lines = running.line("http_started");
    let parent = running.id().to_string();
    let is_child = |process: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)) == Some(parent.as_str())
    };
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let server = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_child).expect("a server");
    kill_process(rustix::process::Pid::from_raw(server).expect("not 0"), Signal::KILL).expect("it runs");
    lines += &running.line("http_ended");
    running.end_with();
    read(&lines)
}

fn moving() -> Option<Vec<Event>> {
    let running = two_workers("every_event_is_produced_and_parsed_in_both_formats")?;
    running.request(&["move", "last=1", "nat=1"]).success();
    let stored = read(&running.request(&["show", "events", "--json"]).success());
    let moved = stored.iter().find(|event| event.event == EventName::Moved).expect("it is recorded");
    assert!(moved.fields["modules"] == "nat,last" && moved.fields["missing"] == 0, "{moved:?}");
    assert_eq!(moved.message, "moved 'nat' from worker 0 to 1, 'last' from worker 0 to 1");
    running.end();
    Some(stored)
}

fn pool() -> Vec<Event> {
    let text = "
pool: { chunks: 64 }
scheduler: weighted-fair
shares: { slow: { rate: 100pps, queue: 4096, when_full: drop } }
ports: { in: { generator: { rate: 100kpps } }, out: { sink: } }
modules: { slow: { counter: } }
pipeline: [ in -> slow -> out ]
";
    let mut running = Running::as_service(text, &["--log-format", "json"]);
    let mut lines = running.line("pool_low");
    lines += &running.end_with().2;
    read(&lines)
}

/// Performs three runs with one state in a folder with a hostile name. The first writes the state, the second starts
/// from it, and the third finds that the configuration file has changed.
fn losses() -> Vec<Event> {
    let (file, folder) = (File::new(LOSSES), temporary());
    capture_of_losses(&file);
    let hostile = folder.path().join(OsStr::from_bytes(NOT_UTF8.0));
    std::fs::create_dir(&hostile).expect("a name without a slash is allowed");
    let (state, drops) = (hostile.join("state"), hostile.join("drops.pcapng"));
    let arguments = ["--no-socket", "--state"].map(OsStr::new);
    let arguments = [&arguments[..], &[state.as_os_str(), OsStr::new("--drops"), drops.as_os_str()]].concat();
    let mut events = of(&run(&arguments, file.path()));
    events.extend(of(&run(&arguments, file.path())));
    std::fs::write(file.path(), format!("{LOSSES}# changed\n")).expect("a writable folder");
    events.extend(of(&run(&arguments, file.path())));
    for (event, field) in [("state_used", "state"), ("state_replaced", "state"), ("drops_written", "file")] {
        let event = events.iter().find(|seen| seen.event.as_str() == event).expect(event);
        assert!(event.fields[field].as_str().is_some_and(|path| path.contains(NOT_UTF8.1)), "{event:?}");
    }
    events
}

fn simulated() -> Vec<Event> {
    let endless = File::new(PIPELINE);
    let cut = File::new(&PIPELINE.replace("rate: 100kpps", "rate: 1pps, count: 9"));
    let router = File::new(ROUTER);
    let mut events = of(&run(["--virtual"], endless.path()));
    events.extend(of(&run(["--virtual", "--duration", "1s"], cut.path())));
    events.extend(of(&run(["--no-socket", "--trace", "2", "--filter", "tcp port 80"], router.path())));
    events
}

fn held() -> Vec<Event> {
    let text = "ports: { in: { generator: { count: 3, size: 1500 } }, out: { sink: } }
modules: { slow: { shaper: { rate: 1kbps, burst: 2KiB } } }
pipeline: [ in -> slow -> out ]
";
    let mut running = Running::as_service(text, &["--log-format", "json"]);
    let mut lines = running.line("waiting");
    lines += &running.end_with().2;
    read(&lines)
}

fn unprofiled() -> Vec<Event> {
    let text = "control: { batching: optimal, period: 10ms }
ports: { in: { generator: { count: 3 } }, out: { sink: } }
modules: { count: { counter: } }
pipeline: [ in -> count -> out ]
";
    let (file, cache) = (File::new(text), temporary());
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.env("XDG_CACHE_HOME", cache.path()).args(["run", "--no-live", "--no-socket", "--log-format", "json"]);
    let events =
        of(&CommandResult::of(command.args(["--json"]).arg(file.path()).output().expect("the command can be started")));
    let learnt = events.iter().find(|event| event.event == EventName::CostsLearnt).expect("nothing is known");
    assert_eq!(learnt.fields["functions"], "counter");
    events
}

fn terminal() -> Option<Vec<Event>> {
    let command = "$forebay --no-live --json --log-format json >out 2>err & echo $! >pid; fg";
    let mut terminal = Terminal::start("every_event_is_produced_and_parsed_in_both_formats", command)?;
    let run = terminal.run();
    terminal.close();
    wait_for("an event of the terminal", || terminal.read("err").contains("terminal_lost"));
    kill_process(run, Signal::TERM).expect("it runs");
    wait_for("a report", || terminal.read("out").ends_with("}\n"));
    Some(read(&terminal.read("err")))
}

/// The parser of this test rejects malformed lines.
#[test]
fn a_forged_line_is_not_parsed() {
    for (line, why) in [
        ("time=1 time=2", "twice"),
        ("time=1  level=2", "a name"),
        ("time=1 ", "no ="),
        ("time= level=2", "no value"),
        ("time=\"1", "no end"),
        ("time=\"1\"level=2", "a space"),
        ("time=\"\\x41\"", "an escape"),
        ("time=a\"b", "a plain value"),
        ("time=\u{1b}", "a character"),
        ("time=\"\u{202e}\"", "a character"),
        ("time=\"1\n\"", "a character"),
        ("time", "no ="),
    ] {
        assert!(logfmt::parse(line).is_err_and(|message| message.contains(why)), "{line:?}: {:?}", logfmt::parse(line));
    }
    let pairs = |pairs: &[(&str, &str)]| -> Vec<_> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let read = logfmt::parse("a=1 b_2=\"x \\\"\\\\\\n\\u001b\\ud83d\\ude00=\" c=\"\"");
    assert_eq!(read, Ok(pairs(&[("a", "1"), ("b_2", "x \"\\\n\u{1b}😀="), ("c", "")])));
}

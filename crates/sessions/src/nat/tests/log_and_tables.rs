//! The log and the tables that operators see: the log lists exactly the bindings that exist, and the tables show the
//! state of a model.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::listing::testing::{changed, chosen, word};

struct Folder(std::path::PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("forebay-nat-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a writable folder for temporary files");
        Self(path)
    }

    fn environment(&self, share: (usize, usize)) -> SetupEnvironment {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        (environment.files.base, environment.simulated, environment.share) = (self.0.clone(), true, share);
        environment
    }

    fn lines(&self, file: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.0.join(file)).expect("the file");
        text.lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The inside end of each protocol and outside end.
type Bindings = BTreeMap<(u64, String), String>;

/// Replays a log. Asserts that each event is consistent with the events before it.
fn replay(lines: &[Value]) -> Bindings {
    let mut bindings = Bindings::new();
    for line in lines {
        let end = |side: &str| format!("{}:{}", line[side].as_str().expect("an address"), line[format!("{side}_port")]);
        match line["event"].as_str().expect("an event") {
            "start" => bindings.clear(),
            event => {
                let key = (line["protocol"].as_u64().expect("a number"), end("outside"));
                let before = match event {
                    "allocate" => bindings.insert(key, end("inside")),
                    _ => {
                        let before = bindings.remove(&key);
                        assert_eq!(before, Some(end("inside")), "{line}");
                        None
                    }
                };
                assert_eq!(before, None, "{line}");
            }
        }
    }
    bindings
}

/// Returns the contents of the table of bindings.
fn shown(nat: &mut Both) -> Bindings {
    let number = |line: &str| match word(line, "protocol") {
        "tcp" => 6,
        "udp" => 17,
        _ => 1,
    };
    let lines = chosen(&mut nat.out, "bindings", "all");
    lines
        .iter()
        .map(|line| ((number(line), word(line, "outside").to_owned()), word(line, "inside").to_owned()))
        .collect()
}

#[test]
fn each_allocation_and_each_release_is_a_line() {
    let folder = Folder::new("lines");
    let state = json!({ "pool": "192.0.2.1", "ports": [2_000, 2_000], "log": { "file": "a.json" } });
    let mut nat = Both::within(state, false, &mut folder.environment((0, 1)));
    nat.pass(1);
    assert!(nat.goes_out(&udp((HOST, 5_000), (PEER, 53), b"")).is_some());
    assert!(nat.goes_out(&udp((HOST, 5_000), (PEER, 54), b"")).is_some(), "the same inside port writes no line");
    nat.pass(125);
    nat.out.wake();
    nat.out.function.close().expect("it can be written");
    let bound = |time: &str, event: &str| {
        json!({
            "time": time, "state": "nat1", "worker": 0, "workers": 1, "event": event, "protocol": 17,
            "inside": "10.0.0.7", "inside_port": 5_000, "outside": "192.0.2.1", "outside_port": 2_000,
        })
    };
    let time = "1970-01-01T00:00:01.000000000Z";
    let start = json!({ "time": time, "state": "nat1", "worker": 0, "workers": 1, "event": "start" });
    let lines = folder.lines("a.json");
    let expected = [
        start,
        bound("1970-01-01T00:00:01.000000000Z", "allocate"),
        bound("1970-01-01T00:02:06.000000000Z", "release"),
    ];
    assert_eq!(lines, expected);
    let counts: Vec<_> = nat.out.counters("log").into_iter().collect();
    assert_eq!(counts, [("lost", 0), ("over rate", 0), ("unwritten", 0), ("written", 3)]);
}

#[test]
fn computed_ports_are_not_logged() {
    let folder = Folder::new("computed");
    let state = json!({
        "pool": "192.0.2.1", "log": { "file": "a.json" }, "deterministic": { "inside": "10.0.0.0/24", "reserve": 100 },
    });
    let mut nat = Both::within(state, false, &mut folder.environment((0, 1)));
    assert!(nat.goes_out(&udp((HOST, 5_000), (PEER, 53), b"")).is_some());
    assert!(nat.goes_out(&udp(([10, 9, 9, 9], 5_000), (PEER, 53), b"")).is_some());
    nat.out.function.close().expect("it can be written");
    let lines = folder.lines("a.json");
    assert_eq!((lines.len(), &lines[1]["inside"]), (2, &json!("10.9.9.9")));
}

/// After a reload with the same table, sessions and log continue. With another table the log has a new start event.
#[test]
fn a_changed_configuration_goes_on_with_the_log() {
    let folder = Folder::new("changed");
    let mut environment = folder.environment((0, 1));
    let state = json!({ "pool": "192.0.2.1", "log": { "file": "a.json" } });
    let mut nat = Both::within(state.clone(), false, &mut environment);
    assert!(nat.goes_out(&udp((HOST, 5_000), (PEER, 53), b"")).is_some());
    let mut next = Both::within(state, true, &mut environment);
    drop(nat);
    assert!(next.goes_out(&udp((HOST, 5_001), (PEER, 53), b"")).is_some());
    next.out.function.close().expect("it can be written");
    let events = |folder: &Folder| {
        folder
            .lines("a.json")
            .iter()
            .map(|line| line["event"].as_str().expect("an event").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(events(&folder), ["start", "allocate", "allocate"]);
    assert_eq!(replay(&folder.lines("a.json")), shown(&mut next));
    let other = json!({ "pool": "192.0.2.1", "sessions": 9, "log": { "file": "a.json" } });
    let mut last = Both::within(other, false, &mut environment);
    assert!(last.goes_out(&udp((HOST, 5_000), (PEER, 53), b"")).is_some());
    last.out.function.close().expect("it can be written");
    assert_eq!(events(&folder)[3..], ["start", "allocate"]);
    assert_eq!(replay(&folder.lines("a.json")), shown(&mut last));
    let mut environment = folder.environment((0, 1));
    let state = json!({ "pool": "192.0.2.1", "log": { "file": "no/such/folder" } });
    let state = make(state, &mut environment).expect("the file is not opened yet");
    environment.objects.states.insert("nat1".to_owned(), Arc::new(state));
    let error =
        Rig::within::<NatOut>(&json!({ "state": "nat1" }), &mut environment).err().expect("refused").to_string();
    assert!(error.contains("state: log.file: cannot write ") && error.contains("no/such/folder"), "{error}");
}

/// Regression: if the configuration replaced a running one, the fault was reported at the module.
#[test]
fn an_empty_file_name_is_a_fault_of_the_state() {
    let mut environment = Folder::new("empty").environment((0, 1));
    (environment.checking, environment.replaces_running) = (true, true);
    let state = json!({ "pool": "192.0.2.1", "log": { "file": "" } });
    assert_eq!(make(state, &mut environment).err().as_deref(), Some("log.file: the file name is empty: name a file"));
}

#[test]
fn sessions_are_shown_and_ended() {
    let mut nat = plain();
    let (outside, _) = ends(&nat.goes_out(&udp((HOST, 5_000), (PEER, 53), b"")).expect("room"));
    let (other, _) = ends(&nat.goes_out(&tcp(([10, 0, 0, 8], 6_000), (PEER, 80), "S")).expect("room"));
    nat.pass(10);
    nat.comes_back(&udp((PEER, 53), outside, b"")).expect("a session");
    nat.pass(5);
    let outer = |end: ([u8; 4], u16)| format!("{}:{}", Ipv4Addr::from(end.0), end.1);
    let lines = chosen(&mut nat.out, "sessions", "all");
    let first = format!(
        "protocol=udp inside=10.0.0.7:5000 peer=198.51.100.9:53 outside={} state=established idle=5s ends=295s \
         worker=0 at=0.0.1",
        outer(outside)
    );
    let second = format!(
        "protocol=tcp inside=10.0.0.8:6000 peer=198.51.100.9:80 outside={} state=opening idle=15s ends=225s \
         worker=0 at=0.0.2",
        outer(other)
    );
    assert_eq!(lines, [first.clone(), second]);
    assert_eq!(chosen(&mut nat.out, "sessions", &outer(other)), lines[1..], "the session with this port");
    assert_eq!(chosen(&mut nat.out, "sessions", "inside=10.0.0.0/29 udp"), lines[..1]);
    let bindings = chosen(&mut nat.out, "bindings", "tcp");
    assert_eq!(
        bindings,
        [format!("protocol=tcp inside=10.0.0.8:6000 outside={} sessions=1 worker=0 at=0.1.2", outer(other))]
    );
    assert!(
        changed(&mut nat.out, "bindings", &["remove all"]).refused[0]
            .message
            .contains("remove the sessions in the table sessions")
    );
    let outcome = changed(&mut nat.out, "sessions", &[&format!("remove {first}"), "remove 10.0.0.7"]);
    assert_eq!((outcome.made, outcome.refused.len()), (1, 1), "{outcome:?}");
    assert_eq!(nat.comes_back(&udp((PEER, 53), outside, b"")), None, "the session has ended");
    assert_eq!(chosen(&mut nat.out, "sessions", "all").len(), 1);
    assert_eq!(changed(&mut nat.out, "sessions", &["remove all"]).made, 1);
    assert_eq!(nat.out.counters("sessions")["ended"], 2);
    assert_eq!(
        (nat.out.wake(), chosen(&mut nat.out, "sessions", "all").len()),
        (None, 0),
        "no session is left that will end"
    );
}

/// Sessions that only have packets from outside expire, too.
#[test]
fn sessions_from_outside_are_shown_though_nothing_goes_out() {
    let forwards = json!([{ "protocol": "tcp", "outside": "192.0.2.1:80", "inside": "10.0.0.5:8080" }]);
    let mut nat = Both::new(json!({ "pool": "192.0.2.1", "forwards": forwards }));
    assert!(nat.comes_back(&tcp((PEER, 1_000), ([192, 0, 2, 1], 80), "S")).is_some());
    assert!(nat.back.wakes_at().is_some());
    let lines = chosen(&mut nat.back, "sessions", "all");
    assert_eq!((lines.len(), word(&lines[0], "inside")), (1, "10.0.0.5:8080"));
    let bindings = chosen(&mut nat.back, "bindings", "192.0.2.1:80");
    assert_eq!(word(&bindings[0], "sessions"), "1");
    nat.pass(241);
    nat.back.wake();
    assert_eq!(chosen(&mut nat.back, "bindings", "all"), [""; 0], "a forward without sessions is not shown");
}

/// A step: a packet between a host's port and a peer, out or back; time that passes; a session that an operator ends.
#[derive(Clone, Debug)]
enum Step {
    Packet { tcp: bool, host: u8, peer: u8, back: bool },
    Pass(u64),
    End(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let packet = (any::<bool>(), 0u8..12, 0u8..3, any::<bool>());
    let step = prop_oneof![
        8 => packet.prop_map(|(tcp, host, peer, back)| Step::Packet { tcp, host, peer, back }),
        2 => prop::sample::select(vec![10u64, 50, 125, 310]).prop_map(Step::Pass),
        1 => (0u8..12).prop_map(Step::End),
    ];
    prop::collection::vec(step, 1..60)
}

fn inside(host: u8) -> ([u8; 4], u16) {
    ([10, 0, 0, host / 4], 5_000 + u16::from(host % 4))
}

/// End of a session in seconds, whether both sides have sent packets, and the outside end.
type Known = (u64, bool, ([u8; 4], u16));

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// The replayed log equals the table of bindings, and the table of sessions equals a map. Sessions expire, are
    /// evicted, are refused, or are ended by an operator.
    #[test]
    fn log_and_tables_agree_with_a_map(steps in steps(), few in any::<bool>()) {
        let folder = Folder::new("model");
        let _ = std::fs::remove_file(folder.0.join("a.json"));
        // With few entries sessions are evicted, which the map does not model. Then only log and table are compared.
        let sessions = if few { 5 } else { 1_000 };
        let state = json!({ "pool": "192.0.2.0/30", "sessions": sessions, "log": { "file": "a.json" } });
        let mut nat = Both::within(state, false, &mut folder.environment((0, 1)));
        // By protocol (true for TCP), inside and peer.
        let mut model: BTreeMap<(bool, u8, u8), Known> = BTreeMap::new();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Pass(seconds) => {
                    now += seconds;
                    nat.pass(seconds);
                    model.retain(|_, (ends, ..)| *ends >= now);
                }
                Step::End(host) => {
                    let which = format!("remove inside={}:{}", Ipv4Addr::from(inside(host).0), inside(host).1);
                    let is_known = model.keys().any(|(_, it, _)| *it == host);
                    let made = changed(&mut nat.out, "sessions", &[&which]).made;
                    prop_assert!(few || (made == 1) == is_known, "{}", which);
                    model.retain(|(_, it, _), _| *it != host);
                }
                Step::Packet { tcp: is_tcp, host, peer, back } => {
                    let to = ([198, 51, 100, peer], 53);
                    let opening = 240;
                    if back {
                        let Some((ends, both, outside)) = model.get_mut(&(is_tcp, host, peer)) else { continue };
                        let answer = if is_tcp { tcp(to, *outside, "SA") } else { udp(to, *outside, b"") };
                        let passed = nat.comes_back(&answer).is_some();
                        prop_assert!(few || passed);
                        *both = true;
                        *ends = now + if is_tcp { opening } else { 300 };
                    } else {
                        let sent = if is_tcp { tcp(inside(host), to, "S") } else { udp(inside(host), to, b"") };
                        let out = nat.goes_out(&sent).expect("there is room, or another session gives way");
                        let known = model.entry((is_tcp, host, peer)).or_insert((0, false, ends(&out).0));
                        let lasts = if is_tcp { opening } else if known.1 { 300 } else { 120 };
                        (known.0, known.2) = (now + lasts, ends(&out).0);
                    }
                }
            }
        }
        let lines = chosen(&mut nat.out, "sessions", "all");
        let word_of = |line: &String, name: &str| word(line, name).to_owned();
        let seen: BTreeSet<_> = lines.iter().map(|line| {
            (word_of(line, "protocol"), word_of(line, "inside"), word_of(line, "peer"), word_of(line, "outside"))
        }).collect();
        prop_assert_eq!(seen.len(), lines.len(), "each session once");
        if !few {
            let end = |end: ([u8; 4], u16)| format!("{}:{}", Ipv4Addr::from(end.0), end.1);
            let known: BTreeSet<_> = model.iter().map(|((is_tcp, host, peer), (_, _, outside))| {
                let protocol = if *is_tcp { "tcp" } else { "udp" };
                (protocol.to_owned(), end(inside(*host)), end(([198, 51, 100, *peer], 53)), end(*outside))
            }).collect();
            prop_assert_eq!(&seen, &known);
        }
        nat.out.function.close().expect("it can be written");
        let bindings = replay(&folder.lines("a.json"));
        prop_assert_eq!(&bindings, &shown(&mut nat));
        let used: BTreeSet<_> = seen.iter().map(|(_, inside, _, outside)| (inside.clone(), outside.clone())).collect();
        let bound: BTreeSet<_> = bindings.into_iter().map(|((_, outside), inside)| (inside, outside)).collect();
        prop_assert!(used.is_subset(&bound), "each session has a binding in the log");
    }
}

//! A user plane function: its example, and sessions that are added and removed over the socket while packets run.

use std::time::Duration;

use crate::running::Running;
use crate::{contract, forebay};

/// One user sends through tunnel 4097 and receives packets. No session exists at the start.
const PIPELINE: &str = "
ports:
  gnb:
    generator:
      rate: 20kpps
      source: 10.60.0.1/32
      tunnel: { gtpu: { source: 192.0.2.10, destination: 192.0.2.1, teid: 4097 } }
  network: { generator: { rate: 20kpps, source: 198.51.100.0/24, destination: 10.60.0.1/32 } }
  out: { sink: }
state:
  users: { pdu_sessions: { limit: 20000, ended: 100 } }
modules:
  decap: { gtpu_decap: { teids: any } }
  up: { upf_uplink: { state: users } }
  down: { upf_downlink: { state: users } }
  encap: { gtpu_encap: { source: 192.0.2.1, by: session, qfi: session } }
pipeline:
  - gnb -> decap
  - decap[0] -> up -> out
  - decap[reply] -> out
  - decap[control] -> drop
  - network -> down -> encap -> out
";

#[test]
fn the_example_forwards_in_both_directions() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/upf.yaml");
    let done = forebay(&["run", file, "--json", "--virtual", "--duration", "50ms"]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    let report = done.json();
    contract::check(&report);
    let packets = &report["packets"];
    assert!(packets["out"].as_u64() > Some(20_000), "{packets}");
    assert!(packets["dropped"].as_object().is_none_or(|dropped| dropped.values().all(|count| count == 0)), "{packets}");
}

#[test]
fn sessions_are_added_and_removed_while_packets_run() {
    let pipeline = Running::of(PIPELINE);
    let show = |table: &str| pipeline.request(&["show", "table", table]).success();
    assert_eq!(show("up.usage"), "");
    let session = "10.60.0.1 teid=0x1001 peer=192.0.2.10 peer-teid=0x2001 qfi=9";
    pipeline.request(&["table", "down.sessions", &format!("add {session}")]).success();
    assert_eq!(show("up.sessions"), format!("{session}\n"));
    // Packets of both directions are counted after a short time.
    let counted = || {
        let line = show("up.usage");
        line.starts_with("10.60.0.1 rule=other up=") && !line.contains("=0/0B")
    };
    let is_counted = (0..600).any(|_| {
        let is_counted_now = counted();
        if !is_counted_now {
            std::thread::sleep(Duration::from_millis(50));
        }
        is_counted_now
    });
    assert!(is_counted, "{}", show("up.usage"));
    let done = pipeline.request(&[
        "table",
        "up.sessions",
        "add 10.60.0.1 teid=7",
        "add 10.60.0.2 teid=0x1001",
        "add 10.60.0.3",
    ]);
    assert_eq!(done.code, Some(1));
    for expected in [
        "10.60.0.1 already has a session",
        "teid 0x1001 belongs to another session",
        "the tunnel is missing: write teid=",
    ] {
        assert!(done.err.contains(expected), "{}", done.err);
    }
    // Sessions of other users do not change the counts.
    let others: Vec<String> =
        (0..20_000).map(|n| format!("add 10.61.{}.{} teid={}", n / 250, n % 250 + 1, n + 10_000)).collect();
    std::fs::write(pipeline.path("others"), others.join("\n")).expect("a writable folder");
    let output = assert_cmd::Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["table", "up.sessions", "--socket", &pipeline.socket()])
        .pipe_stdin(pipeline.path("others"))
        .expect("it has just been written")
        .output()
        .expect("the command can be started");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.starts_with("19 999 changes made, 1 refused"), "{out}{err}");
    assert!(err.contains("the table is full with 20000 sessions, the most that the state allows ('limit')"), "{err}");
    assert!(counted(), "{}", show("up.usage"));
    pipeline.request(&["table", "up.sessions", "remove 10.60.0.1"]).success();
    let ended = show("down.ended");
    assert!(ended.starts_with("1 10.60.0.1 rule=other up="), "{ended}");
    assert_eq!(show("up.usage"), "");
}

/// Two connected gateways. Neither has the tunnel of the incoming packets.
const TWO: &str = "
ports:
  gnb:
    generator: { rate: 20kpps, source: 10.60.0.1/32, tunnel: { gtpu: { source: 192.0.2.10, destination: 192.0.2.1, \
        teid: 4097 } } }
  network: { sink: }
  back: { sink: }
state:
  users: { pdu_sessions: { limit: 10 } }
modules:
  decap: { gtpu_decap: { teids: any, keep_addresses: true } }
  up: { upf_uplink: { state: users, error_indications: 50 } }
  other-decap: { gtpu_decap: { teids: any, keep_addresses: true } }
  other-up: { upf_uplink: { state: users, error_indications: 50 } }
pipeline:
  - gnb -> decap
  - decap[0] -> up
  - up[0] -> network
  - up[reply] -> other-decap
  - decap[reply] -> other-decap
  - decap[control] -> drop
  - other-decap[0] -> other-up
  - other-up[0] -> network
  - other-up[reply] -> back
  - other-decap[reply] -> back
  - other-decap[control] -> drop
";

/// Regression: a packet of an ended session was dropped without an error indication to the base station.
#[test]
fn tunnels_without_a_session_cause_error_indications_within_the_limit() {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let file = folder.path().join("two.yaml");
    std::fs::write(&file, TWO).expect("a writable folder");
    let done = forebay(&["run", &file.to_string_lossy(), "--json", "--virtual", "--duration", "1s"]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    let report = done.json();
    contract::check(&report);
    let packets = &report["packets"];
    let count = |fate: &str, name: &str| packets[fate][name].as_u64().unwrap_or(0);
    let sum = |fate: &str| -> u64 {
        packets[fate].as_object().map_or(0, |all| all.values().filter_map(serde_json::Value::as_u64).sum())
    };
    let entered = packets["in"].as_u64();
    // 50 at once, and one in each fiftieth of a second.
    let made = count("created", "up.error_indication");
    assert!((99..=100).contains(&made), "{packets}");
    assert_eq!(sum("created"), made, "the other gateway responds to none of them: {packets}");
    assert_eq!(Some(count("dropped", "up.unknown_teid")), entered, "{packets}");
    assert_eq!(count("dropped", "unwanted"), made, "{packets}");
    assert_eq!(
        (packets["out"].as_u64(), entered.map(|entered| entered + made)),
        (Some(0), Some(sum("dropped"))),
        "{packets}"
    );
}

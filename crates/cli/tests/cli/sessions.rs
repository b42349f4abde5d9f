//! Operators list and end sessions of a NAT, a firewall and a balancer over the socket, while packets run.

use std::time::Duration;

use serde_json::Value;

use crate::running::{Running, json};

/// 256 inside addresses send one session after the other. The firewall has its own sessions.
const PIPELINE: &str = "
ports:
  inside: { generator: { rate: 50kpps, source: 10.0.0.0/24, destination: 198.51.100.0/24, sessions: 500 } }
  clients: { generator: { rate: 20kpps, source: 203.0.113.0/24, destination: 192.0.2.200/32, destination_port: 80, \
      sessions: 50 } }
  out: { sink: }
state:
  nat1: { nat: { pool: 192.0.2.0/28, deterministic: { inside: 10.0.0.0/25, reserve: 10000 }, \
      log: { file: ports.json } } }
  known: { connections: {} }
  web: { balancer: { services: [{ address: 192.0.2.200, protocol: udp, port: 80, backends: [{ address: 10.9.0.1 }, \
      { address: 10.9.0.2 }] }] } }
modules:
  wall: { firewall: { state: known, default: permit } }
  nat: { nat_out: { state: nat1 } }
  lb: { balance: { state: web } }
pipeline:
  - inside -> wall -> nat -> out
  - clients -> lb -> out
";

/// Returns the first output of `request` that is not empty.
fn first_output(request: impl Fn() -> String) -> String {
    for _ in 0..600 {
        let output = request();
        if !output.is_empty() {
            return output;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("no output for half a minute");
}

fn word<'l>(line: &'l str, name: &str) -> &'l str {
    line.split(' ')
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        .unwrap_or_else(|| panic!("{line}: {name}"))
}

#[test]
fn sessions_are_listed_filtered_and_ended_while_packets_run() {
    let pipeline = Running::of(PIPELINE);
    let show = |more: &[&str]| pipeline.request(&[&["show", "table"], more].concat()).success();
    let some = first_output(|| show(&["nat.sessions", "--count", "3"]));
    assert!(some.lines().count() <= 3 && some.starts_with("protocol="), "{some}");
    // A session and its block in the deterministic range have the same addresses.
    let inside = first_output(|| show(&["nat.sessions", "--filter", "inside=10.0.0.0/25", "--count", "1"]));
    let (inside, outside) = (word(inside.trim(), "inside"), word(inside.trim(), "outside"));
    let address = inside.split(':').next().expect("an address");
    let block = show(&["nat.blocks", "--filter", outside]);
    assert_eq!((word(block.trim(), "inside"), block.lines().count()), (address, 1));
    assert_eq!(show(&["nat.blocks", "--filter", address]), block);
    let object: Value = json(&pipeline.request(&["show", "table", "nat.sessions", "--count", "1", "--json"]));
    assert!(object["inside"].is_string() && object["worker"] == 0, "{object}");
    for (table, filter) in [("wall.connections", "to=198.51.100.0/24"), ("lb.sessions", "service=192.0.2.200:80 udp")] {
        let lines = first_output(|| show(&[table, "--filter", filter]));
        assert!(lines.lines().all(|line| line.contains("state=")), "{lines}");
        assert_eq!(show(&[table, "--filter", "worker=7"]), "");
    }
    let line = show(&["lb.sessions", "--count", "1"]);
    let done =
        pipeline.request(&["table", "lb.sessions", &format!("remove {}", line.trim()), "remove 1.2.3.4", "remove x"]);
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(done.out.starts_with("1 change made, 2 refused"), "{}", done.out);
    assert!(done.err.contains("no entry matches '1.2.3.4'") && done.err.contains("allowed are 'all'"), "{}", done.err);
    // Regression: the command printed "1 change made" for any number of sessions.
    first_output(|| show(&["wall.connections", "--count", "2"]).lines().nth(1).unwrap_or_default().to_owned());
    let done = pipeline.request(&["table", "wall.connections", "remove all"]).success();
    let ended = done.strip_prefix("1 change of ").and_then(|rest| rest.strip_suffix(" entries made, 0 refused\n"));
    let ended: Option<u64> = ended.and_then(|ended| ended.replace(' ', "").parse().ok());
    assert!(ended.is_some_and(|ended| ended > 1), "{done}");
    pipeline.request(&["table", "nat.sessions", "remove all"]).success();
    let refused = pipeline.request(&["show", "table", "nat.sessions", "--filter", "speed=1"]);
    assert!(refused.code == Some(2) && refused.err.contains("'speed=1': allowed are"), "{}", refused.err);
    // A reload that changes other parts keeps tables, sessions and log.
    pipeline.write(&PIPELINE.replace("50kpps", "60kpps"));
    pipeline.request(&["reload"]).success();
    first_output(|| show(&["nat.sessions", "--count", "1"]));
    let (_, folder) = pipeline.end_keeping();
    let log = std::fs::read_to_string(folder.path().join("ports.json")).expect("the log");
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(events.iter().filter(|event| event["event"] == "start").count(), 1);
    let is_reserved = |event: &Value| {
        event["inside"].as_str().is_none_or(|it| {
            it.rsplit('.').next().and_then(|last| last.parse::<u8>().ok()).is_some_and(|last| last >= 128)
        })
    };
    assert!(events.len() > 2 && events.iter().all(is_reserved), "only ports that cannot be computed are logged");
}

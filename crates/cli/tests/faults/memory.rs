//! Configurations that need more memory than there is are refused at the start and at a reload. Regression: they
//! aborted the run.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::alone;
use crate::forebay::{FOREBAY, Running, accounted, done};

/// Runs a command with 254 MiB of address space. The C library gets one arena: each further one would take 64 MiB, at a
/// moment that differs from run to run.
const LIMITED: [&str; 4] = ["sh", "-c", "ulimit -v 260000; MALLOC_ARENA_MAX=1 exec \"$@\"", "sh"];

const SMALL: &str = "{ nat: { pool: 192.0.2.0/28, sessions: 1000 } }";

/// Returns a pipeline with these states, and a module for each. The port `clock` keeps the run alive after the last
/// packet.
fn pipeline(states: &[&str], module: &str) -> String {
    let names: Vec<_> = (0..states.len()).map(|at| format!("m{at}")).collect();
    let state: String = states.iter().enumerate().map(|(at, state)| format!("  s{at}: {state}\n")).collect();
    let modules: String =
        (0..states.len()).map(|at| format!("  m{at}: {{ {module} }}\n").replace('#', &format!("s{at}"))).collect();
    let state = if states.is_empty() { String::new() } else { format!("state:\n{state}") };
    let (modules, names) = if states.is_empty() {
        (format!("  m0: {{ {module} }}\n"), "m0".to_owned())
    } else {
        (modules, names.join(" -> "))
    };
    format!(
        "ports:\n  in: {{ generator: {{ sessions: 50, source: 10.0.0.0/24, rate: 100kpps, count: 1000 }} }}\n  \
         clock: {{ generator: {{ rate: 1pps }} }}\n  out: {{ sink: }}\n\
         {state}modules:\n{modules}pipeline: [in -> {names} -> out, clock -> out]\n"
    )
}

/// Returns configurations that need more than 254 MiB, with the expected errors.
fn greedy() -> Vec<(String, &'static str)> {
    let services: Vec<_> = (1..=64)
        .map(|port| {
            format!("{{ address: 192.0.2.10, protocol: udp, port: {port}, backends: [{{ address: 10.0.0.1 }}] }}")
        })
        .collect();
    let balancer = format!("{{ balancer: {{ places: 2097143, services: [{}] }} }}", services.join(", "));
    let pool = "{ nat: { pool: 198.18.0.0/20, sessions: 1000 } }";
    vec![
        (
            pipeline(&[pool, pool, pool], "nat_out: { state: # }"),
            "state: no memory for the ports of 4096 addresses (the state's `pool`): it takes 96 MiB",
        ),
        (
            pipeline(&["{ nat: { pool: 192.0.2.0/28, sessions: 4000000 } }"], "nat_out: { state: # }"),
            "state: no memory for a table of 4000000 sessions (the state's `sessions`): it takes 316 MiB",
        ),
        (
            pipeline(&["{ connections: { sessions: 4000000 } }"], "firewall: { state: # }"),
            "state: no memory for a table of 4000000 connections of IPv4 (the state's `sessions`): it takes ",
        ),
        (
            pipeline(&[&balancer], "balance: { state: # }"),
            "places: no memory for 2097143 places of each of 64 services: it takes 256 MiB",
        ),
        (
            pipeline(&["{ pdu_sessions: { limit: 3000000 } }"], "upf_uplink: { state: # }"),
            "limit: no memory for 3000000 sessions with 6000000 bearers: it takes ",
        ),
        (
            pipeline(&[], "meter: { key: source, capacity: 4194304, srtcm: { cir: 1Mbps, cbs: 64KiB, ebs: 0B } }"),
            "capacity: no memory for the meters of 4194304 keys: it takes ",
        ),
    ]
}

/// Regression: with 200 MB, the ports of a pool of 4096 addresses aborted the process, also that of a running pipeline
/// at a reload.
#[test]
fn a_configuration_without_memory_is_refused_and_the_run_continues() {
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let file = folder.path().join("other.yaml");
    for (text, expected) in greedy() {
        std::fs::write(&file, &text).expect("a writable folder");
        for verb in [&["check"][..], &["run", "--no-live", "--no-socket"]] {
            let refused = done(Command::new(LIMITED[0]).args(&LIMITED[1..]).arg(FOREBAY).args(verb).arg(&file));
            assert!(refused.code == Some(2) && refused.err.contains(expected), "{text}{refused:?}");
        }
    }
    assert_continues(folder.path());
}

fn assert_continues(folder: &Path) {
    let running = Running::start(&LIMITED, folder, &pipeline(&[SMALL], "nat_out: { state: # }"), &[]).expect("it fits");
    let sessions = |when: &str| {
        let result = running.request(&["show", "table", "m0.sessions", "--json"]);
        assert_eq!(result.code, Some(0), "{when}: {result:?}");
        result.out.matches("10.0.0.").count()
    };
    while running.packets("before").get("out").and_then(Value::as_u64).is_none_or(|out| out < 1_000) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let before = sessions("before");
    assert!(before >= 50, "{before} lines");
    for (text, expected) in greedy() {
        std::fs::write(folder.join("pipeline.yaml"), &text).expect("a writable folder");
        let refused = running.request(&["reload"]);
        assert!(refused.code == Some(2) && refused.err.contains(expected), "{text}{refused:?}");
        assert_eq!(sessions("after"), before, "{text}");
    }
    let (code, report, _) = running.end();
    assert_eq!(code, Some(0));
    accounted(&report["packets"], "at the end");
    assert!(report["packets"]["out"].as_u64().is_some_and(|out| out >= 1_000), "{report}");
}

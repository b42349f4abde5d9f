//! `forebay doctor` on a healthy and a misconfigured simulated server, and on the machine that runs the tests.

#[expect(dead_code, reason = "the tests of the crate below use more of it")]
#[path = "../../../host/tests/host/server.rs"]
pub(crate) mod server;

use serde_json::Value;
use tempfile::TempDir;

use crate::{CommandResult, File, forebay};
use server::{Server, folder};

const PIPELINE: &str = "\
ports:
  in: { generator: { count: 10 } }
  host: { tap: { interface: fb-doctor0 } }
modules: { hop: { ttl: }, more: { ttl: } }
pipeline: [in -> hop -> host, host -> more -> drop]
workers: [{ core: 5 }, { core: 6 }]
";

pub(crate) fn laid_out(server: &Server) -> TempDir {
    let folder = folder();
    server.lay_out(folder.path());
    folder
}

fn doctor(root: &TempDir, more: &[&str]) -> CommandResult {
    let root = root.path().to_str().expect("a plain name");
    forebay(&[&["doctor", "--root", root], more].concat())
}

fn states(report: &Value) -> Vec<(&str, &str)> {
    let checks = report["checks"].as_array().expect("a list");
    checks
        .iter()
        .map(|check| (check["id"].as_str().expect("a name"), check["state"].as_str().expect("a word")))
        .collect()
}

#[test]
fn a_healthy_server_is_ok_and_a_misconfigured_one_gets_fixes() {
    let (mut server, file) = (Server::healthy(), File::new(PIPELINE));
    let done = doctor(&laid_out(&server), &[file.path(), "--interface", "eth1", "--json"]);
    let report = done.json();
    assert_eq!(done.code, Some(0), "{report}");
    assert!(states(&report).iter().all(|(_, state)| *state == "ok"), "{report}");
    assert_eq!((&report["pipeline"], &report["workers"][1]["core"]), (&"test".into(), &6.into()));
    // 16 384 packets of 2 240 bytes, in pages of 2 MiB.
    assert_eq!(report["pool_bytes"], 18 << 21);

    server.set("/sys/devices/pci0000:80/0000:81:00.0/numa_node", "0\n");
    server.replace("/proc/self/status", "CapEff:\t0000000000003000", "CapEff:\t0000000000000000");
    let root = laid_out(&server);
    let done = doctor(&root, &[file.path(), "--interface", "eth1", "--json"]);
    let report = done.json();
    assert_eq!(done.code, Some(1), "{report}");
    let found: Vec<_> = states(&report).into_iter().filter(|(_, state)| *state != "ok").collect();
    assert_eq!(found, [("capabilities", "stops"), ("numa-mismatch", "costs")]);

    let done = doctor(&root, &[file.path(), "--interface", "eth1"]);
    assert_eq!(done.code, Some(1));
    for line in [
        "test: 2 workers on cores 5, 6",
        "capabilities       stops  port 'host' (tap) needs CAP_NET_ADMIN",
        "  read   /sys/class/net/eth1/device/numa_node: 0",
        "  fix    setcap cap_net_admin+ep $(command -v forebay)",
        "         # or once, as root: ip tuntap add dev fb-doctor0 mode tap user NAME && ip link set fb-doctor0 up",
        "2 of 23 checks found a loss of performance or an obstacle, 0 found a possible loss, 0 are not available \
         on this machine",
    ] {
        assert!(done.out.lines().any(|printed| printed == line), "no line {line:?} in\n{}", done.out);
    }
}

#[test]
fn cores_are_those_of_the_command_or_the_automatic_choice() {
    let root = laid_out(&Server::healthy());
    let cores = |more: &[&str]| {
        let report = doctor(&root, &[more, &["--json"]].concat()).json();
        let workers = report["workers"].as_array().expect("a list").clone();
        workers.iter().map(|worker| worker["core"].as_u64()).collect::<Vec<_>>()
    };
    assert_eq!(cores(&[]), [Some(15)]);
    assert_eq!(cores(&["--core", "5", "--core", "14,6"]), [Some(5), Some(6), Some(14)]);
    let file = File::new(PIPELINE);
    // Core 6, which the second worker names, is taken. It gets another physical core of the same node.
    assert_eq!(cores(&[file.path(), "--core", "6"]), [Some(6), Some(15)]);
    let many = format!("workers=[{}]", ["{}"; 17].join(","));
    let done = doctor(&root, &[file.path(), "--set", &many, "--json"]);
    let report = done.json();
    assert_eq!((done.code, states(&report)[0]), (Some(1), ("worker-cores", "stops")), "{report}");
}

#[test]
fn the_local_machine_is_checked() {
    let done = forebay(&["doctor", "usecase:l2l3", "--json"]);
    assert!(matches!(done.code, Some(0 | 1)), "{}", done.err);
    let report = done.json();
    let costs = states(&report).iter().any(|(_, state)| matches!(*state, "costs" | "stops"));
    assert_eq!(done.code == Some(1), costs, "{report}");
    let states = states(&report);
    assert_eq!(states.len(), 23);
    for (id, state) in states {
        assert!(["ok", "stops", "costs", "may", "info", "n/a"].contains(&state), "{id}: {state}");
    }
}

#[test]
fn invalid_arguments_are_refused_with_the_allowed_values() {
    let (root, file) = (laid_out(&Server::healthy()), File::new(PIPELINE));
    let refused = |more: &[&str], expected: &str| {
        let done = doctor(&root, more);
        assert_eq!(done.code, Some(2), "{more:?}: {}", done.err);
        assert!(done.err.contains(expected), "{more:?}: {}", done.err);
    };
    refused(&["--core", "five"], "'five' is not a list of numbers: allowed are numbers up to 65535");
    refused(&["--core", "5", "--core", "4-6"], "--core 5: named twice");
    refused(&[file.path(), "--core", "4-6"], "--core names 3 cores, but the pipeline has 2 workers: ");
    refused(&["--core", ""], "--core: no core is named: write a list of cores, such as 2-3,8");
    refused(&["--interface", "eth7"], "--interface eth7: unknown interface: allowed are eth1, lo");
    refused(&["--set", "n=1"], "<PIPELINE>");
    refused(&["none.yaml"], "none.yaml");
    let empty = folder();
    let done = doctor(&empty, &[]);
    assert!(done.code == Some(2) && done.err.contains("that contains a machine's proc and sys"), "{}", done.err);
}

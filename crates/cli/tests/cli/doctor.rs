//! `forebay doctor`: on a server that is laid out, healthy and spoilt, and on the machine that the tests run on.

#[expect(dead_code, reason = "the tests of the crate below use more of it")]
#[path = "../../../host/tests/host/server.rs"]
pub(crate) mod server;

use serde_json::Value;
use tempfile::TempDir;

use crate::{Done, File, forebay};
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

fn doctor(root: &TempDir, more: &[&str]) -> Done {
    let root = root.path().to_str().expect("a plain name");
    forebay(&[&["doctor", "--root", root], more].concat())
}

fn states(told: &Value) -> Vec<(&str, &str)> {
    let checks = told["checks"].as_array().expect("a list");
    checks
        .iter()
        .map(|check| (check["id"].as_str().expect("a name"), check["state"].as_str().expect("a word")))
        .collect()
}

#[test]
fn a_healthy_server_is_told_to_be_and_a_spoilt_one_how_to_mend_it() {
    let (mut server, file) = (Server::healthy(), File::new(PIPELINE));
    let done = doctor(&laid_out(&server), &[file.path(), "--interface", "eth1", "--json"]);
    let told = done.json();
    assert_eq!(done.code, Some(0), "{told}");
    assert!(states(&told).iter().all(|(_, state)| *state == "ok"), "{told}");
    assert_eq!((&told["pipeline"], &told["workers"][1]["core"]), (&"test".into(), &6.into()));
    // 16 384 packets of 2 240 bytes, in pages of 2 MiB.
    assert_eq!(told["pool_bytes"], 18 << 21);

    server.set("/sys/devices/pci0000:80/0000:81:00.0/numa_node", "0\n");
    server.replace("/proc/self/status", "CapEff:\t0000000000003000", "CapEff:\t0000000000000000");
    let root = laid_out(&server);
    let done = doctor(&root, &[file.path(), "--interface", "eth1", "--json"]);
    let told = done.json();
    assert_eq!(done.code, Some(1), "{told}");
    let found: Vec<_> = states(&told).into_iter().filter(|(_, state)| *state != "ok").collect();
    assert_eq!(found, [("capabilities", "stops"), ("numa-mismatch", "costs")]);

    let done = doctor(&root, &[file.path(), "--interface", "eth1"]);
    assert_eq!(done.code, Some(1));
    for line in [
        "test: 2 workers on cores 5, 6",
        "capabilities       stops  port 'host' (tap) needs CAP_NET_ADMIN",
        "  read   /sys/class/net/eth1/device/numa_node: 0",
        "  mend   setcap cap_net_admin+ep $(command -v forebay)",
        "         # or once, as root: ip tuntap add dev fb-doctor0 mode tap user NAME && ip link set fb-doctor0 up",
        "2 of 23 checks found what costs performance or stops the pipeline, 0 what may; 0 not known on this machine",
    ] {
        assert!(done.out.lines().any(|told| told == line), "no line {line:?} in\n{}", done.out);
    }
}

#[test]
fn cores_are_those_of_the_command_or_such_as_would_be_chosen() {
    let root = laid_out(&Server::healthy());
    let cores = |more: &[&str]| {
        let told = doctor(&root, &[more, &["--json"]].concat()).json();
        let workers = told["workers"].as_array().expect("a list").clone();
        workers.iter().map(|worker| worker["core"].as_u64()).collect::<Vec<_>>()
    };
    assert_eq!(cores(&[]), [Some(15)]);
    assert_eq!(cores(&["--core", "5", "--core", "14,6"]), [Some(5), Some(6), Some(14)]);
    let file = File::new(PIPELINE);
    // The second worker's own is taken then, and it gets another of the same node, on a physical core of its own.
    assert_eq!(cores(&[file.path(), "--core", "6"]), [Some(6), Some(15)]);
    let many = format!("workers=[{}]", ["{}"; 17].join(","));
    let done = doctor(&root, &[file.path(), "--set", &many, "--json"]);
    let told = done.json();
    assert_eq!((done.code, states(&told)[0]), (Some(1), ("worker-cores", "stops")), "{told}");
}

#[test]
fn this_machine_is_examined() {
    let done = forebay(&["doctor", "usecase:l2l3", "--json"]);
    assert!(matches!(done.code, Some(0 | 1)), "{}", done.err);
    let told = done.json();
    let costs = states(&told).iter().any(|(_, state)| matches!(*state, "costs" | "stops"));
    assert_eq!(done.code == Some(1), costs, "{told}");
    let states = states(&told);
    assert_eq!(states.len(), 23);
    for (id, state) in states {
        assert!(["ok", "stops", "costs", "may", "info", "n/a"].contains(&state), "{id}: {state}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_what_is_allowed() {
    let (root, file) = (laid_out(&Server::healthy()), File::new(PIPELINE));
    let refused = |more: &[&str], said: &str| {
        let done = doctor(&root, more);
        assert_eq!(done.code, Some(2), "{more:?}: {}", done.err);
        assert!(done.err.contains(said), "{more:?}: {}", done.err);
    };
    refused(&["--core", "five"], "'five' is not a list of numbers: allowed are numbers up to 65535");
    refused(&["--core", "5", "--core", "4-6"], "--core 5: it is there twice");
    refused(&[file.path(), "--core", "4-6"], "--core names 3: allowed are up to as many as the pipeline has workers");
    refused(&["--core", ""], "--core names none: allowed is a list of cores, such as 2-3,8");
    refused(&["--interface", "eth7"], "--interface eth7: there is none of this name: allowed are eth1, lo");
    refused(&["--set", "n=1"], "<PIPELINE>");
    refused(&["none.yaml"], "none.yaml");
    let empty = folder();
    let done = doctor(&empty, &[]);
    assert!(done.code == Some(2) && done.err.contains("with a machine's proc and sys in it"), "{}", done.err);
}

//! Traces of packets, and captures of dropped packets.

use std::io::Write as _;
use std::process::Command;

use crate::{File, ROUTER, contract, forebay};

#[test]
fn a_trace_shows_the_effect_of_each_module() {
    let file = File::new(ROUTER);
    let out = forebay(&["run", file.path(), "--trace", "4"]).success();
    let traces: Vec<_> = out.split("\n\n").filter(|trace| trace.starts_with("packet ")).collect();
    assert_eq!(traces.len(), 4, "{out}");
    for expected in [
        "packet 1 from in at ",
        "kind (ether_split), 32 in the batch → [ipv4]",
        "hop (ttl)",
        "      ipv4.ttl 64 → 63",
        "spread (hash_split)",
    ] {
        assert!(traces[0].contains(expected), "'{expected}' is not in\n{}", traces[0]);
    }
    for trace in traces {
        let sent = trace.contains("→ [0]");
        assert_eq!(trace.contains("left by out"), sent, "{trace}");
        assert_eq!(trace.contains("eth.dst 02:00:00:00:00:02 → 02:00:00:00:00:bb"), sent, "{trace}");
        assert_eq!(trace.contains("dropped: unwanted"), !sent, "{trace}");
    }
    assert!(out.contains("in 1 000 "), "the run continues:\n{out}");
}

/// Traces more packets than there are trace marks, and more than there are packets.
#[test]
fn each_of_many_traced_packets_is_shown_once() {
    let file = File::new(ROUTER);
    for (requested, expected) in [("600", 600), ("5000", 1_000)] {
        let out = forebay(&["run", file.path(), "--trace", requested, "--trigger", "hop=32"]).success();
        let mut numbers: Vec<u64> = out
            .lines()
            .filter_map(|line| line.strip_prefix("packet ")?.split_once(" from in at ")?.0.parse().ok())
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=expected).collect::<Vec<_>>());
        assert!(!out.contains("still in flight"), "{out}");
    }
}

#[test]
fn a_filter_selects_traces_and_json_is_alone_on_standard_output() {
    let file = File::new(ROUTER);
    let none = forebay(&["run", file.path(), "--trace", "3", "--filter", "tcp or vlan"]).success();
    assert!(!none.contains("packet 1 from"), "{none}");
    let done = forebay(&["run", file.path(), "--trace", "3", "--filter", "udp and dst port 5000", "--json"]);
    assert_eq!((done.code, done.out.lines().count()), (Some(0), 1));
    contract::check(&done.json());
    assert!(done.err.contains("packet 3 from in") && !done.err.contains("packet 4 from in"), "{}", done.err);
}

#[test]
fn dropped_packets_are_written_with_their_reasons() {
    let popped = ROUTER
        .replace("spread[1] -> drop", "spread[1] -> pop -> out")
        .replace("pipeline:", "  pop: { vlan_pop: { untagged: drop } }\npipeline:");
    let file = File::new(&popped);
    let drops = file.beside("drops.pcapng");
    let done = forebay(&["run", file.path(), "--json", "--drops", &drops]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    let counted = done.json()["packets"]["dropped"]["pop.untagged"].as_u64().expect("half of the sessions are dropped");
    assert!(done.err.contains(&format!("{counted} dropped packets written")), "{}", done.err);
    let Ok(shown) =
        Command::new("tshark").args(["-r", &drops, "-T", "fields", "-e", "frame.comment", "-e", "ip.ttl"]).output()
    else {
        let _ = writeln!(std::io::stderr(), "skipped: there is no tshark");
        return;
    };
    let shown = String::from_utf8(shown.stdout).expect("UTF-8");
    assert_eq!(shown.lines().count() as u64, counted);
    // The capture has packets as they were when they were dropped, after one hop.
    assert!(shown.lines().all(|line| line == "pop.untagged\t63"), "{shown}");
}

/// Regression: `drops --write` waited for packets before it reported that the file could not be written.
#[test]
fn drops_reports_an_unwritable_file_before_it_connects() {
    let file = File::new("");
    let missing = file.beside("not/there");
    // No process listens at the socket. The command would find out later.
    let done = forebay(&["drops", "--write", &missing, "--socket", "/nonexist/s"]);
    let expected = format!("error: --write: cannot create {missing}: No such file or directory");
    assert!(done.code == Some(2) && done.err.starts_with(&expected), "{}", done.err);
    let writable = file.beside("new.pcapng");
    let done = forebay(&["drops", "--write", &writable, "--socket", "/nonexist/s"]);
    assert!(done.code == Some(2) && done.err.contains("/nonexist/s"), "{}", done.err);
    assert!(!std::path::Path::new(&writable).exists(), "nothing was written");
}

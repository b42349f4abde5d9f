//! Traces of packets, and captures of what was dropped.

use std::io::Write as _;
use std::process::Command;

use crate::{File, ROUTER, contract, forebay};

#[test]
fn a_trace_tells_what_each_module_did() {
    let file = File::new(ROUTER);
    let out = forebay(&["run", file.path(), "--trace", "4"]).well();
    let stories: Vec<_> = out.split("\n\n").filter(|story| story.starts_with("packet ")).collect();
    assert_eq!(stories.len(), 4, "{out}");
    for said in [
        "packet 1 from in at ",
        "kind (ether_split), 32 in the batch → [ipv4]",
        "hop (ttl)",
        "      ipv4.ttl 64 → 63",
        "spread (hash_split)",
    ] {
        assert!(stories[0].contains(said), "'{said}' is not in\n{}", stories[0]);
    }
    for story in stories {
        let sent = story.contains("→ [0]");
        assert_eq!(story.contains("left by out"), sent, "{story}");
        assert_eq!(story.contains("eth.dst 02:00:00:00:00:02 → 02:00:00:00:00:bb"), sent, "{story}");
        assert_eq!(story.contains("dropped: unwanted"), !sent, "{story}");
    }
    assert!(out.contains("in 1 000 "), "the run goes on:\n{out}");
}

/// More than there are marks, and more than there are packets.
#[test]
fn each_of_many_traced_packets_is_told_once() {
    let file = File::new(ROUTER);
    for (asked, told) in [("600", 600), ("5000", 1_000)] {
        let out = forebay(&["run", file.path(), "--trace", asked, "--trigger", "hop=32"]).well();
        let mut numbers: Vec<u64> = out
            .lines()
            .filter_map(|line| line.strip_prefix("packet ")?.split_once(" from in at ")?.0.parse().ok())
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=told).collect::<Vec<_>>());
        assert!(!out.contains("still under way"), "{out}");
    }
}

#[test]
fn a_filter_chooses_and_json_stays_alone() {
    let file = File::new(ROUTER);
    let none = forebay(&["run", file.path(), "--trace", "3", "--filter", "tcp or vlan"]).well();
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
    // As they were when they were dropped: one hop further.
    assert!(shown.lines().all(|line| line == "pop.untagged\t63"), "{shown}");
}

/// `drops --write` waited for packets before it said that the file could not be written.
#[test]
fn a_file_that_drops_cannot_write_is_told_before_anything_is_asked() {
    let file = File::new("");
    let missing = file.beside("not/there");
    // No process listens there, which is found out later.
    let done = forebay(&["drops", "--write", &missing, "--socket", "/nonexist/s"]);
    let expected = format!("error: --write: cannot create {missing}: No such file or directory");
    assert!(done.code == Some(2) && done.err.starts_with(&expected), "{}", done.err);
    let there = file.beside("new.pcapng");
    let done = forebay(&["drops", "--write", &there, "--socket", "/nonexist/s"]);
    assert!(done.code == Some(2) && done.err.contains("/nonexist/s"), "{}", done.err);
    assert!(!std::path::Path::new(&there).exists(), "nothing was written");
}

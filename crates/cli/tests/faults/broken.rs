//! Files with something wrong in them: refused as a whole, with the file, the line and what is allowed.

use std::process::Command;

use crate::forebay::{Done, FOREBAY, done};

/// A module between a source and a sink, with what it takes of states; `FILE` is the file.
fn around(module: &str, states: &str, traffic: &str) -> String {
    format!(
        "ports:\n  in: {{ generator: {{ count: 10 }} }}\n  out: {{ sink: }}\n{states}modules:\n  it: {{ {module} }}\npipeline:\n  - in -> it{traffic}\n"
    )
}

fn told(command: &str, folder: &std::path::Path) -> Done {
    let mut forebay = Command::new(FOREBAY);
    forebay.arg(command).current_dir(folder);
    if command == "run" {
        forebay.args(["--no-live", "--no-socket"]);
    }
    done(forebay.arg("pipeline.yaml"))
}

/// What a configuration says whose file has this text: it must be refused.
fn refusal(pipeline: &str, text: &[u8]) -> String {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    std::fs::write(folder.path().join("pipeline.yaml"), pipeline).expect("a writable folder");
    std::fs::write(folder.path().join("FILE"), text).expect("a writable folder");
    let all: Vec<_> = ["check", "run"].iter().map(|command| told(command, folder.path())).collect();
    for told in &all {
        assert_eq!(told.code, Some(2), "{:?}:\n{pipeline}{}{}", String::from_utf8_lossy(text), told.out, told.err);
    }
    assert_eq!(all[0].err, all[1].err, "both say the same");
    all[0].err.clone()
}

/// Function by function: a right line, then a wrong one, and what must be said of that.
#[test]
fn a_broken_file_is_told_with_its_line_and_what_is_allowed() {
    let cases = [
        ("ip_lookup: { routes: FILE }", "", "10.0.0.0/8 0\n", "10.1.0.0/33 0", "out of range (0 to 32)"),
        ("ip_lookup: { routes: FILE }", "", "10.0.0.0/8 0\n", "10.1.0.0/16", ""),
        ("ip_lookup: { routes: FILE }", "", "10.0.0.0/8 0\n", "10.1.0.0/16 x", ""),
        (
            "acl: { rules: FILE }",
            "",
            "@10.0.0.0/8 0.0.0.0/0 0 : 65535 0 : 65535 0/0 permit\n",
            "@10.0.0.0/8 0.0.0.0/0 0 : 65536 0 : 65535 0/0 permit",
            "",
        ),
        (
            "acl: { rules: FILE }",
            "",
            "@10.0.0.0/8 0.0.0.0/0 0 : 65535 0 : 65535 0/0 permit\n",
            "@10.0.0.0/8 0.0.0.0/0 0 : 65535",
            "",
        ),
        ("dpi: { patterns: FILE }", "", "\"fine\"\n", "\"open", ""),
        ("dpi: { patterns: FILE }", "", "\"fine\"\n", "\"a\" class=nowhere", "nowhere"),
        (
            "nids: { rules: FILE }",
            "",
            "alert udp any any -> any any (msg:\"a\"; sid:1;)\n",
            "alert udp any any -> any (msg:\"a\"; sid:2;)",
            "",
        ),
        (
            "nids: { rules: FILE }",
            "",
            "alert udp any any -> any any (msg:\"a\"; sid:1;)\n",
            "alert udp any any -> any any (pcre:\"/(/\"; sid:2;)",
            "",
        ),
        (
            "upf_uplink: { state: users }",
            "state:\n  users: { pdu_sessions: { sessions: FILE } }\n",
            "10.60.0.1 teid=1\n",
            "10.60.0.1 teid=2",
            "10.60.0.1",
        ),
        (
            "upf_uplink: { state: users }",
            "state:\n  users: { pdu_sessions: { sessions: FILE } }\n",
            "10.60.0.1 teid=1\n",
            "10.60.0.2 teid=0x1ffffffff",
            "",
        ),
        (
            "upf_uplink: { state: users }",
            "state:\n  users: { pdu_sessions: { rules: FILE } }\n",
            "1 udp port=53\n",
            "2 udp port=70000",
            "",
        ),
        (
            "gtpu_encap: { source: 192.0.2.1, tunnels: FILE }",
            "",
            "10.60.0.1 7 192.0.2.10\n",
            "10.60.0.2 x 192.0.2.10",
            "",
        ),
        (
            "esp_encrypt: { source: 192.0.2.1, associations: { file: FILE } }",
            "",
            "0x1001 key=000102030405060708090a0b0c0d0e0fdeadbeef peer=192.0.2.10 for=10.60.0.0/16\n",
            "0x1002 key=00 peer=192.0.2.10 for=10.61.0.0/16",
            "",
        ),
    ];
    for (module, states, right, wrong, word) in cases {
        let scans = module.starts_with("dpi");
        let ways = if scans { "\n  - it[clean] -> out\n  - it[match] -> drop" } else { " -> out" };
        let pipeline = around(module, states, ways);
        let text = format!("# a comment\n\n{right}{wrong}\n");
        let said = refusal(&pipeline, text.as_bytes());
        assert!(said.contains("FILE:4") || said.contains("line 4"), "{module}, {wrong}: {said}");
        assert!(said.contains(word), "{module}, {wrong}: {said}");
        // What is no text at all; what is none of ours.
        for text in [&[0xff, 0xfe, 0, 1, 2][..], b"\0\0\0\0\0\0", &[0x1f, 0x8b, 8, 0, 0]] {
            if scans && text[0] == 0 {
                // A pattern may be of any bytes.
                continue;
            }
            let said = refusal(&pipeline, text);
            assert!(said.contains("FILE"), "{module}: {said}");
        }
    }
}

/// A file that is not there, and a folder in its place.
#[test]
fn a_file_that_cannot_be_read_is_named() {
    let pipeline = around("ip_lookup: { routes: FILE }", "", " -> out");
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    std::fs::write(folder.path().join("pipeline.yaml"), &pipeline).expect("a writable folder");
    let said = told("check", folder.path());
    assert!(said.code == Some(2) && said.err.contains("FILE"), "{}", said.err);
    std::fs::create_dir(folder.path().join("FILE")).expect("a writable folder");
    let said = told("check", folder.path());
    assert!(said.code == Some(2) && said.err.contains("FILE"), "{}", said.err);
}

//! Invalid files: refused as a whole, with the file, the line and the allowed values.

use std::process::Command;

use crate::forebay::{CommandResult, FOREBAY, done};

/// Returns a pipeline with a module between a source and a sink, its states, and the module's outputs. `FILE` is the
/// file's name.
fn around(module: &str, states: &str, outputs: &str) -> String {
    format!(
        "ports:\n  in: {{ generator: {{ count: 10 }} }}\n  out: {{ sink: }}\n{states}modules:\n  \
            it: {{ {module} }}\npipeline:\n  - in -> it{outputs}\n"
    )
}

fn run_command(command: &str, folder: &std::path::Path) -> CommandResult {
    let mut forebay = Command::new(FOREBAY);
    forebay.arg(command).current_dir(folder);
    if command == "run" {
        forebay.args(["--no-live", "--no-socket"]);
    }
    done(forebay.arg("pipeline.yaml"))
}

/// Returns the error for a configuration whose file has this content. `check` and `run` must refuse it with the same
/// error.
fn refusal(pipeline: &str, text: &[u8]) -> String {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    std::fs::write(folder.path().join("pipeline.yaml"), pipeline).expect("a writable folder");
    std::fs::write(folder.path().join("FILE"), text).expect("a writable folder");
    let all: Vec<_> = ["check", "run"].iter().map(|command| run_command(command, folder.path())).collect();
    for done in &all {
        assert_eq!(done.code, Some(2), "{:?}:\n{pipeline}{}{}", String::from_utf8_lossy(text), done.out, done.err);
    }
    assert_eq!(all[0].err, all[1].err, "both commands print the same error");
    all[0].err.clone()
}

/// For each function: a valid line, an invalid line, and a part of the expected error.
#[test]
fn an_invalid_file_is_reported_with_its_line() {
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
    for (module, states, valid, invalid, word) in cases {
        let scans = module.starts_with("dpi");
        let outputs = if scans { "\n  - it[clean] -> out\n  - it[match] -> drop" } else { " -> out" };
        let pipeline = around(module, states, outputs);
        let text = format!("# a comment\n\n{valid}{invalid}\n");
        let err = refusal(&pipeline, text.as_bytes());
        assert!(err.contains("FILE:4") || err.contains("line 4"), "{module}, {invalid}: {err}");
        assert!(err.contains(word), "{module}, {invalid}: {err}");
        // Content that is not text, or has another format.
        for text in [&[0xff, 0xfe, 0, 1, 2][..], b"\0\0\0\0\0\0", &[0x1f, 0x8b, 8, 0, 0]] {
            if scans && text[0] == 0 {
                // A pattern may have any bytes.
                continue;
            }
            let err = refusal(&pipeline, text);
            assert!(err.contains("FILE"), "{module}: {err}");
        }
    }
}

/// The file is missing, or is a folder.
#[test]
fn a_file_that_cannot_be_read_is_named() {
    let pipeline = around("ip_lookup: { routes: FILE }", "", " -> out");
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    std::fs::write(folder.path().join("pipeline.yaml"), &pipeline).expect("a writable folder");
    let done = run_command("check", folder.path());
    assert!(done.code == Some(2) && done.err.contains("FILE"), "{}", done.err);
    std::fs::create_dir(folder.path().join("FILE")).expect("a writable folder");
    let done = run_command("check", folder.path());
    assert!(done.code == Some(2) && done.err.contains("FILE"), "{}", done.err);
}

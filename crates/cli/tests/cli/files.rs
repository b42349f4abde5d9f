//! The files of a running pipeline: files that it reads, files that it writes, and files that it must not change.

use std::process::Command;

use crate::running::{PIPELINE, Running, json, temporary};
use crate::{CommandResult, File, contract, forebay};

#[test]
fn a_configuration_can_come_from_standard_input() {
    let run = |name: &str, text: &str| {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_forebay"));
        let output = command.args(["run", name, "--no-live", "--json", "--no-socket"]).write_stdin(text).output();
        let output = output.expect("the command can be started");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for name in ["-", "/dev/stdin", "/dev/fd/0"] {
        let text = PIPELINE.replace("rate: 100kpps", "rate: 100kpps, count: 10");
        let (code, err) = run(name, &text);
        assert_eq!(code, Some(0), "{name}: {err}");
        let (code, err) = run(name, "batch: 7000");
        assert!(code == Some(2) && err.contains("stdin:1: batch: '7000' is out of range"), "{name}: {err}");
    }
}

/// Regression: a written capture lost its packets at every reload, because the file had changed in the meantime.
#[test]
fn a_written_capture_continues_over_reloads() {
    let folder = temporary();
    let file = folder.path().join("out.pcap");
    let writes = PIPELINE.replace("out: { sink: }", &format!("out: {{ pcap: {{ write: '{}' }} }}", file.display()));
    let running = Running::in_folder(folder, &writes, &[]);
    for change in ["a: { counter: }", "a: { mac_swap: }", "a: { counter: }"] {
        running.write(&writes.replace("a: { counter: }", change));
        let reloaded = json(&running.request(&["reload", "--json"]))["reloaded"].clone();
        assert_eq!(reloaded["ports_opened"], serde_json::json!([]), "{reloaded}");
    }
    // No second port may write the file, and the port may not be reopened with other settings.
    for wrong in [
        writes.replace("write:", "when_full: wait, write:"),
        writes
            .replace("pipeline:", "  t: { tap: { file: FILE } }\npipeline:")
            .replace("-> a -> out", "-> a -> t -> out")
            .replace("FILE", &file.display().to_string()),
    ] {
        running.write(&wrong);
        let done = running.request(&["reload"]);
        assert!(done.code == Some(2) && done.err.contains("out.pcap"), "{} {}", done.out, done.err);
    }
    let (report, _folder) = running.end_keeping();
    let frames = report["packets"]["out"].as_u64().expect("a number");
    let length = std::fs::metadata(&file).expect("it exists").len();
    assert_eq!(length, 24 + frames * (16 + 60), "each sent packet is in the capture");
}

/// Regression: a capture overwrote the routes that the pipeline had read, and its own configuration.
#[test]
fn files_that_a_pipeline_reads_are_not_overwritten() {
    let folder = temporary();
    let routes = folder.path().join("routes");
    std::fs::write(&routes, "0.0.0.0/0 0\n10.0.0.0/8 1\n").expect("a writable folder");
    std::fs::hard_link(&routes, folder.path().join("link")).expect("links");
    let reads = PIPELINE.replace("routes: ['0.0.0.0/0 0', '10.0.0.0/8 1']", "routes: routes");
    std::fs::write(folder.path().join("pipeline.yaml"), &reads).expect("a writable folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (pipeline, short) = (file("pipeline.yaml"), ["--no-live", "--no-socket", "--duration", "100ms"]);
    let refused = |done: CommandResult, reader: &str| {
        let expected = format!("{reader} already reads this file: allowed is another file");
        assert!(done.code == Some(2) && done.err.contains(&expected), "{} {}", done.out, done.err);
    };
    for name in ["routes", "link"] {
        refused(forebay(&[&["run", &pipeline, "--drops", &file(name)], &short[..]].concat()), "'route'");
    }
    let writes = |name: &str| reads.replace("out: { sink: }", &format!("out: {{ pcap: {{ write: '{name}' }} }}"));
    for (name, reader) in [("routes", "'route'"), ("link", "'route'"), ("pipeline.yaml", "the configuration")] {
        std::fs::write(&pipeline, writes(name)).expect("a writable folder");
        refused(forebay(&[&["run", &pipeline], &short[..]].concat()), reader);
    }
    assert_eq!(std::fs::read(&routes).expect("it exists"), b"0.0.0.0/0 0\n10.0.0.0/8 1\n");
    let running = Running::in_folder(folder, &reads, &[]);
    for (name, reader) in [("routes", "'route'"), ("link", "'route'"), ("pipeline.yaml", "the configuration")] {
        running.write(&writes(name));
        refused(running.request(&["reload"]), reader);
    }
    // A file that is not read any more may be written, also a configuration that was in force for a while. The
    // configuration of the start stays protected, because a reload reads it again.
    let (once, then) = (running.path("once.yaml"), running.path("then.yaml"));
    for file in [&once, &then] {
        std::fs::write(file, PIPELINE).expect("a writable folder");
        json(&running.request(&["reload", file.to_str().expect("UTF-8"), "--json"]));
    }
    for (name, reader) in [("pipeline.yaml", "the configuration"), ("then.yaml", "the configuration")] {
        std::fs::write(running.path("next.yaml"), writes(name)).expect("a writable folder");
        refused(running.request(&["reload", running.path("next.yaml").to_str().expect("UTF-8")]), reader);
    }
    std::fs::write(running.path("next.yaml"), writes("once.yaml")).expect("a writable folder");
    json(&running.request(&["reload", running.path("next.yaml").to_str().expect("UTF-8"), "--json"]));
    running.write(PIPELINE);
    json(&running.request(&["reload", "--json"]));
    running.write(&PIPELINE.replace("out: { sink: }", "out: { pcap: { write: link } }"));
    json(&running.request(&["reload", "--json"]));
    let (_, folder) = running.end_keeping();
    assert!(std::fs::read(folder.path().join("routes")).expect("it exists").starts_with(&[0x4d, 0x3c, 0xb2, 0xa1]));
}

/// Regression: a file that may never end blocked a reload, and all later requests.
#[test]
fn a_pipe_is_refused_and_does_not_block() {
    let running = Running::start();
    let pipe = running.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("the command mkfifo").success());
    let name = pipe.to_str().expect("UTF-8");
    let refused = |done: CommandResult| {
        assert!(done.code == Some(2) && done.err.contains("it is a pipe: allowed are regular files"), "{}", done.err);
    };
    refused(running.request(&["reload", name]));
    for (from, to) in [
        ("routes: ['0.0.0.0/0 0', '10.0.0.0/8 1']", format!("routes: '{name}', next_hops: 2")),
        ("generator: { rate: 100kpps, destination: 10.0.0.0/16 }", format!("pcap: {{ read: '{name}' }}")),
        ("destination: 10.0.0.0/16", format!("destination: {{ routes: '{name}' }}")),
    ] {
        assert!(PIPELINE.contains(from), "{from}");
        running.write(&PIPELINE.replace(from, &to));
        refused(running.request(&["reload"]));
    }
    refused(forebay(&["run", name, "--no-live"]));
    refused(forebay(&["check", name]));
    for word in ["-", "/dev/stdin"] {
        let done = running.request(&["reload", word]);
        assert!(done.code == Some(2), "{}", done.out);
    }
    running.write(PIPELINE);
    json(&running.request(&["reload", "--json"]));
}

/// Regression: a file that was not a socket was removed by a run that wanted to listen there.
#[test]
fn a_file_that_is_not_a_socket_is_not_removed() {
    let folder = temporary();
    let file = folder.path().join("precious");
    std::fs::write(&file, "x").expect("a writable folder");
    let done =
        forebay(&["run", "usecase:rc", "--no-live", "--duration", "1s", "--socket", file.to_str().expect("UTF-8")]);
    assert!(done.code == Some(2) && done.err.contains("the path has a file that is not a socket"), "{}", done.err);
    assert_eq!(std::fs::read(&file).expect("it exists"), b"x");
}

/// Regression: a frame that a device had joined from several was lost, and the summary reported that every packet was
/// accounted for.
#[test]
fn a_frame_longer_than_a_packet_is_an_event_and_fits_a_larger_pool() {
    let folder = temporary();
    let capture = folder.path().join("joined.pcap");
    let mut bytes: Vec<u8> = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 262_144, 1].map(u32::to_le_bytes).concat();
    for length in [60_u32, 65_226, 60] {
        bytes.extend([1, 0, length, length].map(u32::to_le_bytes).concat());
        bytes.extend(vec![0; length as usize]);
    }
    std::fs::write(&capture, bytes).expect("written");
    let run = |frame: u32, how: &[&str]| {
        let ports =
            format!("ports: {{ in: {{ pcap: {{ read: '{}', speed: fast }} }}, out: {{ sink: }} }}", capture.display());
        let text = format!(
            "pool: {{ chunks: 1024, frame: {frame} }}\n{ports}\nmodules: {{ c: {{ counter: }} }}\n\
                pipeline: [in -> c -> out]\n"
        );
        let done = forebay(&[&["run", File::new(&text).path(), "--no-socket", "--no-live"], how].concat());
        assert_eq!(done.code, Some(0), "{}", done.err);
        done
    };
    let truncated = run(2_048, &[]);
    let event = "port 'in': a frame of 65226 bytes is longer than a packet holds and is lost (oversize): \
                 set `pool: { frame: 65226 }`";
    assert_eq!(truncated.err.matches(event).count(), 1, "{}", truncated.err);
    assert!(
        truncated.out.contains(": 1 LOST before they entered") && !truncated.out.contains("accounted for"),
        "{}",
        truncated.out
    );
    let report = run(2_048, &["--json"]).json();
    contract::check(&report);
    let port = &report["ports"][0];
    assert_eq!(
        (&report["packets"]["lost"], &port["dropped"], &port["skipped"]["oversize"]),
        (&1.into(), &1.into(), &1.into())
    );
    assert_eq!(port["longest_oversize"], 65_226);
    let whole = run(65_343, &[]);
    assert!(whole.out.contains("in 3 + ") && whole.out.contains("every packet accounted for"), "{}", whole.out);
    assert!(!whole.err.contains("oversize"), "{}", whole.err);
}

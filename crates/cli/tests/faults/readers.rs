//! Readers of a pipeline's output that stop reading: a pipe with a reader that stands still.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::OFlags;

use crate::alone;
use crate::forebay::{Running, number};
use crate::namespaces::until;

/// Returns a pipeline that writes far more than a pipe with a slow reader takes.
fn writes(when_full: &str) -> String {
    format!(
        "pool: {{ chunks: 512 }}
ports:
  in: {{ generator: {{ rate: 100kpps, size: 1000 }} }}
  out: {{ pcap: {{ write: pipe, when_full: {when_full} }} }}
modules: {{ seen: {{ counter: }} }}
pipeline:
  - in -> seen -> out
"
    )
}

/// Creates a pipe that is open for reading, and that is not read.
fn pipe(folder: &Path) -> File {
    let path = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().expect("the command mkfifo").success());
    let open = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(&path);
    let open = open.expect("it was made");
    let flags = rustix::fs::fcntl_getfl(&open).expect("open");
    rustix::fs::fcntl_setfl(&open, flags - OFlags::NONBLOCK).expect("open");
    open
}

/// Returns the number of packets of a capture of packets of 1 000 bytes, after checking that it is complete.
fn packets(capture: &[u8]) -> u64 {
    assert_eq!(capture.get(..4), Some(&0xa1b2_3c4d_u32.to_ne_bytes()[..]), "a capture");
    let records = &capture[24..];
    assert_eq!(records.len() % 1_016, 0, "the last packet is truncated");
    (records.len() / 1_016) as u64
}

#[test]
fn with_refuse_the_run_does_not_wait_for_a_slow_reader() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let mut reader = pipe(folder.path());
    let running = Running::start(&[], folder.path(), &writes("refuse"), &[]).expect("it starts");
    let refused = || number(&running.packets("without reading")["dropped"]["out.refused"]);
    until("packets are refused", || refused() > 10_000);
    let memory = running.resident();
    let more = refused() + 20_000;
    until("more packets are refused", || refused() > more);
    assert!(running.resident() <= memory + 8_192, "from {memory} to {} KiB", running.resident());
    let sent = || number(&running.port("out")["sent"]);
    let before = sent();
    let thread = std::thread::spawn(move || {
        let mut capture = Vec::new();
        reader.read_to_end(&mut capture).map(|_| capture)
    });
    until("packets are sent again", || sent() > before + 5_000);
    let (code, report, err) = running.end();
    assert_eq!(code, Some(0), "{err}");
    let capture = thread.join().expect("no panic").expect("it can be read");
    assert_eq!(packets(&capture), number(&report["packets"]["out"]), "each packet counted as sent is in the capture");
}

#[test]
fn with_wait_the_run_waits_for_a_slow_reader() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let mut reader = pipe(folder.path());
    let text = writes("wait").replace("size: 1000", "size: 1000, count: 20000");
    let running = Running::start(&[], folder.path(), &text, &[]).expect("it starts");
    // The worker waits. It cannot respond, but requests do not block forever.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let result = running.request(&["show", "ports", "--json"]);
    assert_eq!(result.code, Some(0), "{}", result.err);
    let mut capture = Vec::new();
    let thread = std::thread::spawn(move || reader.read_to_end(&mut capture).map(|_| capture));
    // The source is used up. The run ends by itself when all is written.
    let (code, report, err) = running.ended();
    assert_eq!(code, Some(0), "{err}");
    let capture = thread.join().expect("no panic").expect("it can be read");
    assert_eq!(packets(&capture), number(&report["packets"]["out"]));
    assert_eq!(report["packets"]["out"], report["packets"]["in"], "nothing is refused");
}

/// The reader closes the pipe. The run reports it, and the exit code is 2.
#[test]
fn a_reader_that_closes_the_pipe_is_reported() {
    let _alone = alone();
    for when_full in ["refuse", "wait"] {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let reader = pipe(folder.path());
        let running = Running::start(&[], folder.path(), &writes(when_full), &[]).expect("it starts");
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(reader);
        until("it is noticed", || number(&running.port("out")["refused"]) > 100);
        running.packets("without a reader");
        let (code, _, err) = running.end();
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains("port 'out': cannot write ") && err.contains("pipe, which is not complete"), "{err}");
    }
}

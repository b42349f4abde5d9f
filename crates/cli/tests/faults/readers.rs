//! Whoever reads what a pipeline writes and does not read on: a pipe with a reader that stands still.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::OFlags;

use crate::alone;
use crate::forebay::{Running, number};
use crate::namespaces::until;

/// Far more than a pipe with a slow reader takes.
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

/// A pipe that is open for reading, and that nobody reads.
fn pipe(folder: &Path) -> File {
    let path = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().expect("the command mkfifo").success());
    let open = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(&path);
    let open = open.expect("it was made");
    let flags = rustix::fs::fcntl_getfl(&open).expect("open");
    rustix::fs::fcntl_setfl(&open, flags - OFlags::NONBLOCK).expect("open");
    open
}

/// How many packets a capture of packets of 1 000 bytes has: it must be whole.
fn packets(capture: &[u8]) -> u64 {
    assert_eq!(capture.get(..4), Some(&0xa1b2_3c4d_u32.to_ne_bytes()[..]), "a capture");
    let records = &capture[24..];
    assert_eq!(records.len() % 1_016, 0, "a packet that is cut short");
    (records.len() / 1_016) as u64
}

#[test]
fn a_reader_that_stands_still_is_not_waited_for_where_packets_may_be_refused() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let mut reader = pipe(folder.path());
    let running = Running::start(&[], folder.path(), &writes("refuse"), &[]).expect("it starts");
    let refused = || number(&running.packets("while nobody reads")["dropped"]["out.refused"]);
    until("packets are refused", || refused() > 10_000);
    let memory = running.resident();
    let more = refused() + 20_000;
    until("more are", || refused() > more);
    assert!(running.resident() <= memory + 8_192, "from {memory} to {} KiB", running.resident());
    let sent = || number(&running.port("out")["sent"]);
    let before = sent();
    let thread = std::thread::spawn(move || {
        let mut capture = Vec::new();
        reader.read_to_end(&mut capture).map(|_| capture)
    });
    until("it goes on", || sent() > before + 5_000);
    let (code, report, said) = running.end();
    assert_eq!(code, Some(0), "{said}");
    let capture = thread.join().expect("no panic").expect("it can be read");
    assert_eq!(packets(&capture), number(&report["packets"]["out"]), "what is counted as sent is in the capture");
}

#[test]
fn a_reader_that_stands_still_is_waited_for_where_nothing_may_be_refused() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let mut reader = pipe(folder.path());
    let text = writes("wait").replace("size: 1000", "size: 1000, count: 20000");
    let running = Running::start(&[], folder.path(), &text, &[]).expect("it starts");
    // The worker stands: nobody can ask it anything, and nothing waits for that for ever.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let told = running.ask(&["show", "ports", "--json"]);
    assert_eq!(told.code, Some(0), "{}", told.err);
    let mut capture = Vec::new();
    let thread = std::thread::spawn(move || reader.read_to_end(&mut capture).map(|_| capture));
    // The source is used up, and the run ends by itself once all is written.
    let (code, report, said) = running.ended();
    assert_eq!(code, Some(0), "{said}");
    let capture = thread.join().expect("no panic").expect("it can be read");
    assert_eq!(packets(&capture), number(&report["packets"]["out"]));
    assert_eq!(report["packets"]["out"], report["packets"]["in"], "nothing is refused");
}

/// The reader goes: that is said, and the exit code says so.
#[test]
fn a_reader_that_goes_is_told() {
    let _alone = alone();
    for when_full in ["refuse", "wait"] {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let reader = pipe(folder.path());
        let running = Running::start(&[], folder.path(), &writes(when_full), &[]).expect("it starts");
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(reader);
        until("it is noticed", || number(&running.port("out")["refused"]) > 100);
        running.packets("without a reader");
        let (code, _, said) = running.end();
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("port 'out': cannot write ") && said.contains("pipe, which is not complete"), "{said}");
    }
}

//! Tests writing to a disk that is full or slow, and to pipes.

use super::*;

#[test]
fn a_full_disk_is_counted_and_reported_once() {
    if !Path::new("/dev/full").exists() {
        let _ = writeln!(std::io::stderr(), "skipped: this system has no /dev/full");
        return;
    }
    let mut port = open(json!({ "write": "/dev/full" })).expect("it can be opened");
    let (pool, mut batch) = (pool(2048), Batch::with_capacity(32));
    let mut refused = 0;
    for _ in 0..1000 {
        pool.fill_arrived(&mut batch, 32, 1500, Ticks::ZERO, ArrivalClock::Poll);
        port.port.send(&mut batch, Ticks(1));
        refused += batch.len();
        batch.clear();
    }
    let error = port.port.close().expect_err("the disk is full");
    assert!(error.contains("/dev/full") && error.contains("not complete"), "{error}");
    assert_eq!(port.counters.errors.get(), 1);
    assert!(refused > 0, "48 MB do not fit into the buffers");
    assert_eq!(port.port.close(), Ok(()), "the error is reported once");
}

/// Opens a port that writes into a pipe as soon as the pipe has a reader.
fn open_once_read(params: &Value) -> OpenPort {
    loop {
        match open(params.clone()) {
            Ok(port) => return port,
            Err(error) => assert!(error.to_string().contains("without a reader"), "{error}"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_slow_disk_refuses_packets_with_when_full_refuse() {
    let folder = Folder::new("slow");
    let pipe = folder.path("pipe");
    if !Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()) {
        let _ = writeln!(std::io::stderr(), "skipped: no mkfifo here");
        return;
    }
    // A pipe that is not emptied until the test signals it.
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let reading = std::thread::spawn({
        let pipe = pipe.clone();
        move || {
            let mut file = std::fs::File::open(pipe).expect("a pipe");
            wait.recv().expect("the signal");
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).expect("readable");
            bytes
        }
    });
    let mut port = open_once_read(&json!({ "write": pipe.display().to_string(), "when_full": "refuse" }));
    let (pool, mut batch) = (pool(2048), Batch::with_capacity(32));
    let (mut sent, mut number) = (Vec::new(), 0_u32);
    let refused = loop {
        pool.fill_arrived(&mut batch, 32, 1500, Ticks::ZERO, ArrivalClock::Poll);
        let first = number;
        for packet in batch.iter_mut() {
            packet.data_mut()[..4].copy_from_slice(&number.to_be_bytes());
            number += 1;
        }
        port.port.send(&mut batch, Ticks(1));
        sent.extend(first..number - batch.len() as u32);
        if !batch.is_empty() {
            break batch
                .iter()
                .map(|packet| u32::from_be_bytes(*packet.data().first_chunk().expect("1500 bytes")))
                .collect::<Vec<_>>();
        }
        assert!(number < 100_000, "a pipe without reads accepts all packets");
    };
    assert_eq!(refused, (number - refused.len() as u32..number).collect::<Vec<_>>(), "the last packets are refused");
    batch.clear();
    go.send(()).expect("listening");
    assert_eq!(port.port.close(), Ok(()));
    let written = times_and_bytes(&reading.join().expect("read"));
    let numbers: Vec<_> =
        written.iter().map(|(_, bytes)| u32::from_be_bytes(*bytes.first_chunk().expect("1500 bytes"))).collect();
    assert_eq!(numbers, sent, "accepted packets are in the file");
}

/// Regression test: opening a pipe waited for the other end of the pipe. So the reload that opened the port waited, and
/// so did all actions after the reload.
#[test]
fn a_pipe_cannot_be_read_and_can_be_written_only_with_a_reader() {
    let folder = Folder::new("pipe");
    let pipe = folder.0.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("the command mkfifo").success());
    let refused = |params: Value| open(params).err().expect("refused").to_string();
    let error = refused(json!({ "read": pipe }));
    assert!(error.contains("it is a pipe: allowed are regular files"), "{error}");
    let error = refused(json!({ "write": pipe }));
    assert!(error.contains("without a reader: start its reader first"), "{error}");
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read(pipe).expect("the pipe exists")
    });
    let mut port = open_once_read(&json!({ "write": pipe }));
    let (pool, mut batch) = (pool(2048), Batch::with_capacity(4));
    pool.fill_arrived(&mut batch, 2, 60, Ticks::ZERO, ArrivalClock::Poll);
    port.port.send(&mut batch, Ticks(1));
    assert_eq!((batch.len(), port.port.close()), (0, Ok(())));
    assert_eq!(reader.join().expect("the reader ends").len(), 24 + 2 * (16 + 60));
}

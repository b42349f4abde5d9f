//! Tests that a capture from a stream is replayed while it arrives, and is never read as a whole.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::*;

/// A stream of the bytes that are sent to it.
struct Fed {
    from: Receiver<Vec<u8>>,
    rest: Vec<u8>,
}

impl Read for Fed {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        if self.rest.is_empty() {
            self.rest = self.from.recv().unwrap_or_default();
        }
        let count = self.rest.len().min(bytes.len());
        bytes[..count].copy_from_slice(&self.rest[..count]);
        self.rest.drain(..count);
        Ok(count)
    }
}

fn fed() -> (SyncSender<Vec<u8>>, Fed) {
    let (to, from) = sync_channel(1);
    (to, Fed { from, rest: Vec::new() })
}

/// Returns the next packet's bytes, once the packet has arrived.
fn wait(playback: &mut Playback) -> Option<Vec<u8>> {
    while !playback.ready() {
        if !playback.is_open() {
            return None;
        }
        std::thread::yield_now();
    }
    let bytes = playback.peek(0).expect("ready").bytes.to_vec();
    playback.advance();
    Some(bytes)
}

/// Every packet is available as soon as its last byte has arrived, in any compression, and even if the next packet has
/// not arrived.
#[test]
fn a_packet_of_a_stream_does_not_wait_for_the_next_one() {
    for big in [false, true] {
        let (to, stream) = fed();
        to.send(classic(big, 0xa1b2_c3d4, 1, &[])).expect("listening");
        let mut playback = Playback::stream(stream, true).expect("a header");
        assert!(!playback.ready() && playback.is_open());
        for value in 1..50_u8 {
            let file = classic(big, 0xa1b2_c3d4, 1, &[(9, 0, 60, &[value; 60])]);
            let (start, end) = file[24..].split_at(usize::from(value));
            to.send(start.to_vec()).expect("listening");
            to.send(end.to_vec()).expect("listening");
            assert_eq!(wait(&mut playback), Some(vec![value; 60]));
        }
        drop(to);
        assert_eq!((wait(&mut playback), playback.first()), (None, 9_000_000_000));
        assert_eq!(playback.take_events().0, Vec::<String>::new());
    }
}

/// A truncated stream is replayed up to the fault, which is an error. A player that waits behaves the same.
#[test]
fn a_truncated_stream_is_an_error() {
    for polls in [true, false] {
        let (to, stream) = fed();
        let file = classic(false, 0xa1b2_c3d4, 1, THREE);
        to.send(file[..file.len() - 1].to_vec()).expect("listening");
        drop(to);
        let mut playback = Playback::stream(stream, polls).expect("a header");
        assert_eq!(std::iter::from_fn(|| wait(&mut playback)).count(), 2);
        let (errors, _) = playback.take_events();
        let expected = "the capture ends in the middle of its record 3, which starts at byte 176: record or copy the \
                        capture again";
        assert_eq!(errors, [expected]);
    }
}

/// Zeros after a gzip stream are not an error. It does not matter whether they arrive with the end of the stream or
/// later. Other bytes are an error.
#[test]
fn zeros_after_a_gzip_stream_are_ignored() {
    let file = packed(&classic(false, 0xa1b2_c3d4, 1, THREE));
    for (behind, errors) in [
        (vec![vec![0; 512]], 0),
        (vec![vec![0]], 0),
        (vec![vec![0; 9], vec![0; 70_000], vec![0]], 0),
        (vec![vec![0; 512], b"garbage".to_vec()], 1),
        (vec![b"garbage".to_vec()], 1),
    ] {
        let (to, stream) = fed();
        let mut parts = behind.clone();
        let first = parts.remove(0);
        let feeder = std::thread::spawn({
            let start = [&file[..], &first].concat();
            move || std::iter::once(start).chain(parts).for_each(|part| drop(to.send(part)))
        });
        let mut playback = Playback::stream(stream, true).expect("a header");
        assert_eq!(std::iter::from_fn(|| wait(&mut playback)).count(), 3);
        let (found, _) = playback.take_events();
        assert_eq!(found.len(), errors, "{found:?}");
        feeder.join().expect("no panic");
    }
}

/// The stream is read only a few pieces ahead of its player, and not read any more when the player no longer exists.
#[test]
fn a_stream_is_read_as_far_as_the_player_is() {
    let (to, stream) = fed();
    to.send(classic(false, 0xa1b2_c3d4, 1, &[])).expect("listening");
    let mut playback = Playback::stream(stream, true).expect("a header");
    let file = classic(false, 0xa1b2_c3d4, 1, &[(9, 0, 60, &[1_u8; 60] as &[u8]); 1000]);
    // Some pieces are read ahead, and then no more.
    let mut sent = 0_u64;
    let mut idle = 0;
    while idle < 10_000 {
        match to.try_send(file[24..].to_vec()) {
            Ok(()) => (sent, idle) = (sent + 1000, 0),
            Err(_) => idle += 1,
        }
        std::thread::yield_now();
        assert!(sent < 100_000, "the stream is read although its player does not replay");
    }
    drop(to);
    assert_eq!(std::iter::from_fn(|| wait(&mut playback)).count() as u64, sent);

    let (to, stream) = fed();
    to.send(classic(false, 0xa1b2_c3d4, 1, &[])).expect("listening");
    drop(Playback::stream(stream, true).expect("a header"));
    // The thread ends, and closes the stream.
    while to.send(file[24..].to_vec()).is_ok() {}
}

#[test]
fn the_standard_input_is_played_once_and_by_one_port() {
    let error = open(json!({ "read": "-", "loops": 2 })).err().expect("refused").to_string();
    assert!(error.contains("loops") && error.contains("allowed is 1"), "{error}");
    let mut files = forebay_graph::files::Files::default();
    files.claim_input("'in'").expect("the first");
    let error = files.claim_input("'too'").expect_err("the second");
    assert_eq!(error, "'in' already reads the standard input: allowed is one reader in a run");
}

//! Tests that a capture's packets enter in order, at their times, and that none is lost.

use super::*;

#[test]
fn a_capture_is_played_with_its_own_timing_scaled_and_repeated() {
    let folder = Folder::new("timing");
    let file = folder.file("three.pcap", &classic(false, 0xa1b2_c3d4, 1, THREE));
    let pool = pool(2048);
    let times = |params| {
        let played = play(&mut open(params).expect("sound"), &pool);
        assert!(played.iter().zip(1..).all(|((.., bytes), n)| bytes == &[(n + 2) % 3 + 1; 60]), "in order");
        played.into_iter().map(|(at, clock, _)| (at, clock)).collect::<Vec<_>>()
    };
    let intended = |list: &[u64]| list.iter().map(|at| (1_000 + at, ArrivalClock::Intended)).collect::<Vec<_>>();
    // The third packet's time stamp goes back. It is replaced by the second time stamp.
    assert_eq!(times(json!({ "read": file })), intended(&[0, 300_000, 300_000]));
    assert_eq!(times(json!({ "read": file, "speed": 2.5 })), intended(&[0, 120_000, 120_000]));
    // A round lasts 300 µs and a mean gap of 150 µs.
    let twice = [0, 300_000, 300_000, 450_000, 750_000, 750_000];
    assert_eq!(times(json!({ "read": file, "loops": 2 })), intended(&twice));
    assert_eq!(times(json!({ "read": file, "speed": "fast", "loops": 2 })), vec![(1_000, ArrivalClock::Poll); 6]);
}

#[test]
fn a_capture_read_in_pieces_is_played_like_one_in_memory() {
    let folder = Folder::new("pieces");
    let frames: Vec<Vec<u8>> = (0..2000_u32).map(|n| n.to_be_bytes().repeat(15)).collect();
    let packets: Vec<_> = frames.iter().zip(0..).map(|(frame, n)| (n / 1000, n % 1000 * 7, 60, &frame[..])).collect();
    let mut bytes = classic(true, 0xa1b2_3c4d, 1, &packets);
    bytes.truncate(bytes.len() - 3);
    let path = PathBuf::from(folder.file("long.pcap", &bytes));
    let all = |mut playback: Playback| {
        let mut list = Vec::new();
        while playback.ready() {
            let next = playback.peek(0).expect("ready");
            list.push((next.after, next.bytes.to_vec()));
            playback.advance();
        }
        (list, playback.take_events().0)
    };
    let (whole, errors) = all(Playback::open(&path, 3).expect("a capture"));
    assert_eq!((whole.len(), errors.len()), (1999 * 3, 1), "{errors:?}");
    assert_eq!(all(Playback::with_limit(&path, 3, 1000).expect("a capture")), (whole, errors));
}

#[test]
fn a_capture_without_packets_ends_at_once_even_if_repeated_for_ever() {
    let folder = Folder::new("none");
    let file = folder.file("none.pcap", &classic(false, 0xa1b2_c3d4, 1, &[]));
    let mut port = open(json!({ "read": file, "loops": "forever" })).expect("a capture");
    assert!(play(&mut port, &pool(2048)).is_empty());
    assert_eq!(port.port.close(), Ok(()));
}

/// Regression test: with time stamps far apart, as in a merged capture, and many rounds, the time exceeded 64 bits of
/// nanoseconds.
#[test]
fn stamps_decades_apart_are_played_again_and_again() {
    let folder = Folder::new("decades");
    let file = folder
        .file("decades.pcap", &classic(false, 0xa1b2_c3d4, 1, &[(0, 0, 60, &[1; 60]), (u32::MAX, 0, 60, &[2; 60])]));
    let mut port = open(json!({ "read": file, "speed": "fast", "loops": 9 })).expect("a capture");
    assert_eq!(play(&mut port, &pool(2048)).len(), 18);
}

#[test]
fn packets_longer_than_chunks_are_dropped_and_a_broken_end_is_reported() {
    let folder = Folder::new("long");
    let mut bytes = classic(false, 0xa1b2_c3d4, 1, &[(1, 0, 64, &[1; 64]), (1, 1, 65, &[2; 65]), (1, 2, 64, &[3; 64])]);
    bytes.extend([0; 7]);
    let file = folder.file("long.pcap", &bytes);
    let mut port = open(json!({ "read": file, "speed": "fast" })).expect("a capture");
    let played: Vec<_> = play(&mut port, &pool(64)).into_iter().map(|(.., bytes)| bytes[0]).collect();
    assert_eq!(played, [1, 3]);
    assert_eq!((port.counters.dropped.get(), port.counters.errors.get()), (1, 1));
    let error = port.port.close().expect_err("the capture is incomplete");
    assert!(error.contains("record 4"), "{error}");
}

#[test]
fn an_exhausted_pool_delays_packets_and_loses_none() {
    let folder = Folder::new("pool");
    let file = folder.file("three.pcap", &classic(false, 0xa1b2_c3d4, 1, THREE));
    let mut port = open(json!({ "read": file, "speed": "fast" })).expect("a capture");
    let pool = Pool::new(PoolOptions { chunks: 2, ..PoolOptions::default() }).expect("memory");
    let mut batch = Batch::with_capacity(32);
    let intake = Intake { now: Ticks(5), pool: &pool, most: 32 };
    assert_eq!((port.port.receive(&mut batch, &intake), batch.len()), (Ready::Now, 2));
    batch.clear();
    assert_eq!((port.port.receive(&mut batch, &intake), batch.len()), (Ready::Never, 1));
    assert_eq!(batch[0].data(), [3; 60]);
}

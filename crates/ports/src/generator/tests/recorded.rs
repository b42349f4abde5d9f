//! Tests that packets have the times, lengths and sessions of a capture.

use super::*;
use crate::pcap::{WhenFull, Writer};

/// Writes a capture of packets with these times in microseconds, session ports and lengths.
fn capture(packets: &[(u64, u16, usize)]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let mut writer = Writer::create(file.path(), WhenFull::Wait).expect("a capture");
    for &(micros, port, len) in packets {
        let builder = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9);
        let (builder, mut frame) = (builder.udp(port, 53), Vec::new());
        builder.write(&mut frame, &vec![0; len - 42]).expect("a frame");
        assert!(writer.write(micros * 1_000, frame.len(), &frame));
    }
    writer.finish().expect("space");
    file
}

/// Three sessions. The clock is set back once.
const SOME: &[(u64, u16, usize)] = &[(100, 7, 60), (101, 8, 1000), (111, 7, 1003), (105, 9, 64), (110, 7, 1400)];

fn params(file: &tempfile::NamedTempFile, more: Value) -> Value {
    let mut params = json!({ "recorded": file.path(), "sessions": 64 });
    let more = more.as_object().expect("parameters").clone();
    params.as_object_mut().expect("parameters").extend(more);
    params
}

#[test]
fn packets_come_as_they_were_recorded_again_and_again() {
    let file = capture(SOME);
    // The gaps are 1, 10, 0 and 5 µs, and 4 µs (the mean) before the first packet is repeated. Their sum of 20 µs
    // corresponds to 5 packets of 1 ms here.
    let all = take(params(&file, json!({ "rate": "1kpps" })), 10);
    let instants: Vec<u64> = all.iter().map(|(at, _)| *at / 1_000).collect();
    assert_eq!(instants, [0, 250, 2_750, 2_750, 4_000, 5_000, 5_250, 7_750, 7_750, 9_000]);
    let lengths: Vec<_> = all[..5].iter().map(|(_, frame)| frame.len()).collect();
    assert_eq!(lengths, [60, 1000, 1000, 64, 1400]);
    let whose: Vec<_> = all.iter().map(|(_, frame)| session(frame)).collect();
    assert!(whose[0] == whose[2] && whose[0] == whose[4] && whose[1] != whose[0], "{whose:?}");
    assert!(whose[3] != whose[0] && whose[3] != whose[1] && whose[..5] == whose[5..], "{whose:?}");
    // The sessions are the generator's own.
    let own: Vec<_> = take(json!({ "sessions": 64 }), 3).iter().map(|(_, frame)| session(frame)).collect();
    assert_eq!(own, [whose[0].clone(), whose[1].clone(), whose[3].clone()]);
    all.iter().for_each(|(_, frame)| drop(check(frame)));
}

#[test]
fn one_length_fewer_sessions_and_no_rate_are_applied() {
    let file = capture(SOME);
    let all = take(params(&file, json!({ "size": 100, "sessions": 2 })), 5);
    assert!(all.iter().all(|(_, frame)| frame.len() == 100));
    assert_eq!(session(&all[3].1), session(&all[0].1), "the third session is the first again");
    let bits = take(params(&file, json!({ "rate": "1Mbps" })), 6);
    let round: usize = [60, 1000, 1000, 64, 1400].iter().map(|len| (len + 24) * 8 * 1_000).sum();
    assert!(bits[5].0.abs_diff(round as u64) < 10, "{} of {round}", bits[5].0);
    let even = capture(&[(5, 1, 60), (5, 2, 60), (5, 1, 60)]);
    let instants: Vec<u64> = take(params(&even, json!({ "rate": "1kpps" })), 4).iter().map(|(at, _)| *at).collect();
    assert_eq!(instants, [0, 1_000_000, 2_000_000, 3_000_000]);
}

/// Packets for which the queue has no room are counted, and the other packets arrive at their times.
#[test]
fn packets_without_room_are_dropped_and_the_others_keep_their_times() {
    let file = capture(SOME);
    let (mut port, pool) = (open(params(&file, json!({ "rate": "1kpps", "queue": 2 }))), pool());
    let (first, _) = receive(&mut port, &pool, 0, 256);
    assert_eq!(first.len(), 1);
    // Four of the first round, and 499 more rounds.
    let (some, _) = receive(&mut port, &pool, 2_499_999_999, 1);
    let dropped = port.counters.dropped.get();
    let (more, ready) = receive(&mut port, &pool, 2_499_999_999, 256);
    assert_eq!((some.len(), some[0].0, more.len() + dropped as usize), (1, 250_000, 2_498));
    assert_eq!((more.last().map(|(at, _)| *at), ready), (Some(2_750_000), Ready::At(Ticks(2_500_000_000))));
}

/// Each worker has its sessions' packets at their own times.
#[test]
fn workers_get_their_part_of_a_recording() {
    let many: Vec<_> = (0..600).map(|at: u64| (at * at, (at * 7 % 40) as u16, 60)).collect();
    let file = capture(&many);
    let whole = take(params(&file, json!({ "rate": "1kpps", "count": 600 })), 600);
    let mut parts = Vec::new();
    for which in 0..3 {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        environment.share = (which, 3);
        let mut setup = Setup::new("generator", &mut environment);
        let declaration = PortDeclaration::of::<Generator>();
        let mut port = declaration.open(&params(&file, json!({ "rate": "1kpps" })), &mut setup).expect("right");
        let (pool, mut now) = (pool(), 0);
        while now < 599_900_000 {
            let (packets, ready) = receive(&mut port, &pool, now, 256);
            parts.extend(packets);
            let Ready::At(at) = ready else { panic!("{ready:?}") };
            now = at.0;
        }
    }
    parts.sort();
    assert_eq!(parts.len(), 600);
    let mut same = whole.clone();
    same.sort();
    // A worker's round begins with its first packet.
    let of = |all: &[(u64, Vec<u8>)]| {
        let mut sessions: Vec<_> = all.iter().map(|(_, frame)| session(frame)).collect();
        sessions.sort();
        sessions
    };
    assert_eq!(of(&parts), of(&same));
}

#[test]
fn invalid_recordings_are_rejected_with_their_name() {
    let file = capture(SOME);
    for (more, parameter, message) in [
        (json!({ "skew": 1.0 }), "skew", "recorded"),
        (json!({ "burst": 2 }), "burst", "recorded"),
        (json!({ "rate": "1kpps", "arrivals": "poisson" }), "arrivals", "recorded"),
        (json!({ "size": "imix" }), "size", "one length"),
        (json!({ "recorded": "/never.pcap" }), "recorded", "/never.pcap: cannot open"),
    ] {
        let error = try_open(params(&file, more)).err().expect("refused").to_string();
        assert!(error.contains(parameter) && error.contains(message), "{error}");
    }
    let empty = capture(&[]);
    let error = try_open(params(&empty, json!({}))).err().expect("refused").to_string();
    assert!(error.contains("no packets"), "{error}");
}

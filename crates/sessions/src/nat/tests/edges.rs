//! Checksums of translated packets, compared with a full recomputation for words with extreme values.

use forebay_packet::wire::ipv4::{TCP, UDP};
use forebay_packet::{Pool, PoolOptions};

use super::*;

const EDGES: [u16; 6] = [0, 1, 0x7fff, 0x8000, 0xfffe, 0xffff];

/// An ICMP message with these words after its type and code, and with the right checksum.
fn message(from: [u8; 4], to: [u8; 4], kind: u8, words: [u16; 3]) -> Vec<u8> {
    let [[a, b], [c, d], rest] = words.map(u16::to_be_bytes);
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from, to, 64);
    builder.icmpv4_raw(kind, 0, [a, b, c, d]).write(&mut frame, &rest).expect("memory");
    frame[36..38].fill(0);
    let sum = !checksum::sum(&frame[34..]);
    frame[36..38].copy_from_slice(&sum.to_ne_bytes());
    frame
}

/// Regression: an echo reply with identifier 0, whose other words were zero too, came back with a checksum of 0 instead
/// of 0xffff.
#[test]
fn checksums_of_queries_are_full_recomputations() {
    let words = || EDGES.into_iter().flat_map(|seq| EDGES.map(|data| (seq, data)));
    for (request, reply) in [(8, 0), (13, 14), (42, 43)] {
        for id in EDGES {
            let mut nat = plain();
            for (seq, data) in words() {
                let sent = message(HOST, PEER, request, [id, seq, data]);
                let out = nat.goes_out(&sent).expect("a query opens a session");
                let (outer, number) = ([out[26], out[27], out[28], out[29]], u16::from_be_bytes([out[38], out[39]]));
                assert_eq!(out, message(outer, PEER, request, [number, seq, data]));
                let answer = message(PEER, outer, reply, [number, seq, data]);
                let back = nat.comes_back(&answer).expect("an answer");
                let inner = message(PEER, HOST, reply, [id, seq, data]);
                assert_eq!(back, inner, "{reply}: {id:x} {seq:x} {data:x}");
                // An error about the reply, which quotes all of it.
                let error_out = nat.goes_out(&error(HOST, PEER, &inner, 30)).expect("a session");
                assert_eq!(error_out, error(outer, PEER, &answer, 30), "{reply}: {id:x} {seq:x} {data:x}");
            }
        }
    }
}

/// A plain packet with these ends.
fn packet(protocol: u8, from: ([u8; 4], u16), to: ([u8; 4], u16), word: u16) -> Vec<u8> {
    let mut frame = if protocol == TCP { tcp(from, to, "A") } else { udp(from, to, &[0; 12]) };
    let (field, at) = if protocol == TCP { (50, 48) } else { (40, 42) };
    frame[at..at + 2].copy_from_slice(&word.to_be_bytes());
    frame[field..field + 2].fill(0);
    let pseudo = [&frame[26..34], &[0, protocol], &((frame.len() - 34) as u16).to_be_bytes()].concat();
    let sum = !checksum::add(checksum::sum(&pseudo), checksum::sum(&frame[34..]));
    let sum = if sum == 0 && protocol == UDP { 0xffff } else { sum };
    frame[field..field + 2].copy_from_slice(&sum.to_ne_bytes());
    frame
}

/// A session's checksum differences for all extreme addresses and ports, in both directions.
#[test]
fn checksums_of_a_session_are_full_recomputations() {
    let addresses: Vec<[u8; 4]> = EDGES
        .into_iter()
        .flat_map(|high| EDGES.map(|low| (u32::from(high) << 16 | u32::from(low)).to_be_bytes()))
        .collect();
    let pool = Pool::new(PoolOptions { chunks: 2, ..PoolOptions::default() }).expect("memory");
    for protocol in [TCP, UDP] {
        for (at, old) in addresses.iter().enumerate() {
            for (step, new) in addresses.iter().enumerate() {
                let (old_port, new_port) = (EDGES[(at + step) % 6], EDGES[(at * 5 + step / 6) % 6]);
                let word = EDGES[(at + step / 6) % 6];
                let (before, after) = ((*old, old_port), (*new, new_port));
                let gains = Gains::new(before, after);
                for (from, to, gains) in [(before, after, gains), (after, before, gains.back())] {
                    let mut translated = pool.take().expect("one");
                    assert!(translated.write(&packet(protocol, from, (PEER, 80), word)));
                    let expected = packet(protocol, to, (PEER, 80), word);
                    translated.data_mut()[26..30].copy_from_slice(&expected[26..30]);
                    translated.data_mut()[34..36].copy_from_slice(&expected[34..36]);
                    gains.add_to(forebay_tables::plain::Plain::of_mut(&mut translated).expect("a plain packet"));
                    assert_eq!(translated.data(), expected, "{protocol}: {from:?} to {to:?}, {word:x}");
                }
            }
        }
    }
}

/// A packet with a wrong checksum keeps the error: its checksum is wrong by the same difference afterwards.
#[test]
fn wrong_checksums_stay_wrong() {
    let mut nat = plain();
    for (sent, field) in [
        (udp((HOST, 5_000), (PEER, 53), b"payload"), 40),
        (tcp((HOST, 5_001), (PEER, 80), "S"), 50),
        (message(HOST, PEER, 8, [9, 0, 0]), 36),
    ] {
        let right = nat.goes_out(&sent).expect("it opens a session");
        for field in [field, 24] {
            let mut wrong = sent.clone();
            wrong[field] ^= 0x55;
            let out = nat.goes_out(&wrong).expect("a session");
            assert_ne!(out[field..field + 2], right[field..field + 2]);
            let sum = |frame: &[u8]| u16::from_be_bytes([frame[field], frame[field + 1]]);
            let (before, after) = (checksum::add(!sum(&sent), sum(&wrong)), checksum::add(!sum(&right), sum(&out)));
            assert_eq!(before, after, "wrong by the same difference");
        }
    }
}

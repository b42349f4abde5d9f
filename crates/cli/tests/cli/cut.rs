//! Packets that a capture truncated (`snaplen`): written files contain their original lengths.

use crate::{File, forebay};

/// The packets' lengths in the file, and on the wire.
const LENGTHS: [(u32, u32); 3] = [(60, 1514), (64, 64), (34, 9018)];

/// Returns a classic capture of Ethernet with little-endian words (draft-ietf-opsawg-pcap section 4).
fn capture() -> Vec<u8> {
    let mut file: Vec<u8> = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 64, 1].into_iter().flat_map(u32::to_le_bytes).collect();
    for (second, (captured, original)) in (1..).zip(LENGTHS) {
        file.extend([second, 0, captured, original].into_iter().flat_map(u32::to_le_bytes));
        file.extend(
            [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5].into_iter().chain([7; 50]).take(captured as usize),
        );
    }
    file
}

/// Returns both lengths of each packet of a classic capture.
fn classic(file: &[u8]) -> Vec<(u32, u32)> {
    let (mut at, mut lengths) = (24, Vec::new());
    while at < file.len() {
        lengths.push((word(file, at + 8), word(file, at + 12)));
        at += 16 + word(file, at + 8) as usize;
    }
    lengths
}

/// Returns both lengths of each packet of a pcapng file. Enhanced packet blocks have type 6 (draft-ietf-opsawg-pcapng
/// section 4.3).
fn next_generation(file: &[u8]) -> Vec<(u32, u32)> {
    let (mut at, mut lengths) = (0, Vec::new());
    while at < file.len() {
        if word(file, at) == 6 {
            lengths.push((word(file, at + 20), word(file, at + 24)));
        }
        at += word(file, at + 4) as usize;
    }
    lengths
}

fn word(file: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(file[at..at + 4].try_into().expect("4 bytes"))
}

/// Regression: a truncated packet was written as if it had been short on the wire.
#[test]
fn files_contain_the_original_length_of_truncated_packets() {
    let file = File::new(
        "ports:
  in: { pcap: { read: in.pcap, speed: fast } }
  one: { pcap: { write: one.pcap } }
  two: { pcap: { write: two.pcapng } }
modules:
  look: { tap: { file: look.pcap, snap: 40 } }
  copy: { copy: { copies: 2, snap: 50 } }
  wall: { acl: { rules: [], other: deny } }
pipeline:
  - in -> look -> copy
  - copy[0] -> wall -> one
  - copy[1] -> one
  - copy[2] -> two
",
    );
    std::fs::write(file.beside("in.pcap"), capture()).expect("a capture");
    let drops = file.beside("drops.pcapng");
    forebay(&["run", file.path(), "--virtual", "--drops", &drops]).success();
    let read = |name: &str| std::fs::read(file.beside(name)).expect("it was written");
    let cut = |snap: u32| LENGTHS.map(|(kept, original)| (kept.min(snap), original));
    assert_eq!(classic(&read("look.pcap")), cut(40));
    assert_eq!(classic(&read("one.pcap")), cut(50));
    assert_eq!(next_generation(&read("two.pcapng")), cut(50));
    assert_eq!(next_generation(&read("drops.pcapng")), LENGTHS);
}

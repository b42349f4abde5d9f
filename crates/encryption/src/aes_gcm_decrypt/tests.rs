//! Packets that are refused, and changes of keys. Tests of `aes_gcm_encrypt` show that decryption restores what was
//! encrypted.

use forebay_frames::{ipv4, ipv6};
use forebay_graph::Rig;
use serde_json::json;

use super::*;
use crate::aes_gcm_encrypt::AesGcmEncrypt;

const OLD: &str = "000102030405060708090a0b0c0d0e0f";
const NEW: &str = "101112131415161718191a1b1c1d1e1f";

fn seal(id: u8, key: &str, frame: &[u8]) -> Vec<u8> {
    let mut rig = Rig::of::<AesGcmEncrypt>(&json!({ "keys": [{ "id": id, "key": key }] })).expect("valid parameters");
    rig.run(frame).1
}

fn open(keys: serde_json::Value) -> Rig {
    Rig::of::<AesGcmDecrypt>(&json!({ "keys": keys })).expect("valid parameters")
}

#[test]
fn every_flipped_bit_of_a_payload_is_refused() {
    for (frame, at) in [(ipv4(0, b"attack at dawn"), 42), (ipv6(0, b"attack at dawn"), 62)] {
        let sealed = seal(7, OLD, &frame);
        for backend in ["auto", "software"] {
            let params = json!({ "keys": [{ "id": 7, "key": OLD }], "backend": backend });
            let mut rig = Rig::of::<AesGcmDecrypt>(&params).expect("valid parameters");
            for bit in at * 8..sealed.len() * 8 {
                let mut wrong = sealed.clone();
                wrong[bit / 8] ^= 1 << (bit % 8);
                let expected = if bit / 8 == at { UNKNOWN_KEY } else { FORGED };
                assert_eq!(rig.run(&wrong).0, expected, "bit {bit}");
            }
            assert_eq!(rig.run(&sealed), (Gate::FIRST, frame.clone()));
        }
    }
}

#[test]
fn keys_follow_each_other() {
    let frame = ipv4(0, b"abc");
    let (old, new) = (seal(1, OLD, &frame), seal(2, NEW, &frame));
    let mut both = open(json!([{ "id": 1, "key": OLD }, { "id": 2, "key": NEW }]));
    assert_eq!([both.run(&old), both.run(&new)], [(Gate::FIRST, frame.clone()), (Gate::FIRST, frame.clone())]);
    let mut after = open(json!([{ "id": 2, "key": NEW }]));
    assert_eq!((after.run(&old).0, after.run(&new).0), (UNKNOWN_KEY, Gate::FIRST));
    // A packet that claims another key is refused.
    let mut crossed = open(json!([{ "id": 1, "key": NEW }]));
    assert_eq!(crossed.run(&old).0, FORGED);
}

#[test]
fn packets_that_cannot_be_decrypted_are_dropped_with_their_reason() {
    let mut rig = open(json!([{ "id": 0, "key": OLD }]));
    for len in 0..MORE {
        assert_eq!(rig.run(&ipv4(0, &vec![0; len])).0, TOO_SHORT, "{len}");
    }
    assert_eq!(rig.run(&ipv4(0, &[0; MORE])).0, FORGED);
    assert_eq!(rig.run(&ipv4(0, &[9; MORE])).0, UNKNOWN_KEY);
    let with = |at: usize, value: u8| {
        let mut frame = seal(0, OLD, &ipv4(0, b"abc"));
        frame[at] = value;
        frame
    };
    assert_eq!(rig.run(&with(23, 6)).0, NOT_UDP);
    assert_eq!(rig.run(&with(20, 0x20)).0, FRAGMENT);
    assert_eq!(rig.run(&with(39, 38)).0, BAD_LENGTH);
    let mut rig = Rig::of::<AesGcmDecrypt>(&json!({ "keys": [{ "id": 0, "key": OLD }], "others": "pass" }))
        .expect("valid parameters");
    assert_eq!(rig.run(&with(23, 6)).0, Gate::FIRST);
}

#[test]
fn bad_packets_among_good_ones_are_dropped_alone() {
    let mut rig = open(json!([{ "id": 1, "key": OLD }]));
    let frame = ipv4(0, b"abc");
    let good = seal(1, OLD, &frame);
    let mut bad = good.clone();
    bad[60] ^= 1;
    let mut batch = forebay_packet::Batch::with_capacity(8);
    for which in [&good, &bad, &good, &frame, &frame, &good, &bad] {
        batch.push(rig.packet(which)).expect("room");
    }
    let [ok, no, short] = [Gate::FIRST, FORGED, TOO_SHORT].map(Some);
    assert_eq!(rig.process(&mut batch), [ok, no, ok, short, short, ok, no]);
    for index in [0, 2, 5] {
        assert_eq!(batch[index].data(), frame);
    }
}

//! The frames that the function makes: their layout against two other implementations, headers against etherparse, and
//! drop reasons.

use forebay_aead::{Aead, Backend, Key, Material};
use forebay_frames::{ipv4, ipv6, outer, tagged};
use forebay_graph::{Rig, SetupEnvironment};
use forebay_packet::Batch;
use forebay_units::Frequency;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::testing::{by_openssl, bytes};

const KEY: &str = "000102030405060708090a0b0c0d0e0f";
const LONG_KEY: &str = "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f";

fn rig(params: serde_json::Value) -> Rig {
    Rig::of::<AesGcmEncrypt>(&params).expect("valid parameters")
}

fn plain() -> Rig {
    rig(json!({ "keys": [{ "id": 7, "key": KEY }] }))
}

/// Returns the parts of an encrypted payload that begins at `at`: nonce, text, tag.
fn parts(frame: &[u8], at: usize) -> ([u8; NONCE], Vec<u8>, [u8; TAG]) {
    let (nonce, rest) = frame[at..].split_first_chunk().expect("a number");
    let (text, tag) = rest.split_last_chunk().expect("a tag");
    (*nonce, text.to_vec(), *tag)
}

#[test]
fn the_layout_is_number_text_tag() {
    for (key, frame, at) in [(KEY, ipv4(0, b"attack at dawn"), 42), (LONG_KEY, ipv6(0, b"attack at dawn"), 62)] {
        let mut rig = rig(json!({ "keys": [{ "id": 7, "key": key }], "backend": "auto" }));
        let (gate, out) = rig.run(&frame);
        assert_eq!((gate, out.len()), (Gate::FIRST, frame.len() + MORE));
        let (nonce, mut text, tag) = parts(&out, at);
        assert_eq!((nonce[0], text.len()), (7, 14));
        let software = Key::new(&Material::from_hex(key).expect("digits"), Backend::Software).expect("a key");
        software.open(&nonce, &[], &mut text, &tag).expect("the tag is correct");
        assert_eq!(text, b"attack at dawn");
        // The next packet has the next number.
        let next = parts(&rig.run(&frame).1, at).0;
        assert_eq!(next[..4], nonce[..4]);
        let number = |nonce: [u8; NONCE]| u64::from_be_bytes(nonce[4..].try_into().expect("eight"));
        assert_eq!(number(next), number(nonce) + 1);
    }
}

#[test]
fn openssl_encrypts_alike() {
    let (mut cases, mut expected) = (Vec::new(), Vec::new());
    for key in [KEY, LONG_KEY] {
        for backend in ["auto", "software"] {
            let mut rig = rig(json!({ "keys": [{ "id": 0, "key": key }], "backend": backend }));
            for len in [0, 1, 15, 16, 17, 64, 255, 1_400] {
                let payload: Vec<u8> = (0..len).map(|byte| byte as u8).collect();
                let (_, out) = rig.run(&ipv4(0, &payload));
                let (nonce, text, tag) = parts(&out, 42);
                cases.push((bytes(key), nonce.to_vec(), vec![], payload));
                expected.push([text, tag.to_vec()].concat());
            }
        }
    }
    if let Some(theirs) = by_openssl(&cases) {
        assert_eq!(theirs, expected);
    }
}

/// Asserts by etherparse that lengths and checksums are correct.
fn check_headers(frame: &[u8], udp: usize) {
    let sliced = etherparse::SlicedPacket::from_ethernet(frame).expect("whole headers");
    let Some(etherparse::TransportSlice::Udp(datagram)) = &sliced.transport else { panic!("no UDP: {sliced:?}") };
    assert_eq!(usize::from(datagram.length()), frame.len() - udp);
    let header = datagram.to_header();
    let correct = match sliced.net.as_ref().expect("IP") {
        etherparse::NetSlice::Ipv4(ip) => {
            assert_eq!(ip.header().to_header().calc_header_checksum(), ip.header().header_checksum());
            assert_eq!(usize::from(ip.header().total_len()), frame.len() - 14 - sliced.link_exts.len() * 4);
            header.calc_checksum_ipv4(&ip.header().to_header(), datagram.payload()).expect("short")
        }
        etherparse::NetSlice::Ipv6(ip) => {
            header.calc_checksum_ipv6(&ip.header().to_header(), datagram.payload()).expect("short")
        }
        other => panic!("{other:?}"),
    };
    assert!(header.checksum == correct || header.checksum == 0, "{:04x} for {correct:04x}", header.checksum);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn encrypted_packets_are_decrypted(
        len in 0usize..1_460, fill: u8, six: bool, tag: bool, summed: bool, padding in 0usize..8,
        (one, other) in prop::sample::select(vec![("auto", "software"), ("software", "auto"), ("auto", "auto")]),
    ) {
        let payload: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(31) ^ fill).collect();
        let mut frame = match (six, summed) {
            (true, _) => ipv6(fill & 3, &payload),
            (false, true) => ipv4(fill, &payload),
            (false, false) => outer(fill, (5, 6), false, &payload),
        };
        if tag {
            frame = tagged(&frame);
        }
        let keys = json!([{ "id": 1, "key": LONG_KEY }, { "id": fill.max(2), "key": KEY }]);
        let mut seal = rig(json!({ "keys": keys, "use": fill.max(2), "backend": one }));
        let params = json!({ "keys": keys, "backend": other });
        let mut open = Rig::of::<crate::aes_gcm_decrypt::AesGcmDecrypt>(&params).expect("valid parameters");
        let padded = [frame.clone(), vec![0xee; padding]].concat();
        let (gate, sealed) = seal.run(&padded);
        prop_assert_eq!(gate, Gate::FIRST);
        prop_assert_eq!(sealed.len(), frame.len() + MORE);
        let udp = if six { 54 } else { 34 } + if tag { 4 } else { 0 };
        check_headers(&sealed, udp);
        prop_assert_eq!(sealed[udp + 6..udp + 8] == [0, 0], !six && !summed, "the checksum is present as before");
        let sealed = [sealed, vec![0xee; padding]].concat();
        let (gate, opened) = open.run(&sealed);
        prop_assert_eq!(gate, Gate::FIRST);
        prop_assert_eq!(opened, frame);
    }
}

#[test]
fn a_checksum_that_was_wrong_stays_wrong() {
    let mut frame = ipv4(0, b"spoilt on the way");
    frame[40] ^= 0x10;
    let (_, sealed) = plain().run(&frame);
    let result = std::panic::catch_unwind(|| check_headers(&sealed, 34));
    assert!(result.is_err(), "the checksum is not corrected");
    let mut open = Rig::of::<crate::aes_gcm_decrypt::AesGcmDecrypt>(&json!({ "keys": [{ "id": 7, "key": KEY }] }))
        .expect("valid parameters");
    assert_eq!(open.run(&sealed), (Gate::FIRST, frame));
}

#[test]
fn layers_are_what_would_be_found() {
    let mut rig = plain();
    for frame in [ipv4(0, b"abc"), ipv6(0, b"abc"), tagged(&ipv4(0, b"abc"))] {
        let mut batch = Batch::with_capacity(1);
        let mut packet = rig.packet(&frame);
        let session = packet.session_key();
        batch.push(packet).expect("room");
        rig.process(&mut batch);
        let (known, transport) = (batch[0].network(), batch[0].transport());
        batch[0].forget_layers();
        assert_eq!((known, transport), (batch[0].network(), batch[0].transport()));
        assert_eq!(batch[0].session_key(), session);
    }
}

#[test]
fn packets_that_cannot_be_encrypted_are_dropped_with_their_reason() {
    let mut rig = rig(json!({ "keys": [{ "id": 7, "key": KEY }], "mtu": 128 }));
    let usual = ipv4(0, &[1; 40]);
    let with = |at: usize, bytes: &[u8]| {
        let mut frame = usual.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    for (frame, gate) in [
        (with(23, &[6]), NOT_UDP),
        (with(12, &[0x08, 0x06]), NOT_UDP),
        (vec![], NOT_UDP),
        (with(20, &[0x20, 0]), FRAGMENT),
        (with(20, &[0, 9]), FRAGMENT),
        (with(38, &[0, 49]), BAD_LENGTH),
        (with(38, &[0, 47]), BAD_LENGTH),
        (with(38, &[0, 7]), BAD_LENGTH),
        (with(16, &[0, 69]), BAD_LENGTH),
        (with(16, &[0, 20]), BAD_LENGTH),
        (with(14, &[0x44]), BAD_LENGTH),
        (usual[..60].to_vec(), BAD_LENGTH),
        (ipv4(0, &[1; 73]), TOO_LONG),
    ] {
        assert_eq!(rig.run(&frame), (gate, frame.clone()), "the frame is unchanged");
    }
    assert_eq!(rig.run(&ipv4(0, &[1; 72])).1.len(), 14 + 128);
    // An IPv6 fragment.
    let mut six = ipv6(0, &[1; 40]);
    (six[18], six[19], six[20]) = (0, 56, 44);
    six.splice(54..54, [17, 0, 0, 8, 0, 0, 0, 1]);
    assert_eq!(rig.run(&six).0, FRAGMENT);
}

#[test]
fn a_chunk_without_room_is_reported() {
    let mut rig = plain();
    let room = rig.packet(b"").tailroom();
    let most = ipv4(0, &vec![1; room - 42 - TAG]);
    assert_eq!(rig.run(&most).0, Gate::FIRST);
    let more = ipv4(0, &vec![1; room - 42 - TAG + 1]);
    assert_eq!(rig.run(&more).0, NO_ROOM);
    let mut packet = rig.packet(&ipv4(0, b"abc"));
    let most_but_one = packet.headroom() - HEADER + 1;
    packet.prepend(most_but_one).expect("room").fill(0);
    assert!(packet.headroom() < HEADER);
    // The frame starts later in the chunk, with too little headroom before it.
    let frame = ipv4(0, &[2; 200]);
    assert!(packet.write(&frame));
    let mut batch = Batch::with_capacity(1);
    batch.push(packet).expect("room");
    assert_eq!(rig.process(&mut batch), [Some(NO_ROOM)]);
}

#[test]
fn others_pass_where_asked() {
    let mut rig = rig(json!({ "keys": [{ "id": 7, "key": KEY }], "others": "pass" }));
    let mut frame = ipv4(0, b"abc");
    frame[23] = 6;
    assert_eq!(rig.run(&frame), (Gate::FIRST, frame.clone()));
    let mut fragment = ipv4(0, b"abc");
    fragment[20] = 0x20;
    assert_eq!(rig.run(&fragment).0, FRAGMENT);
}

#[test]
fn a_key_is_used_as_often_as_allowed_by_all_that_have_it() {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    let params = json!({ "keys": [{ "id": 7, "key": KEY }], "packets": 3 });
    let mut one = Rig::within::<AesGcmEncrypt>(&params, &mut environment).expect("valid parameters");
    let mut other = Rig::within::<AesGcmEncrypt>(&params, &mut environment).expect("valid parameters");
    let frame = ipv4(0, b"abc");
    let gates: Vec<_> = (0..4).map(|_| one.run(&frame).0).collect();
    assert_eq!(gates, [Gate::FIRST, Gate::FIRST, Gate::FIRST, KEY_SPENT]);
    assert_eq!(other.run(&frame), (KEY_SPENT, frame.clone()));
    // A later configuration may allow more.
    let params = json!({ "keys": [{ "id": 7, "key": KEY }], "packets": 4 });
    let mut next = Rig::within::<AesGcmEncrypt>(&params, &mut environment).expect("valid parameters");
    assert_eq!([next.run(&frame).0, next.run(&frame).0], [Gate::FIRST, KEY_SPENT]);
}

#[test]
fn no_two_packets_have_one_number() {
    let mut seen = std::collections::HashSet::new();
    // Several modules and several pipelines share one key.
    let mut rigs: Vec<_> = (0..3).map(|_| plain()).collect();
    for round in 0..3_000 {
        let (_, out) = rigs[round % 3].run(&ipv4(0, b""));
        assert!(seen.insert(parts(&out, 42).0));
    }
}

#[test]
fn where_time_is_simulated_all_happens_again() {
    let once = || {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        environment.simulated = true;
        let params = json!({ "keys": [{ "id": 7, "key": KEY }] });
        let mut rig = Rig::within::<AesGcmEncrypt>(&params, &mut environment).expect("valid parameters");
        [rig.run(&ipv4(0, b"abc")).1, rig.run(&ipv4(0, b"abc")).1]
    };
    assert_eq!(once(), once());
    assert_ne!(once()[0], once()[1]);
}

#[test]
fn faults_are_named_and_keys_are_not_shown() {
    for (params, message) in [
        (json!({ "keys": [] }), "keys: the list is empty"),
        (json!({ "keys": [{ "id": 1 }] }), "keys[0]: give either 'key', or 'file'"),
        (json!({ "keys": [{ "id": 1, "key": "00ff", "file": "x" }] }), "keys[0]: give either"),
        (json!({ "keys": [{ "id": 1, "key": "00ff" }] }), "keys[0].key: 2 bytes: allowed are 16"),
        (json!({ "keys": [{ "id": 1, "key": "00ffgg" }] }), "keys[0].key: byte 5 of the key"),
        (json!({ "keys": [{ "id": 1, "key": 12_345 }] }), "keys[0].key: the value (not shown) is not text"),
        (json!({ "keys": [{ "id": 1, "file": "none.key" }] }), "keys[0].file: cannot read 'none.key'"),
        (json!({ "keys": [{ "id": 256, "key": KEY }] }), "256"),
        (
            json!({ "keys": [{ "id": 1, "key": KEY }, { "id": 1, "key": LONG_KEY }] }),
            "keys[1].id: 1 is used by another key",
        ),
        (
            json!({ "keys": [{ "id": 1, "key": KEY }, { "id": 2, "key": KEY }] }),
            "keys[1]: the key is the same as that of id 1",
        ),
        (json!({ "keys": [{ "id": 1, "key": KEY }], "use": 2 }), "use: no key has id 2: allowed is 1"),
        (json!({ "keys": [{ "id": 1, "key": KEY }], "packets": 0 }), "packets: 0: allowed"),
        (json!({ "keys": [{ "id": 1, "key": KEY }], "mtu": 67 }), "mtu: 67: allowed are 68"),
        (json!({ "keys": [{ "id": 1, "key": KEY }], "backend": "gpu" }), "gpu"),
    ] {
        let error = Rig::of::<AesGcmEncrypt>(&params).err().unwrap_or_else(|| panic!("{message}")).to_string();
        assert!(error.contains(message), "{error}");
        assert!(!error.contains("00ff") && !error.contains("0001") && !error.contains("12345"), "{error}");
    }
    let params: Params =
        serde_json::from_value(json!({ "keys": [{ "id": 1, "key": KEY }] })).expect("valid parameters");
    assert!(!format!("{params:?}").contains("0001"));
}

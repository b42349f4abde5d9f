//! Packets that are refused and why, packets that are consumed, and associations that change. Tests of `esp_encrypt`
//! show that packets are restored.

use forebay_aead::{Backend, Key, Material};
use forebay_frames::{ipv4, ipv6, outer};
use forebay_graph::{Rig, SetupEnvironment};
use forebay_units::Frequency;
use serde_json::{Value, json};

use super::*;
use crate::esp_encrypt::EspEncrypt;
use crate::testing::bytes;

const KEY: &str = "4c80cdefbb5d10da906ac73c3613a6342e443b68";

fn rig(params: &Value) -> Rig {
    Rig::of::<EspDecrypt>(params).expect("valid parameters")
}

fn open(more: &str) -> Rig {
    rig(&json!({ "associations": [format!("0x1001 key={KEY} {more}")], "udp": 4500, "window": 64 }))
}

fn sealer(more: &str) -> Rig {
    let line = format!("0x1001 key={KEY} peer=192.0.2.10 for=0.0.0.0/0,::/0 {more}");
    Rig::of::<EspEncrypt>(&json!({ "source": "192.0.2.1", "associations": [line] })).expect("valid parameters")
}

/// Builds ESP around any text by hand: from 192.0.2.1 to 192.0.2.10, with a sequence number.
fn esp(class: u8, sequence: u64, extended: bool, text: &[u8]) -> Vec<u8> {
    let material = Material::from_hex(KEY).expect("digits").split_last(4).expect("20 bytes");
    let key = Key::new(&material.0, Backend::Software).expect("a key");
    let nonce = [material.1.bytes(), &[9; 8]].concat().try_into().expect("twelve");
    let mut associated = bytes("00001001");
    if extended {
        associated.extend(((sequence >> 32) as u32).to_be_bytes());
    }
    associated.extend((sequence as u32).to_be_bytes());
    let mut sealed = text.to_vec();
    let tag = key.seal(&nonce, &associated, &mut sealed);
    let payload = [&bytes("00001001")[..], &(sequence as u32).to_be_bytes(), &[9; 8], &sealed, &tag].concat();
    let mut frame = outer(class, (1, 2), false, &payload);
    // The packet without the UDP header.
    frame.drain(34..42);
    let total = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[23] = 50;
    frame
}

/// Returns the text of a packet: its IP packet with padding and trailer.
fn text(frame: &[u8]) -> Vec<u8> {
    let mut text = frame[14..].to_vec();
    let protocol = if text[0] >> 4 == 4 { 4 } else { 41 };
    let pad = (4 - (text.len() + 2) % 4) % 4;
    text.extend(1..=pad as u8);
    text.extend([pad as u8, protocol]);
    text
}

/// draft-mcgrew-gcm-test-01, the first case: AES-128 with extended sequence numbers. Nonce and associated data are
/// built as for packets.
#[test]
fn the_packet_of_the_draft() {
    let plain = "45000048699a000080114db7c0a80102c0a801010a9bf15638d301000001000000000000045f736970045f75647003736970\
         0963796265726369747902646b000021000101020201";
    let cipher = "fecf537e729d5b07dc30df528dd22b768d1b98736696a6fd348509fa13ceac34cfa2436f14a3f3cf65925bf1f4a13c5d15b2\
         1e1884f5ff6247aeabb786b93bce61bc17d768fd9732";
    let tag = "459018148f6cbe722fd04796562dfdb4";
    let (key, salt) = Material::from_hex(KEY).expect("digits").split_last(4).expect("20 bytes");
    let salt = salt.bytes().try_into().expect("four");
    let nonce = nonce(salt, bytes("4956ed7e3b244cfe").try_into().expect("eight"));
    let (associated, count) = associated(0x4321, 0x8765_4321_0000_0000, true);
    for backend in [Backend::Auto, Backend::Software] {
        let key = Key::new(&key, backend).expect("a key");
        let mut text = bytes(plain);
        let sealed = key.seal(&nonce, &associated[..count], &mut text);
        assert_eq!((&text, &sealed[..]), (&bytes(cipher), &bytes(tag)[..]));
        key.open(&nonce, &associated[..count], &mut text, &sealed).expect("the tag is correct");
        // A payload announced as ICMP is not a tunnelled packet.
        assert_eq!((text == bytes(plain), inside(&text).err()), (true, Some(NOT_IP)));
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    for (more, at) in [("", 34), ("udp=4500", 42), ("esn", 34)] {
        let esn = if more == "esn" { "esn" } else { "" };
        let (_, sealed) = sealer(more).run(&ipv6(0, b"attack at dawn"));
        for backend in ["auto", "software"] {
            let line = format!("0x1001 key={KEY} {esn}");
            let mut rig = rig(&json!({ "associations": [line], "udp": 4500, "backend": backend }));
            for bit in at * 8..sealed.len() * 8 {
                let mut wrong = sealed.clone();
                wrong[bit / 8] ^= 1 << (bit % 8);
                let gate = rig.run(&wrong).0;
                match bit / 8 - at {
                    0..4 => assert_eq!(gate, UNKNOWN_SPI, "bit {bit}"),
                    // Sequence number 0 is invalid. The upper half may be inferred from a lower half of 0.
                    4..8 => assert!([FORGED, REPLAYED, TOO_OLD].contains(&gate), "bit {bit}: {gate:?}"),
                    _ => assert_eq!(gate, FORGED, "bit {bit}"),
                }
            }
            assert_eq!(rig.run(&sealed).0, Gate::FIRST, "no forged packet has moved the window");
            assert_eq!(rig.run(&sealed).0, REPLAYED);
        }
    }
}

#[test]
fn numbers_come_once_and_in_the_window() {
    let mut rig = open("");
    let inner = text(&ipv4(0, b"abc"));
    let gates = [5, 5, 3, 3, 100, 37, 36, 101, 37, 0].map(|number| rig.run(&esp(0, number, false, &inner)).0);
    let ok = Gate::FIRST;
    assert_eq!(gates, [ok, REPLAYED, ok, REPLAYED, ok, ok, TOO_OLD, ok, TOO_OLD, REPLAYED]);
}

#[test]
fn extended_numbers_are_inferred_from_their_lower_halves() {
    let mut rig = open("esn");
    let inner = text(&ipv4(0, b"abc"));
    let ok = Gate::FIRST;
    for (number, gate) in [
        // Below the window of the first numbers, which extends below 0.
        (0xffff_ff00, ok),
        (0xffff_fff0, ok),
        (0x1_0000_0005, ok),
        (0xffff_fff1, ok),
        (0x1_0000_0005, REPLAYED),
        (0x1_8000_0000, ok),
        (0x2_0000_0001, ok),
        // A number far behind the window is taken for a number far ahead, for which the tag is wrong.
        (0x1_8000_0001, FORGED),
    ] {
        assert_eq!(rig.run(&esp(0, number, true, &inner)).0, gate, "{number:#x}");
    }
    // Without `esn` the same packets belong to another association.
    assert_eq!(open("").run(&esp(0, 1, true, &inner)).0, FORGED);
}

#[test]
fn inner_packets_are_checked() {
    let good = text(&ipv4(0, b"abc"));
    let len = good.len();
    let with = |at: usize, value: u8| {
        let mut text = good.clone();
        text[at] = value;
        text
    };
    let longer = |pad: u8| {
        let mut text = ipv4(0, b"abcd")[14..].to_vec();
        text.extend(vec![0; 1_000]);
        text.extend((1..=pad).collect::<Vec<_>>());
        text.extend([pad, 4]);
        text
    };
    let mut number = 0;
    let mut rig = open("");
    let mut gate = |text: &[u8]| {
        number += 1;
        rig.run(&esp(0, number, false, text)).0
    };
    assert_eq!(good[len - 2], 3, "padding: 1, 2, 3");
    for (text, expected) in [
        (good.clone(), Gate::FIRST),
        (with(len - 2, 255), BAD_PADDING),
        (with(len - 3, 9), BAD_PADDING),
        (with(len - 5, 0), BAD_PADDING),
        (with(len - 1, 41), NOT_IP),
        (with(len - 1, 6), NOT_IP),
        (with(len - 1, 59), DUMMY),
        (with(0, 0x65), NOT_IP),
        (with(0, 0x44), NOT_IP),
        (with(3, 32), NOT_IP),
        (with(3, 19), NOT_IP),
        // Padding for traffic flow confidentiality is removed.
        (longer(2), Gate::FIRST),
        (vec![1, 2, 2, 59], DUMMY),
        (vec![0, 0, 0, 4], NOT_IP),
    ] {
        assert_eq!(gate(&text), expected, "{text:02x?}");
    }
    let (gate, out) = open("").run(&esp(0, 1, false, &longer(2)));
    assert_eq!((gate, &out[14..]), (Gate::FIRST, &ipv4(0, b"abcd")[14..]));
}

#[test]
fn congestion_is_passed_on() {
    let mut rig = open("");
    let (gate, out) = rig.run(&esp(3, 1, false, &text(&ipv4(2, b"abc"))));
    assert_eq!((gate, out[15] & 3), (Gate::FIRST, 3));
    assert_eq!(rig.run(&esp(3, 2, false, &text(&ipv4(0, b"abc")))).0, CONGESTION);
}

#[test]
fn frames_without_esp_are_dropped_with_their_reason() {
    let good = esp(0, 1, false, &text(&ipv4(0, b"abc")));
    let with = |at: usize, bytes: &[u8]| {
        let mut frame = good.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let mut rig = open("");
    for (frame, gate) in [
        (with(23, &[6]), NOT_ESP),
        (with(12, &[8, 6]), NOT_ESP),
        (vec![], NOT_ESP),
        (with(20, &[0x20]), FRAGMENT),
        (with(16, &[0xff]), BAD_LENGTH),
        (with(16, &[0, 20]), BAD_LENGTH),
        (with(16, &[0, 55]), BAD_LENGTH),
        (with(17, &[good[17] - 1]), BAD_LENGTH),
        (with(37, &[2]), UNKNOWN_SPI),
        (outer(0, (1, 53), true, &[1; 64]), NOT_ESP),
        (outer(0, (1, 4_500), true, &[0xff]), KEEPALIVE),
        (outer(0, (1, 4_500), true, &[0, 0, 0, 0, 1]), IKE),
        (outer(0, (1, 4_500), true, &[1]), BAD_LENGTH),
        (outer(0, (1, 4_500), true, b""), BAD_LENGTH),
        (outer(0, (1, 4_500), true, &[1; 64]), UNKNOWN_SPI),
    ] {
        assert_eq!(rig.run(&frame).0, gate, "{frame:02x?}");
    }
    assert_eq!(rig.run(&good).0, Gate::FIRST);
    let mut only_ip = self::rig(&json!({ "associations": [format!("0x1001 key={KEY}")] }));
    assert_eq!((only_ip.declared.gates.len(), only_ip.run(&outer(0, (1, 4_500), true, &[0xff])).0), (1, NOT_ESP));
}

#[test]
fn addresses_are_those_of_the_association() {
    let frame = esp(0, 1, false, &text(&ipv4(0, b"abc")));
    for (more, gate) in [
        ("peer=192.0.2.1 local=192.0.2.10 for=198.51.100.0/24", Gate::FIRST),
        ("peer=192.0.2.2", WRONG_ADDRESS),
        ("local=192.0.2.1", WRONG_ADDRESS),
        ("local=2001:db8::1", WRONG_ADDRESS),
        ("for=10.0.0.0/8,::/0", WRONG_SOURCE),
    ] {
        assert_eq!(open(more).run(&frame).0, gate, "{more}");
    }
}

#[test]
fn lifetimes_end_softly_and_hard() {
    let mut rig = open("soft-packets=2 hard-packets=3");
    let inner = text(&ipv4(0, b"abc"));
    let gates =
        [1, 2, 3, 4].map(|number| (rig.run(&esp(0, number, false, &inner)).0, rig.counters("lifetime")["soft"]));
    assert_eq!(gates, [(Gate::FIRST, 0), (Gate::FIRST, 1), (Gate::FIRST, 1), (EXPIRED, 1)]);
}

#[test]
fn associations_change_while_packets_run() {
    let mut rig = rig(&json!({}));
    let (_, table) = rig.declared.tables.remove(0);
    let inner = text(&ipv4(0, b"abc"));
    let apply = |line: &str| table.apply(&[line]).refused.first().map_or(String::new(), ToString::to_string);
    assert_eq!(rig.run(&esp(0, 1, false, &inner)).0, UNKNOWN_SPI);
    assert_eq!(apply(&format!("add 0x1001 key={KEY} esn")), "");
    assert_eq!(apply(&format!("replace 0x1001 key={KEY}")), "");
    assert_eq!(apply(&format!("add 0x1000 key={KEY}")), "");
    assert_eq!(rig.run(&esp(0, 7, false, &inner)).0, Gate::FIRST);
    let shown = table.entries(None, 9).expect("two");
    let listed = format!("0x00001001 key=(hidden) # packets 1 bytes {} sequence 7", inner.len());
    assert_eq!(shown, ["0x00001000 key=(hidden) # packets 0 bytes 0 sequence 0", &listed]);
    // A replaced association with the same key keeps its window.
    assert_eq!(apply(&format!("replace 0x1001 key={KEY} peer=192.0.2.1")), "");
    assert_eq!(rig.run(&esp(0, 7, false, &inner)).0, REPLAYED);
    assert_eq!(apply(&format!("remove {}", shown[1])), "");
    assert_eq!(rig.run(&esp(0, 8, false, &inner)).0, UNKNOWN_SPI);
    assert!(apply("remove 0x1001").contains("0x1001 does not exist"));
    let refused = apply(&format!("remove 0x1000 {KEY}"));
    assert!(refused.contains("word 2 (not shown) differs from the listed line of 0x1000"), "{refused}");
    assert_eq!(table.len(), 1);
    assert!(apply(&format!("add 0x1000 key={KEY}")).contains("already exists"));
    assert!(apply(&format!("add 0x1002 key={KEY} udp=4500")).contains("word 3 is unknown"));
}

#[test]
fn the_next_configuration_keeps_the_window() {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    let params = |more: &str| json!({ "associations": [format!("0x1001 key={KEY} {more}")] });
    let frame = esp(0, 1, false, &text(&ipv4(0, b"abc")));
    let mut first = Rig::within::<EspDecrypt>(&params(""), &mut environment).expect("valid parameters");
    assert_eq!(first.run(&frame).0, Gate::FIRST);
    let mut next = Rig::within::<EspDecrypt>(&params("peer=192.0.2.1"), &mut environment).expect("valid parameters");
    assert_eq!(next.run(&frame).0, REPLAYED);
}

/// Regression: a changed window size started with an empty window, so that all earlier packets could be replayed.
#[test]
fn a_window_of_another_size_keeps_the_numbers() {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    let mut made = |window: u16| {
        let line = format!("0x1001 key={KEY} hard-packets=8");
        let params = json!({ "associations": [line], "window": window });
        Rig::within::<EspDecrypt>(&params, &mut environment).expect("valid parameters")
    };
    let (mut small, mut large) = (made(64), made(4_096));
    let frame = |number| esp(0, number, false, &text(&ipv4(0, b"abc")));
    let ok = Gate::FIRST;
    assert_eq!([5, 300, 250].map(|number| small.run(&frame(number)).0), [ok; 3]);
    // The function of the previous configuration runs until the switch. The window also remembers packets that come
    // meanwhile.
    assert_eq!([5, 300, 250, 0].map(|number| large.run(&frame(number)).0), [REPLAYED; 4]);
    assert_eq!([6, 301].map(|number| large.run(&frame(number)).0), [ok; 2], "a larger window extends further back");
    let mut least = made(65);
    assert_eq!([6, 250, 300, 301].map(|number| least.run(&frame(number)).0), [TOO_OLD, REPLAYED, REPLAYED, REPLAYED]);
    // The limits of an association apply to all configurations together.
    assert_eq!([302, 303, 304, 305].map(|number| least.run(&frame(number)).0), [ok, ok, ok, EXPIRED]);
}

#[test]
fn faults_are_named() {
    for (params, message) in [
        (json!({ "window": 63 }), "window: 63: allowed are 64 to 4096"),
        (json!({ "window": 4_097 }), "window: 4097"),
        (json!({ "udp": 0 }), "udp: 0 is not a port"),
        (json!({ "associations": ["0x1001"] }), "associations[0]: the key is missing"),
        (
            json!({ "associations": [format!("0x1001 key={KEY}"), format!("4097 key={KEY}")] }),
            "associations[1]: 0x1001 is given twice",
        ),
    ] {
        let error = Rig::of::<EspDecrypt>(&params).err().map_or(String::new(), |error| error.to_string());
        assert!(error.contains(message) && !error.contains("4c80"), "{error}");
    }
}

//! Encapsulated frames byte by byte, against an independent encoder, and as tshark reads them.

use forebay_frames::{FROM, HERE, THERE, TO, ipv4, ipv6, outer, tagged, tshark};
use forebay_graph::Rig;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn params(more: &[(&str, Value)]) -> Value {
    let mut params = json!({ "source": "192.0.2.1", "peer": "192.0.2.10", "vni": 0x12_3456 });
    for (key, value) in more {
        params[*key] = value.clone();
    }
    params
}

fn rig(more: &[(&str, Value)]) -> Rig {
    Rig::of::<VxlanEncap>(&params(more)).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_frame_byte_by_byte() {
    let inner = ipv4(0xb8, b"data");
    let (gate, frame) = rig(&[("source_port", json!(50_000)), ("dscp", json!(10))]).run(&inner);
    assert_eq!(gate, Gate::FIRST);
    assert_eq!(frame[..14], [&TO[..], &FROM, &[0x08, 0x00]].concat());
    assert_eq!(frame[14..24], [0x45, 0x28, 0, 36 + 46, 0, 0, 0x40, 0, 64, 17]);
    assert_eq!(frame[26..34], [HERE, THERE].concat());
    assert_eq!(frame[34..42], [0xc3, 0x50, 0x12, 0xb5, 0, 16 + 46, 0, 0]);
    assert_eq!(frame[42..50], [0x08, 0, 0, 0, 0x12, 0x34, 0x56, 0]);
    assert_eq!(frame[50..], inner);
}

#[test]
fn frames_that_cannot_be_sent_are_dropped() {
    let mut rig = rig(&[("mtu", json!(100))]);
    assert_eq!(rig.run(&ipv4(0, &[7; 22])).0, Gate::FIRST, "50 bytes outside, 14 of them Ethernet, 64 inside");
    assert_eq!(rig.run(&ipv4(0, &[7; 23])).0, TOO_LONG);
    assert_eq!(rig.run(&[3; 65]).0, TOO_LONG);
    assert_eq!(rig.run(&[3; 13]).0, TRUNCATED);
    assert_eq!(rig.run(&[]).0, TRUNCATED);
    let mut rig = super::tests::rig(&[]);
    let frame = rig.run(&rig_run(&ipv4(0, b"data"))).1;
    let mut batch = forebay_packet::Batch::with_capacity(1);
    let mut packet = rig.packet(&frame);
    let room = packet.headroom() - 49;
    assert!(packet.prepend(room).is_some());
    batch.push(packet).expect("room");
    assert_eq!(rig.process(&mut batch), [Some(NO_HEADROOM)]);
    assert_eq!(batch[0].len(), frame.len() + room, "the frame is unchanged");
}

fn rig_run(frame: &[u8]) -> Vec<u8> {
    rig(&[]).run(frame).1
}

#[test]
fn wrong_parameters_are_named() {
    for (key, value, message) in [
        ("vni", json!(1 << 24), "16777216 is not a network identifier: allowed are 0 to 16777215"),
        ("port", json!(0), "allowed are 1 to 65535"),
        ("peer", json!("2001:db8::1"), "'2001:db8::1' is an IPv6 address"),
        ("source_port", json!("inner"), "\"inner\" is not a source port"),
        ("mtu", json!(1), "1: allowed are 68"),
    ] {
        let error = Rig::of::<VxlanEncap>(&params(&[(key, value)])).err().expect("refused");
        assert_eq!(error.faults[0].path, key, "{error}");
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn tshark_reads_what_is_written() {
    let inner = [ipv4(0xb8, b"data"), ipv6(0, &[1; 301]), tagged(&ipv4(0, b"data"))];
    let frames: Vec<_> =
        inner.iter().enumerate().map(|(n, frame)| rig(&[("udp_checksum", json!(n == 1))]).run(frame).1).collect();
    let fields = ["vxlan.vni", "vxlan.flags", "eth.src", "ip.checksum.status", "udp.checksum.status", "_ws.malformed"];
    let Some(rows) = tshark(&frames, &fields) else { return };
    assert_eq!(rows.len(), 3);
    for (index, row) in rows.iter().enumerate() {
        let [vni, flags, eth, ip, udp, malformed] = &row[..] else { panic!("{row:?}") };
        assert_eq!((vni.as_str(), flags.as_str(), malformed.as_str()), ("1193046", "0x0800", ""), "{row:?}");
        assert_eq!(eth, "02:00:00:00:00:01,02:00:00:00:00:01");
        assert!(ip.split(',').all(|status| status == "1"), "{row:?}");
        assert_eq!(udp, if index == 1 { "1,1" } else { "3,1" }, "{row:?}");
    }
}

proptest! {
    #[test]
    fn frames_equal_those_of_an_independent_encoder(
        kind in 0u8..4, class: u8, payload in prop::collection::vec(any::<u8>(), 14..200), summed: bool,
    ) {
        let inner = match kind {
            0 => ipv4(class, &payload),
            1 => ipv6(class, &payload),
            2 => tagged(&ipv4(class, &payload)),
            _ => payload,
        };
        let (gate, after) = rig(&[("df", json!(false)), ("udp_checksum", json!(summed))]).run(&inner);
        prop_assert_eq!(gate, Gate::FIRST);
        let port = u16::from_be_bytes([after[34], after[35]]);
        prop_assert!(port >= 0xc000);
        let written = [&[0x08, 0, 0, 0, 0x12, 0x34, 0x56, 0], &inner[..]].concat();
        // The inner frame's class if it is IP. Random bytes may be IP, too.
        let mut expected = outer(after[15], (port, 4_789), summed, &written);
        prop_assert!(kind == 3 || after[15] == class);
        expected[..12].copy_from_slice(&inner[..12]);
        expected[20] = 0;
        expected[24..26].fill(0);
        let sum = !forebay_packet::wire::checksum::sum(&expected[14..34]);
        expected[24..26].copy_from_slice(&sum.to_ne_bytes());
        prop_assert_eq!(after, expected);
    }
}

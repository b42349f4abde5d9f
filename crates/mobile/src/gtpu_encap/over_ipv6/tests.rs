//! T-PDUs over IPv6 byte by byte, against an independent encoder, and as tshark reads them.

use std::collections::HashSet;

use forebay_frames::{FROM, HERE_6, THERE_6, TO, ipv4, ipv6, outer_ipv6, tagged, tshark};
use forebay_graph::{Gate, Rig};
use forebay_packet::Batch;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::gtpu_encap::{GtpuEncap, NO_HEADROOM, NO_TUNNEL, NOT_IP, TOO_LONG, TRUNCATED};

fn fixed(more: &[(&str, Value)]) -> Value {
    let mut params = json!({ "source": "2001:db8::1", "peer": "2001:db8::10", "teid": "0x01020304" });
    for (key, value) in more {
        params[*key] = value.clone();
    }
    params
}

fn rig(params: &Value) -> Rig {
    Rig::of::<GtpuEncap>(params).unwrap_or_else(|error| panic!("{error}"))
}

fn label(frame: &[u8]) -> u32 {
    u32::from_be_bytes([0, frame[15] & 0x0f, frame[16], frame[17]])
}

#[test]
fn a_packet_byte_by_byte() {
    let (gate, frame) = rig(&fixed(&[("source_port", json!(2_152))])).run(&ipv4(0xb8, b"data"));
    assert_eq!(gate, Gate::FIRST);
    assert_eq!(frame[..14], [&TO[..], &FROM, &[0x86, 0xdd]].concat());
    assert_eq!((frame[14], frame[15] & 0xf0), (0x6b, 0x80), "version and class");
    assert_eq!(frame[18..22], [0, 16 + 32, 17, 64]);
    assert_eq!(frame[22..54], [HERE_6, THERE_6].concat());
    assert_eq!(frame[54..60], [0x08, 0x68, 0x08, 0x68, 0, 16 + 32]);
    assert_ne!(frame[60..62], [0, 0], "the checksum is present");
    assert_eq!(frame[62..70], [0x30, 0xff, 0, 32, 1, 2, 3, 4]);
    assert_eq!(frame[70..], ipv4(0xb8, b"data")[14..]);
    let (_, frame) = rig(&fixed(&[("qfi", json!(9))])).run(&ipv4(0, b"data"));
    assert_eq!(frame[62..78], [0x34, 0xff, 0, 40, 1, 2, 3, 4, 0, 0, 0, 0x85, 1, 0, 9, 0]);
    let mut rig = rig(&fixed(&[("sequence", json!(true)), ("dscp", json!(46)), ("ttl", json!(9))]));
    for number in 0..3 {
        let inner = if number == 1 { tagged(&ipv4(3, b"data")) } else { ipv4(3, b"data") };
        let (_, frame) = rig.run(&inner);
        assert_eq!((frame[14], frame[15] & 0xf0, frame[21]), (0x6b, 0xb0, 9), "congestion is copied");
        assert_eq!(frame[62..74], [0x32, 0xff, 0, 36, 1, 2, 3, 4, 0, number, 0, 0]);
    }
}

#[test]
fn sessions_determine_flow_labels_and_ports() {
    let mut rig = rig(&fixed(&[]));
    let (mut labels, mut ports) = (HashSet::new(), HashSet::new());
    for port in 0..500u16 {
        let mut inner = ipv4(0, b"data");
        inner[34..36].copy_from_slice(&port.to_be_bytes());
        let (_, frame) = rig.run(&inner);
        assert!(label(&frame) > 0);
        // The slow path gives the same result.
        assert_eq!(rig.run(&tagged(&inner)).1, frame);
        labels.insert(label(&frame));
        ports.insert([frame[54], frame[55]]);
    }
    // 500 balls in a million bins, and in 16 384.
    assert!(labels.len() > 490 && ports.len() > 450, "{} labels, {} ports", labels.len(), ports.len());
}

#[test]
fn packets_go_to_the_peers_of_their_users() {
    let params = json!({ "source": "2001:db8::1", "peer": "2001:db8::10", "tunnels": [
        "10.60.0.1 0x1001", "10.60.0.2 0x1002 2001:db8::11", "2001:db8:60:1::/64 0x1003 2001:db8::11",
    ] });
    let mut rig = rig(&params);
    let mut second = ipv4(0, b"data");
    second[33] = 2;
    for (frame, peer, teid) in [(ipv4(0, b"data"), 0x10, 1), (second, 0x11, 2), (ipv6(0, b""), 0x11, 3)] {
        let (gate, after) = rig.run(&frame);
        assert_eq!((gate, after[53], after[69]), (Gate::FIRST, peer, teid));
    }
    let mut stranger = ipv4(0, b"data");
    stranger[33] = 9;
    assert_eq!(rig.run(&stranger).0, NO_TUNNEL);
}

#[test]
fn packets_that_cannot_be_sent_are_dropped() {
    let mut rig = rig(&fixed(&[("mtu", json!(1_280))]));
    // 56 bytes of outer headers, 28 of inner headers.
    assert_eq!(rig.run(&ipv4(0, &[7; 1_196])).0, Gate::FIRST);
    assert_eq!(rig.run(&ipv4(0, &[7; 1_197])).0, TOO_LONG);
    assert_eq!(rig.run(&tagged(&ipv4(0, &[7; 1_197]))).0, TOO_LONG);
    assert_eq!(rig.run(&[0xff; 60]).0, NOT_IP);
    assert_eq!(rig.run(&ipv4(0, b"data")[..40]).0, TRUNCATED);
    let mut batch = Batch::with_capacity(1);
    let mut frame = ipv4(0, b"data");
    batch.push(rig.packet(&frame)).expect("room");
    let room = batch[0].headroom();
    for depth in 0..=room / 56 {
        frame = batch[0].data().to_vec();
        let fits = depth < room / 56;
        let gate = rig.process(&mut batch)[0];
        assert_eq!(gate, Some(if fits { Gate::FIRST } else { NO_HEADROOM }), "{depth} tunnels in {room} bytes");
    }
    assert_eq!(batch[0].data(), frame, "a dropped packet is unchanged");
}

#[test]
fn wrong_parameters_are_named() {
    for (key, value, message) in [
        ("udp_checksum", json!(false), "the checksum is mandatory (RFC 8200 section 8.1): allowed is true"),
        ("df", json!(false), "routers do not fragment"),
        ("ttl", json!(0), "allowed are 1 to 255"),
        ("mtu", json!(1_279), "1279 is too small for IPv6: allowed are 1280"),
        ("peer", json!("192.0.2.10"), "'192.0.2.10' is an IPv4 address, but `source` is an IPv6 address"),
    ] {
        let error = Rig::of::<GtpuEncap>(&fixed(&[(key, value)])).err().unwrap_or_else(|| panic!("{key} is taken"));
        assert_eq!(error.faults[0].path, key, "{error}");
        assert!(error.to_string().contains(message), "{error}");
    }
    let tunnels = json!({ "source": "2001:db8::1", "tunnels": ["10.0.0.1 1 2001:db8::2", "10.0.0.2 2 192.0.2.1"] });
    let error = Rig::of::<GtpuEncap>(&tunnels).err().expect("a mixture").to_string();
    assert!(error.contains("tunnels[1]: '192.0.2.1' is an IPv4 address"), "{error}");
}

#[test]
fn tshark_reads_what_is_written() {
    let options = [fixed(&[]), fixed(&[("qfi", json!(9))]), fixed(&[("sequence", json!(true))])];
    let frames: Vec<_> = options
        .iter()
        .flat_map(|params| [ipv4(0xb8, b"data"), ipv6(0, &[1; 301])].map(|frame| rig(params).run(&frame).1))
        .collect();
    let fields = [
        "gtp.message",
        "gtp.teid",
        "gtp.ext_hdr.pdu_ses_con.qos_flow_id",
        "gtp.seq_number",
        "udp.checksum.status",
        "udp.dstport",
        "_ws.malformed",
    ];
    let Some(rows) = tshark(&frames, &fields) else { return };
    assert_eq!(rows.len(), 6);
    for (index, row) in rows.iter().enumerate() {
        let [kind, teid, qfi, sequence, udp, ports, malformed] = &row[..] else { panic!("{row:?}") };
        assert_eq!((kind.as_str(), teid.as_str(), malformed.as_str()), ("0xff", "0x01020304", ""), "{row:?}");
        assert_eq!(qfi, if index / 2 == 1 { "9" } else { "" }, "{row:?}");
        assert_eq!(sequence.is_empty(), index / 2 != 2, "{row:?}");
        assert_eq!((udp.as_str(), ports.as_str()), ("1,1", "2152,2000"), "both checksums are correct: {row:?}");
    }
}

proptest! {
    #[test]
    fn packets_equal_those_of_an_independent_encoder(
        v6: bool, class: u8, payload in prop::collection::vec(any::<u8>(), 0..200), tags in 0usize..3,
    ) {
        let inner = if v6 { ipv6(class, &payload) } else { ipv4(class, &payload) };
        let frame = (0..tags).fold(inner.clone(), |frame, _| tagged(&frame));
        let mut rig = rig(&fixed(&[]));
        let mut batch = Batch::with_capacity(1);
        batch.push(rig.packet(&frame)).expect("room");
        prop_assert_eq!(rig.process(&mut batch)[0], Some(Gate::FIRST));
        let packet = &mut batch[0];
        let after = packet.data().to_vec();
        let port = u16::from_be_bytes([after[54], after[55]]);
        prop_assert!(port >= 0xc000);
        let length = ((inner.len() - 14) as u16).to_be_bytes();
        let message = [&[0x30, 0xff, length[0], length[1], 1, 2, 3, 4], &inner[14..]].concat();
        prop_assert_eq!(&after, &outer_ipv6(class, label(&after), (port, 2_152), &message));
        // The known layers equal the layers that a search finds. The session is the session of the inner packet.
        let known = (packet.network(), packet.transport(), packet.session_hash());
        packet.forget_layers();
        prop_assert_eq!(known, (packet.network(), packet.transport(), packet.session_hash()));
        prop_assert_eq!(packet.session_hash(), rig.packet(&inner).session_hash());
    }
}

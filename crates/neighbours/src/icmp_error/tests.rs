//! Errors as the RFCs define them, and the packets that get none.

use etherparse::{Icmpv4Slice, Icmpv6Slice, Ipv4HeaderSlice, Ipv6HeaderSlice, PacketBuilder};
use forebay_graph::Rig;
use serde_json::json;

use super::*;
use crate::interface::testing::{OWN, OWN_V4, PEER, PEER_V4, SECOND, environment, ipv4, ipv6, v6};

const FAR: [u8; 4] = [203, 0, 113, 9];

fn rig(more: serde_json::Value) -> Rig {
    let mut params = json!({ "interfaces": ["lan"], "error": "time_exceeded" });
    params.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    Rig::within::<IcmpError>(&params, &mut environment().0).expect("parameters")
}

#[test]
fn an_ipv4_error_conforms_to_rfc_792() {
    let packet = ipv4(PEER_V4, FAR);
    let (gate, frame) = rig(json!({})).run(&packet);
    assert_eq!((gate, &frame[..14]), (Gate::FIRST, &[0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 8, 0][..]));
    let header = Ipv4HeaderSlice::from_slice(&frame[14..]).expect("a header");
    assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
    assert_eq!((header.source(), header.destination(), header.ttl()), (OWN_V4, PEER_V4, 64));
    assert_eq!(usize::from(header.total_len()), frame.len() - 14);
    let icmp = Icmpv4Slice::from_slice(&frame[34..]).expect("a message");
    assert_eq!((icmp.type_u8(), icmp.code_u8(), icmp.bytes5to8()), (11, 0, [0; 4]));
    assert_eq!(icmp.payload(), &packet[14..]);
    assert_eq!(icmp.checksum(), icmp.icmp_type().calc_checksum(icmp.payload()));
}

#[test]
fn an_ipv6_error_conforms_to_rfc_4443() {
    let packet = ipv6(v6(7), [0x20; 16]);
    let (gate, frame) = rig(json!({ "error": "too_big", "mtu": 1_400 })).run(&packet);
    assert_eq!((gate, &frame[6..14]), (Gate::FIRST, &[2, 0, 0, 0, 0, 1, 0x86, 0xdd][..]));
    let header = Ipv6HeaderSlice::from_slice(&frame[14..]).expect("a header");
    assert_eq!((header.source(), header.destination()), (v6(1), v6(7)));
    assert_eq!(usize::from(header.payload_length()), frame.len() - 54);
    let icmp = Icmpv6Slice::from_slice(&frame[54..]).expect("a message");
    assert_eq!((icmp.type_u8(), icmp.code_u8(), icmp.bytes5to8()), (2, 0, 1_400u32.to_be_bytes()));
    assert_eq!(icmp.payload(), &packet[14..]);
    assert!(icmp.is_checksum_valid(v6(1), v6(7)));
}

#[test]
fn types_and_codes() {
    for (error, v4, v6_code) in [
        ("time_exceeded", [11, 0], [3, 0]),
        ("reassembly_time_exceeded", [11, 1], [3, 1]),
        ("no_route", [3, 0], [1, 0]),
        ("host_unreachable", [3, 1], [1, 3]),
        ("port_unreachable", [3, 3], [1, 4]),
        ("prohibited", [3, 13], [1, 1]),
    ] {
        let mut rig = rig(json!({ "error": error }));
        assert_eq!(rig.run(&ipv4(PEER_V4, FAR)).1[34..36], v4, "{error}");
        assert_eq!(rig.run(&ipv6(v6(7), [0x20; 16])).1[54..56], v6_code, "{error}");
    }
    let (_, frame) = rig(json!({ "error": "too_big", "mtu": 700 })).run(&ipv4(PEER_V4, FAR));
    assert_eq!(frame[34..36], [3, 4]);
    assert_eq!(frame[38..42], 700u32.to_be_bytes());
    let (_, frame) = rig(json!({ "error": "too_big", "mtu": 700 })).run(&ipv6(v6(7), [0x20; 16]));
    assert_eq!(frame[58..62], 1_280u32.to_be_bytes(), "no IPv6 link has a smaller MTU");
}

#[test]
fn as_much_is_quoted_as_is_allowed() {
    for (length, most) in [(0, 576), (519, 576), (520, 576), (1_400, 576)] {
        let mut packet = Vec::new();
        let builder = PacketBuilder::ethernet2(PEER.0, OWN.0).ipv4(PEER_V4, FAR, 1).udp(1, 2);
        builder.write(&mut packet, &vec![7; length]).expect("memory");
        let padded = [&packet[..], &[0; 30]].concat();
        let (gate, frame) = rig(json!({})).run(&padded);
        assert_eq!((gate, frame.len() - 14), (Gate::FIRST, (packet.len() - 14 + 28).min(most)));
        let icmp = Icmpv4Slice::from_slice(&frame[34..]).expect("a message");
        assert_eq!(icmp.checksum(), icmp.icmp_type().calc_checksum(icmp.payload()));
        let mut packet = Vec::new();
        let builder = PacketBuilder::ethernet2(PEER.0, OWN.0).ipv6(v6(7), [0x20; 16], 1).udp(1, 2);
        builder.write(&mut packet, &vec![7; length]).expect("memory");
        let (_, frame) = rig(json!({})).run(&packet);
        assert_eq!(frame.len() - 14, (packet.len() - 14 + 48).min(1_280));
        let icmp = Icmpv6Slice::from_slice(&frame[54..]).expect("a message");
        assert!(icmp.is_checksum_valid(v6(1), v6(7)));
    }
}

#[test]
fn no_error_is_sent_about_some_packets() {
    let mut rig = rig(json!({}));
    let echo = |kind: u8| {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2(PEER.0, OWN.0).ipv4(PEER_V4, FAR, 1).icmpv4_raw(kind, 0, [0; 4]);
        builder.write(&mut frame, b"payload").expect("memory");
        frame
    };
    let echo6 = |kind: u8| {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2(PEER.0, OWN.0).ipv6(v6(7), [0x20; 16], 1).icmpv6_raw(kind, 0, [0; 4]);
        builder.write(&mut frame, b"payload").expect("memory");
        frame
    };
    for (kind, gate) in [
        (8, Gate::FIRST),
        (0, Gate::FIRST),
        (13, Gate::FIRST),
        (3, NO_ERROR),
        (4, NO_ERROR),
        (5, NO_ERROR),
        (11, NO_ERROR),
        (12, NO_ERROR),
    ] {
        assert_eq!(rig.run(&echo(kind)).0, gate, "ICMP {kind}");
    }
    for (kind, gate) in [
        (128, Gate::FIRST),
        (129, Gate::FIRST),
        (1, NO_ERROR),
        (2, NO_ERROR),
        (3, NO_ERROR),
        (99, NO_ERROR),
        (137, NO_ERROR),
    ] {
        assert_eq!(rig.run(&echo6(kind)).0, gate, "ICMPv6 {kind}");
    }
    let fragment = |offset: u16| {
        let mut frame = ipv4(PEER_V4, FAR);
        frame[20..22].copy_from_slice(&offset.to_be_bytes());
        frame[24..26].fill(0);
        let sum = forebay_packet::wire::checksum::sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&(!sum).to_ne_bytes());
        frame
    };
    let broadcast = |mut frame: Vec<u8>| {
        frame[..6].fill(0xff);
        frame
    };
    let mut wrong = ipv4(PEER_V4, FAR);
    wrong[24] ^= 1;
    let group6 = [0xff, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    for (frame, gate) in [
        (fragment(0x2000), Gate::FIRST),
        (fragment(0x2001), NO_ERROR),
        (fragment(1), NO_ERROR),
        (wrong, BAD_HEADER),
        (broadcast(ipv4(PEER_V4, FAR)), NO_ERROR),
        (broadcast(ipv6(v6(7), [0x20; 16])), NO_ERROR),
        (ipv4(PEER_V4, [224, 0, 0, 5]), NO_ERROR),
        (ipv4(PEER_V4, [192, 0, 2, 255]), NO_ERROR),
        (ipv4([0; 4], FAR), NO_ERROR),
        (ipv4([127, 0, 0, 1], FAR), NO_ERROR),
        (ipv4([192, 0, 2, 255], FAR), NO_ERROR),
        (ipv4([240, 0, 0, 1], FAR), NO_ERROR),
        (ipv4(OWN_V4, FAR), NO_ERROR),
        (ipv6([0; 16], [0x20; 16]), NO_ERROR),
        (ipv6(group6, [0x20; 16]), NO_ERROR),
        (ipv6(v6(7), group6), NO_ERROR),
        (vec![3; 60], NOT_IP),
    ] {
        assert_eq!(rig.run(&frame).0, gate, "{frame:02x?}");
    }
    // RFC 4443 section 2.4 e has no exception for later fragments.
    let part = |protocol: u8, offset: u16| {
        let header = [protocol, 0, (offset >> 5) as u8, (offset << 3) as u8, 0, 0, 0, 9];
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2(PEER.0, OWN.0).ipv6(v6(7), [0x20; 16], 9);
        builder.write(&mut frame, 44.into(), &[&header[..], &[1; 24]].concat()).expect("memory");
        frame
    };
    for (protocol, offset, gate) in
        [(17, 0, Gate::FIRST), (17, 1, Gate::FIRST), (6, 176, Gate::FIRST), (58, 176, Gate::FIRST), (58, 0, NO_ERROR)]
    {
        for error in [json!({}), json!({ "error": "too_big", "mtu": 1_400 })] {
            let mut rig = self::rig(error);
            let frame = part(protocol, offset);
            let (got, error) = rig.run(&frame);
            assert_eq!(got, gate, "protocol {protocol} at {offset}");
            assert!(gate != Gate::FIRST || error[62..] == frame[14..]);
        }
    }
    // Headers that are cut off may be headers of an error.
    let mut cut = part(0, 0);
    cut.truncate(60);
    assert_eq!(rig.run(&cut).0, NO_ERROR);
    let mut too_big = self::rig(json!({ "error": "too_big", "mtu": 1_400 }));
    assert_eq!(too_big.run(&ipv6(v6(7), group6)).0, Gate::FIRST, "path MTU discovery works for groups");
}

/// Regression: for an ICMP packet without a message, the message type was read from the Ethernet padding.
#[test]
fn padding_after_a_packet_is_not_a_message() {
    let mut rig = rig(json!({ "errors_per_second": 1000 }));
    for (length, gate) in [(0u16, NO_ERROR), (3, NO_ERROR), (4, Gate::FIRST), (15, Gate::FIRST)] {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2(PEER.0, OWN.0).ipv4(PEER_V4, FAR, 1).icmpv4_raw(8, 0, [0; 4]);
        builder.write(&mut frame, b"payload").expect("memory");
        frame[16..18].copy_from_slice(&(20 + length).to_be_bytes());
        frame[24..26].fill(0);
        let sum = forebay_packet::wire::checksum::sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&(!sum).to_ne_bytes());
        assert_eq!(rig.run(&frame).0, gate, "ICMP of {length} bytes");
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2(PEER.0, OWN.0).ipv6(v6(7), [0x20; 16], 1).icmpv6_raw(128, 0, [0; 4]);
        builder.write(&mut frame, b"payload").expect("memory");
        frame[18..20].copy_from_slice(&length.to_be_bytes());
        assert_eq!(rig.run(&frame).0, gate, "ICMPv6 of {length} bytes");
    }
}

/// RFC 4443 section 2.4 e.6: a source that does not identify a single node gets no error; RFC 4291 sections 2.5.3 and
/// 2.5.5.
#[test]
fn sources_that_stand_for_ipv4_or_loopback_get_no_error() {
    let mut rig = rig(json!({}));
    for (source, gate) in [
        ("::", NO_ERROR),
        ("::1", NO_ERROR),
        ("::2", NO_ERROR),
        ("::10.0.0.1", NO_ERROR),
        ("::ffff:10.0.0.1", NO_ERROR),
        ("ff02::1", NO_ERROR),
        ("::ffff:0:10.0.0.1", Gate::FIRST),
        ("64:ff9b::10.0.0.1", Gate::FIRST),
    ] {
        let address: std::net::Ipv6Addr = source.parse().expect("an address");
        assert_eq!(rig.run(&ipv6(address.octets(), [0x20; 16])).0, gate, "{source}");
    }
}

#[test]
fn errors_are_limited_and_come_from_the_interface_of_the_packet() {
    let mut limited = rig(json!({ "errors_per_second": 2 }));
    let gates: Vec<_> = (0..3).map(|_| limited.run(&ipv4(PEER_V4, FAR)).0).collect();
    assert_eq!(gates, [Gate::FIRST, Gate::FIRST, LIMITED]);
    limited.now = Ticks(SECOND);
    assert_eq!(limited.run(&ipv4(PEER_V4, FAR)).0, Gate::FIRST);
    assert_eq!(limited.counters("errors")["IPv4"], 3);

    let (mut environment, _) = environment();
    let params = json!({ "mac": "02:00:00:00:00:02", "addresses": ["198.51.100.1/24"], "number": 4 });
    let params = serde_json::from_value(params).expect("parameters");
    let wan = <Interface as forebay_graph::DeclareState>::new(params, &mut Setup::new("wan", &mut environment));
    environment.objects.states.insert("wan".to_owned(), Arc::new(wan.expect("parameters")));
    let params = json!({ "interfaces": ["lan", "wan"], "error": "time_exceeded" });
    let mut rig = Rig::within::<IcmpError>(&params, &mut environment).expect("parameters");
    let word = environment.words[WORD];
    let mut from = |number: u32, frame: &[u8]| {
        let mut batch = forebay_packet::Batch::with_capacity(1);
        let mut packet = rig.packet(frame);
        packet.set_word(word, number);
        batch.push(packet).expect("room");
        assert_eq!(rig.process(&mut batch), [Some(Gate::FIRST)]);
        batch[0].data().to_vec()
    };
    assert_eq!(from(4, &ipv4(FAR, [9; 4]))[26..30], [198, 51, 100, 1]);
    assert_eq!(from(3, &ipv4(FAR, [9; 4]))[26..30], OWN_V4);
    assert_eq!(from(99, &ipv4(FAR, [9; 4]))[26..30], OWN_V4, "the first interface");
    assert_eq!(from(4, &ipv6([0x20; 16], [0x30; 16]))[22..38], v6(1), "the other interface has no IPv6 address");
}

#[test]
fn faults_name_the_parameter_the_value_and_the_allowed_ones() {
    for (more, error) in [
        (json!({ "interfaces": [] }), "interfaces: 0 interfaces: allowed are 1 to 64"),
        (json!({ "interfaces": ["x"] }), "interfaces[0]: no state is called 'x'"),
        (
            json!({ "interfaces": ["lan", "lan"] }),
            "interfaces[1]: 'lan' and 'lan' both have the number 3: give each interface its own number",
        ),
        (json!({ "error": "too_big" }), "mtu: missing: set the maximum length of packets for `error: too_big`"),
        (json!({ "error": "too_big", "mtu": 9 }), "mtu: 9: allowed are 68 to 65535 bytes"),
        (json!({ "mtu": 1500 }), "mtu: 1500 is for `error: too_big` only: leave out `mtu`"),
    ] {
        let mut params = json!({ "interfaces": ["lan"], "error": "time_exceeded" });
        params.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        let message = Rig::within::<IcmpError>(&params, &mut environment().0).err().expect("refused").to_string();
        assert!(message.starts_with(error), "{message}");
    }
}

use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use forebay_graph::Rig;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn udp4(destination: [u8; 4], port: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], destination, 64).udp(9, port);
    builder.write(&mut frame, b"payload").expect("memory");
    frame
}

fn tcp6(destination: [u8; 16], port: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([7; 16], destination, 64).tcp(9, port, 1, 2);
    builder.write(&mut frame, b"").expect("memory");
    frame
}

fn tagged(frame: &[u8], control: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0x00], &control.to_be_bytes(), &frame[12..]].concat()
}

/// Returns whether a frame matches one rule that leads to gate 0; a miss leads to gate 1.
fn matches(fields: Value, values: Value, frame: &[u8]) -> bool {
    let params = json!({ "fields": fields, "rules": [{ "values": values, "gate": 0 }], "miss": 1 });
    let mut rig = Rig::of::<ExactMatch>(&params).expect("parameters");
    let (gate, after) = rig.run(frame);
    assert_eq!(after, frame, "the frame is not changed");
    assert!(gate == Gate::out(0) || gate == Gate::out(1) || gate == UNDECIDABLE);
    gate == Gate::out(0)
}

fn refusal(params: Value) -> String {
    Rig::of::<ExactMatch>(&params).err().expect("refused").to_string()
}

#[test]
fn named_fields_have_the_right_offsets() {
    let v4 = udp4([192, 0, 2, 1], 53);
    for (field, value) in [
        ("ether.dst", json!("04:04:04:04:04:04")),
        ("ether.src", json!("02:02:02:02:02:02")),
        ("ether.type", json!("0x0800")),
        ("ipv4.dscp", json!(0)),
        ("ipv4.ecn", json!(0)),
        ("ipv4.length", json!(35)),
        ("ipv4.id", json!(0)),
        ("ipv4.flags", json!(2)),
        ("ipv4.offset", json!(0)),
        ("ipv4.ttl", json!(64)),
        ("ipv4.proto", json!(17)),
        ("ipv4.src", json!("10.0.0.1")),
        ("ipv4.dst", json!("192.0.2.1")),
        ("udp.sport", json!(9)),
        ("udp.dport", json!(53)),
        ("udp.length", json!(15)),
    ] {
        assert!(matches(json!([field]), json!([value]), &v4), "{field}");
        let behind_a_tag = if field == "ether.type" { json!(0x8100) } else { value };
        assert!(matches(json!([field]), json!([behind_a_tag]), &tagged(&v4, 0xa123)), "{field} behind a tag");
    }
    let v6 = tcp6([8; 16], 443);
    let all_eights = "808:808:808:808:808:808:808:808";
    for (field, value) in [
        ("ipv6.dscp", json!(0)),
        ("ipv6.label", json!(0)),
        ("ipv6.length", json!(20)),
        ("ipv6.next", json!(6)),
        ("ipv6.hops", json!(64)),
        ("ipv6.src", json!("707:707:707:707:707:707:707:707")),
        ("ipv6.dst", json!(all_eights)),
        ("tcp.sport", json!(9)),
        ("tcp.dport", json!("0x1bb")),
        ("tcp.flags", json!(0)),
    ] {
        assert!(matches(json!([field]), json!([value]), &v6), "{field}");
    }
    assert!(matches(json!(["vlan.id", "vlan.priority", "vlan.type"]), json!([0x123, 5, 0x0800]), &tagged(&v4, 0xa123)));
    assert!(matches(json!(["ipv6.dst", "ether.type", "tcp.dport"]), json!([all_eights, 0x86dd, 443]), &v6));
    let mut icmp = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4([1; 4], [2; 4], 9)
        .icmpv4_echo_request(1, 2)
        .write(&mut icmp, b"")
        .expect("memory");
    assert!(matches(json!(["icmp.type", "icmp.code"]), json!([8, 0]), &icmp));
    let mut icmp = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv6([1; 16], [2; 16], 9)
        .icmpv6_echo_reply(1, 2)
        .write(&mut icmp, b"")
        .expect("memory");
    assert!(matches(json!(["icmpv6.type", "icmpv6.code"]), json!([129, 0]), &icmp));
}

#[test]
fn other_values_and_missing_fields_are_misses() {
    let v4 = udp4([192, 0, 2, 1], 53);
    assert!(!matches(json!(["udp.dport"]), json!([54]), &v4));
    assert!(!matches(json!(["ipv4.dst", "udp.dport"]), json!(["192.0.2.1", 54]), &v4));
    for field in ["tcp.dport", "ipv6.hops", "vlan.id", "icmp.type"] {
        assert!(!matches(json!([field]), json!([0]), &v4), "{field}");
    }
    assert!(!matches(json!(["tcp.dport"]), json!([53]), &v4), "the port belongs to another protocol");
    for cut in 0..38 {
        assert!(!matches(json!(["udp.dport"]), json!([53]), &v4[..cut]), "{cut} bytes");
    }
    assert!(matches(json!(["udp.dport"]), json!([53]), &v4[..38]));
    let mut fragment = v4.clone();
    fragment[21] = 1;
    assert!(!matches(json!(["udp.dport"]), json!([53]), &fragment), "a later fragment");
    assert!(matches(json!(["ipv4.offset"]), json!([1]), &fragment));
}

/// Regression: ports, flags and types were read from the Ethernet padding after a packet that ends before them.
#[test]
fn padding_behind_a_packet_has_no_field() {
    let mut icmp = Vec::new();
    let builder =
        PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).icmpv4_raw(8, 0, [0; 4]);
    builder.write(&mut icmp, b"payload").expect("memory");
    let cases = [
        ("udp.dport", 53, udp4([192, 0, 2, 1], 53), 4),
        ("udp.sport", 9, udp4([192, 0, 2, 1], 53), 2),
        ("tcp.dport", 80, tcp6([9; 16], 80), 4),
        ("tcp.flags", 0, tcp6([9; 16], 80), 14),
        ("icmp.type", 8, icmp, 1),
    ];
    for (field, value, frame, least) in cases {
        let params = json!({ "fields": [field], "rules": [{ "values": [value], "gate": 0 }], "miss": 1 });
        let mut rig = Rig::of::<ExactMatch>(&params).expect("parameters");
        let (at, header) = if frame[12] == 8 { (16, 20) } else { (18, 0) };
        for tags in 0..=4 {
            for above in 0..20 {
                let mut padded = frame.clone();
                padded[at..at + 2].copy_from_slice(&u16::to_be_bytes(header + above));
                (0..tags).for_each(|_| padded = tagged(&padded, 5));
                let gate = if above < least { UNDECIDABLE } else { Gate::out(0) };
                assert_eq!(rig.run(&padded).0, gate, "{field}: {above} bytes above IP, {tags} tags");
            }
        }
    }
    // An IPv4 total length of 0 means that the packet ends with its frame.
    let mut unset = udp4([192, 0, 2, 1], 53);
    unset[16..18].fill(0);
    assert!(matches(json!(["udp.dport"]), json!([53]), &unset));
    // A field of the frame may lie in its padding.
    let mut padded = udp4([192, 0, 2, 1], 53);
    padded[16..18].copy_from_slice(&[0, 20]);
    assert!(matches(json!([{ "raw": { "offset": 36, "length": 2 } }]), json!([53]), &padded));
}

#[test]
fn raw_bytes_are_masked() {
    let frame: Vec<u8> = (0..64).collect();
    let raw =
        |offset: u32, length: u32, mask: &str| json!([{ "raw": { "offset": offset, "length": length, "mask": mask } }]);
    assert!(matches(raw(10, 2, "0x0fff"), json!([0x0a0b]), &frame));
    assert!(matches(raw(10, 2, "0x00f0"), json!([0]), &frame));
    assert!(matches(
        raw(16, 16, "0xff00000000000000000000000000000f"),
        json!(["0x1000000000000000000000000000000f"]),
        &frame
    ));
    assert!(matches(json!([{ "raw": { "offset": 61, "length": 3 } }]), json!([0x3d_3e_3f]), &frame), "up to the end");
    assert!(!matches(json!([{ "raw": { "offset": 62, "length": 3 } }]), json!([0x3e_3f_00]), &frame), "beyond the end");
    assert!(!matches(json!([{ "raw": { "offset": 65_535, "length": 16 } }]), json!([0]), &frame));
}

#[test]
fn faults_are_named() {
    let one = |fields: Value, rule: Value| json!({ "fields": fields, "rules": [rule] });
    let rule = |values, gate: u32| one(json!(["ipv4.dst", "vlan.id"]), json!({ "values": values, "gate": gate }));
    let fields = |fields: Value| refusal(json!({ "fields": fields, "rules": [] }));
    for (error, message) in [
        (fields(json!(["ipv4.dest"])), "fields[0]: 'ipv4.dest' is not a field: allowed are ether.dst,"),
        (fields(json!([])), "fields: 0 fields take 0 words of 8 bytes: allowed are 1 to 8 words"),
        (fields(json!(["ipv6.src", "ipv6.dst", "ipv6.src", "ipv6.dst", "ipv6.hops"])), "fields: 5 fields take 9 words"),
        (fields(json!([{ "raw": { "offset": 1, "length": 17 } }])), "the length is 17 bytes: allowed are 1 to 16"),
        (fields(json!([{ "raw": { "offset": 1, "length": 1, "mask": 256 } }])), "256 is not a mask of 1 byte:"),
        (fields(json!([{ "raw": { "offset": 1, "length": 1, "mask": 0 } }])), "0 is not a mask of 1 byte:"),
        (fields(json!([{ "raw": { "offset": 1, "length": 1, "base": 1 } }])), "unknown field `base`"),
        (refusal(rule(json!(["10.0.0.1"]), 0)), "rules[0].values: 1 value for 2 fields"),
        (
            refusal(rule(json!(["10.0.0", 1]), 0)),
            "rules[0].values[0]: \"10.0.0\" is not a value of ipv4.dst: allowed is an address such as 192.0.2.1",
        ),
        (
            refusal(rule(json!(["10.0.0.1", 4096]), 0)),
            "rules[0].values[1]: 4096 cannot be a value of vlan.id: it has bits outside the field's mask 0xfff",
        ),
        (
            refusal(rule(json!(["10.0.0.1", -1]), 0)),
            "rules[0].values[1]: -1 is not a value of vlan.id: allowed is a number",
        ),
        (refusal(rule(json!(["10.0.0.1", 1]), 16_384)), "rules[0].gate: gate 16384: allowed are 0 to 16383"),
        (
            refusal(json!({
                "fields": ["tcp.dport"],
                "rules": [{ "values": [80], "gate": 0 }, { "values": ["0x50"], "gate": 1 }],
            })),
            "rules[1]: an earlier rule has the same values",
        ),
    ] {
        assert!(error.contains(message), "{error}\nshould contain\n{message}");
    }
}

#[test]
fn gates_are_as_many_as_mentioned_and_a_miss_is_dropped_by_default() {
    let params = json!({ "fields": ["udp.dport"], "rules": [{ "values": [53], "gate": 2 }] });
    let mut rig = Rig::of::<ExactMatch>(&params).expect("parameters");
    assert_eq!(rig.declared.gates, ["0", "1", "2"]);
    assert_eq!(rig.run(&udp4([1; 4], 53)).0, Gate::out(2));
    assert_eq!(rig.run(&udp4([1; 4], 54)).0, NO_MATCH);
}

proptest! {
    #[test]
    fn it_agrees_with_etherparse_and_a_scan(
        rules in prop::collection::btree_map((0u8..4, 0u16..8), 0u16..5, 0..24),
        host in 0u8..4,
        port in 0u16..8,
        tag: bool,
    ) {
        let rule = |((host, port), gate): (&(u8, u16), &u16)| {
            json!({ "values": [format!("10.0.0.{host}"), port], "gate": gate })
        };
        let listed: Vec<_> = rules.iter().map(rule).collect();
        let params = json!({ "fields": ["ipv4.dst", "udp.dport"], "rules": listed, "miss": 5 });
        let mut rig = Rig::of::<ExactMatch>(&params).expect("parameters");
        let mut frame = udp4([10, 0, 0, host], port);
        if tag {
            frame = tagged(&frame, 7);
        }
        let parsed = SlicedPacket::from_ethernet(&frame).expect("well-formed");
        let (Some(NetSlice::Ipv4(network)), Some(TransportSlice::Udp(transport))) = (parsed.net, parsed.transport)
        else { panic!("UDP over IPv4") };
        let key = (network.header().destination_addr().octets()[3], transport.destination_port());
        prop_assert_eq!(rig.run(&frame).0, Gate::out(rules.get(&key).copied().unwrap_or(5)));
    }
}

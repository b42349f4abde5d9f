//! The list in a module: the packets and fields that it reads, its counters, and many lists folded into one.

use etherparse::PacketBuilder;
use forebay_graph::Rig;
use forebay_packet::Batch;
use forebay_tables::acl::{Hits, oracle, synthetic};
use forebay_tables::rule_list::Needs;
use proptest::prelude::*;
use serde_json::json;

use super::*;

const RULES: [&str; 5] = [
    "@10.0.0.0/8 0.0.0.0/0 0 : 65535 53 : 53 0x11/0xff count",
    "@10.0.0.0/8 0.0.0.0/0 0 : 65535 22 : 22 0x06/0xff deny",
    "@10.1.0.0/16 192.0.2.0/24 0 : 65535 0 : 65535 0/0 deny",
    "@10.0.0.0/8 0.0.0.0/0 0 : 65535 0 : 65535 0/0 permit",
    "@2001:db8::/32 ::/0 0 : 65535 443 : 443 0x06/0xff deny",
];

fn tcp4(source: [u8; 4], destination: [u8; 4], port: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(source, destination, 64).tcp(1024, port, 0, 0);
    builder.write(&mut frame, b"payload").expect("memory");
    frame
}

fn udp4(source: [u8; 4], destination: [u8; 4], port: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(source, destination, 64).udp(1024, port);
    builder.write(&mut frame, b"payload").expect("memory");
    frame
}

fn tcp6(source: u8, port: u16) -> Vec<u8> {
    let mut address = [0; 16];
    address[..5].copy_from_slice(&[0x20, 1, 0x0d, 0xb8, source]);
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv6(address, [9; 16], 64)
        .tcp(1, port, 0, 0)
        .write(&mut frame, b"x")
        .expect("memory");
    frame
}

#[test]
fn rules_decide_in_order_and_are_counted() {
    let mut rig = Rig::of::<Acl>(&json!({ "rules": RULES, "default": "deny" })).expect("parameters");
    let cases = [
        (tcp4([10, 0, 0, 1], [8, 8, 8, 8], 22), DENIED),
        (tcp4([10, 0, 0, 1], [8, 8, 8, 8], 80), Gate::FIRST),
        (tcp4([10, 1, 0, 1], [192, 0, 2, 7], 80), DENIED),
        (udp4([10, 1, 0, 1], [8, 8, 8, 8], 53), Gate::FIRST),
        (tcp4([11, 0, 0, 1], [8, 8, 8, 8], 80), DENIED),
        (tcp6(1, 443), DENIED),
        (tcp6(1, 80), DENIED),
    ];
    for (frame, gate) in &cases {
        let (decided, after) = rig.run(frame);
        assert_eq!((decided, &after), (*gate, frame));
    }
    assert_eq!(rig.counters("rules, IPv4").values().copied().collect::<Vec<_>>(), [1, 1, 1, 2]);
    assert_eq!(rig.counters("rules, IPv6").values().copied().collect::<Vec<_>>(), [1]);
}

#[test]
fn a_fragment_that_shows_no_ports_matches_no_rule_about_ports() {
    let mut rig = Rig::of::<Acl>(&json!({ "rules": [RULES[1]] })).expect("parameters");
    let mut frame = tcp4([10, 0, 0, 1], [8, 8, 8, 8], 22);
    assert_eq!(rig.run(&frame).0, DENIED);
    frame[20..22].copy_from_slice(&[0x00, 0x10]);
    assert_eq!(rig.run(&frame).0, Gate::FIRST, "the bytes at the offset of the ports are payload");
}

fn ping(kind: u8, code: u8, ipv6: bool) -> Vec<u8> {
    use etherparse::{Icmpv4Type, Icmpv6Type};
    let (mut frame, start) = (Vec::new(), PacketBuilder::ethernet2([2; 6], [4; 6]));
    let wrote = if ipv6 {
        let kind = Icmpv6Type::Unknown { type_u8: kind, code_u8: code, bytes5to8: [0; 4] };
        start.ipv6([0x20; 16], [9; 16], 64).icmpv6(kind).write(&mut frame, b"data")
    } else {
        let kind = Icmpv4Type::Unknown { type_u8: kind, code_u8: code, bytes5to8: [0; 4] };
        start.ipv4([10, 0, 0, 1], [8, 8, 8, 8], 64).icmpv4(kind).write(&mut frame, b"data")
    };
    wrote.expect("memory");
    frame
}

#[test]
fn types_of_icmp_are_distinguished_and_are_not_ports() {
    let rules = [
        "permit icmp type echo-request, unreachable code 0-3 from any to any",
        "permit icmp6 type packet-too-big from any to any",
        "count any from any port 0-300 to any",
        "deny icmp, icmp6 from any to any",
    ];
    let mut rig = Rig::of::<Acl>(&json!({ "rules": rules, "default": "permit" })).expect("parameters");
    for (frame, gate) in [
        (ping(8, 0, false), Gate::FIRST),
        (ping(8, 4, false), DENIED),
        (ping(3, 3, false), Gate::FIRST),
        (ping(0, 0, false), DENIED),
        (ping(2, 0, true), Gate::FIRST),
        (ping(8, 0, true), DENIED),
        (tcp4([10, 0, 0, 1], [8, 8, 8, 8], 22), Gate::FIRST),
    ] {
        assert_eq!(rig.run(&frame).0, gate, "{:02x?}", &frame[14..]);
    }
    let counted: Vec<u64> = rig.counters("rules, IPv4").values().copied().collect();
    assert_eq!(counted[2], 0, "a rule about ports matches no ICMP message");
    // A packet that ends before its ICMP type is dropped, because it might match a rule.
    let mut cut = ping(8, 0, false);
    cut[16..18].copy_from_slice(&21u16.to_be_bytes());
    assert_eq!(rig.run(&cut).0, UNDECIDABLE);
    // A later fragment shows no type.
    let mut later = ping(8, 0, false);
    later[20..22].copy_from_slice(&[0x00, 0x10]);
    assert_eq!(rig.run(&later).0, DENIED);
    let mut plain =
        Rig::of::<Acl>(&json!({ "rules": ["permit tcp from any to any"], "default": "deny" })).expect("rules");
    assert_eq!((plain.run(&ping(8, 0, false)).0, plain.run(&cut).0), (DENIED, DENIED));
}

#[test]
fn a_rule_instead_of_a_file_name_is_refused_with_the_line_to_write() {
    let refused = |rules: &str| {
        let error = Rig::of::<Acl>(&json!({ "rules": rules })).map(|_| ()).expect_err("no file");
        error.to_string()
    };
    let rule = "permit tcp from any to any port 80";
    assert!(refused(rule).contains(&format!("write rules: ['{rule}']")), "{}", refused(rule));
    assert!(refused(RULES[1]).contains("write rules: ['@10.0.0.0/8"), "{}", refused(RULES[1]));
    assert!(refused("permit").contains("No such file"), "{}", refused("permit"));
}

#[test]
fn frames_that_are_not_ip_are_treated_as_configured() {
    let arp = [[0xff; 12].as_slice(), &[0x08, 0x06], &[0; 46]].concat();
    for (other, gate) in [("permit", Gate::FIRST), ("deny", NOT_IP)] {
        let mut rig =
            Rig::of::<Acl>(&json!({ "rules": RULES, "default": "deny", "other": other })).expect("parameters");
        assert_eq!(rig.run(&arp).0, gate);
        assert_eq!(rig.run(&[]).0, gate);
    }
}

#[test]
fn wrong_rules_are_all_named() {
    let error = Rig::of::<Acl>(
        &json!({ "rules": ["@10.0.0.0/8 nonsense", RULES[0], "@1.2.3.4/33 0.0.0.0/0 0 : 1 0 : 1 0/0"] }),
    );
    let text = error.err().expect("refused").to_string();
    assert!(text.contains("rules") && text.contains("nonsense") && text.contains("1.2.3.4/33"), "{text}");
    let missing = Rig::of::<Acl>(&json!({ "rules": "no/such.rules" })).err().expect("refused").to_string();
    assert!(missing.contains("no/such.rules"), "{missing}");
    assert!(Rig::of::<Acl>(&json!({ "rules": { "synthetic": 0 } })).is_err());
    assert!(Rig::of::<Acl>(&json!({ "rules": RULES, "defualt": "deny" })).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn batches_of_packets_get_the_verdicts_of_a_linear_scan(seed: u64, size in 1..=MAX_BATCH) {
        let rules = synthetic::rules::<u32>(50, seed);
        let mut rig = Rig::of::<Acl>(&json!({ "rules": { "synthetic": 50, "seed": seed } })).expect("parameters");
        let keys = synthetic::keys(&rules, size, 0.7, seed);
        let mut batch = Batch::with_capacity(size);
        for key in &keys {
            let (source, destination) = (key.src().to_be_bytes(), key.dst().to_be_bytes());
            let port = key.ports().map_or(7, |(_, port)| port);
            batch.push(rig.packet(&tcp4(source, destination, port))).expect("room");
        }
        let gates = rig.process(&mut batch);
        for (packet, gate) in batch.iter_mut().zip(gates) {
            let key = key4(packet, Needs::default()).expect("IPv4");
            let verdict = oracle::classify(&rules, Decision::Permit, &key, &mut Hits::new(rules.len()));
            prop_assert_eq!(gate, Some(if verdict.denies() { DENIED } else { Gate::FIRST }));
        }
    }

    #[test]
    fn folded_lists_do_what_each_does_alone(seed: u64, branches in proptest::collection::vec(0..6u32, 1..64)) {
        let params: Vec<_> = (0..4u64).map(|n| json!({ "rules": { "synthetic": 20, "seed": n } })).collect();
        let mut folded = Rig::folded::<Acl>(&params).expect("parameters");
        let all: Vec<_> = (0..4).flat_map(|n| synthetic::rules::<u32>(20, n)).collect();
        let keys = synthetic::keys(&all, branches.len(), 0.8, seed);
        let mut batch = Batch::with_capacity(64);
        for (key, branch) in keys.iter().zip(&branches) {
            let ports = key.ports().map_or(7, |(_, port)| port);
            let mut packet = folded.packet(&udp4(key.src().to_be_bytes(), key.dst().to_be_bytes(), ports));
            packet.set_flow(*branch);
            batch.push(packet).expect("room");
        }
        let gates = folded.process(&mut batch);
        let mut alone: Vec<_> = params.iter().map(|params| Rig::of::<Acl>(params).expect("parameters")).collect();
        for (index, branch) in branches.iter().enumerate() {
            // A packet of no known branch is treated as one of the first branch.
            let branch = if *branch < 4 { *branch as usize } else { 0 };
            prop_assert_eq!(gates[index], Some(alone[branch].run(batch[index].data()).0));
        }
    }
}

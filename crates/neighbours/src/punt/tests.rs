//! Packets that go to the host and packets that do not.

use etherparse::{ArpOperation, ArpPacket, EtherType as Type, Icmpv6Type, PacketBuilder, VlanId};
use forebay_graph::Rig;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn rig(more: &Value) -> Rig {
    let mut params = json!({ "addresses": ["192.0.2.1", "2001:db8::12:3456", "fe80::1"] });
    params.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    Rig::of::<Punt>(&params).expect("parameters")
}

fn udp(to: [u8; 4], ttl: u8) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], to, ttl).udp(1, 2);
    builder.write(&mut frame, b"abc").expect("memory");
    frame
}

fn icmp6(to: &str, limit: u8, kind: u8) -> Vec<u8> {
    let to: Ipv6Addr = to.parse().expect("an address");
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv6([1; 16], to.octets(), limit)
        .icmpv6(Icmpv6Type::Unknown { type_u8: kind, code_u8: 0, bytes5to8: [0; 4] })
        .write(&mut frame, &[0; 16])
        .expect("memory");
    frame
}

fn arp(operation: ArpOperation, target: [u8; 4], tagged: bool) -> Vec<u8> {
    let packet = ArpPacket::new(
        etherparse::ArpHardwareId::ETHERNET,
        Type::IPV4,
        operation,
        &[2; 6],
        &[192, 0, 2, 9],
        &[0; 6],
        &target,
    )
    .expect("sizes fit");
    let (mut frame, ethernet) = (Vec::new(), PacketBuilder::ethernet2([2; 6], [0xff; 6]));
    if tagged {
        let id = VlanId::try_new(7).expect("an identifier");
        ethernet.single_vlan(id).arp(packet).write(&mut frame).expect("memory");
    } else {
        ethernet.arp(packet).write(&mut frame).expect("memory");
    }
    frame
}

#[track_caller]
fn goes(rig: &mut Rig, frame: &[u8], host: bool) {
    let (gate, after) = rig.run(frame);
    assert_eq!((gate, after.as_slice()), (if host { HOST } else { TRANSIT }, frame));
}

#[test]
fn packets_to_own_addresses_are_the_hosts() {
    let mut rig = rig(&json!({}));
    assert_eq!(rig.declared.gates, ["0", "host"]);
    goes(&mut rig, &udp([192, 0, 2, 1], 64), true);
    goes(&mut rig, &udp([192, 0, 2, 1], 1), true);
    goes(&mut rig, &udp([192, 0, 2, 2], 64), false);
    goes(&mut rig, &icmp6("2001:db8::12:3456", 64, 128), true);
    goes(&mut rig, &icmp6("2001:db8::1", 64, 128), false);
    goes(&mut rig, &[0xff; 60], false);
    goes(&mut rig, &[], false);
}

#[test]
fn arp_requests_and_replies_for_own_addresses_go_to_the_host() {
    for tagged in [false, true] {
        let (request, reply) = (ArpOperation::REQUEST, ArpOperation::REPLY);
        for (operation, target, host) in
            [(request, [192, 0, 2, 1], true), (reply, [192, 0, 2, 1], true), (request, [192, 0, 2, 9], false)]
        {
            goes(&mut rig(&json!({})), &arp(operation, target, tagged), host);
            goes(&mut rig(&json!({ "arp": false })), &arp(operation, target, tagged), false);
        }
    }
    let mut short = arp(ArpOperation::REQUEST, [192, 0, 2, 1], false);
    short.truncate(41);
    goes(&mut rig(&json!({})), &short, false);
}

#[test]
fn discovery_for_own_addresses_goes_to_the_host() {
    let (on, off) = (&mut rig(&json!({})), &mut rig(&json!({ "neighbours": false })));
    for (to, limit, kind, host) in [
        ("ff02::1:ff12:3456", 255, 135, true),
        ("ff02::1:ff00:1", 255, 135, true),
        ("ff02::1:ff12:3457", 255, 135, false),
        // A message that has passed a router is forged.
        ("ff02::1:ff12:3456", 254, 135, false),
        ("ff02::1", 255, 134, true),
        ("ff02::2", 255, 133, true),
        ("ff02::1", 255, 128, false),
        ("ff02::5", 1, 135, false),
    ] {
        goes(on, &icmp6(to, limit, kind), host);
        goes(off, &icmp6(to, limit, kind), false);
    }
}

/// Regression: for an ICMPv6 packet without a message, the message type was read from the Ethernet padding.
#[test]
fn padding_after_a_packet_is_not_discovery() {
    let whole = icmp6("ff02::1:ff12:3456", 255, 135);
    for (length, host) in [(0, false), (1, true), (24, true)] {
        let mut frame = whole.clone();
        frame[18..20].copy_from_slice(&u16::to_be_bytes(length));
        goes(&mut rig(&json!({})), &frame, host);
    }
    // An extension header ends the packet.
    let mut frame = [&whole[..54], &[58, 0, 1, 4, 0, 0, 0, 0], &whole[54..]].concat();
    frame[20] = 60;
    for (length, host) in [(8, false), (9, true)] {
        frame[18..20].copy_from_slice(&u16::to_be_bytes(length));
        goes(&mut rig(&json!({})), &frame, host);
    }
}

#[test]
fn multicast_and_expired_packets_go_to_the_host_if_configured() {
    let mut multicast = rig(&json!({ "multicast": true }));
    goes(&mut multicast, &udp([224, 0, 0, 5], 1), true);
    goes(&mut multicast, &udp([224, 0, 1, 5], 1), false);
    goes(&mut multicast, &icmp6("ff02::5", 1, 200), true);
    goes(&mut multicast, &icmp6("ff05::5", 1, 200), false);
    let mut expired = rig(&json!({ "expired": true }));
    for (limit, host) in [(0, true), (1, true), (2, false)] {
        goes(&mut expired, &udp([203, 0, 113, 1], limit), host);
        goes(&mut expired, &icmp6("2001:db8::99", limit, 128), host);
    }
}

#[test]
fn invalid_addresses_are_named() {
    let refusal =
        |addresses: Value| Rig::of::<Punt>(&json!({ "addresses": addresses })).err().expect("refused").to_string();
    let error = refusal(json!(["192.0.2.1", "224.0.0.1"]));
    assert_eq!(error, "addresses[1]: 224.0.0.1 is a multicast address: allowed are addresses of one host");
    assert!(refusal(json!(["::"])).starts_with("addresses[0]: :: is the unspecified address"));
    assert!(refusal(json!(["192.0.2.300"])).contains("addresses[0]"));
    let many: Vec<String> = (0..4_097).map(|n| format!("10.0.{}.{}", n / 256, n % 256)).collect();
    assert_eq!(refusal(json!(many)), "addresses: 4097 addresses: allowed are 0 to 4096");
}

proptest! {
    #[test]
    fn own_addresses_are_those_listed_however_many(
        own in prop::collection::hash_set(0u32..64, 0..40),
        destinations in prop::collection::vec(0u32..64, 1..40),
    ) {
        let text = |n: u32| format!("10.0.0.{n}");
        let addresses: Vec<String> = own.iter().map(|n| text(*n)).collect();
        let mut rig = Rig::of::<Punt>(&json!({ "addresses": addresses })).expect("parameters");
        for n in destinations {
            let gate = rig.run(&udp([10, 0, 0, n as u8], 64)).0;
            prop_assert_eq!(gate, if own.contains(&n) { HOST } else { TRANSIT });
        }
    }
}

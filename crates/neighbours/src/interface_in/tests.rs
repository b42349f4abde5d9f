use std::sync::Arc;

use etherparse::PacketBuilder;
use forebay_graph::Rig;
use forebay_packet::wire::{
    arp::Arp,
    neighbour::{self, Neighbour, OVERRIDE, SOLICITED},
};
use serde_json::json;

use super::*;
use crate::interface::entry::{Entry, Event, NeighbourState};
use crate::interface::frames;
use crate::interface::neighbours::Address;
use crate::interface::testing::{OWN, OWN_V4, PEER, PEER_V4, SECOND, arp, environment, ipv4, ipv6, neighbour, v6};

fn rig(more: serde_json::Value) -> (Rig, Arc<Interface>) {
    let (mut environment, lan) = environment();
    let mut params = json!({ "interface": "lan" });
    params.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    (Rig::within::<InterfaceIn>(&params, &mut environment).expect("valid parameters"), lan)
}

fn known(lan: &Interface, address: [u8; 4]) -> Option<(NeighbourState, MacAddress)> {
    lan.neighbours.look(Address::v4(u32::from_be_bytes(address))).map(|entry| (entry.state, entry.mac))
}

/// Writes the checksum of the ICMPv6 message directly after the IPv6 header.
fn set_checksum(frame: &mut [u8]) {
    frame[56..58].fill(0);
    let header = zerocopy::FromBytes::ref_from_bytes(&frame[14..54]).expect("a header");
    let sum = forebay_packet::wire::icmp::sum_over_ipv6(header, &frame[54..]);
    frame[56..58].copy_from_slice(&(!sum).to_ne_bytes());
}

#[test]
fn a_request_for_an_own_address_becomes_its_answer() {
    let (mut rig, lan) = rig(json!({}));
    assert_eq!(rig.declared.gates, ["0", "local", "reply"]);
    let (gate, frame) = rig.run(&arp(frames::BROADCAST, Arp::REQUEST, PEER_V4, OWN_V4));
    let answer = Arp::of(Arp::REPLY, (OWN, OWN_V4), (PEER, PEER_V4));
    assert_eq!((gate, frame), (REPLY, frames::arp(PEER, OWN, &answer).to_vec()));
    assert_eq!(known(&lan, PEER_V4), Some((NeighbourState::Stale, PEER)), "a request contains the sender's address");
}

#[test]
fn arp_of_others_changes_only_what_is_known() {
    let (mut rig, lan) = rig(json!({}));
    let other = [192, 0, 2, 9];
    for frame in [
        arp(frames::BROADCAST, Arp::REQUEST, PEER_V4, other),
        arp(frames::BROADCAST, Arp::REQUEST, PEER_V4, PEER_V4),
        arp(OWN, Arp::REPLY, PEER_V4, OWN_V4),
    ] {
        assert_eq!(rig.run(&frame).0, NEIGHBOUR);
    }
    assert_eq!(lan.neighbours.all(), [], "no request was sent");
    // A probe for an own address is answered; its sender has no address to learn.
    assert_eq!(rig.run(&arp(frames::BROADCAST, Arp::REQUEST, [0; 4], OWN_V4)).0, REPLY);
    // A sender that is not on the link is not added either.
    assert_eq!(rig.run(&arp(frames::BROADCAST, Arp::REQUEST, [203, 0, 113, 9], OWN_V4)).0, REPLY);
    assert_eq!(lan.neighbours.all(), []);
    let address = Address::v4(u32::from_be_bytes(PEER_V4));
    lan.neighbours.step_or_make(address, Event::Packet, 0).expect("room");
    rig.run(&arp(OWN, Arp::REPLY, PEER_V4, OWN_V4));
    assert_eq!(known(&lan, PEER_V4), Some((NeighbourState::Reachable, PEER)), "the neighbour was asked");
    lan.neighbours.put(address, Entry::stale(OWN, 0, &lan.neighbours.timers), 0).expect("room");
    rig.run(&arp(OWN, Arp::REPLY, PEER_V4, OWN_V4));
    assert_eq!(known(&lan, PEER_V4), Some((NeighbourState::Stale, PEER)), "the neighbour was not asked");
}

/// Regression: a host's stack behind a `tap` sends its own requests, and never got an answer.
#[test]
fn replies_are_learned_and_passed_to_the_host_behind_a_tap() {
    let (mut rig, lan) = rig(json!({ "neighbours": "pass" }));
    lan.neighbours.step_or_make(Address::v4(u32::from_be_bytes(PEER_V4)), Event::Packet, 0).expect("room");
    let reply = arp(OWN, Arp::REPLY, PEER_V4, OWN_V4);
    assert_eq!(rig.run(&reply), (LOCAL, reply.clone()));
    assert_eq!(known(&lan, PEER_V4), Some((NeighbourState::Reachable, PEER)));
    let advertisement = neighbour(v6(7), v6(1), Neighbour::advertisement(OVERRIDE | SOLICITED, v6(7), PEER));
    assert_eq!(rig.run(&advertisement), (LOCAL, advertisement.clone()));
    assert_eq!(rig.counters("neighbours")["passed"], 2);
    // Requests are not passed to the host: the interface answers them.
    assert_eq!(rig.run(&arp(frames::BROADCAST, Arp::REQUEST, PEER_V4, OWN_V4)).0, REPLY);
    assert_eq!(rig.run(&arp(frames::BROADCAST, Arp::REQUEST, PEER_V4, [192, 0, 2, 9])).0, NEIGHBOUR);
    // A station that claims an own address is a conflict, whatever else its message contains.
    assert_eq!(rig.run(&arp(OWN, Arp::REPLY, OWN_V4, PEER_V4)).0, REPLY);
    assert_eq!(rig.run(&arp(OWN, Arp::REPLY, OWN_V4, PEER_V4)).0, CONFLICT);
    assert_eq!(rig.counters("neighbours")["passed"], 2);
}

#[test]
fn solicitations_are_answered_as_rfc_4861_requires() {
    let (mut rig, lan) = rig(json!({}));
    let solicitation = Neighbour::solicitation(v6(1), PEER);
    let (gate, frame) = rig.run(&neighbour(v6(7), neighbour::solicited_node(v6(1)), solicitation));
    let flags = neighbour::ROUTER | SOLICITED | OVERRIDE;
    let expected = frames::neighbour(PEER, OWN, v6(1), v6(7), Neighbour::advertisement(flags, v6(1), OWN));
    assert_eq!((gate, frame), (REPLY, expected.to_vec()));
    let entry = lan.neighbours.look(Address::v6(u128::from_be_bytes(v6(7))).expect("not mapped")).expect("an entry");
    assert_eq!((entry.state, entry.mac), (NeighbourState::Stale, PEER));
    // A node without an address: the answer goes to all nodes. Its message has no option.
    let mut bare = neighbour([0; 16], neighbour::solicited_node(v6(1)), solicitation);
    bare.truncate(bare.len() - 8);
    bare[18..20].copy_from_slice(&24u16.to_be_bytes());
    set_checksum(&mut bare);
    let (gate, frame) = rig.run(&bare);
    assert_eq!((gate, &frame[..6], &frame[38..54]), (REPLY, &[0x33, 0x33, 0, 0, 0, 1][..], &frames::ALL_NODES[..]));
    // A solicitation for another address.
    let other = neighbour(v6(7), neighbour::solicited_node(v6(9)), Neighbour::solicitation(v6(9), PEER));
    assert_eq!(rig.run(&other).0, NEIGHBOUR);
}

/// Regression: an advertisement for ::ffff:192.0.2.7 changed the entry of 192.0.2.7, past every inspection of ARP.
#[test]
fn neighbour_discovery_never_changes_ipv4_entries() {
    let (mut rig, lan) = rig(json!({}));
    let mapped = std::net::Ipv4Addr::from(PEER_V4).to_ipv6_mapped().octets();
    let other = MacAddress([2, 0, 0, 0, 0, 8]);
    lan.neighbours.step_or_make(Address::v4(u32::from_be_bytes(PEER_V4)), Event::Asked(PEER), 0).expect("room");
    for flags in [OVERRIDE, OVERRIDE | SOLICITED] {
        for source in [mapped, v6(7)] {
            let frame = neighbour(source, v6(1), Neighbour::advertisement(flags, mapped, other));
            assert_eq!(rig.run(&frame).0, MALFORMED);
        }
    }
    let frame = neighbour(mapped, v6(1), Neighbour::solicitation(v6(1), other));
    assert_eq!(rig.run(&frame).0, MALFORMED);
    assert_eq!(known(&lan, PEER_V4), Some((NeighbourState::Stale, PEER)));
}

/// Returns addresses that no node on a link has: RFC 4291 sections 2.5.3, 2.5.5.1 and 2.5.5.2.
fn no_nodes_addresses() -> [[u8; 16]; 4] {
    ["::1", "::2", "::10.1.0.7", "::ffff:10.1.0.7"]
        .map(|text| text.parse::<std::net::Ipv6Addr>().expect("an address").octets())
}

/// RFC 4291 sections 2.5.3 and 2.5.5: no node has this source. A ping from it leaves by `local`, like one from
/// 127.0.0.1.
#[test]
fn pings_from_loopback_and_ipv4_mapped_addresses_are_not_answered() {
    let (mut rig, _) = rig(json!({}));
    for source in no_nodes_addresses() {
        let mut request = Vec::new();
        let builder = PacketBuilder::ethernet2(PEER.0, OWN.0).ipv6(source, v6(1), 9).icmpv6_echo_request(5, 6);
        builder.write(&mut request, b"abc").expect("memory");
        assert_eq!(rig.run(&request), (LOCAL, request.clone()), "{source:02x?}");
    }
    for source in [[127, 0, 0, 1], [0, 1, 2, 3], [240, 0, 0, 1]] {
        let mut request = Vec::new();
        let builder = PacketBuilder::ethernet2(PEER.0, OWN.0).ipv4(source, OWN_V4, 9).icmpv4_echo_request(5, 6);
        builder.write(&mut request, b"abc").expect("memory");
        assert_eq!(rig.run(&request), (LOCAL, request.clone()), "{source:?}");
    }
    assert_eq!(rig.counters("neighbours")["echoed"], 0);
}

/// RFC 4291 sections 2.5.3 and 2.5.5, RFC 4861 section 7.1: source and target must not be such addresses.
#[test]
fn neighbour_discovery_from_and_for_addresses_of_no_node_is_malformed() {
    let (mut rig, lan) = rig(json!({}));
    for address in no_nodes_addresses() {
        for (source, target) in [(address, v6(1)), (address, v6(9)), (v6(7), address)] {
            let message = Neighbour::solicitation(target, PEER);
            for destination in [neighbour::solicited_node(target), v6(1)] {
                let frame = neighbour(source, destination, message);
                assert_eq!(rig.run(&frame).0, MALFORMED, "{source:02x?} {target:02x?}");
            }
        }
        let advertisement = neighbour(v6(7), v6(1), Neighbour::advertisement(OVERRIDE, address, PEER));
        assert_eq!(rig.run(&advertisement).0, MALFORMED, "{address:02x?}");
    }
    assert_eq!(lan.neighbours.all(), []);
}

/// RFC 1122 section 3.2.1.3: no station has such an address. A probe, from 0.0.0.0, is answered (RFC 5227).
#[test]
fn arp_from_loopback_and_other_addresses_of_no_station_is_malformed() {
    let (mut rig, lan) = rig(json!({}));
    for sender in [[127, 0, 0, 1], [127, 9, 9, 9], [0, 0, 0, 1], [224, 0, 0, 1], [240, 0, 0, 1], [255; 4]] {
        for operation in [Arp::REQUEST, Arp::REPLY] {
            let frame = arp(frames::BROADCAST, operation, sender, OWN_V4);
            assert_eq!(rig.run(&frame), (MALFORMED, frame.clone()), "{sender:?}");
        }
    }
    assert_eq!(lan.neighbours.all(), []);
    assert_eq!(rig.run(&arp(frames::BROADCAST, Arp::REQUEST, [0; 4], OWN_V4)).0, REPLY);
}

#[test]
fn martian_sources_are_not_forwarded() {
    let far = [198, 51, 100, 9];
    let wide = [0x20; 16];
    for (source, gate) in [
        (PEER_V4, TRANSIT),
        (OWN_V4, MARTIAN),
        ([192, 0, 2, 255], MARTIAN),
        // The older form of the broadcast address (RFC 1812 section 4.2.3.1).
        ([192, 0, 2, 0], MARTIAN),
        ([198, 51, 100, 0], TRANSIT),
        // This address has the same last octet as an address of the router.
        ([198, 51, 100, 1], TRANSIT),
        ([198, 51, 100, 255], TRANSIT),
        ([169, 254, 1, 1], LINK_ONLY),
        ([169, 1, 1, 1], TRANSIT),
    ] {
        assert_eq!(rig(json!({})).0.run(&ipv4(source, far)).0, gate, "{source:?}");
        let open = if gate == MARTIAN { TRANSIT } else { gate };
        assert_eq!(rig(json!({ "martians": "pass" })).0.run(&ipv4(source, far)).0, open, "{source:?}");
    }
    assert_eq!(rig(json!({})).0.run(&ipv6(v6(1), wide)).0, MARTIAN);
    assert_eq!(rig(json!({ "martians": "pass" })).0.run(&ipv6(v6(1), wide)).0, TRANSIT);
    // Packets to the router itself are accepted: a host without an address requests one.
    assert_eq!(rig(json!({})).0.run(&ipv4([0; 4], [255; 4])).0, LOCAL);
    assert_eq!(rig(json!({})).0.run(&ipv4(OWN_V4, OWN_V4)).0, LOCAL);
}

/// A prefix of 31 or 32 bits has no broadcast address (RFC 3021 section 2.1).
#[test]
fn on_a_link_of_two_the_other_end_is_not_a_broadcast_address() {
    for (prefix, peer) in
        [("192.0.2.0/31", [192, 0, 2, 1]), ("192.0.2.1/31", [192, 0, 2, 0]), ("192.0.2.1/32", PEER_V4)]
    {
        let (mut environment, _) = environment();
        let params = json!({ "mac": OWN.to_string(), "addresses": [prefix] });
        let params = serde_json::from_value(params).expect("parameters");
        let link = <Interface as forebay_graph::DeclareState>::new(params, &mut Setup::new("link", &mut environment));
        environment.objects.states.insert("link".to_owned(), Arc::new(link.expect("valid parameters")));
        let mut rig =
            Rig::within::<InterfaceIn>(&json!({ "interface": "link" }), &mut environment).expect("valid parameters");
        assert_eq!(rig.run(&ipv4(peer, [198, 51, 100, 9])).0, TRANSIT, "{prefix}");
    }
}

#[test]
fn invalid_discovery_messages_are_dropped() {
    let (mut rig, lan) = rig(json!({}));
    let valid = neighbour(v6(7), v6(1), Neighbour::solicitation(v6(1), PEER));
    assert_eq!(rig.run(&valid).0, REPLY);
    lan.neighbours.remove(Address::v6(u128::from_be_bytes(v6(7))).expect("not mapped"));
    for (at, value, gate) in [
        (21, 64, BAD_HOP_LIMIT),
        (56, valid[56] ^ 1, BAD_CHECKSUM),
        (70, valid[70] ^ 1, BAD_CHECKSUM),
        (19, 200, MALFORMED),
    ] {
        let mut frame = valid.clone();
        frame[at] = value;
        assert_eq!(rig.run(&frame).0, gate, "byte {at}");
    }
    let unspecified = neighbour([0; 16], neighbour::solicited_node(v6(1)), Neighbour::solicitation(v6(1), PEER));
    assert_eq!(rig.run(&unspecified).0, MALFORMED, "with an option");
    let advertisement = Neighbour::advertisement(SOLICITED, v6(7), PEER);
    assert_eq!(
        rig.run(&neighbour(v6(7), frames::ALL_NODES, advertisement)).0,
        MALFORMED,
        "a solicited message to all nodes"
    );
    assert_eq!(lan.neighbours.all(), []);
}

/// Regression: an answer that was longer than the packet's chunk was counted as `malformed`, although the request was
/// well-formed.
#[test]
fn an_answer_that_does_not_fit_has_its_own_reason() {
    let (mut rig, _) = rig(json!({}));
    // A solicitation without an option. Its answer has an option of 8 bytes.
    let mut bare = neighbour([0; 16], neighbour::solicited_node(v6(1)), Neighbour::solicitation(v6(1), PEER));
    bare.truncate(bare.len() - 8);
    bare[18..20].copy_from_slice(&24u16.to_be_bytes());
    set_checksum(&mut bare);
    for (more, gate) in [(7, TOO_LONG), (8, REPLY)] {
        let options = forebay_packet::PoolOptions { chunks: 1, frame: bare.len() + more, ..Default::default() };
        let pool = forebay_packet::Pool::new(options).expect("memory for a small pool");
        let mut packet = pool.take().expect("a free chunk");
        assert!(packet.write(&bare));
        let mut batch = forebay_packet::Batch::with_capacity(1);
        batch.push(packet).expect("room");
        assert_eq!(rig.process(&mut batch), [Some(gate)]);
    }
}

#[test]
fn own_addresses_are_defended_within_the_rate_limit() {
    let (mut rig, lan) = rig(json!({}));
    let conflict = arp(frames::BROADCAST, Arp::REQUEST, OWN_V4, [192, 0, 2, 9]);
    let (gate, frame) = rig.run(&conflict);
    let announcement = Arp::of(Arp::REQUEST, (OWN, OWN_V4), (MacAddress::default(), OWN_V4));
    assert_eq!((gate, frame), (REPLY, frames::arp(frames::BROADCAST, OWN, &announcement).to_vec()));
    assert_eq!(rig.run(&conflict).0, CONFLICT);
    let advertisement = neighbour(v6(1), frames::ALL_NODES, Neighbour::advertisement(OVERRIDE, v6(1), PEER));
    assert_eq!(rig.run(&advertisement).0, CONFLICT);
    rig.now = forebay_units::Ticks(10 * SECOND);
    assert_eq!(rig.run(&advertisement).0, REPLY);
    assert_eq!((rig.counters("neighbours")["conflicts"], rig.counters("neighbours")["defended"]), (4, 2));
    assert_eq!(lan.neighbours.all(), []);
}

#[test]
fn pings_of_own_addresses_are_answered() {
    let (mut rig, _) = rig(json!({ "echoes_per_second": 3 }));
    let ethernet = || PacketBuilder::ethernet2(PEER.0, OWN.0);
    let mut request = Vec::new();
    ethernet().ipv4(PEER_V4, OWN_V4, 9).icmpv4_echo_request(5, 6).write(&mut request, b"abc").expect("memory");
    let mut expected = Vec::new();
    let back = || PacketBuilder::ethernet2(OWN.0, PEER.0);
    back().ipv4(OWN_V4, PEER_V4, 64).icmpv4_echo_reply(5, 6).write(&mut expected, b"abc").expect("memory");
    assert_eq!(rig.run(&request), (REPLY, expected));
    let mut wrong = request.clone();
    wrong[42] ^= 1;
    assert_eq!(rig.run(&wrong).0, BAD_CHECKSUM);
    let mut request = Vec::new();
    ethernet().ipv6(v6(7), v6(1), 9).icmpv6_echo_request(5, 6).write(&mut request, b"abc").expect("memory");
    let mut expected = Vec::new();
    back().ipv6(v6(1), v6(7), 64).icmpv6_echo_reply(5, 6).write(&mut expected, b"abc").expect("memory");
    assert_eq!(rig.run(&request), (REPLY, expected));
    assert_eq!(rig.run(&request).0, ECHOES_LIMITED);
}

/// Regression: types of ICMP messages were read from the Ethernet padding after a packet without a message.
#[test]
fn padding_after_a_packet_is_not_a_message() {
    let (mut rig, _) = rig(json!({}));
    let mut solicitation = neighbour(v6(7), [0x20; 16], Neighbour::solicitation(v6(1), PEER));
    solicitation[..6].copy_from_slice(&OWN.0);
    solicitation[21] = 64;
    assert_eq!(rig.run(&solicitation).0, BAD_HOP_LIMIT);
    solicitation[18..20].fill(0);
    assert_eq!(rig.run(&solicitation).0, TRANSIT);
    let mut request = Vec::new();
    let builder = PacketBuilder::ethernet2(PEER.0, OWN.0).ipv6(v6(7), v6(1), 9).icmpv6_echo_request(5, 6);
    builder.write(&mut request, b"abc").expect("memory");
    request[18..20].fill(0);
    assert_eq!(rig.run(&request).0, LOCAL);
    let mut request = Vec::new();
    let builder = PacketBuilder::ethernet2(PEER.0, OWN.0).ipv4(PEER_V4, OWN_V4, 9).icmpv4_echo_request(5, 6);
    builder.write(&mut request, b"abc").expect("memory");
    request[16..18].copy_from_slice(&[0, 20]);
    request[24..26].fill(0);
    let sum = forebay_packet::wire::checksum::sum(&request[14..34]);
    request[24..26].copy_from_slice(&(!sum).to_ne_bytes());
    assert_eq!(rig.run(&request).0, LOCAL);
}

/// Regression: packets of other protocols that begin like an echo request, for example from port 2048, were dropped as
/// `bad_checksum`, and used up the limit of answers to pings.
#[test]
fn a_packet_of_another_protocol_is_no_ping() {
    let (mut rig, _) = rig(json!({ "echoes_per_second": 1 }));
    let builder = || PacketBuilder::ethernet2(PEER.0, OWN.0).ipv4(PEER_V4, OWN_V4, 9);
    let (mut udp, mut tcp, mut ping) = (Vec::new(), Vec::new(), Vec::new());
    builder().udp(0x0800, 53).write(&mut udp, b"abc").expect("memory");
    builder().tcp(0x0800, 179, 1, 1_000).write(&mut tcp, b"abc").expect("memory");
    builder().icmpv4_echo_request(5, 6).write(&mut ping, b"abc").expect("memory");
    for frame in [&udp, &tcp] {
        assert_eq!(rig.run(frame), (LOCAL, frame.clone()));
    }
    assert_eq!([&ping, &ping, &udp].map(|frame| rig.run(frame).0), [REPLY, ECHOES_LIMITED, LOCAL]);
}

#[test]
fn packets_to_forward_and_others_are_separated() {
    let (mut rig, _) = rig(json!({}));
    let far = [203, 0, 113, 9];
    let to = |mac: MacAddress, mut frame: Vec<u8>| {
        frame[..6].copy_from_slice(&mac.0);
        frame
    };
    let link_local =
        |last| std::array::from_fn(|at| [0xfe, 0x80].get(at).copied().unwrap_or(if at == 15 { last } else { 0 }));
    for (frame, gate) in [
        (ipv4(PEER_V4, far), TRANSIT),
        (ipv6(v6(7), [0x20; 16]), TRANSIT),
        (ipv4(PEER_V4, OWN_V4), LOCAL),
        (ipv6(v6(7), v6(1)), LOCAL),
        (ipv4(PEER_V4, [192, 0, 2, 255]), LOCAL),
        (to(frames::BROADCAST, ipv4(PEER_V4, [255; 4])), LOCAL),
        (to(frames::multicast_v4(0xe000_0005), ipv4(PEER_V4, [224, 0, 0, 5])), LOCAL),
        (to(frames::BROADCAST, ipv4(PEER_V4, far)), GROUP),
        (to(PEER, ipv4(PEER_V4, far)), OTHER_STATION),
        (ipv4(PEER_V4, [127, 0, 0, 1]), LINK_ONLY),
        (ipv4([169, 254, 0, 1], far), LINK_ONLY),
        (ipv6(link_local(7), [0x20; 16]), LINK_ONLY),
        (ipv6(v6(7), link_local(9)), LINK_ONLY),
        (to(OWN, vec![0x11; 60]), OTHER_STATION),
        (vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 7, 0x88, 0xcc, 0, 0], NOT_IP),
        (vec![2; 9], NOT_IP),
        (arp(OWN, Arp::REQUEST, PEER_V4, OWN_V4)[..40].to_vec(), MALFORMED),
    ] {
        assert_eq!(rig.run(&frame), (gate, frame.clone()), "{frame:02x?}");
    }
}

#[test]
fn answers_are_limited() {
    let (mut rig, _) = rig(json!({ "answers_per_second": 2 }));
    let request = arp(frames::BROADCAST, Arp::REQUEST, PEER_V4, OWN_V4);
    let gates: Vec<_> = (0..3).map(|_| rig.run(&request).0).collect();
    assert_eq!(gates, [REPLY, REPLY, ANSWERS_LIMITED]);
    rig.now = forebay_units::Ticks(SECOND / 2);
    assert_eq!(rig.run(&request).0, REPLY);
}

#[test]
fn the_interfaces_number_is_written_and_others_addresses_are_the_routers_too() {
    let (mut environment, lan) = environment();
    let params = serde_json::from_value(json!({ "mac": "02:00:00:00:00:02", "addresses": ["198.51.100.1/24"] }));
    let wan = <Interface as forebay_graph::DeclareState>::new(
        params.expect("parameters"),
        &mut Setup::new("wan", &mut environment),
    );
    environment.objects.states.insert("wan".to_owned(), Arc::new(wan.expect("valid parameters")));
    let params = json!({ "interface": "lan", "others": ["wan"] });
    let mut rig = Rig::within::<InterfaceIn>(&params, &mut environment).expect("valid parameters");
    assert_eq!(rig.run(&ipv4(PEER_V4, [198, 51, 100, 1])).0, LOCAL);
    let mut batch = forebay_packet::Batch::with_capacity(1);
    batch.push(rig.packet(&ipv4(PEER_V4, [9; 4]))).expect("room");
    rig.process(&mut batch);
    assert_eq!(batch[0].word(environment.words[WORD]), lan.number.expect("the interface has a number"));
}

use std::collections::HashMap;

use forebay_graph::Rig;
use forebay_packet::Batch;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::interface::testing::{OWN, OWN_V4, PEER, PEER_V4, SECOND, environment, ipv4, ipv6, v6};

const FAR: [u8; 4] = [203, 0, 113, 9];

fn rig(more: serde_json::Value) -> (Rig, Arc<Interface>) {
    let (mut environment, lan) = environment();
    let mut params = json!({ "interface": "lan", "announce": false });
    params.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    (Rig::within::<InterfaceOut>(&params, &mut environment).expect("valid parameters"), lan)
}

fn push(rig: &mut Rig, frames: &[Vec<u8>]) -> Vec<Option<Gate>> {
    let mut batch = Batch::with_capacity(frames.len());
    for frame in frames {
        batch.push(rig.packet(frame)).expect("room");
    }
    rig.process(&mut batch)
}

fn emitted(rig: &mut Rig) -> Vec<(Gate, Vec<u8>)> {
    rig.emitted().into_iter().map(|(packet, gate)| (gate, packet.data().to_vec())).collect()
}

fn answered(lan: &Interface, address: Address, now: u64) {
    lan.neighbours.step(address, Event::Answered(Some(PEER), true), now).expect("a request was sent");
}

fn request(target: [u8; 4]) -> Vec<u8> {
    let message = Arp::of(Arp::REQUEST, (OWN, OWN_V4), (MacAddress::default(), target));
    frames::arp(frames::BROADCAST, OWN, &message).to_vec()
}

fn sent(mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&PEER.0);
    frame[6..12].copy_from_slice(&OWN.0);
    frame
}

#[test]
fn packets_wait_until_their_neighbour_has_answered() {
    let (mut rig, lan) = rig(json!({}));
    let (first, second) = (ipv4(FAR, PEER_V4), ipv6(v6(9), v6(7)));
    assert_eq!(push(&mut rig, &[first.clone(), second.clone()]), [None, None]);
    let solicitation = frames::solicitation(OWN, v6(1), v6(7)).to_vec();
    assert_eq!(emitted(&mut rig), [(Gate::FIRST, request(PEER_V4)), (Gate::FIRST, solicitation)]);
    assert_eq!((rig.created(), rig.held()), (vec![1, 1, 0], 2));
    assert!(rig.keeps_run(), "packets wait");
    rig.now = rig.wakes_at().expect("a wake-up time");
    rig.wake();
    assert_eq!((emitted(&mut rig), rig.held()), (vec![], 2));
    answered(&lan, Address::v4(u32::from_be_bytes(PEER_V4)), rig.now.0);
    // Later packets stay behind packets that wait.
    assert_eq!(push(&mut rig, std::slice::from_ref(&first)), [None]);
    rig.wake();
    assert_eq!(emitted(&mut rig), [(Gate::FIRST, sent(first.clone())), (Gate::FIRST, sent(first.clone()))]);
    answered(&lan, Address::v6(u128::from_be_bytes(v6(7))).expect("not mapped"), rig.now.0);
    rig.wake();
    assert_eq!(emitted(&mut rig), [(Gate::FIRST, sent(second))]);
    assert_eq!((rig.held(), rig.wakes_at(), rig.keeps_run()), (0, None, false));
    assert_eq!(rig.run(&first), (Gate::FIRST, sent(first)));
}

#[test]
fn a_silent_neighbour_is_given_up_for_a_while() {
    for (params, gates) in
        [(json!({}), [UNRESOLVED, UNREACHABLE]), (json!({ "unreachable": "gate" }), [Gate::out(1); 2])]
    {
        let (mut rig, _) = rig(params);
        let frame = ipv4(FAR, PEER_V4);
        push(&mut rig, std::slice::from_ref(&frame));
        let mut requests = emitted(&mut rig).len();
        let mut released = Vec::new();
        while let Some(at) = rig.wake() {
            rig.now = at;
            for (gate, frame) in emitted(&mut rig) {
                if frame == request(PEER_V4) { requests += 1 } else { released.push((gate, frame)) }
            }
        }
        released.extend(emitted(&mut rig));
        assert_eq!((requests, released), (3, vec![(gates[0], frame.clone())]));
        assert!((3 * SECOND..3 * SECOND + SECOND / 100).contains(&rig.now.0), "after three requests, one second each");
        assert_eq!(rig.run(&frame).0, gates[1]);
        rig.now.0 += 2 * SECOND;
        assert_eq!((rig.run(&frame).0, rig.emitted().len()), (gates[1], 0), "no request is sent yet");
        rig.now.0 += SECOND + 1;
        assert_eq!(push(&mut rig, &[frame]), [None]);
        assert_eq!(emitted(&mut rig), [(Gate::FIRST, request(PEER_V4))]);
    }
}

#[test]
fn a_silent_neighbour_is_probed_by_itself_and_then_forgotten() {
    let (mut rig, lan) = rig(json!({}));
    let (frame, address) = (ipv4(FAR, PEER_V4), Address::v4(u32::from_be_bytes(PEER_V4)));
    lan.neighbours.step_or_make(address, Event::Asked(PEER), 0).expect("room");
    assert_eq!(rig.run(&frame), (Gate::FIRST, sent(frame.clone())), "a stale address is used");
    assert_eq!(rig.wakes_at(), Some(Ticks(5 * SECOND)));
    assert!(!rig.keeps_run(), "no packet waits for a probe");
    let mut probes = Vec::new();
    while let Some(at) = rig.wakes_at() {
        rig.now = at;
        rig.wake();
        assert!(!rig.keeps_run());
        probes.extend(emitted(&mut rig).into_iter().map(|(_, frame)| (at.0 / SECOND, frame)));
    }
    let mut probe = request(PEER_V4);
    probe[..6].copy_from_slice(&PEER.0);
    assert_eq!(probes, [5, 6, 7].map(|second| (second, probe.clone())));
    assert_eq!(lan.neighbours.look(address), None);
    assert_eq!(push(&mut rig, &[frame]), [None], "now a request goes to all hosts");
}

#[test]
fn packets_to_other_networks_go_to_routers() {
    let (mut environment, lan) = environment();
    let params = json!({
        "interface": "lan", "gateway": ["192.0.2.254"], "next_hops": { "2": ["192.0.2.7", "fe80::7"] },
    });
    let mut rig = Rig::within::<InterfaceOut>(&params, &mut environment).expect("valid parameters");
    let word = environment.words[WORD];
    let mut request_for = |frame: Vec<u8>, hop: u32| {
        let mut batch = Batch::with_capacity(1);
        batch.push(rig.packet(&frame)).expect("room");
        batch.iter_mut().for_each(|packet| packet.set_word(word, hop));
        assert_eq!(rig.process(&mut batch), [None]);
        rig.now.0 += 1;
        emitted(&mut rig).pop().map(|(_, frame)| frame)
    };
    assert_eq!(request_for(ipv4([9; 4], FAR), 0), Some(request([192, 0, 2, 254])));
    assert_eq!(
        request_for(ipv4([9; 4], [192, 0, 2, 50]), 0),
        Some(request([192, 0, 2, 50])),
        "the destination is on the link"
    );
    assert_eq!(request_for(ipv4([9; 4], FAR), 2), Some(request([192, 0, 2, 7])));
    let mut router = [0; 16];
    (router[0], router[1], router[15]) = (0xfe, 0x80, 7);
    let own = lan.source_v6(u128::from_be_bytes(router)).expect("an own address").to_be_bytes();
    assert_eq!(request_for(ipv6(v6(9), [0x20; 16]), 2), Some(frames::solicitation(OWN, own, router).to_vec()));
    assert_eq!(rig.run(&ipv6(v6(9), [0x20; 16])).0, NO_GATEWAY);
}

#[test]
fn multicast_needs_no_neighbour_and_broadcasts_are_dropped() {
    let (mut rig, _) = rig(json!({}));
    let (gate, frame) = rig.run(&ipv4(FAR, [239, 129, 2, 3]));
    assert_eq!((gate, &frame[..6]), (Gate::FIRST, &[0x01, 0x00, 0x5e, 0x01, 2, 3][..]));
    let (gate, frame) = rig.run(&ipv6(v6(9), [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]));
    assert_eq!((gate, &frame[..6]), (Gate::FIRST, &[0x33, 0x33, 1, 2, 3, 4][..]));
    for (frame, gate) in [
        (ipv4(FAR, [192, 0, 2, 255]), NOT_FOR_LINK),
        (ipv4(FAR, OWN_V4), NOT_FOR_LINK),
        (ipv6(v6(9), v6(1)), NOT_FOR_LINK),
        (ipv4(PEER_V4, FAR), NO_GATEWAY),
        (vec![2; 60], NOT_IP),
        (vec![], NOT_IP),
    ] {
        assert_eq!(rig.run(&frame).0, gate);
    }
}

/// Multicast and broadcast packets never go to a gateway: not to the default gateway, and not to the gateway of a next
/// hop.
#[test]
fn multicast_and_broadcast_packets_never_go_to_a_router() {
    let (mut environment, lan) = environment();
    let routers = json!(["192.0.2.7", "2001:db8::7"]);
    let params = json!({ "interface": "lan", "announce": false, "gateway": routers, "next_hops": { "2": routers } });
    let mut rig = Rig::within::<InterfaceOut>(&params, &mut environment).expect("valid parameters");
    let word = environment.words[WORD];
    for router in ["192.0.2.7", "2001:db8::7"] {
        let router = Address::of(router.parse().expect("an address")).expect("not mapped");
        lan.neighbours.put(router, Entry::permanent(PEER), 0).expect("room");
    }
    let group = [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
    for hop in [0, 2] {
        for (frame, expected) in [
            (ipv4(FAR, [239, 129, 2, 3]), (Gate::FIRST, [0x01, 0x00, 0x5e, 0x01, 2, 3])),
            (ipv4(FAR, [224, 0, 0, 1]), (Gate::FIRST, [0x01, 0x00, 0x5e, 0, 0, 1])),
            (ipv6(v6(9), group), (Gate::FIRST, [0x33, 0x33, 1, 2, 3, 4])),
            (ipv4(FAR, [255; 4]), (NOT_FOR_LINK, OWN.0)),
            // Packets to hosts, and to reserved addresses that may become host addresses, go to the router.
            (ipv4(OWN_V4, [223, 255, 255, 255]), (Gate::FIRST, PEER.0)),
            (ipv4(OWN_V4, [240, 0, 0, 1]), (Gate::FIRST, PEER.0)),
            (ipv4(OWN_V4, [255, 255, 255, 254]), (Gate::FIRST, PEER.0)),
            (ipv6(v6(9), [0xfe; 16]), (Gate::FIRST, PEER.0)),
        ] {
            let mut batch = Batch::with_capacity(1);
            batch.push(rig.packet(&frame)).expect("room");
            batch.iter_mut().for_each(|packet| packet.set_word(word, hop));
            let gate = rig.process(&mut batch)[0].expect("the packet does not wait");
            assert_eq!((gate, &batch[0].data()[..6]), (expected.0, &expected.1[..]), "{frame:02x?}");
        }
    }
    assert_eq!(rig.created(), [0, 0, 0]);
}

/// Returns a packet to an address of the link that no host has.
fn to_unused(number: u32) -> Vec<u8> {
    let mut destination = v6(0);
    destination[8..12].copy_from_slice(&number.to_be_bytes());
    ipv6(v6(9), destination)
}

/// RFC 6583: whatever the speed of a scan of a connected prefix is, it causes only one request for each packet that may
/// wait.
#[test]
fn packets_that_may_not_wait_cause_no_requests() {
    let (mut rig, lan) = rig(json!({ "resolving": 16, "held": 20 }));
    let mut outcomes = HashMap::<Option<Gate>, usize>::new();
    for first in (0..10_000).step_by(100) {
        let frames: Vec<_> = (first..first + 100).map(to_unused).collect();
        push(&mut rig, &frames).into_iter().for_each(|gate| *outcomes.entry(gate).or_default() += 1);
        rig.emitted();
    }
    assert_eq!(outcomes, HashMap::from([(None, 16), (Some(RESOLVING_FULL), 9_984)]));
    assert_eq!((rig.created(), lan.neighbours.all().len()), (vec![0, 16, 0], 16), "the other addresses have no entry");
    // Neighbours for which packets wait get more requests, and are then given up. Afterwards there is room for other
    // neighbours.
    for _ in 0..40_000 {
        rig.now.0 += SECOND / 1_000;
        rig.wake();
        let frame = to_unused(rig.now.0 as u32);
        push(&mut rig, &[frame]);
        rig.emitted();
    }
    let requests = rig.created()[1];
    assert!((400..=16 * 41 + 16).contains(&requests), "sixteen per second: {requests} in 40 seconds");
    assert!(rig.held() <= 16);
    // Without room for the packet, no request is sent either.
    let (mut rig, _) = self::rig(json!({ "held": 2 }));
    assert_eq!(push(&mut rig, &[0, 1, 2, 0].map(to_unused)), [None, None, Some(HELD_FULL), Some(HELD_FULL)]);
    assert_eq!(rig.created(), [0, 2, 0]);
}

/// If all neighbours answer at once, so that the wait queue always has room, the limit of requests per second still
/// holds.
#[test]
fn requests_per_second_are_limited() {
    let (mut rig, lan) = rig(json!({}));
    for (numbers, later, asked) in [(0..3_000, 0, 1_000), (5_000..5_600, SECOND / 2, 1_500)] {
        rig.now.0 += later;
        for number in numbers {
            let frame = to_unused(number);
            match push(&mut rig, std::slice::from_ref(&frame))[0] {
                None => {
                    let to = u128::from_be_bytes(frame[38..54].try_into().expect("sixteen bytes"));
                    let to = Address::v6(to).expect("not mapped");
                    answered(&lan, to, rig.now.0);
                    rig.wake();
                }
                gate => assert_eq!(gate, Some(NOT_ASKED)),
            }
            rig.emitted();
        }
        assert_eq!((rig.created()[1], rig.held()), (asked, 0));
    }
    assert_eq!(ASKED_PER_SECOND, 1_000);
}

#[test]
fn waiting_packets_are_limited() {
    let (mut rig, _) = rig(json!({ "queue": 2, "held": 5, "resolving": 3 }));
    let to = |last| ipv4(FAR, [192, 0, 2, last]);
    assert_eq!(
        push(&mut rig, &[to(2), to(2), to(2)]),
        [None, None, Some(QUEUE_FULL)],
        "within one batch the last packet is dropped"
    );
    assert_eq!(push(&mut rig, &[to(2)]), [None]);
    let gates: Vec<_> = rig.emitted().into_iter().map(|(_, gate)| gate).collect();
    assert_eq!(gates, [Gate::FIRST, QUEUE_FULL], "the request, and the oldest packet");
    assert_eq!(
        push(&mut rig, &[to(3), to(3), to(4), to(4), to(5)]),
        [None, None, None, Some(HELD_FULL), Some(RESOLVING_FULL),]
    );
    assert_eq!(rig.held(), 5);
}

#[test]
fn it_announces_its_addresses_at_the_start() {
    let (mut rig, lan) = rig(json!({ "announce": true }));
    assert!(rig.function.begins());
    rig.wake();
    let frames: Vec<_> = emitted(&mut rig).into_iter().map(|(_, frame)| frame).collect();
    assert_eq!(frames.len(), lan.addresses().count());
    assert_eq!(frames[0], request(OWN_V4));
    assert!(frames[1..].iter().all(|frame| frame[..6] == [0x33, 0x33, 0, 0, 0, 1] && frame[54] == 136));
    assert!(!rig.function.begins() && rig.created() == [0, 0, 3]);
}

/// Regression: the packet was sent to the neighbour 192.0.2.7, because both addresses had the same key in the table.
#[test]
fn a_packet_to_an_ipv4_mapped_address_is_dropped() {
    let (mut environment, lan) = environment();
    let mut rig =
        Rig::within::<InterfaceOut>(&json!({ "interface": "lan" }), &mut environment).expect("valid parameters");
    let address = Address::v4(u32::from_be_bytes(PEER_V4));
    lan.neighbours.put(address, Entry::permanent(PEER), 0).expect("room");
    let mapped = std::net::Ipv4Addr::from(PEER_V4).to_ipv6_mapped().octets();
    assert_eq!(rig.run(&ipv6(v6(9), mapped)).0, NOT_IP);
}

#[test]
fn errors_name_the_location_the_value_and_what_is_allowed() {
    for (more, error) in [
        (json!({ "gateway": ["203.0.113.1"] }), "gateway[0]: 203.0.113.1 is in none of the interface's prefixes"),
        (
            json!({ "gateway": ["192.0.2.8", "192.0.2.9"] }),
            "gateway[1]: 192.0.2.9 is the second address of its IP version",
        ),
        (json!({ "gateway": ["192.0.2.1"] }), "gateway[0]: 192.0.2.1 is the interface's own"),
        (json!({ "gateway": ["::ffff:192.0.2.8"] }), "gateway[0]: '::ffff:192.0.2.8' is an IPv4-mapped address"),
        (json!({ "next_hops": { "x": [] } }), "next_hops: 'x' is not a next hop: allowed are 0 to 16383"),
        (json!({ "next_hops": { "1": ["fd00::9"] } }), "next_hops.1[0]: fd00::9 is in none"),
        (json!({ "queue": 0 }), "queue: 0: allowed are 1 to 1024"),
        (json!({ "interface": "wan" }), "interface: no state is called 'wan' (did you mean 'lan'?): allowed is lan"),
    ] {
        let (mut environment, _) = environment();
        let mut params = json!({ "interface": "lan" });
        params.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        let message = Rig::within::<InterfaceOut>(&params, &mut environment).err().expect("refused").to_string();
        assert!(message.starts_with(error), "{message}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    /// Packets and answers in random order and at random times: no packet is lost, packets of one neighbour leave in
    /// order, and at the end no packet waits.
    #[test]
    fn no_packet_is_lost_and_order_is_kept(
        steps in prop::collection::vec(
            (prop::collection::vec(2u8..8, 0..6), 2u8..8, 0u64..1_500_000_000, any::<bool>()), 1..40,
        ),
        queue in 1usize..5,
    ) {
        let (mut rig, lan) = rig(json!({ "queue": queue, "held": 9, "resolving": 3 }));
        let (mut given, mut forwarded, mut dropped) = (0u32, 0, 0);
        let mut last = HashMap::<u8, u32>::new();
        let number = |frame: &[u8]| u32::from_be_bytes(frame[42..46].try_into().expect("four bytes"));
        for (neighbours, answers, span, wakes) in steps {
            rig.now.0 += span;
            let mut batch = Batch::with_capacity(8);
            for &neighbour in &neighbours {
                let mut frame = ipv4(FAR, [192, 0, 2, neighbour]);
                frame[42..46].copy_from_slice(&given.to_be_bytes());
                given += 1;
                batch.push(rig.packet(&frame)).expect("room");
            }
            let gates = if neighbours.is_empty() { Vec::new() } else { rig.process(&mut batch) };
            let frames = batch.iter().map(|packet| packet.data().to_vec()).collect::<Vec<_>>();
            let decided: Vec<_> = gates.into_iter().flatten().zip(frames).collect();
            let address = Address::v4(u32::from_be_bytes([192, 0, 2, answers]));
            let _ = lan.neighbours.step(address, Event::Answered(Some(PEER), true), rig.now.0);
            let mut out: Vec<_> = decided;
            out.extend(emitted(&mut rig));
            if wakes {
                rig.wake();
                out.extend(emitted(&mut rig));
            }
            for (gate, frame) in out {
                if frame[12..14] == [8, 6] {
                    continue;
                }
                if gate == Gate::FIRST {
                    let (number, neighbour) = (number(&frame), frame[33]);
                    let in_order = last.insert(neighbour, number).is_none_or(|before| before < number);
                    prop_assert!(in_order, "packets of one neighbour leave in order");
                    prop_assert_eq!(&frame[..12], &[PEER.0, OWN.0].concat()[..]);
                    forwarded += 1;
                } else {
                    dropped += 1;
                }
            }
            prop_assert_eq!(forwarded + dropped + rig.held() as u32, given);
            prop_assert!(rig.held() <= 9);
            prop_assert!(rig.held() == 0 || rig.wakes_at().is_some(), "a wake-up time is set while packets wait");
        }
        while let Some(at) = rig.wakes_at() {
            rig.now = rig.now.max(at);
            rig.wake();
        }
        prop_assert_eq!(rig.held(), 0);
    }
}

//! Tests that stacks of VLAN tags take turns packet by packet, have the same sessions, and give correct frames.

use super::*;

/// Returns the tags of a frame, outermost first, and the frame without them.
fn untagged(frame: &[u8]) -> (Vec<u16>, Vec<u8>) {
    let (mut tags, mut at) = (Vec::new(), 12);
    while matches!(frame[at..at + 2], [0x81, 0] | [0x88, 0xa8]) {
        tags.push(u16::from_be_bytes([frame[at + 2], frame[at + 3]]));
        at += 4;
    }
    (tags, [&frame[..12], &frame[at..]].concat())
}

/// Returns the tags of a frame, and the fields that identify the session.
fn tags_and_session(frame: &[u8]) -> (Vec<u16>, Vec<u8>) {
    let (tags, rest) = untagged(frame);
    (tags, session(&rest))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_packet_has_the_tags_of_its_turn(
        stacks in proptest::collection::vec(proptest::collection::vec(0u16..4096, 0..3), 1..8),
        rounds in 1usize..6, more in 0usize..7, tcp: bool, ipv6: bool, long: bool, burst in 1usize..4,
    ) {
        let sessions = stacks.len() * rounds + more;
        let size = json!([{ "size": 100 }, { "size": 300 }]);
        let params = json!({
            "vlan_stacks": stacks, "sessions": sessions, "burst": burst,
            "transport": if tcp { "tcp" } else { "udp" },
            "destination": if ipv6 { "2001:db8::/64" } else { "10.0.0.0/8" },
            "size": if long { size } else { json!(null) },
        });
        let packets = take(params, 3 * sessions);
        for (number, (_, frame)) in packets.iter().enumerate() {
            check(frame);
            prop_assert_eq!(&untagged(frame).0, &stacks[number % stacks.len()]);
        }
    }
}

#[test]
fn each_stack_has_the_addresses_and_ports_of_the_others() {
    for stacks in [json!([[1], [2], [3]]), json!([[], [7], [8, 9]])] {
        // Frames of 60 bytes, the default, are kept complete. The others are assembled packet by packet.
        for size in [60, 90] {
            let params = json!({ "sessions": 12, "size": size, "destination": ["10.0.0.0/24", "10.0.1.0/24"] });
            let alone: Vec<_> = take(params.clone(), 4).iter().map(|(_, frame)| tags_and_session(frame).1).collect();
            let mut params = params;
            params["vlan_stacks"] = stacks.clone();
            for (number, (_, frame)) in take(params, 24).iter().enumerate() {
                assert_eq!(frame.len(), size);
                let (tags, session) = tags_and_session(frame);
                assert_eq!(json!(tags), stacks[number % 3]);
                assert_eq!(session, alone[number / 3 % 4], "{number}");
            }
        }
    }
}

#[test]
fn counts_of_stacks_differ_by_one_at_most() {
    let params = json!({ "vlan_stacks": [[1], [2], [3], [4]], "sessions": 9, "skew": 1.2, "count": 1_001 });
    let mut counts = BTreeMap::new();
    take(params, 1_001).iter().for_each(|(_, frame)| *counts.entry(tags_and_session(frame).0).or_insert(0) += 1);
    assert_eq!(counts.into_values().collect::<Vec<_>>(), [251, 250, 250, 250]);
}

#[test]
fn tunnels_are_inside_of_tags() {
    let gtp = json!({ "gtpu": { "source": "192.0.2.1", "destination": "192.0.2.2", "teid": 5, "tunnels": 2 } });
    let params = json!({ "vlan_stacks": [[1], []], "sessions": 4, "tunnel": gtp });
    let teids = take(params, 8).into_iter().map(|(_, frame)| {
        let (tags, frame) = untagged(&frame);
        (tags.len(), frame[14 + 20 + 8 + 7])
    });
    assert_eq!(teids.collect::<Vec<_>>(), [(1, 5), (0, 5), (1, 6), (0, 6)].repeat(2));
}

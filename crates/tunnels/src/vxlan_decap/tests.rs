//! Frames from an independent encoder, faults with their reasons, and round trips.

use etherparse::PacketBuilder;
use forebay_frames::{ipv4, ipv6, outer, tagged};
use forebay_graph::Rig;
use forebay_packet::Batch;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn rig(params: &Value) -> Rig {
    Rig::of::<VxlanDecap>(params).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns a frame in a network.
fn frame(vni: u8, inner: &[u8]) -> Vec<u8> {
    outer(0, (50_000, 4_789), false, &[&[0x08, 0, 0, 0, 0, 0, vni, 0], inner].concat())
}

/// Runs a frame. Returns its gate, the frame afterwards, and its network.
fn run(rig: &mut Rig, frame: &[u8]) -> (Gate, Vec<u8>, u32) {
    let mut batch = Batch::with_capacity(1);
    batch.push(rig.packet(frame)).expect("room");
    let gate = rig.process(&mut batch)[0].expect("nothing is held");
    (gate, batch[0].data().to_vec(), batch[0].word(Word::new(0).expect("the first")))
}

#[test]
fn inner_frames_come_out_with_their_networks() {
    let mut rig = rig(&json!({ "vnis": [7, 9] }));
    for inner in [ipv4(0x2a, b"data"), ipv6(0, &[7; 90]), tagged(&ipv4(0, b"")), vec![0xff; 14], vec![0xff; 60]] {
        let plain = frame(9, &inner);
        let summed = outer(0, (1, 4_789), true, &[&[0xff, 1, 2, 3, 0, 0, 9, 5], &inner[..]].concat());
        for frame in [plain.clone(), summed, tagged(&plain), [&plain[..], &[0; 5]].concat()] {
            assert_eq!(run(&mut rig, &frame), (Gate::FIRST, inner.clone(), 9), "{frame:02x?}");
        }
    }
}

#[test]
fn congestion_is_passed_on() {
    let mut rig = rig(&json!({}));
    let marked = |inner: &[u8]| outer(3, (1, 4_789), false, &[&[0x08, 0, 0, 0, 0, 0, 9, 0], inner].concat());
    assert_eq!(run(&mut rig, &marked(&ipv4(0x28 | 2, b"x"))).1, ipv4(0x28 | 3, b"x"));
    assert_eq!(run(&mut rig, &marked(&ipv4(0x28, b"x"))).0, CONGESTION);
    assert_eq!(
        run(&mut rig, &marked(&[0xff; 60])),
        (Gate::FIRST, vec![0xff; 60], 9),
        "frames other than IP are not marked"
    );
}

/// Returns a frame to the port over IPv6: a datagram without a checksum, or with another next header.
fn over_ipv6(next_header: Option<u8>) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([1; 16], [2; 16], 64).udp(1, 4_789);
    builder.write(&mut frame, &[0x08, 0, 0, 0, 0, 0, 9, 0]).expect("memory");
    match next_header {
        Some(header) => frame[20] = header,
        None => frame[60..62].fill(0),
    }
    frame
}

#[test]
fn invalid_packets_have_their_reason() {
    let mut rig = rig(&json!({ "vnis": [9], "local": ["192.0.2.10"] }));
    let good = frame(9, &ipv4(0, b"data"));
    let with = |at: usize, value: u8| {
        let mut frame = good.clone();
        frame[at] = value;
        frame
    };
    let mut wrong_sum = outer(0, (1, 4_789), true, &[&[0x08, 0, 0, 0, 0, 0, 9, 0], &ipv4(0, b"data")[..]].concat());
    wrong_sum[40] ^= 1;
    let cases = [
        (with(13, 6), NOT_VXLAN, "ARP"),
        (with(23, 6), NOT_VXLAN, "TCP"),
        (with(37, 9), NOT_VXLAN, "another port"),
        (with(33, 11), NOT_VXLAN, "another address"),
        (over_ipv6(None), NOT_VXLAN, "IPv6 without a checksum"),
        (over_ipv6(Some(44)), NOT_VXLAN, "a fragment of IPv6"),
        (with(20, 0x20), FRAGMENT, "the first fragment"),
        (with(21, 1), FRAGMENT, "a later fragment"),
        (with(17, 200), BAD_LENGTH, "longer than the frame"),
        (with(39, 200), BAD_LENGTH, "UDP longer than IP"),
        (with(39, 7), BAD_LENGTH, "UDP shorter than itself"),
        (wrong_sum.clone(), BAD_CHECKSUM, "a wrong UDP checksum"),
        (with(42, 0xf7), NO_VNI, "no network"),
        (with(48, 8), UNKNOWN_VNI, "another network"),
        (frame(9, &[0xff; 13]), TRUNCATED, "a cut inner header"),
        (outer(0, (1, 4_789), false, &[8; 7]), TRUNCATED, "a cut VXLAN header"),
        (vec![0; 13], NOT_VXLAN, "no Ethernet"),
    ];
    for (frame, gate, what) in cases {
        let (gate_after, after, _) = run(&mut rig, &frame);
        assert_eq!((gate_after, after), (gate, frame), "{what}");
    }
    let mut trusting = super::tests::rig(&json!({ "verify": false }));
    assert_eq!(run(&mut trusting, &wrong_sum).0, Gate::FIRST);
}

#[test]
fn wrong_parameters_are_named() {
    for (params, path, message) in [
        (json!({ "vnis": [1, 16_777_216] }), "vnis[1]", "16777216 is not a network identifier"),
        (json!({ "vnis": vec![1; 65] }), "vnis", "65 entries: allowed are up to 64"),
        (json!({ "local": ["::1"] }), "local[0]", "'::1' is an IPv6 address"),
        (json!({ "port": 0 }), "port", "allowed are 1 to 65535"),
    ] {
        let error = Rig::of::<VxlanDecap>(&params).err().expect("refused");
        assert_eq!(error.faults[0].path, path, "{error}");
        assert!(error.to_string().contains(message), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn encapsulated_frames_are_restored(
        kind in 0u8..4, class: u8, payload in vec(any::<u8>(), 14..100), vni in 0u32..1 << 24, port in 1u16..,
        summed: bool,
    ) {
        use crate::vxlan_encap::VxlanEncap;

        let inner = match kind {
            0 => ipv4(class, &payload),
            1 => ipv6(class, &payload),
            2 => tagged(&ipv4(class, &payload)),
            _ => payload,
        };
        let params = json!({
            "source": "192.0.2.1", "peer": "192.0.2.10", "vni": vni, "port": port, "udp_checksum": summed,
        });
        let outside = Rig::of::<VxlanEncap>(&params).expect("parameters").run(&inner).1;
        let mut decap = rig(&json!({ "port": port, "vnis": [vni] }));
        prop_assert_eq!(run(&mut decap, &outside), (Gate::FIRST, inner.clone(), vni));
        prop_assert_eq!(run(&mut decap, &tagged(&outside)), (Gate::FIRST, inner, vni), "the slow path");
    }

    #[test]
    fn the_fast_path_does_the_same_as_the_slow_path(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), cut in 40usize..120,
    ) {
        let mut frame = frame(9, &ipv4(0, b"data"));
        for (at, value) in changes {
            let at = at.index(frame.len());
            frame[at] = value;
        }
        frame.truncate(cut);
        let mut decap = rig(&json!({}));
        // The frame with a tag takes the slow path, which must give the same result as the fast path. A changed
        // EtherType may hide the rest of the frame from both paths.
        let (gate, after, _) = run(&mut decap, &frame);
        let (slow, after_slow, _) = run(&mut decap, &tagged(&frame));
        prop_assert_eq!(gate, slow);
        if gate == Gate::FIRST {
            prop_assert_eq!(after, after_slow);
        }
    }
}

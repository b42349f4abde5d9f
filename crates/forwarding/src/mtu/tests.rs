use etherparse::{Ipv4HeaderSlice, PacketBuilder};
use forebay_graph::{Rig, SetupEnvironment};
use forebay_packet::Batch;
use forebay_units::Frequency;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn rig(params: serde_json::Value) -> Rig {
    Rig::of::<Mtu>(&params).expect("parameters")
}

/// Returns an IPv4 packet with these options, this flags and offset word, and this payload.
fn ipv4(options: &[u8], flags: u16, payload: &[u8]) -> Vec<u8> {
    let mut header = Ipv4 {
        version_ihl: 0x45 + (options.len() / 4) as u8,
        traffic_class: 0xb8,
        total_length: ((20 + options.len() + payload.len()) as u16).into(),
        identification: 0x1234.into(),
        flags_fragment: flags.into(),
        ttl: 9,
        protocol: 17,
        checksum: 0.into(),
        source: [10, 0, 0, 1],
        destination: [192, 0, 2, 1],
    };
    header.update_checksum(options);
    [&[2; 12][..], &[8, 0], zerocopy::IntoBytes::as_bytes(&header), options, payload].concat()
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 256) as u8).collect()
}

/// Returns the fragments of a frame, the first one first.
fn fragments_of(rig: &mut Rig, frame: &[u8]) -> Vec<Vec<u8>> {
    let (gate, first) = rig.run(frame);
    assert_eq!(gate, Gate::FIRST);
    let later = rig.emitted().into_iter().map(|(packet, gate)| {
        assert_eq!(gate, Gate::FIRST);
        packet.data().to_vec()
    });
    std::iter::once(first).chain(later).collect()
}

#[test]
fn packets_that_fit_and_frames_that_are_not_ip_pass() {
    let mut rig = rig(json!({ "mtu": 100 }));
    for frame in [ipv4(&[], 0x4000, &payload(80)), vec![3; 1_000], ipv4(&[], 0, b"").repeat(1)] {
        assert_eq!(rig.run(&frame), (Gate::FIRST, frame));
    }
    let padded = [&ipv4(&[], 0x4000, &payload(80))[..], &[0; 60]].concat();
    assert_eq!(rig.run(&padded), (Gate::FIRST, padded));
}

#[test]
fn packets_that_may_not_be_fragmented_are_rejected() {
    for (params, gate) in [(json!({ "mtu": 100 }), TOO_BIG), (json!({ "mtu": 100, "too_big": "gate" }), Gate::out(1))] {
        let mut rig = rig(params);
        let mut ipv6 = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([1; 16], [2; 16], 9).udp(1, 2);
        builder.write(&mut ipv6, &[0; 80]).expect("memory");
        for frame in [ipv4(&[], 0x4000, &payload(81)), ipv6] {
            assert_eq!(rig.run(&frame), (gate, frame));
        }
    }
    let frame = ipv4(&[], 0, &payload(81));
    assert_eq!(rig(json!({ "mtu": 100, "fragment": false })).run(&frame).0, TOO_BIG);
    assert!(Rig::of::<Mtu>(&json!({ "mtu": 67 })).is_err());
}

#[test]
fn options_with_the_copy_flag_are_in_every_fragment() {
    // A strict source route is copied, a record of the route is not (RFC 791 section 3.1).
    let options = [137, 7, 4, 1, 2, 3, 4, 7, 3, 4, 1, 0];
    let mut rig = rig(json!({ "mtu": 68 }));
    let fragments = fragments_of(&mut rig, &ipv4(&options, 0, &payload(100)));
    assert_eq!(fragments[0][14], 0x48);
    assert_eq!((fragments[1][14], &fragments[1][34..42]), (0x47, &[137, 7, 4, 1, 2, 3, 4, 0][..]));
    // An option that exceeds the header.
    assert_eq!(rig.run(&ipv4(&[137, 9, 0, 0], 0, &payload(100))).0, BAD_LENGTH);
    let mut longer = ipv4(&[], 0, &payload(100));
    longer[17] += 1;
    assert_eq!(rig.run(&longer).0, BAD_LENGTH, "the header announces more than the frame has");
}

#[test]
fn fragments_keep_the_words_of_their_packet() {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    let words = ["next_hop", "session"].map(|name| Setup::new("m", &mut environment).word(name).expect("a word"));
    let mut rig = Rig::within::<Mtu>(&json!({ "mtu": 100 }), &mut environment).expect("parameters");
    let mut packet = rig.packet(&ipv4(&[], 0, &payload(300)));
    words.into_iter().zip([7, 0x8000_0001]).for_each(|(word, value)| packet.set_word(word, value));
    let mut batch = Batch::with_capacity(1);
    batch.push(packet).expect("room");
    assert_eq!(rig.process(&mut batch), [Some(Gate::FIRST)]);
    let later = rig.emitted();
    assert_eq!(later.len(), 3);
    for fragment in batch.iter().chain(later.iter().map(|(packet, _)| packet)) {
        assert_eq!(words.map(|word| fragment.word(word)), [7, 0x8000_0001]);
    }
}

/// Functions that distribute by session keep a datagram's fragments together, even if the whole packet's session was
/// computed before.
#[test]
fn fragments_are_all_of_one_session() {
    let frame = ipv4(&[], 0, &[&[0, 53, 0, 99, 1, 44, 0, 0][..], &payload(292)].concat());
    for computed_before in [false, true] {
        let mut rig = rig(json!({ "mtu": 100 }));
        let mut packet = rig.packet(&frame);
        let whole = computed_before.then(|| packet.session_hash());
        let mut batch = Batch::with_capacity(1);
        batch.push(packet).expect("room");
        assert_eq!(rig.process(&mut batch), [Some(Gate::FIRST)]);
        let first = batch[0].session_hash();
        assert_ne!(Some(first), whole, "ports are no longer part of the session");
        assert!(rig.emitted().iter_mut().all(|(fragment, _)| fragment.session_hash() == first));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Reassembled by RFC 791 section 3.2, the fragments give the packet.
    #[test]
    fn fragments_are_the_packet(mtu in 68u16..1_500, len in 1usize..1_900, offset in 0u16..100, more: bool) {
        let flags = offset | if more { 0x2000 } else { 0 };
        let whole = payload(len);
        let fragments = fragments_of(&mut rig(json!({ "mtu": mtu })), &ipv4(&[], flags, &whole));
        let mut found = vec![None; len];
        for (number, frame) in fragments.iter().enumerate() {
            let header = Ipv4HeaderSlice::from_slice(&frame[14..]).expect("a header");
            prop_assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
            let total = 14 + usize::from(header.total_len());
            prop_assert_eq!((header.identification(), header.ttl(), frame.len()), (0x1234, 9, total));
            prop_assert!(header.total_len() <= mtu);
            let at = 8 * usize::from(header.fragments_offset().value() - offset);
            for (slot, byte) in found[at..].iter_mut().zip(&frame[34..]) {
                prop_assert!(slot.replace(*byte).is_none(), "no byte is in two fragments");
            }
            let last = number + 1 == fragments.len();
            prop_assert_eq!(header.more_fragments(), more || !last);
        }
        prop_assert_eq!(found.into_iter().collect::<Option<Vec<_>>>(), Some(whole));
    }
}

/// Regression: fragments of a packet with a wrong header checksum had correct checksums, so that the next host accepted
/// a corrupted packet.
#[test]
fn a_wrong_header_checksum_is_wrong_in_every_fragment() {
    for options in [&[][..], &[137, 7, 4, 1, 2, 3, 4, 7, 3, 4, 1, 0]] {
        let correct = ipv4(options, 0, &payload(300));
        let sum = u16::from_be_bytes([correct[24], correct[25]]);
        for wrong in [0, 1, 0x7fff, 0x8000, 0xfffe, 0xffff, !sum, sum ^ 1, sum.swap_bytes()] {
            let mut frame = correct.clone();
            frame[24..26].copy_from_slice(&wrong.to_be_bytes());
            let error = forebay_packet::wire::checksum::sum(&frame[14..34 + options.len()]);
            let fragments = fragments_of(&mut rig(json!({ "mtu": 100 })), &frame);
            assert!(fragments.len() > 3);
            for fragment in fragments {
                let length = usize::from(fragment[14] & 0xf) * 4;
                assert_eq!(forebay_packet::wire::checksum::sum(&fragment[14..14 + length]), error, "{wrong:x}");
            }
        }
    }
}

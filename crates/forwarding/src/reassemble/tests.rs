//! Datagrams that are cut and put together again, limits, and invalid fragments.

use etherparse::{Ipv4HeaderSlice, PacketBuilder};
use forebay_graph::{Decision, Rig, SetupEnvironment};
use forebay_packet::Batch;
use forebay_units::Frequency;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::mtu::Mtu;

fn rig(params: serde_json::Value) -> Rig {
    Rig::of::<Reassemble>(&params).expect("parameters")
}

fn ipv4(number: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [192, 0, 2, 1], 64).udp(1, 2);
    builder.write(&mut frame, payload).expect("memory");
    frame[18..20].copy_from_slice(&number.to_be_bytes());
    frame[20..22].fill(0);
    frame[24..26].fill(0);
    let sum = forebay_packet::wire::checksum::sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&(!sum).to_ne_bytes());
    frame
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 256) as u8).collect()
}

/// Returns the fragments that `mtu` makes of a frame.
fn cut(mtu: u16, frame: &[u8]) -> Vec<Vec<u8>> {
    let mut rig = Rig::of::<Mtu>(&json!({ "mtu": mtu })).expect("parameters");
    let (_, first) = rig.run(frame);
    let later = rig.emitted().into_iter().map(|(packet, _)| packet.data().to_vec());
    std::iter::once(first).chain(later).collect()
}

/// Returns an IPv6 fragment of the datagram with this identification: the payload `bytes` at offset `start`.
fn part_v6(number: u32, start: usize, bytes: &[u8], more: bool) -> Vec<u8> {
    let field = (start as u16) | u16::from(more);
    let length = (8 + bytes.len()) as u16;
    [
        &[2; 12][..],
        &[0x86, 0xdd, 0x60, 0, 0, 0],
        &length.to_be_bytes(),
        &[44, 9],
        &[1; 16],
        &[2; 16],
        &[17, 0],
        &field.to_be_bytes(),
        &number.to_be_bytes(),
        bytes,
    ]
    .concat()
}

/// Runs a batch. Returns the datagrams that leave, and the gates of the other fragments.
fn run(rig: &mut Rig, frames: &[Vec<u8>]) -> (Vec<Vec<u8>>, Vec<Gate>) {
    let mut batch = Batch::with_capacity(frames.len().max(1));
    for frame in frames {
        batch.push(rig.packet(frame)).expect("room");
    }
    let gates = rig.process(&mut batch);
    let mut whole = Vec::new();
    let mut ended = Vec::new();
    let mut remaining = batch.iter();
    for gate in gates.into_iter().flatten() {
        let packet = remaining.next().expect("a packet for each gate");
        if gate == Gate::FIRST { whole.push(packet.data().to_vec()) } else { ended.push(gate) }
    }
    ended.extend(rig.emitted().into_iter().map(|(_, gate)| gate));
    (whole, ended)
}

#[test]
fn a_datagram_of_ipv4_leaves_as_it_was() {
    let frame = ipv4(7, &payload(700));
    let fragments = cut(300, &frame);
    assert_eq!(fragments.len(), 3);
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
        let ordered: Vec<_> = order.iter().map(|at| fragments[*at].clone()).collect();
        // In one batch, and one by one.
        let mut rig = rig(json!({}));
        assert_eq!(run(&mut rig, &ordered), (vec![frame.clone()], vec![REASSEMBLED; 2]));
        assert_eq!(rig.held(), 0);
        let mut all = (Vec::new(), Vec::new());
        for fragment in &ordered {
            let (whole, ended) = run(&mut rig, std::slice::from_ref(fragment));
            all.0.extend(whole);
            all.1.extend(ended);
        }
        assert_eq!(all, (vec![frame.clone()], vec![REASSEMBLED; 2]));
        assert_eq!((rig.held(), rig.counters("datagrams")["whole"]), (0, 2));
    }
}

#[test]
fn a_datagram_of_ipv6_loses_its_fragment_header() {
    let mut whole = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [2; 6]).ipv6([1; 16], [2; 16], 9).udp(1, 2);
    builder.write(&mut whole, &payload(92)).expect("memory");
    whole[..12].fill(2);
    let bytes = &whole[54..];
    let mut rig = rig(json!({}));
    let parts = [part_v6(5, 0, &bytes[..48], true), part_v6(5, 48, &bytes[48..], false)];
    assert_eq!(run(&mut rig, &parts), (vec![whole.clone()], vec![REASSEMBLED]));
    // A fragment that is its whole datagram, with padding after it.
    let atomic = [&part_v6(6, 0, bytes, false)[..], &[0; 9]].concat();
    assert_eq!(run(&mut rig, &[atomic]), (vec![whole], vec![]));
}

/// Runs fragments, each with a value of a metadata word. Returns the datagrams that leave, with their values.
fn run_with(rig: &mut Rig, word: Word, fragments: &[(&Vec<u8>, u32)]) -> Vec<(Vec<u8>, u32)> {
    let mut batch = Batch::with_capacity(fragments.len());
    for (frame, value) in fragments {
        let mut packet = rig.packet(frame);
        packet.set_word(word, *value);
        batch.push(packet).expect("room");
    }
    let gates = rig.process(&mut batch);
    let with_gates = gates.into_iter().flatten().zip(batch.iter());
    let whole = with_gates.filter(|(gate, _)| *gate == Gate::FIRST);
    whole.map(|(_, packet)| (packet.data().to_vec(), packet.word(word))).collect()
}

/// Regression: the datagram had the metadata words of its last fragment, although its headers came from the first
/// fragment, which may belong to another tunnel.
#[test]
fn a_datagram_has_the_metadata_words_of_its_first_fragment() {
    let frame = ipv4(7, &payload(700));
    let fragments = cut(300, &frame);
    let word = Word::new(3).expect("a word");
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
        let with = order.map(|at: usize| (&fragments[at], at as u32 + 5));
        let mut rig = rig(json!({}));
        assert_eq!(run_with(&mut rig, word, &with), [(frame.clone(), 5)], "in one batch: {order:?}");
        let one_by_one: Vec<_> = with.iter().flat_map(|one| run_with(&mut rig, word, &[*one])).collect();
        assert_eq!(one_by_one, [(frame.clone(), 5)], "one by one: {order:?}");
    }
}

/// Regression: a fragment from another user's tunnel became part of the datagram.
#[test]
fn fragments_of_other_tunnels_belong_to_other_datagrams_if_words_are_named() {
    let (frame, other) = (ipv4(7, &payload(500)), ipv4(7, &payload(500).iter().map(|byte| !byte).collect::<Vec<_>>()));
    let (parts, others) = (cut(300, &frame), cut(300, &other));
    let six = |byte: u8| [part_v6(5, 0, &[byte; 48], true), part_v6(5, 48, &[byte; 48], false)];
    for (parts, others) in [(&parts[..], &others[..]), (&six(1), &six(2))] {
        let mut around = SetupEnvironment::new(Frequency::new(1e9));
        let mut rig = Rig::within::<Reassemble>(&json!({ "words": ["teid", "vni"] }), &mut around).expect("parameters");
        let word = around.words["vni"];
        let mixed = run_with(&mut rig, word, &[(&parts[0], 1), (&others[1], 2)]);
        assert_eq!((mixed, rig.held()), (Vec::new(), 2));
        let whole = run_with(&mut rig, word, &[(&others[0], 2), (&parts[1], 1)]);
        assert_eq!(whole.iter().map(|(_, value)| *value).collect::<Vec<_>>(), [2, 1]);
        let alone = |parts: &[Vec<u8>]| run(&mut self::rig(json!({})), parts).0;
        assert_eq!([&whole[0].0, &whole[1].0], [&alone(others)[0], &alone(parts)[0]]);
    }
    for (words, part) in [
        (json!(["a", "b", "c"]), "words: 3 words: allowed are up to 2"),
        (json!([""]), "words[0]: the name is empty: give a name such as teid"),
    ] {
        let error = Rig::of::<Reassemble>(&json!({ "words": words })).err().expect("refused").to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn overlapping_fragments_drop_their_datagram_and_its_later_fragments() {
    let bytes = payload(160);
    for overlap in [
        part_v6(5, 40, &bytes[40..120], true),
        part_v6(5, 0, &bytes[..40], true),
        part_v6(5, 0, &bytes[..56], true),
        part_v6(5, 8, &bytes[8..40], false),
    ] {
        let mut rig = rig(json!({}));
        let first = part_v6(5, 0, &bytes[..48], true);
        assert_eq!(run(&mut rig, &[first.clone(), first.clone()]), (vec![], vec![DUPLICATE]));
        assert_eq!(run(&mut rig, &[overlap]), (vec![], vec![OVERLAP; 2]));
        assert_eq!(run(&mut rig, &[part_v6(5, 48, &bytes[48..], false)]), (vec![], vec![OVERLAP]));
        assert_eq!(rig.held(), 0);
        // Another datagram is not affected.
        let (whole, _) = run(&mut rig, &[part_v6(6, 0, &bytes[..48], true), part_v6(6, 48, &bytes[48..], false)]);
        assert_eq!(whole.len(), 1);
    }
}

#[test]
fn impossible_fragments_are_dropped() {
    let bytes = payload(64);
    let mut rig = rig(json!({}));
    for frame in [
        part_v6(1, 0, &bytes[..7], true),
        part_v6(1, 8, &[], false),
        part_v6(1, 65_528, &bytes[..40], false),
        // The first fragment lacks the ports of UDP.
        part_v6(1, 0, &[0; 0], true),
        cut(300, &ipv4(7, &payload(700)))[1][..100].to_vec(),
    ] {
        assert_eq!(run(&mut rig, std::slice::from_ref(&frame)), (vec![], vec![MALFORMED]), "{frame:02x?}");
    }
    assert_eq!(rig.held(), 0);
}

#[test]
fn incomplete_datagrams_time_out() {
    for (params, gate) in [(json!({}), TIMED_OUT), (json!({ "timed_out": "gate" }), Gate::out(1))] {
        let mut rig = rig(params);
        let fragments = cut(300, &ipv4(7, &payload(700)));
        run(&mut rig, &fragments[..2]);
        assert_eq!((rig.held(), rig.wakes_at()), (2, Some(Ticks(30_000_000_000))));
        rig.now = Ticks(30_000_000_000);
        rig.wake();
        let ended: Vec<_> = rig.emitted().into_iter().map(|(packet, gate)| (packet.data().to_vec(), gate)).collect();
        assert_eq!(ended, [(fragments[0].clone(), gate), (fragments[1].clone(), TIMED_OUT)]);
        assert_eq!((rig.held(), rig.wakes_at()), (0, None));
    }
}

#[test]
fn limits_of_waiting_fragments_evict_the_oldest_datagram() {
    let fragments: Vec<_> = (0..4).map(|number| cut(300, &ipv4(number, &payload(700)))).collect();
    let firsts: Vec<_> = fragments.iter().map(|all| all[0].clone()).collect();
    let mut rig = rig(json!({ "datagrams": 2 }));
    assert_eq!(run(&mut rig, &firsts[..3]), (vec![], vec![EVICTED]));
    assert_eq!(run(&mut rig, &firsts[3..]), (vec![], vec![EVICTED]));
    let (whole, _) = run(&mut rig, &fragments[3][1..]);
    assert_eq!((whole.len(), rig.held()), (1, 1));
    let mut rig = self::rig(json!({ "held": 3 }));
    assert_eq!(run(&mut rig, &[&fragments[0][..2], &fragments[1][..1]].concat()).1, []);
    assert_eq!(run(&mut rig, &fragments[2][..1]), (vec![], vec![EVICTED; 2]));
    assert_eq!(rig.held(), 2);
}

/// A fragment that is not held evicts no datagram: a duplicate, a fragment of a datagram that was given up, or the
/// fragment that completes its datagram.
#[test]
fn a_fragment_that_is_not_held_evicts_no_datagram() {
    let bytes = payload(160);
    let part = |number, start: usize, end, more| part_v6(number, start, &bytes[start..end], more);
    let mut rig = rig(json!({ "held": 3 }));
    run(&mut rig, &[part(1, 0, 48, true), part(2, 0, 48, true), part(2, 40, 80, true)]);
    run(&mut rig, &[part(3, 0, 48, true)]);
    // One fragment of the first datagram and one of the third; the second was given up.
    assert_eq!(rig.held(), 2);
    assert_eq!(run(&mut rig, &[part(3, 0, 48, true), part(2, 48, 96, true)]), (vec![], vec![DUPLICATE, OVERLAP]));
    let (whole, ended) = run(&mut rig, &[part(1, 48, 96, false)]);
    assert_eq!((whole.len(), ended, rig.held()), (1, vec![REASSEMBLED], 1));
}

/// Datagrams that were given up hold no packets, but they do not raise the limit for other datagrams.
#[test]
fn datagrams_that_were_given_up_do_not_raise_the_limit() {
    let bytes = payload(160);
    let part = |number, start: usize, end, more| part_v6(number, start, &bytes[start..end], more);
    for spoilt in 0..9 {
        let mut rig = rig(json!({ "held": 4 }));
        for number in 0..spoilt {
            run(&mut rig, &[part(number, 0, 48, true), part(number, 40, 80, true)]);
        }
        for number in 100..120 {
            run(&mut rig, &[part(number, 0, 48, true)]);
            assert!(rig.held() <= 4, "{} wait", rig.held());
        }
        assert_eq!(rig.held(), 4);
    }
}

/// A datagram with more fragments than may wait evicts itself completely.
#[test]
fn a_datagram_with_more_fragments_than_may_wait_is_dropped_whole() {
    let bytes = payload(160);
    let mut rig = rig(json!({ "held": 2 }));
    let parts = [0, 48, 96].map(|start| part_v6(7, start, &bytes[start..start + 48], true));
    assert_eq!(run(&mut rig, &parts), (vec![], vec![EVICTED; 3]));
    assert_eq!(rig.held(), 0);
}

#[test]
fn congestion_is_passed_on_or_the_datagram_is_dropped() {
    let mark = |frame: &[u8], ecn: u8| {
        let mut frame = frame.to_vec();
        let (sum, old) = (u16::from_be_bytes([frame[24], frame[25]]), frame[15]);
        frame[15] |= ecn;
        let sum = forebay_packet::wire::checksum::replace16(sum, old.into(), frame[15].into());
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    let fragments = cut(300, &ipv4(7, &payload(300)));
    let (whole, _) = run(&mut rig(json!({})), &[mark(&fragments[0], 2), mark(&fragments[1], 3)]);
    assert_eq!(whole[0][15], 3);
    let header = Ipv4HeaderSlice::from_slice(&whole[0][14..]).expect("a header");
    assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
    let both = [fragments[0].clone(), mark(&fragments[1], 3)];
    assert_eq!(run(&mut rig(json!({})), &both), (vec![], vec![CONGESTION; 2]));
}

#[test]
fn a_datagram_that_does_not_fit_into_a_chunk_is_too_long() {
    let bytes = payload(3_000);
    let parts = [part_v6(5, 0, &bytes[..1_200], true), part_v6(5, 1_200, &bytes[1_200..2_400], false)];
    let mut rig = rig(json!({}));
    assert_eq!(run(&mut rig, &parts), (vec![], vec![TOO_LONG; 2]));
    assert_eq!(rig.held(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 128, ..ProptestConfig::default() })]

    /// Fragments of several datagrams in any order, some of them missing: each datagram that is complete leaves
    /// unchanged, no other leaves, and no fragment is lost.
    #[test]
    fn only_complete_datagrams_leave_and_no_fragment_is_lost(
        sizes in prop::collection::vec((20usize..1_400, 68u16..600), 1..6),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..120),
        lost in prop::collection::vec(any::<prop::sample::Index>(), 0..2),
        calls in 1usize..9,
    ) {
        let sent: Vec<_> = sizes.iter().zip(0..).map(|((size, _), number)| ipv4(number, &payload(*size))).collect();
        let mut fragments: Vec<(usize, Vec<u8>)> = Vec::new();
        for (number, (frame, (_, mtu))) in sent.iter().zip(&sizes).enumerate() {
            let parts = cut(*mtu, frame);
            prop_assume!(parts.len() <= 64);
            fragments.extend(parts.into_iter().map(|part| (number, part)));
        }
        let mut broken = vec![false; sent.len()];
        for at in lost {
            let (number, _) = fragments.remove(at.index(fragments.len()));
            broken[number] = true;
            if fragments.is_empty() { return Ok(()); }
        }
        let len = fragments.len();
        for (at, other) in order.iter().enumerate() {
            fragments.swap(at % len, other.index(len));
        }
        let mut rig = rig(json!({}));
        let (mut out, mut ended) = (Vec::new(), 0);
        for chunk in fragments.chunks(calls) {
            let frames: Vec<_> = chunk.iter().map(|(_, frame)| frame.clone()).collect();
            let (whole, gates) = run(&mut rig, &frames);
            ended += gates.len();
            prop_assert!(gates.iter().all(|gate| matches!(gate.decision(), Decision::Consume(0))), "{:?}", gates);
            out.extend(whole);
        }
        prop_assert_eq!(out.len() + ended + rig.held(), len);
        let complete = sent.iter().zip(&broken).filter(|(_, broken)| !**broken);
        let mut expected: Vec<_> = complete.map(|(frame, _)| frame.clone()).collect();
        expected.sort();
        out.sort();
        prop_assert_eq!(out, expected);
    }
}

/// Regression: a datagram whose fragments had wrong header checksums left with a right one.
#[test]
fn a_fragment_with_a_wrong_header_checksum_is_dropped() {
    let fragments = cut(100, &ipv4(7, &payload(200)));
    for wrong in 0..fragments.len() {
        let mut frames = fragments.clone();
        frames[wrong][24] ^= 0x10;
        let mut rig = rig(json!({}));
        let (whole, gates) = run(&mut rig, &frames);
        assert_eq!((whole.len(), gates.iter().filter(|gate| **gate == BAD_CHECKSUM).count()), (0, 1), "{wrong}");
        // The right fragment completes the datagram.
        assert_eq!(run(&mut rig, &fragments[wrong..=wrong]).0.len(), 1);
    }
}

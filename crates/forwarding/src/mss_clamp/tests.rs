//! Options at every offset, checksums, and a second, simple parser of the options.

use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
use forebay_graph::{Gate, Rig};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn rig(params: serde_json::Value) -> Rig {
    Rig::of::<MssClamp>(&params).expect("parameters")
}

/// Returns a TCP segment with these flags and options and a correct checksum.
fn segment(six: bool, flags: u8, options: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]);
    let builder = if six {
        builder.ipv6([0x20; 16], [0x30; 16], 64)
    } else {
        builder.ipv4([192, 0, 2, 1], [198, 51, 100, 9], 64)
    };
    let mut tcp = builder.tcp(1_000, 80, 7, 1_024);
    if flags & 0x02 != 0 {
        tcp = tcp.syn();
    }
    if flags & 0x10 != 0 {
        tcp = tcp.ack(9);
    }
    let tcp = tcp.options_raw(options).expect("up to 40 bytes");
    let mut frame = Vec::new();
    tcp.write(&mut frame, b"data!").expect("memory");
    frame
}

fn is_sum_correct(frame: &[u8]) -> bool {
    let sliced = SlicedPacket::from_ethernet(frame).expect("a frame");
    let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { return false };
    let expected = match sliced.net.expect("a network layer") {
        etherparse::NetSlice::Ipv4(it) => tcp.calc_checksum_ipv4(it.header().source(), it.header().destination()),
        etherparse::NetSlice::Ipv6(it) => tcp.calc_checksum_ipv6(it.header().source(), it.header().destination()),
        etherparse::NetSlice::Arp(_) => return false,
    };
    expected == Ok(tcp.checksum())
}

#[test]
fn sizes_are_those_of_rfc_6691() {
    for (six, at, params, before, after) in [
        (false, 56, json!({ "mtu": 1400 }), 1_460u16, 1_360u16),
        (true, 76, json!({ "mtu": 1400 }), 1_440, 1_340),
        (true, 76, json!({ "mtu": 68 }), 1_440, 1_220),
        (false, 56, json!({ "mtu": 68 }), 1_460, 28),
        (false, 56, json!({ "mss": 1200 }), 1_460, 1_200),
        (true, 76, json!({ "mss": 1200 }), 1_440, 1_200),
        (false, 56, json!({ "mtu": 1400 }), 1_000, 1_000),
        (false, 56, json!({ "mtu": 1400 }), 1_360, 1_360),
    ] {
        for flags in [0x02, 0x12] {
            let [high, low] = before.to_be_bytes();
            let frame = segment(six, flags, &[2, 4, high, low]);
            let mut rig = rig(params.clone());
            let (gate, clamped) = rig.run(&frame);
            assert_eq!(clamped[at..at + 2], after.to_be_bytes(), "{params} {before}");
            assert!(gate == Gate::FIRST && is_sum_correct(&clamped));
            assert_eq!(rig.counters("segments")["clamped"], u64::from(before != after));
            // Behind two tags, too.
            let tagged = |frame: &[u8]| [&frame[..12], &[0x81, 0, 0, 5].repeat(2), &frame[12..]].concat();
            assert_eq!(rig.run(&tagged(&frame)).1, tagged(&clamped));
        }
        // A segment without SYN has no valid size.
        let [high, low] = before.to_be_bytes();
        let frame = segment(six, 0x10, &[2, 4, high, low]);
        assert_eq!(rig(params).run(&frame).1, frame);
    }
}

#[test]
fn headers_are_found_behind_extension_headers_and_in_the_first_fragment_only() {
    let plain = segment(true, 0x02, &[2, 4, 0x05, 0xa0]);
    let behind = |extension: [u8; 8], first: u8| {
        let mut frame = [&plain[..54], &extension, &plain[54..]].concat();
        frame[20] = first;
        frame[19] += 8;
        frame
    };
    let clamped = |frame: &[u8]| rig(json!({ "mss": 1200 })).run(frame).1 != frame;
    assert!(clamped(&behind([6, 0, 1, 4, 0, 0, 0, 0], 60)));
    assert!(clamped(&behind([6, 0, 0, 1, 0, 0, 0, 9], 44)), "the first fragment");
    assert!(!clamped(&behind([6, 0, 0, 9, 0, 0, 0, 9], 44)), "a later fragment");
}

/// Regression: an authentication header's integrity check covers the segment (RFC 4302 section 3.3.3). A lowered size
/// broke it, and the receiver dropped the packet.
#[test]
fn an_authenticated_segment_is_not_changed() {
    let plain = segment(true, 0x02, &[2, 4, 0x05, 0xa0]);
    let behind = |first: u8, extensions: &[&[u8]]| {
        let extensions = extensions.concat();
        let mut frame = [&plain[..54], &extensions, &plain[54..]].concat();
        frame[20] = first;
        frame[19] += extensions.len() as u8;
        frame
    };
    let options = |next| [next, 0, 1, 4, 0, 0, 0, 0];
    let whole = |next| [next, 0xff, 0, 0, 0, 0, 0, 9];
    // 24 bytes: the length field counts words of 4 bytes, less two.
    let authentication = |next| [[next, 4].as_slice(), &[7; 22]].concat();
    let mut rig = rig(json!({ "mss": 1200 }));
    for (first, extensions) in [
        (51, vec![authentication(6)]),
        (51, vec![authentication(60), options(6).to_vec()]),
        (0, vec![options(60).to_vec(), options(51).to_vec(), authentication(6)]),
        (44, vec![whole(51).to_vec(), authentication(6)]),
    ] {
        let extensions: Vec<&[u8]> = extensions.iter().map(Vec::as_slice).collect();
        let frame = behind(first, &extensions);
        for tags in 0..=4 {
            let tagged = [&frame[..12], &[0x81, 0, 0, 5].repeat(tags), &frame[12..]].concat();
            assert_eq!(rig.run(&tagged), (Gate::FIRST, tagged.clone()), "{first}, {tags} tags");
        }
    }
    assert_eq!(rig.counters("segments")["clamped"], 0);
    for frame in [behind(44, &[&whole(6)]), behind(60, &[&options(6)])] {
        for tags in 0..=4 {
            let tagged = [&frame[..12], &[0x81, 0, 0, 5].repeat(tags), &frame[12..]].concat();
            assert_ne!(rig.run(&tagged).1, tagged, "no authentication, {tags} tags");
        }
    }
    // In IPv4 the authentication header is the protocol above IP, which is then not TCP.
    let mut frame = segment(false, 0x02, &[2, 4, 0x05, 0xb4]);
    frame[23] = 51;
    frame.splice(34..34, authentication(6));
    frame[17] += 24;
    assert_eq!(rig.run(&frame).1, frame);
}

#[test]
fn parameters_are_one_of_two() {
    for (params, error) in [
        (json!({}), "mtu: missing: write `mtu` or `mss`"),
        (json!({ "mtu": 1400, "mss": 1360 }), "mss: not allowed together with `mtu`"),
        (json!({ "mtu": 67 }), "mtu: 67: allowed are 68 to 65535 bytes"),
        (json!({ "mss": 27 }), "mss: 27: allowed are 28 to 65495 bytes"),
    ] {
        let refused = Rig::of::<MssClamp>(&params).err().expect("refused").to_string();
        assert!(refused.starts_with(error), "{refused}");
    }
}

/// Returns the offsets of the sizes in a header's valid options, by another method: from a list of the options.
fn sizes(header: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut rest: Vec<(usize, u8)> = header.iter().copied().enumerate().skip(20).rev().collect();
    while let Some((at, kind)) = rest.pop() {
        if kind == 0 {
            break;
        }
        if kind == 1 {
            continue;
        }
        let Some((_, size)) = rest.pop() else { break };
        let Some(remaining) = rest.len().checked_sub(usize::from(size.saturating_sub(2))).filter(|_| size >= 2) else {
            break;
        };
        rest.truncate(remaining);
        if (kind, size) == (2, 4) {
            found.push(at + 2);
        }
    }
    found
}

fn options() -> impl Strategy<Value = Vec<u8>> {
    let option = prop_oneof![
        4 => any::<[u8; 2]>().prop_map(|[high, low]| vec![2, 4, high, low]),
        4 => Just(vec![1]),
        1 => Just(vec![0]),
        2 => (3u8..30, prop::collection::vec(any::<u8>(), 0..6))
            .prop_map(|(kind, data)| [&[kind, data.len() as u8 + 2][..], &data].concat()),
        1 => any::<[u8; 2]>().prop_map(|it| it.to_vec()),
    ];
    prop::collection::vec(option, 0..9).prop_map(|all| {
        let mut bytes = all.concat();
        bytes.truncate(40);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn each_larger_size_is_lowered_and_nothing_else(
        six: bool, options in options(), most in 28u16..2_000, wrong: u16, syn: bool,
    ) {
        let start = if six { 54 } else { 34 };
        let mut frame = segment(six, if syn { 2 } else { 16 }, &options);
        // A wrong checksum stays wrong.
        frame[start + 16] ^= (wrong >> 8) as u8;
        frame[start + 17] ^= wrong as u8;
        let correct = is_sum_correct(&frame);
        let (_, after) = rig(json!({ "mss": most })).run(&frame);
        let mut expected = frame.clone();
        let header = start..start + 20 + options.len();
        for at in sizes(&frame[header]) {
            let size = &mut expected[start + at..start + at + 2];
            if syn && size > &mut most.to_be_bytes()[..] {
                size.copy_from_slice(&most.to_be_bytes());
            }
        }
        let sum = start + 16..start + 18;
        prop_assert_eq!(is_sum_correct(&after), correct);
        expected[sum.clone()].copy_from_slice(&after[sum]);
        prop_assert_eq!(after, expected);
    }

    #[test]
    fn no_bytes_are_written_beyond_the_header(bytes in prop::collection::vec(any::<u8>(), 0..80), most: u16) {
        let mut after = bytes.clone();
        lower(&mut after, most);
        let length = bytes.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4).min(bytes.len());
        prop_assert_eq!(&after[length..], &bytes[length..]);
        prop_assert_eq!(&after[..length.min(16)], &bytes[..length.min(16)]);
    }
}

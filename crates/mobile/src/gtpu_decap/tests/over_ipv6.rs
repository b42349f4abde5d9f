//! The tests of `gtpu_decap` over IPv6.

use forebay_frames::{HERE_6, THERE_6, outer_ipv6};
use forebay_packet::wire::udp;
use zerocopy::IntoBytes;

use super::*;

/// Returns a frame with a message, as etherparse writes it.
fn frame(flags: u8, kind: u8, teid: u32, body: &[u8]) -> Vec<u8> {
    outer_ipv6(0, 0x12345, (40_000, 2_152), &message(flags, kind, teid, body))
}

/// Returns the frame with extension headers before UDP.
fn extended(frame: &[u8], first: u8, headers: &[u8]) -> Vec<u8> {
    let mut frame = [&frame[..54], headers, &frame[54..]].concat();
    let length = (frame.len() - 54) as u16;
    frame[18..20].copy_from_slice(&length.to_be_bytes());
    frame[20] = first;
    frame
}

#[test]
fn inner_packets_come_out_with_their_tunnels() {
    let mut rig = rig(&[("local", json!(["192.0.2.10", "2001:db8::10"]))]);
    for inner in [ipv4(0x2a, b"data"), ipv6(0xff, &[7; 90]), ipv4(0, b"")] {
        let body = &inner[14..];
        let plain = frame(0x30, 255, TEID, body);
        let container = frame(0x34, 255, TEID, &[&[0, 0, 0, 0x85, 1, 0x10, 9, 0][..], body].concat());
        let marked = outer_ipv6(0xb8 | 2, 0, (2_152, 2_152), &message(0x30, 255, TEID, body));
        let options = extended(&plain, 60, &[17, 0, 1, 4, 0, 0, 0, 0]);
        // An atomic fragment: a datagram in a single fragment (RFC 6946).
        let atomic = extended(&plain, 44, &[17, 0, 0, 0, 0, 0, 0, 9]);
        let padded = [&plain[..], &[0; 5]].concat();
        for frame in [plain.clone(), container, marked, options, atomic, tagged(&plain), padded] {
            assert_eq!(run(&mut rig, &frame), (Gate::FIRST, inner.clone(), TEID), "{frame:02x?}");
        }
        // A datagram over IPv4 to the other local address works, too.
        let over4 = outer(0, (40_000, 2_152), false, &message(0x30, 255, TEID, body));
        assert_eq!(run(&mut rig, &over4), (Gate::FIRST, inner.clone(), TEID));
    }
    assert!(rig.emitted().is_empty());
}

#[test]
fn congestion_is_passed_on() {
    let mut rig = rig(&[]);
    let marked = |inner: &[u8], class: u8| outer_ipv6(class, 7, (1, 2_152), &message(0x30, 255, TEID, &inner[14..]));
    for inner in [ipv4, ipv6] {
        assert_eq!(run(&mut rig, &marked(&inner(0x28 | 2, b"x"), 3)).1, inner(0x28 | 3, b"x"));
        assert_eq!(run(&mut rig, &marked(&inner(0x28, b"x"), 3)).0, CONGESTION);
    }
}

#[test]
fn invalid_packets_have_their_reason() {
    let mut rig_here = rig(&[("local", json!(["2001:db8::10"]))]);
    let inner = ipv4(0, b"data");
    let good = frame(0x30, 255, TEID, &inner[14..]);
    let with = |changes: &[(usize, u8)]| {
        let mut frame = good.clone();
        changes.iter().for_each(|(at, value)| frame[*at] = *value);
        frame
    };
    let over4 = outer(0, (40_000, 2_152), false, &message(0x30, 255, TEID, &inner[14..]));
    let cases = [
        (with(&[(20, 6)]), NOT_GTPU, "TCP"),
        (with(&[(57, 0x69)]), NOT_GTPU, "another port"),
        (with(&[(53, 0x11)]), BAD_CHECKSUM, "another address, which changes the sum"),
        (with(&[(53, 0x11), (69, 0x00)]), NOT_GTPU, "another address, with a correct sum"),
        (over4, NOT_GTPU, "an IPv4 address, but only an IPv6 address is listed"),
        (extended(&good, 44, &[17, 0, 0, 1, 0, 0, 0, 9]), FRAGMENT, "the first fragment"),
        (extended(&good, 44, &[17, 0, 0, 9, 0, 0, 0, 9]), FRAGMENT, "a later fragment"),
        (extended(&good, 44, &[6, 0, 0, 9, 0, 0, 0, 9]), NOT_GTPU, "another protocol's fragment"),
        (with(&[(19, 200)]), BAD_LENGTH, "longer than the frame"),
        (with(&[(19, 7)]), BAD_LENGTH, "no room for UDP"),
        (with(&[(19, 0)]), BAD_LENGTH, "a jumbo payload"),
        (with(&[(59, 200)]), BAD_LENGTH, "UDP longer than IP"),
        (with(&[(59, 7)]), BAD_LENGTH, "UDP shorter than itself"),
        (with(&[(60, good[60] ^ 1)]), BAD_CHECKSUM, "a wrong UDP checksum"),
        (with(&[(60, 0), (61, 0)]), BAD_CHECKSUM, "no checksum"),
        (good[..56].to_vec(), BAD_LENGTH, "a cut header"),
        (extended(&good, 60, &[17, 9, 1, 4, 0, 0, 0, 0]), BAD_LENGTH, "options that do not end"),
        (frame(0x30, 255, 1, &inner[14..]), UNKNOWN_TEID, "a tunnel that does not exist"),
        (frame(0x30, 255, TEID, &inner[14..33]), NOT_IP, "a cut inner header"),
        (outer_ipv6(0, 0, (1, 2_152), &[0x30; 7]), MALFORMED, "seven bytes"),
    ];
    for (frame, gate, what) in cases {
        let (gate_after, after, _) = run(&mut rig_here, &frame);
        assert_eq!((gate_after, after), (gate, frame), "{what}");
    }
    let mut elsewhere = rig(&[("local", json!(["2001:db8::11"]))]);
    assert_eq!(run(&mut elsewhere, &good).0, NOT_GTPU);
    // RFC 6935 allows tunnels without checksum if both ends are configured so.
    let mut trusting = rig(&[("verify", json!(false))]);
    assert_eq!(run(&mut trusting, &with(&[(60, 0), (61, 0)])).0, Gate::FIRST);
}

#[test]
fn echo_requests_become_responses() {
    let mut rig = rig(&[]);
    let request = outer_ipv6(0xb8, 7, (40_000, 2_152), &message(0x32, 1, 0, &[0x12, 0x34, 0, 0]));
    for (request, link) in [(request.clone(), 14), (tagged(&request), 18)] {
        let (gate, answer, _) = run(&mut rig, &request);
        assert_eq!(gate, REPLY);
        assert_eq!(answer[..12], [FROM, TO].concat());
        assert_eq!(answer[12..link], request[12..link], "the tag stays");
        let ip = &answer[link..];
        assert_eq!(ip[..8], [0x6b, 0x80, 0, 0, 0, 22, 17, 64]);
        assert_eq!(ip[8..40], [THERE_6, HERE_6].concat());
        assert_eq!(ip[40..46], [0x08, 0x68, 0x9c, 0x40, 0, 22], "from 2152 to the source port");
        assert_eq!(ip[48..], [0x32, 2, 0, 6, 0, 0, 0, 0, 0x12, 0x34, 0, 0, 14, 0]);
        let mut datagram = ip[40..].to_vec();
        let stored: [u8; 2] = [datagram[6], datagram[7]];
        datagram[6..8].fill(0);
        let ip = etherparse::Ipv6Header { source: THERE_6, destination: HERE_6, ..Default::default() };
        let expected = etherparse::UdpHeader::with_ipv6_checksum(2_152, 40_000, &ip, &datagram[8..]).expect("short");
        assert_eq!(u16::from_be_bytes(stored), expected.checksum);
    }
    // No answer goes to a multicast address or the unspecified address.
    for source in [[0xff; 16], [0; 16]] {
        let mut strange = request.clone();
        strange[22..38].copy_from_slice(&source);
        let ip = forebay_packet::wire::ipv6::Ipv6::ref_from_prefix(&strange[14..]).expect("a header").0.to_owned();
        strange[60..62].fill(0);
        let sum = udp::stored(udp::sum_over_ipv6(&ip, &strange[54..]));
        strange[60..62].copy_from_slice(sum.as_bytes());
        assert_eq!(run(&mut rig, &strange).0, NO_ANSWER);
    }
}

#[test]
fn senders_with_unknown_tunnels_get_errors() {
    let mut rig = rig(&[("errors_per_second", json!(3))]);
    let stranger = frame(0x30, 255, 0xaabb_ccdd, &ipv4(0, &[7; 100])[14..]);
    for _ in 0..10 {
        assert_eq!(run(&mut rig, &stranger).0, UNKNOWN_TEID);
    }
    let errors = rig.emitted();
    assert_eq!((errors.len(), rig.created()), (3, vec![3, 0]));
    for (packet, gate) in errors {
        assert_eq!(gate, REPLY);
        let answer = packet.data();
        assert_eq!(answer[..14], [&FROM[..], &TO, &[0x86, 0xdd]].concat());
        assert_eq!(answer[22..54], [THERE_6, HERE_6].concat());
        assert_eq!(answer[54..58], [0x08, 0x68, 0x08, 0x68], "to the registered port");
        assert_eq!(answer[62..74], [0x32, 26, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(answer[74..], [&[16, 0xaa, 0xbb, 0xcc, 0xdd, 133, 0, 16][..], &THERE_6].concat());
        assert!(answer.len() < stranger.len(), "the answer is shorter than the request");
    }
}

#[test]
fn tshark_reads_the_answers() {
    let mut rig = rig(&[]);
    let body = &ipv4(0, b"data")[14..];
    let request = outer_ipv6(0, 0, (9_999, 2_152), &message(0x32, 1, 0, &[0, 9, 0, 0]));
    let mut frames = vec![run(&mut rig, &request).1];
    run(&mut rig, &frame(0x30, 255, 0xaabb_ccdd, body));
    run(&mut rig, &frame(0x34, 255, TEID, &[&[0, 0, 0, 0xc0, 1, 0, 5, 0][..], body].concat()));
    frames.extend(rig.emitted().into_iter().map(|(packet, _)| packet.data().to_vec()));
    let fields =
        ["gtp.message", "gtp.seq_number", "gtp.teid_data", "gtp.gsn_ipv6", "udp.checksum.status", "_ws.malformed"];
    let Some(rows) = tshark(&frames, &fields) else { return };
    assert_eq!(rows[0], ["0x02", "0x0009", "", "", "1", ""]);
    assert_eq!(rows[1], ["0x1a", "0x0000", "0xaabbccdd", "2001:db8::10", "1", ""]);
    assert_eq!((rows[2][0].as_str(), rows[2][4].as_str(), rows[2][5].as_str()), ("0x1f", "1", ""));
    assert_eq!(rows.len(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_048, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn encapsulated_packets_are_restored_and_keep_their_session(
        v6: bool, class: u8, payload in vec(any::<u8>(), 0..100), teid in 0x1000u32..0x2000, sequence: bool, qfi: bool,
        tags in 0usize..2,
    ) {
        use crate::gtpu_encap::GtpuEncap;

        let inner = if v6 { ipv6(class, &payload) } else { ipv4(class, &payload) };
        let mut params =
            json!({ "source": "2001:db8::1", "peer": "2001:db8::10", "teid": teid, "sequence": sequence });
        if qfi {
            params["qfi"] = json!(9);
        }
        let mut encap = Rig::of::<GtpuEncap>(&params).expect("parameters");
        let outside = encap.run(&inner).1;
        let outside = (0..tags).fold(outside, |frame, _| tagged(&frame));
        prop_assert_eq!(encap.packet(&outside).session_hash(), encap.packet(&inner).session_hash());
        prop_assert_eq!(run(&mut rig(&[]), &outside), (Gate::FIRST, inner, teid));
    }

    #[test]
    fn any_frame_has_a_gate_and_dropped_frames_are_unchanged(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), cut in 30usize..200, options: bool,
    ) {
        let mut bytes = frame(0x30, 255, TEID, &ipv4(0, b"data")[14..]);
        if options {
            bytes = extended(&bytes, 0, &[17, 0, 1, 4, 0, 0, 0, 0]);
        }
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut);
        // The checksum is not verified, so that later checks are reached, too.
        let (gate, after, _) = run(&mut rig(&[("verify", json!(false))]), &bytes);
        let drops = [Gate::FIRST, REPLY, CONGESTION];
        prop_assert!(drops.contains(&gate) || after == bytes, "{:?}", gate);
        prop_assert!(gate != Gate::FIRST || after.len() + 56 <= bytes.len());
    }
}

//! T-PDUs from an independent encoder, answers byte by byte and as tshark reads them, and properties that hold for any
//! frame.

use forebay_frames::{FROM, HERE, THERE, TO, ipv4, ipv6, outer, tagged, tshark};
use forebay_graph::{Rig, SetupEnvironment};
use forebay_packet::{Batch, wire::checksum};
use forebay_units::{Frequency, Ticks};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

mod over_ipv6;

use super::*;

const TEID: u32 = 0x1001;

fn params(more: &[(&str, Value)]) -> Value {
    let mut params = json!({ "teids": ["0x1000-0x1fff"] });
    for (key, value) in more {
        params[*key] = value.clone();
    }
    params
}

fn rig(more: &[(&str, Value)]) -> Rig {
    Rig::of::<GtpuDecap>(&params(more)).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns a GTP-U message with these flags and this type.
fn message(flags: u8, kind: u8, teid: u32, body: &[u8]) -> Vec<u8> {
    [&[flags, kind][..], &(body.len() as u16).to_be_bytes(), &teid.to_be_bytes(), body].concat()
}

/// Returns a frame with such a message, as etherparse writes it.
fn frame(flags: u8, kind: u8, teid: u32, body: &[u8]) -> Vec<u8> {
    outer(0, (40_000, 2_152), false, &message(flags, kind, teid, body))
}

/// Runs a frame. Returns its gate, the frame afterwards, and its tunnel.
fn run(rig: &mut Rig, frame: &[u8]) -> (Gate, Vec<u8>, u32) {
    let word = Word::new(0).expect("the first");
    let mut batch = Batch::with_capacity(1);
    batch.push(rig.packet(frame)).expect("room");
    let gate = rig.process(&mut batch)[0].expect("nothing is held");
    (gate, batch[0].data().to_vec(), batch[0].word(word))
}

#[test]
fn inner_packets_come_out_with_their_tunnels() {
    let mut rig = rig(&[]);
    for inner in [ipv4(0x2a, b"data"), ipv6(0xff, &[7; 90]), ipv4(0, b"")] {
        let body = &inner[14..];
        let plain = frame(0x30, 255, TEID, body);
        let numbered = frame(0x32, 255, TEID, &[&[0, 7, 0, 0][..], body].concat());
        let extended = frame(0x34, 255, TEID, &[&[0, 0, 0, 0x85, 1, 0x10, 9, 0][..], body].concat());
        let summed = outer(0, (2_152, 2_152), true, &message(0x30, 255, TEID, body));
        let marked = outer(0xb8 | 2, (2_152, 2_152), false, &message(0x30, 255, TEID, body));
        for frame in [plain.clone(), numbered, extended, summed, marked, tagged(&plain), [&plain[..], &[0; 5]].concat()]
        {
            assert_eq!(run(&mut rig, &frame), (Gate::FIRST, inner.clone(), TEID), "{frame:02x?}");
        }
    }
    assert!(rig.emitted().is_empty());
}

/// Regression: a plain packet in two nested tunnels kept the QoS flow of the outer tunnel.
#[test]
fn a_packet_without_a_qos_flow_has_none_whatever_an_outer_tunnel_left() {
    let [teid, qfi] = [0, 1].map(|number| Word::new(number).expect("a word"));
    let inner = ipv4(0, b"data");
    let plain = frame(0x30, 255, TEID, &inner[14..]);
    for frame in [plain.clone(), tagged(&plain)] {
        let mut rig = rig(&[]);
        let mut batch = Batch::with_capacity(1);
        let mut packet = rig.packet(&frame);
        packet.set_word(qfi, HAS_QFI | 9);
        batch.push(packet).expect("room");
        assert_eq!(rig.process(&mut batch)[0], Some(Gate::FIRST));
        assert_eq!((batch[0].word(teid), batch[0].word(qfi)), (TEID, 0));
    }
}

#[test]
fn outer_options_are_skipped() {
    let inner = ipv4(0, b"data");
    let mut frame = frame(0x30, 255, TEID, &inner[14..]);
    frame[14] = 0x46;
    frame[17] += 4;
    frame.splice(34..34, [1, 1, 1, 0]);
    assert_eq!(run(&mut rig(&[]), &frame), (Gate::FIRST, inner, TEID));
}

#[test]
fn congestion_is_passed_on() {
    let mut rig = rig(&[]);
    let marked = |inner: &[u8], class: u8| outer(class, (1, 2_152), false, &message(0x30, 255, TEID, &inner[14..]));
    for inner in [ipv4, ipv6] {
        // The outer packet has met congestion (CE); the inner packet's transport supports notification, ECT(0).
        assert_eq!(run(&mut rig, &marked(&inner(0x28 | 2, b"x"), 3)).1, inner(0x28 | 3, b"x"));
        assert_eq!(run(&mut rig, &marked(&inner(0x28 | 2, b"x"), 1)).1, inner(0x28 | 1, b"x"));
        assert_eq!(run(&mut rig, &marked(&inner(0x28 | 3, b"x"), 1)).1, inner(0x28 | 3, b"x"));
        assert_eq!(run(&mut rig, &marked(&inner(0x28, b"x"), 3)).0, CONGESTION);
    }
}

#[test]
fn invalid_packets_have_their_reason() {
    let mut rig = rig(&[("local", json!(["192.0.2.10"]))]);
    let inner = ipv4(0, b"data");
    let good = frame(0x30, 255, TEID, &inner[14..]);
    let with = |at: usize, value: u8| {
        let mut frame = good.clone();
        frame[at] = value;
        frame
    };
    let mut wrong_sum = outer(0, (1, 2_152), true, &message(0x30, 255, TEID, &inner[14..]));
    wrong_sum[40] ^= 1;
    let cases = [
        (with(13, 6), NOT_GTPU, "ARP"),
        (with(23, 6), NOT_GTPU, "TCP"),
        (with(36, 9), NOT_GTPU, "another port"),
        (with(33, 11), NOT_GTPU, "another address"),
        (with(20, 0x20), FRAGMENT, "the first fragment"),
        (with(21, 1), FRAGMENT, "a later fragment"),
        (with(17, 200), BAD_LENGTH, "longer than the frame"),
        (with(17, 27), BAD_LENGTH, "no room for UDP"),
        (with(14, 0x44), BAD_LENGTH, "a header of four words"),
        (with(39, 200), BAD_LENGTH, "UDP longer than IP"),
        (with(39, 7), BAD_LENGTH, "UDP shorter than itself"),
        (wrong_sum.clone(), BAD_CHECKSUM, "a wrong UDP checksum"),
        (with(42, 0x50), MALFORMED, "version 2"),
        (with(42, 0x20), MALFORMED, "GTP'"),
        (with(45, 200), MALFORMED, "longer than UDP"),
        (with(42, 0x36), MALFORMED, "invalid extension headers"),
        (good[..49].to_vec(), BAD_LENGTH, "a cut header"),
        (outer(0, (1, 2_152), false, &[0x30; 7]), MALFORMED, "seven bytes"),
        (with(46, 1), UNKNOWN_TEID, "a tunnel that does not exist"),
        (frame(0x34, 255, TEID, &[0, 0, 0, 0xc0, 1, 0, 5, 0, 0x45]), UNKNOWN_EXTENSION, "a PDCP number"),
        (with(43, 3), UNKNOWN_MESSAGE, "a type that does not exist"),
        (with(50, 0x55), NOT_IP, "version 5 inside"),
        (frame(0x30, 255, TEID, &inner[14..33]), NOT_IP, "a cut inner header"),
        (frame(0x30, 255, TEID, &ipv6(0, b"")[14..53]), NOT_IP, "a cut inner IPv6 header"),
        (frame(0x30, 255, TEID, &[]), NOT_IP, "nothing inside"),
        (vec![0; 13], NOT_GTPU, "no Ethernet"),
    ];
    for (frame, gate, what) in cases {
        let (gate_after, after, _) = run(&mut rig, &frame);
        assert_eq!((gate_after, after), (gate, frame), "{what}");
    }
    let mut trusting = super::tests::rig(&[("verify", json!(false))]);
    assert_eq!(run(&mut trusting, &wrong_sum).0, Gate::FIRST);
}

#[test]
fn echo_requests_become_responses() {
    let mut rig = rig(&[]);
    let request = outer(0xb8, (40_000, 2_152), true, &message(0x32, 1, 0, &[0x12, 0x34, 0, 0]));
    let mut tagged_more = request.clone();
    for link in [14, 18, 22, 26, 30] {
        let request = tagged_more.clone();
        tagged_more = tagged(&request);
        let (gate, answer, _) = run(&mut rig, &request);
        assert_eq!(gate, REPLY);
        assert_eq!(answer[..12], [FROM, TO].concat());
        assert_eq!(answer[12..link], request[12..link], "tags stay");
        let ip = &answer[link..];
        assert_eq!(ip[..10], [0x45, 0xb8, 0, 42, 0, 0, 0x40, 0, 64, 17]);
        assert_eq!(ip[12..20], [THERE, HERE].concat());
        assert_eq!(ip[20..26], [0x08, 0x68, 0x9c, 0x40, 0, 22], "from 2152 to the source port");
        assert_eq!(ip[28..], [0x32, 2, 0, 6, 0, 0, 0, 0, 0x12, 0x34, 0, 0, 14, 0]);
        assert_eq!(checksum::sum(&ip[..20]), 0xffff);
    }
    assert!(rig.emitted().is_empty(), "the request's chunk holds the answer");
    // Sources that are not a single host's address get no answer.
    for (at, value) in [(26, 224), (26, 0), (6, 1)] {
        let mut strange = outer(0, (1, 2_152), false, &message(0x32, 1, 0, &[0; 4]));
        strange[at] = value;
        assert_eq!(run(&mut rig, &strange).0, NO_ANSWER);
    }
}

#[test]
fn other_messages_go_to_control_unchanged() {
    let mut rig = rig(&[]);
    for kind in [2, 26, 31, 254] {
        let frame = frame(0x32, kind, 0, &[0, 1, 0, 0, 14, 0]);
        assert_eq!(run(&mut rig, &frame), (CONTROL, frame, 0));
    }
    assert_eq!(rig.declared.gates, ["0", "reply", "control"]);
}

#[test]
fn senders_with_unknown_tunnels_get_errors_within_the_rate_limit() {
    let mut rig = rig(&[("errors_per_second", json!(3))]);
    let body = &ipv4(0, &[7; 100])[14..];
    let stranger = frame(0x30, 255, 0xaabb_ccdd, body);
    for _ in 0..10 {
        assert_eq!(run(&mut rig, &stranger).0, UNKNOWN_TEID);
    }
    let errors = rig.emitted();
    assert_eq!((errors.len(), rig.created()), (3, vec![3, 0]));
    for (packet, gate) in errors {
        assert_eq!(gate, REPLY);
        let answer = packet.data();
        assert_eq!(answer[..14], [&FROM[..], &TO, &[0x08, 0x00]].concat());
        assert_eq!(answer[26..34], [THERE, HERE].concat());
        assert_eq!(answer[34..38], [0x08, 0x68, 0x08, 0x68], "to the registered port");
        assert_eq!(answer[42..54], [0x32, 26, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(answer[54..], [16, 0xaa, 0xbb, 0xcc, 0xdd, 133, 0, 4, 192, 0, 2, 10]);
        assert!(answer.len() < stranger.len(), "the answer is shorter than the request");
    }
    // A third of a second later, one more message is sent.
    rig.now = Ticks(333_333_333);
    let extended = frame(0x34, 255, TEID, &[&[0, 0, 0, 0xc0, 1, 0, 5, 0][..], body].concat());
    for _ in 0..5 {
        assert_eq!(run(&mut rig, &extended).0, UNKNOWN_EXTENSION);
    }
    let errors = rig.emitted();
    assert_eq!((errors.len(), rig.created()), (1, vec![3, 1]));
    assert_eq!(errors[0].0.data()[42..], [0x32, 31, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 141, 2, 0x40, 0x85]);
    drop(errors);
    let mut silent = super::tests::rig(&[("errors_per_second", json!(0))]);
    assert_eq!(run(&mut silent, &stranger).0, UNKNOWN_TEID);
    assert!(silent.emitted().is_empty());
    // An error is never answered with an error.
    rig.now = Ticks(9_000_000_000);
    assert_eq!(run(&mut rig, &frame(0x32, 26, 0, &[0; 16])).0, CONTROL);
    assert!(rig.emitted().is_empty());
}

#[test]
fn wrong_parameters_are_named() {
    for (params, path, message) in [
        (json!({}), "", "missing field `teids`"),
        (json!({ "teids": ["1-5", "0"] }), "teids[1]", "'0' is not a tunnel"),
        (json!({ "teids": "5-1" }), "teids", "'5-1' ends before"),
        (json!({ "teids": { "file": "/no/such" } }), "teids", "cannot read '/no/such'"),
        (json!({ "teids": "any", "local": ["::1"] }), "local[0]", "::1 is the loopback address"),
        (json!({ "teids": "any", "local": vec!["192.0.2.1"; 9] }), "local", "9 addresses: allowed are up to 8"),
    ] {
        let error = Rig::of::<GtpuDecap>(&params).err().unwrap_or_else(|| panic!("{params} is taken"));
        assert_eq!(error.faults[0].path, path, "{params}: {error}");
        assert!(error.to_string().contains(message), "{params}: {error}");
    }
    assert!(Rig::of::<GtpuDecap>(&json!({ "teids": [] })).is_ok(), "no tunnel yet");
}

#[test]
fn a_file_of_tunnels_is_read_and_its_faults_have_lines() {
    let folder = std::env::temp_dir().join(format!("forebay-teids-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a writable folder");
    let lines: Vec<String> = (0..1_000).map(|n| (0x1001 + 3 * n).to_string()).collect();
    std::fs::write(folder.join("teids"), lines.join(" # note\n")).expect("a writable folder");
    std::fs::write(folder.join("wrong"), "1\n\n0\n").expect("a writable folder");
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    environment.files.base.clone_from(&folder);
    let mut rig = Rig::within::<GtpuDecap>(&json!({ "teids": { "file": "teids" } }), &mut environment).expect("a file");
    let inner = ipv4(0, b"data");
    assert_eq!(run(&mut rig, &frame(0x30, 255, TEID, &inner[14..])).0, Gate::FIRST);
    assert_eq!(run(&mut rig, &frame(0x30, 255, TEID + 1, &inner[14..])).0, UNKNOWN_TEID);
    let wrong = Rig::within::<GtpuDecap>(&json!({ "teids": { "file": "wrong" } }), &mut environment);
    let error = wrong.err().expect("refused").to_string();
    assert!(error.contains("wrong:3: '0' is not a tunnel"), "{error}");
    std::fs::remove_dir_all(&folder).expect("made above");
}

#[test]
fn tshark_reads_the_answers() {
    let mut rig = rig(&[]);
    let body = &ipv4(0, b"data")[14..];
    let mut frames = vec![run(&mut rig, &outer(0, (9_999, 2_152), true, &message(0x32, 1, 0, &[0, 9, 0, 0]))).1];
    run(&mut rig, &frame(0x30, 255, 0xaabb_ccdd, body));
    run(&mut rig, &frame(0x34, 255, TEID, &[&[0, 0, 0, 0xc0, 1, 0, 5, 0][..], body].concat()));
    frames.extend(rig.emitted().into_iter().map(|(packet, _)| packet.data().to_vec()));
    let fields = [
        "gtp.message",
        "gtp.seq_number",
        "gtp.teid_data",
        "gtp.gsn_ipv4",
        "ip.checksum.status",
        "udp.checksum.status",
        "_ws.malformed",
    ];
    let Some(rows) = tshark(&frames, &fields) else { return };
    assert_eq!(rows[0], ["0x02", "0x0009", "", "", "1", "1", ""]);
    assert_eq!(rows[1], ["0x1a", "0x0000", "0xaabbccdd", "192.0.2.10", "1", "1", ""]);
    assert_eq!(
        (rows[2][0].as_str(), rows[2][4].as_str(), rows[2][5].as_str(), rows[2][6].as_str()),
        ("0x1f", "1", "1", "")
    );
    assert_eq!(rows.len(), 3);
}

/// Returns the outer addresses of IPv4 without options.
fn frame_addresses(frame: &[u8]) -> [u32; 2] {
    [26, 30].map(|at| u32::from_be_bytes(frame[at..at + 4].try_into().expect("four")))
}

/// A message of a tunnel with some bytes changed, cut at any offset.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let whole = prop::sample::select(vec![
        frame(0x30, 255, TEID, &ipv4(0, b"data")[14..]),
        frame(0x34, 255, TEID, &[&[0, 0, 0, 0x85, 1, 0x10, 9, 0][..], &ipv6(0, b"data")[14..]].concat()),
        frame(0x32, 1, 0, &[0, 1, 0, 0]),
        frame(0x30, 255, 7, &ipv4(0, b"")[14..]),
        tagged(&frame(0x32, 26, 0, &[0; 16])),
    ]);
    (whole, vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), 30usize..200).prop_map(
        |(mut frame, changes, cut)| {
            for (at, value) in changes {
                let at = at.index(frame.len());
                frame[at] = value;
            }
            frame.truncate(cut);
            frame
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_048, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn encapsulated_packets_are_restored(
        v6: bool, class: u8, payload in vec(any::<u8>(), 0..100), teid in 0x1000u32..0x2000, sequence: bool, qfi: bool,
        summed: bool, tags in 0usize..2,
    ) {
        use crate::gtpu_encap::GtpuEncap;

        let inner = if v6 { ipv6(class, &payload) } else { ipv4(class, &payload) };
        let mut params = json!({
            "source": "192.0.2.1", "peer": "192.0.2.10", "teid": teid, "sequence": sequence, "udp_checksum": summed,
        });
        if qfi {
            params["qfi"] = json!(9);
        }
        let mut encap = Rig::of::<GtpuEncap>(&params).expect("parameters");
        let outside = encap.run(&inner).1;
        let outside = (0..tags).fold(outside, |frame, _| tagged(&frame));
        prop_assert_eq!(run(&mut rig(&[]), &outside), (Gate::FIRST, inner, teid));
    }

    #[test]
    fn the_fast_path_does_the_same_as_the_slow_path(frame in hostile(), keep: bool) {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        let function = || {
            let mut setup = Setup::new("decap", &mut environment);
            let params = params(&[("keep_addresses", json!(keep))]);
            GtpuDecap::new(serde_json::from_value(params).expect("parameters"), &mut setup).expect("parameters")
        };
        let decap = std::cell::RefCell::new(function);
        let fast = (decap.borrow_mut())();
        let mut rig = rig(&[("keep_addresses", json!(keep))]);
        let mut packet = rig.packet(&frame);
        let usual = if keep { fast.usual_of_any::<true>(&mut packet) } else { fast.usual_of_any::<false>(&mut packet) };
        if usual {
            // The slow path, which the same frame takes behind a tag.
            let mut batch = Batch::with_capacity(1);
            batch.push(rig.packet(&tagged(&frame))).expect("room");
            let gate = rig.process(&mut batch)[0];
            let words = packet.words();
            prop_assert_eq!((gate, batch[0].data(), batch[0].words()), (Some(Gate::FIRST), packet.data(), words));
            if keep {
                prop_assert_eq!(&words[2..4], &frame_addresses(&frame), "the words hold source and destination");
            }
            let known = packet.network();
            packet.forget_layers();
            prop_assert_eq!(known, packet.network());
        } else {
            prop_assert_eq!(packet.data(), &frame[..], "the frame is not changed");
        }
    }

    #[test]
    fn answers_to_any_frame_go_to_its_source_and_are_valid(frame in hostile()) {
        let mut rig = rig(&[]);
        let (gate, after, _) = run(&mut rig, &frame);
        let mut answers: Vec<Vec<u8>> = rig.emitted().into_iter().map(|(packet, _)| packet.data().to_vec()).collect();
        if gate == REPLY {
            answers.push(after);
        }
        for answer in answers {
            let link = if answer[12] == 0x81 { 18 } else { 14 };
            prop_assert_eq!(&answer[..6], &frame[6..12]);
            let swapped = [&frame[link + 16..link + 20], &frame[link + 12..link + 16]].concat();
            prop_assert_eq!(&answer[link + 12..link + 20], &swapped[..]);
            prop_assert_eq!(checksum::sum(&answer[link..link + 20]), 0xffff);
            let read = Message::parse(&answer[link + 28..]).expect("a message");
            prop_assert!(Signal::parse(&read).is_some());
        }
    }
}

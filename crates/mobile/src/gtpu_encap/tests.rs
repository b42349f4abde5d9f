//! T-PDUs byte by byte, against an independent encoder, and as tshark reads them.

use forebay_frames::{FROM, HERE, THERE, TO, ipv4, ipv6, outer, tagged, tshark};
use forebay_graph::{Rig, SetupEnvironment};
use forebay_packet::{Batch, wire::gtpu::Message};
use forebay_units::Frequency;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn fixed(more: &[(&str, Value)]) -> Value {
    let mut params = json!({ "source": "192.0.2.1", "peer": "192.0.2.10", "teid": "0x01020304" });
    for (key, value) in more {
        params[*key] = value.clone();
    }
    params
}

fn rig(params: &Value) -> Rig {
    Rig::of::<GtpuEncap>(params).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the encapsulated frame of an independent encoder.
fn expected(frame: &[u8], source_port: u16) -> Vec<u8> {
    let inner = &frame[14..];
    let class = if inner[0] >> 4 == 4 { inner[1] } else { inner[0] << 4 | inner[1] >> 4 };
    let header = [&[0x30, 0xff][..], &(inner.len() as u16).to_be_bytes(), &[1, 2, 3, 4]].concat();
    outer(class, (source_port, 2_152), false, &[&header, inner].concat())
}

#[test]
fn a_packet_byte_by_byte() {
    let (gate, frame) = rig(&fixed(&[("source_port", json!(2_152))])).run(&ipv4(0xb8, b"data"));
    assert_eq!(gate, Gate::FIRST);
    assert_eq!(frame[..14], [&TO[..], &FROM, &[0x08, 0x00]].concat());
    assert_eq!(frame[14..24], [0x45, 0xb8, 0, 36 + 32, 0, 0, 0x40, 0, 64, 17]);
    assert_eq!(frame[26..34], [HERE, THERE].concat());
    assert_eq!(frame[34..42], [0x08, 0x68, 0x08, 0x68, 0, 16 + 32, 0, 0]);
    assert_eq!(frame[42..50], [0x30, 0xff, 0, 32, 1, 2, 3, 4]);
    assert_eq!(frame[50..], ipv4(0xb8, b"data")[14..]);
}

#[test]
fn optional_fields_follow_the_header() {
    let (_, frame) = rig(&fixed(&[("qfi", json!(9))])).run(&ipv4(0, b"data"));
    assert_eq!(frame[42..58], [0x34, 0xff, 0, 40, 1, 2, 3, 4, 0, 0, 0, 0x85, 1, 0, 9, 0]);
    assert_eq!(frame[58..], ipv4(0, b"data")[14..]);
    let mut rig = rig(&fixed(&[("sequence", json!(true))]));
    for number in 0..3 {
        // Packets on the fast path and on the slow path have numbers of one sequence.
        let inner = if number == 1 { tagged(&ipv4(0, b"data")) } else { ipv4(0, b"data") };
        let (_, frame) = rig.run(&inner);
        assert_eq!(frame[42..54], [0x32, 0xff, 0, 36, 1, 2, 3, 4, 0, number, 0, 0]);
    }
}

#[test]
fn tags_and_padding_are_removed() {
    let port = json!(7_777);
    for inner in [ipv4(0x2a, b"x"), ipv6(0x2a, b"xyz"), ipv6(0xff, b"")] {
        let plain = expected(&inner, 7_777);
        for frame in [inner.clone(), tagged(&inner), tagged(&tagged(&inner)), [&inner[..], &[0; 9]].concat()] {
            assert_eq!(rig(&fixed(&[("source_port", port.clone()), ("df", json!(false))])).run(&frame).1, {
                let mut plain = plain.clone();
                plain[20..22].copy_from_slice(&[0, 0]);
                plain[24..26].fill(0);
                let sum = !forebay_packet::wire::checksum::sum(&plain[14..34]);
                plain[24..26].copy_from_slice(&sum.to_ne_bytes());
                plain
            });
        }
    }
}

#[test]
fn packets_go_into_the_tunnels_of_their_users() {
    let params = json!({ "source": "192.0.2.1", "tunnels": [
        "10.60.0.1 0x1001 192.0.2.10", "10.60.0.2 0x1002 192.0.2.11", "2001:db8:60:1::/64 0x1003 192.0.2.12",
    ] });
    let mut rig = rig(&params);
    let tunnel = |frame: &[u8]| (frame[33], u32::from_be_bytes([frame[46], frame[47], frame[48], frame[49]]));
    let mut second = ipv4(0, b"data");
    second[33] = 2;
    for (frame, peer, teid) in [(ipv4(0, b"data"), 10, 0x1001), (second, 11, 0x1002), (ipv6(0, b""), 12, 0x1003)] {
        let (gate, after) = rig.run(&frame);
        assert_eq!((gate, tunnel(&after)), (Gate::FIRST, (peer, teid)));
        assert_eq!(forebay_packet::wire::checksum::sum(&after[14..34]), 0xffff, "the peer is in the sum");
    }
    for (at, frame) in [(33, ipv4(0, b"data")), (45, ipv6(0, b"data"))] {
        let mut stranger = frame;
        stranger[at] ^= 0x40;
        assert_eq!(rig.run(&stranger).0, NO_TUNNEL);
    }
}

#[test]
fn packets_go_into_the_tunnels_of_their_metadata_word() {
    for (by, name) in [("tunnel", "tunnel"), ("next_hop", "next_hop")] {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        let params =
            json!({ "source": "192.0.2.1", "peer": "192.0.2.10", "by": by, "tunnels": ["0 7", "5 8 192.0.2.11"] });
        let mut rig = Rig::within::<GtpuEncap>(&params, &mut environment).expect("parameters");
        let word = environment.words[name];
        for (value, expected) in [(0, Some((10, 7))), (5, Some((11, 8))), (1, None)] {
            for frame in [ipv4(0, b"data"), ipv6(0, b"data")] {
                let mut packet = rig.packet(&frame);
                packet.set_word(word, value);
                let mut batch = Batch::with_capacity(1);
                batch.push(packet).expect("room");
                let gate = rig.process(&mut batch)[0];
                let data = batch[0].data();
                let tunnel = (gate == Some(Gate::FIRST)).then(|| (data[33], data[49]));
                assert_eq!(tunnel, expected, "{by} {value}");
                assert_eq!(gate == Some(NO_TUNNEL), expected.is_none());
            }
        }
    }
}

#[test]
fn packets_that_cannot_be_sent_are_dropped() {
    let mut rig = rig(&fixed(&[("mtu", json!(100))]));
    // 36 bytes of outer headers, 28 of inner headers.
    assert_eq!(rig.run(&ipv4(0, &[7; 36])).0, Gate::FIRST);
    assert_eq!(rig.run(&ipv4(0, &[7; 37])).0, TOO_LONG);
    assert_eq!(rig.run(&tagged(&ipv4(0, &[7; 37]))).0, TOO_LONG);
    assert_eq!(rig.run(&[0xff; 60]).0, NOT_IP);
    assert_eq!(rig.run(&[]).0, NOT_IP);
    assert_eq!(rig.run(&ipv4(0, b"data")[..40]).0, TRUNCATED);
    assert_eq!(rig.run(&ipv6(0, b"data")[..60]).0, TRUNCATED);
    let mut short = ipv4(0, b"data");
    short[17] = 19;
    assert_eq!(rig.run(&short).0, TRUNCATED, "shorter than its own header");
    // Nested tunnels until the headroom is used up.
    let mut frame = ipv4(0, b"data");
    let mut batch = Batch::with_capacity(1);
    let mut rig = super::tests::rig(&fixed(&[]));
    let mut packet = rig.packet(&frame);
    let room = packet.headroom();
    batch.push(std::mem::replace(&mut packet, rig.packet(&frame))).expect("room");
    for depth in 0..=room / 36 {
        frame = batch[0].data().to_vec();
        let gate = rig.process(&mut batch)[0];
        let fits = depth < room / 36;
        assert_eq!(gate, Some(if fits { Gate::FIRST } else { NO_HEADROOM }), "{depth} tunnels in {room} bytes");
    }
    assert_eq!(batch[0].data(), frame, "a dropped packet is unchanged");
}

#[test]
fn wrong_parameters_are_named() {
    let mut refused = vec![
        (json!({ "source": "192.0.2.1" }), "", "either 'teid' and 'peer', or 'tunnels'"),
        (json!({ "source": "192.0.2.1", "teid": 1 }), "peer", "needs a `peer`"),
        (json!({ "source": "192.0.2.1", "peer": "192.0.2.2" }), "", "either"),
        (
            json!({ "source": "2001:db8::1", "teid": 1, "peer": "192.0.2.2" }),
            "peer",
            "'192.0.2.2' is an IPv4 address, but `source` is an IPv6 address: allowed are IPv6 peers",
        ),
        (json!({ "source": "ff02::1", "teid": 1, "peer": "2001:db8::2" }), "source", "ff02::1 is a multicast address"),
        (json!({ "source": "192.0.2.1", "tunnels": ["10.0.0.1 1 192.0.2.2", "x"] }), "tunnels[1]", "'x' is not a user"),
        (
            json!({ "source": "192.0.2.1", "peer": "192.0.2.2", "tunnels": ["10.0.0.1 1", "10.0.0.1 2"] }),
            "tunnels[1]",
            "tunnels[0] has the same user 10.0.0.1: remove one of the two lines",
        ),
        (json!({ "source": "192.0.2.1", "tunnels": "/no/such/file" }), "tunnels", "cannot read '/no/such/file'"),
        (
            json!({ "source": "192.0.2.1", "peer": "192.0.2.2", "tunnels": [], "sequence": true }),
            "sequence",
            "sequence numbers belong to one tunnel: leave out `sequence`, or set `teid`",
        ),
    ];
    for (key, value, message) in [
        ("teid", json!(0), "allowed are 1 to"),
        ("tunnels", json!([]), "either"),
        ("by", json!("tunnel"), "there is no look-up"),
        ("qfi", json!(64), "64 is not a QoS flow: allowed are 0 to 63"),
        ("ttl", json!(0), "allowed are 1 to 255"),
        ("mtu", json!(67), "67: allowed are 68"),
    ] {
        refused.push((fixed(&[(key, value)]), if key == "tunnels" { "" } else { key }, message));
    }
    for (params, path, message) in refused {
        let error = Rig::of::<GtpuEncap>(&params).err().unwrap_or_else(|| panic!("{params} is taken"));
        assert_eq!(error.faults[0].path, path, "{params}: {error}");
        assert!(error.to_string().contains(message), "{params}: {error}");
    }
}

#[test]
fn a_file_of_tunnels_is_read_and_its_faults_have_lines() {
    let folder = std::env::temp_dir().join(format!("forebay-tunnels-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a writable folder");
    let mut lines: Vec<String> = (0..40_000u32)
        .map(|n| format!("{} {} 192.0.2.10", std::net::Ipv4Addr::from_bits(0x0a3c_0000 + n), n + 1))
        .collect();
    lines.push("# the end".to_owned());
    std::fs::write(folder.join("tunnels"), lines.join("\n")).expect("a writable folder");
    std::fs::write(folder.join("wrong"), "10.0.0.1 1 192.0.2.1\n\nx 1\n10.0.0.1 2 192.0.2.1\n")
        .expect("a writable folder");
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    environment.files.base.clone_from(&folder);
    let large = json!({ "source": "192.0.2.1", "tunnels": "tunnels" });
    let mut rig = Rig::within::<GtpuEncap>(&large, &mut environment).expect("a file");
    assert_eq!(rig.run(&ipv4(0, b"data")).1[46..50], [0, 0, 0, 2], "a large table, which is prefetched");
    let wrong = json!({ "source": "192.0.2.1", "tunnels": "wrong" });
    let error = Rig::within::<GtpuEncap>(&wrong, &mut environment).err().expect("refused").to_string();
    assert!(
        error.contains("wrong:3: 'x' is not a user") && error.contains("wrong:4: wrong:1 has the same user 10.0.0.1"),
        "{error}"
    );
    std::fs::remove_dir_all(&folder).expect("made above");
}

#[test]
fn tshark_reads_what_is_written() {
    let options = [
        fixed(&[]),
        fixed(&[("qfi", json!(9)), ("udp_checksum", json!(true))]),
        fixed(&[("sequence", json!(true)), ("df", json!(false))]),
    ];
    let frames: Vec<_> = options
        .iter()
        .flat_map(|params| [ipv4(0xb8, b"data"), ipv6(0, &[1; 301])].map(|frame| rig(params).run(&frame).1))
        .collect();
    let fields = [
        "gtp.message",
        "gtp.teid",
        "gtp.ext_hdr.pdu_ses_con.qos_flow_id",
        "gtp.seq_number",
        "ip.checksum.status",
        "udp.checksum.status",
        "udp.dstport",
        "_ws.malformed",
        "_ws.expert.message",
    ];
    let Some(rows) = tshark(&frames, &fields) else { return };
    assert_eq!(rows.len(), 6);
    for (index, row) in rows.iter().enumerate() {
        let [kind, teid, qfi, sequence, ip, udp, ports, malformed, _] = &row[..] else { panic!("{row:?}") };
        assert_eq!((kind.as_str(), teid.as_str(), malformed.as_str()), ("0xff", "0x01020304", ""), "{row:?}");
        assert_eq!(qfi, if index / 2 == 1 { "9" } else { "" }, "{row:?}");
        assert_eq!(sequence.is_empty(), index / 2 != 2, "{row:?}");
        assert!(ip.split(',').all(|status| status == "1"), "every IPv4 checksum is correct: {row:?}");
        // The outer datagram has no checksum or a correct one, the inner one has a correct one.
        assert_eq!(udp, if index / 2 == 1 { "1,1" } else { "3,1" }, "{row:?}");
        assert_eq!(ports, "2152,2000", "{row:?}");
    }
}

proptest! {
    #[test]
    fn packets_equal_those_of_an_independent_encoder(
        v6: bool, class: u8, payload in prop::collection::vec(any::<u8>(), 0..200), tags in 0usize..3, summed: bool,
        fixed_port: bool,
    ) {
        let inner = if v6 { ipv6(class, &payload) } else { ipv4(class, &payload) };
        let frame = (0..tags).fold(inner.clone(), |frame, _| tagged(&frame));
        let mut more = vec![("df", json!(false)), ("udp_checksum", json!(summed))];
        if fixed_port {
            more.push(("source_port", json!(2_152)));
        }
        let mut rig = rig(&fixed(&more));
        let mut batch = Batch::with_capacity(1);
        batch.push(rig.packet(&frame)).expect("room");
        prop_assert_eq!(rig.process(&mut batch)[0], Some(Gate::FIRST));
        let packet = &mut batch[0];
        let after = packet.data().to_vec();
        let port = u16::from_be_bytes([after[34], after[35]]);
        prop_assert!(port == 2_152 && fixed_port || port >= 0xc000 && !fixed_port);
        let length = ((inner.len() - 14) as u16).to_be_bytes();
        let written = [&[0x30, 0xff][..], &length, &[1, 2, 3, 4], &inner[14..]].concat();
        let mut expected = outer(class, (port, 2_152), summed, &written);
        // Etherparse sets the don't-fragment bit.
        expected[20] = 0;
        expected[24..26].fill(0);
        let sum = !forebay_packet::wire::checksum::sum(&expected[14..34]);
        expected[24..26].copy_from_slice(&sum.to_ne_bytes());
        prop_assert_eq!(&after, &expected);
        prop_assert_eq!(Message::parse(&after[42..]).expect("a message").payload, &inner[14..]);
        // The known layers equal the layers that a search finds.
        let known = (packet.network(), packet.transport(), packet.session_hash());
        packet.forget_layers();
        prop_assert_eq!(known, (packet.network(), packet.transport(), packet.session_hash()));
    }

    #[test]
    fn packets_that_may_be_fragmented_have_different_numbers(count in 1u16..300) {
        let mut rig = rig(&fixed(&[("df", json!(false))]));
        for number in 0..count {
            let (_, frame) = rig.run(&ipv4(0, b"data"));
            prop_assert_eq!(u16::from_be_bytes([frame[18], frame[19]]), number);
            prop_assert_eq!(forebay_packet::wire::checksum::sum(&frame[14..34]), 0xffff);
        }
    }

    #[test]
    fn replicas_never_give_one_number_to_two_packets(turns in prop::collection::vec((0usize..3, 1usize..40), 1..100)) {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        // Two workers' replicas of one module, and another tunnel to the same peer.
        let mut rigs: Vec<Rig> = [(0, 2, 1), (1, 2, 1), (0, 1, 2)].into_iter().map(|(mine, shares, teid)| {
            environment.share = (mine, shares);
            let params = fixed(&[("df", json!(false)), ("teid", json!(teid))]);
            Rig::within::<GtpuEncap>(&params, &mut environment).expect("parameters")
        }).collect();
        let mut seen = std::collections::HashSet::new();
        for (which, count) in turns {
            let rig = &mut rigs[which];
            let mut batch = Batch::with_capacity(count);
            for number in 0..count {
                // Some packets are dropped, and some take the slow path.
                let frames = [ipv4(0, b"data"), tagged(&ipv4(0, b"data")), vec![0xff; 60]];
                batch.push(rig.packet(&frames[number % 3])).expect("room");
            }
            let gates = rig.process(&mut batch);
            for (packet, gate) in batch.iter().zip(gates) {
                if gate == Some(Gate::FIRST) {
                    let data = packet.data();
                    prop_assert!(seen.insert(u16::from_be_bytes([data[18], data[19]])), "no number is used twice");
                }
            }
        }
    }
}

#[test]
fn folded_branches_do_what_each_does_alone() {
    let six = json!({ "source": "2001:db8::1", "peer": "2001:db8::10", "teid": 7 });
    let all = [
        fixed(&[]),
        fixed(&[("qfi", json!(9)), ("mtu", json!(1_500))]),
        fixed(&[("sequence", json!(true)), ("df", json!(false))]),
        six,
    ];
    let mut folded = Rig::folded::<GtpuEncap>(&all).expect("parameters");
    let mut alone: Vec<_> = all.iter().map(rig).collect();
    let frames = [ipv4(0xb8, b"data"), tagged(&ipv4(0, b"data")), ipv6(3, b"data"), vec![7; 60], ipv4(0, &[0; 1_500])];
    for round in 0..4 {
        let mut batch = Batch::with_capacity(64);
        let mut expected = Vec::new();
        for (number, frame) in frames.iter().cycle().take(20).enumerate() {
            let branch = (number + round) % all.len();
            let mut packet = folded.packet(frame);
            packet.set_flow(branch as u32);
            batch.push(packet).expect("room");
            expected.push((branch, alone[branch].run(frame)));
        }
        let gates = folded.process(&mut batch);
        for ((branch, (gate, frame)), (packet, got)) in expected.into_iter().zip(batch.iter().zip(gates)) {
            let mut after = packet.data().to_vec();
            let mut frame = frame;
            // Identification numbers come from one counter for all modules of the source.
            if branch == 2 && gate == Gate::FIRST {
                [&mut after, &mut frame].into_iter().for_each(|frame| frame[18..26].fill(0));
            }
            assert_eq!((got, after), (Some(gate), frame), "branch {branch}");
        }
    }
}

//! The ESP packets that the function makes, compared with its peer, OpenSSL and tshark; and packets that it refuses,
//! with reasons.

use etherparse::PacketBuilder;
use forebay_frames::{FROM, TO, ipv4, ipv6, skip, tagged};
use forebay_graph::{Rig, SetupEnvironment};
use forebay_units::Frequency;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::esp_decrypt::EspDecrypt;
use crate::testing::{by_openssl, bytes, hex};

/// RFC 4106's key and salt, as in the first case of draft-mcgrew-gcm-test-01.
const KEY: &str = "4c80cdefbb5d10da906ac73c3613a6342e443b68";
const LONG: &str = "abbccddef00112233445566778899aababbccddef00112233445566778899aab11223344";

fn rig(params: &Value) -> Rig {
    Rig::of::<EspEncrypt>(params).expect("valid parameters")
}

fn to_all(key: &str, more: &str) -> String {
    format!("0x1001 key={key} peer=192.0.2.10 for=0.0.0.0/0,::/0 {more}")
}

fn over_ipv4(more: &str) -> Value {
    json!({ "source": "192.0.2.1", "associations": [to_all(KEY, more)] })
}

fn over_ipv6(more: &str) -> Value {
    let line = format!("0x1001 key={LONG} peer=2001:db8::10 for=0.0.0.0/0,::/0 {more}");
    json!({ "source": "2001:db8::1", "associations": [line] })
}

/// Returns the associated data, the initialisation vector, and the encrypted text with its tag, of ESP that begins at
/// `at`.
fn parts(frame: &[u8], at: usize) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    (frame[at..at + 8].to_vec(), frame[at + 8..at + 16].to_vec(), frame[at + 16..].to_vec())
}

#[test]
fn openssl_makes_the_same_packets() {
    let (mut cases, mut ours) = (Vec::new(), Vec::new());
    for (params, key, at) in [(over_ipv4(""), KEY, 34), (over_ipv6(""), LONG, 54), (over_ipv4("udp=4500"), KEY, 42)] {
        for backend in ["auto", "software"] {
            let mut params = params.clone();
            params["backend"] = json!(backend);
            let mut rig = rig(&params);
            for len in [0, 1, 2, 3, 4, 100, 1_300] {
                for frame in [ipv4(0, &vec![7; len]), ipv6(0, &vec![7; len])] {
                    let (gate, out) = rig.run(&frame);
                    assert_eq!(gate, Gate::FIRST);
                    let (associated, iv, sealed) = parts(&out, at);
                    // RFC 4303 section 2.4, by hand.
                    let mut text = frame[14..].to_vec();
                    let protocol = if text[0] >> 4 == 4 { 4 } else { 41 };
                    let mut pad = 0;
                    while (text.len() + 2) % 4 != 0 {
                        pad += 1;
                        text.push(pad);
                    }
                    text.extend([pad, protocol]);
                    let mut key = bytes(key);
                    let salt = key.split_off(key.len() - 4);
                    cases.push((key, [salt, iv].concat(), associated, text));
                    ours.push(sealed);
                }
            }
        }
    }
    if let Some(theirs) = by_openssl(&cases) {
        assert_eq!(theirs, ours);
    }
}

#[test]
fn outer_headers_are_correct_and_numbers_increase() {
    let mut rig = rig(&over_ipv4(""));
    for expected in 1u32..=3 {
        let (_, out) = rig.run(&ipv4(0xba, b"abc"));
        assert_eq!(out[..12], [&TO[..], &FROM].concat());
        let sliced = etherparse::SlicedPacket::from_ethernet(&out).expect("whole headers");
        let Some(etherparse::NetSlice::Ipv4(ip)) = sliced.net else { panic!("IPv4") };
        let header = ip.header().to_header();
        assert_eq!((header.source, header.destination), ([192, 0, 2, 1], [192, 0, 2, 10]));
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        assert_eq!((usize::from(header.total_len), header.protocol.0, header.time_to_live), (out.len() - 14, 50, 64));
        assert_eq!(header.dscp.value() << 2 | header.ecn.value(), 0xba);
        assert_eq!(out[34..42], [[0, 0, 0x10, 1], expected.to_be_bytes()].concat());
    }
    let mut rig = self::rig(&over_ipv6("udp=4501"));
    let (_, out) = rig.run(&ipv6(0x2c, b"abc"));
    let sliced = etherparse::SlicedPacket::from_ethernet(&out).expect("whole headers");
    let Some(etherparse::NetSlice::Ipv6(ip)) = sliced.net else { panic!("IPv6") };
    let header = ip.header().to_header();
    assert_eq!((header.traffic_class, usize::from(header.payload_length)), (0x2c, out.len() - 54));
    let Some(etherparse::TransportSlice::Udp(udp)) = sliced.transport else { panic!("UDP") };
    assert_eq!((udp.source_port(), udp.destination_port(), usize::from(udp.length())), (4_500, 4_501, out.len() - 54));
    let correct = udp.to_header().calc_checksum_ipv6(&header, udp.payload()).expect("short");
    assert_eq!(udp.checksum(), correct);
}

#[test]
fn the_outer_packet_may_be_fragmented_as_configured() {
    let df = |df: &str, inner: bool| {
        let mut params = over_ipv4("");
        params["df"] = json!(df);
        let mut frame = ipv4(0, b"abc");
        frame[20] = if inner { 0x40 } else { 0 };
        let mut rig = rig(&params);
        let flags = [rig.run(&frame).1, rig.run(&frame).1].map(|out| (out[20] & 0x40 != 0, [out[18], out[19]]));
        assert_eq!(
            flags[0].1 == flags[1].1,
            flags[0].0,
            "packets have different numbers where fragmentation is allowed"
        );
        flags[0].0
    };
    assert!(df("copy", true) && !df("copy", false) && df("set", false) && !df("clear", true));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn tunnelled_packets_are_restored(
        len in 0usize..1_400, fill: u8, six_inside: bool, six_outside: bool, udp: bool, esn: bool, tag: bool,
        padding in 0usize..8, pad_to in prop::sample::select(vec![0u16, 100, 1_000]),
        (one, other) in prop::sample::select(vec![("auto", "software"), ("software", "auto"), ("auto", "auto")]),
    ) {
        let payload: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(31) ^ fill).collect();
        let frame = if six_inside { ipv6(fill & !3, &payload) } else { ipv4(fill & !3, &payload) };
        let more = format!("{}{}", if udp { "udp=4500 " } else { "" }, if esn { "esn" } else { "" });
        let mut params = if six_outside { over_ipv6(&more) } else { over_ipv4(&more) };
        params["backend"] = json!(one);
        params["pad_to"] = json!(pad_to);
        let mut seal = rig(&params);
        let key = if six_outside { LONG } else { KEY };
        let (peer, local) = if six_outside { ("2001:db8::1", "2001:db8::10") } else { ("192.0.2.1", "192.0.2.10") };
        let line = format!("0x1001 key={key} peer={peer} local={local} {}", if esn { "esn" } else { "" });
        let params = json!({ "associations": [line], "udp": 4500, "backend": other });
        let mut open = Rig::of::<EspDecrypt>(&params).expect("valid parameters");
        let sent = [if tag { tagged(&frame) } else { frame.clone() }, vec![0xee; padding]].concat();
        let (gate, out) = seal.run(&sent);
        prop_assert_eq!(gate, Gate::FIRST);
        let before = 14 + if six_outside { 40 } else { 20 } + if udp { 8 } else { 0 } + 16;
        prop_assert_eq!(out.len(), before + ((frame.len() - 14).max(pad_to.into()) + 2).next_multiple_of(4) + 16);
        let (gate, inner) = open.run(&[out.clone(), vec![0xee; padding]].concat());
        prop_assert_eq!(gate, Gate::FIRST);
        prop_assert_eq!(inner, frame);
        prop_assert_ne!(open.run(&out).0, Gate::FIRST, "a packet is not accepted twice");
    }
}

#[test]
fn packets_that_cannot_leave_are_dropped_with_their_reason() {
    let mut params = over_ipv4("");
    params["associations"] = json!([format!("0x1001 key={KEY} peer=192.0.2.10 for=10.60.0.0/16")]);
    params["mtu"] = json!(120);
    let mut rig = rig(&params);
    let mut elsewhere = ipv4(0, b"abc");
    elsewhere[30] = 11;
    let mut arp = ipv4(0, b"abc");
    arp[13] = 6;
    let mut cut = ipv4(0, b"abc");
    cut.truncate(44);
    for (frame, gate) in [
        (elsewhere, NO_ASSOCIATION),
        (ipv6(0, b"abc"), NO_ASSOCIATION),
        (arp, NOT_IP),
        (vec![], NOT_IP),
        (cut, TRUNCATED),
        (ipv4(0, &[1; 39]), TOO_LONG),
    ] {
        assert_eq!(rig.run(&frame), (gate, frame.clone()));
    }
    // In bytes: outer header 20, ESP 16, inner packet 28 and 38, trailer 2, tag 16.
    assert_eq!(rig.run(&ipv4(0, &[1; 38])).1.len(), 14 + 120);
    let mut rig = self::rig(&over_ipv4(""));
    let room = rig.packet(b"").tailroom();
    assert_eq!(rig.run(&ipv4(0, &vec![1; room - 42])).0, NO_ROOM);
}

#[test]
fn unmatched_packets_bypass_where_configured() {
    let mut rig = rig(&json!({ "source": "192.0.2.1", "unmatched": "bypass" }));
    assert_eq!(rig.declared.gates, ["0", "bypass"]);
    let frame = ipv4(0, b"abc");
    assert_eq!(rig.run(&frame), (BYPASS, frame));
}

#[test]
fn lifetimes_end_softly_and_hard() {
    let mut rig = rig(&over_ipv4("soft-packets=2 hard-packets=3"));
    let gates: Vec<_> = (0..4).map(|_| (rig.run(&ipv4(0, b"abc")).0, rig.counters("lifetime")["soft"])).collect();
    assert_eq!(gates, [(Gate::FIRST, 0), (Gate::FIRST, 1), (Gate::FIRST, 1), (EXPIRED, 1)]);
    let mut rig = self::rig(&over_ipv4("soft-bytes=31 hard-bytes=93"));
    let gates: Vec<_> = (0..4).map(|_| (rig.run(&ipv4(0, b"abc")).0, rig.counters("lifetime")["soft"])).collect();
    assert_eq!(gates, [(Gate::FIRST, 1), (Gate::FIRST, 1), (Gate::FIRST, 1), (EXPIRED, 1)]);
}

#[test]
fn sequence_numbers_end() {
    let sending = associations::Sending::default();
    assert_eq!((sending.next(2), sending.next(2), sending.next(2)), (Some(1), Some(2), None));
    assert_eq!(sending.next(3), Some(3), "a refused request uses no number");
}

#[test]
fn associations_change_while_packets_run() {
    let mut rig = rig(&json!({ "source": "192.0.2.1" }));
    let (name, table) = rig.declared.tables.remove(0);
    assert_eq!((name.as_str(), table.len()), ("associations", 0));
    let frame = ipv4(0, b"abc");
    let spi = |rig: &mut Rig| {
        let (gate, out) = rig.run(&frame);
        (gate == Gate::FIRST).then(|| u32::from_be_bytes(out[34..38].try_into().expect("four")))
    };
    let apply = |line: &str| table.apply(&[line]).refused.first().map_or(String::new(), ToString::to_string);
    assert_eq!(spi(&mut rig), None);
    assert_eq!(apply(&format!("add 0x100 key={KEY} peer=192.0.2.10 for=10.0.0.0/8")), "");
    assert_eq!(spi(&mut rig), Some(0x100));
    // The association with the longer prefix is used, and among equal prefixes the later association.
    assert_eq!(apply(&format!("add 0x101 key={KEY} peer=192.0.2.11 for=10.60.0.0/16 # a site")), "");
    assert_eq!(apply(&format!("add 0x102 key={KEY} peer=192.0.2.12 for=10.60.0.0/16,10.61.0.0/16")), "");
    assert_eq!(spi(&mut rig), Some(0x102));
    let shown = table.entries(None, 2).expect("from the first").join("\n");
    assert!(
        shown.starts_with("0x00000100 key=(hidden) peer=192.0.2.10 for=10.0.0.0/8 # packets 1 bytes 31 sequence 1\n"),
        "{shown}"
    );
    let rest = table.entries(shown.lines().last(), 9).expect("a line as shown");
    assert_eq!(
        rest,
        ["0x00000102 key=(hidden) peer=192.0.2.12 for=10.60.0.0/16,10.61.0.0/16 # packets 1 bytes 31 sequence 1"]
    );
    assert_eq!(apply(&format!("remove {}", rest[0])), "");
    assert_eq!(spi(&mut rig), Some(0x101));
    assert_eq!(apply("remove 257"), "");
    assert_eq!(spi(&mut rig), Some(0x100));
    // With the same key the state is kept.
    assert_eq!(apply(&format!("replace 0x100 key={KEY} peer=192.0.2.10 for=0.0.0.0/0")), "");
    assert!(table.entries(None, 1).expect("one")[0].ends_with("sequence 2"));
    assert_eq!(apply(&format!("replace 0x100 key={LONG} peer=192.0.2.10 for=0.0.0.0/0")), "");
    assert!(table.entries(None, 1).expect("one")[0].ends_with("sequence 0"));
    for (line, message) in [
        ("add 0x100 key=00 peer=192.0.2.10", "the key has 1 bytes: allowed are 20"),
        (&format!("add 0x100 key={KEY} peer=192.0.2.10"), "0x100 already exists"),
        (&format!("add 0x200 key={KEY}"), "the peer is missing"),
        (&format!("add 0x200 key={KEY} peer=2001:db8::1"), "the address family differs from that of `source`"),
        (&format!("add 255 key={KEY}"), "the first word (not shown) is not a security parameters index"),
        (&format!("add {KEY}"), "the first word (not shown) is not a security"),
        (KEY, "the first word (not shown) is not a kind of change"),
        (&KEY[..12], "the first word (not shown) is not a kind of change"),
        (&format!("add {}", &KEY[..12]), "the first word (not shown) is not a security"),
        (&format!("add 0x200 key={KEY} {}=1", &KEY[..16]), "word 3 is unknown"),
        (&format!("add 0x200 key={KEY} peer={KEY}"), "peer: not an address"),
        (&format!("add 0x200 key={KEY} for=192.0.2.0/24,{KEY}"), "for: not a prefix"),
        (&format!("add 0x200 key={KEY} for=192.0.2.0/{KEY}"), "for: not a prefix"),
        (&format!("add 0x200 key={KEY} for={KEY}/24"), "for: not a prefix"),
        (&format!("add 0x200 key={KEY} soft-bytes={KEY}"), "soft-bytes: not a valid number"),
        (&format!("add 0x200 key={KEY} number={KEY}"), "number: not a valid number"),
        (&format!("add 0x200 key={KEY} udp={KEY}"), "udp: not a port"),
        (&format!("add 0x200 key=@{KEY}"), "name not shown"),
        (&format!("add 0x200 {KEY} peer=192.0.2.10"), "word 2 is unknown: allowed are key, peer"),
        (&format!("add 0x200 {KEY}=1 peer=192.0.2.10"), "word 2 is unknown"),
        (&format!("add 0x200 key={KEY}zz"), "byte 41 of the key is no"),
        (&format!("add 0x200 key={KEY} key={KEY}"), "'key' is given twice"),
        (&format!("add 0x200 key={KEY} window=5"), "word 3 is unknown"),
        (&format!("add 0x200 key={KEY} for=10.0.0.0/33"), "for: not a prefix"),
        (
            &format!("add 0x200 key={KEY} hard-packets=0"),
            "hard-packets: not a valid number: allowed are whole numbers from 1",
        ),
        (&format!("add 0x200 key={KEY} esn=1"), "esn takes no value: write only esn"),
        ("add 0x200 peer=192.0.2.10", "the key is missing"),
        ("add 0x200 key=(hidden) peer=192.0.2.10", "the listed line does not show the key"),
        ("add 0x200 key=@none.key peer=192.0.2.10", "cannot read 'none.key'"),
        ("remove 0x200", "0x200 does not exist"),
        (&format!("remove 0x100 {KEY}"), "word 2 (not shown) differs from the listed line of 0x100: write the index"),
        (
            &format!("remove 0x100 key={KEY} peer=192.0.2.10"),
            "word 2 (not shown) differs from the listed line of 0x100",
        ),
        ("remove 0x100 peer=192.0.2.10 peer=192.0.2.11", "word 3 (not shown) differs from the listed line of 0x100"),
        ("remove 0x100 0x101", "word 2 (not shown) differs from the listed line of 0x100"),
        ("drop 0x200", "the first word (not shown) is not a kind of change"),
    ] {
        let refused = apply(line);
        assert!(refused.contains(message), "{line}: {refused}");
        assert!(!refused.contains("4c80"), "{refused}");
    }
    assert_eq!(table.len(), 1);
    // The line is written as in a file, with its key.
    assert_eq!(apply(&format!("remove 0x100 key={LONG} peer=192.0.2.10")), "");
}

#[test]
fn a_number_finds_an_association() {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    let lines = json!([
        format!("0x100 key={KEY} peer=192.0.2.10 number=5"),
        format!("0x101 key={LONG} peer=192.0.2.10 number=6")
    ]);
    let params = json!({ "source": "192.0.2.1", "by": "next_hop", "associations": lines });
    let mut rig = Rig::within::<EspEncrypt>(&params, &mut environment).expect("valid parameters");
    let word = environment.words["next_hop"];
    for (number, expected) in [(5, Some(0)), (6, Some(1)), (7, None)] {
        let mut batch = forebay_packet::Batch::with_capacity(1);
        let mut packet = rig.packet(&ipv4(0, b"abc"));
        packet.set_word(word, number);
        batch.push(packet).expect("room");
        let gate = rig.process(&mut batch)[0];
        assert_eq!(gate == Some(Gate::FIRST), expected.is_some());
        if let Some(last) = expected {
            assert_eq!(batch[0].data()[37], last);
        }
    }
}

#[test]
fn the_next_configuration_continues_the_sequence_numbers() {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    let sequence = |rig: &mut Rig| rig.run(&ipv4(0, b"abc")).1[41];
    let mut first = Rig::within::<EspEncrypt>(&over_ipv4(""), &mut environment).expect("valid parameters");
    assert_eq!((sequence(&mut first), sequence(&mut first)), (1, 2));
    // Another lifetime makes another configuration with the same association.
    let mut next = Rig::within::<EspEncrypt>(&over_ipv4("hard-packets=9"), &mut environment).expect("valid parameters");
    assert_eq!(sequence(&mut next), 3);
}

#[test]
fn a_file_lists_associations_and_names_keys() {
    let folder = std::env::temp_dir().join(format!("forebay-esp-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for temporary files");
    std::fs::write(folder.join("site.key"), KEY).expect("a writable file");
    let line = "0x1001 key=@site.key peer=192.0.2.10 for=0.0.0.0/0\n";
    std::fs::write(folder.join("vpn.sas"), format!("# the sites\n\n{line}")).expect("a writable file");
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    environment.files.base = folder.clone();
    let params = json!({ "source": "192.0.2.1", "associations": { "file": "vpn.sas" } });
    let mut rig = Rig::within::<EspEncrypt>(&params, &mut environment).expect("valid parameters");
    assert_eq!(rig.run(&ipv4(0, b"abc")).0, Gate::FIRST);
    let table = rig.declared.tables[0].1.entries(None, 9).expect("one");
    assert!(table[0].starts_with("0x00001001 key=@site.key peer"), "{table:?}");
    let read: Vec<_> = environment.files.reads.borrow().iter().map(|(_, path)| path.clone()).collect();
    assert!(read.contains(&folder.join("site.key")) && read.contains(&folder.join("vpn.sas")));
    std::fs::write(folder.join("vpn.sas"), format!("{line}{line}x\n")).expect("a writable file");
    let error = Rig::within::<EspEncrypt>(&params, &mut environment).err().expect("twice").to_string();
    assert!(
        error.contains("vpn.sas:2: 0x1001 is given twice") && error.contains("vpn.sas:3: the first word"),
        "{error}"
    );
    std::fs::remove_dir_all(&folder).expect("the folder exists");
}

#[test]
fn faults_are_named() {
    let with = |key: &str, value: Value| {
        let mut params = over_ipv4("");
        params[key] = value;
        Rig::of::<EspEncrypt>(&params).err().map_or(String::new(), |error| error.to_string())
    };
    for (key, value, message) in [
        ("ttl", json!(0), "ttl: with 0"),
        ("mtu", json!(67), "mtu: 67: allowed are 68"),
        ("pad_to", json!(9_001), "pad_to: 9001"),
        ("associations", json!(["x"]), "associations[0]: the first word (not shown) is not a security"),
        ("associations", json!([5]), "associations"),
        ("df", json!("keep"), "keep"),
    ] {
        let error = with(key, value);
        assert!(error.contains(message), "{error}");
    }
    let shown = format!("{:?}", serde_json::from_value::<Params>(over_ipv4("")).expect("valid parameters"));
    assert!(!shown.contains("4c80"), "{shown}");
}

/// tshark with the key decrypts the packets and confirms the tags.
#[test]
fn tshark_decrypts() {
    let version = std::process::Command::new("tshark").arg("--version").output();
    let Ok(_) = version else {
        return skip("tshark is not installed");
    };
    let mut rig = rig(&over_ipv4(""));
    let mut in_udp = self::rig(&over_ipv4("udp=4500"));
    let frames = [ipv4(0, b"abc"), ipv6(0, &[5; 200])].map(|frame| [rig.run(&frame).1, in_udp.run(&frame).1]).concat();
    let mut six = self::rig(&over_ipv6(""));
    let frames: Vec<Vec<u8>> = frames.into_iter().chain([six.run(&ipv4(0, b"abc")).1]).collect();
    let association = |kind: &str, from: &str, to: &str, key: &str, cipher: &str| {
        format!(
            "uat:esp_sa:\"{kind}\",\"{from}\",\"{to}\",\"0x00001001\",\"{cipher}\",\"0x{key}\",\"NULL\",\"\",\"32-bit\""
        )
    };
    let cipher = "AES-GCM with 16 octet ICV [RFC4106]";
    let options = [
        "esp.enable_encryption_decode:TRUE".to_owned(),
        "esp.enable_authentication_check:TRUE".to_owned(),
        association("IPv4", "192.0.2.1", "192.0.2.10", KEY, cipher),
        association("IPv6", "2001:db8::1", "2001:db8::10", LONG, cipher),
    ];
    let path = std::env::temp_dir().join(format!("forebay-esp-{}.txt", std::process::id()));
    // The format of text2pcap: offset and bytes. tshark reads it through a capture file.
    let dump: String = frames
        .iter()
        .map(|frame| format!("000000 {}\n\n", frame.iter().map(|byte| format!("{byte:02x} ")).collect::<String>()))
        .collect();
    std::fs::write(&path, dump).expect("a writable file");
    let capture = path.with_extension("pcap");
    let made = std::process::Command::new("text2pcap").arg("-q").args([&path, &capture]).status();
    assert!(made.is_ok_and(|status| status.success()), "text2pcap comes with tshark");
    let mut command = std::process::Command::new("tshark");
    options.iter().for_each(|option| _ = command.args(["-o", option]));
    command.args([
        "-T",
        "fields",
        "-e",
        "ip.proto",
        "-e",
        "ipv6.nxt",
        "-e",
        "udp.dstport",
        "-e",
        "esp.icv_good",
        "-e",
        "_ws.malformed",
    ]);
    let output = command.arg("-r").arg(&capture).output().expect("tshark is installed");
    std::fs::remove_file(&path).expect("the file exists");
    std::fs::remove_file(&capture).expect("the file exists");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    let seen: Vec<_> = lines.iter().map(|fields| (fields[0], fields[1], fields[2])).collect();
    let expected = [
        ("50,17", "", "2000"),
        ("17,17", "", "4500,2000"),
        ("50", "17", "2000"),
        ("17", "17", "4500,2000"),
        ("17", "50", "2000"),
    ];
    assert_eq!(seen, expected, "{text} {}", hex(&frames[0]));
}

#[test]
fn the_shortest_packet_goes_in() {
    let mut frame = Vec::new();
    let nothing = etherparse::IpNumber(59);
    PacketBuilder::ethernet2(FROM, TO).ipv6([1; 16], [2; 16], 9).write(&mut frame, nothing, b"").expect("memory");
    let (gate, out) = rig(&over_ipv4("")).run(&frame);
    assert_eq!((gate, out.len()), (Gate::FIRST, 14 + 20 + 16 + 44 + 16));
}

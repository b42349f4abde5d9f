//! Tests of each option with a packet that it must match and a packet that it must not match.

use super::*;

/// Returns a TCP segment with a distinctive value in every field that rules compare.
pub(super) fn segment(payload: &[u8]) -> Vec<u8> {
    let mut frame = tcp(payload, 1_000, 80, 0x18);
    frame[15] = 0x10;
    frame[18..20].copy_from_slice(&777u16.to_be_bytes());
    frame[20] = 0x40;
    frame[38..42].copy_from_slice(&70_000u32.to_be_bytes());
    frame[42..46].copy_from_slice(&4_000_000_000u32.to_be_bytes());
    frame[48..50].copy_from_slice(&512u16.to_be_bytes());
    frame
}

/// Returns an ICMP message with identifier 1 and sequence number 2.
pub(super) fn ping4(message_type: u8, code: u8) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [192, 0, 2, 1], 3);
    builder.icmpv4_echo_request(1, 2).write(&mut frame, b"ping").expect("memory");
    (frame[34], frame[35]) = (message_type, code);
    frame
}

/// Returns a datagram with a record-route option.
pub(super) fn with_options() -> Vec<u8> {
    let mut frame = Vec::new();
    let options = etherparse::Ipv4Options::try_from(&[1, 7, 7, 4, 0, 0, 0, 0][..]).expect("options");
    let mut header =
        etherparse::Ipv4Header::new(8, 9, etherparse::IpNumber::UDP, [10, 0, 0, 1], [192, 0, 2, 1]).expect("a header");
    header.options = options;
    let builder =
        PacketBuilder::ethernet2([2; 6], [4; 6]).ip(etherparse::IpHeaders::Ipv4(header, Default::default())).udp(1, 2);
    builder.write(&mut frame, b"").expect("memory");
    frame
}

/// Returns true if a rule matches a frame. Checks that the naive matcher agrees.
pub(super) fn matches(protocol: &str, options: &str, frame: &[u8]) -> bool {
    let text = format!("alert {protocol} any any -> any any ({options} sid:7;)");
    let file = read(&text).unwrap_or_else(|error| panic!("{error}"));
    let mut rig = rig(&[&text]);
    rig.run(frame);
    let matched = rig.counters("packets")["alerted"] == 1;
    let plain = naive::read(frame).expect("IP");
    assert_eq!(naive::matches(&file.rules[0], &plain), matched, "the naive matcher: {options}");
    matched
}

#[test]
fn options_about_headers_have_a_packet_that_matches_and_one_that_does_not() {
    let (segment, ping4, ping6) = (segment(b"abc"), ping4(8, 0), ping(b"abc"));
    let fragment = {
        let mut later = udp(b"....evil", 1, 9, 53);
        later[20..22].copy_from_slice(&0x2005u16.to_be_bytes());
        later
    };
    for (protocol, yes, no, frame) in [
        ("tcp", "tos:16;", "tos:!16;", &segment),
        ("tcp", "tos:15<>17;", "tos:16<>18;", &segment),
        ("tcp", "id:777;", "id:778;", &segment),
        ("tcp", "id:777<=>778;", "id:777<>779;", &segment),
        ("tcp", "fragbits:D;", "fragbits:M;", &segment),
        ("tcp", "fragbits:*DM;", "fragbits:+DM;", &segment),
        ("tcp", "fragbits:!M;", "fragbits:!D;", &segment),
        ("tcp", "fragoffset:0;", "fragoffset:>0;", &segment),
        ("udp", "fragbits:M+;", "fragbits:D;", &fragment),
        ("udp", "fragoffset:>4;", "fragoffset:0;", &fragment),
        ("tcp", "seq:70000;", "seq:70001;", &segment),
        ("tcp", "ack:>3999999999;", "ack:<4000000000;", &segment),
        ("tcp", "window:512;", "window:!512;", &segment),
        ("ip", "ipopts:rr;", "ipopts:lsrr;", &with_options()),
        ("icmp", "icmp_id:1;", "icmp_id:2;", &ping4),
        ("icmp", "icmp_seq:2;", "icmp_seq:<2;", &ping4),
        ("icmp", "icmp_id:1; icmp_seq:1<>3;", "icmp_seq:2<>9;", &ping6),
        ("icmp", "itype:7<>9;", "itype:8<>10;", &ping4),
        ("ip", "ip_proto:!udp;", "ip_proto:tcp; ip_proto:>6;", &segment),
        ("tcp", "dsize:3<>9;", "dsize:4<>9;", &segment),
        ("tcp", "ttl:60-64;", "ttl:60<>64;", &segment),
    ] {
        assert!(matches(protocol, yes, frame), "{yes}");
        assert!(!matches(protocol, no, frame), "{no}");
    }
    assert!(!matches("icmp", "icmp_id:1;", &self::ping4(3, 1)), "only echo messages have an identifier");
    assert!(!matches("ip", "ipopts:any;", &segment));
}

/// `A<>B` excludes its ends, except for `dsize`, as in Snort 2. `A<=>B` includes them (Snort 3).
#[test]
fn ranges_mean_what_each_option_documents() {
    let types = |options: &str| {
        (0..12).filter(|message_type| matches("icmp", options, &ping4(*message_type, 4))).collect::<Vec<u8>>()
    };
    assert_eq!(types("itype:0<>8;"), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(types("itype:0<=>8;"), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(types("itype:!2<>9;"), [0, 1, 2, 9, 10, 11]);
    assert_eq!(types("itype:>8;"), [9, 10, 11]);
    assert!(matches("icmp", "icode:3<>5;", &ping4(3, 4)) && !matches("icmp", "icode:4<>6;", &ping4(3, 4)));
    let sizes = |options: &str| {
        (0..9).filter(|size| matches("udp", options, &udp(&[0; 9][..*size], 1, 2, 3))).collect::<Vec<usize>>()
    };
    assert_eq!((sizes("dsize:3<>5;"), sizes("dsize:3<=>5;")), (vec![3, 4, 5], vec![3, 4, 5]));
    let lives = |options: &str| {
        let live = |ttl: &u8| {
            let mut frame = udp(b"", 1, 2, 3);
            frame[22] = *ttl;
            matches("udp", options, &frame)
        };
        (0..8).filter(live).collect::<Vec<u8>>()
    };
    assert_eq!((lives("ttl:3-5;"), lives("ttl:3<>5;"), lives("ttl:3<=>5;")), (vec![3, 4, 5], vec![4], vec![3, 4, 5]));
    assert_eq!((lives("ttl:-2;"), lives("ttl:6-;")), (vec![0, 1, 2], vec![6, 7]));
    let with = |name: &str, value: &str| {
        let protocol = if name.starts_with('i') { "icmp" } else { "tcp" };
        let read = read(&format!("alert {protocol} any any -> any any ({name}:{value}; sid:1;)"));
        read.map(|file| file.rules[0].tests[0].clone())
    };
    for name in ["itype", "icode", "icmp_id", "icmp_seq", "tos", "id", "window", "seq", "ack", "fragoffset", "ttl"] {
        let exclusive = with(name, "3<>9").expect(name);
        let name = if name == "id" { "id" } else { name };
        assert_eq!(exclusive, with(name, "4<=>8").expect(name), "{name}");
        assert!(with(name, "3<>4").expect_err(name).contains("no number passes this test"), "{name}");
        assert!(with(name, "!>=0").expect_err(name).contains("'!>=0': no number passes this test"), "{name}");
        for valid in ["!0", "!<9", "!>9"] {
            assert!(with(name, valid).is_ok(), "{name}:{valid}");
        }
        if name != "ttl" {
            assert!(with(name, "3-9").is_err(), "{name}");
        }
    }
    assert!(with("ip_proto", "1<>9").expect_err("no range").contains("ip_proto '1<>9': allowed are"));
}

#[test]
fn ports_in_rules_for_icmp_and_ip_are_parsed_and_not_compared() {
    let rule = "alert ip any any -> any 53 (content:\"a\"; sid:1;)";
    let mut rig = rig(&[rule, "alert icmp any any -> any 80 (sid:2;)"]);
    rig.run(&udp(b"a", 1, 9, 80));
    rig.run(&ping(b""));
    assert_eq!(matched(&rig), ["1 1 rule 1", "1 2 rule 2"]);
}

#[test]
fn fast_pattern_takes_arguments() {
    let frame = tcp(b"xx Evil.Example yy", 1, 80, 0x18);
    for (options, expected) in [
        ("content:\"evil.example\"; fast_pattern:only;", true),
        ("content:\"evil.example\"; fast_pattern:0,8;", false),
        ("content:\"Evil.Example\"; fast_pattern:4,4;", true),
        ("content:\"Evil.Example\"; fast_pattern:only; content:\"xx\"; content:\"Evil\"; distance:1; within:4;", true),
        // No option is relative to a content with `fast_pattern:only`.
        ("content:\"xx\"; content:\"evil.example\"; fast_pattern:only; content:\"Evil\"; distance:1; within:4;", true),
        ("content:\"nothing\"; fast_pattern:only;", false),
        ("content:\"xx\"; startswith;", true),
        ("content:\"Evil\"; startswith;", false),
    ] {
        assert_eq!(matches("tcp", options, &frame), expected, "{options}");
    }
    for (options, reported) in [
        ("content:\"abc\"; fast_pattern:1,3;", "allowed are 'only', and OFFSET,LENGTH within the 3 bytes"),
        ("content:\"abc\"; fast_pattern:0,0;", "allowed are 'only'"),
        ("content:\"abc\"; offset:1; fast_pattern:only;", "with offset, depth, distance or within"),
        ("content:!\"abc\"; fast_pattern:only;", "a negated content"),
        ("content:\"abc\"; offset:1; startswith;", "'startswith' is not allowed for a content with offset"),
    ] {
        let error = read(&format!("alert tcp any any -> any any ({options} sid:1;)")).expect_err(options);
        assert!(error.contains(reported), "{error}");
    }
}

#[test]
fn a_rule_with_noalert_drops_without_a_report() {
    let mut rig = rig(&["alert udp any any -> any 1 (noalert; sid:1;)", "drop udp any any -> any 2 (noalert; sid:2;)"]);
    assert_eq!(rig.run(&udp(b"", 1, 9, 1)).0, Gate::FIRST);
    assert_eq!(rig.run(&udp(b"", 1, 9, 2)).0, DENIED);
    assert_eq!((rig.counters("packets")["clean"], rig.counters("packets")["dropped"]), (1, 1));
}

/// Each refusal has the right reason.
#[test]
fn options_that_are_not_supported_are_refused_by_their_reason() {
    for (options, reported) in [
        ("content:\"a\"; http_uri;", "HTTP buffers are not supported yet"),
        ("file_data; content:\"a\";", "HTTP buffers are not supported yet"),
        ("http.uri; content:\"a\";", "HTTP buffers are not supported yet"),
        ("uricontent:\"a\";", "HTTP buffers are not supported yet"),
        ("dns.query; content:\"a\";", "buffers of application protocols are not supported yet"),
        ("tls.sni; content:\"a\";", "buffers of application protocols are not supported yet"),
        ("stream_size:server,<,10;", "stream reassembly is not supported yet"),
        ("tag:session,1,packets;", "rules do not respond to, record or change packets"),
        ("logto:\"x\";", "rules do not respond to, record or change packets"),
        ("gid:116;", "gid 116: allowed are 1, and 1000000 and above"),
    ] {
        let error = read(&format!("alert tcp any any -> any any ({options} sid:1;)")).expect_err(options);
        assert!(error.contains(reported), "{options}: {error}");
    }
    for header in ["alert http any any -> any any", "alert http", "alert file"] {
        let error = read(&format!("{header} (content:\"a\"; sid:1;)")).expect_err(header);
        assert!(error.contains("HTTP buffers are not supported yet"), "{header}: {error}");
    }
    assert!(
        read("alert tls any any -> any any (sid:1;)").expect_err("tls").contains("the protocol 'tls' is not decoded")
    );
}

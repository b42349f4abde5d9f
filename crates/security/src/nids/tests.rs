//! Tests of the packets that rules match, and of the outcome for these packets.

mod bits;
mod chain;
mod flow;
mod keywords;
mod mix;
mod oracle;
mod reports;
mod rows;
mod skipped;
mod written;

use std::path::Path;

use etherparse::PacketBuilder;
use forebay_frames::skip;
use forebay_graph::{Rig, SetupEnvironment};
use forebay_packet::Batch;
use forebay_units::Frequency;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::parse::{Dialect, File, FlowMode, parse};
use super::*;

fn tcp(payload: &[u8], from: u16, to: u16, flags: u8) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [192, 0, 2, 1], 64).tcp(from, to, 1, 2);
    builder.write(&mut frame, payload).expect("memory");
    frame[47] = flags;
    frame
}

fn udp(payload: &[u8], source: u8, from: u16, to: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, source], [192, 0, 2, 1], 64).udp(from, to);
    builder.write(&mut frame, payload).expect("memory");
    frame
}

fn ping(payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([1; 16], [1; 16], 3).icmpv6_echo_request(1, 2);
    builder.write(&mut frame, payload).expect("memory");
    frame
}

fn read(rules: &str) -> Result<File, String> {
    parse("r", rules.as_bytes(), &Dialect::default())
}

fn rig(rules: &[&str]) -> Rig {
    Rig::of::<Nids>(&json!({ "rules": rules })).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the lines of the table `matches`: counts, numbers and messages of rules that matched, the most frequent
/// first.
fn matched(rig: &Rig) -> Vec<String> {
    let (_, table) = rig.declared.tables.iter().find(|(name, _)| name == "matches").expect("a table");
    table.entries(None, usize::MAX).expect("all")
}

/// Returns true if a rule with these options matches a frame.
fn rule_matches(options: &str, frame: &[u8]) -> bool {
    let protocol = if options.contains("flags") {
        "tcp"
    } else if options.contains("itype") || options.contains("icode") {
        "icmp"
    } else {
        "ip"
    };
    let rule = format!("alert {protocol} any any -> any any ({options} sid:7;)");
    let mut rig = rig(&[&rule]);
    assert_eq!(rig.run(frame).0, Gate::FIRST);
    rig.counters("packets")["alerted"] == 1
}

#[test]
fn options_mean_what_the_documentation_says() {
    let web = tcp(b"GET /a HTTP/1.1\r\nHost: b", 1_000, 80, 0x18);
    for (options, expected) in [
        ("content:\"GET\";", true),
        ("content:\"get\";", false),
        ("content:\"get\"; nocase;", true),
        ("content:!\"POST\";", true),
        ("content:!\"GET\"; offset:1;", true),
        ("content:\"GET\"; offset:1;", false),
        ("content:\"/a\"; offset:4; depth:2;", true),
        ("content:\"/a\"; depth:5;", false),
        ("content:\"GET\"; content:\"HTTP\"; distance:4; within:4;", true),
        ("content:\"GET\"; content:\"HTTP\"; distance:5;", false),
        ("content:\"GET\"; content:\"HTTP\"; within:7;", false),
        ("content:\"GET\"; content:\"HTTP\"; within:8;", true),
        ("content:\"HTTP\"; content:\"GET\"; distance:-11; within:3;", true),
        ("content:\"GET\"; content:!\"HTTP\"; within:7;", true),
        ("content:\"|0d 0a|Host\";", true),
        ("pcre:\"/^GET\\s+\\/[a-z]+ http/i\";", true),
        ("pcre:!\"/Host/\";", false),
        ("dsize:24;", true),
        ("dsize:<24;", false),
        ("dsize:20<>30;", true),
        ("ttl:64;", true),
        ("ttl:!64;", false),
        ("ip_proto:tcp;", true),
        ("ip_proto:!6;", false),
        ("flags:PA;", true),
        ("flags:A;", false),
        ("flags:A+;", true),
        ("flags:*SA;", true),
        ("flags:!SF;", true),
        ("flags:A,P;", true),
        ("sameip;", false),
        ("itype:8;", false),
    ] {
        assert_eq!(rule_matches(options, &web), expected, "{options}");
    }
    for (options, expected) in [
        ("itype:128; icode:0;", true),
        ("icode:>0;", false),
        ("sameip;", true),
        ("ttl:<=3;", true),
        ("content:\"abc\"; offset:0; depth:3; ip_proto:icmp6;", true),
        ("dsize:3;", true),
    ] {
        assert_eq!(rule_matches(options, &ping(b"abc")), expected, "{options}");
    }
}

/// Regression: overlapping port ranges made a group of hundreds of rules for every few ports: 1 400 automata with 400
/// contents each.
#[test]
fn overlapping_port_ranges_take_bounded_memory() {
    let rules: Vec<String> = (0..1_000)
        .map(|number| {
            let (first, last) = (number * 10, number * 10 + 4_000);
            format!(
                "drop tcp any any -> any {first}:{last} (content:\"{number:04} of a thousand\"; sid:{};)",
                number + 1
            )
        })
        .collect();
    let file = read(&rules.join("\n")).expect("rules");
    let (groups, bytes) = Ruleset::new(file.rules).expect("not too much").size();
    assert!(groups < 10 && bytes < 32 << 20, "{groups} groups take {bytes} bytes");
    // Rules still match by port.
    let texts: Vec<&str> = rules.iter().map(String::as_str).collect();
    let mut rig = rig(&texts);
    for (port, gate) in [(4_999, Gate::FIRST), (5_000, DENIED), (9_000, DENIED), (9_001, Gate::FIRST)] {
        assert_eq!(rig.run(&tcp(b"0500 of a thousand", 1, port, 0x18)).0, gate, "{port}");
    }
}

/// The total memory of groups is bounded. Rules with narrow port ranges keep their own groups.
#[test]
fn rules_for_few_ports_keep_their_groups_beside_rules_for_many() {
    let narrow = (0..100).map(|number| {
        format!(
            "drop tcp any any -> any {} (content:\"narrow number {number:04}\"; sid:{};)",
            80 + number % 4,
            number + 1
        )
    });
    let wide = (0..2_000).map(|number| {
        let (first, last) = (number, number + 4_000);
        format!("drop tcp any any -> any {first}:{last} (content:\"wide number {number:04}\"; sid:{};)", number + 1_000)
    });
    let few: Vec<_> = narrow.clone().collect();
    let all: Vec<_> = narrow.chain(wide).collect();
    let size =
        |rules: &[String]| Ruleset::new(read(&rules.join("\n")).expect("rules").rules).expect("not too much").size();
    assert_eq!((size(&few).0, size(&all).0), (4, 5), "one more group, for any port");
}

/// Regression: with different rules for each of the 65 536 ports, the rules for the last port were not tested.
#[test]
fn every_port_may_have_a_rule_of_its_own() {
    let rules: Vec<_> =
        (0..=65_535).map(|port| format!("drop udp any any -> any {port} (sid:{};)", port + 1)).collect();
    let texts: Vec<_> = rules.iter().map(String::as_str).collect();
    let mut rig = rig(&texts);
    for port in [0, 1, 65_534, 65_535] {
        assert_eq!(rig.run(&udp(b"abc", 1, 9, port)).0, DENIED, "{port}");
    }
}

#[test]
fn pass_comes_before_drop_and_drop_before_alert() {
    let mut rig = rig(&[
        "alert ip any any -> any any (content:\"a\"; sid:1;)",
        "drop udp any any -> any 53 (content:\"bad\"; sid:2;)",
        "pass udp 10.0.0.9 any -> any any (sid:3;)",
        "log tcp any any -> any any (flags:S; sid:4;)",
    ]);
    assert_eq!(rig.run(&udp(b"bad", 1, 9, 53)).0, DENIED);
    assert_eq!(rig.run(&udp(b"bad", 9, 9, 53)).0, Gate::FIRST);
    assert_eq!(rig.run(&udp(b"bad", 1, 9, 54)).0, Gate::FIRST);
    assert_eq!(rig.run(&tcp(b"", 1, 2, 2)).0, Gate::FIRST);
    assert_eq!(rig.run(&tcp(b"", 1, 2, 16)).0, Gate::FIRST);
    assert_eq!(rig.run(&[1; 60]).0, Gate::FIRST);
    let counts: Vec<_> = rig.counters("packets").into_iter().collect();
    assert_eq!(
        counts,
        [("alerted", 1), ("clean", 1), ("dropped", 1), ("logged", 1), ("passed", 1), ("undecided", 0), ("unseen", 1)]
    );
    assert_eq!(matched(&rig), ["2 1 rule 1", "1 2 rule 2", "1 3 rule 3", "1 4 rule 4"]);
}

#[test]
fn later_fragments_match_rules_for_any_port() {
    let mut rig = rig(&[
        "alert udp any any -> any any (content:\"evil\"; sid:1;)",
        "alert udp any any -> any 53 (content:\"evil\"; sid:2;)",
    ]);
    let mut later = udp(b"....evil", 1, 9, 53);
    later[20..22].copy_from_slice(&5u16.to_be_bytes());
    rig.run(&later);
    assert_eq!(matched(&rig), ["1 1 rule 1"]);
}

#[test]
fn flow_is_approximated_if_configured() {
    let rule = "alert tcp any any -> any any (flow:to_server,established; sid:1;)";
    let params = json!({ "flow": "approximate", "divert": true, "rules": [rule] });
    let mut rig = Rig::of::<Nids>(&params).unwrap_or_else(|error| panic!("{error}"));
    for (flags, alerted) in [(2, false), (0x12, false), (0x10, true), (0x18, true), (0x14, false), (0x11, true)] {
        assert_eq!(rig.run(&tcp(b"", 1, 2, flags)).0 == ALERTED, alerted, "{flags:x}");
    }
}

/// A rule for `ip` tests a TCP packet like a rule for `tcp` does. Packets of other protocols pass the test.
#[test]
fn flow_is_approximated_for_tcp_packets_in_rules_of_any_protocol() {
    let run = |option: &str, protocol: &str, frame: &[u8]| {
        let rule = format!("alert {protocol} any any -> any any (flow:{option}; sid:1;)");
        let params = json!({ "flow": "approximate", "divert": true, "rules": [rule] });
        let mut rig = Rig::of::<Nids>(&params).unwrap_or_else(|error| panic!("{error}"));
        rig.run(frame).0 == ALERTED
    };
    let cases = [(2, false, true), (0x12, false, false), (0x10, true, false), (0x18, true, false), (4, false, true)];
    for (flags, established, not_established) in cases {
        let frame = tcp(b"", 1, 2, flags);
        for protocol in ["ip", "tcp"] {
            assert_eq!(run("established", protocol, &frame), established, "{protocol} {flags:x}");
            assert_eq!(run("to_server,established", protocol, &frame), established, "{protocol} {flags:x}");
            assert_eq!(run("not_established", protocol, &frame), not_established, "{protocol} {flags:x}");
            assert!(run("to_client", protocol, &frame), "{protocol} {flags:x}");
        }
    }
    for option in ["established", "not_established"] {
        // A later fragment shows no flags.
        let mut later = tcp(b"", 1, 2, 0x10);
        later[20..22].copy_from_slice(&5u16.to_be_bytes());
        for protocol in ["ip", "tcp"] {
            assert!(!run(option, protocol, &later), "{protocol} {option}");
        }
        assert!(run(option, "ip", &udp(b"", 1, 2, 3)) && run(option, "ip", &ping(b"")), "{option}");
        assert!(run(option, "udp", &udp(b"", 1, 2, 3)), "{option}");
    }
}

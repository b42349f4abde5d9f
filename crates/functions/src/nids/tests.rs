use std::path::Path;

use etherparse::PacketBuilder;
use forebay_graph::{Rig, Surroundings};
use forebay_measure::Frequency;
use forebay_packet::Batch;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::parse::{File, parse};
use super::*;
use crate::tunnel::testing::skip;

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

/// Numbers and counts of rules that matched, the most first.
fn matched(rig: &Rig) -> Vec<String> {
    let (_, table) = rig.declared.tables.iter().find(|(name, _)| name == "matches").expect("a table");
    table.entries(None, usize::MAX).expect("all")
}

/// Whether one rule matches a frame.
fn one(options: &str, frame: &[u8]) -> bool {
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
fn a_rule_is_read_whole() {
    let file = read(
        "ipvar HOME 10.0.0.0/8\nportvar WEB [80,8080]\nconfig classification: own, of our own, 7\n# nothing\n\
         alert tcp !$HOME any <> $HOME $WEB (msg:\"a \\\"b\\; c\"; \\\n  content:!\"x|0d 0A|y\\\"\\;\"; nocase; offset:3; depth:9; \
         content:\"z\",fast_pattern,distance -2, within 5; pcre:\"/a;b\\\"\\/c/i\"; dsize:3<>9; flags:S+,CE; classtype:own; \
         reference:url,example.org/a; metadata:x y; threshold: type limit, track by_src, count 1, seconds 60; \
         detection_filter: track by_dst, count 2, seconds 3; rev:3; sid:5;)",
    )
    .unwrap_or_else(|error| panic!("{error}"));
    let rule = &file.rules[0];
    assert_eq!((rule.line, rule.sid, rule.revision, rule.priority, rule.both), (5, 5, 3, 7, true));
    assert_eq!(rule.message, "a \"b; c");
    let contents: Vec<_> =
        rule.contents.iter().map(|content| (&content.bytes[..], content.not, content.nocase, content.place)).collect();
    let absolute = rule::Place::Absolute { offset: 3, depth: Some(9) };
    let relative = rule::Place::Relative { distance: -2, within: Some(5) };
    assert_eq!(contents, [(&b"x\r\ny\";"[..], true, true, absolute), (b"z", false, false, relative)]);
    assert_eq!(rule.fast().expect("one").bytes, b"z");
    assert_eq!(rule.pcres[0].regex.text(), "/a;b\\\"\\/c/i");
    assert_eq!(rule.tests[0], rule::Test::Size(rule::Span { first: 3, last: 9, not: false }));
    assert_eq!(rule.tests[1], rule::Test::Flags { how: rule::Bits::All, bits: 2, mask: !0xc0 });
    assert_eq!(rule.references, ["url,example.org/a"]);
}

#[test]
fn what_is_not_known_is_refused_with_its_line_and_what_to_write() {
    for (rule, told) in [
        ("alert tcp any any -> any any (msg:\"a\";)", "r:2: a rule without a number: write sid: NUMBER, from 1"),
        ("alrt tcp any any -> any any (sid:1;)", "r:2: 'alrt' begins no rule (did you mean 'alert'?)"),
        (
            "reject tcp any any -> any any (sid:1;)",
            "r:2: the action 'reject' is not known: allowed are alert, drop, pass and log",
        ),
        (
            "alert http any any -> any any (sid:1;)",
            "r:2: the protocol 'http' is not known: allowed are tcp, udp, icmp and ip",
        ),
        ("alert tcp any any <- any any (sid:1;)", "'<-' is not known: write the other way round"),
        ("alert tcp any any -> any (sid:1;)", "r:2: a header of 6 words"),
        ("alert tcp any any -> any any sid:1;", "a rule without '('"),
        ("alert tcp any any -> any any (sid:1;", "a rule without ')'"),
        ("alert tcp any any -> any any (sid:1)", "no ';' after 'sid:1'"),
        ("alert icmp any 1 -> any any (sid:1;)", "allowed with icmp and ip is any"),
        ("alert tcp $X any -> any any (sid:1;)", "no variable is called 'X'"),
        (
            "alert tcp any any -> any any (flowbits:set,x; sid:1;)",
            "the option 'flowbits' is not known: nothing is kept from packet to packet",
        ),
        ("alert tcp any any -> any any (http_uri; sid:1;)", "protocols are not decoded"),
        ("alert tcp any any -> any any (contet:\"a\"; sid:1;)", "did you mean 'content'?"),
        ("alert tcp any any -> any any (flow:established; sid:1;)", "'flow' needs the state of connections"),
        ("alert tcp any any -> any any (content:\"\"; sid:1;)", "a content of 0 bytes: allowed are 1 to 1024"),
        ("alert tcp any any -> any any (content:\"|0|\"; sid:1;)", "two digits each"),
        ("alert tcp any any -> any any (nocase; sid:1;)", "'nocase' before any content"),
        ("alert tcp any any -> any any (content:\"abc\"; depth:2; sid:1;)", "depth 2 of a content of 3 bytes"),
        ("alert tcp any any -> any any (content:\"abc\"; offset:2; within:9; sid:1;)", "allowed are either"),
        ("alert tcp any any -> any any (pcre:\"/a/\"; content:\"b\"; distance:1; sid:1;)", "'distance' after a pcre"),
        ("alert tcp any any -> any any (pcre:\"/(?<=a)b/\"; sid:1;)", "r:2: pcre: '/(?<=a)b/': look-around"),
        ("alert tcp any any -> any any (classtype:trojan-activty; sid:1;)", "did you mean 'trojan-activity'?"),
        ("alert udp any any -> any any (flags:S; sid:1;)", "'flags' of a rule that is not of tcp"),
        ("alert tcp any any -> any any (dsize:>65535; sid:1;)", "no number is so"),
        ("alert tcp any any -> any any (ttl:5-; ttl:x; sid:1;)", "ttl 'x': allowed are numbers from 0 to 255"),
        (
            "alert tcp any any -> any any (threshold: type limit, track by_src, count 0, seconds 5; sid:1;)",
            "count '0': allowed are 1 to 1000000",
        ),
        (
            "alert tcp any any -> any any (detection_filter: track by_src; sid:1;)",
            "write track by_src|by_dst, count N, seconds N",
        ),
        ("alert tcp any any -> any any (sid:9;)", "r:2: sid 9 is that of the rule in line 1: allowed is each once"),
        ("include more.rules", "'include' is not known"),
        ("config something", "'config something' is not known"),
        ("var X", "write var NAME VALUE"),
    ] {
        let error = read(&format!("alert ip any any -> any any (sid:9;)\n{rule}\n")).expect_err(rule);
        assert!(error.contains(told) && error.starts_with("r:2: "), "{rule}: {error}");
    }
    let many = "x\n".repeat(50);
    assert!(read(&many).expect_err("50 faults").ends_with("and 30 more"));
}

#[test]
fn hostile_rules_are_refused_or_read_in_bounded_time() {
    let with = |options: &str| read(&format!("alert tcp any any -> any any ({options} sid:1;)"));
    assert!(with(&"content:\"a\";".repeat(65)).expect_err("many").contains("more than 64 contents"));
    assert!(
        with(&format!("content:\"{}\";", "a".repeat(2_000))).expect_err("long").contains("a content of 2000 bytes")
    );
    assert!(with(&format!("msg:\"{}\";", "a".repeat(1 << 20))).expect_err("huge").contains("more than 65536 bytes"));
    assert!(read(&format!("alert tcp {} any -> any any (sid:1;)", "[".repeat(20_000))).is_err());
    assert!(
        read(&format!("alert tcp {}any any -> any any (sid:1;)", "!".repeat(20_000)))
            .expect_err("deep")
            .contains("deep")
    );
    assert!(read(&"alert \\\n".repeat(100_000)).is_err());
    assert!(
        with("pcre:\"/(((((a{1,100}){1,100}){1,100}){1,100}){1,100})/\";")
            .expect_err("large")
            .contains("allowed are fewer repetitions")
    );
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
        assert_eq!(one(options, &web), expected, "{options}");
    }
    for (options, expected) in [
        ("itype:128; icode:0;", true),
        ("icode:>0;", false),
        ("sameip;", true),
        ("ttl:<=3;", true),
        ("content:\"abc\"; offset:0; depth:3; ip_proto:icmp6;", true),
        ("dsize:3;", true),
    ] {
        assert_eq!(one(options, &ping(b"abc")), expected, "{options}");
    }
}

/// Rules for ranges that overlap make a group of hundreds of them for every few ports: 1 400 automata of 400 contents each.
#[test]
fn ranges_of_ports_that_overlap_take_no_more_memory_than_may_be() {
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
    // Ports count as before.
    let texts: Vec<&str> = rules.iter().map(String::as_str).collect();
    let mut rig = rig(&texts);
    for (port, gate) in [(4_999, Gate::FIRST), (5_000, DENIED), (9_000, DENIED), (9_001, Gate::FIRST)] {
        assert_eq!(rig.run(&tcp(b"0500 of a thousand", 1, port, 0x18)).0, gate, "{port}");
    }
}

/// What groups take in all is bounded; rules of the narrower ranges keep their groups.
#[test]
fn rules_for_few_ports_stay_apart_where_others_are_for_many() {
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
    assert_eq!((size(&few).0, size(&all).0), (4, 5), "those for any port besides");
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
    assert_eq!(counts, [("alerted", 1), ("clean", 1), ("dropped", 1), ("logged", 1), ("passed", 1), ("unseen", 1)]);
    assert_eq!(matched(&rig), ["2 1 rule 1", "1 2 rule 2", "1 3 rule 3", "1 4 rule 4"]);
}

#[test]
fn later_fragments_match_rules_that_ask_for_no_ports() {
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
fn flow_is_approximated_where_that_is_wanted() {
    let params = json!({ "flow": "approximate", "divert": true, "rules": ["alert tcp any any -> any any (flow:to_server,established; sid:1;)"] });
    let mut rig = Rig::of::<Nids>(&params).unwrap_or_else(|error| panic!("{error}"));
    for (flags, alerted) in [(2, false), (0x12, false), (0x10, true), (0x18, true), (0x14, false), (0x11, true)] {
        assert_eq!(rig.run(&tcp(b"", 1, 2, flags)).0 == ALERTED, alerted, "{flags:x}");
    }
}

/// A folder for one test's files, removed with it.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("forebay-nids-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a writable folder for temporary files");
        Self(path)
    }

    fn surroundings(&self) -> Surroundings {
        let mut surroundings = Surroundings::new(Frequency::new(1e9));
        (surroundings.base, surroundings.simulated, surroundings.batch) = (self.0.clone(), true, 32);
        surroundings
    }

    fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.0.join("alerts.json")).expect("the file");
        text.lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn alerts_are_lines_in_a_file() {
    let folder = Folder::new("lines");
    let params = json!({ "alerts": { "file": "alerts.json", "rate": 3 }, "rules": [
        "alert udp any any -> any 53 (msg:\"one \\\"q\\\"\"; content:\"x\"; classtype:trojan-activity; reference:url,a.b; rev:2; sid:1;)",
        "drop icmp any any -> any any (msg:\"two\"; sid:2;)",
    ] });
    let mut rig = Rig::within::<Nids>(&params, &mut folder.surroundings()).unwrap_or_else(|error| panic!("{error}"));
    rig.now = Ticks(1_500_000_000);
    rig.run(&udp(b"xyz", 1, 9, 53));
    assert_eq!(rig.run(&ping(b"")).0, DENIED);
    for _ in 0..5 {
        rig.run(&udp(b"x", 1, 9, 53));
    }
    rig.now = Ticks(2_000_000_000);
    rig.run(&udp(b"x", 1, 9, 53));
    rig.function.close().expect("it can be written");
    let lines = folder.lines();
    assert_eq!(lines.len(), 4, "three in the first second");
    assert_eq!(
        lines[0],
        json!({
            "time": "1970-01-01T00:00:01.500000000Z", "module": "rig", "action": "alert", "sid": 1, "rev": 2, "msg": "one \"q\"",
            "class": "trojan-activity", "priority": 1, "references": ["url,a.b"], "protocol": 17,
            "source": "10.0.0.1", "source_port": 9, "destination": "192.0.2.1", "destination_port": 53, "payload": 3,
        })
    );
    assert_eq!(
        (&lines[1]["action"], &lines[1]["source"], lines[1].get("source_port")),
        (&json!("drop"), &json!("101:101:101:101:101:101:101:101"), None)
    );
    let counts: Vec<_> = rig.counters("alerts").into_iter().collect();
    assert_eq!(counts, [("limited", 0), ("lost", 0), ("over rate", 4), ("unwritten", 0), ("written", 4)]);
}

#[test]
fn every_alert_is_written_or_counted_as_lost_and_workers_share_the_file() {
    let folder = Folder::new("flood");
    let params = json!({ "alerts": { "file": "alerts.json", "rate": 1_000_000 }, "rules": ["alert ip any any -> any any (sid:1;)"] });
    let mut surroundings = folder.surroundings();
    let mut rigs: Vec<Rig> = (0..2)
        .map(|_| Rig::within::<Nids>(&params, &mut surroundings).unwrap_or_else(|error| panic!("{error}")))
        .collect();
    let frame = udp(b"", 1, 2, 3);
    for rig in &mut rigs {
        let mut batch = Batch::with_capacity(32);
        (0..32).for_each(|_| batch.push(rig.packet(&frame)).expect("room"));
        for _ in 0..1_000 {
            rig.process(&mut batch);
        }
    }
    rigs.iter_mut().for_each(|rig| rig.function.close().expect("it can be written"));
    let count = |name: &str| rigs.iter().map(|rig| rig.counters("alerts")[name]).sum::<u64>();
    assert_eq!(count("written") + count("lost"), 64_000);
    assert_eq!(folder.lines().len() as u64, count("written"));
    // Nothing that was there is lost when it starts anew.
    drop((rigs, surroundings));
    let mut rig = Rig::within::<Nids>(&params, &mut folder.surroundings()).unwrap_or_else(|error| panic!("{error}"));
    let before = folder.lines().len();
    rig.run(&frame);
    drop(rig);
    assert_eq!(folder.lines().len(), before + 1);
}

/// Other rules go on with the file that those before them write; another module does not.
#[test]
fn changed_rules_go_on_with_the_file() {
    let folder = Folder::new("changed");
    let mut surroundings = folder.surroundings();
    let params = |sid: u32| json!({ "alerts": { "file": "alerts.json" }, "rules": [format!("alert ip any any -> any any (sid:{sid};)")] });
    let mut rigs = [5, 6]
        .map(|sid| Rig::within::<Nids>(&params(sid), &mut surroundings).unwrap_or_else(|error| panic!("{error}")));
    let other = Nids::new(
        serde_json::from_value(params(7)).expect("parameters"),
        &mut Setup::new("another", &mut surroundings),
    );
    let error = other.err().expect("refused").to_string();
    assert!(error.contains("is the file that 'rig' writes"), "{error}");
    for (rig, source) in rigs.iter_mut().zip([1, 2]) {
        rig.run(&udp(b"", source, 2, 3));
        rig.function.close().expect("it can be written");
    }
    let told: Vec<_> = folder.lines().iter().map(|line| (line["sid"].clone(), line["source"].clone())).collect();
    assert_eq!(told, [(json!(5), json!("10.0.0.1")), (json!(6), json!("10.0.0.2"))]);
}

#[test]
fn a_file_that_cannot_be_written_is_refused() {
    let folder = Folder::new("faults");
    for (file, told) in [("no/such/folder/a", "no/such/folder/a"), (".", "allowed are regular files")] {
        let params = json!({ "alerts": { "file": file }, "rules": [] });
        let error = Rig::within::<Nids>(&params, &mut folder.surroundings()).err().expect("refused").to_string();
        assert!(error.starts_with("alerts.file: ") && error.contains(told), "{error}");
    }
    for (params, told) in [
        (json!({ "rules": [], "trackers": 0 }), "trackers: 0: allowed are 1 to 4194304"),
        (json!({ "rules": [], "alerts": { "file": "x", "rate": 0 } }), "alerts.rate: 0: allowed are 1 to 1000000"),
        (json!({ "rules": "none.rules" }), "none.rules: "),
        (json!({ "rules": ["alert"] }), "rules[0]: a rule without '('"),
    ] {
        let error = Rig::within::<Nids>(&params, &mut folder.surroundings()).err().expect("refused").to_string();
        assert!(error.contains(told), "{error}");
    }
}

/// Limits, second by second, against windows that are counted by hand.
#[test]
fn limits_count_within_windows() {
    for (kind, expected) in [
        ("detection_filter: track by_src, count 2, seconds 10;", [false, false, true, true, true, false]),
        ("threshold: type limit, track by_src, count 2, seconds 10;", [true, true, false, false, false, true]),
        ("threshold: type threshold, track by_src, count 2, seconds 10;", [false, true, false, true, false, false]),
        ("threshold: type both, track by_src, count 2, seconds 10;", [false, true, false, false, false, false]),
    ] {
        let folder = Folder::new("limits");
        let rule = format!("alert udp any any -> any any ({kind} sid:1;)");
        let params = json!({ "alerts": { "file": "alerts.json" }, "rules": [rule] });
        let mut rig =
            Rig::within::<Nids>(&params, &mut folder.surroundings()).unwrap_or_else(|error| panic!("{error}"));
        let mut told = Vec::new();
        for second in [0, 1, 2, 3, 9, 10] {
            rig.now = Ticks(second * 1_000_000_000);
            let before = rig.counters("alerts")["written"];
            rig.run(&udp(b"", 1, 2, 3));
            told.push(rig.counters("alerts")["written"] > before);
            // Another source is another account.
            let other = udp(b"", 10 + second as u8, 2, 3);
            rig.run(&other);
        }
        assert_eq!(told, expected, "{kind}");
    }
}

#[test]
fn addresses_beyond_the_room_are_told_of_unlimited_and_never_filtered_in() {
    let rules = [
        "alert udp any any -> any 1 (threshold: type limit, track by_src, count 1, seconds 10; sid:1;)",
        "alert udp any any -> any 2 (detection_filter: track by_src, count 1, seconds 10; sid:2;)",
    ];
    let folder = Folder::new("room");
    let params = json!({ "alerts": { "file": "alerts.json" }, "rules": rules, "trackers": 1 });
    let mut rig = Rig::within::<Nids>(&params, &mut folder.surroundings()).unwrap_or_else(|error| panic!("{error}"));
    for source in [1, 2, 2, 2] {
        rig.run(&udp(b"", source, 9, 1));
        rig.run(&udp(b"", source, 9, 2));
    }
    assert_eq!((rig.counters("alerts")["written"], matched(&rig)), (4, vec!["4 1 rule 1".to_owned()]));
}

/// Rules and packets that have much in common, as text.
fn rule_text() -> impl Strategy<Value = String> {
    let letters = || {
        vec(prop::sample::select(b"abAB".to_vec()), 1..4).prop_map(|bytes| String::from_utf8(bytes).expect("letters"))
    };
    let place = prop_oneof![
        3 => Just(String::new()),
        2 => (0u32..6, 3u32..8).prop_map(|(offset, depth)| format!(" offset:{offset}; depth:{depth};")),
        1 => (0u32..6).prop_map(|offset| format!(" offset:{offset};")),
        2 => (-4i32..5).prop_map(|distance| format!(" distance:{distance};")),
        2 => (-4i32..5, 3u32..9).prop_map(|(distance, within)| format!(" distance:{distance}; within:{within};")),
        1 => (3u32..9).prop_map(|within| format!(" within:{within};")),
    ];
    let content =
        (prop::bool::weighted(0.25), letters(), any::<bool>(), place).prop_map(|(not, text, nocase, place)| {
            format!("content:{}\"{text}\";{}{place} ", if not { "!" } else { "" }, if nocase { " nocase;" } else { "" })
        });
    let header = prop::sample::select(vec![
        "tcp any any -> any any",
        "tcp any any -> any 80",
        "tcp any 80 -> any any",
        "tcp any any <> any [80,90:92]",
        "tcp any !80 -> any any",
        "udp any any -> any [53,80]",
        "udp 10.0.0.0/31 any -> any any",
        "udp ![10.0.0.1] any <> any !53",
        "udp any 53 -> 192.0.2.0/24 any",
        "ip any any -> any any",
        "ip [10.0.0.0/8,!10.0.0.2] any -> any any",
        "icmp any any -> any any",
        "udp any :80 -> any 80:",
    ]);
    let other = prop::sample::select(vec![
        "",
        "",
        "",
        "dsize:>4; ",
        "dsize:2<>9; ",
        "ttl:<10; ",
        "pcre:\"/a+b/\"; ",
        "pcre:!\"/^b.a/is\"; ",
        "ip_proto:!6; ",
        "sameip; ",
    ]);
    let action = prop::sample::select(vec!["alert", "alert", "log"]);
    (action, header, vec(content, 0..4), other).prop_map(|(action, header, contents, other)| {
        // Nothing is relative to what must not be there, and expressions come last.
        format!("{action} {header} ({}{other}", contents.concat())
    })
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let payload = vec(prop_oneof![8 => prop::sample::select(b"abAB".to_vec()), 1 => Just(b'\n')], 0..24);
    let port = || prop::sample::select(vec![53u16, 80, 91, 1_000]);
    (payload, port(), port(), 0u8..4, 0u8..6).prop_map(|(payload, from, to, kind, source)| match kind {
        0 => tcp(&payload, from, to, 0x18),
        1 => ping(&payload),
        2 => {
            let mut later = udp(&payload, source, from, to);
            later[20..22].copy_from_slice(&3u16.to_be_bytes());
            later
        }
        _ => udp(&payload, source, from, to),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]
    #[test]
    fn rules_match_what_a_naive_matcher_says(texts in vec(rule_text(), 1..25), frames in vec(frame(), 1..20)) {
        let texts: Vec<String> = texts.into_iter().zip(1..).map(|(text, sid)| format!("{text}sid:{sid};)")).collect();
        let rules = read(&texts.join("\n")).unwrap_or_else(|error| panic!("{error}")).rules;
        let mut rig = Rig::of::<Nids>(&json!({ "rules": texts })).unwrap_or_else(|error| panic!("{error}"));
        let mut batch = Batch::with_capacity(frames.len());
        let mut expected = vec![0u64; rules.len()];
        for frame in &frames {
            batch.push(rig.packet(frame)).expect("room");
            let plain = naive::read(frame).expect("IP");
            for (rule, count) in rules.iter().zip(&mut expected) {
                *count += u64::from(naive::matches(rule, &plain));
            }
        }
        rig.process(&mut batch);
        let mut told = vec![0u64; rules.len()];
        for line in matched(&rig) {
            let words: Vec<u64> = line.split(' ').take(2).map(|word| word.parse().expect("a number")).collect();
            told[words[1] as usize - 1] = words[0];
        }
        prop_assert_eq!(told, expected);
    }
}

/// What was exponential: contents that each may follow each of those before.
#[test]
fn contents_that_follow_each_other_take_no_exponential_time() {
    let options = format!("content:\"a\"; {}", "content:\"a\"; distance:0; ".repeat(62)) + "content:\"b\"; distance:0;";
    let rule = format!("alert udp any any -> any any ({options} sid:1;)");
    let mut rig = rig(&[&rule]);
    rig.run(&udp(&[b'a'; 1_400], 1, 2, 3));
    assert_eq!(matched(&rig), [""; 0]);
    rig.run(&udp(&[&[b'a'; 1_399][..], b"b"].concat(), 1, 2, 3));
    assert_eq!(matched(&rig), ["1 1 rule 1"]);
}

const CAPTURED: &str = include_str!("testing/captured.rules");

/// Real captures: as many matches of each rule as the naive matcher finds.
#[test]
fn rules_match_in_captures_what_a_naive_matcher_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/pcap");
    let rules = read(CAPTURED).unwrap_or_else(|error| panic!("{error}")).rules;
    let texts: Vec<&str> = CAPTURED.lines().collect();
    let mut all = 0;
    for name in ["web.pcap", "many-flows.pcap", "rtp.pcap", "modbus.pcap", "echo-connections.pcap.gz"] {
        let path = folder.join(name);
        if !path.exists() {
            skip(&format!("{name} is not in ../shared/data/pcap"));
            continue;
        }
        let mut rig = Rig::of::<Nids>(&json!({ "rules": texts })).unwrap_or_else(|error| panic!("{error}"));
        let mut expected = vec![0u64; rules.len()];
        let mut batch = Batch::with_capacity(256);
        let bytes = std::fs::read(&path).expect("it is there");
        let (mut frames, fault) = forebay_ports::pcap::read_memory(&bytes);
        assert!(fault.is_none() && !frames.is_empty(), "{name} is a capture");
        // Enough of the largest one.
        frames.truncate(20_000);
        for chunk in frames.chunks(256) {
            batch.drain_each(|_, packet| drop(packet));
            for (_, frame) in chunk.iter().filter(|(_, frame)| frame.len() <= 1_900) {
                batch.push(rig.packet(frame)).expect("room");
                let Some(plain) = naive::read(frame) else { continue };
                for (rule, count) in rules.iter().zip(&mut expected) {
                    *count += u64::from(naive::matches(rule, &plain));
                }
            }
            rig.process(&mut batch);
        }
        let expected: std::collections::BTreeMap<u64, u64> =
            rules.iter().map(|rule| u64::from(rule.sid)).zip(expected).filter(|(_, count)| *count > 0).collect();
        let told: std::collections::BTreeMap<u64, u64> = matched(&rig)
            .iter()
            .map(|line| {
                let words: Vec<u64> = line.split(' ').take(2).map(|word| word.parse().expect("a number")).collect();
                (words[1], words[0])
            })
            .collect();
        assert_eq!(told, expected, "{name}");
        all += told.values().sum::<u64>();
    }
    assert!(all > 100 || !folder.exists(), "{all} matches: rules that match nothing try nothing");
}

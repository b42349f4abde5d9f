//! A row for each keyword of rules: a packet that must match, a packet that must not match, and the effect of the
//! keyword.
//!
//! A test compares the keywords of the rows with the parser's list. A new keyword fails the test until it has a row.

use std::collections::{BTreeMap, BTreeSet};

use super::flow::firewall;
use super::keywords::{ping4, segment, with_options};
use super::reports::Folder;
use super::*;
use crate::nids::parse::options::{KNOWN, MODIFIERS};
use forebay_sessions::firewall::Firewall;

/// The effect of a keyword, compared with the same rule without it.
enum Effect {
    /// At least one of the two packets has another outcome.
    Matching,
    /// Both packets have the same outcome. The alert differs only at these keys, which have these values.
    Alert(&'static [(&'static str, &'static str)]),
    /// The number of reports for three packets that match, instead of three.
    Lines(usize),
    /// The rule is found by this content. Both packets have the same outcome.
    FoundBy(&'static [u8]),
}

use Effect::{Alert, FoundBy, Lines, Matching};

/// An empty list of keys: the keyword is parsed and has no effect.
const NOTHING: Effect = Alert(&[]);

struct Row {
    keyword: &'static str,
    /// The protocol of the rule.
    protocol: &'static str,
    /// All options of the rule except `sid:1`.
    options: &'static str,
    /// The packet that must match.
    yes: Vec<u8>,
    /// The packet that must not match.
    no: Vec<u8>,
    /// Packets that come before each of the two. A table of sessions sees them, too.
    before: Vec<Vec<u8>>,
    /// The parameter `flow`.
    flow: Value,
    effect: Effect,
}

/// Creates a row whose rule needs no earlier packets.
fn row(
    keyword: &'static str,
    (protocol, options): (&'static str, &'static str),
    [yes, no]: [Vec<u8>; 2],
    effect: Effect,
) -> Row {
    Row { keyword, protocol, options, yes, no, before: Vec::new(), flow: json!("refuse"), effect }
}

/// Returns a segment with some bytes changed.
fn changed(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = segment(b"GET /a");
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

/// Rows of keywords about the payload.
fn of_payloads() -> Vec<Row> {
    let of = |keyword, options, yes: &[u8], no: &[u8], effect| {
        row(keyword, ("tcp", options), [segment(yes), segment(no)], effect)
    };
    vec![
        of("content", "content:\"GET\";", b"GET /a", b"get /a", Matching),
        of("content", "content:!\"GET\";", b"get /a", b"GET /a", Matching),
        of("nocase", "content:\"GET\"; nocase;", b"get /a", b"got /a", Matching),
        of("offset", "content:\"a\"; offset:2;", b"xxa", b"xax", Matching),
        of("depth", "content:\"a\"; depth:2;", b"xax", b"xxa", Matching),
        of("distance", "content:\"a\"; content:\"b\"; distance:1;", b"axb", b"ab", Matching),
        of("within", "content:\"a\"; content:\"b\"; within:2;", b"axb", b"axxb", Matching),
        of("startswith", "content:\"a\"; startswith;", b"ab", b"ba", Matching),
        of("endswith", "content:\"a\"; endswith;", b"ba", b"ab", Matching),
        of("fast_pattern", "content:\"ab\"; fast_pattern; content:\"cde\";", b"ab cde", b"ab cd", FoundBy(b"ab")),
        of("fast_pattern", "content:\"ab\"; fast_pattern:only; content:\"cde\";", b"cde AB", b"cde A", Matching),
        of("rawbytes", "content:\"ab\"; rawbytes;", b"xab", b"xba", NOTHING),
        of("pcre", "pcre:\"/a.?b/\";", b"axb", b"axxb", Matching),
        of("isdataat", "isdataat:2;", b"abc", b"ab", Matching),
        of("byte_test", "byte_test:1,>,3,0;", b"\x04", b"\x03", Matching),
        of("byte_jump", "byte_jump:1,0; content:\"b\"; within:1;", b"\x02xxb", b"\x02xb", Matching),
        of("byte_jump", "byte_jump:1,0; isdataat:0,relative;", b"\x02xxb", b"\x02xb", Matching),
        of("byte_extract", "byte_extract:1,0,n; content:\"b\"; within:1;", b"\x02b", b"\x02xb", Matching),
        of("byte_extract", "byte_extract:1,0,n; isdataat:n;", b"\x02xb", b"\x03xb", Matching),
        of("dsize", "dsize:3<>5;", b"abcd", b"ab", Matching),
    ]
}

/// Rows of keywords about headers.
fn of_headers() -> Vec<Row> {
    let later = {
        let mut later = udp(b"....evil", 1, 9, 53);
        later[20..22].copy_from_slice(&0x2005u16.to_be_bytes());
        later
    };
    let whole = || udp(b"....evil", 1, 9, 53);
    let segment = || segment(b"GET /a");
    let request = || ping4(8, 0);
    let with = |at: usize, byte: u8| {
        let mut frame = request();
        frame[at] = byte;
        frame
    };
    vec![
        row("flags", ("tcp", "flags:PA;"), [segment(), changed(47, &[0x10])], Matching),
        row("seq", ("tcp", "seq:70000;"), [segment(), changed(38, &[1])], Matching),
        row("ack", ("tcp", "ack:4000000000;"), [segment(), changed(42, &[1])], Matching),
        row("window", ("tcp", "window:512;"), [segment(), changed(48, &[1])], Matching),
        row("ttl", ("tcp", "ttl:64;"), [segment(), changed(22, &[63])], Matching),
        row("tos", ("tcp", "tos:16;"), [segment(), changed(15, &[0])], Matching),
        row("id", ("tcp", "id:777;"), [segment(), changed(18, &[9])], Matching),
        row("fragbits", ("tcp", "fragbits:D;"), [segment(), changed(20, &[0])], Matching),
        row("fragoffset", ("udp", "fragoffset:>4;"), [later, whole()], Matching),
        row("ip_proto", ("ip", "ip_proto:tcp;"), [segment(), whole()], Matching),
        row("ipopts", ("ip", "ipopts:rr;"), [with_options(), whole()], Matching),
        row("sameip", ("ip", "sameip;"), [changed(30, &[10, 0, 0, 1]), segment()], Matching),
        row("itype", ("icmp", "itype:8;"), [request(), ping4(0, 0)], Matching),
        row("icode", ("icmp", "icode:1;"), [ping4(3, 1), ping4(3, 0)], Matching),
        row("icmp_id", ("icmp", "icmp_id:1;"), [request(), with(39, 9)], Matching),
        row("icmp_seq", ("icmp", "icmp_seq:2;"), [request(), with(41, 9)], Matching),
    ]
}

/// Rows of keywords about reports, which do not change the outcome.
fn of_reports() -> Vec<Row> {
    const CLASS: &[(&str, &str)] = &[
        ("/eve/alert/category", "\"Traffic of a trojan\""),
        ("/eve/alert/severity", "1"),
        ("/json/class", "\"trojan-activity\""),
        ("/json/priority", "1"),
    ];
    let of = |keyword, options, effect| {
        row(keyword, ("tcp", options), [segment(b"has a needle"), segment(b"has none")], effect)
    };
    vec![
        of(
            "msg",
            "content:\"needle\"; msg:\"found\";",
            Alert(&[("/eve/alert/signature", "\"found\""), ("/json/msg", "\"found\"")]),
        ),
        of(
            "sid",
            "content:\"needle\"; msg:\"m\"; sid:7;",
            Alert(&[("/eve/alert/signature_id", "7"), ("/json/sid", "7")]),
        ),
        of("rev", "content:\"needle\"; rev:9;", Alert(&[("/eve/alert/rev", "9"), ("/json/rev", "9")])),
        of("gid", "content:\"needle\"; gid:1000001;", Alert(&[("/eve/alert/gid", "1000001")])),
        of("classtype", "content:\"needle\"; classtype:trojan-activity;", Alert(CLASS)),
        of(
            "priority",
            "content:\"needle\"; priority:2;",
            Alert(&[("/eve/alert/severity", "2"), ("/json/priority", "2")]),
        ),
        of(
            "reference",
            "content:\"needle\"; reference:url,example.org;",
            Alert(&[("/json/references/0", "\"url,example.org\"")]),
        ),
        of("metadata", "content:\"needle\"; metadata:created_at 2026_01_01;", NOTHING),
        of("service", "content:\"needle\"; service:http;", NOTHING),
        of("target", "content:\"needle\"; target:dest_ip;", NOTHING),
        of("rem", "content:\"needle\"; rem:\"a remark\";", NOTHING),
        of("noalert", "content:\"needle\"; noalert;", Lines(0)),
        of("flowbits", "content:\"needle\"; flowbits:noalert;", Lines(0)),
        of("threshold", "content:\"needle\"; threshold:type limit, track by_src, count 1, seconds 60;", Lines(1)),
    ]
}

/// Rows of keywords that depend on earlier packets.
fn of_histories() -> Vec<Row> {
    use super::flow::frame;
    use forebay_sessions::connection::flags::{ACK, SYN};
    let (inside, peer) = (([10, 0, 0, 7], 4_000), ([198, 51, 100, 9], 80));
    let stateful = |options, yes, no, before| Row {
        before,
        flow: json!({ "state": "fw" }),
        ..row("flow", ("tcp", options), [yes, no], Matching)
    };
    let handshake = || vec![frame(inside, peer, SYN), frame(peer, inside, SYN | ACK), frame(inside, peer, ACK)];
    let (out, back) = (|| frame(inside, peer, ACK), || frame(peer, inside, ACK));
    let other = || frame(inside, ([198, 51, 100, 10], 80), ACK);
    vec![
        Row {
            before: vec![udp(b"", 1, 2, 3)],
            ..row(
                "detection_filter",
                ("udp", "detection_filter:track by_src, count 1, seconds 60;"),
                [udp(b"", 1, 2, 3), udp(b"", 2, 2, 3)],
                Matching,
            )
        },
        Row {
            flow: json!("approximate"),
            ..row("flow", ("tcp", "flow:established;"), [tcp(b"", 1, 2, ACK), tcp(b"", 1, 2, SYN)], Matching)
        },
        Row {
            keyword: "flowbits",
            ..stateful("flowbits:isnotset,seen; flowbits:set,seen;", other(), out(), handshake())
        },
        stateful("flow:established;", out(), other(), handshake()),
        stateful("flow:not_established;", other(), out(), handshake()),
        stateful("flow:to_server;", out(), back(), handshake()),
        stateful("flow:from_client;", out(), back(), handshake()),
        stateful("flow:to_client;", back(), out(), handshake()),
        stateful("flow:from_server;", back(), out(), handshake()),
    ]
}

fn rows() -> Vec<Row> {
    [of_payloads(), of_headers(), of_reports(), of_histories()].into_iter().flatten().collect()
}

/// Returns the keyword of an option.
fn keyword(option: &str) -> &str {
    option.split(':').next().unwrap_or_default().trim()
}

/// Splits options. None of them may have a semicolon in quotes.
fn options(text: &str) -> impl Iterator<Item = &str> {
    text.split(';').map(str::trim).filter(|option| !option.is_empty())
}

impl Row {
    /// Returns the rule, or the same rule without the keyword.
    fn rule(&self, action: &str, with: bool) -> String {
        let kept = options(self.options).filter(|option| with || keyword(option) != self.keyword);
        let mut all: Vec<_> = kept.collect();
        if !all.iter().any(|option| keyword(option) == "sid") {
            all.push("sid:1");
        }
        format!("{action} {} any any -> any any ({};)", self.protocol, all.join("; "))
    }

    /// Creates a module with one rule, and the table of sessions that the rule uses.
    fn bench(&self, rule: &str, mut params: Value, environment: &mut SetupEnvironment) -> (Rig, Option<Rig>) {
        let sessions = self.flow.is_object().then(|| {
            firewall(environment);
            let wall = Rig::within::<Firewall>(&json!({ "state": "fw", "default": "permit" }), environment);
            wall.unwrap_or_else(|error| panic!("{error}"))
        });
        (params["flow"], params["rules"]) = (self.flow.clone(), json!([rule]));
        let rig = Rig::within::<Nids>(&params, environment);
        (rig.unwrap_or_else(|error| panic!("{}: {error}", self.keyword)), sessions)
    }

    /// Returns true if a rule that drops packets drops this one.
    fn drops(&self, rule: &str, frame: &[u8]) -> bool {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        let (mut rig, mut sessions) = self.bench(rule, json!({}), &mut environment);
        for frame in &self.before {
            rig.run(frame);
            if let Some(sessions) = &mut sessions {
                sessions.run(frame);
            }
        }
        rig.run(frame).0 == DENIED
    }

    /// Returns the keys and values of the lines that a rule writes, in both formats.
    fn lines(&self, rule: &str, frames: &[&[u8]]) -> Vec<BTreeMap<String, String>> {
        let folder = Folder::new(&format!("row-{}", self.keyword));
        let mut all: Vec<BTreeMap<_, _>> = Vec::new();
        for format in ["json", "eve"] {
            let mut environment = folder.environment();
            let params = json!({ "alerts": { "file": format!("{format}.json"), "format": format } });
            let (mut rig, _) = self.bench(rule, params, &mut environment);
            frames.iter().for_each(|frame| drop(rig.run(frame)));
            rig.function.close().expect("it can be written");
            for (at, line) in folder.lines_of(&format!("{format}.json")).iter().enumerate() {
                if all.len() <= at {
                    all.push(BTreeMap::new());
                }
                leaves(line, &format!("/{format}"), &mut all[at]);
            }
        }
        all
    }
}

/// Adds each scalar value with its key to a map.
fn leaves(value: &Value, key: &str, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(name, value)| leaves(value, &format!("{key}/{name}"), into)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(at, value)| leaves(value, &format!("{key}/{at}"), into));
        }
        value => drop(into.insert(key.to_owned(), value.to_string())),
    }
}

/// Returns the keywords without a row, and the rows without a keyword in the parser.
fn unequal<'a>(known: &[&'a str], rows: &[&'a str]) -> Vec<&'a str> {
    let (known, rows): (BTreeSet<_>, BTreeSet<_>) = (known.iter().copied().collect(), rows.iter().copied().collect());
    known.symmetric_difference(&rows).copied().collect()
}

#[test]
fn every_keyword_has_a_row() {
    let rows = rows();
    let keywords: Vec<_> = rows.iter().map(|row| row.keyword).collect();
    assert_eq!(unequal(&KNOWN, &keywords), [""; 0], "keywords of the parser or of the rows, not of both");
    // The comparison finds a missing keyword on either side.
    assert_eq!(unequal(&[&KNOWN[..], &["new"]].concat(), &keywords), ["new"]);
    assert_eq!(
        unequal(&KNOWN, &keywords[1..].iter().copied().filter(|name| *name != "msg").collect::<Vec<_>>()),
        ["msg"]
    );
    for row in rows {
        let named = options(row.options).any(|option| keyword(option) == row.keyword);
        assert!(named, "{}: its row has no such option: {}", row.keyword, row.options);
    }
}

/// The parser uses this list: a name that is not in it is refused.
#[test]
fn the_parser_accepts_the_keywords_of_its_list_alone() {
    for name in ["xmsg", "Content", "detection_filter2", "byte_math", ""] {
        let error = read(&format!("alert tcp any any -> any any ({name}:1; sid:1;)")).expect_err(name);
        assert!(error.contains("option '"), "{name}: {error}");
    }
}

#[test]
fn each_keyword_matches_one_packet_and_not_another() {
    for row in rows() {
        let (with, without) = (row.rule("drop", true), row.rule("drop", false));
        let [yes, no] = [&row.yes, &row.no].map(|frame| row.drops(&with, frame));
        assert!(yes, "{with}: the first packet must match");
        assert!(!no, "{with}: the second packet must not match");
        // A rule that cannot be parsed without its keyword depends on it.
        let same = read(&without).is_ok() && row.drops(&without, &row.yes) && !row.drops(&without, &row.no);
        assert_eq!(!same, matches!(row.effect, Matching), "{with}: against {without}");
    }
}

#[test]
fn keywords_of_reports_change_the_report_alone() {
    for row in rows() {
        let rules = [true, false].map(|with| row.rule("alert", with));
        match row.effect {
            Matching => {}
            FoundBy(bytes) => {
                let [with, without] = rules.map(|rule| read(&rule).expect("a rule").rules.remove(0));
                assert_eq!(with.fast().expect("a content").bytes, bytes, "{}", row.options);
                assert_ne!(without.fast().expect("a content").bytes, bytes, "{}", row.options);
            }
            Lines(expected) => {
                let frames = [&row.yes[..], &row.no, &row.yes, &row.yes];
                let lines = rules.each_ref().map(|rule| row.lines(rule, &frames).len());
                assert_eq!(lines, [expected, 3], "{}", rules[0]);
            }
            Alert(changed) => {
                let [with, without] = rules.each_ref().map(|rule| {
                    let mut lines = row.lines(rule, &[&row.yes, &row.no]);
                    assert_eq!(lines.len(), 1, "{rule}");
                    lines.remove(0)
                });
                let keys: BTreeSet<_> = with.keys().chain(without.keys()).collect();
                let differ = keys.into_iter().filter(|key| with.get(*key) != without.get(*key));
                let found: Vec<_> =
                    differ.map(|key| (key.as_str(), with.get(key).map_or("missing", String::as_str))).collect();
                assert_eq!(found, changed, "{}", rules[0]);
            }
        }
    }
}

/// A modifier has the same meaning after a comma in its content, as Snort 3 writes it.
#[test]
fn modifiers_mean_the_same_behind_a_comma() {
    let mut seen = BTreeSet::new();
    for row in rows().into_iter().filter(|row| MODIFIERS.contains(&row.keyword)) {
        let mut rule = String::new();
        for option in options(row.options) {
            if MODIFIERS.contains(&keyword(option)) {
                rule.push(',');
                rule.push_str(&option.replace(':', " "));
            } else {
                rule.push_str(if rule.is_empty() { "" } else { "; " });
                rule.push_str(option);
            }
        }
        let rule = format!("drop {} any any -> any any ({rule}; sid:1;)", row.protocol);
        assert!(row.drops(&rule, &row.yes) && !row.drops(&rule, &row.no), "{rule}");
        seen.insert(row.keyword);
    }
    assert_eq!(seen, BTreeSet::from(MODIFIERS), "each has a row");
}

//! Tests of the option `flowbits`: bits that rules keep for sessions.

mod model;

use std::collections::BTreeSet;

use etherparse::Icmpv4Type;
use etherparse::icmpv4::DestUnreachableHeader;
use forebay_graph::DeclareState;
use forebay_sessions::connection::flags::{ACK, FIN, RST, SYN};
use forebay_sessions::firewall::Firewall;
use forebay_sessions::nat::Nat;
use forebay_sessions::nat_in::NatIn;
use forebay_sessions::nat_out::NatOut;

use super::flow::{firewall_with, reported};
use super::*;
use crate::nids::bits::MAX_BITS;

/// The side that replies.
const PEER: ([u8; 4], u16) = ([198, 51, 100, 9], 53);

/// Returns a datagram of a session, from the side that opens it or from the other side.
fn datagram(session: u16, reply: bool, payload: &[u8]) -> Vec<u8> {
    let inside = ([10, 0, 0, 7], 4_000 + session);
    let (from, to) = if reply { (PEER, inside) } else { (inside, PEER) };
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from.0, to.0, 64).udp(from.1, to.1);
    builder.write(&mut frame, payload).expect("memory");
    frame
}

/// A firewall that permits everything, and rules after it.
struct Bench {
    environment: SetupEnvironment,
    wall: Rig,
    ids: Rig,
}

impl Bench {
    fn new(rules: &[impl AsRef<str>]) -> Self {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        firewall_with(&json!({ "timeouts": { "udp_unanswered": "100s", "udp": "100s" } }), &mut environment);
        let wall = Rig::within::<Firewall>(&json!({ "state": "fw", "default": "permit" }), &mut environment);
        let wall = wall.unwrap_or_else(|error| panic!("{error}"));
        let ids = Self::ids(rules, &mut environment);
        Self { environment, wall, ids }
    }

    fn ids(rules: &[impl AsRef<str>], environment: &mut SetupEnvironment) -> Rig {
        let rules: Vec<&str> = rules.iter().map(AsRef::as_ref).collect();
        let params = json!({ "flow": { "state": "fw" }, "rules": rules });
        Rig::within::<Nids>(&params, environment).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Replaces the rules, as a reload does.
    fn reload(&mut self, rules: &[impl AsRef<str>]) {
        let now = self.ids.now;
        self.ids = Self::ids(rules, &mut self.environment);
        self.ids.now = now;
    }

    /// Returns the rules that report a frame.
    fn run(&mut self, frame: &[u8]) -> Vec<u32> {
        assert_eq!(self.wall.run(frame).0, Gate::FIRST);
        reported(&mut self.ids, frame)
    }
}

/// Regression: a module before the module that opens sessions took all datagrams of a batch for the first of their
/// session. A command right after the datagram that forbids it passed.
#[test]
fn packets_behind_others_of_an_unknown_session_in_a_batch_are_undecided() {
    let rules =
        [on("USER", "set,u", 1), "drop udp any any -> any any (content:\"CMD\"; flowbits:isset,u; sid:2;)".to_owned()];
    let mut bench = Bench::new(&rules);
    let frames = [
        datagram(1, false, b"HELLO"),
        datagram(1, true, b"USER"),
        datagram(1, false, b"CMD"),
        datagram(2, false, b"CMD"),
        datagram(1, false, b"other"),
    ];
    let gates = |bench: &mut Bench| {
        let mut batch = Batch::with_capacity(frames.len());
        frames.iter().for_each(|frame| batch.push(bench.ids.packet(frame)).expect("room"));
        bench.ids.process(&mut batch).to_vec()
    };
    let first = Some(Gate::FIRST);
    assert_eq!(gates(&mut bench), [first, first, Some(UNDECIDED), first, first], "before the firewall");
    frames.iter().for_each(|frame| assert_eq!(bench.wall.run(frame).0, Gate::FIRST));
    assert_eq!(gates(&mut bench), [first, first, Some(DENIED), first, first], "behind it");
}

fn on(payload: &str, bits: &str, sid: u32) -> String {
    format!("alert udp any any -> any any (content:\"{payload}\"; flowbits:{bits}; sid:{sid};)")
}

#[test]
fn each_operation_has_a_packet_that_matches_and_one_that_does_not() {
    // Each row has an operation, and two lists of datagrams before it. After the first list the test matches, after the
    // second it does not.
    let cases: [(&str, &[&str], &[&str]); 24] = [
        ("isset,a", &["set a"], &[]),
        ("isset,a", &["set b", "set a"], &["set b"]),
        ("isset,a&b", &["set a", "set b"], &["set a"]),
        ("isset,a|b", &["set b"], &["set c"]),
        ("isnotset,a", &["set b"], &["set a"]),
        ("isnotset,a&b", &["set a"], &["set a", "set b"]),
        ("isnotset,a|b", &["set c"], &["set a"]),
        ("isset,a", &["set a", "unset b"], &["set a", "unset a"]),
        ("isset,a", &["toggle a"], &["toggle a", "toggle a"]),
        ("isset,a", &["set a&b"], &["set a&b", "unset a&b"]),
        ("isset,b", &["set a&b", "unset a"], &["set a&b", "toggle a&b"]),
        ("isset,a", &["set a"], &["set a", "reset"]),
        ("isset, a & b", &["set a&b"], &["toggle a"]),
        // Groups have the bits that rules set with them.
        ("isset,any,g", &["set a,g"], &["set a"]),
        ("isset,any,g", &["set a,g", "set b,h"], &["set b,h"]),
        ("isset,all,g", &["set a,g", "set b,g"], &["set a,g", "set b,g", "unset a"]),
        ("isset,any,h", &["set a,h"], &["set a,g"]),
        ("isset,all,h", &["set a,h"], &["set a,g"]),
        ("isnotset,any,g", &["set a,h"], &["set a,g"]),
        ("isnotset,all,g", &["set a,g", "set b,g", "unset a"], &["set a,g", "set b,g"]),
        ("isset,a", &["setx b,g", "setx a,g"], &["setx a,g", "setx b,g"]),
        ("isset,b", &["set b", "setx a,g"], &["set b,g", "setx a,g"]),
        ("isset,c", &["set c", "set a,g", "unset all,g"], &["set c,g", "unset all,g"]),
        ("isset,a", &["set b,g", "set a,g", "toggle all,g", "toggle all,g"], &["set a,g", "reset g"]),
    ];
    for (test, yes, no) in cases {
        for (before, expected) in [(yes, true), (no, false)] {
            let mut rules = vec![on("question", test, 99)];
            let operations: BTreeSet<&str> = before.iter().copied().collect();
            for (sid, operation) in (1..).zip(operations) {
                rules.push(on(&format!("<{operation}>"), &operation.replacen(' ', ",", 1), sid));
            }
            let mut bench = Bench::new(&rules);
            for operation in before {
                let frame = datagram(1, false, format!("<{operation}>").as_bytes());
                assert_eq!(bench.run(&frame).len(), 1, "{operation}");
            }
            let matched = bench.run(&datagram(1, true, b"question")) == [99];
            assert_eq!(matched, expected, "{test} after {before:?}");
            // Another session does not have these bits.
            assert_eq!(bench.run(&datagram(2, false, b"question")) == [99], test.starts_with("isnot"), "{test}");
        }
    }
}

#[test]
fn a_rule_that_does_not_match_in_all_else_changes_nothing() {
    let set = "alert udp any any -> any any (content:\"set\"; flow:to_client; flowbits:set,a; sid:1;)";
    let filtered = "alert udp any any -> any any (content:\"set\"; detection_filter:track by_src, count 1, seconds 60; \
                    flowbits:set,b; sid:2;)";
    let mut bench =
        Bench::new(&[set.to_owned(), filtered.to_owned(), on("ask", "isset,a", 3), on("ask", "isset,b", 4)]);
    assert_eq!(bench.run(&datagram(1, false, b"set")), [0; 0]);
    assert_eq!(bench.run(&datagram(1, false, b"ask")), [0; 0]);
    assert_eq!(bench.run(&datagram(1, true, b"set")), [1]);
    assert_eq!(bench.run(&datagram(1, false, b"set")), [2], "the second from this source");
    assert_eq!(bench.run(&datagram(1, false, b"ask")), [3, 4]);
}

#[test]
fn within_a_packet_rules_that_set_come_first_and_rules_that_only_ask_last() {
    let rules = [
        on("x", "isset,a", 1),
        on("x", "isset,a; flowbits:unset,a; flowbits:set,b", 2),
        on("x", "isset,b", 3),
        on("x", "set,a", 4),
    ];
    let mut bench = Bench::new(&rules);
    assert_eq!(bench.run(&datagram(1, false, b"x")), [2, 3, 4]);
}

#[test]
fn rules_that_report_nothing_keep_bits_and_rules_that_drop_look_at_them() {
    let quiet = "alert udp any any -> any any (content:\"login\"; flowbits:set,login; flowbits:noalert; sid:1;)";
    let drops = "drop udp any any -> any any (content:\"evil\"; flowbits:isset,login; sid:2;)";
    let mut bench = Bench::new(&[quiet, drops]);
    assert_eq!(bench.ids.run(&datagram(1, false, b"evil")).0, Gate::FIRST);
    assert_eq!(bench.run(&datagram(1, false, b"login")), [0; 0]);
    assert_eq!(bench.ids.run(&datagram(1, true, b"evil")).0, DENIED);
    assert_eq!(bench.ids.run(&datagram(2, true, b"evil")).0, Gate::FIRST);
}

#[test]
fn packets_of_no_known_session_have_no_bits_and_keep_none() {
    let mut bench = Bench::new(&[on("x", "set,a", 1), on("ask", "isset,a", 2), on("ask", "isnotset,a", 3)]);
    for _ in 0..2 {
        // No firewall sees these datagrams.
        assert_eq!(reported(&mut bench.ids, &datagram(1, false, b"x")), [1]);
        assert_eq!(reported(&mut bench.ids, &datagram(1, false, b"ask")), [3]);
    }
}

/// Returns a TCP segment of one session.
fn segment(reply: bool, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = tcp(payload, if reply { 80 } else { 4_000 }, if reply { 4_000 } else { 80 }, flags);
    if reply {
        let source: [u8; 4] = frame[26..30].try_into().expect("four");
        frame.copy_within(30..34, 26);
        frame[30..34].copy_from_slice(&source);
    }
    frame
}

#[test]
fn a_connection_that_takes_the_ports_of_one_that_is_over_has_no_bits() {
    let rules = [
        "alert tcp any any -> any any (content:\"login\"; flowbits:set,login; sid:1;)",
        "alert tcp any any -> any any (content:\"ask\"; flowbits:isset,login; sid:2;)",
    ];
    let mut bench = Bench::new(&rules);
    // The rig in front must give the same result.
    for front in [false, true] {
        let mut run = |frame: &[u8]| {
            let first = front.then(|| reported(&mut bench.ids, frame));
            assert_eq!(bench.wall.run(frame).0, Gate::FIRST);
            first.unwrap_or_else(|| reported(&mut bench.ids, frame))
        };
        for _ in 0..2 {
            run(&segment(false, SYN, b""));
            run(&segment(true, SYN | ACK, b""));
            assert_eq!(run(&segment(false, ACK, b"ask")), [0; 0], "in front: {front}");
            assert_eq!(run(&segment(false, ACK, b"login")), [1]);
            assert_eq!(run(&segment(true, ACK, b"ask")), [2]);
            assert_eq!(run(&segment(false, FIN | ACK, b"ask")), [2], "the connection ends");
            assert_eq!(run(&segment(true, FIN | ACK, b"ask")), [2]);
            // Ends and a SYN may be forged. The reply to the SYN belongs to another connection.
            assert_eq!(run(&segment(false, SYN, b"ask")), [2]);
            assert_eq!(run(&segment(true, SYN | ACK, b"ask")), [0; 0], "another connection");
        }
        // A reset and a SYN may be forged, too.
        run(&segment(false, ACK, b"login"));
        assert_eq!(run(&segment(true, RST, b"ask")), [2]);
        assert_eq!(run(&segment(false, ACK, b"ask")), [2], "the connection continues");
        run(&segment(true, RST, b""));
        assert_eq!(run(&segment(false, SYN, b"ask")), [2]);
        assert_eq!(run(&segment(true, SYN | ACK, b"ask")), [0; 0], "in front: {front}");
        assert_eq!(run(&segment(false, ACK, b"ask")), [0; 0]);
        // The connection ends before the next round.
        run(&segment(false, FIN | ACK, b""));
        run(&segment(true, FIN | ACK, b""));
    }
}

#[test]
fn a_translated_session_has_its_bits_on_both_sides() {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    let params = serde_json::from_value(json!({ "pool": "192.0.2.1" })).expect("parameters");
    let nat = Nat::new(params, &mut Setup::new("nat1", &mut environment)).unwrap_or_else(|error| panic!("{error}"));
    environment.objects.states.insert("nat1".to_owned(), Arc::new(nat));
    let rules = [on("set", "set,a", 1), on("ask", "isset,a", 2)];
    let ids = json!({ "flow": { "state": "nat1" }, "rules": rules });
    let mut make = || Rig::within::<Nids>(&ids, &mut environment).unwrap_or_else(|error| panic!("{error}"));
    // All modules that use one table share its bits.
    let (mut within, mut outside) = (make(), make());
    let out = Rig::within::<NatOut>(&json!({ "state": "nat1" }), &mut environment);
    let back = Rig::within::<NatIn>(&json!({ "state": "nat1" }), &mut environment);
    let (mut out, mut back) = (out.expect("a way out"), back.expect("a way back"));
    let (_, translated) = out.run(&datagram(1, false, b"set"));
    assert_eq!(reported(&mut outside, &translated), [1]);
    let (_, other) = out.run(&datagram(2, false, b"ask"));
    assert_eq!(reported(&mut outside, &other), [0; 0]);
    let mut answer = translated;
    let source: [u8; 4] = answer[26..30].try_into().expect("four");
    answer.copy_within(30..34, 26);
    answer[30..34].copy_from_slice(&source);
    let port: [u8; 2] = answer[34..36].try_into().expect("two");
    answer.copy_within(36..38, 34);
    answer[36..38].copy_from_slice(&port);
    answer[42..45].copy_from_slice(b"ask");
    answer[40..42].copy_from_slice(&[0, 0]);
    assert_eq!(reported(&mut outside, &answer), [2]);
    let (gate, answer) = back.run(&answer);
    assert_eq!((gate, reported(&mut within, &answer)), (Gate::FIRST, vec![2]));
    assert_eq!(reported(&mut within, &datagram(1, false, b"ask")), [2]);
}

/// The table has one entry: each session reuses the entry of the one before.
#[test]
fn a_session_inherits_no_bits_with_its_entry() {
    let rules = [on("set", "set,a", 1), on("ask", "isset,a", 2), on("flip", "toggle,b", 3), on("ask", "isset,b", 4)];
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    firewall_with(&json!({ "sessions": 1 }), &mut environment);
    let wall = Rig::within::<Firewall>(&json!({ "state": "fw", "default": "permit" }), &mut environment);
    let ids = Bench::ids(&rules, &mut environment);
    let mut bench = Bench { wall: wall.unwrap_or_else(|error| panic!("{error}")), ids, environment };
    for session in [1, 2, 1, 3] {
        assert_eq!(bench.run(&datagram(session, false, b"ask")), [0; 0], "{session}");
        assert_eq!(bench.run(&datagram(session, false, b"set")), [1]);
        assert_eq!(bench.run(&datagram(session, false, b"flip")), [3]);
        assert_eq!(bench.run(&datagram(session, true, b"ask")), [2, 4]);
    }
}

#[test]
fn a_reload_keeps_the_bits_of_names_that_stay() {
    let both = [on("set", "set,a", 1), on("set", "set,b", 2), on("ask", "isset,a", 3), on("ask", "isset,b", 4)];
    let mut bench = Bench::new(&both);
    assert_eq!(bench.run(&datagram(1, false, b"set")), [1, 2]);
    // The rules are different and their bits have other numbers. The names identify the bits.
    bench.reload(&[on("ask", "isset,c", 5), on("ask", "isset,b", 6)]);
    assert_eq!(bench.run(&datagram(1, false, b"ask")), [6]);
    // A name that no module held begins unset.
    bench.reload(&both);
    assert_eq!(bench.run(&datagram(1, false, b"ask")), [4]);
    // Rules without flowbits in between do not keep the bits.
    bench.reload(&["alert udp any any -> any any (content:\"ask\"; sid:7;)"]);
    assert_eq!(bench.run(&datagram(1, false, b"ask")), [7]);
    bench.reload(&both);
    assert_eq!(bench.run(&datagram(1, false, b"ask")), [0; 0]);
    assert_eq!(bench.run(&datagram(1, false, b"set")), [1, 2]);
    assert_eq!(bench.run(&datagram(1, true, b"ask")), [3, 4]);
}

/// One module sees requests before the firewall, another one sees replies after it.
#[test]
fn modules_that_look_up_one_table_share_its_bits() {
    let mut bench = Bench::new(&[on("ask", "isset,a", 1), on("ask", "isset,b", 2)]);
    let mut front = Bench::ids(&[on("set", "set,c", 3), on("set", "set,b", 4)], &mut bench.environment);
    // Before the firewall, the first packet belongs to no known session.
    for expected in [vec![], vec![2]] {
        assert_eq!(reported(&mut front, &datagram(1, false, b"set")), [3, 4]);
        bench.run(&datagram(1, false, b"set"));
        assert_eq!(bench.run(&datagram(1, true, b"ask")), expected);
    }
    assert_eq!(bench.run(&datagram(2, false, b"ask")), [0; 0]);
}

/// A translation has no IPv6 sessions.
#[test]
fn packets_of_ipv6_have_no_bits_in_a_translation() {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    let params = serde_json::from_value(json!({ "pool": "192.0.2.1" })).expect("parameters");
    let nat = Nat::new(params, &mut Setup::new("fw", &mut environment)).unwrap_or_else(|error| panic!("{error}"));
    environment.objects.states.insert("fw".to_owned(), Arc::new(nat));
    let mut ids = Bench::ids(&[on("x", "set,a", 1), on("x", "isset,a", 2), on("x", "isnotset,a", 3)], &mut environment);
    let out = Rig::within::<NatOut>(&json!({ "state": "fw" }), &mut environment);
    let mut out = out.unwrap_or_else(|error| panic!("{error}"));
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([0xfd; 16], [0xfe; 16], 64).udp(4_000, 53);
    builder.write(&mut frame, b"x").expect("memory");
    for _ in 0..2 {
        assert_eq!(out.run(&frame).0, Gate::FIRST);
        assert_eq!(reported(&mut ids, &frame), [1, 3]);
    }
}

/// A fragment does not show its session, so rules that test bits are undecided. ICMP errors belong to no session.
#[test]
fn packets_without_a_session_have_no_bits_and_keep_none() {
    let rules = [("set,a", 1), ("isset,a", 2), ("isnotset,a", 3)];
    let rules = rules.map(|(bits, sid)| format!("alert ip any any -> any any (flowbits:{bits}; sid:{sid};)"));
    let mut bench = Bench::new(&rules);
    assert_eq!(bench.run(&datagram(1, false, b"x")), [1, 2]);
    let mut fragment = datagram(1, false, b"12345678");
    fragment[20..22].copy_from_slice(&0x2001u16.to_be_bytes());
    assert_eq!(reported(&mut bench.ids, &fragment), [1]);
    let port = Icmpv4Type::DestinationUnreachable(DestUnreachableHeader::Port);
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(PEER.0, [10, 0, 0, 7], 64).icmpv4(port);
    let mut error = Vec::new();
    builder.write(&mut error, &datagram(1, false, b"x")[14..]).expect("memory");
    assert_eq!(bench.run(&error), [1, 3]);
    assert_eq!(bench.run(&datagram(1, true, b"x")), [1, 2], "the session has its bits");
}

#[test]
fn thousands_of_bits_are_allowed_up_to_the_limit() {
    let rules = |bits: usize| {
        let bit = |bit: usize| [on(&format!("s{bit:04}"), &format!("set,bit.{bit}"), bit as u32 + 1)];
        (0..bits).flat_map(bit).collect::<Vec<_>>()
    };
    let tests = |bit: usize| on(&format!("q{bit:04}"), &format!("isset,bit.{bit}"), 100_000 + bit as u32);
    let mut all = rules(1_000);
    all.extend((0..1_000).map(tests));
    let mut bench = Bench::new(&all);
    for bit in [0, 63, 64, 500, 999] {
        bench.run(&datagram(1, false, format!("s{bit:04}").as_bytes()));
    }
    for (bit, expected) in [(0, 1), (1, 0), (62, 0), (63, 1), (64, 1), (499, 0), (500, 1), (501, 0), (999, 1)] {
        assert_eq!(bench.run(&datagram(1, true, format!("q{bit:04}").as_bytes())).len(), expected, "{bit}");
    }
    let dialect = Dialect { flow: FlowMode::Session, ..Dialect::default() };
    let file = parse("r", rules(MAX_BITS).join("\n").as_bytes(), &dialect).expect("as many as may be");
    assert_eq!((file.bits.len(), &*file.bits[17]), (MAX_BITS, "bit.17"));
    let error = parse("r", rules(MAX_BITS + 1).join("\n").as_bytes(), &dialect).expect_err("too many");
    assert!(error.starts_with("r:4097: flowbits: too many names: all rules together may have at most 4096"), "{error}");
    let skipping = Dialect { skip: true, ..dialect };
    let file = parse("r", rules(MAX_BITS + 2).join("\n").as_bytes(), &skipping).expect("the rest");
    assert_eq!((file.rules.len(), file.skipped.len(), &*file.skipped[1].keyword), (MAX_BITS, 2, "flowbits"));
}

#[test]
fn wrong_flowbits_are_refused_with_what_is_allowed() {
    for (value, reported) in [
        ("sett,a", "flowbits 'sett': allowed are set, setx, unset, toggle, isset, isnotset, reset and noalert"),
        ("", "write flowbits: VALUE"),
        ("set", "flowbits name '': allowed are 1 to 128"),
        ("isset,a&", "flowbits name '': allowed are 1 to 128"),
        ("isset,a b", "flowbits name 'a b': allowed are 1 to 128"),
        ("set,a|b", "flowbits 'a|b': allowed between the names is '&'"),
        ("isset,a|b&c", "allowed between the names is either '&' or '|'"),
        ("set,a,", "flowbits group '': allowed are 1 to 128"),
        ("set,a,g,h", "flowbits 'set' with 'h': allowed are names and a group"),
        ("set,all,g", "flowbits 'set,all': allowed are names"),
        ("setx,a", "flowbits 'setx': write a group after the names"),
        ("isset,any", "flowbits 'isset,any': write a group after 'any'"),
        ("isset,a,g", "flowbits 'isset' with the group 'g': a group is only allowed after 'all'"),
        ("unset,any,g", "flowbits 'unset,any': allowed are names, or 'all' and a group"),
        ("reset,g,h", "flowbits 'reset' with 'h': 'reset' takes at most one group"),
        ("reset,", "flowbits group '': allowed are 1 to 128"),
        ("noalert,a", "flowbits 'noalert' with 'a': 'noalert' takes no names"),
    ] {
        let text = format!("alert tcp any any -> any any (flowbits:{value}; sid:1;)");
        let dialect = Dialect { flow: FlowMode::Session, ..Dialect::default() };
        let error = parse("r", text.as_bytes(), &dialect).expect_err(value);
        assert!(error.starts_with("r:1: ") && error.contains(reported), "{value}: {error}");
    }
    let text = "alert tcp any any -> any any (flowbits:set,a; sid:7;)\n\
                alert tcp any any -> any any (flowbits:noalert; sid:8;)";
    for flow in [FlowMode::Refuse, FlowMode::Approximate] {
        let dialect = Dialect { flow, ..Dialect::default() };
        let error = parse("r", text.as_bytes(), &dialect).expect_err("no table");
        assert!(error.contains("r:1: flowbits 'set' needs a state of sessions"), "{error}");
        assert!(error.contains("'flow: { state: NAME }'"), "{error}");
        let file = parse("r", text.as_bytes(), &Dialect { skip: true, ..dialect }).expect("the rest loads");
        assert_eq!((file.rules.len(), &*file.skipped[0].keyword, file.skipped[0].sid), (1, "flowbits", Some(7)));
    }
}

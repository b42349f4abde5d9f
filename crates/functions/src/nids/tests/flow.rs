//! The option `flow` asked of a table of sessions, before and behind the module that opens them and on both sides of a
//! translation.

use std::net::Ipv4Addr;

use etherparse::{PacketBuilder, TcpHeader};
use forebay_graph::DeclareState;

use super::*;
use crate::connection::flags::{ACK, FIN, RST, SYN};
use crate::firewall::Connections;
use crate::firewall::Firewall;
use crate::nat::Nat;
use crate::nat_in::NatIn;
use crate::nat_out::NatOut;

const INSIDE: [u8; 4] = [10, 0, 0, 7];
const PEER: [u8; 4] = [198, 51, 100, 9];
const RULES: [&str; 4] = [
    "alert ip any any -> any any (flow:established; sid:1;)",
    "alert ip any any -> any any (flow:not_established; sid:2;)",
    "alert ip any any -> any any (flow:to_server; sid:3;)",
    "alert ip any any -> any any (flow:from_server; sid:4;)",
];

/// A segment with these control bits; a datagram of UDP where there are none.
pub(super) fn frame(from: ([u8; 4], u16), to: ([u8; 4], u16), flags: u8) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from.0, to.0, 64);
    let mut frame = Vec::new();
    if flags == 0 {
        builder.udp(from.1, to.1).write(&mut frame, b"abc").expect("memory");
        return frame;
    }
    let mut tcp = TcpHeader::new(from.1, to.1, 1, 1);
    (tcp.fin, tcp.syn, tcp.rst, tcp.ack) = (flags & FIN != 0, flags & SYN != 0, flags & RST != 0, flags & ACK != 0);
    builder.tcp_header(tcp).write(&mut frame, b"abc").expect("memory");
    frame
}

/// Source and destination of a frame without options.
fn ends(frame: &[u8]) -> (([u8; 4], u16), ([u8; 4], u16)) {
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let address = |at: usize| <[u8; 4]>::try_from(&frame[at..at + 4]).expect("four");
    ((address(26), word(34)), (address(30), word(36)))
}

fn nids(state: &str, rules: &[&str], surroundings: &mut Surroundings) -> Rig {
    let params = json!({ "flow": { "state": state }, "rules": rules });
    Rig::within::<Nids>(&params, surroundings).unwrap_or_else(|error| panic!("{error}"))
}

/// The numbers of the rules that match a frame.
pub(super) fn reported(rig: &mut Rig, frame: &[u8]) -> Vec<u32> {
    let counts = |rig: &Rig| {
        let lines = matched(rig);
        let number = |line: &String, at: usize| line.split(' ').nth(at).and_then(|word| word.parse::<u64>().ok());
        let pairs = lines.iter().filter_map(|line| Some((number(line, 1)? as u32, number(line, 0)?)));
        pairs.collect::<std::collections::BTreeMap<_, _>>()
    };
    let before = counts(rig);
    rig.run(frame);
    counts(rig).into_iter().filter(|(sid, count)| before.get(sid) != Some(count)).map(|(sid, _)| sid).collect()
}

pub(super) fn firewall(surroundings: &mut Surroundings) {
    firewall_with(&json!({}), surroundings);
}

/// A table of connections called `fw`.
pub(super) fn firewall_with(params: &Value, surroundings: &mut Surroundings) {
    let params = serde_json::from_value(params.clone()).expect("parameters");
    let state = Connections::new(params, &mut Setup::new("fw", surroundings)).unwrap_or_else(|error| panic!("{error}"));
    surroundings.state.insert("fw".to_owned(), Arc::new(state));
}

#[test]
fn a_session_says_the_same_before_and_behind_the_firewall() {
    let (inside, peer) = ((INSIDE, 4_000), (PEER, 80));
    let (out, back) = (|flags| frame(inside, peer, flags), |flags| frame(peer, inside, flags));
    let sent = [
        (out(SYN), [2, 3]),
        (back(SYN | ACK), [2, 4]),
        (out(ACK), [1, 3]),
        (back(ACK), [1, 4]),
        (out(FIN | ACK), [1, 3]),
        (back(FIN | ACK), [1, 4]),
        (out(ACK), [1, 3]),
        (out(SYN), [2, 3]),
        (out(0), [2, 3]),
        (out(0), [2, 3]),
        (back(0), [1, 4]),
        (out(0), [1, 3]),
    ];
    let mut surroundings = Surroundings::new(Frequency::new(1e9));
    firewall(&mut surroundings);
    // The one in front is made first: it makes the table that the firewall fills.
    let mut front = nids("fw", &RULES, &mut surroundings);
    let wall = Rig::within::<Firewall>(&json!({ "state": "fw", "default": "permit" }), &mut surroundings);
    let mut wall = wall.unwrap_or_else(|error| panic!("{error}"));
    let mut behind = nids("fw", &RULES, &mut surroundings);
    for (number, (frame, expected)) in sent.iter().enumerate() {
        assert_eq!(reported(&mut front, frame), expected, "in front, packet {number}");
        assert_eq!(wall.run(frame).0, Gate::FIRST, "packet {number}");
        assert_eq!(reported(&mut behind, frame), expected, "behind, packet {number}");
    }
}

#[test]
fn a_session_that_is_not_known_is_not_established() {
    let mut surroundings = Surroundings::new(Frequency::new(1e9));
    firewall(&mut surroundings);
    let mut rig = nids("fw", &RULES, &mut surroundings);
    let (inside, peer) = ((INSIDE, 4_000), (PEER, 80));
    for _ in 0..2 {
        // Looking it up opens none.
        assert_eq!(reported(&mut rig, &frame(inside, peer, SYN)), [2, 3]);
        assert_eq!(reported(&mut rig, &frame(peer, inside, SYN | ACK)), [2]);
        assert_eq!(reported(&mut rig, &frame(inside, peer, ACK)), [2]);
    }
}

#[test]
fn a_session_whose_end_is_past_is_not_known() {
    let mut surroundings = Surroundings::new(Frequency::new(1e9));
    firewall(&mut surroundings);
    let mut rig = nids("fw", &RULES, &mut surroundings);
    let wall = Rig::within::<Firewall>(&json!({ "state": "fw", "default": "permit" }), &mut surroundings);
    let mut wall = wall.unwrap_or_else(|error| panic!("{error}"));
    let (inside, peer) = ((INSIDE, 4_000), (PEER, 80));
    for (from, to, flags) in [(inside, peer, SYN), (peer, inside, SYN | ACK), (inside, peer, ACK)] {
        wall.run(&frame(from, to, flags));
    }
    assert_eq!(reported(&mut rig, &frame(peer, inside, ACK)), [1, 4]);
    rig.now += Ticks(100_000 * 1_000_000_000);
    assert_eq!(reported(&mut rig, &frame(peer, inside, ACK)), [2]);
}

#[test]
fn a_session_says_the_same_inside_and_outside_of_a_translation() {
    let mut surroundings = Surroundings::new(Frequency::new(1e9));
    let params = serde_json::from_value(json!({ "pool": Ipv4Addr::new(192, 0, 2, 1) })).expect("parameters");
    let nat = Nat::new(params, &mut Setup::new("nat1", &mut surroundings)).unwrap_or_else(|error| panic!("{error}"));
    surroundings.state.insert("nat1".to_owned(), Arc::new(nat));
    let mut within = nids("nat1", &RULES, &mut surroundings);
    let mut outside = nids("nat1", &RULES, &mut surroundings);
    let out = Rig::within::<NatOut>(&json!({ "state": "nat1" }), &mut surroundings);
    let back = Rig::within::<NatIn>(&json!({ "state": "nat1" }), &mut surroundings);
    let (mut out, mut back) =
        (out.unwrap_or_else(|error| panic!("{error}")), back.unwrap_or_else(|error| panic!("{error}")));
    for handshake in
        [&[(SYN, false), (SYN | ACK, true), (ACK, false), (ACK, true)][..], &[(0, false), (0, true), (0, false)]]
    {
        let mut pool = ([0; 4], 0);
        let mut established = 0;
        for (number, (flags, reply)) in handshake.iter().copied().enumerate() {
            established += usize::from(flags & SYN == 0 && (flags != 0 || reply));
            let expected = [if established > 0 { 1 } else { 2 }, if reply { 4 } else { 3 }];
            let (first, second, way, sent) = if reply {
                (&mut outside, &mut within, &mut back, frame((PEER, 80), pool, flags))
            } else {
                (&mut within, &mut outside, &mut out, frame((INSIDE, 4_000), (PEER, 80), flags))
            };
            assert_eq!(reported(first, &sent), expected, "before, packet {number}");
            let (gate, translated) = way.run(&sent);
            assert_eq!(gate, Gate::FIRST);
            assert_eq!(reported(second, &translated), expected, "after, packet {number}");
            if !reply {
                pool = ends(&translated).0;
            }
        }
    }
}

#[test]
fn flow_that_no_table_can_answer_is_refused() {
    let mut surroundings = Surroundings::new(Frequency::new(1e9));
    firewall(&mut surroundings);
    for (flow, rule, part) in [
        (json!({ "state": "none" }), RULES[0], "no state is called 'none'"),
        (json!({ "state": "fw" }), "alert tcp any any -> any any (flow:to_server,to_client; sid:1;)", "contradicts"),
        (json!("guess"), RULES[0], "flow"),
        (json!("refuse"), RULES[0], "flow: { state: NAME }"),
    ] {
        let params = json!({ "flow": flow, "rules": [rule] });
        let error = Rig::within::<Nids>(&params, &mut surroundings).err().expect("refused").to_string();
        assert!(error.contains(part), "{flow}: {error}");
    }
}

/// Of two options `flow` only the last one was asked.
#[test]
fn a_rule_with_flow_twice_asks_both() {
    let mut surroundings = Surroundings::new(Frequency::new(1e9));
    firewall(&mut surroundings);
    let wall = Rig::within::<Firewall>(&json!({ "state": "fw", "default": "permit" }), &mut surroundings);
    let mut wall = wall.unwrap_or_else(|error| panic!("{error}"));
    let rules = [
        "alert tcp any any -> any any (flow:established; flow:to_server; sid:1;)",
        "alert tcp any any -> any any (flow:to_server; flow:established; sid:2;)",
    ];
    let mut rig = nids("fw", &rules, &mut surroundings);
    let (inside, peer) = ((INSIDE, 4_000), (PEER, 80));
    for (from, to, flags, expected) in [
        (inside, peer, SYN, vec![]),
        (peer, inside, SYN | ACK, vec![]),
        (inside, peer, ACK, vec![1, 2]),
        (peer, inside, ACK, vec![]),
    ] {
        let sent = frame(from, to, flags);
        wall.run(&sent);
        assert_eq!(reported(&mut rig, &sent), expected);
    }
    let dialect = Dialect { stateful_flow: true, ..Dialect::default() };
    for twice in ["flow:to_server; flow:to_client;", "flow:established; flow:to_server,not_established;"] {
        let text = format!("alert tcp any any -> any any ({twice} sid:1;)");
        let error = parse("r", text.as_bytes(), &dialect).expect_err(twice);
        assert!(error.starts_with("r:1: ") && error.contains("contradicts a word before it"), "{error}");
    }
}

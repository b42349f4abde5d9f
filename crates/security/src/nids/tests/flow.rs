//! Tests of the option `flow` with a table of sessions, before and after the module that opens sessions and on both
//! sides of a translation.

use std::net::Ipv4Addr;

use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::{Icmpv4Type, PacketBuilder, TcpHeader};
use forebay_graph::DeclareState;
use forebay_sessions::connection::flags::{ACK, FIN, RST, SYN};
use forebay_sessions::firewall::Connections;
use forebay_sessions::firewall::Firewall;
use forebay_sessions::nat::Nat;
use forebay_sessions::nat_in::NatIn;
use forebay_sessions::nat_out::NatOut;

use super::*;

const INSIDE: [u8; 4] = [10, 0, 0, 7];
const PEER: [u8; 4] = [198, 51, 100, 9];
const RULES: [&str; 4] = [
    "alert ip any any -> any any (flow:established; sid:1;)",
    "alert ip any any -> any any (flow:not_established; sid:2;)",
    "alert ip any any -> any any (flow:to_server; sid:3;)",
    "alert ip any any -> any any (flow:from_server; sid:4;)",
];

/// Returns a TCP segment with these control bits, or a UDP datagram if there are none.
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

/// Returns source and destination of a frame without IP options.
fn ends(frame: &[u8]) -> (([u8; 4], u16), ([u8; 4], u16)) {
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let address = |at: usize| <[u8; 4]>::try_from(&frame[at..at + 4]).expect("four");
    ((address(26), word(34)), (address(30), word(36)))
}

fn nids(state: &str, rules: &[&str], environment: &mut SetupEnvironment) -> Rig {
    let params = json!({ "flow": { "state": state }, "rules": rules });
    Rig::within::<Nids>(&params, environment).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the numbers of the rules that match a frame.
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

pub(super) fn firewall(environment: &mut SetupEnvironment) {
    firewall_with(&json!({}), environment);
}

/// Creates a table of connections named `fw`.
pub(super) fn firewall_with(params: &Value, environment: &mut SetupEnvironment) {
    let params = serde_json::from_value(params.clone()).expect("parameters");
    let state = Connections::new(params, &mut Setup::new("fw", environment)).unwrap_or_else(|error| panic!("{error}"));
    environment.objects.states.insert("fw".to_owned(), Arc::new(state));
}

/// Like `frame`, over IPv6.
fn frame_v6(reply: bool, flags: u8) -> Vec<u8> {
    let ((from, to), ports) =
        if reply { (([0xfe; 16], [0xfd; 16]), (80, 4_000)) } else { (([0xfd; 16], [0xfe; 16]), (4_000, 80)) };
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6(from, to, 64);
    let mut frame = Vec::new();
    if flags == 0 {
        builder.udp(ports.0, ports.1).write(&mut frame, b"abc").expect("memory");
        return frame;
    }
    let mut tcp = TcpHeader::new(ports.0, ports.1, 1, 1);
    (tcp.fin, tcp.syn, tcp.rst, tcp.ack) = (flags & FIN != 0, flags & SYN != 0, flags & RST != 0, flags & ACK != 0);
    builder.tcp_header(tcp).write(&mut frame, b"abc").expect("memory");
    frame
}

/// Returns an echo request or the reply to it.
fn echo(v6: bool, reply: bool) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
    let mut frame = Vec::new();
    let written = match (v6, reply) {
        (false, false) => ethernet.ipv4(INSIDE, PEER, 64).icmpv4_echo_request(7, 1).write(&mut frame, b"abc"),
        (false, true) => ethernet.ipv4(PEER, INSIDE, 64).icmpv4_echo_reply(7, 1).write(&mut frame, b"abc"),
        (true, false) => ethernet.ipv6([0xfd; 16], [0xfe; 16], 64).icmpv6_echo_request(7, 1).write(&mut frame, b"abc"),
        (true, true) => ethernet.ipv6([0xfe; 16], [0xfd; 16], 64).icmpv6_echo_reply(7, 1).write(&mut frame, b"abc"),
    };
    written.expect("memory");
    frame
}

/// Returns the first fragment of a TCP or UDP frame, or a later fragment.
pub(super) fn fragment_of(mut frame: Vec<u8>, later: bool) -> Vec<u8> {
    // RFC 791 section 3.1: flags and offset. RFC 8200 section 4.5: offset and flag.
    let (v4, v6) = if later { (2u16, 16u16) } else { (0x2000, 1) };
    if frame[12..14] == [8, 0] {
        frame[20..22].copy_from_slice(&v4.to_be_bytes());
        return frame;
    }
    let next = std::mem::replace(&mut frame[20], 44);
    let [high, low] = v6.to_be_bytes();
    frame.splice(54..54, [next, 0, high, low, 0, 0, 0, 1]);
    let length = u16::from_be_bytes([frame[18], frame[19]]) + 8;
    frame[18..20].copy_from_slice(&length.to_be_bytes());
    frame
}

/// Returns an ICMP error about an IPv4 frame, with `quoted` bytes of it.
fn error_about(frame: &[u8], quoted: usize) -> Vec<u8> {
    let port = Icmpv4Type::DestinationUnreachable(DestUnreachableHeader::Port);
    let mut error = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(PEER, INSIDE, 64).icmpv4(port);
    builder.write(&mut error, &frame[14..14 + quoted]).expect("memory");
    error
}

#[test]
fn a_session_says_the_same_before_and_behind_the_firewall() {
    const PASSES: Gate = Gate::FIRST;
    const FRAGMENT: Gate = Gate::drop(2);
    let (inside, peer) = ((INSIDE, 4_000), (PEER, 80));
    let (out, back) = (|flags| frame(inside, peer, flags), |flags| frame(peer, inside, flags));
    let (out6, back6) = (|flags| frame_v6(false, flags), |flags| frame_v6(true, flags));
    let picks_up = json!({ "pick_up": true });
    // Each row has parameters of the table, and packets. Each packet has the rules that report it, and the gate of the
    // firewall.
    let cases = [
        (
            json!({}),
            vec![
                (out(SYN), vec![2, 3], PASSES),
                (back(SYN | ACK), vec![2, 4], PASSES),
                (out(ACK), vec![1, 3], PASSES),
                (back(ACK), vec![1, 4], PASSES),
                (out(FIN | ACK), vec![1, 3], PASSES),
                (back(FIN | ACK), vec![1, 4], PASSES),
                (out(ACK), vec![1, 3], PASSES),
                (out(SYN), vec![2, 3], PASSES),
                (out(0), vec![2, 3], PASSES),
                (out(0), vec![2, 3], PASSES),
                (back(0), vec![1, 4], PASSES),
                (out(0), vec![1, 3], PASSES),
            ],
        ),
        (
            json!({}),
            vec![
                (out6(SYN), vec![2, 3], PASSES),
                (back6(SYN | ACK), vec![2, 4], PASSES),
                (out6(ACK), vec![1, 3], PASSES),
                (back6(FIN | ACK), vec![1, 4], PASSES),
                (out6(0), vec![2, 3], PASSES),
                (back6(0), vec![1, 4], PASSES),
                (fragment_of(out6(0), false), vec![], FRAGMENT),
                (fragment_of(out6(0), true), vec![], FRAGMENT),
                // The firewall does not keep the response to a query.
                (echo(true, false), vec![2, 3], PASSES),
                (echo(true, true), vec![1, 4], PASSES),
                (echo(true, false), vec![2, 3], PASSES),
            ],
        ),
        (
            json!({}),
            vec![
                (echo(false, false), vec![2, 3], PASSES),
                (echo(false, true), vec![1, 4], PASSES),
                (echo(false, false), vec![2, 3], PASSES),
                // An error belongs to no session.
                (error_about(&echo(false, false), 28), vec![2], PASSES),
            ],
        ),
        (
            json!({}),
            vec![
                (out(SYN), vec![2, 3], PASSES),
                (back(RST | ACK), vec![2, 4], PASSES),
                (out(SYN), vec![2, 3], PASSES),
                (back(SYN | ACK), vec![2, 4], PASSES),
                (out(ACK), vec![1, 3], PASSES),
                (back(RST), vec![1, 4], PASSES),
                (out(ACK), vec![1, 3], PASSES),
                (out(RST), vec![1, 3], PASSES),
                (out(SYN), vec![2, 3], PASSES),
            ],
        ),
        (
            picks_up.clone(),
            vec![
                (out(ACK), vec![2, 3], PASSES),
                (back(ACK), vec![1, 4], PASSES),
                (out(ACK), vec![1, 3], PASSES),
                (back6(ACK), vec![2, 3], PASSES),
                (out6(ACK), vec![1, 4], PASSES),
            ],
        ),
        (picks_up.clone(), vec![(back(SYN | ACK), vec![2, 3], PASSES), (out(ACK), vec![1, 4], PASSES)]),
        (picks_up.clone(), vec![(out(FIN | ACK), vec![2, 3], PASSES), (back(ACK), vec![1, 4], PASSES)]),
        (picks_up, vec![(out(RST), vec![2, 3], PASSES), (back(RST), vec![2, 4], PASSES)]),
        (
            json!({}),
            vec![
                (out(0), vec![2, 3], PASSES),
                (fragment_of(out(0), false), vec![], FRAGMENT),
                (fragment_of(out(0), true), vec![], FRAGMENT),
                (back(0), vec![1, 4], PASSES),
            ],
        ),
    ];
    for (case, (params, sent)) in cases.iter().enumerate() {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        firewall_with(params, &mut environment);
        // The rig in front is created first. It creates the table that the firewall fills.
        let mut front = nids("fw", &RULES, &mut environment);
        let wall = Rig::within::<Firewall>(&json!({ "state": "fw", "default": "permit" }), &mut environment);
        let mut wall = wall.unwrap_or_else(|error| panic!("{error}"));
        let mut behind = nids("fw", &RULES, &mut environment);
        for (number, (frame, expected, gate)) in sent.iter().enumerate() {
            assert_eq!(reported(&mut front, frame), *expected, "in front, case {case}, packet {number}");
            assert_eq!(wall.run(frame).0, *gate, "case {case}, packet {number}");
            assert_eq!(reported(&mut behind, frame), *expected, "behind, case {case}, packet {number}");
        }
    }
}

/// Regression: a first fragment with the content of a rule that drops passed as clean.
#[test]
fn a_rule_that_drops_drops_packets_that_do_not_show_their_session() {
    let (inside, peer) = ((INSIDE, 4_000), (PEER, 80));
    let segment = |flags| frame(inside, peer, flags);
    let established = "any any -> any 80 (flow:established; content:\"abc\"; sid:1;)";
    let bits = "any any -> any 80 (flowbits:isset,a; content:\"abc\"; sid:1;)";
    let isnotset = "any any -> any 80 (flowbits:isnotset,a; content:\"abc\"; sid:1;)";
    let other = "any any -> any 80 (flow:established; content:\"abd\"; sid:1;)";
    let any = "any any -> any any (flow:established; content:\"abc\"; sid:1;)";
    let filtered = "any any -> any 80 (flow:established; detection_filter: track by_src, count 9, seconds 9; sid:1;)";
    let sets = "any any -> any 80 (flowbits:set,a; content:\"abc\"; sid:1;)";
    let icmp = "any any -> any any (flow:established; itype:3; sid:1;)";
    let (first, later) = (fragment_of(segment(ACK), false), fragment_of(segment(ACK), true));
    let (first6, later6) = (fragment_of(frame_v6(false, ACK), false), fragment_of(frame_v6(false, ACK), true));
    let cut = error_about(&segment(ACK), 24);
    // Each row has a rule without its action, a packet, whether the rule drops the packet, and whether the decision is
    // known.
    for (protocol, rule, frame, drops, known) in [
        ("tcp", established, &first, true, false),
        ("ip", established, &first, true, false),
        ("tcp", established, &first6, true, false),
        ("tcp", bits, &first, true, false),
        ("tcp", isnotset, &first6, true, false),
        ("tcp", other, &first, false, true),
        ("udp", established, &first, false, true),
        ("tcp", filtered, &first, true, false),
        // A later fragment shows no ports.
        ("tcp", established, &later, false, true),
        ("tcp", any, &later, true, false),
        ("tcp", any, &later6, true, false),
        // The rule does not depend on the session and does not keep a bit.
        ("tcp", sets, &first, true, true),
        // The packet belongs to no session.
        ("icmp", icmp, &error_about(&segment(ACK), 28), false, true),
        // The error does not show which packet it refers to.
        ("icmp", icmp, &cut, true, false),
        // The packet shows that it has no session.
        ("tcp", established, &segment(ACK), false, true),
    ] {
        for (action, drop) in [("drop", true), ("alert", false), ("pass", false)] {
            let mut environment = SetupEnvironment::new(Frequency::new(1e9));
            firewall(&mut environment);
            let mut rig = nids("fw", &[&format!("{action} {protocol} {rule}")], &mut environment);
            let text = format!("{action} {protocol} {rule}: {frame:?}");
            let gate = match (drop && drops, known) {
                (false, _) => Gate::FIRST,
                (true, true) => DENIED,
                (true, false) => UNDECIDED,
            };
            assert_eq!(rig.run(frame).0, gate, "{text}");
            let counts = rig.counters("packets");
            assert_eq!(counts["undecided"], u64::from(!known), "{text}");
            assert_eq!(counts["dropped"], u64::from(drop && drops), "{text}");
            assert_eq!(matched(&rig).len(), usize::from(drops && known), "{text}");
        }
    }
    // A matching rule with 'pass' decides, and so does a matching rule that drops.
    for (more, gate) in [("pass", Gate::FIRST), ("drop", DENIED)] {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        firewall(&mut environment);
        let rules = [&format!("drop tcp {established}"), &format!("{more} tcp any any -> any 80 (sid:2;)")];
        let mut rig = nids("fw", &rules.map(String::as_str), &mut environment);
        assert_eq!(rig.run(&first).0, gate, "{more}");
    }
}

#[test]
fn a_session_that_is_not_known_is_not_established() {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    firewall(&mut environment);
    let mut rig = nids("fw", &RULES, &mut environment);
    let (inside, peer) = ((INSIDE, 4_000), (PEER, 80));
    for _ in 0..2 {
        // The look-up does not open a session.
        assert_eq!(reported(&mut rig, &frame(inside, peer, SYN)), [2, 3]);
        assert_eq!(reported(&mut rig, &frame(peer, inside, SYN | ACK)), [2]);
        assert_eq!(reported(&mut rig, &frame(inside, peer, ACK)), [2]);
    }
}

#[test]
fn a_session_whose_end_is_past_is_not_known() {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    firewall(&mut environment);
    let mut rig = nids("fw", &RULES, &mut environment);
    let wall = Rig::within::<Firewall>(&json!({ "state": "fw", "default": "permit" }), &mut environment);
    let mut wall = wall.unwrap_or_else(|error| panic!("{error}"));
    let (inside, peer) = ((INSIDE, 4_000), (PEER, 80));
    for (from, to, flags) in [(inside, peer, SYN), (peer, inside, SYN | ACK), (inside, peer, ACK)] {
        wall.run(&frame(from, to, flags));
    }
    assert_eq!(reported(&mut rig, &frame(peer, inside, ACK)), [1, 4]);
    rig.now += Ticks(100_000 * 1_000_000_000);
    assert_eq!(reported(&mut rig, &frame(peer, inside, ACK)), [2]);
}

/// Creates a table of translations named `nat1`.
fn translation(params: &Value, environment: &mut SetupEnvironment) {
    let params = serde_json::from_value(params.clone()).expect("parameters");
    let nat = Nat::new(params, &mut Setup::new("nat1", environment)).unwrap_or_else(|error| panic!("{error}"));
    environment.objects.states.insert("nat1".to_owned(), Arc::new(nat));
}

#[test]
fn a_session_says_the_same_inside_and_outside_of_a_translation() {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    translation(&json!({ "pool": Ipv4Addr::new(192, 0, 2, 1) }), &mut environment);
    let mut within = nids("nat1", &RULES, &mut environment);
    let mut outside = nids("nat1", &RULES, &mut environment);
    let out = Rig::within::<NatOut>(&json!({ "state": "nat1" }), &mut environment);
    let back = Rig::within::<NatIn>(&json!({ "state": "nat1" }), &mut environment);
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

/// The session of a packet is unknown while another module holds the table. It may exist.
#[test]
fn a_rule_that_drops_drops_packets_whose_session_cannot_be_looked_up() {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    let params = serde_json::from_value(json!({})).expect("parameters");
    let state = Connections::new(params, &mut Setup::new("fw", &mut environment));
    let state = Arc::new(state.unwrap_or_else(|error| panic!("{error}")));
    environment.objects.states.insert("fw".to_owned(), Arc::<Connections>::clone(&state));
    let rules = ["drop tcp any any -> any 80 (flow:established; sid:1;)"];
    let mut rig = nids("fw", &rules, &mut environment);
    let lookup = state.lookup(&mut Setup::new("other", &mut environment)).unwrap_or_else(|error| panic!("{error}"));
    let packet = frame((INSIDE, 4_000), (PEER, 80), ACK);
    assert_eq!(rig.run(&packet).0, Gate::FIRST);
    let lent = lookup.lend();
    assert_eq!((lent.is_some(), rig.run(&packet).0), (true, UNDECIDED));
    drop(lent);
    assert_eq!(rig.run(&packet).0, Gate::FIRST);
    let counts = rig.counters("packets");
    assert_eq!((counts["undecided"], counts["dropped"], counts["clean"]), (1, 1, 2));
}

/// The side that opens the session is outside.
#[test]
fn a_session_of_a_forwarded_port_says_the_same_on_both_sides() {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    let forwards = json!([
        { "protocol": "tcp", "outside": "192.0.2.1:80", "inside": "10.0.0.7:8080" },
        { "protocol": "udp", "outside": "192.0.2.1:80", "inside": "10.0.0.7:8080" },
    ]);
    translation(&json!({ "pool": "192.0.2.1", "forwards": forwards }), &mut environment);
    let mut within = nids("nat1", &RULES, &mut environment);
    let mut outside = nids("nat1", &RULES, &mut environment);
    let out = Rig::within::<NatOut>(&json!({ "state": "nat1" }), &mut environment);
    let back = Rig::within::<NatIn>(&json!({ "state": "nat1" }), &mut environment);
    let (mut out, mut back) =
        (out.unwrap_or_else(|error| panic!("{error}")), back.unwrap_or_else(|error| panic!("{error}")));
    let (client, server) = ((PEER, 5_000), (INSIDE, 8_080));
    for (number, (flags, reply, expected)) in [
        (SYN, false, [2, 3]),
        (SYN | ACK, true, [2, 4]),
        (ACK, false, [1, 3]),
        (ACK, true, [1, 4]),
        (RST, true, [1, 4]),
        (0, false, [2, 3]),
        (0, true, [1, 4]),
        (0, false, [1, 3]),
    ]
    .into_iter()
    .enumerate()
    {
        let (first, second, way, sent) = if reply {
            (&mut within, &mut outside, &mut out, frame(server, client, flags))
        } else {
            (&mut outside, &mut within, &mut back, frame(client, ([192, 0, 2, 1], 80), flags))
        };
        assert_eq!(reported(first, &sent), expected, "before, packet {number}");
        let (gate, translated) = way.run(&sent);
        assert_eq!(gate, Gate::FIRST, "packet {number}");
        assert_eq!(reported(second, &translated), expected, "after, packet {number}");
    }
}

#[test]
fn flow_that_no_table_can_answer_is_refused() {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    firewall(&mut environment);
    for (flow, rule, part) in [
        (json!({ "state": "none" }), RULES[0], "no state is called 'none': allowed is fw"),
        (
            json!({ "state": "fw" }),
            "alert tcp any any -> any any (flow:to_server,to_client; sid:1;)",
            "flow 'to_client' contradicts an earlier word: allowed are one direction, and one of established and \
             not_established",
        ),
        (
            json!({ "state": "fw" }),
            "alert tcp any any -> any any (flow:from_serve; sid:1;)",
            "flow 'from_serve': allowed are established, not_established, stateless, to_server, from_client, \
             to_client, from_server, no_stream and only_stream",
        ),
        (json!("guess"), RULES[0], "flow: 'guess' is not allowed: allowed is refuse, approximate or { state: NAME }"),
        (json!("refuse"), RULES[0], "flow: { state: NAME }"),
    ] {
        let params = json!({ "flow": flow, "rules": [rule] });
        let error = Rig::within::<Nids>(&params, &mut environment).err().expect("refused").to_string();
        assert!(error.contains(part), "{flow}: {error}");
    }
    let params = json!({ "flow": { "state": "none" }, "rules": [RULES[0]] });
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    let error = Rig::within::<Nids>(&params, &mut environment).err().expect("refused").to_string();
    assert!(error.contains("no state is called 'none': define a 'connections' or a 'nat' under `state`"), "{error}");
}

/// Regression: only the last of two options `flow` was tested.
#[test]
fn a_rule_with_two_flow_options_tests_both() {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    firewall(&mut environment);
    let wall = Rig::within::<Firewall>(&json!({ "state": "fw", "default": "permit" }), &mut environment);
    let mut wall = wall.unwrap_or_else(|error| panic!("{error}"));
    let rules = [
        "alert tcp any any -> any any (flow:established; flow:to_server; sid:1;)",
        "alert tcp any any -> any any (flow:to_server; flow:established; sid:2;)",
    ];
    let mut rig = nids("fw", &rules, &mut environment);
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
    let dialect = Dialect { flow: FlowMode::Session, ..Dialect::default() };
    for twice in ["flow:to_server; flow:to_client;", "flow:established; flow:to_server,not_established;"] {
        let text = format!("alert tcp any any -> any any ({twice} sid:1;)");
        let error = parse("r", text.as_bytes(), &dialect).expect_err(twice);
        assert!(error.starts_with("r:1: ") && error.contains("contradicts an earlier word"), "{error}");
    }
}

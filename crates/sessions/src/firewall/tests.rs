//! Packets with and without a connection, in both directions and IP versions, and a comparison with a model.

mod icmp;
mod model;

use etherparse::PacketBuilder;
use forebay_graph::{DeclareState, Rig, SetupEnvironment};
use forebay_units::{Frequency, Ticks};
use serde_json::{Value, json};

use super::*;
use crate::connection::flags::{ACK, FIN, RST, SYN};
use crate::listing::testing::{changed, chosen, word};

const ALL: &str = "@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00 permit";
const ALL6: &str = "@::/0 ::/0 0 : 65535 0 : 65535 0x00/0x00 permit";

/// Two modules with one state: the way out, where every packet may open a connection, and the way in, where no packet
/// may open one.
struct Both {
    out: Rig,
    back: Rig,
}

impl Both {
    fn new(state: Value) -> Self {
        Self::with(state, json!({ "state": "fw" }))
    }

    /// As [`new`](Self::new), with these parameters for the way in.
    fn with(state: Value, inwards: Value) -> Self {
        Self::within(state, inwards, &mut SetupEnvironment::new(Frequency::new(1e9)))
    }

    fn within(state: Value, inwards: Value, environment: &mut SetupEnvironment) -> Self {
        let connections = make(state, environment).expect("parameters");
        environment.objects.states.insert("fw".to_owned(), Arc::new(connections));
        let out = Rig::within::<Firewall>(&json!({ "state": "fw", "rules": [ALL, ALL6] }), environment);
        let back = Rig::within::<Firewall>(&inwards, environment);
        Self { out: out.expect("parameters"), back: back.expect("parameters") }
    }

    fn pass(&mut self, seconds: u64) {
        self.out.now += Ticks(seconds * 1_000_000_000);
        self.back.now = self.out.now;
    }
}

fn make(state: Value, environment: &mut SetupEnvironment) -> Result<Connections, String> {
    let params: ConnectionsParams = serde_json::from_value(state).map_err(|error| error.to_string())?;
    Connections::new(params, &mut Setup::new("fw", environment)).map_err(|error| error.to_string())
}

type End = (u8, u16);

/// A frame between two ends: TCP with these flags, or UDP; over IPv4 or IPv6; with or without a VLAN tag.
fn frame(from: End, to: End, flags: Option<u8>, ipv6: bool, tagged: bool) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
    let tag = etherparse::VlanId::try_new(7).expect("a tag");
    let ((from4, from6), (to4, to6)) = (addresses(from.0), addresses(to.0));
    let builder = match (tagged, ipv6) {
        (false, false) => ethernet.ipv4(from4, to4, 64),
        (false, true) => ethernet.ipv6(from6, to6, 64),
        (true, false) => ethernet.single_vlan(tag).ipv4(from4, to4, 64),
        (true, true) => ethernet.single_vlan(tag).ipv6(from6, to6, 64),
    };
    let mut frame = Vec::new();
    match flags {
        None => builder.udp(from.1, to.1).write(&mut frame, b"a payload that is long enough").expect("memory"),
        Some(flags) => {
            let mut tcp = etherparse::TcpHeader::new(from.1, to.1, 1, 1);
            (tcp.fin, tcp.syn, tcp.rst) = (flags & FIN != 0, flags & SYN != 0, flags & RST != 0);
            tcp.ack = flags & ACK != 0;
            builder.tcp_header(tcp).write(&mut frame, b"abc").expect("memory");
        }
    }
    frame
}

/// Returns the IPv4 and the IPv6 address of an end.
fn addresses(end: u8) -> ([u8; 4], [u8; 16]) {
    ([10, 0, 0, end], [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end])
}

/// An ICMP message of this type and code, in the ICMP of the IP version.
fn icmp_message(from: u8, to: u8, (kind, code): (u8, u8), word: [u8; 4], rest: &[u8], ipv6: bool) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
    let ((from4, from6), (to4, to6)) = (addresses(from), addresses(to));
    let mut frame = Vec::new();
    if ipv6 {
        ethernet.ipv6(from6, to6, 64).icmpv6_raw(kind, code, word).write(&mut frame, rest).expect("memory");
    } else {
        ethernet.ipv4(from4, to4, 64).icmpv4_raw(kind, code, word).write(&mut frame, rest).expect("memory");
    }
    frame
}

/// An echo request with a fixed identifier, or its reply.
fn ping(from: End, to: End, reply: bool, ipv6: bool) -> Vec<u8> {
    let kind = match (ipv6, reply) {
        (false, false) => 8,
        (false, true) => 0,
        (true, reply) => 128 + u8::from(reply),
    };
    icmp_message(from.0, to.0, (kind, 0), [0x0f, 0xa0, 0, 1], b"ping", ipv6)
}

/// A router's ICMP error "destination unreachable".
fn error(to: u8, quoted: &[u8], ipv6: bool) -> Vec<u8> {
    icmp_message(200, to, if ipv6 { (1, 0) } else { (3, 1) }, [0; 4], quoted, ipv6)
}

const HERE: End = (7, 4_000);
const THERE: End = (9, 80);

#[test]
fn a_connection_opens_by_a_syn_from_inside_and_closes() {
    for (ipv6, tagged) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut wall = Both::new(json!({}));
        let out = |wall: &mut Both, flags| wall.out.run(&frame(HERE, THERE, Some(flags), ipv6, tagged)).0;
        let back = |wall: &mut Both, flags| wall.back.run(&frame(THERE, HERE, Some(flags), ipv6, tagged)).0;
        assert_eq!(back(&mut wall, SYN), DENIED);
        assert_eq!(back(&mut wall, ACK), NO_SESSION);
        assert_eq!(out(&mut wall, ACK), NO_SESSION);
        assert_eq!(out(&mut wall, SYN), Gate::FIRST);
        assert_eq!(back(&mut wall, SYN | ACK), Gate::FIRST);
        for _ in 0..2 {
            assert_eq!(out(&mut wall, ACK), Gate::FIRST);
            assert_eq!(back(&mut wall, ACK), Gate::FIRST);
            wall.pass(7_000);
        }
        assert_eq!(back(&mut wall, 0), FLAGS, "also for an existing connection");
        assert_eq!(out(&mut wall, SYN | FIN), FLAGS);
        assert_eq!(out(&mut wall, FIN | ACK), Gate::FIRST);
        assert_eq!(back(&mut wall, FIN | ACK), Gate::FIRST);
        assert_eq!(out(&mut wall, ACK), Gate::FIRST);
        wall.pass(250);
        assert_eq!(back(&mut wall, ACK), NO_SESSION);
    }
}

/// Regression: a stray reset left a live connection on the short time-out forever, so it was gone after 500 idle
/// seconds.
#[test]
fn traffic_after_a_stray_reset_keeps_the_connection() {
    for ipv6 in [false, true] {
        let mut wall = Both::new(json!({}));
        let handshake = [(true, SYN), (false, SYN | ACK), (true, ACK)];
        for (outward, flags) in handshake.into_iter().chain([(false, RST), (true, ACK), (false, ACK)]) {
            let (rig, from, to) = if outward { (&mut wall.out, HERE, THERE) } else { (&mut wall.back, THERE, HERE) };
            assert_eq!(rig.run(&frame(from, to, Some(flags), ipv6, false)).0, Gate::FIRST);
        }
        wall.pass(7_000);
        assert_eq!(wall.back.run(&frame(THERE, HERE, Some(ACK), ipv6, false)).0, Gate::FIRST);
        assert_eq!(wall.back.run(&frame(THERE, HERE, Some(RST), ipv6, false)).0, Gate::FIRST);
        wall.pass(250);
        assert_eq!(
            wall.back.run(&frame(THERE, HERE, Some(ACK), ipv6, false)).0,
            NO_SESSION,
            "a reset that no packet follows"
        );
    }
}

/// Regression: connections whose time-out became shorter kept their entries until the end of the longer time-out.
#[test]
fn a_shorter_time_out_applies_in_every_phase() {
    for ipv6 in [false, true] {
        let mut wall = Both::new(json!({ "timeouts": { "udp": "10s", "tcp_closing": "2s", "tcp_established": "5s" } }));
        let heading = if ipv6 { "connections, IPv6" } else { "connections, IPv4" };
        let open = |wall: &mut Both| {
            wall.out.wake();
            wall.out.counters(heading)["open"]
        };
        assert_eq!(wall.out.run(&frame(HERE, THERE, None, ipv6, false)).0, Gate::FIRST);
        assert_eq!(wall.back.run(&frame(THERE, HERE, None, ipv6, false)).0, Gate::FIRST);
        for flags in [SYN, RST] {
            assert_eq!(wall.out.run(&frame(HERE, THERE, Some(flags), ipv6, false)).0, Gate::FIRST);
        }
        let handshake = [(false, SYN), (true, SYN | ACK), (false, ACK)];
        for (reply, flags) in handshake {
            let (rig, from, to) = if reply { (&mut wall.back, THERE, (7, 1)) } else { (&mut wall.out, (7, 1), THERE) };
            assert_eq!(rig.run(&frame(from, to, Some(flags), ipv6, false)).0, Gate::FIRST);
        }
        assert_eq!(open(&mut wall), 3);
        for (seconds, remaining) in [(3, 2), (3, 1), (5, 0)] {
            wall.pass(seconds);
            assert_eq!(open(&mut wall), remaining);
        }
    }
}

/// Regression: more connections end than one call removes, and no packet comes. Their entries were freed only at a rate
/// of a thousand per quarter of a second.
#[test]
fn ended_connections_are_removed_without_packets() {
    let mut wall = Both::new(json!({}));
    for port in 0..3_000 {
        assert_eq!(wall.out.run(&frame((7, port), THERE, None, port % 2 == 0, false)).0, Gate::FIRST);
    }
    wall.pass(130);
    wall.out.wake();
    while wall.out.wakes_at().is_some_and(|at| at <= wall.out.now) {
        wall.out.wake();
    }
    assert_eq!(["connections, IPv4", "connections, IPv6"].map(|heading| wall.out.counters(heading)["open"]), [0, 0]);
    assert_eq!(wall.out.wakes_at(), None, "no connection is left that will end");
}

#[test]
fn a_flood_of_syn_leaves_room() {
    let mut wall = Both::new(json!({ "sessions": 100, "half_open": 10 }));
    let syn = |port| frame((7, port), THERE, Some(SYN), false, false);
    for port in 0..10 {
        assert_eq!(wall.out.run(&syn(port)).0, Gate::FIRST);
    }
    for port in 10..1_000 {
        assert_eq!(wall.out.run(&syn(port)).0, HALF_OPEN);
    }
    assert_eq!(
        wall.out.run(&frame(HERE, THERE, None, false, false)).0,
        Gate::FIRST,
        "other protocols may still open connections"
    );
    // One handshake is complete, so there is room for another.
    assert_eq!(wall.back.run(&frame(THERE, (7, 3), Some(SYN | ACK), false, false)).0, Gate::FIRST);
    assert_eq!(wall.out.run(&frame((7, 3), THERE, Some(ACK), false, false)).0, Gate::FIRST);
    assert_eq!(wall.out.run(&syn(2_000)).0, Gate::FIRST);
    assert_eq!(wall.out.run(&syn(2_001)).0, HALF_OPEN);
    wall.pass(250);
    assert_eq!(wall.out.run(&syn(2_001)).0, Gate::FIRST, "the half-open connections have ended");
    wall.out.wake();
    let counted = wall.out.counters("connections, IPv4");
    assert_eq!((counted["open"], counted["half open"]), (2, 1), "the established connection and the last one");
}

/// Regression: each worker had the limit of all workers. With two workers, the limit was the size of a worker's table,
/// so it had no effect.
#[test]
fn workers_divide_the_limit_of_half_open_connections() {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    environment.share = (0, 2);
    let mut wall = Both::within(json!({ "sessions": 100 }), json!({ "state": "fw" }), &mut environment);
    let syn = |port| frame((7, port), THERE, Some(SYN), false, false);
    let opened = (0..50).filter(|port| wall.out.run(&syn(*port)).0 == Gate::FIRST).count();
    assert_eq!(opened, 25, "half of this worker's 50 entries");
    assert_eq!(wall.out.run(&frame(HERE, THERE, None, false, false)).0, Gate::FIRST, "UDP has room");
}

#[test]
fn packets_without_a_readable_connection_are_dropped() {
    let mut wall = Both::new(json!({}));
    let mut fragment = frame(HERE, THERE, None, false, false);
    fragment[20] = 0x20;
    assert_eq!(wall.out.run(&fragment).0, FRAGMENT);
    let mut short = frame(HERE, THERE, Some(SYN), false, false);
    short[17] = 30;
    assert_eq!(wall.out.run(&short).0, MALFORMED);
    assert_eq!(wall.out.run(&[3; 60]).0, Gate::FIRST, "not IP");
    let whole = frame(HERE, THERE, Some(SYN), true, false);
    for length in 0..whole.len() {
        wall.back.run(&whole[..length]);
    }
}

#[test]
fn older_connections_are_picked_up_if_that_is_allowed() {
    let mut wall = Both::new(json!({ "pick_up": true }));
    assert_eq!(wall.out.run(&frame(HERE, THERE, Some(ACK), false, false)).0, Gate::FIRST);
    assert_eq!(wall.back.run(&frame(THERE, HERE, Some(ACK), false, false)).0, Gate::FIRST);
}

/// The documented size of a connection.
#[test]
fn a_connection_takes_as_many_bytes_as_documented() {
    let most = 100_000;
    let bytes = |table: usize| table as f64 / most as f64;
    let v4 = Tracker::<Tuple4>::new(most, 1, 1).expect("memory").table.bytes();
    let v6 = Tracker::<Tuple6>::new(most, 1, 1).expect("memory").table.bytes();
    assert!(bytes(v4) < 74.0 && bytes(v6) < 74.0, "{v4}, {v6}");
}

#[test]
fn invalid_parameters_are_named() {
    for (state, expected) in [
        (json!({ "sessions": 0 }), "sessions: 0: allowed are 1 to"),
        (json!({ "sessions": 10, "half_open": 11 }), "half_open: 11: allowed are 1 to 10"),
        (json!({ "timeouts": { "udp": "0s" } }), "timeouts.udp: 0ns: allowed are 1s"),
        (json!({ "timeouts": { "sctp": "1s" } }), "unknown field `sctp`"),
    ] {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        let error = make(state.clone(), &mut environment).err().unwrap_or_else(|| panic!("{state} is refused"));
        assert!(error.contains(expected), "{state}: {error}");
    }
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    let error = Rig::within::<Firewall>(&json!({ "state": "none" }), &mut environment).err().expect("no state");
    assert!(error.to_string().contains("state: no state is called 'none'"), "{error}");
}

/// Regression: more connections had ended than one call removes, and those that remained let packets in.
#[test]
fn ended_connections_let_no_packet_in_before_they_are_removed() {
    let mut wall = Both::new(json!({}));
    for port in 2_000..2_200 {
        assert_eq!(wall.out.run(&frame((1, port), THERE, None, false, false)).0, Gate::FIRST);
    }
    wall.pass(125);
    for port in 2_000..2_200 {
        assert_ne!(wall.back.run(&frame(THERE, (1, port), None, false, false)).0, Gate::FIRST);
    }
}

#[test]
fn connections_are_shown_and_ended() {
    let mut wall = Both::new(json!({}));
    assert_eq!(wall.out.run(&frame(HERE, THERE, Some(SYN), false, false)).0, Gate::FIRST);
    // The table's key is that of the opposite direction. The row still begins with the opener.
    assert_eq!(wall.out.run(&frame(THERE, HERE, None, false, false)).0, Gate::FIRST);
    assert_eq!(wall.out.run(&frame(HERE, THERE, None, true, true)).0, Gate::FIRST);
    let lines = chosen(&mut wall.out, "connections", "all");
    let tail = |state, ends, at| format!("state={state} idle=0s ends={ends}s worker=0 at=0.{at}");
    let expected = [
        format!("protocol=tcp from=10.0.0.7:4000 to=10.0.0.9:80 {}", tail("opening", 240, "0.1")),
        format!("protocol=udp from=10.0.0.9:80 to=10.0.0.7:4000 {}", tail("unanswered", 120, "0.2")),
        format!("protocol=udp from=[2001:db8::7]:4000 to=[2001:db8::9]:80 {}", tail("unanswered", 120, "1.1")),
    ];
    assert_eq!(lines, expected);
    // Either module of the state serves requests.
    assert_eq!(chosen(&mut wall.back, "connections", "2001:db8::/64"), expected[2..]);
    let half_open = |wall: &mut Both| {
        wall.out.wake();
        wall.out.counters("connections, IPv4")["half open"]
    };
    assert_eq!(half_open(&mut wall), 1);
    let outcome = changed(&mut wall.back, "connections", &["remove tcp", &format!("remove {}", expected[2])]);
    assert_eq!((outcome.made, half_open(&mut wall)), (2, 0), "{outcome:?}");
    assert_eq!(
        wall.back.run(&frame(THERE, HERE, Some(SYN | ACK), false, false)).0,
        NO_SESSION,
        "the connection has ended"
    );
    assert_eq!(chosen(&mut wall.out, "connections", "all"), expected[1..2]);
}

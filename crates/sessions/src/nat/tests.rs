//! Packets out and back, through both functions with one state, and comparisons with a model.

mod allotted;
mod edges;
mod icmp;
mod log_and_tables;
mod model;
mod refused;
mod tracked;

use std::sync::Arc;

use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use forebay_graph::{DeclareState, Gate, Rig, Setup, SetupEnvironment};
use forebay_packet::wire::checksum;
use forebay_tables::sessions::{Seed, Sessions};
use forebay_units::{Frequency, Ticks};
use serde_json::{Value, json};

use super::bindings::Bindings;
use super::reasons::{FRAGMENT, FULL, NO_PORT, NO_SESSION, NOT_INSIDE, PROTOCOL};
use super::translation::Translation;
use super::*;
use crate::nat_in::NatIn;
use crate::nat_out::NatOut;

pub(super) const HOST: [u8; 4] = [10, 0, 0, 7];
pub(super) const PEER: [u8; 4] = [198, 51, 100, 9];

/// Both directions of a translation.
pub(super) struct Both {
    pub(super) out: Rig,
    pub(super) back: Rig,
}

impl Both {
    pub(super) fn new(state: Value) -> Self {
        Self::of_share(state, (0, 1), false)
    }

    pub(super) fn of_share(state: Value, share: (usize, usize), hairpin: bool) -> Self {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        environment.share = share;
        Self::within(state, hairpin, &mut environment)
    }

    pub(super) fn within(state: Value, hairpin: bool, environment: &mut SetupEnvironment) -> Self {
        environment.secret = 5;
        let nat = make(state, environment).expect("parameters");
        environment.objects.states.insert("nat1".to_owned(), Arc::new(nat));
        let out = Rig::within::<NatOut>(&json!({ "state": "nat1", "hairpin": hairpin }), environment);
        let back = Rig::within::<NatIn>(&json!({ "state": "nat1" }), environment);
        Self { out: out.expect("parameters"), back: back.expect("parameters") }
    }

    /// Sends a frame out. Returns the frame afterwards if it leaves through the first gate.
    pub(super) fn goes_out(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let (gate, frame) = self.out.run(frame);
        (gate == Gate::FIRST).then_some(frame)
    }

    /// Sends a frame back. Returns the frame afterwards if it leaves through the first gate.
    pub(super) fn comes_back(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let (gate, frame) = self.back.run(frame);
        (gate == Gate::FIRST).then_some(frame)
    }

    pub(super) fn pass(&mut self, seconds: u64) {
        self.out.now += Ticks(seconds * 1_000_000_000);
        self.back.now = self.out.now;
    }
}

fn make(state: Value, environment: &mut SetupEnvironment) -> Result<Nat, String> {
    let params: Params = serde_json::from_value(state).map_err(|error| error.to_string())?;
    Nat::new(params, &mut Setup::new("nat1", environment)).map_err(|error| error.to_string())
}

/// A UDP frame without a tag.
pub(super) fn udp(from: ([u8; 4], u16), to: ([u8; 4], u16), payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from.0, to.0, 64).udp(from.1, to.1);
    builder.write(&mut frame, payload).expect("memory");
    frame
}

/// A UDP frame with a VLAN tag.
pub(super) fn tagged_udp(from: ([u8; 4], u16), to: ([u8; 4], u16), payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let tag = etherparse::VlanId::try_new(7).expect("a tag");
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).single_vlan(tag).ipv4(from.0, to.0, 64).udp(from.1, to.1);
    builder.write(&mut frame, payload).expect("memory");
    frame
}

/// A TCP frame with these flags: `S`, `A`, `F`, `R`.
pub(super) fn tcp(from: ([u8; 4], u16), to: ([u8; 4], u16), flags: &str) -> Vec<u8> {
    let mut builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from.0, to.0, 64).tcp(from.1, to.1, 1, 1_000);
    for flag in flags.chars() {
        builder = match flag {
            'S' => builder.syn(),
            'A' => builder.ack(7),
            'F' => builder.fin(),
            _ => builder.rst(),
        };
    }
    let mut frame = Vec::new();
    builder.write(&mut frame, b"abc").expect("memory");
    frame
}

fn echo(from: [u8; 4], to: [u8; 4], id: u16, reply: bool) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from, to, 64);
    let mut frame = Vec::new();
    let builder = if reply { builder.icmpv4_echo_reply(id, 1) } else { builder.icmpv4_echo_request(id, 1) };
    builder.write(&mut frame, b"ping").expect("memory");
    frame
}

/// An ICMP error that quotes the first `quote` bytes of a frame's packet.
fn error(from: [u8; 4], to: [u8; 4], frame: &[u8], quote: usize) -> Vec<u8> {
    let mut error = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from, to, 64).icmpv4_raw(3, 3, [0; 4]);
    builder.write(&mut error, &frame[14..14 + quote]).expect("memory");
    error
}

/// Returns source and destination with their ports (for ICMP, the identifier in place of both). Asserts that all
/// checksums are right.
pub(super) fn ends(frame: &[u8]) -> (([u8; 4], u16), ([u8; 4], u16)) {
    let parsed = SlicedPacket::from_ethernet(frame).expect("well-formed");
    let Some(NetSlice::Ipv4(network)) = parsed.net else { panic!("IPv4") };
    let header = network.header();
    assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum(), "the header's checksum");
    let (source, destination) = (header.source(), header.destination());
    let ports = match parsed.transport.expect("a transport") {
        TransportSlice::Udp(udp) => {
            let sum =
                udp.to_header().calc_checksum_ipv4_raw(source, destination, udp.payload()).expect("a short packet");
            assert!(udp.checksum() == sum || udp.checksum() == 0, "UDP's checksum");
            (udp.source_port(), udp.destination_port())
        }
        TransportSlice::Tcp(tcp) => {
            let sum =
                tcp.to_header().calc_checksum_ipv4_raw(source, destination, tcp.payload()).expect("a short packet");
            assert_eq!(tcp.checksum(), sum, "TCP's checksum");
            (tcp.source_port(), tcp.destination_port())
        }
        TransportSlice::Icmpv4(icmp) => {
            assert_eq!(icmp.checksum(), icmp.icmp_type().calc_checksum(icmp.payload()), "ICMP's checksum");
            let id = u16::from_be_bytes([icmp.slice()[4], icmp.slice()[5]]);
            (id, id)
        }
        other => panic!("{other:?}"),
    };
    ((source, ports.0), (destination, ports.1))
}

fn plain() -> Both {
    Both::new(json!({ "pool": "192.0.2.0/28" }))
}

fn is_of_pool(address: [u8; 4]) -> bool {
    address[..3] == [192, 0, 2] && address[3] < 16
}

#[test]
fn a_reply_is_translated_back() {
    let mut nat = plain();
    for (frame, reply) in [(udp as fn(_, _, _) -> _, udp as fn(_, _, _) -> _), (tagged_udp, tagged_udp)] {
        let sent = frame((HOST, 5_000), (PEER, 53), b"a query");
        let outside = nat.goes_out(&sent).expect("it opens a session");
        let (source, destination) = ends(&outside);
        assert!(is_of_pool(source.0) && source.1 >= 1_024 && destination == (PEER, 53));
        let back = nat.comes_back(&reply((PEER, 53), source, b"an answer")).expect("a session");
        assert_eq!(ends(&back), ((PEER, 53), (HOST, 5_000)));
        assert_eq!(back, reply((PEER, 53), (HOST, 5_000), b"an answer"), "only the destination changes");
    }
}

#[test]
fn a_tcp_connection_runs_through_its_states() {
    let mut nat = plain();
    let (host, peer) = ((HOST, 40_000), (PEER, 80));
    assert_eq!(nat.goes_out(&tcp(host, peer, "A")), None, "no SYN");
    let (outside, _) = ends(&nat.goes_out(&tcp(host, peer, "S")).expect("a SYN"));
    assert_eq!(ends(&nat.comes_back(&tcp(peer, outside, "SA")).expect("an answer")).1, host);
    for _ in 0..3 {
        assert_eq!(ends(&nat.goes_out(&tcp(host, peer, "A")).expect("the session")).0, outside);
        assert_eq!(ends(&nat.comes_back(&tcp(peer, outside, "A")).expect("the session")).1, host);
    }
    // RFC 5382 section 5: two hours and four minutes for an established connection, less for one that has ended.
    nat.pass(7_400);
    assert!(nat.goes_out(&tcp(host, peer, "A")).is_some());
    nat.goes_out(&tcp(host, peer, "FA")).expect("the session");
    nat.comes_back(&tcp(peer, outside, "FA")).expect("the session");
    assert!(nat.goes_out(&tcp(host, peer, "A")).is_some());
    nat.pass(250);
    assert_eq!(nat.goes_out(&tcp(host, peer, "A")), None);
    assert_eq!(nat.comes_back(&tcp(peer, outside, "A")), None);
}

#[test]
fn pings_come_back() {
    let mut nat = plain();
    let (outside, _) = ends(&nat.goes_out(&echo(HOST, PEER, 77, false)).expect("a request"));
    let back = nat.comes_back(&echo(PEER, outside.0, outside.1, true)).expect("a reply");
    assert_eq!(back, echo(PEER, HOST, 77, true));
    assert_eq!(nat.goes_out(&echo(HOST, PEER, 78, true)), None, "a reply without a request");
    assert_eq!(nat.comes_back(&echo(PEER, outside.0, outside.1, false)), None, "a request from outside");
}

/// Regression: a stray reset left a live connection on the short time-out forever.
#[test]
fn traffic_after_a_stray_reset_keeps_the_session() {
    let mut nat = plain();
    let (host, peer) = ((HOST, 5_000), (PEER, 80));
    let (outside, _) = ends(&nat.goes_out(&tcp(host, peer, "S")).expect("it opens a session"));
    assert!(nat.comes_back(&tcp(peer, outside, "SA")).is_some());
    assert!(nat.goes_out(&tcp(host, peer, "A")).is_some());
    for _ in 0..2 {
        assert!(nat.comes_back(&tcp(peer, outside, "R")).is_some());
        assert!(nat.comes_back(&tcp(peer, outside, "A")).is_some());
        nat.pass(7_000);
    }
    assert!(nat.goes_out(&tcp(host, peer, "A")).is_some());
}

#[test]
fn an_inside_port_has_one_outside() {
    let mut nat = plain();
    let outside = |nat: &mut Both, port, to| ends(&nat.goes_out(&udp((HOST, port), to, b"")).expect("room")).0;
    let first = outside(&mut nat, 5_000, (PEER, 53));
    for to in [(PEER, 54), ([198, 51, 100, 10], 53), ([1, 1, 1, 1], 1)] {
        assert_eq!(outside(&mut nat, 5_000, to), first);
    }
    for port in 5_001..5_020 {
        let other = outside(&mut nat, port, (PEER, 53));
        assert_eq!(other.0, first.0, "an inside address has one outside address");
        assert_ne!(other.1, first.1);
        assert_eq!(other.1 % 2, port % 2, "parity is kept");
    }
}

#[test]
fn packets_from_outside_open_no_session_unless_the_filtering_allows_it() {
    let mut nat = plain();
    let (outside, _) = ends(&nat.goes_out(&udp((HOST, 5_000), (PEER, 53), b"")).expect("room"));
    for from in [(PEER, 54), ([198, 51, 100, 10], 53)] {
        assert_eq!(nat.comes_back(&udp(from, outside, b"")), None);
    }
    let mut nat = Both::new(json!({ "pool": "192.0.2.1", "filtering": "endpoint_independent" }));
    let (outside, _) = ends(&nat.goes_out(&udp((HOST, 5_000), (PEER, 53), b"")).expect("room"));
    let stranger = ([198, 51, 100, 10], 99);
    assert_eq!(
        ends(&nat.comes_back(&udp(stranger, outside, b"")).expect("a packet from any address")).1,
        (HOST, 5_000)
    );
    assert_eq!(ends(&nat.goes_out(&udp((HOST, 5_000), stranger, b"")).expect("a reply")).0, outside);
    assert_eq!(nat.comes_back(&udp(stranger, (outside.0, outside.1 ^ 1), b"")), None, "a port that is not in use");
}

#[test]
fn forwards_are_always_there() {
    let forwards = json!([{ "protocol": "tcp", "outside": "192.0.2.1:80", "inside": "10.0.0.5:8080" }]);
    let mut nat = Both::new(json!({ "pool": "192.0.2.1", "forwards": forwards }));
    let server = ([10, 0, 0, 5], 8_080);
    for client in 1_000..1_010 {
        let back = nat.comes_back(&tcp((PEER, client), ([192, 0, 2, 1], 80), "S")).expect("forwarded");
        assert_eq!(ends(&back), ((PEER, client), server));
        let out = nat.goes_out(&tcp(server, (PEER, client), "SA")).expect("a reply");
        assert_eq!(ends(&out).0, ([192, 0, 2, 1], 80));
    }
    assert_eq!(nat.comes_back(&tcp((PEER, 1), ([192, 0, 2, 1], 81), "S")), None);
    assert_eq!(nat.comes_back(&udp((PEER, 1), ([192, 0, 2, 1], 80), b"")), None, "another protocol");
    nat.pass(10_000);
    assert!(nat.comes_back(&tcp((PEER, 1), ([192, 0, 2, 1], 80), "S")).is_some(), "it stays");
}

#[test]
fn inside_hosts_reach_each_other_by_outside_addresses() {
    let state = json!({ "pool": "192.0.2.0/28", "filtering": "endpoint_independent" });
    let mut nat = Both::of_share(state, (0, 1), true);
    let (first, second) = ((HOST, 5_000), ([10, 0, 0, 8], 6_000));
    let (outside, _) = ends(&nat.goes_out(&udp(second, (PEER, 53), b"")).expect("room"));
    let (gate, frame) = nat.out.run(&udp(first, outside, b"hello"));
    assert_eq!(gate, Gate::out(1), "the second gate");
    let (source, destination) = ends(&frame);
    assert!(is_of_pool(source.0), "RFC 4787 REQ-9 a: the source is the external one");
    assert_eq!(destination, second);
    let (gate, frame) = nat.out.run(&udp(second, source, b"answer"));
    assert_eq!((gate, ends(&frame)), (Gate::out(1), (outside, first)));
}

/// Regression: a packet that was dropped as `hairpin` had opened a session and taken a port.
#[test]
fn a_dropped_hairpin_packet_leaves_no_session() {
    let (from, to) = ((HOST, 5_000), ([192, 0, 2, 3], 9));
    let to_pool = [udp(from, to, b""), tagged_udp(from, to, b"")];
    for (hairpin, gate) in [(false, HAIRPIN), (true, NO_SESSION)] {
        let mut nat = Both::of_share(json!({ "pool": "192.0.2.0/28" }), (0, 1), hairpin);
        for frame in &to_pool {
            assert_eq!(nat.out.run(frame).0, gate, "the port is not in use");
        }
        nat.out.wake();
        assert_eq!(nat.out.counters("sessions")["open"], 0, "{gate:?}");
        assert!(hairpin || nat.out.counters("sessions")["opened"] == 0);
        // A session that existed before stays.
        assert!(nat.goes_out(&udp((HOST, 5_000), (PEER, 53), b"")).is_some());
        assert_eq!(nat.out.run(&to_pool[0]).0, gate);
        nat.out.wake();
        assert_eq!(nat.out.counters("sessions")["open"], 1);
        let ping = echo(HOST, [192, 0, 2, 3], 7, false);
        assert_eq!(nat.out.run(&ping).0, gate);
        nat.out.wake();
        assert_eq!(nat.out.counters("sessions")["open"], 1);
    }
}

#[test]
fn each_direction_lists_its_drop_reasons() {
    assert_eq!(
        OUT_DROPS[6..].iter().map(|reason| reason.name).collect::<Vec<_>>(),
        ["no_port", "hairpin", "not_inside"]
    );
    assert_eq!(IN_DROPS.len(), 6, "no port is given out on the way in");
}

/// Regression: a session whose time-out became shorter kept its entry and its port until the end of the longer
/// time-out.
#[test]
fn a_shorter_time_out_applies_in_every_phase() {
    let timeouts = json!({ "udp": "60s", "tcp_closing": "2s" });
    let mut nat = Both::new(json!({ "pool": "192.0.2.1", "ports": [2_000, 2_001], "timeouts": timeouts }));
    let (outside, _) = ends(&nat.goes_out(&udp((HOST, 5_000), (PEER, 53), b"a query")).expect("a port"));
    assert!(nat.comes_back(&udp((PEER, 53), outside, b"an answer")).is_some());
    for flags in ["S", "R"] {
        assert!(nat.goes_out(&tcp((HOST, 5_000), (PEER, 80), flags)).is_some());
    }
    let mut open = |seconds| {
        nat.pass(seconds);
        nat.out.wake();
        nat.out.counters("sessions")["open"]
    };
    // Sessions are removed up to a 2048th of the longest time-out late, which is 3.6 seconds here.
    assert_eq!([0, 6, 50, 10].map(&mut open), [2, 1, 1, 0]);
}

/// Regression: more sessions end than one call removes, and no packet comes. Their ports were freed only at a rate of a
/// thousand per quarter of a second.
#[test]
fn ended_sessions_are_removed_without_packets() {
    let mut nat = Both::new(json!({ "pool": "192.0.2.1", "ports": [2_000, 5_999] }));
    for port in 0..4_000 {
        assert!(nat.goes_out(&udp((HOST, port), (PEER, 53), b"")).is_some());
    }
    nat.pass(130);
    nat.out.wake();
    while nat.out.wakes_at().is_some_and(|at| at <= nat.out.now) {
        nat.out.wake();
    }
    assert_eq!(nat.out.counters("sessions")["open"], 0);
}

#[test]
fn untranslatable_packets_are_dropped() {
    let mut nat = plain();
    let mut fragment = udp((HOST, 1), (PEER, 2), b"12345678");
    fragment[20] = 0x20;
    assert_eq!(nat.out.run(&fragment).0, FRAGMENT);
    let mut gre = udp((HOST, 1), (PEER, 2), b"12345678");
    gre[23] = 47;
    assert_eq!(nat.out.run(&gre).0, PROTOCOL);
    let mut short = tcp((HOST, 1), (PEER, 2), "S");
    short[17] = 30;
    assert_eq!(nat.out.run(&short).0, PROTOCOL, "a TCP header that is cut short");
    let frame = tcp((HOST, 1), (PEER, 2), "S");
    for length in 0..frame.len() {
        nat.out.run(&frame[..length]);
        nat.back.run(&frame[..length]);
    }
}

/// Regression: packets that are not IPv4 passed on the way out but were dropped on the way in.
#[test]
fn packets_that_are_not_ipv4_pass_both_ways() {
    let mut nat = plain();
    let mut ipv6 = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([1; 16], [2; 16], 64).udp(1, 2);
    builder.write(&mut ipv6, b"").expect("memory");
    for frame in [ipv6, vec![9; 60]] {
        assert_eq!(nat.out.run(&frame), (Gate::FIRST, frame.clone()));
        assert_eq!(nat.back.run(&frame), (Gate::FIRST, frame.clone()));
    }
}

#[test]
fn the_session_that_ends_soonest_gives_way_and_frees_its_port() {
    let mut nat = Both::new(json!({ "pool": "192.0.2.1", "sessions": 4, "ports": [2_000, 2_004] }));
    let open = |nat: &mut Both, port| nat.goes_out(&udp((HOST, port), (PEER, 53), b"")).is_some();
    for port in 0..20 {
        nat.pass(1);
        assert!(open(&mut nat, 5_000 + port), "{port}");
    }
    let mut refusing = Both::new(json!({ "pool": "192.0.2.1", "sessions": 4, "when_full": "refuse" }));
    for port in 0..4 {
        assert!(open(&mut refusing, 5_000 + port));
    }
    assert_eq!(refusing.out.run(&udp((HOST, 6_000), (PEER, 53), b"")).0, FULL);
    refusing.pass(400);
    assert!(open(&mut refusing, 6_000), "they have ended");
    refusing.out.wake();
    assert_eq!(
        refusing.out.counters("sessions"),
        [("open", 1), ("opened", 5), ("ended", 4), ("evicted", 0), ("refused", 1)].into()
    );
}

#[test]
fn ports_run_out_and_come_back() {
    let mut nat = Both::new(json!({ "pool": "192.0.2.1", "ports": [2_000, 2_003] }));
    let open = |nat: &mut Both, port| nat.out.run(&udp((HOST, port), (PEER, 53), b"")).0;
    for port in 0..4 {
        assert_eq!(open(&mut nat, 5_000 + port), Gate::FIRST);
    }
    assert_eq!(open(&mut nat, 5_004), NO_PORT);
    nat.pass(121);
    assert_eq!(open(&mut nat, 5_004), Gate::FIRST);
    let mut nat = Both::new(json!({ "pool": "192.0.2.1", "ports_per_address": 2 }));
    assert_eq!([1, 2, 3].map(|port| open(&mut nat, port)), [Gate::FIRST, Gate::FIRST, NO_PORT]);
    let other = nat.out.run(&udp(([10, 0, 0, 8], 1), (PEER, 53), b"")).0;
    assert_eq!(other, Gate::FIRST, "another address has its own limit");
    assert_eq!(nat.out.run(&tcp((HOST, 1), (PEER, 53), "S")).0, Gate::FIRST, "another protocol too");
}

#[test]
fn sessions_come_back_to_their_worker() {
    for share in 0..3 {
        let mut nat = Both::of_share(json!({ "pool": "192.0.2.0/30" }), (share, 3), false);
        for port in 0..200 {
            let out = nat.goes_out(&tcp((HOST, 5_000 + port), (PEER, 80), "S")).expect("room");
            let mut packet = nat.out.packet(&out);
            assert_eq!(forebay_graph::share(packet.session_hash(), 3), share);
            let (source, _) = ends(&out);
            assert!(nat.comes_back(&tcp((PEER, 80), source, "SA")).is_some());
        }
    }
}

/// The documented size of a session that has its own binding.
#[test]
fn a_session_takes_as_many_bytes_as_documented() {
    let most = 100_000;
    let sessions = Sessions::<Translation>::new(most, Seed::new(1)).expect("memory").bytes();
    for (limit, from_outside, documented) in
        [(u16::MAX, false, 157), (u16::MAX, true, 166), (1_000, false, 231), (1_000, true, 240)]
    {
        let bindings = Bindings::new(most, 0, limit, from_outside, 1).expect("memory").bytes();
        let each = (sessions + bindings) as f64 / most as f64;
        assert!(
            (f64::from(documented) - 3.0..=f64::from(documented)).contains(&each),
            "{each} bytes, not {documented}"
        );
    }
}

/// Regression: more sessions had ended than one call removes, and those that remained let packets in.
#[test]
fn ended_sessions_let_no_packet_in_before_they_are_removed() {
    let mut nat = Both::new(json!({ "pool": "192.0.2.1" }));
    let outside: Vec<_> =
        (0..200u16).map(|n| ends(&nat.out.run(&udp((HOST, 2_000 + n), (PEER, 53), b"")).1).0).collect();
    nat.pass(125);
    for end in outside {
        assert_ne!(nat.back.run(&udp((PEER, 53), end, b"")).0, Gate::FIRST);
    }
}

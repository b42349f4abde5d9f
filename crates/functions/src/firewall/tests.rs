//! Packets of connections and of none, both ways, of both IP versions; and against a model.

use std::collections::BTreeMap;

use etherparse::PacketBuilder;
use forebay_graph::{Rig, Surroundings};
use forebay_measure::Frequency;
use forebay_packet::{Batch, Ticks};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::connection::flags::{ACK, FIN, RST, SYN};
use crate::listing::testing::{changed, chosen, word};

const ALL: &str = "@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00 permit";
const ALL6: &str = "@::/0 ::/0 0 : 65535 0 : 65535 0x00/0x00 permit";

/// The way out, where all may open connections, and the way in, where nobody may.
struct Both {
    out: Rig,
    back: Rig,
}

impl Both {
    fn new(state: Value) -> Self {
        let mut surroundings = Surroundings::new(Frequency::new(1e9));
        let connections = make(state, &mut surroundings).expect("parameters");
        surroundings.state.insert("fw".to_owned(), Arc::new(connections));
        let out = Rig::within::<Firewall>(&json!({ "state": "fw", "rules": [ALL, ALL6] }), &mut surroundings);
        let back = Rig::within::<Firewall>(&json!({ "state": "fw" }), &mut surroundings);
        Self { out: out.expect("parameters"), back: back.expect("parameters") }
    }

    fn pass(&mut self, seconds: u64) {
        self.out.now += Ticks(seconds * 1_000_000_000);
        self.back.now = self.out.now;
    }
}

fn make(state: Value, surroundings: &mut Surroundings) -> Result<Connections, String> {
    let params: ConnectionsParams = serde_json::from_value(state).map_err(|error| error.to_string())?;
    Connections::new(params, &mut Setup::new("fw", surroundings)).map_err(|error| error.to_string())
}

type End = (u8, u16);

/// A frame between two ends, numbered; of IPv6 or IPv4, tagged or not.
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

/// An address of either version.
fn addresses(end: u8) -> ([u8; 4], [u8; 16]) {
    ([10, 0, 0, end], [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end])
}

/// An ICMP message of this type and code, of the IP version's ICMP.
fn icmp(from: u8, to: u8, (kind, code): (u8, u8), word: [u8; 4], rest: &[u8], ipv6: bool) -> Vec<u8> {
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

/// An echo request of one identifier, or its reply.
fn ping(from: End, to: End, reply: bool, ipv6: bool) -> Vec<u8> {
    let kind = match (ipv6, reply) {
        (false, false) => 8,
        (false, true) => 0,
        (true, reply) => 128 + u8::from(reply),
    };
    icmp(from.0, to.0, (kind, 0), [0x0f, 0xa0, 0, 1], b"ping", ipv6)
}

/// A router's ICMP error, that something cannot be reached, with what it quotes.
fn error(to: u8, quoted: &[u8], ipv6: bool) -> Vec<u8> {
    icmp(200, to, if ipv6 { (1, 0) } else { (3, 1) }, [0; 4], quoted, ipv6)
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
        assert_eq!(back(&mut wall, 0), FLAGS, "also of a connection that is there");
        assert_eq!(out(&mut wall, SYN | FIN), FLAGS);
        assert_eq!(out(&mut wall, FIN | ACK), Gate::FIRST);
        assert_eq!(back(&mut wall, FIN | ACK), Gate::FIRST);
        assert_eq!(out(&mut wall, ACK), Gate::FIRST);
        wall.pass(250);
        assert_eq!(back(&mut wall, ACK), NO_SESSION);
    }
}

#[test]
fn errors_pass_where_they_are_about_a_connection() {
    let mut wall = Both::new(json!({}));
    for ipv6 in [false, true] {
        let sent = frame(HERE, THERE, None, ipv6, false);
        let error = |quoted: &[u8]| error(HERE.0, quoted, ipv6);
        assert_eq!(wall.back.run(&error(&sent[14..])).0, NO_SESSION);
        assert_eq!(wall.out.run(&sent).0, Gate::FIRST);
        assert_eq!(wall.back.run(&error(&sent[14..])).0, Gate::FIRST);
        assert_eq!(wall.back.run(&error(&sent[14..40])).0, MALFORMED, "it quotes too little");
    }
}

/// An error let anybody be reached who knew a connection of somebody else to quote.
#[test]
fn errors_reach_nobody_but_who_sent_what_they_are_about() {
    let mut wall = Both::new(json!({}));
    for ipv6 in [false, true] {
        let sent = frame(HERE, THERE, None, ipv6, false);
        assert_eq!(wall.out.run(&sent).0, Gate::FIRST);
        for to in [8, THERE.0] {
            assert_eq!(wall.back.run(&error(to, &sent[14..], ipv6)).0, NO_SESSION, "to {to}");
        }
        assert_eq!(wall.back.run(&error(HERE.0, &sent[14..], ipv6)).0, Gate::FIRST);
        // The host's own, about what came back.
        let answer = frame(THERE, HERE, None, ipv6, false);
        assert_eq!(wall.out.run(&error(THERE.0, &answer[14..], ipv6)).0, Gate::FIRST);
        assert_eq!(wall.out.run(&error(8, &answer[14..], ipv6)).0, NO_SESSION);
    }
}

/// Errors about packets with extension headers were about nothing, so that no path MTU was found.
#[test]
fn errors_pass_whatever_extension_headers_they_quote() {
    let mut wall = Both::new(json!({}));
    let sent = frame(HERE, THERE, None, true, false);
    assert_eq!(wall.out.run(&sent).0, Gate::FIRST);
    // Each of eight bytes: what follows, no more than these, and padding (RFC 8200 section 4.2) or what a router would look at.
    let quoted = |kinds: &[u8]| {
        let mut quoted = sent[14..54].to_vec();
        let mut place = 6;
        for kind in kinds {
            quoted[place] = *kind;
            place = quoted.len();
            quoted.extend([17, 0, 1, 4, 0, 0, 0, 0]);
        }
        quoted.extend(&sent[54..]);
        quoted[5] += 8 * kinds.len() as u8;
        quoted
    };
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENTED: u8 = 44;
    const DESTINATION: u8 = 60;
    for kinds in [&[HOP_BY_HOP][..], &[DESTINATION], &[ROUTING], &[HOP_BY_HOP, DESTINATION, ROUTING]] {
        let quoted = quoted(kinds);
        assert_eq!(wall.back.run(&error(HERE.0, &quoted, true)).0, Gate::FIRST, "{kinds:?}");
        let cut = 40 + 8 * kinds.len() + 7;
        assert_eq!(wall.back.run(&error(HERE.0, &quoted[..cut], true)).0, MALFORMED, "{kinds:?}: it quotes too little");
    }
    assert_eq!(wall.back.run(&error(HERE.0, &quoted(&[FRAGMENTED]), true)).0, MALFORMED, "a fragment");
    assert_eq!(wall.back.run(&error(HERE.0, &quoted(&[50]), true)).0, NO_SESSION, "another protocol");
}

/// Over IPv6 who was asked could ask, and was remembered as long as other protocols are.
#[test]
fn pings_are_answered_and_not_asked_back() {
    for ipv6 in [false, true] {
        let mut wall = Both::new(json!({}));
        assert_eq!(wall.back.run(&ping(THERE, HERE, true, ipv6)).0, NO_SESSION);
        assert_eq!(wall.out.run(&ping(HERE, THERE, false, ipv6)).0, Gate::FIRST);
        assert_eq!(wall.back.run(&ping(THERE, HERE, true, ipv6)).0, Gate::FIRST);
        assert_eq!(wall.back.run(&ping(THERE, HERE, false, ipv6)).0, NO_SESSION);
        assert_eq!(wall.out.run(&ping(HERE, THERE, true, ipv6)).0, NO_SESSION);
        wall.pass(65);
        assert_eq!(wall.back.run(&ping(THERE, HERE, true, ipv6)).0, NO_SESSION, "a minute later");
    }
}

/// Of the other version's ICMP nobody can tell who asks: it is a protocol like others.
#[test]
fn icmp_of_the_other_version_is_a_protocol_like_others() {
    for ipv6 in [false, true] {
        let mut wall = Both::new(json!({}));
        let foreign = |from: End, to: End| {
            let mut frame = ping(from, to, false, ipv6);
            // The protocol, which an IPv4 header has a checksum over that is not looked at here.
            let at = if ipv6 { 14 + 6 } else { 14 + 9 };
            frame[at] = if ipv6 { 1 } else { 58 };
            frame
        };
        assert_eq!(wall.out.run(&foreign(HERE, THERE)).0, Gate::FIRST);
        wall.pass(200);
        assert_eq!(wall.back.run(&foreign(THERE, HERE)).0, Gate::FIRST);
    }
}

#[test]
fn neighbour_discovery_passes() {
    let mut wall = Both::new(json!({}));
    let mut advertisement = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([0xfe; 16], [0xff; 16], 255).icmpv6_raw(136, 0, [0; 4]);
    builder.write(&mut advertisement, &[0; 16]).expect("memory");
    assert_eq!(wall.back.run(&advertisement).0, Gate::FIRST);
}

/// Connections that came to be remembered for less time kept their places as long as they would have had them before.
#[test]
fn a_shorter_time_out_is_kept_whichever_phase_has_it() {
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
        for (seconds, left) in [(3, 2), (3, 1), (5, 0)] {
            wall.pass(seconds);
            assert_eq!(open(&mut wall), left);
        }
    }
}

/// More connections end than are removed in one call, and no packet comes: they kept their places for a quarter of a second for
/// each thousand.
#[test]
fn what_has_ended_is_removed_at_once_though_no_packets_come() {
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
    assert_eq!(wall.out.wakes_at(), None, "nothing waits any more");
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
    assert_eq!(wall.out.run(&frame(HERE, THERE, None, false, false)).0, Gate::FIRST, "others still may");
    // One handshake is finished: there is room for another.
    assert_eq!(wall.back.run(&frame(THERE, (7, 3), Some(SYN | ACK), false, false)).0, Gate::FIRST);
    assert_eq!(wall.out.run(&frame((7, 3), THERE, Some(ACK), false, false)).0, Gate::FIRST);
    assert_eq!(wall.out.run(&syn(2_000)).0, Gate::FIRST);
    assert_eq!(wall.out.run(&syn(2_001)).0, HALF_OPEN);
    wall.pass(250);
    assert_eq!(wall.out.run(&syn(2_001)).0, Gate::FIRST, "they have ended");
    wall.out.wake();
    let counted = wall.out.counters("connections, IPv4");
    assert_eq!((counted["open"], counted["half open"]), (2, 1), "one that is established, and the last");
}

#[test]
fn what_cannot_be_judged_is_dropped() {
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
fn connections_that_were_there_before_are_taken_up_where_it_is_allowed() {
    let mut wall = Both::new(json!({ "pick_up": true }));
    assert_eq!(wall.out.run(&frame(HERE, THERE, Some(ACK), false, false)).0, Gate::FIRST);
    assert_eq!(wall.back.run(&frame(THERE, HERE, Some(ACK), false, false)).0, Gate::FIRST);
}

/// What the documentation says that a connection takes.
#[test]
fn a_connection_takes_a_line_and_a_place_of_the_index() {
    let most = 100_000;
    let bytes = |table: usize| table as f64 / most as f64;
    let v4 = Tracker::<Tuple4>::new(most, 1, 1).expect("memory").table.bytes();
    let v6 = Tracker::<Tuple6>::new(most, 1, 1).expect("memory").table.bytes();
    assert!(bytes(v4) < 74.0 && bytes(v6) < 74.0, "{v4}, {v6}");
}

#[test]
fn parameters_that_make_no_sense_are_named() {
    for (state, said) in [
        (json!({ "sessions": 0 }), "sessions: 0: allowed are 1 to"),
        (json!({ "sessions": 10, "half_open": 11 }), "half_open: 11: allowed are 1 to 10"),
        (json!({ "timeouts": { "udp": "0s" } }), "timeouts.udp: 0ns: allowed are 1s"),
        (json!({ "timeouts": { "sctp": "1s" } }), "unknown field `sctp`"),
    ] {
        let mut surroundings = Surroundings::new(Frequency::new(1e9));
        let error = make(state.clone(), &mut surroundings).err().unwrap_or_else(|| panic!("{state} is refused"));
        assert!(error.contains(said), "{state}: {error}");
    }
    let mut surroundings = Surroundings::new(Frequency::new(1e9));
    let error = Rig::within::<Firewall>(&json!({ "state": "none" }), &mut surroundings).err().expect("no state");
    assert!(error.to_string().contains("state: no state is called 'none'"), "{error}");
}

/// What kinds of connections there are in the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sort {
    #[default]
    Tcp,
    Udp,
    Ping,
    /// GRE.
    Other,
}

/// A connection's kind, by its number.
fn sort(which: u8) -> Sort {
    [Sort::Tcp, Sort::Udp, Sort::Ping, Sort::Other][usize::from(which % 4)]
}

/// A packet of the model: which connection, TCP's flags, of a ping whether it is a reply, whether it is tagged.
type Sent = (u8, u8, bool, bool);

fn sent_frame((which, flags, reply, tagged): Sent, outward: bool, ipv6: bool) -> Vec<u8> {
    let (here, there) = ((which, 4_000), THERE);
    let (from, to) = if outward { (here, there) } else { (there, here) };
    match sort(which) {
        Sort::Tcp => frame(from, to, Some(flags), ipv6, tagged),
        Sort::Udp => frame(from, to, None, ipv6, tagged),
        Sort::Ping => ping(from, to, reply, ipv6),
        Sort::Other => {
            let mut gre = frame(from, to, None, ipv6, tagged);
            gre[14 + 4 * usize::from(tagged) + if ipv6 { 6 } else { 9 }] = 47;
            gre
        }
    }
}

/// What a plain firewall remembers of a connection, which all are opened from inside: of TCP, which of SYN, its answer and the
/// answer's answer were seen, and which ends; of UDP, whether it was answered.
#[derive(Clone, Copy, Default)]
struct Model {
    sort: Sort,
    ends: u64,
    answered: bool,
    established: bool,
    closed: [bool; 2],
    over: bool,
}

impl Model {
    fn sees(&mut self, flags: u8, reply: bool, now: u64) {
        match self.sort {
            Sort::Tcp => self.sees_tcp(flags, reply),
            _ => self.answered |= reply,
        }
        self.ends = now + self.lasts();
    }

    fn sees_tcp(&mut self, flags: u8, reply: bool) {
        if flags & RST != 0 {
            self.over = true;
        } else if flags & (SYN | ACK) == SYN {
            if self.over && !reply {
                *self = Self::default();
            }
        } else {
            self.closed[usize::from(reply)] |= flags & FIN != 0;
            self.over |= self.closed == [true; 2];
            if !self.over && !self.established {
                self.established = self.answered && !reply && flags & (SYN | ACK) == ACK;
                self.answered |= reply && flags & (SYN | ACK) == SYN | ACK;
            }
        }
    }

    fn lasts(&self) -> u64 {
        match self.sort {
            Sort::Tcp if self.over || !self.established => 240,
            Sort::Tcp => 7_440,
            Sort::Udp if self.answered => 300,
            Sort::Udp => 120,
            Sort::Ping => 60,
            Sort::Other => 300,
        }
    }

    fn state(&self) -> &'static str {
        match self.sort {
            Sort::Tcp if self.over => "closing",
            Sort::Tcp if self.established => "established",
            Sort::Tcp => "opening",
            Sort::Udp if self.answered => "established",
            Sort::Udp => "unanswered",
            Sort::Ping | Sort::Other => "seen",
        }
    }
}

fn sent() -> impl Strategy<Value = Vec<Sent>> {
    let flags = prop::sample::select(vec![SYN, SYN | ACK, ACK, ACK, ACK, FIN | ACK, RST]);
    prop::collection::vec((0u8..12, flags, any::<bool>(), any::<bool>()), 1..50)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Packets of a few connections of every kind, in batches, both ways, at any time: what passes is what a map of states says,
    /// and so is what the table shows.
    #[test]
    fn it_is_what_a_map_of_states_says(
        steps in prop::collection::vec(
            prop_oneof![
                4 => (any::<bool>(), sent()).prop_map(Ok),
                // Apart from the time-outs by more than they are rounded.
                1 => prop::sample::select(vec![10u64, 65, 100, 125, 245, 310, 7_445]).prop_map(Err),
            ],
            1..30,
        ),
        ipv6: bool,
    ) {
        let mut wall = Both::new(json!({}));
        let (mut model, mut now): (BTreeMap<u8, Model>, u64) = (BTreeMap::new(), 0);
        for step in steps {
            let (outward, packets) = match step {
                Err(seconds) => {
                    now += seconds;
                    wall.pass(seconds);
                    model.retain(|_, known| known.ends >= now);
                    continue;
                }
                Ok(packets) => packets,
            };
            let rig = if outward { &mut wall.out } else { &mut wall.back };
            let mut batch = Batch::with_capacity(packets.len());
            for packet in &packets {
                batch.push(rig.packet(&sent_frame(*packet, outward, ipv6))).expect("room");
            }
            for (packet, gate) in packets.iter().zip(rig.process(&mut batch)) {
                let (which, flags, answers, _) = *packet;
                let sort = sort(which);
                let expected = match (model.get_mut(&which), sort) {
                    // From inside come requests, from outside their replies.
                    (Some(_), Sort::Ping) if answers == outward => NO_SESSION,
                    (Some(known), _) => {
                        known.sees(flags, !outward, now);
                        Gate::FIRST
                    }
                    (None, Sort::Tcp) if flags != SYN => NO_SESSION,
                    (None, Sort::Ping) if answers => NO_SESSION,
                    (None, _) if !outward => DENIED,
                    (None, _) => {
                        let mut new = Model { sort, ..Model::default() };
                        new.sees(flags, false, now);
                        model.insert(which, new);
                        Gate::FIRST
                    }
                };
                prop_assert_eq!(gate, Some(expected), "{:?} at {}", packet, now);
            }
        }
        let lines = chosen(&mut wall.out, "connections", "all");
        let shown: BTreeMap<_, _> = lines.iter().map(|line| (word(line, "from").to_owned(), word(line, "state"))).collect();
        let known = model.iter().map(|(which, known)| {
            let wide = std::net::Ipv6Addr::from(addresses(*which).1);
            let from = match (ipv6, known.sort) {
                (false, Sort::Other) => format!("10.0.0.{which}"),
                (false, _) => format!("10.0.0.{which}:4000"),
                (true, Sort::Other) => wide.to_string(),
                (true, _) => format!("[{wide}]:4000"),
            };
            (from, known.state())
        });
        prop_assert_eq!((shown, lines.len()), (known.collect(), model.len()));
    }
}

/// More connections than are removed in one call had ended, and those left let packets in.
#[test]
fn what_has_ended_is_over_however_many_have() {
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
    // The key is that of the other way: who opened it is told all the same.
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
    // Either module of the state answers.
    assert_eq!(chosen(&mut wall.back, "connections", "2001:db8::/64"), expected[2..]);
    let half_open = |wall: &mut Both| {
        wall.out.wake();
        wall.out.counters("connections, IPv4")["half open"]
    };
    assert_eq!(half_open(&mut wall), 1);
    let outcome = changed(&mut wall.back, "connections", &["remove tcp", &format!("remove {}", expected[2])]);
    assert_eq!((outcome.made, half_open(&mut wall)), (2, 0), "{outcome:?}");
    assert_eq!(wall.back.run(&frame(THERE, HERE, Some(SYN | ACK), false, false)).0, NO_SESSION, "it has ended");
    assert_eq!(chosen(&mut wall.out, "connections", "all"), expected[1..2]);
}

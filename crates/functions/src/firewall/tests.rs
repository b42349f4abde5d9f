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
    let wide = |end: u8| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end];
    let builder = match (tagged, ipv6) {
        (false, false) => ethernet.ipv4([10, 0, 0, from.0], [10, 0, 0, to.0], 64),
        (false, true) => ethernet.ipv6(wide(from.0), wide(to.0), 64),
        (true, false) => ethernet.single_vlan(tag).ipv4([10, 0, 0, from.0], [10, 0, 0, to.0], 64),
        (true, true) => ethernet.single_vlan(tag).ipv6(wide(from.0), wide(to.0), 64),
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
    for (ipv6, kind) in [(false, 3u8), (true, 1)] {
        let sent = frame(HERE, THERE, None, ipv6, false);
        let error = |quoted: &[u8]| {
            let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
            let mut error = Vec::new();
            if ipv6 {
                let builder = ethernet.ipv6([0xfe; 16], [0x20; 16], 64).icmpv6_raw(kind, 0, [0; 4]);
                builder.write(&mut error, quoted).expect("memory");
            } else {
                let builder = ethernet.ipv4([192, 0, 2, 1], [10, 0, 0, 7], 64).icmpv4_raw(kind, 1, [0; 4]);
                builder.write(&mut error, quoted).expect("memory");
            }
            error
        };
        assert_eq!(wall.back.run(&error(&sent[14..])).0, NO_SESSION);
        assert_eq!(wall.out.run(&sent).0, Gate::FIRST);
        assert_eq!(wall.back.run(&error(&sent[14..])).0, Gate::FIRST);
        assert_eq!(wall.back.run(&error(&sent[14..40])).0, MALFORMED, "it quotes too little");
    }
}

#[test]
fn pings_are_answered_and_not_asked_back() {
    let mut wall = Both::new(json!({}));
    let ping = |from: u8, to: u8, reply: bool| {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, from], [10, 0, 0, to], 64);
        let mut frame = Vec::new();
        let builder = if reply { builder.icmpv4_echo_reply(5, 1) } else { builder.icmpv4_echo_request(5, 1) };
        builder.write(&mut frame, b"ping").expect("memory");
        frame
    };
    assert_eq!(wall.back.run(&ping(9, 7, true)).0, NO_SESSION);
    assert_eq!(wall.out.run(&ping(7, 9, false)).0, Gate::FIRST);
    assert_eq!(wall.back.run(&ping(9, 7, true)).0, Gate::FIRST);
    assert_eq!(wall.back.run(&ping(9, 7, false)).0, NO_SESSION);
    let mut advertisement = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([0xfe; 16], [0xff; 16], 255).icmpv6_raw(136, 0, [0; 4]);
    builder.write(&mut advertisement, &[0; 16]).expect("memory");
    assert_eq!(wall.back.run(&advertisement).0, Gate::FIRST, "neighbour discovery");
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

/// What a plain firewall remembers of TCP: which of SYN, its answer and the answer's answer were seen, and which ends.
#[derive(Clone, Copy, Default)]
struct Model {
    ends: u64,
    turned: bool,
    answered: bool,
    established: bool,
    closed: [bool; 2],
    over: bool,
}

impl Model {
    fn sees(&mut self, flags: u8, turned: bool, now: u64) {
        let reply = turned != self.turned;
        if flags & RST != 0 {
            self.over = true;
        } else if flags & (SYN | ACK) == SYN {
            if self.over && !reply {
                *self = Self { turned: self.turned, ..Self::default() };
            }
        } else {
            self.closed[usize::from(reply)] |= flags & FIN != 0;
            self.over |= self.closed == [true; 2];
            if !self.over && !self.established {
                self.established = self.answered && !reply && flags & (SYN | ACK) == ACK;
                self.answered |= reply && flags & (SYN | ACK) == SYN | ACK;
            }
        }
        self.ends = now + if self.over || !self.established { 240 } else { 7_440 };
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// TCP packets of a few connections, in batches, both ways, at any time: what passes is what a map of states says, and so
    /// is what the table shows.
    #[test]
    fn it_is_what_a_map_of_states_says(
        steps in prop::collection::vec(
            prop_oneof![
                4 => (any::<bool>(), prop::collection::vec((0u8..5, prop::sample::select(vec![SYN, SYN | ACK, ACK, ACK, ACK, FIN | ACK, RST]), any::<bool>()), 1..50)).prop_map(Ok),
                1 => prop::sample::select(vec![10u64, 100, 245, 7_445]).prop_map(Err),
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
            for (which, flags, tagged) in &packets {
                let (here, there) = ((*which, 4_000), THERE);
                let (from, to) = if outward { (here, there) } else { (there, here) };
                batch.push(rig.packet(&frame(from, to, Some(*flags), ipv6, *tagged))).expect("room");
            }
            for ((which, flags, _), gate) in packets.iter().zip(rig.process(&mut batch)) {
                let expected = match model.get_mut(which) {
                    Some(known) => {
                        known.sees(*flags, !outward, now);
                        Gate::FIRST
                    }
                    None if *flags != SYN => NO_SESSION,
                    None if !outward => DENIED,
                    None => {
                        let mut new = Model { turned: !outward, ..Model::default() };
                        new.sees(SYN, !outward, now);
                        model.insert(*which, new);
                        Gate::FIRST
                    }
                };
                prop_assert_eq!(gate, Some(expected), "{} at {}", which, now);
            }
        }
        let lines = chosen(&mut wall.out, "connections", "all");
        let shown: BTreeMap<_, _> = lines.iter().map(|line| (word(line, "from").to_owned(), word(line, "state"))).collect();
        let known = model.iter().map(|(which, known)| {
            let wide = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(*which));
            let from = if ipv6 { format!("[{wide}]:4000") } else { format!("10.0.0.{which}:4000") };
            (from, if known.over { "closing" } else if known.established { "established" } else { "opening" })
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

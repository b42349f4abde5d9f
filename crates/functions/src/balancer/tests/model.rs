//! The balancer against one written plainly: maps, no batches, no wheel, no checksums changed by a difference.

use std::collections::BTreeMap;

use forebay_packet::Batch;
use proptest::prelude::*;

use super::*;
use crate::listing::testing::{chosen, word};

/// How packets reach backends, and how replies are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By translation; replies by their session.
    Session,
    /// By translation; replies by the backend's address and port.
    Endpoint,
    /// As they are; replies do not come by.
    Direct,
}

/// A configuration but for its backends: TCP or UDP, and the way.
#[derive(Clone, Copy, Debug)]
struct Kind {
    tcp: bool,
    way: Way,
}

impl Kind {
    /// Whether sessions are followed by what clients send alone.
    fn is_one_way(self) -> bool {
        self.way != Way::Session
    }
}

/// What is known of a session.
#[derive(Clone, Debug)]
struct Known {
    kind: Kind,
    backend: u8,
    ends: u64,
    /// Of UDP, whether both sides were heard; of TCP, whether a SYN was answered.
    answered: bool,
    /// Of TCP: whether a SYN was seen, the handshake was complete, who has sent a FIN, whether the last packet was a
    /// reset.
    opened: bool,
    established: bool,
    finished: [bool; 2],
    reset: bool,
}

impl Known {
    fn new(kind: Kind, backend: u8, flags: &str) -> Self {
        let opened = flags == "S";
        Self { kind, backend, ends: 0, answered: false, opened, established: false, finished: [false; 2], reset: false }
    }

    fn sees(&mut self, flags: &str, reply: bool, now: u64) {
        match (self.kind.tcp, self.kind.is_one_way()) {
            (false, one_way) => self.answered |= reply || one_way,
            (true, false) => self.sees_both(flags, reply),
            (true, true) => {
                // What the client acknowledges was sent to it; where it ends, all ends.
                self.reset = flags.contains('R');
                if flags.contains('F') {
                    self.finished = [true; 2];
                }
                self.established |= flags == "A";
            }
        }
        self.ends = now + self.lasts();
    }

    fn sees_both(&mut self, flags: &str, reply: bool) {
        let has = |flag: char| flags.contains(flag);
        // Any packet but a reset leads back (RFC 6146 section 3.5.2.2).
        self.reset = has('R');
        if self.reset || flags == "S" || self.is_ended() {
            return;
        }
        let acknowledges = has('A') && !has('S');
        if !self.established && self.opened {
            self.established = self.answered && !reply && acknowledges;
            self.answered |= reply && flags == "SA";
        } else {
            // One from before our time.
            self.established |= reply && acknowledges;
        }
        self.finished[usize::from(reply)] |= has('F') && (self.established || self.answered || !self.opened);
    }

    fn is_ended(&self) -> bool {
        self.finished == [true; 2]
    }

    fn is_over(&self) -> bool {
        self.reset || self.is_ended()
    }

    fn lasts(&self) -> u64 {
        match self.kind.tcp {
            true if self.established && !self.is_over() => 7_440,
            true => 240,
            false if self.answered => 300,
            false => 120,
        }
    }

    fn state(&self) -> &'static str {
        match self.kind.tcp {
            true if self.is_over() => "closing",
            true if self.established => "established",
            true => "opening",
            false if self.answered => "established",
            false => "unanswered",
        }
    }
}

/// Sessions of a client's port, and the backends that there are: whether each takes new sessions.
struct Model {
    sessions: BTreeMap<u16, Known>,
    backends: BTreeMap<u8, bool>,
    now: u64,
}

/// A packet: the client's port, TCP's flags, whether it is tagged.
type Sent = (u16, &'static str, bool);

#[derive(Clone, Debug)]
enum Step {
    /// Packets of clients, in one batch.
    There(Vec<Sent>),
    /// Replies, from the backend that the session has, or had.
    Back(Vec<Sent>),
    Pass(u64),
    /// Other backends, and which of them drain.
    Change(BTreeMap<u8, bool>),
}

fn backends() -> impl Strategy<Value = BTreeMap<u8, bool>> {
    prop::collection::btree_map(1u8..7, prop::bool::weighted(0.7), 1..6)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let flags = prop::sample::select(vec!["S", "S", "SA", "A", "A", "A", "FA", "R"]);
    let packets = move || prop::collection::vec((0u16..40, flags.clone(), any::<bool>()), 1..70);
    // Seconds that are apart from the time-outs by more than a slot.
    let spans = prop::sample::select(vec![10u64, 50, 125, 245, 310, 7_445]);
    let step = prop_oneof![
        4 => packets().prop_map(Step::There),
        3 => packets().prop_map(Step::Back),
        2 => spans.prop_map(Step::Pass),
        2 => backends().prop_map(Step::Change),
    ];
    prop::collection::vec(step, 1..25)
}

fn kinds() -> impl Strategy<Value = Kind> {
    let way = prop::sample::select(vec![Way::Session, Way::Endpoint, Way::Direct]);
    (any::<bool>(), way).prop_map(|(tcp, way)| Kind { tcp, way })
}

fn state(kind: Kind, backends: &BTreeMap<u8, bool>) -> Value {
    let numbers: Vec<_> = backends.keys().copied().collect();
    let mut state = of(if kind.tcp { "tcp" } else { "udp" }, &numbers);
    for (at, (number, takes)) in backends.iter().enumerate() {
        let backend = &mut state["services"][0]["backends"][at];
        if kind.way == Way::Direct {
            *backend = json!({ "address": format!("10.0.0.{number}"), "mac": format!("02:00:00:00:00:{number:02x}") });
        }
        backend["drain"] = json!(!takes);
    }
    match kind.way {
        Way::Session => {}
        Way::Endpoint => state["replies"] = json!("endpoint"),
        Way::Direct => state["services"][0]["mode"] = json!("direct"),
    }
    state["places"] = json!(251);
    state
}

fn backend(number: u8) -> End {
    ([10, 0, 0, number], 8_080)
}

fn frame(kind: Kind, from: End, to: End, flags: &str, tagged: bool) -> Vec<u8> {
    let mut frame = if kind.tcp { tcp(from, to, flags) } else { udp(from, to, b"a payload") };
    if tagged {
        frame.splice(12..12, [0x81, 0, 0, 7]);
    }
    frame
}

/// A client's frame as it reaches a backend.
fn delivered(kind: Kind, (port, flags, tagged): Sent, to: u8) -> Vec<u8> {
    if kind.way != Way::Direct {
        return frame(kind, (CLIENT, port), backend(to), flags, tagged);
    }
    let mut frame = frame(kind, (CLIENT, port), (VIP, 80), flags, tagged);
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, to]);
    frame
}

/// The backend that a frame goes to.
fn destination(kind: Kind, frame: &[u8]) -> u8 {
    if kind.way == Way::Direct { frame[5] } else { ends(frame).1.0[3] }
}

/// A batch of these frames through a rig: the frames afterwards, with their gates.
fn run(rig: &mut Rig, frames: &[Vec<u8>]) -> Vec<(Gate, Vec<u8>)> {
    let mut batch = Batch::with_capacity(frames.len());
    for frame in frames {
        batch.push(rig.packet(frame)).expect("room");
    }
    let gates = rig.process(&mut batch);
    let after = batch.iter().map(|packet| packet.data().to_vec());
    gates.into_iter().map(|gate| gate.expect("nothing is held")).zip(after).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Batches in any order and at any time, while backends change: a session has one backend as long as the configuration
    /// has it, a new one gets one that takes sessions, and the same one whenever the same backends are there. What the table
    /// shows is what the model has.
    #[test]
    fn it_is_what_plain_maps_say(kind in kinds(), first in backends(), steps in steps()) {
        let mut both = Both::new(state(kind, &first));
        let mut model = Model { sessions: BTreeMap::new(), backends: first, now: 0 };
        let mut choices: BTreeMap<(Vec<u8>, u16), u8> = BTreeMap::new();
        let served = if kind.way == Way::Direct { 80 } else { 8_080 };
        for step in steps {
            let now = model.now;
            match step {
                Step::Pass(seconds) => {
                    model.now += seconds;
                    both.pass(seconds);
                    let now = model.now;
                    model.sessions.retain(|_, known| known.ends >= now);
                }
                Step::Change(backends) => {
                    both.change(state(kind, &backends));
                    model.backends = backends;
                }
                Step::There(packets) => {
                    let frames: Vec<_> =
                        packets.iter().map(|(port, flags, tagged)| frame(kind, (CLIENT, *port), (VIP, 80), flags, *tagged)).collect();
                    for (sent, (gate, after)) in packets.into_iter().zip(run(&mut both.there, &frames)) {
                        let (port, flags, _) = sent;
                        // One whose backend is gone chooses again, and so does one that is over and begins anew.
                        let backends = &model.backends;
                        let over = |known: &Known| kind.tcp && known.is_over() && flags == "S";
                        if model.sessions.get(&port).is_some_and(|it| over(it) || !backends.contains_key(&it.backend)) {
                            model.sessions.remove(&port);
                        }
                        let takers: Vec<_> = backends.iter().filter(|(_, takes)| **takes).map(|(it, _)| *it).collect();
                        if let Some(known) = model.sessions.get_mut(&port) {
                            prop_assert_eq!((gate, after), (Gate::FIRST, delivered(kind, sent, known.backend)));
                            known.sees(flags, false, now);
                            continue;
                        }
                        if takers.is_empty() {
                            prop_assert_eq!(gate, NO_BACKEND);
                            continue;
                        }
                        let chosen = destination(kind, &after);
                        prop_assert!(takers.contains(&chosen));
                        prop_assert_eq!(*choices.entry((takers, port)).or_insert(chosen), chosen);
                        prop_assert_eq!((gate, after), (Gate::FIRST, delivered(kind, sent, chosen)), "nothing else changes");
                        if !(kind.tcp && flags == "R") {
                            let mut known = Known::new(kind, chosen, flags);
                            known.sees(flags, false, now);
                            model.sessions.insert(port, known);
                        }
                    }
                }
                Step::Back(packets) => {
                    let from = |port: u16| model.sessions.get(&port).map_or(1, |known| known.backend);
                    let sent: Vec<_> = packets.into_iter().map(|it| (from(it.0), it)).collect();
                    let frames: Vec<_> = sent
                        .iter()
                        .map(|(from, (port, flags, tagged))| frame(kind, backend(*from), (CLIENT, *port), flags, *tagged))
                        .collect();
                    let after = run(&mut both.back, &frames);
                    for (((from, (port, flags, tagged)), before), (gate, after)) in sent.into_iter().zip(frames).zip(after) {
                        prop_assert_eq!(gate, Gate::FIRST);
                        let known = model.sessions.get_mut(&port);
                        let ours = match kind.way {
                            Way::Session => known.is_some(),
                            Way::Endpoint => model.backends.contains_key(&from),
                            Way::Direct => false,
                        };
                        let from_service = frame(kind, (VIP, 80), (CLIENT, port), flags, tagged);
                        prop_assert_eq!(after, if ours { from_service } else { before });
                        if let (Some(known), Way::Session) = (known, kind.way) {
                            known.sees(flags, true, now);
                        }
                    }
                }
            }
            let now: BTreeMap<u8, u64> = model.backends.keys().map(|it| {
                (*it, model.sessions.values().filter(|known| known.backend == *it).count() as u64)
            }).collect();
            let open = both.counters("open sessions by backend");
            let protocol = if kind.tcp { "tcp" } else { "udp" };
            for (backend, count) in now {
                prop_assert_eq!(open[&format!("192.0.2.10:80 {protocol} 10.0.0.{backend}:{served}")], count);
            }
        }
        let lines = chosen(&mut both.there, "sessions", "all");
        let shown: BTreeMap<_, _> = lines
            .iter()
            .map(|line| (word(line, "client").to_owned(), (word(line, "backend").to_owned(), word(line, "state"))))
            .collect();
        let end = |known: &Known| (format!("10.0.0.{}:{served}", known.backend), known.state());
        let known = model.sessions.iter().map(|(port, known)| match port {
            // A port of 0 is not written.
            0 => ("198.51.100.9".to_owned(), end(known)),
            port => (format!("198.51.100.9:{port}"), end(known)),
        });
        prop_assert_eq!((shown, lines.len()), (known.collect(), model.sessions.len()));
    }
}

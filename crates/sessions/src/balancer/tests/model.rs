//! The balancer compared with a simple model: maps, without batches, a timer wheel or incremental checksums.

use std::collections::BTreeMap;

use forebay_packet::Batch;
use proptest::prelude::*;

use super::*;
use crate::listing::testing::{chosen, word};

/// How packets reach backends, and how replies are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By translation; replies are recognised by their session.
    Session,
    /// By translation; replies are recognised by the backend's address and port.
    Endpoint,
    /// Unchanged; replies do not pass the balancer.
    Direct,
}

/// A configuration without its backends: the protocol, and how packets reach backends.
#[derive(Clone, Copy, Debug)]
struct Setting {
    tcp: bool,
    way: Way,
}

impl Setting {
    /// Whether sessions are tracked by the client's packets only.
    fn is_one_way(self) -> bool {
        self.way != Way::Session
    }
}

/// State of a session in the model.
#[derive(Clone, Debug)]
struct Known {
    setting: Setting,
    backend: u8,
    ends: u64,
    /// For UDP: whether both sides have sent packets. For TCP: whether a SYN was answered.
    answered: bool,
    /// For TCP: true if a SYN was seen.
    opened: bool,
    /// For TCP: true if the handshake was complete.
    established: bool,
    /// For TCP, for each side: true if it has sent a FIN.
    finished: [bool; 2],
    /// For TCP: true if the last packet was a reset.
    reset: bool,
}

impl Known {
    fn new(setting: Setting, backend: u8, flags: &str) -> Self {
        let opened = flags == "S";
        Self {
            setting,
            backend,
            ends: 0,
            answered: false,
            opened,
            established: false,
            finished: [false; 2],
            reset: false,
        }
    }

    fn sees(&mut self, flags: &str, reply: bool, now: u64) {
        match (self.setting.tcp, self.setting.is_one_way()) {
            (false, one_way) => self.answered |= reply || one_way,
            (true, false) => self.sees_both(flags, reply),
            (true, true) => {
                // An acknowledgement of the client implies the packet that it acknowledges. A FIN of the client ends
                // both sides.
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
        // Any packet except a reset leads back (RFC 6146 section 3.5.2.2).
        self.reset = has('R');
        if self.reset || flags == "S" || self.is_ended() {
            return;
        }
        let acknowledges = has('A') && !has('S');
        if !self.established && self.opened {
            self.established = self.answered && !reply && acknowledges;
            self.answered |= reply && flags == "SA";
        } else {
            // A connection that is older than the table.
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
        match self.setting.tcp {
            true if self.established && !self.is_over() => 7_440,
            true => 240,
            false if self.answered => 300,
            false => 120,
        }
    }

    fn state(&self) -> &'static str {
        match self.setting.tcp {
            true if self.is_over() => "closing",
            true if self.established => "established",
            true => "opening",
            false if self.answered => "established",
            false => "unanswered",
        }
    }
}

/// The sessions by the client's port, and the backends. The value of a backend is true if it takes new sessions.
struct Model {
    sessions: BTreeMap<u16, Known>,
    backends: BTreeMap<u8, bool>,
    now: u64,
}

/// A packet: the client's port, TCP's flags, and whether it has a tag.
type Sent = (u16, &'static str, bool);

#[derive(Clone, Debug)]
enum Step {
    /// Packets of clients, in one batch.
    Forward(Vec<Sent>),
    /// Replies from the backend of the session, or from an arbitrary one if there is no session.
    Back(Vec<Sent>),
    Pass(u64),
    /// A change of backends. The value of a backend is true if it takes new sessions.
    Change(BTreeMap<u8, bool>),
}

fn backends() -> impl Strategy<Value = BTreeMap<u8, bool>> {
    prop::collection::btree_map(1u8..7, prop::bool::weighted(0.7), 1..6)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let flags = prop::sample::select(vec!["S", "S", "SA", "A", "A", "A", "FA", "R"]);
    let packets = move || prop::collection::vec((0u16..40, flags.clone(), any::<bool>()), 1..70);
    // Spans that differ from the time-outs by more than a slot.
    let spans = prop::sample::select(vec![10u64, 50, 125, 245, 310, 7_445]);
    let step = prop_oneof![
        4 => packets().prop_map(Step::Forward),
        3 => packets().prop_map(Step::Back),
        2 => spans.prop_map(Step::Pass),
        2 => backends().prop_map(Step::Change),
    ];
    prop::collection::vec(step, 1..25)
}

fn settings() -> impl Strategy<Value = Setting> {
    let way = prop::sample::select(vec![Way::Session, Way::Endpoint, Way::Direct]);
    (any::<bool>(), way).prop_map(|(tcp, way)| Setting { tcp, way })
}

fn state(setting: Setting, backends: &BTreeMap<u8, bool>) -> Value {
    let numbers: Vec<_> = backends.keys().copied().collect();
    let mut state = of(if setting.tcp { "tcp" } else { "udp" }, &numbers);
    for (at, (number, takes)) in backends.iter().enumerate() {
        let backend = &mut state["services"][0]["backends"][at];
        if setting.way == Way::Direct {
            *backend = json!({ "address": format!("10.0.0.{number}"), "mac": format!("02:00:00:00:00:{number:02x}") });
        }
        backend["drain"] = json!(!takes);
    }
    match setting.way {
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

fn frame(setting: Setting, from: End, to: End, flags: &str, tagged: bool) -> Vec<u8> {
    let mut frame = if setting.tcp { tcp(from, to, flags) } else { udp(from, to, b"a payload") };
    if tagged {
        frame.splice(12..12, [0x81, 0, 0, 7]);
    }
    frame
}

/// Returns a client's frame as it reaches a backend.
fn delivered(setting: Setting, (port, flags, tagged): Sent, to: u8) -> Vec<u8> {
    if setting.way != Way::Direct {
        return frame(setting, (CLIENT, port), backend(to), flags, tagged);
    }
    let mut frame = frame(setting, (CLIENT, port), (VIP, 80), flags, tagged);
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, to]);
    frame
}

/// Returns the backend to which a frame goes.
fn destination(setting: Setting, frame: &[u8]) -> u8 {
    if setting.way == Way::Direct { frame[5] } else { ends(frame).1.0[3] }
}

/// Runs a batch of frames through a rig. Returns the gates and the frames afterwards.
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

    /// Batches in any order and at any time, while backends change. A session keeps its backend as long as the
    /// configuration has it. A new session gets a backend that takes sessions, and always the same one for the same
    /// backends. The table shows the sessions of the model.
    #[test]
    fn it_agrees_with_the_model(setting in settings(), first in backends(), steps in steps()) {
        let mut both = Both::new(state(setting, &first));
        let mut model = Model { sessions: BTreeMap::new(), backends: first, now: 0 };
        let mut choices: BTreeMap<(Vec<u8>, u16), u8> = BTreeMap::new();
        let served = if setting.way == Way::Direct { 80 } else { 8_080 };
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
                    both.change(state(setting, &backends));
                    model.backends = backends;
                }
                Step::Forward(packets) => {
                    let frames: Vec<_> =
                        packets
                            .iter()
                            .map(|(port, flags, tagged)| frame(setting, (CLIENT, *port), (VIP, 80), flags, *tagged))
                            .collect();
                    for (sent, (gate, after)) in packets.into_iter().zip(run(&mut both.forward, &frames)) {
                        let (port, flags, _) = sent;
                        // A session whose backend was removed gets a new one, and so does a session that has ended and
                        // starts again.
                        let backends = &model.backends;
                        let over = |known: &Known| setting.tcp && known.is_over() && flags == "S";
                        if model.sessions.get(&port).is_some_and(|it| over(it) || !backends.contains_key(&it.backend)) {
                            model.sessions.remove(&port);
                        }
                        let takers: Vec<_> = backends.iter().filter(|(_, takes)| **takes).map(|(it, _)| *it).collect();
                        if let Some(known) = model.sessions.get_mut(&port) {
                            prop_assert_eq!((gate, after), (Gate::FIRST, delivered(setting, sent, known.backend)));
                            known.sees(flags, false, now);
                            continue;
                        }
                        if takers.is_empty() {
                            prop_assert_eq!(gate, NO_BACKEND);
                            continue;
                        }
                        let chosen = destination(setting, &after);
                        prop_assert!(takers.contains(&chosen));
                        prop_assert_eq!(*choices.entry((takers, port)).or_insert(chosen), chosen);
                        let expected = delivered(setting, sent, chosen);
                        prop_assert_eq!((gate, after), (Gate::FIRST, expected), "nothing else changes");
                        if !(setting.tcp && flags == "R") {
                            let mut known = Known::new(setting, chosen, flags);
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
                        .map(|(from, (port, flags, tagged))| {
                            frame(setting, backend(*from), (CLIENT, *port), flags, *tagged)
                        })
                        .collect();
                    let after = run(&mut both.back, &frames);
                    let results = sent.into_iter().zip(frames).zip(after);
                    for (((from, (port, flags, tagged)), before), (gate, after)) in results {
                        prop_assert_eq!(gate, Gate::FIRST);
                        let known = model.sessions.get_mut(&port);
                        let ours = match setting.way {
                            Way::Session => known.is_some(),
                            Way::Endpoint => model.backends.contains_key(&from),
                            Way::Direct => false,
                        };
                        let from_service = frame(setting, (VIP, 80), (CLIENT, port), flags, tagged);
                        prop_assert_eq!(after, if ours { from_service } else { before });
                        if let (Some(known), Way::Session) = (known, setting.way) {
                            known.sees(flags, true, now);
                        }
                    }
                }
            }
            let now: BTreeMap<u8, u64> = model.backends.keys().map(|it| {
                (*it, model.sessions.values().filter(|known| known.backend == *it).count() as u64)
            }).collect();
            let open = both.counters("open sessions by backend");
            let protocol = if setting.tcp { "tcp" } else { "udp" };
            for (backend, count) in now {
                prop_assert_eq!(open[&format!("192.0.2.10:80 {protocol} 10.0.0.{backend}:{served}")], count);
            }
        }
        let lines = chosen(&mut both.forward, "sessions", "all");
        let shown: BTreeMap<_, _> = lines
            .iter()
            .map(|line| (word(line, "client").to_owned(), (word(line, "backend").to_owned(), word(line, "state"))))
            .collect();
        let end = |known: &Known| (format!("10.0.0.{}:{served}", known.backend), known.state());
        let known = model.sessions.iter().map(|(port, known)| match port {
            // Port 0 is not written.
            0 => ("198.51.100.9".to_owned(), end(known)),
            port => (format!("198.51.100.9:{port}"), end(known)),
        });
        prop_assert_eq!((shown, lines.len()), (known.collect(), model.sessions.len()));
    }
}

//! The balancer against one written plainly: maps, no batches, no wheel, no checksums changed by a difference.

use std::collections::BTreeMap;

use forebay_packet::Batch;
use proptest::prelude::*;

use super::*;
use crate::listing::testing::{chosen, word};

/// What is known of a session.
#[derive(Clone, Debug)]
struct Known {
    backend: u8,
    ends: u64,
    /// Whether both sides were heard.
    both: bool,
}

/// Sessions of a client's port, and the backends that there are: whether each takes new sessions.
#[derive(Default)]
struct Model {
    sessions: BTreeMap<u16, Known>,
    backends: BTreeMap<u8, bool>,
    now: u64,
}

impl Model {
    fn touch(&mut self, port: u16, reply: bool) {
        if let Some(known) = self.sessions.get_mut(&port) {
            known.both |= reply;
            known.ends = self.now + if known.both { 300 } else { 120 };
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Packets of these clients' ports, tagged or not, in one batch.
    There(Vec<(u16, bool)>),
    /// Replies to these ports, from the backend that the session has, or had.
    Back(Vec<(u16, bool)>),
    Pass(u64),
    /// Other backends, and which of them drain.
    Change(BTreeMap<u8, bool>),
}

fn backends() -> impl Strategy<Value = BTreeMap<u8, bool>> {
    prop::collection::btree_map(1u8..7, prop::bool::weighted(0.7), 1..6)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let packets = || prop::collection::vec((0u16..40, any::<bool>()), 1..70);
    // Seconds that are apart from the time-outs by more than a slot.
    let spans = prop::sample::select(vec![10u64, 50, 125, 310]);
    let step = prop_oneof![
        4 => packets().prop_map(Step::There),
        3 => packets().prop_map(Step::Back),
        2 => spans.prop_map(Step::Pass),
        2 => backends().prop_map(Step::Change),
    ];
    prop::collection::vec(step, 1..25)
}

fn state(backends: &BTreeMap<u8, bool>) -> Value {
    let numbers: Vec<_> = backends.keys().copied().collect();
    let mut state = of("udp", &numbers);
    for (at, takes) in backends.values().enumerate() {
        state["services"][0]["backends"][at]["drain"] = json!(!takes);
    }
    state["places"] = json!(251);
    state
}

fn backend(number: u8) -> End {
    ([10, 0, 0, number], 8_080)
}

fn frame(from: End, to: End, tagged: bool) -> Vec<u8> {
    if tagged { tagged_udp(from, to, b"a payload") } else { udp(from, to, b"a payload") }
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
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Batches in any order and at any time, while backends change: a session has one backend as long as the configuration
    /// has it, a new one gets one that takes sessions, and the same one whenever the same backends are there. What the table
    /// shows is what the model has.
    #[test]
    fn it_is_what_plain_maps_say(first in backends(), steps in steps()) {
        let mut both = Both::new(state(&first));
        let mut model = Model { backends: first, ..Model::default() };
        let mut choices: BTreeMap<(Vec<u8>, u16), u8> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Pass(seconds) => {
                    model.now += seconds;
                    both.pass(seconds);
                    let now = model.now;
                    model.sessions.retain(|_, known| known.ends >= now);
                }
                Step::Change(backends) => {
                    both.change(state(&backends));
                    model.backends = backends;
                }
                Step::There(packets) => {
                    let frames: Vec<_> = packets.iter().map(|(port, tagged)| frame((CLIENT, *port), (VIP, 80), *tagged)).collect();
                    for ((port, tagged), (gate, after)) in packets.into_iter().zip(run(&mut both.there, &frames)) {
                        let known = model.sessions.get(&port).filter(|known| model.backends.contains_key(&known.backend));
                        let takers: Vec<_> = model.backends.iter().filter(|(_, takes)| **takes).map(|(it, _)| *it).collect();
                        let expected = match known {
                            Some(known) => known.backend,
                            None if takers.is_empty() => {
                                prop_assert_eq!(gate, Gate::drop(3));
                                model.sessions.remove(&port);
                                continue;
                            }
                            None => {
                                let chosen = ends(&after).1.0[3];
                                prop_assert!(takers.contains(&chosen));
                                prop_assert_eq!(*choices.entry((takers, port)).or_insert(chosen), chosen);
                                model.sessions.insert(port, Known { backend: chosen, ends: 0, both: false });
                                chosen
                            }
                        };
                        prop_assert_eq!(gate, Gate::FIRST);
                        prop_assert_eq!(after, frame((CLIENT, port), backend(expected), tagged), "nothing else changes");
                        model.touch(port, false);
                    }
                }
                Step::Back(packets) => {
                    let from = |port: u16| model.sessions.get(&port).map_or(backend(1), |known| backend(known.backend));
                    let frames: Vec<_> = packets.iter().map(|(port, tagged)| frame(from(*port), (CLIENT, *port), *tagged)).collect();
                    let after = run(&mut both.back, &frames);
                    for (((port, tagged), before), (gate, after)) in packets.into_iter().zip(frames).zip(after) {
                        prop_assert_eq!(gate, Gate::FIRST);
                        let known = model.sessions.contains_key(&port);
                        prop_assert_eq!(after, if known { frame((VIP, 80), (CLIENT, port), tagged) } else { before });
                        model.touch(port, true);
                    }
                }
            }
            let now: BTreeMap<u8, u64> = model.backends.keys().map(|it| {
                (*it, model.sessions.values().filter(|known| known.backend == *it).count() as u64)
            }).collect();
            let open = both.counters("open sessions by backend");
            for (backend, count) in now {
                prop_assert_eq!(open[&format!("192.0.2.10:80 udp 10.0.0.{backend}:8080")], count);
            }
        }
        let lines = chosen(&mut both.there, "sessions", "all");
        let shown: BTreeMap<_, _> =
            lines.iter().map(|line| (word(line, "client").to_owned(), word(line, "backend").to_owned())).collect();
        let end = |number| format!("10.0.0.{number}:8080");
        let known = model.sessions.iter().map(|(port, known)| match port {
            // A port of 0 is not written.
            0 => ("198.51.100.9".to_owned(), end(known.backend)),
            port => (format!("198.51.100.9:{port}"), end(known.backend)),
        });
        prop_assert_eq!((shown, lines.len()), (known.collect(), model.sessions.len()));
    }
}

//! The translation compared with a simple model: maps, without batches, a timer wheel or incremental checksums.

use std::collections::BTreeMap;

use forebay_packet::Batch;
use proptest::prelude::*;

use super::*;

type End = ([u8; 4], u16);

/// The state of a translator in plain maps, for UDP only.
#[derive(Default)]
struct Model {
    /// By inside end and peer.
    sessions: BTreeMap<(End, End), Known>,
    /// By inside end: the outside end of its packets, as long as there are sessions.
    outside: BTreeMap<End, End>,
}

impl Model {
    fn expire(&mut self, now: u64) {
        // Sessions end up to one slot after their time-out.
        self.sessions.retain(|_, known| known.ends >= now);
        let sessions = &self.sessions;
        self.outside.retain(|inside, _| sessions.keys().any(|(end, _)| end == inside));
    }

    fn touch(&mut self, key: (End, End), now: u64, outward: bool) {
        let known = self.sessions.entry(key).or_insert(Known { ends: 0, outward, both: false });
        known.both |= known.outward != outward;
        known.ends = now + if known.both { 300 } else { 120 };
    }
}

/// A session of the model.
struct Known {
    ends: u64,
    /// Whether a packet from inside opened it.
    outward: bool,
    /// Whether both sides have sent packets.
    both: bool,
}

#[derive(Clone, Debug)]
enum Step {
    /// Packets from inside, each of a host and a peer, in one batch.
    Out(Vec<(u8, u8, bool)>),
    /// Packets from outside in one batch, each from this peer to the outside end of this host.
    Back(Vec<(u8, u8, bool)>),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let packets = || prop::collection::vec((0u8..12, 0u8..4, any::<bool>()), 1..70);
    // Spans that differ from the time-outs by more than a slot.
    let spans = prop::sample::select(vec![10u64, 50, 125, 310]);
    let step = prop_oneof![
        3 => packets().prop_map(Step::Out),
        3 => packets().prop_map(Step::Back),
        2 => spans.prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..25)
}

fn inside(host: u8) -> End {
    ([10, 0, 0, host / 4], 5_000 + u16::from(host % 4))
}

fn peer(peer: u8) -> End {
    ([198, 51, 100, peer / 2], 53 + u16::from(peer % 2))
}

fn frame(from: End, to: End, tagged: bool) -> Vec<u8> {
    if tagged { tagged_udp(from, to, b"a payload") } else { udp(from, to, b"a payload") }
}

/// Runs a batch of frames through a rig. Returns the frames that leave through the first gate.
fn run(rig: &mut Rig, frames: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
    let mut batch = Batch::with_capacity(frames.len());
    for frame in frames {
        batch.push(rig.packet(frame)).expect("room");
    }
    let gates = rig.process(&mut batch);
    let after = batch.iter().map(|packet| packet.data().to_vec());
    gates.into_iter().zip(after).map(|(gate, frame)| (gate == Some(Gate::FIRST)).then_some(frame)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Batches in any order and at any time: the translator passes the same packets as the model, with the same ends.
    #[test]
    fn it_agrees_with_the_model(steps in steps(), open in any::<bool>()) {
        let filtering = if open { "endpoint_independent" } else { "endpoint_dependent" };
        let mut nat = Both::new(json!({ "pool": "192.0.2.0/29", "filtering": filtering }));
        let (mut model, mut now) = (Model::default(), 0);
        for step in steps {
            match step {
                Step::Pass(seconds) => {
                    now += seconds;
                    nat.pass(seconds);
                    model.expire(now);
                }
                Step::Out(packets) => {
                    let frames: Vec<_> =
                        packets.iter().map(|(host, to, tagged)| frame(inside(*host), peer(*to), *tagged)).collect();
                    for ((host, to, tagged), after) in packets.iter().zip(run(&mut nat.out, &frames)) {
                        let (host, to) = (inside(*host), peer(*to));
                        let after = after.expect("there is room for all sessions and ports");
                        let (source, destination) = ends(&after);
                        prop_assert_eq!(destination, to);
                        let known = *model.outside.entry(host).or_insert(source);
                        prop_assert_eq!(source, known, "one outside end as long as there are sessions");
                        prop_assert_eq!(source.1 % 2, host.1 % 2);
                        prop_assert_eq!(&after, &frame(source, to, *tagged), "nothing else changes");
                        let owners = model.outside.values().filter(|outside| **outside == source).count();
                        prop_assert_eq!(owners, 1, "no two inside ends have the same outside end");
                        model.touch((host, to), now, true);
                    }
                }
                Step::Back(packets) => {
                    let known: Vec<_> = packets.iter().filter_map(|(host, from, tagged)| {
                        model.outside.get(&inside(*host)).map(|outside| (inside(*host), peer(*from), *outside, *tagged))
                    }).collect();
                    let frames: Vec<_> =
                        known.iter().map(|(_, from, outside, tagged)| frame(*from, *outside, *tagged)).collect();
                    for ((host, from, _, tagged), after) in known.iter().zip(run(&mut nat.back, &frames)) {
                        let is_known = model.sessions.contains_key(&(*host, *from));
                        prop_assert_eq!(after.is_some(), is_known || open);
                        if let Some(after) = after {
                            prop_assert_eq!(&after, &frame(*from, *host, *tagged));
                            model.touch((*host, *from), now, false);
                        }
                    }
                }
            }
        }
    }
}

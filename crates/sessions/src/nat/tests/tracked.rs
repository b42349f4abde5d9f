//! TCP and pings through the translation, compared with a simple model of RFC 5382 and RFC 5508: a map of connections
//! with the handshake and end of each.

use std::collections::BTreeMap;

use forebay_packet::Batch;
use proptest::prelude::*;

use super::*;

type End = ([u8; 4], u16);

/// A connection of the model.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Second at which the session ends.
    ends: u64,
    outside: Option<End>,
    ping: bool,
    answered: bool,
    established: bool,
    finished: [bool; 2],
    reset: bool,
    /// Whether the connection was established before a FIN or reset that a SYN followed.
    was_established: bool,
}

impl Known {
    fn sees(&mut self, flags: &str, reply: bool, now: u64) {
        let has = |flag: char| flags.contains(flag);
        if self.ping {
            self.ends = now + 60;
            return;
        }
        let (syn, ended) = (flags == "S", self.finished == [true; 2]);
        if syn && !reply && (self.reset || ended) {
            // The opener uses its ports again (RFC 9293 section 3.6.1).
            let was_established = self.established || self.was_established;
            *self = Self { outside: self.outside, was_established, ..Self::default() };
        } else {
            // Any packet except a reset leads back, including a SYN from the other side (RFC 6146 section 3.5.2.2).
            self.established |= self.reset && !has('R') && !ended && self.was_established;
            self.reset = has('R');
        }
        if !(self.reset || syn || ended) {
            if !self.established {
                self.established = self.answered && !reply && has('A') && !has('S');
                self.established |= self.was_established && !has('S');
                self.answered |= reply && has('S') && has('A');
            }
            self.finished[usize::from(reply)] |= has('F') && (self.established || self.answered);
        }
        let over = self.reset || self.finished == [true; 2];
        // RFC 5382 REQ-5: 4 minutes in transition, 2 hours and 4 minutes established.
        self.ends = now + if self.established && !over { 7_440 } else { 240 };
    }
}

/// A packet: its connection, and its flags (meaningless for a ping).
type Sent = (u8, &'static str);

#[derive(Clone, Debug)]
enum Step {
    /// Packets in one batch, from inside or back.
    Packets(bool, Vec<Sent>),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let flags = prop::sample::select(vec!["S", "S", "SA", "A", "A", "A", "FA", "FA", "R"]);
    let packets = prop::collection::vec((0u8..10, flags), 1..50);
    // Spans that differ from the time-outs by more than the rounding.
    let spans = prop::sample::select(vec![10u64, 65, 100, 245, 7_445]);
    let step = prop_oneof![
        4 => (any::<bool>(), packets).prop_map(|(outward, packets)| Step::Packets(outward, packets)),
        1 => spans.prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..30)
}

/// The connection's inside end. Connections of even numbers are TCP, the others pings.
fn inside(which: u8) -> End {
    ([10, 0, 0, which % 3], 5_000 + u16::from(which))
}

/// The connection's outside peer.
fn peer(which: u8) -> End {
    ([198, 51, 100, which % 2], if is_ping(which) { 0 } else { 80 })
}

fn is_ping(which: u8) -> bool {
    which % 2 == 1
}

/// Whether a ping's packet is a reply from inside, or a query from outside with the identifier of an inside host.
fn is_stray(flags: &str) -> bool {
    flags == "R"
}

fn frame(which: u8, from: End, to: End, flags: &str, reply: bool) -> Vec<u8> {
    if is_ping(which) { echo(from.0, to.0, from.1.max(to.1), reply != is_stray(flags)) } else { tcp(from, to, flags) }
}

fn run(rig: &mut Rig, frames: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
    let mut batch = Batch::with_capacity(frames.len().max(1));
    for frame in frames {
        batch.push(rig.packet(frame)).expect("room");
    }
    let gates = rig.process(&mut batch);
    let after = batch.iter().map(|packet| packet.data().to_vec());
    gates.into_iter().zip(after).map(|(gate, frame)| (gate == Some(Gate::FIRST)).then_some(frame)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// In batches, in both directions, at any time: the translator passes the same packets as the model, with the same
    /// ends, and with right checksums.
    #[test]
    fn connections_and_pings_agree_with_the_model(steps in steps()) {
        let mut nat = plain();
        let (mut known, mut now): (BTreeMap<u8, Known>, u64) = (BTreeMap::new(), 0);
        // The last outside end of each connection, to which late packets come.
        let mut former: BTreeMap<u8, End> = BTreeMap::new();
        for step in steps {
            let (outward, packets) = match step {
                Step::Pass(seconds) => {
                    now += seconds;
                    nat.pass(seconds);
                    known.retain(|_, it| it.ends >= now);
                    continue;
                }
                Step::Packets(outward, packets) => (outward, packets),
            };
            if outward {
                let frames: Vec<_> =
                    packets
                        .iter()
                        .map(|(which, flags)| frame(*which, inside(*which), peer(*which), flags, false))
                        .collect();
                for ((which, flags), after) in packets.iter().zip(run(&mut nat.out, &frames)) {
                    let stray = is_ping(*which) && is_stray(flags);
                    let opens = is_ping(*which) || *flags == "S";
                    let passes = !stray && (opens || known.contains_key(which));
                    prop_assert_eq!(after.is_some(), passes, "{} {} out", which, flags);
                    let Some(after) = after else { continue };
                    let (source, destination) = ends(&after);
                    prop_assert_eq!(destination.0, peer(*which).0);
                    prop_assert!(is_of_pool(source.0));
                    let it = known.entry(*which).or_insert(Known { ping: is_ping(*which), ..Known::default() });
                    prop_assert_eq!(*it.outside.get_or_insert(source), source, "one outside end");
                    it.sees(flags, false, now);
                    former.insert(*which, source);
                }
            } else {
                // An outside end that another connection has now is not used for late packets.
                let is_reused = |which: u8, end: End| {
                    known.iter().any(|(it, known)| {
                        *it != which && is_ping(*it) == is_ping(which) && known.outside == Some(end)
                    })
                };
                let former = |which: &u8| former.get(which).copied().filter(|end| !is_reused(*which, *end));
                let sent: Vec<_> =
                    packets.iter().filter_map(|(which, flags)| Some((*which, *flags, former(which)?))).collect();
                let frames: Vec<_> =
                    sent.iter()
                        .map(|(which, flags, outside)| frame(*which, peer(*which), *outside, flags, true))
                        .collect();
                for ((which, flags, outside), after) in sent.iter().zip(run(&mut nat.back, &frames)) {
                    let expected = known.get_mut(which).filter(|it| it.outside == Some(*outside));
                    let expected = expected.filter(|_| !(is_ping(*which) && is_stray(flags)));
                    prop_assert_eq!(after.is_some(), expected.is_some(), "{} {} back", which, flags);
                    if let (Some(after), Some(it)) = (after, expected) {
                        prop_assert_eq!(ends(&after).1, inside(*which));
                        let translated = frame(*which, peer(*which), inside(*which), flags, true);
                        prop_assert_eq!(&after, &translated, "nothing else changes");
                        it.sees(flags, true, now);
                    }
                }
            }
            let outside: Vec<_> = known.iter().map(|(which, it)| (is_ping(*which), it.outside)).collect();
            let different: std::collections::BTreeSet<_> = outside.iter().collect();
            prop_assert_eq!(different.len(), outside.len(), "no two inside ports have the same outside end");
        }
    }
}

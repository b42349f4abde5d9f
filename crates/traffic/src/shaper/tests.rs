//! The shaper compared with a model: when each packet leaves, to the tick, and the limits that always hold.

use std::collections::{BTreeMap, VecDeque};

use etherparse::PacketBuilder;
use forebay_graph::{Rig, SetupEnvironment};
use forebay_packet::Batch;
use forebay_units::Frequency;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const HERTZ: u64 = 1_000_000_007;

fn rig(params: &Value) -> Rig {
    let mut environment = SetupEnvironment::new(Frequency::new(HERTZ as f64));
    environment.batch = MAX_BATCH;
    Rig::within::<Shaper>(params, &mut environment).expect("parameters")
}

/// A frame of this length from source `who`, with the number `n`.
fn frame(who: u8, n: u32, bytes: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4([10, 0, 0, who], [192, 0, 2, 1], 64)
        .udp(1_000, 80)
        .write(&mut frame, &n.to_be_bytes())
        .expect("memory");
    frame.resize(bytes.max(46), 0);
    frame
}

fn number(packet: &Packet) -> u32 {
    u32::from_be_bytes(packet.data()[42..46].try_into().expect("four bytes"))
}

/// Departures of packets: time, number and gate.
type Departures = Vec<(u64, u32, Gate)>;

fn collect(rig: &mut Rig, now: u64, departures: &mut Departures) {
    departures.extend(rig.emitted().iter().map(|(packet, gate)| (now, number(packet), *gate)));
}

/// Wakes the shaper at each time before `until` at which it requests it, as an engine does.
fn wake_until(rig: &mut Rig, until: u64, departures: &mut Departures) {
    while let Some(at) = rig.wakes_at().filter(|at| at.0 < until) {
        rig.now = rig.now.max(at);
        rig.wake();
        let now = rig.now.0;
        collect(rig, now, departures);
    }
}

/// Packets that arrive together: the ticks since the last arrival, and the source and length of each packet.
type Arrivals = Vec<(u64, Vec<(u8, usize)>)>;

fn arrivals() -> impl Strategy<Value = Arrivals> {
    let gap = prop_oneof![1 => Just(0u64), 3 => 0u64..20_000, 3 => 0u64..2_000_000, 1 => 0u64..50_000_000];
    let packets = prop::collection::vec((0u8..5, prop_oneof![60usize..1_514, 60usize..200, Just(1_514)]), 1..12);
    prop::collection::vec((gap, packets), 1..30)
}

/// Runs the shaper until no packet is held. Packets are numbered in order. Returns the departures, and the arrival,
/// source and length of each packet.
fn play(rig: &mut Rig, arrivals: &Arrivals) -> (Departures, Vec<(u64, u8, usize)>) {
    let (mut now, mut sent, mut departures) = (0, Vec::new(), Departures::new());
    for (gap, packets) in arrivals {
        now += gap;
        wake_until(rig, now, &mut departures);
        rig.now = Ticks(now);
        let mut batch = Batch::with_capacity(MAX_BATCH);
        for (who, bytes) in packets {
            batch.push(rig.packet(&frame(*who, sent.len() as u32, *bytes))).expect("room");
            sent.push((now, *who, *bytes));
        }
        let before = rig.held();
        let gates = rig.process(&mut batch);
        let out = gates.iter().flatten();
        departures.extend(out.zip(batch.iter()).map(|(gate, packet)| (now, number(packet), *gate)));
        let emitted = departures.len();
        collect(rig, now, &mut departures);
        let emitted = departures.len() - emitted;
        assert_eq!(before + packets.len(), rig.held() + batch.len() + emitted, "each packet is held or has departures");
    }
    wake_until(rig, u64::MAX, &mut departures);
    assert_eq!(rig.held(), 0, "all packets are released in the end");
    assert_eq!(departures.len(), sent.len(), "each packet departures once");
    (departures, sent)
}

/// A token bucket with integers: bits times hertz.
struct Bucket {
    rate: u64,
    full: u128,
    tokens: u128,
    at: u64,
}

impl Bucket {
    fn new(rate: u64, burst: u64) -> Self {
        let full = u128::from(burst) * 8 * u128::from(HERTZ);
        Self { rate, full, tokens: full, at: 0 }
    }

    fn at(&self, now: u64) -> u128 {
        self.full.min(self.tokens + u128::from(now - self.at) * u128::from(self.rate))
    }

    /// Returns the first instant, from `now` on, at which there are tokens for this number of bytes.
    fn when(&self, now: u64, bytes: usize) -> u64 {
        let cost = bytes as u128 * 8 * u128::from(HERTZ);
        let have = self.at(now);
        now + u64::try_from(cost.saturating_sub(have).div_ceil(u128::from(self.rate))).expect("a time within 64 bits")
    }

    fn spend(&mut self, now: u64, bytes: usize) {
        self.tokens = self.at(now) - bytes as u128 * 8 * u128::from(HERTZ);
        self.at = now;
    }
}

/// Asserts that in any span no more bytes leave than the rate brings in that span, plus the burst.
fn assert_rate(departures: &[(u64, usize)], rate: u64, burst: u64) -> Result<(), TestCaseError> {
    // E(t) is the number of bytes that have left by t. E(t) - rate t never exceeds its minimum so far by more than the
    // burst.
    let (mut sent, mut least) = (0i128, i128::MAX);
    for (at, bytes) in departures {
        let brought = i128::from(rate) * i128::from(*at);
        least = least.min(sent - brought);
        sent += *bytes as i128 * 8 * i128::from(HERTZ);
        prop_assert!(sent - brought - least <= i128::from(burst) * 8 * i128::from(HERTZ), "at {at}");
    }
    Ok(())
}

proptest! {
    #[test]
    fn each_packet_leaves_at_the_exact_tick_at_which_its_bucket_has_tokens(
        arrivals in arrivals(),
        rate in prop_oneof![Just(1_000_003u64), 1_000_000u64..100_000_000, Just(10_000_000_000)],
        burst in 1_514u64..6_000,
        keyed: bool,
    ) {
        let mut rig = rig(&json!({
            "rate": format!("{rate}bps"), "burst": format!("{burst}B"), "queue": 4_000,
            "key": if keyed { "source" } else { "none" },
        }));
        let (departures, sent) = play(&mut rig, &arrivals);
        // A packet leaves when it has arrived, the packets before it have left, and there are enough tokens.
        let mut buckets: BTreeMap<u8, (Bucket, u64)> = BTreeMap::new();
        let mut expected = vec![0; sent.len()];
        for (n, (came, who, bytes)) in sent.iter().enumerate() {
            let who = if keyed { *who } else { 0 };
            let (bucket, last) = buckets.entry(who).or_insert_with(|| (Bucket::new(rate, burst), 0));
            expected[n] = bucket.when((*came).max(*last), *bytes);
            bucket.spend(expected[n], *bytes);
            *last = expected[n];
        }
        let mut of: BTreeMap<u8, Vec<u32>> = BTreeMap::new();
        let mut flows: BTreeMap<u8, Vec<(u64, usize)>> = BTreeMap::new();
        for (at, n, gate) in &departures {
            prop_assert_eq!(*gate, Gate::FIRST);
            prop_assert_eq!(*at, expected[*n as usize], "packet {}", n);
            let (_, who, bytes) = sent[*n as usize];
            let who = if keyed { who } else { 0 };
            of.entry(who).or_default().push(*n);
            flows.entry(who).or_default().push((*at, bytes));
        }
        prop_assert!(of.values().all(|numbers| numbers.is_sorted()), "a key's packets keep their order: {:?}", of);
        for flow in flows.values() {
            assert_rate(flow, rate, burst)?;
        }
    }

    #[test]
    fn a_shared_rate_is_never_idle_and_never_exceeded_and_turns_are_fair(
        arrivals in arrivals(),
        rate in prop_oneof![Just(1_000_003u64), 1_000_000u64..100_000_000],
        burst in 1_514u64..6_000,
    ) {
        let mut rig = rig(&json!({
            "rate": format!("{rate}bps"), "burst": format!("{burst}B"), "queue": 4_000, "key": "source", "for": "all",
        }));
        let (departures, sent) = play(&mut rig, &arrivals);
        assert_rate(&departures.iter().map(|(at, n, _)| (*at, sent[*n as usize].2)).collect::<Vec<_>>(), rate, burst)?;
        let mut bucket = Bucket::new(rate, burst);
        let mut orders: BTreeMap<u8, VecDeque<u32>> = BTreeMap::new();
        for (n, (_, who, _)) in sent.iter().enumerate() {
            orders.entry(*who).or_default().push_back(n as u32);
        }
        let mut last = 0;
        for (at, n, gate) in &departures {
            let (came, who, bytes) = sent[*n as usize];
            prop_assert_eq!(*gate, Gate::FIRST);
            prop_assert_eq!(orders.get_mut(&who).and_then(VecDeque::pop_front), Some(*n), "in its key's order");
            // A packet leaves as soon as it has arrived, the packet before it has left, and there are enough tokens.
            prop_assert_eq!(*at, bucket.when(came.max(last), bytes), "packet {}", n);
            bucket.spend(*at, bytes);
            last = *at;
        }
        // Deficit round robin: while two queues have packets, no queue sends more than two quanta more than the other
        // (Shreedhar and Varghese).
        for a in 0..5u8 {
            for b in 0..a {
                let (mut ahead, mut least, mut most) = (0i64, 0i64, 0i64);
                for (at, n, _) in &departures {
                    let (_, who, bytes) = sent[*n as usize];
                    let waits = |who: u8| departures.iter().any(|(leaves, m, _)| {
                        let (came, other, _) = sent[*m as usize];
                        other == who && came < *at && leaves > at
                    });
                    if !(waits(a) && waits(b)) {
                        (ahead, least, most) = (0, 0, 0);
                    } else if who == a || who == b {
                        ahead += if who == a { bytes as i64 } else { -(bytes as i64) };
                        (least, most) = (least.min(ahead), most.max(ahead));
                        prop_assert!(most - least <= 4 * 1_514, "{a} and {b} at {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn with_few_queues_and_entries_no_packet_is_lost_or_overtaken(
        arrivals in arrivals(),
        all: bool,
        capacity in 1u32..4,
        queue in 1u32..6,
        held in 1u32..10,
    ) {
        let mut rig = rig(&json!({
            "rate": "5Mbps", "burst": "2KiB", "key": "source", "for": if all { "all" } else { "each" },
            "capacity": capacity, "queue": queue, "queue_bytes": "4KiB", "held": held,
        }));
        let (departures, sent) = play(&mut rig, &arrivals);
        let mut out: BTreeMap<u8, Vec<u32>> = BTreeMap::new();
        for (_, n, gate) in &departures {
            match *gate {
                Gate::FIRST => out.entry(sent[*n as usize].1).or_default().push(*n),
                gate => prop_assert!(gate == QUEUE_FULL || gate == ALL_FULL, "{:?}", gate),
            }
        }
        prop_assert!(out.values().all(|numbers| numbers.is_sorted()), "{:?}", out);
    }
}

/// A packet that is released in a call leaves after the call's own batch. A packet of that batch must not overtake it.
#[test]
fn a_packet_does_not_overtake_an_earlier_one_that_is_released_in_the_same_call() {
    for share in ["each", "all"] {
        let mut rig = rig(&json!({ "rate": "8Mbps", "burst": "1000B", "key": "source", "for": share }));
        let mut departures = Departures::new();
        for (now, packets) in [(0, vec![(0, 900), (1, 200)]), (HERTZ, vec![(2, 100), (3, 100)])] {
            rig.now = Ticks(now);
            let mut batch = Batch::with_capacity(4);
            for (n, bytes) in packets {
                batch.push(rig.packet(&frame(1, n, bytes))).expect("room");
            }
            // The shaper is not woken in between: a worker may be late.
            let gates = rig.process(&mut batch);
            departures.extend(
                gates.into_iter().flatten().zip(batch.iter()).map(|(gate, packet)| (now, number(packet), gate)),
            );
            collect(&mut rig, now, &mut departures);
        }
        assert!(rig.wakes_at().is_some_and(|at| at <= Ticks(HERTZ)), "at once");
        wake_until(&mut rig, u64::MAX, &mut departures);
        let order: Vec<_> = departures.iter().map(|(at, n, _)| (*at, *n)).collect();
        assert_eq!(order, [(0, 0), (HERTZ, 1), (HERTZ, 2), (HERTZ, 3)], "{share}");
    }
}

#[test]
fn limits_are_kept_and_named() {
    let run = |more: Value, packets: &[usize]| {
        let mut params = json!({ "rate": "1kbps", "burst": "1000B" });
        params.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        let mut rig = rig(&params);
        let mut batch = Batch::with_capacity(MAX_BATCH);
        for (n, bytes) in packets.iter().enumerate() {
            batch.push(rig.packet(&frame(1, n as u32, *bytes))).expect("room");
        }
        let gates = rig.process(&mut batch);
        (gates, rig.held())
    };
    let (pass, held) = (Some(Gate::FIRST), None);
    // The first packet empties the bucket, the others wait.
    assert_eq!(run(json!({ "queue": 2 }), &[1_000, 60, 60, 60]), (vec![pass, held, held, Some(QUEUE_FULL)], 2));
    assert_eq!(run(json!({ "held": 1 }), &[1_000, 60, 60]), (vec![pass, held, Some(ALL_FULL)], 1));
    let bytes = json!({ "queue_bytes": "150B" });
    assert_eq!(run(bytes, &[1_000, 60, 100, 90]), (vec![pass, held, Some(QUEUE_FULL), held], 2));
    assert_eq!(run(json!({}), &[1_001, 1_000]), (vec![Some(OVER_BURST), pass], 0));
}

#[test]
fn a_late_wake_releases_no_more_than_the_burst() {
    let mut rig = rig(&json!({ "rate": "8Mbps", "burst": "1000B" }));
    let mut batch = Batch::with_capacity(MAX_BATCH);
    for n in 0..100 {
        batch.push(rig.packet(&frame(1, n, 100))).expect("room");
    }
    let passed = rig.process(&mut batch).iter().flatten().count();
    assert_eq!((passed, rig.held()), (10, 90));
    // After a delay of a second, the bucket is full, but not more than full.
    rig.now = Ticks(HERTZ);
    rig.wake();
    assert_eq!((rig.emitted().len(), rig.held()), (10, 80));
}

#[test]
fn invalid_parameters_are_named() {
    let refusal = |more: Value| {
        let mut params = json!({ "rate": "1Mbps", "burst": "2KiB" });
        params.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        Rig::of::<Shaper>(&params).err().expect("refused").to_string()
    };
    assert_eq!(refusal(json!({ "rate": "10bps" })), "rate: 10bps: allowed are 1kbps to 1Tbps");
    assert_eq!(refusal(json!({ "burst": "0B" })), "burst: 0B: allowed are 1B to 549MiB");
    assert_eq!(refusal(json!({ "held": 0 })), "held: 0: allowed are 1 to 1048576");
    assert_eq!(refusal(json!({ "capacity": 2_000_000 })), "capacity: 2000000: allowed are 1 to 1048576");
    assert_eq!(refusal(json!({ "queue": 0 })), "queue: 0: allowed are 1 or more packets");
    assert_eq!(refusal(json!({ "queue_bytes": "0B" })), "queue_bytes: 0B: allowed are 1B or more");
}

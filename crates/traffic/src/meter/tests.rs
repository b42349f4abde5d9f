//! The meter compared with an exact model in fractions of a byte, and the colours that it writes.

use std::collections::HashMap;

use etherparse::{Ipv4HeaderSlice, PacketBuilder};
use forebay_graph::{Decision, Rig, SetupEnvironment};
use forebay_packet::Batch;
use forebay_units::Frequency;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A fraction that is not negative, in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fraction(u128, u128);

impl Fraction {
    fn new(above: u128, below: u128) -> Self {
        let (mut a, mut b) = (above, below);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        Self(above / a.max(1), below / a.max(1))
    }

    fn whole(number: u64) -> Self {
        Self(number.into(), 1)
    }

    fn plus(self, other: Self) -> Self {
        Self::new(self.0 * other.1 + other.0 * self.1, self.1 * other.1)
    }

    fn minus(self, other: Self) -> Self {
        Self::new(self.0 * other.1 - other.0 * self.1, self.1 * other.1)
    }

    fn less(self, other: Self) -> bool {
        self.0 * other.1 < other.0 * self.1
    }

    fn least(self, other: Self) -> Self {
        if self.less(other) { self } else { other }
    }
}

/// Returns the bytes that a rate brings in a number of ticks.
fn bytes(bits: u64, hertz: u64, ticks: u64) -> Fraction {
    Fraction::new(u128::from(bits) * u128::from(ticks), 8 * u128::from(hertz))
}

/// The algorithms as the RFCs describe them, in fractions of a byte.
#[derive(Clone, Debug)]
enum Model {
    Single { hertz: u64, cir: u64, cbs: u64, ebs: u64 },
    Two { hertz: u64, cir: u64, cbs: u64, pir: u64, pbs: u64 },
}

#[derive(Clone, Debug)]
struct Buckets {
    at: u64,
    committed: Fraction,
    other: Fraction,
}

impl Model {
    fn fresh(&self, at: u64) -> Buckets {
        let (Self::Single { cbs, ebs: other, .. } | Self::Two { cbs, pbs: other, .. }) = *self;
        Buckets { at, committed: Fraction::whole(cbs), other: Fraction::whole(other) }
    }

    /// Returns 0 for green, 1 for yellow, 2 for red.
    fn colour(&self, buckets: &mut Buckets, now: u64, size: u64, given: u8) -> u8 {
        let ticks = now - buckets.at;
        buckets.at = now;
        let size = Fraction::whole(size);
        match *self {
            Self::Single { hertz, cir, cbs, ebs } => {
                let sum = buckets.committed.plus(bytes(cir, hertz, ticks));
                buckets.committed = sum.least(Fraction::whole(cbs));
                let spilt = sum.minus(buckets.committed);
                buckets.other = buckets.other.plus(spilt).least(Fraction::whole(ebs));
                if given == 0 && !buckets.committed.less(size) {
                    buckets.committed = buckets.committed.minus(size);
                    0
                } else if given < 2 && !buckets.other.less(size) {
                    buckets.other = buckets.other.minus(size);
                    1
                } else {
                    2
                }
            }
            Self::Two { hertz, cir, cbs, pir, pbs } => {
                buckets.committed = buckets.committed.plus(bytes(cir, hertz, ticks)).least(Fraction::whole(cbs));
                buckets.other = buckets.other.plus(bytes(pir, hertz, ticks)).least(Fraction::whole(pbs));
                if given == 2 || buckets.other.less(size) {
                    return 2;
                }
                buckets.other = buckets.other.minus(size);
                if given == 1 || buckets.committed.less(size) {
                    return 1;
                }
                buckets.committed = buckets.committed.minus(size);
                0
            }
        }
    }

    fn params(&self) -> Value {
        let rate = |bits: u64| format!("{bits}bps");
        let size = |bytes: u64| format!("{bytes}B");
        match *self {
            Self::Single { cir, cbs, ebs, .. } => {
                json!({ "srtcm": { "cir": rate(cir), "cbs": size(cbs), "ebs": size(ebs) } })
            }
            Self::Two { cir, cbs, pir, pbs, .. } => {
                json!({ "trtcm": { "cir": rate(cir), "cbs": size(cbs), "pir": rate(pir), "pbs": size(pbs) } })
            }
        }
    }

    fn hertz(&self) -> u64 {
        let (Self::Single { hertz, .. } | Self::Two { hertz, .. }) = *self;
        hertz
    }
}

fn rig(model: &Model, more: &Value) -> Rig {
    let mut params = model.params();
    params.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    let mut environment = SetupEnvironment::new(Frequency::new(model.hertz() as f64));
    environment.batch = MAX_BATCH;
    Rig::within::<Meter>(&params, &mut environment).expect("parameters")
}

/// A frame from source `n` with a payload of this length and this code point.
fn frame(n: u32, payload: usize, dscp: u8) -> Vec<u8> {
    let [_, a, b, c] = n.to_be_bytes();
    let mut frame = Vec::new();
    let mut header =
        etherparse::Ipv4Header::new(payload as u16 + 8, 64, etherparse::IpNumber::UDP, [10, a, b, c], [192, 0, 2, 1])
            .expect("short enough");
    header.dscp = etherparse::IpDscp::try_new(dscp).expect("a code point");
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ip(etherparse::IpHeaders::Ipv4(header, etherparse::Ipv4Extensions::default()))
        .udp(1_000, 80)
        .write(&mut frame, &vec![7; payload])
        .expect("memory");
    frame
}

fn number(gate: Gate) -> u8 {
    let Decision::Out(number) = gate.decision() else { panic!("{gate:?} is not a colour's gate") };
    number as u8
}

/// Runs packets (source, payload, incoming colour) that arrive at one instant. Returns their colours.
fn run(rig: &mut Rig, now: u64, packets: &[(u32, usize, u8)]) -> Vec<u8> {
    let mut batch = Batch::with_capacity(MAX_BATCH);
    for (source, payload, given) in packets {
        // The code points AF31, AF32, AF33.
        batch.push(rig.packet(&frame(*source, *payload, 26 + 2 * given))).expect("room");
    }
    rig.now = Ticks(now);
    rig.process(&mut batch).into_iter().map(|gate| number(gate.expect("nothing is held"))).collect()
}

fn model() -> impl Strategy<Value = Model> {
    let hertz = prop_oneof![Just(1_000_000_000u64), 1_000u64..10_000_000, 2_000_000_000u64..5_000_000_000];
    let rate = prop_oneof![1_000u64..100_000, 1_000_000u64..1_000_000_000, Just(400_000_000_000)];
    let burst = || prop_oneof![0u64..4_000, 1_000u64..200_000];
    (hertz, rate, any::<Option<u32>>(), burst(), burst()).prop_map(|(hertz, cir, more, one, other)| match more {
        None => Model::Single { hertz, cir, cbs: one, ebs: other.max(1) },
        Some(more) => Model::Two { hertz, cir, cbs: one.max(1), pir: cir + u64::from(more), pbs: other.max(1) },
    })
}

/// A packet: the ticks since the last packet, its source, its payload and its incoming colour.
type Arrival = (u64, u32, usize, u8);

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    // Gaps between packets are zero, short or long. The model's fractions stay within 128 bits.
    let gap = prop_oneof![3 => Just(0u64), 4 => 0u64..100_000, 2 => 0u64..100_000_000, 1 => 0u64..1 << 40];
    prop::collection::vec((gap, 0u32..5, 0usize..1_400, 0u8..3), 1..120)
}

proptest! {
    #[test]
    fn colours_are_those_of_exact_arithmetic(model in model(), arrivals in arrivals(), aware: bool, keyed: bool) {
        let more = json!({
            "key": if keyed { "source" } else { "none" },
            "aware": if aware { "dscp" } else { "blind" },
        });
        let mut rig = rig(&model, &more);
        let mut buckets: HashMap<u32, Buckets> = HashMap::new();
        let mut now = 0;
        let mut at = 0;
        while at < arrivals.len() {
            now += arrivals[at].0;
            // Packets that arrive at the same time form a batch.
            let more = arrivals[at + 1..].iter().take_while(|arrival| arrival.0 == 0).count();
            let together = &arrivals[at..=at + more];
            at += more + 1;
            let packets: Vec<_> =
                together.iter().map(|(_, source, payload, given)| (*source, *payload, *given)).collect();
            let expected: Vec<u8> = packets
                .iter()
                .map(|(source, payload, given)| {
                    let account = buckets.entry(if keyed { *source } else { 0 }).or_insert_with(|| model.fresh(now));
                    model.colour(account, now, 28 + *payload as u64, if aware { *given } else { 0 })
                })
                .collect();
            prop_assert_eq!(run(&mut rig, now, &packets), expected, "at {}", now);
        }
        let counted: u64 = rig.counters("metered").values().sum();
        prop_assert_eq!(counted, arrivals.len() as u64, "each packet is counted by its colour only");
    }

    #[test]
    fn a_small_table_forgets_only_full_accounts(arrivals in arrivals(), capacity in 1u64..4) {
        let model = Model::Two { hertz: 1_000_000_000, cir: 8_000_000, cbs: 3_000, pir: 80_000_000, pbs: 6_000 };
        let mut rig = rig(&model, &json!({ "key": "source", "capacity": capacity, "when_full": "drop" }));
        let mut buckets: HashMap<u32, Buckets> = HashMap::new();
        let (mut now, mut refused) = (0, 0);
        for (gap, source, payload, _) in arrivals {
            now += gap;
            rig.now = Ticks(now);
            let gate = rig.run(&frame(source, payload, 0)).0;
            // A key whose buckets are not full keeps its account.
            let full = |account: &Buckets| {
                let mut then = account.clone();
                model.colour(&mut then, now, 0, 0);
                then.committed == Fraction::whole(3_000) && then.other == Fraction::whole(6_000)
            };
            let busy = buckets.iter().filter(|(key, account)| **key != source && !full(account)).count();
            if gate == NO_METER {
                refused += 1;
                prop_assert!(busy as u64 >= capacity, "{busy} of {capacity} are busy");
                // The key had no account, or an account with full buckets.
                prop_assert!(buckets.get(&source).is_none_or(full));
                buckets.remove(&source);
                continue;
            }
            let account = buckets.entry(source).or_insert_with(|| model.fresh(now));
            prop_assert_eq!(number(gate), model.colour(account, now, 28 + payload as u64, 0));
        }
        prop_assert_eq!(rig.counters("metered")["shared"], 0);
        let _ = refused;
    }
}

#[test]
fn no_byte_is_lost_in_an_hour() {
    // A frequency that is not a multiple of the rate; packets of 1500 bytes at twice the rate, so that the bucket never
    // fills again.
    let (hertz, cir, cbs) = (2_899_999_991, 1_000_003, 15_000);
    let mut rig = rig(&Model::Single { hertz, cir, cbs, ebs: 0 }, &json!({}));
    let mut batch = Batch::with_capacity(1);
    batch.push(rig.packet(&frame(1, 1_472, 0))).expect("room");
    let (step, hour) = (hertz * 6 / 1_000, 3_600 * hertz);
    let (mut now, mut green) = (0, 0u64);
    while now <= hour {
        rig.now = Ticks(now);
        green += u64::from(rig.process(&mut batch)[0] == Some(Gate::out(0)));
        now += step;
    }
    let last = now - step;
    let bytes = cbs
        + u64::try_from(u128::from(cir) * u128::from(last) / u128::from(8 * hertz)).expect("a number within 64 bits");
    assert_eq!(green, bytes / 1_500);
}

#[test]
fn after_years_without_packets_the_buckets_are_full() {
    for model in [
        Model::Two { hertz: 1_000_000_000, cir: 1_000, cbs: 100_000_000, pir: 400_000_000_000, pbs: 100_000_000 },
        Model::Single { hertz: 5_000_000_000, cir: 1_000, cbs: 50_000_000, ebs: 100_000_000 },
        Model::Single { hertz: 5_000_000_000, cir: 1_000_000_000_000, cbs: 100_000_000, ebs: 50_000_000 },
    ] {
        let mut rig = rig(&model, &json!({}));
        for now in [1, 1 << 50, 1 << 62, 1 << 63, u64::MAX - 1, u64::MAX] {
            assert_eq!(run(&mut rig, now, &[(0, 1_000, 0)]), [0], "{model:?} at {now}");
        }
    }
}

#[test]
fn when_all_meters_are_taken_new_keys_share_one() {
    // At 1 kbit/s, no key has full buckets again soon.
    let model = Model::Single { hertz: 1_000_000_000, cir: 1_000, cbs: 1_500, ebs: 0 };
    let mut rig = rig(&model, &json!({ "key": "source", "capacity": 2 }));
    let once = |rig: &mut Rig, source| run(rig, 5, &[(source, 1_000, 0)])[0];
    assert_eq!([once(&mut rig, 1), once(&mut rig, 2)], [0, 0], "each key has a meter");
    assert_eq!([once(&mut rig, 3), once(&mut rig, 4)], [0, 2], "both keys share one meter");
    assert_eq!([once(&mut rig, 1), once(&mut rig, 2)], [2, 2], "their tokens are used up");
    assert_eq!((rig.counters("metered")["shared"], rig.counters("metered")["forgotten"]), (2, 0));
    // A minute later all buckets are full again, so two accounts may be forgotten.
    let later = |rig: &mut Rig, source| run(rig, 60_000_000_000, &[(source, 1_000, 0)])[0];
    assert_eq!([later(&mut rig, 5), later(&mut rig, 6), later(&mut rig, 7)], [0, 0, 0]);
    assert_eq!((rig.counters("metered")["shared"], rig.counters("metered")["forgotten"]), (3, 2));
}

#[test]
fn colours_become_drop_precedences_and_the_checksum_stays_right() {
    let model = Model::Two { hertz: 1_000_000_000, cir: 1_000, cbs: 128, pir: 1_000, pbs: 256 };
    for (remark, before, after) in [
        (json!("af"), 26, [26, 28, 30]),
        (json!("af"), 14, [10, 12, 14]),
        (json!("af"), 46, [46, 46, 46]),
        (json!(2), 46, [18, 20, 22]),
    ] {
        let mut rig = rig(&model, &json!({ "remark": remark }));
        for (colour, code) in (0..).zip(after) {
            let (gate, sent) = rig.run(&frame(1, 100, before));
            assert_eq!(number(gate), colour);
            let header = Ipv4HeaderSlice::from_slice(&sent[14..]).expect("a header");
            assert_eq!(header.dcp().value(), code, "{remark} of {before}");
            assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
        }
    }
}

#[test]
fn a_second_meter_knows_the_colours_of_the_first() {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    let first = json!({ "srtcm": { "cir": "1kbps", "cbs": "128B", "ebs": "128B" }, "word": true });
    let second = json!({ "srtcm": { "cir": "1kbps", "cbs": "1MiB", "ebs": "1MiB" }, "aware": "word" });
    let mut first = Rig::within::<Meter>(&first, &mut environment).expect("parameters");
    let mut second = Rig::within::<Meter>(&second, &mut environment).expect("parameters");
    let mut batch = Batch::with_capacity(3);
    for _ in 0..3 {
        batch.push(first.packet(&frame(1, 100, 0))).expect("room");
    }
    let colours = |gates: Vec<Option<Gate>>| gates.into_iter().map(|gate| number(gate.expect("not held"))).collect();
    let (one, two): (Vec<u8>, Vec<u8>) = (colours(first.process(&mut batch)), colours(second.process(&mut batch)));
    assert_eq!((one, two), (vec![0, 1, 2], vec![0, 1, 2]));
}

#[test]
fn invalid_parameters_are_named() {
    let refusal = |params: Value| Rig::of::<Meter>(&params).err().expect("refused").to_string();
    let srtcm = |cir: &str, cbs: &str, ebs: &str| json!({ "srtcm": { "cir": cir, "cbs": cbs, "ebs": ebs } });
    assert_eq!(refusal(json!({})), "give either 'srtcm' or 'trtcm'");
    assert_eq!(refusal(srtcm("999bps", "1B", "0B")), "srtcm.cir: 999bps: allowed are 1kbps to 1Tbps");
    assert_eq!(
        refusal(srtcm("1Mbps", "0B", "0B")),
        "srtcm.cbs: 0B, and ebs is 0B: at least one of them must be greater than 0B"
    );
    assert_eq!(refusal(srtcm("1Mbps", "1GiB", "0B")), "srtcm.cbs: 1GiB: allowed are 1B to 549MiB");
    let trtcm = json!({ "trtcm": { "cir": "2Mbps", "cbs": "1B", "pir": "1Mbps", "pbs": "1B" } });
    assert_eq!(refusal(trtcm), "trtcm.pir: 1Mbps: allowed are rates from cir, 2Mbps, on");
    let with = |key: &str, value: Value| {
        let mut params = srtcm("1Mbps", "1KiB", "0B");
        params[key] = value;
        refusal(params)
    };
    assert_eq!(with("capacity", json!(0)), "capacity: 0: allowed are 1 to 4194304 keys");
    assert!(with("remark", json!(5)).contains("5 is not an assured forwarding class: allowed are 'af' and 1 to 4"));
    assert!(with("key", json!("sauce")).contains("sauce"));
}

//! `copy`: copies packets to additional gates, for example to a monitor or an analyser.

use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_measure::Counter;
use forebay_packet::Packet;
use forebay_tables::parameters::numbered;
use schemars::JsonSchema;
use serde::Deserialize;

/// Parameters of `copy`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The number of copies of a packet, each for a separate gate: 1 to 16, 1 by default.
    #[serde(default = "one")]
    copies: u16,
    /// The sampling interval in packets: 1 (the default) copies every packet, n copies every n-th packet (count-based
    /// sampling, RFC 5475 section 5.1).
    #[serde(default = "every")]
    every: u32,
    /// Maximum number of bytes of a copy: 14 to 65535. By default a copy has all bytes.
    #[serde(default = "whole")]
    snap: u16,
}

fn one() -> u16 {
    1
}

fn every() -> u32 {
    1
}

fn whole() -> u16 {
    u16::MAX
}

/// Maximum number of copies of a packet.
const MOST: u16 = 16;
/// Length of an Ethernet header, which a copy must contain.
const SHORTEST: u16 = 14;

const COPIED: usize = 0;
const CREATES: &[Reason] = &[Reason { name: "copied", help: "A copy of a packet that passed." }];

/// The index of the counter of copies that were not made, because the pool was empty.
const LOST: usize = 0;
/// The index of the counter of copies that do not have all bytes.
const CUT: usize = 1;

/// The network function `copy`.
pub struct Copy {
    /// The number of copies of a packet, 1 to [`MOST`]. Copy n leaves through gate n.
    copies: u16,
    /// The sampling interval in packets, at least 1.
    every: u32,
    /// The maximum number of bytes of a copy.
    snap: usize,
    /// The number of packets that pass before the next packet is copied. The count continues from batch to batch.
    until_next: u32,
    /// The counters [`LOST`] and [`CUT`].
    counts: Arc<[Counter]>,
}

impl Declare for Copy {
    type Params = Params;
    const NAME: &'static str = "copy";
    const SUMMARY: &'static str = "copies packets, or a sample of them, to further gates";
    const HELP: &'static str = "\
        Packets leave through gate `0`, unchanged and in order. Copies leave through gates `1`, `2` and so on, after \
        the packets of their batch. A copy has its packet's flow, arrival time and metadata words; it is counted as \
        created (`copied`). If the pool is empty, no copy is made: this is counted as `lost`, and the packet passes. \
        Copies are never part of a packet trace. If `snap` cuts a copy, its headers stay unchanged, including lengths \
        and checksums. The copy also keeps its original length, which `pcap` writes. To copy only selected packets, \
        put a classifier such as `acl` or `exact_match` before. To write packets into a file, use `tap`, which needs \
        no copy.";
    const EXAMPLE: &'static str = "{ copies: 1, every: 100, snap: 128 }";
    const CREATES: &'static [Reason] = CREATES;
    // Each replica may have its own count for sampling.
    const STATE: StateKind = StateKind::None;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        if !(1..=MOST).contains(&params.copies) {
            return Err(SetupError::not_allowed("copies", params.copies, format!("1 to {MOST}")));
        }
        if params.every == 0 {
            return Err(SetupError::not_allowed("every", "0", "1 (every packet) or more"));
        }
        if params.snap < SHORTEST {
            return Err(SetupError::not_allowed("snap", params.snap, format!("{SHORTEST} to {} bytes", u16::MAX)));
        }
        setup.gates(numbered(1 + params.copies))?;
        Ok(Self {
            copies: params.copies,
            every: params.every,
            snap: params.snap.into(),
            until_next: params.every - 1,
            counts: setup.counters("copies", ["lost", "cut"].map(str::to_owned)),
        })
    }
}

impl Copy {
    /// Creates the copies of one packet. The packet itself passes, even if the pool is empty.
    fn copy(&self, packet: &Packet, context: &mut Context<'_>) {
        for gate in 1..=self.copies {
            let Some(copy) = context.create(COPIED, Gate::out(gate), packet) else {
                self.counts[LOST].add(1);
                continue;
            };
            if packet.len() <= self.snap && copy.copy_from(packet) {
                // A packet trace follows the packet, not its copies.
                copy.set_mark(0);
                continue;
            }
            // A frame that has grown into its headroom may be longer than a fresh packet can hold.
            let bytes = packet.data();
            let kept = bytes.len().min(self.snap).min(copy.tailroom());
            copy.write(&bytes[..kept]);
            copy.set_missing(u32::try_from(packet.original_len() - kept).unwrap_or(u32::MAX));
            self.counts[CUT].add(1);
        }
    }
}

impl Function for Copy {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let mut at = self.until_next as usize;
        while let Some(packet) = batch.get(at) {
            self.copy(packet, context);
            at += self.every as usize;
        }
        self.until_next = (at - batch.len()) as u32;
    }
}

register!(Copy);

#[cfg(test)]
mod tests {
    use forebay_graph::{Rig, SetupEnvironment};
    use forebay_packet::{ArrivalClock, Batch, MAX_BATCH};
    use forebay_units::{Frequency, Ticks};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn rig(params: &Value) -> Rig {
        Rig::of::<Copy>(params).expect("parameters")
    }

    proptest! {
        #[test]
        fn every_nth_packet_is_copied_for_any_batches(
            batches in prop::collection::vec(0usize..40, 1..12),
            copies in 1u16..4,
            every in 1u32..50,
            snap in 14u16..100,
        ) {
            let mut rig = rig(&json!({ "copies": copies, "every": every, "snap": snap }));
            let (mut count, mut copied) = (0u32, Vec::new());
            let mut expected = Vec::new();
            for len in batches {
                let mut batch = Batch::with_capacity(MAX_BATCH);
                for _ in 0..len {
                    count += 1;
                    let frame = [&count.to_be_bytes()[..], &[7; 56]].concat();
                    batch.push(rig.packet(&frame)).expect("room");
                    if count % every == 0 {
                        let bytes = frame[..frame.len().min(snap.into())].to_vec();
                        expected.extend((1..=copies).map(|gate| (Gate::out(gate), bytes.clone())));
                    }
                }
                prop_assert_eq!(rig.process(&mut batch), vec![Some(Gate::FIRST); len], "all pass");
                copied.extend(rig.emitted().into_iter().map(|(packet, gate)| (gate, packet.data().to_vec())));
            }
            prop_assert_eq!(rig.created(), [expected.len() as u64]);
            prop_assert_eq!(copied, expected);
        }
    }

    #[test]
    fn a_copy_has_all_properties_of_its_packet_except_the_trace() {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        let word = Setup::new("m", &mut environment).word("teid").expect("a word");
        for snap in [20, 9_000] {
            let mut rig = Rig::within::<Copy>(&json!({ "snap": snap }), &mut environment).expect("parameters");
            let mut packet = rig.packet(&[5; 60]);
            packet.set_flow(77);
            packet.set_arrival(Ticks(123), ArrivalClock::Kernel);
            packet.set_word(word, 0xabcd);
            packet.set_mark(9);
            packet.set_missing(11);
            let mut batch = Batch::with_capacity(1);
            batch.push(packet).expect("room");
            rig.process(&mut batch);
            let (copy, gate) = rig.emitted().pop().expect("a copy");
            assert_eq!((gate, copy.flow(), copy.word(word)), (Gate::out(1), 77, 0xabcd));
            assert_eq!((copy.arrival(), copy.arrival_clock()), (Ticks(123), ArrivalClock::Kernel));
            assert_eq!((copy.mark(), batch[0].mark()), (0, 9));
            assert_eq!(copy.data(), &[5; 60][..snap.min(60)]);
            assert_eq!(copy.original_len(), 71, "cut by the copy, the capture or both");
        }
    }

    #[test]
    fn an_exhausted_pool_loses_copies_and_no_packet() {
        let mut rig = rig(&json!({ "copies": 16 }));
        let mut batch = Batch::with_capacity(MAX_BATCH);
        for _ in 0..100 {
            batch.push(rig.packet(&[1; 60])).expect("room");
        }
        // A rig's pool has 1024 packets, and 1600 copies are requested.
        assert_eq!(rig.process(&mut batch), [Some(Gate::FIRST); 100]);
        assert_eq!((rig.created()[0], rig.counters("copies")["lost"]), (924, 676));
        assert_eq!(rig.emitted().len(), 924);
    }

    #[test]
    fn a_frame_longer_than_a_fresh_packet_is_cut_and_counted() {
        let mut rig = rig(&json!({}));
        let mut packet = rig.packet(&[]);
        let room = packet.tailroom();
        packet.append(room).expect("room").fill(3);
        packet.prepend(10).expect("headroom").fill(2);
        let mut batch = Batch::with_capacity(1);
        batch.push(packet).expect("room");
        rig.process(&mut batch);
        let copy = rig.emitted().pop().expect("a copy").0;
        assert_eq!(copy.data(), &batch[0].data()[..room]);
        assert_eq!(rig.counters("copies")["cut"], 1);
    }

    #[test]
    fn invalid_parameters_are_named() {
        let refusal = |params| Rig::of::<Copy>(&params).err().expect("refused").to_string();
        assert_eq!(refusal(json!({ "copies": 0 })), "copies: 0: allowed are 1 to 16");
        assert_eq!(refusal(json!({ "copies": 17 })), "copies: 17: allowed are 1 to 16");
        assert_eq!(refusal(json!({ "every": 0 })), "every: 0: allowed are 1 (every packet) or more");
        assert_eq!(refusal(json!({ "snap": 13 })), "snap: 13: allowed are 14 to 65535 bytes");
    }
}

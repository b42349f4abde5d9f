//! `counter`: counts packets and bytes.

use std::sync::Arc;

use forebay_graph::{Context, Declare, Fold, Function, PerBranch, Setup, SetupError, StateKind, register};
use forebay_measure::Counter as Count;
use forebay_packet::Packet;
use schemars::JsonSchema;
use serde::Deserialize;

/// Parameters of `counter`: none.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {}

/// The network function `counter`, with two counters: packets and bytes.
pub struct Counter {
    counts: Arc<[Count]>,
}

impl Declare for Counter {
    type Params = Params;
    const NAME: &'static str = "counter";
    const SUMMARY: &'static str = "counts packets and bytes";
    const HELP: &'static str = "\
        Every packet leaves through the only gate, unchanged. Bytes are those of the frames in memory: without \
        preamble, frame check sequence and gap.";
    const EXAMPLE: &'static str = "{}";
    const STATE: StateKind = StateKind::None;
    const FOLD: Option<Fold<Self>> = Some(|branches| Box::new(Folded(PerBranch::new(branches))));

    fn new(_: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        Ok(Self { counts: setup.counters("counted", ["packets", "bytes"].map(str::to_owned)) })
    }
}

impl Function for Counter {
    fn process(&mut self, batch: &mut [Packet], _: &mut Context<'_>) {
        if let [packets, bytes] = &*self.counts {
            packets.add(batch.len() as u64);
            bytes.add(batch.iter().map(Packet::len).sum::<usize>() as u64);
        }
    }
}

/// The counters of several branches.
struct Folded(PerBranch<Counter>);

impl Function for Folded {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        if self.0.run_common(batch, context) {
            return;
        }
        let branches = context.branches();
        for packet in batch {
            if let [packets, bytes] = &*self.0.of(branches, packet).counts {
                packets.add(1);
                bytes.add(packet.len() as u64);
            }
        }
    }
}

register!(Counter);

#[cfg(test)]
mod tests {
    use forebay_graph::{Gate, Rig};
    use forebay_packet::Batch;
    use serde_json::json;

    use super::*;

    #[test]
    fn packets_and_bytes_are_counted_and_passed() {
        let mut rig = Rig::of::<Counter>(&json!(null)).expect("no parameters");
        for len in [0, 1, 60, 1_514] {
            let frame = vec![7; len];
            assert_eq!(rig.run(&frame), (Gate::FIRST, frame));
        }
        let mut batch = Batch::with_capacity(3);
        for _ in 0..3 {
            batch.push(rig.packet(&[1; 100])).expect("room");
        }
        rig.process(&mut batch);
        let counted: Vec<_> = rig.counters("counted").into_iter().collect();
        assert_eq!(counted, [("bytes", 1 + 60 + 1_514 + 300), ("packets", 7)]);
    }

    #[test]
    fn folded_branches_count_their_own_packets() {
        let mut rig = Rig::folded::<Counter>(&[json!({}), json!({})]).expect("no parameters");
        let mut batch = Batch::with_capacity(4);
        for (branch, len) in [(0, 60), (1, 61), (1, 62)] {
            let mut packet = rig.packet(&vec![0; len]);
            packet.set_flow(branch);
            batch.push(packet).expect("room");
        }
        rig.process(&mut batch);
        let counted = |branch: usize| rig.declared.counters[branch].counters.iter().map(Count::get).collect::<Vec<_>>();
        assert_eq!((counted(0), counted(1)), (vec![1, 60], vec![2, 61 + 62]));
    }
}

//! Spreads sessions over gates by weight.

use forebay_graph::{Context, Declare, Function, Gate, Setup, SetupError, StateKind, register};
use forebay_packet::Packet;
use forebay_tables::parameters::numbered;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::hash_split::Spread;

/// Parameters of `weighted_split`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The weights, one gate for each. A gate's share is its weight divided by the sum of all weights, which may be up
    /// to 65536. A gate of weight 0 gets no sessions.
    weights: Vec<u32>,
    /// Splits with the same salt and weights put a session on the same gate. By default each module has its own salt,
    /// derived from the pipeline's seed and the module's name.
    salt: Option<u64>,
}

/// A table in which each gate has a number of slots equal to its weight. So the weights are exact, and a choice takes
/// one memory read.
pub(crate) struct GateTable {
    gates: Box<[Gate]>,
}

impl GateTable {
    /// The most slots: 128 KiB.
    const MOST: u64 = 1 << 16;

    /// Builds the table and declares a gate for each weight. Fails if the sum of the weights is 0 or above 65536.
    pub(crate) fn new(weights: &[u32], setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        setup.gates(numbered(u16::try_from(weights.len()).unwrap_or(u16::MAX)))?;
        let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        if !(1..=Self::MOST).contains(&sum) {
            let allowed = format!("1 to {}", Self::MOST);
            return Err(SetupError::wrong("weights", sum, format!("their sum is {sum}"), allowed));
        }
        let slots =
            weights.iter().enumerate().flat_map(|(gate, weight)| (0..*weight).map(move |_| Gate::out(gate as u16)));
        Ok(Self { gates: slots.collect() })
    }

    /// Returns the number of slots.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.gates.len() as u32
    }

    /// Returns the gate of a slot.
    #[inline]
    pub(crate) fn gate(&self, slot: u32) -> Gate {
        self.gates[slot as usize]
    }
}

/// The network function `weighted_split`.
pub struct WeightedSplit {
    spread: Spread,
    table: GateTable,
}

impl Declare for WeightedSplit {
    type Params = Params;
    const NAME: &'static str = "weighted_split";
    const SUMMARY: &'static str = "spreads sessions over gates by weight";
    const HELP: &'static str = "\
        Gates are named by their numbers. As in `hash_split`, the hash of a session selects the gate: all packets of a \
        session, in both directions, leave by the same gate and keep their order. The weights divide sessions, not \
        packets. If some sessions have many more packets than others, the gates' shares of packets differ from the \
        weights.";
    const EXAMPLE: &'static str = "{ weights: [3, 1] }";
    const STATE: StateKind = StateKind::None;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let table = GateTable::new(&params.weights, setup)?;
        Ok(Self { spread: Spread::new(params.salt.unwrap_or(setup.seed())), table })
    }
}

impl Function for WeightedSplit {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let slots = self.table.len();
        for (packet, gate) in batch.iter_mut().zip(context.each()) {
            *gate = self.table.gate(self.spread.index(packet.session_hash(), slots));
        }
    }
}

register!(WeightedSplit);

#[cfg(test)]
mod tests {
    use forebay_graph::Rig;
    use serde_json::json;

    use super::*;
    use crate::hash_split::tests::{out, session};

    #[test]
    fn sessions_are_shared_by_weight_and_keep_their_gate() {
        let mut rig = Rig::of::<WeightedSplit>(&json!({ "weights": [1, 0, 6, 3] })).expect("parameters");
        assert_eq!(rig.declared.gates, ["0", "1", "2", "3"]);
        let mut seen = [0u32; 4];
        for n in 0..10_000 {
            let gate = rig.run(&session(n, false)).0;
            assert_eq!(rig.run(&session(n, true)).0, gate, "session {n}");
            seen[out(gate)] += 1;
        }
        assert_eq!(seen[1], 0);
        // Standard deviations: 30, 49 and 46.
        assert!(
            seen[0].abs_diff(1_000) < 180 && seen[2].abs_diff(6_000) < 300 && seen[3].abs_diff(3_000) < 280,
            "{seen:?}"
        );
    }

    #[test]
    fn weights_with_an_invalid_sum_are_refused() {
        for (weights, message) in
            [(json!([0, 0]), "sum is 0"), (json!([65_536, 1]), "sum is 65537"), (json!([]), "0 gates")]
        {
            let error = Rig::of::<WeightedSplit>(&json!({ "weights": weights })).err().expect("refused").to_string();
            assert!(error.contains(message), "{error}");
        }
        assert!(Rig::of::<WeightedSplit>(&json!({ "weights": [65_535, 1] })).is_ok());
    }
}

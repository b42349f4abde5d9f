//! Spreads packets over gates at random.

use forebay_graph::{Context, Declare, Function, Setup, SetupError, StateKind, register};
use forebay_packet::Packet;
use forebay_units::Random;
use forebay_units::wording::counted;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::hash_split::scale;
use crate::weighted_split::GateTable;

/// Parameters of `random_split`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The number of gates, 1 to 16384.
    #[schemars(range(min = 1, max = 16_384))]
    gates: u16,
    /// The gates' weights, one for each gate, with a sum up to 65536. Without them, all gates have equal shares.
    weights: Option<Vec<u32>>,
}

/// The network function `random_split`.
pub struct RandomSplit {
    random: Random,
    table: GateTable,
}

impl Declare for RandomSplit {
    type Params = Params;
    const NAME: &'static str = "random_split";
    const SUMMARY: &'static str = "spreads packets over gates at random";
    const HELP: &'static str = "\
        Gates are named by their numbers. Each packet's gate is drawn separately (SplitMix64), so packets of one \
        session are spread over gates and may overtake each other. To keep sessions together, use `hash_split` or \
        `weighted_split`. The drawn numbers depend only on the pipeline's seed and the module's name: the same packets \
        in the same order take the same gates.";
    const EXAMPLE: &'static str = "{ gates: 3, weights: [2, 1, 1] }";
    // The generator's state does not depend on packets, so each replica may have its own generator.
    const STATE: StateKind = StateKind::None;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let weights = params.weights.unwrap_or_else(|| vec![1; params.gates.into()]);
        if weights.len() != usize::from(params.gates) {
            let value = counted(weights.len(), "weight");
            let wrong = format!("{value} for {}", counted(params.gates, "gate"));
            return Err(SetupError::wrong_single("weights", value, wrong, "one weight for each gate"));
        }
        Ok(Self { random: Random::new(setup.seed()), table: GateTable::new(&weights, setup)? })
    }
}

impl Function for RandomSplit {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let slots = self.table.len();
        for (_, gate) in batch.iter().zip(context.each()) {
            *gate = self.table.gate(scale((self.random.bits() >> 32) as u32, slots));
        }
    }
}

register!(RandomSplit);

#[cfg(test)]
mod tests {
    use forebay_graph::{Rig, SetupEnvironment};
    use forebay_units::Frequency;
    use serde_json::json;

    use super::*;
    use crate::hash_split::tests::out;

    fn draw(seed: u64, params: &serde_json::Value) -> Vec<usize> {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        environment.seed = seed;
        let mut rig = Rig::within::<RandomSplit>(params, &mut environment).expect("parameters");
        (0..8_000).map(|_| out(rig.run(&[1; 60]).0)).collect()
    }

    #[test]
    fn gates_are_drawn_by_weight() {
        for (params, shares) in [
            (json!({ "gates": 4 }), [2_000; 4]),
            (json!({ "gates": 4, "weights": [5, 0, 2, 1] }), [5_000, 0, 2_000, 1_000]),
        ] {
            let drawn = draw(1, &params);
            for (gate, share) in shares.into_iter().enumerate() {
                let count = drawn.iter().filter(|drawn| **drawn == gate).count();
                // The largest standard deviation is 43.
                assert!(
                    count.abs_diff(share) < 260 && (count == 0) == (share == 0),
                    "gate {gate}: {count} for {share}"
                );
            }
        }
    }

    #[test]
    fn a_seed_determines_all_gates() {
        let params = json!({ "gates": 16 });
        assert_eq!(draw(7, &params), draw(7, &params));
        assert_ne!(draw(7, &params), draw(8, &params));
    }

    #[test]
    fn weights_must_fit_the_gates() {
        let error = Rig::of::<RandomSplit>(&json!({ "gates": 3, "weights": [1, 1] })).err().expect("refused");
        assert_eq!(error.to_string(), "weights: 2 weights for 3 gates: allowed is one weight for each gate");
        assert!(Rig::of::<RandomSplit>(&json!({ "gates": 0 })).is_err());
    }
}

//! Spreads sessions evenly over gates.

use forebay_graph::{Context, Declare, Function, Gate, Setup, SetupError, StateKind, register};
use forebay_packet::Packet;
use forebay_tables::parameters::numbered;
use forebay_units::Random;
use schemars::JsonSchema;
use serde::Deserialize;

/// Parameters of `hash_split`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The number of gates, 1 to 16384.
    #[schemars(range(min = 1, max = 16_384))]
    gates: u16,
    /// Splits with the same salt and number of gates put a session on the same gate. By default each module has its own
    /// salt, derived from the pipeline's seed and the module's name.
    salt: Option<u64>,
}

/// A hash function of session hashes: multiply, add, shift. With a random multiplier and addend, this is strongly
/// universal (Dietzfelbinger 1996). Splits with different salts decide independently. If splits used the session hash
/// itself, a split after another split would send all of its packets to one gate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    multiplier: u64,
    addend: u64,
}

impl Spread {
    /// Derives the function from a salt: equal salts give equal functions.
    pub(crate) fn new(salt: u64) -> Self {
        let mut random = Random::new(salt);
        Self { multiplier: random.bits(), addend: random.bits() }
    }

    /// Returns a number in `0..count`; each is equally likely over all sessions.
    #[inline]
    pub(crate) fn index(self, session: u32, count: u32) -> u32 {
        scale((self.multiplier.wrapping_mul(session.into()).wrapping_add(self.addend) >> 32) as u32, count)
    }
}

/// Maps a number from the range of `u32` to `0..count` without a division (Lemire 2019, without the rejection: the
/// bias is below `count` / 2³²).
#[inline]
pub(crate) fn scale(random: u32, count: u32) -> u32 {
    ((u64::from(random) * u64::from(count)) >> 32) as u32
}

/// The network function `hash_split`.
pub struct HashSplit {
    spread: Spread,
    gates: u32,
}

impl Declare for HashSplit {
    type Params = Params;
    const NAME: &'static str = "hash_split";
    const SUMMARY: &'static str = "spreads sessions evenly over gates";
    const HELP: &'static str = "\
        Gates are named by their numbers. All packets of a session, in both directions, leave by the same gate. A \
        symmetric hash of addresses, ports and protocol selects the gate. If a frame is not IP, a symmetric hash of \
        the MAC addresses selects it. For fragments, including the first, the hash uses only addresses and protocol, \
        so that all fragments of a datagram leave by one gate. For a packet in a GTP-U tunnel, the hash uses the inner \
        packet.";
    const EXAMPLE: &'static str = "{ gates: 4 }";
    const STATE: StateKind = StateKind::None;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        setup.gates(numbered(params.gates))?;
        Ok(Self { spread: Spread::new(params.salt.unwrap_or(setup.seed())), gates: params.gates.into() })
    }
}

impl Function for HashSplit {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        for (packet, gate) in batch.iter_mut().zip(context.each()) {
            *gate = Gate::out(self.spread.index(packet.session_hash(), self.gates) as u16);
        }
    }
}

register!(HashSplit);

#[cfg(test)]
pub(crate) mod tests {
    use etherparse::PacketBuilder;
    use forebay_graph::{Decision, Rig};
    use serde_json::json;

    use super::*;

    /// Returns a frame of session `n`, in one direction or the other.
    pub(crate) fn session(n: u32, back: bool) -> Vec<u8> {
        let [_, a, b, c] = n.to_be_bytes();
        let (mut from, mut to) = (([10, a, b, c], 1_000), ([192, 0, 2, 1], 80));
        if back {
            (from, to) = (to, from);
        }
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4(from.0, to.0, 64)
            .udp(from.1, to.1)
            .write(&mut frame, b"")
            .expect("memory");
        frame
    }

    pub(crate) fn out(gate: Gate) -> usize {
        let Decision::Out(number) = gate.decision() else { panic!("{gate:?} is not an output gate") };
        number
    }

    #[test]
    fn both_directions_of_a_session_take_one_gate_and_sessions_spread_evenly() {
        let mut rig = Rig::of::<HashSplit>(&json!({ "gates": 5 })).expect("parameters");
        assert_eq!(rig.declared.gates, ["0", "1", "2", "3", "4"]);
        let mut seen = [0u32; 5];
        for n in 0..5_000 {
            let (gate, frame) = rig.run(&session(n, false));
            assert_eq!(frame, session(n, false));
            assert_eq!(rig.run(&session(n, true)).0, gate, "session {n}");
            seen[out(gate)] += 1;
        }
        // The expected number is a thousand for each gate, with a standard deviation of 28.
        assert!(seen.iter().all(|count| (850..1_150).contains(count)), "{seen:?}");
    }

    #[test]
    fn splits_with_one_salt_agree_and_others_are_independent() {
        let gates = |params| {
            let mut rig = Rig::of::<HashSplit>(&params).expect("parameters");
            (0..2_000).map(|n| out(rig.run(&session(n, false)).0)).collect::<Vec<_>>()
        };
        let (first, same, other) = (
            gates(json!({ "gates": 2, "salt": 1 })),
            gates(json!({ "gates": 2, "salt": 1 })),
            gates(json!({ "gates": 2, "salt": 2 })),
        );
        assert_eq!(first, same);
        let alike = first.iter().zip(&other).filter(|(a, b)| a == b).count();
        assert!((850..1_150).contains(&alike), "{alike} of 2000 alike");
    }

    #[test]
    fn an_invalid_number_of_gates_is_refused() {
        for gates in [0, 16_385] {
            let error = Rig::of::<HashSplit>(&json!({ "gates": gates })).err().expect("refused").to_string();
            assert!(error.contains(&gates.to_string()) && error.contains("1 to 16384"), "{error}");
        }
    }
}

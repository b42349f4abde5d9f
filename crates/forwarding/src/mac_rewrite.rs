//! Writes both Ethernet addresses, as a router does when it sends a frame to the next hop.

use forebay_graph::effect::{Bytes16, Edit, Effect};
use forebay_graph::{
    Context, Declare, Fold, Function, Gate, PerBranch, Reason, Setup, SetupError, StateKind, register,
};
use forebay_packet::Packet;
use forebay_packet::wire::ethernet::{Ethernet, MacAddress};
use schemars::JsonSchema;
use serde::Deserialize;

/// Parameters of `mac_rewrite`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The new source address, such as `02:00:00:00:00:01`.
    source: MacAddress,
    /// The new destination address.
    destination: MacAddress,
}

const TRUNCATED: Gate = Gate::drop(0);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[Reason { name: "truncated", help: "The frame is shorter than an Ethernet header." }];

/// The network function `mac_rewrite`. `addresses` contains the twelve bytes to write, destination first, as in a
/// frame.
pub struct MacRewrite {
    addresses: [u8; 12],
}

impl From<Params> for MacRewrite {
    fn from(params: Params) -> Self {
        let mut addresses = [0; 12];
        addresses[..6].copy_from_slice(&params.destination.0);
        addresses[6..].copy_from_slice(&params.source.0);
        Self { addresses }
    }
}

impl Declare for MacRewrite {
    type Params = Params;
    const NAME: &'static str = "mac_rewrite";
    const SUMMARY: &'static str = "writes the Ethernet source and destination address";
    const HELP: &'static str =
        "Every frame leaves by the one gate with the configured addresses. The rest of the frame is not checked.";
    const EXAMPLE: &'static str = "{ source: 02:00:00:00:00:01, destination: 02:00:00:00:00:02 }";
    const DROPS: &'static [Reason] = DROPS;
    const STATE: StateKind = StateKind::None;
    const FOLD: Option<Fold<Self>> =
        Some(|branches| Box::new(Folded(PerBranch::new(branches.iter().map(Self::words).collect()))));
    const EFFECT: bool = true;

    fn new(params: Params, _: &mut Setup<'_>) -> Result<Self, SetupError> {
        Ok(params.into())
    }
}

/// The twelve bytes as two integers, so that writing them takes two stores. The bytes of each are in memory order.
#[derive(Clone, Copy)]
struct Words(u64, u32);

impl MacRewrite {
    /// Returns the addresses in the form in which they are written.
    #[inline]
    fn words(&self) -> Words {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = self.addresses;
        Words(u64::from_ne_bytes([a, b, c, d, e, f, g, h]), u32::from_ne_bytes([i, j, k, l]))
    }
}

impl Words {
    /// Writes the addresses. Returns false if the frame ends inside the Ethernet header and must be dropped.
    #[inline]
    fn write(self, packet: &mut Packet) -> bool {
        let Some(header) = packet.data_mut().first_chunk_mut::<{ size_of::<Ethernet>() }>() else { return false };
        header[..8].copy_from_slice(&self.0.to_ne_bytes());
        header[8..12].copy_from_slice(&self.1.to_ne_bytes());
        true
    }
}

impl Function for MacRewrite {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let words = self.words();
        context.filter(batch, |packet| words.write(packet), |_| TRUNCATED);
    }

    fn effect(&self, packet: &mut Packet) -> Option<Effect> {
        if packet.len() < size_of::<Ethernet>() {
            return Some(Effect::to(TRUNCATED));
        }
        Some(Effect { edits: vec![Edit::Frame { offset: 0, bytes: Bytes16::new(&self.addresses) }], gate: Gate::FIRST })
    }
}

/// The addresses of many branches.
struct Folded(PerBranch<Words>);

impl Function for Folded {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let (all, branches) = (&self.0, context.branches());
        context.filter(batch, |packet| all.of(branches, packet).write(packet), |_| TRUNCATED);
    }
}

register!(MacRewrite);

#[cfg(test)]
mod tests {
    use forebay_graph::Rig;
    use forebay_packet::Batch;
    use serde_json::json;

    use super::*;

    fn params(last: u8) -> serde_json::Value {
        let address = |first: &str| format!("{first}:00:00:00:00:{last:02x}");
        json!({ "source": address("02"), "destination": address("06") })
    }

    #[test]
    fn addresses_are_written_and_the_rest_is_kept() {
        let mut rig = Rig::of::<MacRewrite>(&params(7)).expect("parameters");
        let (gate, frame) = rig.run(&[0xff; 60]);
        assert_eq!(gate, Gate::FIRST);
        assert_eq!(frame[..12], [6, 0, 0, 0, 0, 7, 2, 0, 0, 0, 0, 7]);
        assert_eq!(frame[12..], [0xff; 48]);
    }

    #[test]
    fn a_frame_that_ends_inside_the_header_is_dropped() {
        let mut rig = Rig::of::<MacRewrite>(&params(7)).expect("parameters");
        assert_eq!(rig.run(&[0xff; 13]).0, TRUNCATED);
        assert_eq!(rig.run(&[]).0, TRUNCATED);
    }

    #[test]
    fn a_wrong_address_is_named() {
        let wrong = json!({ "source": "02:00", "destination": "06:00:00:00:00:01" });
        let error = Rig::of::<MacRewrite>(&wrong).err().expect("refused");
        assert_eq!(error.faults[0].path, "source");
        assert!(error.to_string().contains("'02:00'"), "{error}");
    }

    #[test]
    fn folded_branches_do_what_each_does_alone() {
        let all: Vec<_> = (0..5).map(params).collect();
        let mut folded = Rig::folded::<MacRewrite>(&all).expect("parameters");
        for branch in 0..5u8 {
            let mut alone = Rig::of::<MacRewrite>(&params(branch)).expect("parameters");
            let mut batch = Batch::with_capacity(1);
            let mut packet = folded.packet(&[9; 64]);
            packet.set_flow(branch.into());
            batch.push(packet).expect("room");
            let gates = folded.process(&mut batch);
            assert_eq!((gates[0].expect("sent"), batch[0].data().to_vec()), alone.run(&[9; 64]), "branch {branch}");
        }
    }

    #[test]
    fn its_replayed_effect_equals_processing() {
        let mut rig = Rig::of::<MacRewrite>(&params(3)).expect("parameters");
        for frame in [vec![1; 60], vec![1; 5]] {
            let mut packet = rig.packet(&frame);
            let effect = rig.function.effect(&mut packet).expect("it always has an effect");
            let gate = effect.replay(&mut packet).expect("the effect applies");
            assert_eq!((gate, packet.data().to_vec()), rig.run(&frame));
        }
    }
}

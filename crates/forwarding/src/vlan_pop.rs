//! Removes the outer VLAN tag.

use std::hint::cold_path;

use forebay_graph::{
    Context, Declare, Fold, Function, Gate, PerBranch, Reason, Setup, SetupError, StateKind, register,
};
use forebay_packet::Packet;
use forebay_packet::wire::ethernet::EtherType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of `vlan_pop`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The action for frames without a tag: `pass` (the default) or `drop`.
    #[serde(default)]
    untagged: Untagged,
}

/// The action for frames without a tag.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Untagged {
    /// They pass unchanged.
    #[default]
    Pass,
    /// They are dropped as `untagged`.
    Drop,
}

const TRUNCATED: Gate = Gate::drop(0);
const UNTAGGED: Gate = Gate::drop(1);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason { name: "truncated", help: "The frame ends inside its Ethernet header or its tag." },
    Reason { name: "untagged", help: "The frame has no tag, and 'untagged' is 'drop'." },
];

/// The network function `vlan_pop`. Its only state is the gate of frames without a tag.
pub struct VlanPop {
    untagged: Gate,
}

impl Declare for VlanPop {
    type Params = Params;
    const NAME: &'static str = "vlan_pop";
    const SUMMARY: &'static str = "removes the outer VLAN tag";
    const HELP: &'static str = "\
        A tag begins with the type 0x8100, or 0x88a8 (IEEE 802.1ad). If a frame has several tags, only the outer tag \
        is removed. The frame becomes four bytes shorter at its start. Frames without a tag pass unchanged or are \
        dropped, as configured in `untagged`.";
    const EXAMPLE: &'static str = "{ untagged: drop }";
    const TRAFFIC: &'static str = "{ vlans: [100] }";
    const DROPS: &'static [Reason] = DROPS;
    const STATE: StateKind = StateKind::None;
    const FOLD: Option<Fold<Self>> = Some(|branches| match &branches[..] {
        [first, rest @ ..] if rest.iter().all(|other| other.untagged == first.untagged) => {
            Box::new(Self { untagged: first.untagged })
        }
        _ => Box::new(Folded(PerBranch::new(branches))),
    });

    fn new(params: Params, _: &mut Setup<'_>) -> Result<Self, SetupError> {
        Ok(Self { untagged: if params.untagged == Untagged::Drop { UNTAGGED } else { Gate::FIRST } })
    }
}

impl VlanPop {
    /// Removes the outer tag. Returns the gate of the frame.
    #[inline(always)]
    fn pop(&self, packet: &mut Packet) -> Gate {
        let Some(header) = packet.data_mut().first_chunk_mut::<18>() else { return self.short(packet) };
        let outer = u16::from_be_bytes([header[12], header[13]]);
        if outer != EtherType::VLAN {
            // One comparison for nearly all frames.
            cold_path();
            if !EtherType::is_vlan(outer) {
                return self.untagged;
            }
        }
        let inner = u16::from_be_bytes([header[16], header[17]]);
        let hidden = inner != EtherType::IPV4 && EtherType::is_vlan(inner);
        header.copy_within(0..12, 4);
        packet.strip(4);
        if hidden {
            // The network layer is searched behind at most four tags. A network layer that was hidden behind a fifth
            // tag may be visible now.
            packet.forget_layers();
        }
        Gate::FIRST
    }

    /// Returns the gate of a frame shorter than an Ethernet header and a tag.
    #[cold]
    fn short(&self, packet: &Packet) -> Gate {
        let ether_type = packet.data().get(12..14).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        if ether_type.is_some_and(|ether_type| !EtherType::is_vlan(ether_type)) { self.untagged } else { TRUNCATED }
    }
}

impl Function for VlanPop {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        for (index, packet) in batch.iter_mut().enumerate() {
            let gate = self.pop(packet);
            if gate != Gate::FIRST {
                context.put(index, gate);
            }
        }
    }
}

/// Branches of which some drop frames without a tag and others pass them.
struct Folded(PerBranch<VlanPop>);

impl Function for Folded {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let branches = context.branches();
        for (index, packet) in batch.iter_mut().enumerate() {
            let gate = self.0.of(branches, packet).pop(packet);
            if gate != Gate::FIRST {
                context.put(index, gate);
            }
        }
    }
}

register!(VlanPop);

#[cfg(test)]
mod tests {
    use forebay_graph::Rig;
    use serde_json::json;

    use super::*;

    fn frame(types: &[u16]) -> Vec<u8> {
        let tags = types.iter().flat_map(|ether_type| [ether_type.to_be_bytes(), [0x60, 0x64]].concat());
        [&[1; 6], &[2; 6], &tags.collect::<Vec<_>>()[..], &[0x12, 0x34], &[9; 46]].concat()
    }

    #[test]
    fn only_the_outer_tag_is_removed() {
        let mut rig = Rig::of::<VlanPop>(&json!({})).expect("parameters");
        assert_eq!(rig.run(&frame(&[0x8100])), (Gate::FIRST, frame(&[])));
        assert_eq!(rig.run(&frame(&[0x88a8, 0x8100])), (Gate::FIRST, frame(&[0x8100])));
        assert_eq!(rig.run(&frame(&[0x8100])[..18]), (Gate::FIRST, frame(&[])[..14].to_vec()), "a bare tag");
    }

    #[test]
    fn frames_without_a_tag_pass_or_are_dropped() {
        for (params, gate) in [
            (json!({}), Gate::FIRST),
            (json!({ "untagged": "pass" }), Gate::FIRST),
            (json!({ "untagged": "drop" }), UNTAGGED),
        ] {
            let mut rig = Rig::of::<VlanPop>(&params).expect("parameters");
            assert_eq!(rig.run(&frame(&[])), (gate, frame(&[])));
            assert_eq!(rig.run(&frame(&[])[..14]), (gate, frame(&[])[..14].to_vec()));
            for cut in [0, 5, 13, 14, 17] {
                assert_eq!(rig.run(&frame(&[0x8100])[..cut]).0, TRUNCATED, "{cut} bytes");
            }
        }
    }

    #[test]
    fn an_unknown_choice_is_refused() {
        let error = Rig::of::<VlanPop>(&json!({ "untagged": "keep" })).err().expect("refused");
        assert!(error.to_string().contains("`keep`") && error.to_string().contains("`pass`"), "{error}");
    }
}

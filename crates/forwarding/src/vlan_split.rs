//! Splits frames by the VLAN identifier of their outer tag.

use forebay_graph::{Context, Declare, Function, Gate, Setup, SetupError, StateKind, register};
use forebay_packet::Packet;
use forebay_packet::wire::ethernet::EtherType;
use schemars::JsonSchema;
use serde::Deserialize;

/// Parameters of `vlan_split`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The VLAN identifiers (0 to 4094), one gate for each in this order.
    ids: Vec<u16>,
}

/// The network function `vlan_split`: a gate for each of the 4 096 identifiers.
pub struct VlanSplit {
    /// The gate of each identifier.
    gates: Box<[Gate; 4_096]>,
    /// The gate of frames without a complete tag. In `gates`, identifiers that are not listed have the same gate.
    other: Gate,
}

impl Declare for VlanSplit {
    type Params = Params;
    const NAME: &'static str = "vlan_split";
    const SUMMARY: &'static str = "splits frames by VLAN identifier";
    const HELP: &'static str = "\
        There is one gate for each listed identifier, in the listed order and with the identifier as its name, and a \
        last gate, `other`. Only the outer tag (type 0x8100, or 0x88a8 of IEEE 802.1ad) is checked. Frames without a \
        tag, with an incomplete tag, or with an identifier that is not listed leave by `other`. A priority tag has the \
        identifier 0 (IEEE 802.1Q section 9.6): its frame also leaves by `other`, unless 0 is listed. Frames are not \
        changed.";
    const EXAMPLE: &'static str = "{ ids: [100, 200] }";
    const TRAFFIC: &'static str = "{ vlans: [100] }";
    const STATE: StateKind = StateKind::None;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let other = Gate::out(params.ids.len() as u16);
        let mut gates = Box::new([other; 4_096]);
        for (index, id) in params.ids.iter().enumerate() {
            let path = || format!("ids[{index}]");
            let slot = gates[..4_095].get_mut(usize::from(*id));
            let slot = slot
                .ok_or_else(|| SetupError::wrong(path(), id, format!("{id} is not a VLAN identifier"), "0 to 4094"))?;
            if *slot != other {
                return Err(SetupError::with_hint(path(), format!("VLAN {id} is already listed"), "list it once"));
            }
            *slot = Gate::out(index as u16);
        }
        setup.gates(params.ids.iter().map(u16::to_string).chain(["other".to_owned()]))?;
        Ok(Self { gates, other })
    }
}

impl Function for VlanSplit {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        for (packet, gate) in batch.iter().zip(context.each()) {
            *gate = match packet.data().first_chunk::<18>() {
                Some(header) if EtherType::is_vlan(u16::from_be_bytes([header[12], header[13]])) => {
                    self.gates[usize::from(u16::from_be_bytes([header[14], header[15]]) & 0x0fff)]
                }
                _ => self.other,
            };
        }
    }
}

register!(VlanSplit);

#[cfg(test)]
mod tests {
    use forebay_graph::Rig;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn frame(tpid: u16, control: u16) -> Vec<u8> {
        [&[2; 12], &tpid.to_be_bytes()[..], &control.to_be_bytes(), &[0x08, 0x00], &[0; 46]].concat()
    }

    #[test]
    fn tags_go_by_their_identifier_and_the_rest_to_other() {
        let mut rig = Rig::of::<VlanSplit>(&json!({ "ids": [100, 4094] })).expect("parameters");
        assert_eq!(rig.declared.gates, ["100", "4094", "other"]);
        let cases = [
            (0x8100, 100, 0),
            (0x88a8, 4094, 1),
            (0x8100, 0xe064, 0),
            (0x8100, 101, 2),
            (0x8100, 0, 2),
            (0x8100, 4095, 2),
            (0x9100, 100, 0),
            (0x8847, 100, 2),
        ];
        for (tpid, control, gate) in cases {
            let frame = frame(tpid, control);
            assert_eq!(rig.run(&frame), (Gate::out(gate), frame), "{tpid:#x} {control:#x}");
        }
        assert_eq!(rig.run(&frame(0x8100, 100)[..17]).0, Gate::out(2), "a cut tag");
        assert_eq!(rig.run(&[]).0, Gate::out(2), "empty");
    }

    #[test]
    fn invalid_identifiers_are_named() {
        for (ids, message) in [
            (json!([7, 4095]), "ids[1]: 4095 is not a VLAN identifier: allowed are 0 to 4094"),
            (json!([7, 8, 7]), "ids[2]: VLAN 7 is already listed: list it once"),
        ] {
            let error = Rig::of::<VlanSplit>(&json!({ "ids": ids })).err().expect("refused");
            assert_eq!(error.to_string(), message);
        }
    }

    proptest! {
        #[test]
        fn every_tag_goes_to_the_gate_that_a_scan_of_the_list_finds(
            ids in prop::collection::btree_set(0u16..4_095, 0..300),
            control: u16,
            pick: prop::sample::Index,
        ) {
            let ids: Vec<u16> = ids.into_iter().collect();
            let mut rig = Rig::of::<VlanSplit>(&json!({ "ids": ids })).expect("parameters");
            let listed = ids.get(pick.index(ids.len().max(1))).copied().unwrap_or(control);
            for control in [control, listed] {
                let scan = ids.iter().position(|id| *id == control & 0x0fff).unwrap_or(ids.len());
                prop_assert_eq!(rig.run(&frame(0x8100, control)).0, Gate::out(scan as u16));
            }
        }
    }
}

//! Puts a VLAN tag on every frame.

use std::borrow::Cow;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::Packet;
use forebay_packet::wire::ethernet::{EtherType, Ethernet};
use forebay_tables::parameters::number;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

/// Parameters of `vlan_push`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The VLAN identifier, 0 to 4094; 0 makes a priority tag, which names no VLAN.
    id: u16,
    /// The priority code point, 0 to 7.
    #[serde(default)]
    priority: u8,
    /// The tag's type: `0x8100` (a customer's tag, the default) or `0x88a8` (a provider's).
    #[serde(default)]
    #[schemars(extend("default" = "0x8100"))]
    tpid: Tpid,
}

/// A tag protocol identifier: one of the two that IEEE 802.1Q defines.
#[derive(Clone, Copy, Debug)]
struct Tpid(u16);

impl Default for Tpid {
    fn default() -> Self {
        Self(EtherType::VLAN)
    }
}

impl<'de> Deserialize<'de> for Tpid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let read = value.as_u64().map(u128::from).or_else(|| number(value.as_str()?));
        let tpid = read
            .and_then(|read| u16::try_from(read).ok())
            .filter(|tpid| [EtherType::VLAN, EtherType::PROVIDER_VLAN].contains(tpid));
        tpid.map(Self)
            .ok_or_else(|| de::Error::custom(format!("{value} is not a tag's type: allowed are 0x8100 and 0x88a8")))
    }
}

impl JsonSchema for Tpid {
    fn schema_name() -> Cow<'static, str> {
        "Tpid".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "enum": ["0x8100", "0x88a8", EtherType::VLAN, EtherType::PROVIDER_VLAN] })
    }
}

const TRUNCATED: Gate = Gate::drop(0);
const NO_HEADROOM: Gate = Gate::drop(1);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason { name: "truncated", help: "The frame is shorter than an Ethernet header." },
    Reason { name: "no_headroom", help: "There is no room before the frame for four more bytes." },
];

/// The network function `vlan_push`. `tag` contains the four bytes to insert after the addresses: first the type.
pub struct VlanPush {
    tag: [u8; 4],
}

impl Declare for VlanPush {
    type Params = Params;
    const NAME: &'static str = "vlan_push";
    const SUMMARY: &'static str = "puts a VLAN tag on every frame";
    const HELP: &'static str = "\
        The tag (IEEE 802.1Q section 9.3) is inserted after the addresses. If the frame already has a tag, the new tag \
        is the outer tag. The drop eligible bit is 0. The frame becomes four bytes longer at its start.";
    const EXAMPLE: &'static str = "{ id: 100, priority: 3, tpid: 0x88a8 }";
    const DROPS: &'static [Reason] = DROPS;
    const STATE: StateKind = StateKind::None;

    fn new(params: Params, _: &mut Setup<'_>) -> Result<Self, SetupError> {
        if params.id > 4_094 {
            return Err(SetupError::wrong(
                "id",
                params.id,
                format!("{} is not a VLAN identifier", params.id),
                "0 to 4094",
            ));
        }
        if params.priority > 7 {
            let wrong = format!("{} is not a priority", params.priority);
            return Err(SetupError::wrong("priority", params.priority, wrong, "0 to 7"));
        }
        let [type_high, type_low] = params.tpid.0.to_be_bytes();
        let [high, low] = (u16::from(params.priority) << 13 | params.id).to_be_bytes();
        Ok(Self { tag: [type_high, type_low, high, low] })
    }
}

impl VlanPush {
    /// Inserts the tag, or returns the drop gate of a frame that cannot have it.
    #[inline]
    fn push(&self, packet: &mut Packet) -> Result<(), Gate> {
        if packet.len() < size_of::<Ethernet>() {
            return Err(TRUNCATED);
        }
        packet.prepend(self.tag.len()).ok_or(NO_HEADROOM)?;
        let Some(header) = packet.data_mut().first_chunk_mut::<18>() else { return Err(TRUNCATED) };
        header.copy_within(4..16, 0);
        header[12..16].copy_from_slice(&self.tag);
        if EtherType::is_vlan(u16::from_be_bytes([header[16], header[17]])) {
            // The network layer is searched behind at most four tags; a fifth one hides it.
            packet.forget_layers();
        }
        Ok(())
    }
}

impl Function for VlanPush {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        for (index, packet) in batch.iter_mut().enumerate() {
            if let Err(drop) = self.push(packet) {
                context.put(index, drop);
            }
        }
    }
}

register!(VlanPush);

#[cfg(test)]
mod tests {
    use etherparse::{LinkExtSlice, PacketBuilder, SlicedPacket};
    use forebay_graph::Rig;
    use forebay_packet::Batch;
    use forebay_packet::Network;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::vlan_pop::VlanPop;

    fn ipv4() -> Vec<u8> {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1, 2);
        builder.write(&mut frame, b"payload!").expect("memory");
        frame
    }

    #[test]
    fn the_tag_follows_the_addresses() {
        let mut rig =
            Rig::of::<VlanPush>(&json!({ "id": 0x123, "priority": 5, "tpid": "0x88a8" })).expect("parameters");
        let (gate, after) = rig.run(&ipv4());
        assert_eq!(gate, Gate::FIRST);
        assert_eq!(after, [&ipv4()[..12], &[0x88, 0xa8, 0xa1, 0x23], &ipv4()[12..]].concat());
        let parsed = SlicedPacket::from_ethernet(&after).expect("well-formed");
        let [LinkExtSlice::Vlan(tag)] = parsed.link_exts.as_slice() else { panic!("one tag") };
        assert_eq!(
            (tag.vlan_identifier().value(), tag.priority_code_point().value(), tag.drop_eligible_indicator()),
            (0x123, 5, false)
        );
    }

    #[test]
    fn frames_that_cannot_take_a_tag_are_dropped_unchanged() {
        let mut rig = Rig::of::<VlanPush>(&json!({ "id": 1 })).expect("parameters");
        assert_eq!(rig.run(&[1; 13]), (TRUNCATED, vec![1; 13]));
        assert_eq!(rig.run(&[]).0, TRUNCATED);
        let mut packet = rig.packet(&ipv4());
        let room = packet.headroom();
        packet.prepend(room - 3).expect("room").fill(6);
        let before = packet.data().to_vec();
        let mut batch = Batch::with_capacity(1);
        batch.push(packet).expect("room");
        assert_eq!(rig.process(&mut batch), [Some(NO_HEADROOM)]);
        assert_eq!(batch[0].data(), before);
    }

    #[test]
    fn invalid_parameters_are_named() {
        for (params, message) in [
            (json!({ "id": 4095 }), "id: 4095 is not a VLAN identifier: allowed are 0 to 4094"),
            (json!({ "id": 1, "priority": 8 }), "priority: 8 is not a priority: allowed are 0 to 7"),
            (json!({ "id": 1, "tpid": 0x9100 }), "tpid: 37120 is not a tag's type: allowed are 0x8100 and 0x88a8"),
            (json!({ "id": 1, "tpid": "qinq" }), "tpid: \"qinq\" is not a tag's type: allowed are 0x8100 and 0x88a8"),
        ] {
            assert_eq!(Rig::of::<VlanPush>(&params).err().expect("refused").to_string(), message);
        }
    }

    proptest! {
        #[test]
        fn push_and_pop_restore_the_frame_and_layers_are_always_correct(
            tail in prop::collection::vec(any::<u8>(), 2..80),
            tags in 0usize..6,
            v4: bool,
        ) {
            let tail = if v4 { ipv4()[12..].to_vec() } else { tail };
            let frame = [&[2; 12], &[0x81, 0x00, 0x00, 0x07].repeat(tags)[..], &tail].concat();
            let mut push = Rig::of::<VlanPush>(&json!({ "id": 9 })).expect("parameters");
            let mut pop = Rig::of::<VlanPop>(&json!({})).expect("parameters");
            let mut batch = Batch::with_capacity(1);
            batch.push(push.packet(&frame)).expect("room");
            let layers_are_correct = |packet: &mut Packet| {
                let known = (packet.network(), packet.transport());
                packet.forget_layers();
                // Without a network layer its offset has no meaning.
                let found = (packet.network(), packet.transport());
                (known.0.0, known.1) == (found.0.0, found.1) && (known.0.0 == Network::Other || known == found)
            };
            prop_assert!(layers_are_correct(&mut batch[0]));
            prop_assert_eq!(push.process(&mut batch), [Some(Gate::FIRST)]);
            prop_assert_eq!(batch[0].len(), frame.len() + 4);
            prop_assert!(layers_are_correct(&mut batch[0]), "after the push");
            prop_assert_eq!(pop.process(&mut batch), [Some(Gate::FIRST)]);
            prop_assert!(layers_are_correct(&mut batch[0]), "after the pop");
            prop_assert_eq!(batch[0].data(), frame);
        }
    }
}

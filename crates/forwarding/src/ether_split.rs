//! Splits frames by the EtherType of their outer header.

use std::borrow::Cow;

use forebay_graph::{Context, Declare, Function, Gate, Setup, SetupError, StateKind, register};
use forebay_packet::Packet;
use forebay_packet::wire::ethernet::{EtherType, Ethernet};
use forebay_tables::parameters::number;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

/// Parameters of `ether_split`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The EtherTypes, one gate for each in this order: `ipv4`, `ipv6`, `arp`, `vlan` (every kind of tag), or a number
    /// from `0x0600`.
    types: Vec<TypeName>,
}

/// An EtherType as written in a configuration.
#[derive(Clone, Debug)]
pub struct TypeName {
    /// The text in the configuration, which is also the gate's name. A number becomes hexadecimal, such as `0x88cc`.
    name: String,
    /// The EtherTypes for which the name stands: several for `vlan`, otherwise one.
    values: Vec<u16>,
}

impl<'de> Deserialize<'de> for TypeName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let name = match (value.as_str(), value.as_u64()) {
            (Some(text), _) => text.to_owned(),
            (_, Some(number)) => format!("{number:#06x}"),
            _ => value.to_string(),
        };
        let values = match name.as_str() {
            "ipv4" => vec![EtherType::IPV4],
            "ipv6" => vec![EtherType::IPV6],
            "arp" => vec![EtherType::ARP],
            "vlan" => {
                [vec![EtherType::VLAN, EtherType::PROVIDER_VLAN], EtherType::OLD_PROVIDER_VLANS.to_vec()].concat()
            }
            text => {
                // Smaller values are lengths of IEEE 802.3 frames.
                let value = number(text).and_then(|value| u16::try_from(value).ok()).filter(|value| *value >= 0x0600);
                let allowed = "ipv4, ipv6, arp, vlan, or a number from 0x0600 to 0xffff";
                vec![
                    value.ok_or_else(|| {
                        de::Error::custom(format!("'{text}' is not an EtherType: allowed are {allowed}"))
                    })?,
                ]
            }
        };
        Ok(Self { name, values })
    }
}

impl JsonSchema for TypeName {
    fn schema_name() -> Cow<'static, str> {
        "EtherType".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "enum": ["ipv4", "ipv6", "arp", "vlan"] },
            { "type": "string", "pattern": "^0x[0-9a-fA-F]{1,4}$" },
            { "type": "integer", "minimum": 0x0600, "maximum": 0xffff },
        ] })
    }
}

/// The network function `ether_split`: a gate for every EtherType, in two levels. The upper byte selects a page of 256
/// gates, and the lower byte a gate in it, so that a decision takes two loads and no branch. All upper bytes without a
/// listed type share page 0.
pub struct EtherSplit {
    /// The index of a page in `gates`, for each upper byte.
    pages: [u8; 256],
    /// The pages. Page 0 has the gate `other` everywhere.
    gates: Vec<[Gate; 256]>,
    /// The gate of frames whose type is not listed.
    other: Gate,
}

impl Declare for EtherSplit {
    type Params = Params;
    const NAME: &'static str = "ether_split";
    const SUMMARY: &'static str = "splits frames by EtherType";
    const HELP: &'static str = "\
        There is one gate for each listed type, in the listed order and with the name as written, and a last gate, \
        `other`. The type is that of the outer header: a frame with a VLAN tag (0x8100, 0x88a8 of IEEE 802.1ad, or the \
        older 0x9100, 0x9200 and 0x9300) is of type `vlan`, whatever the tag encloses. Frames without a type leave by \
        `other`. These are IEEE 802.3 frames, which have a length instead, and frames that end inside the header.";
    const EXAMPLE: &'static str = "{ types: [ipv4, ipv6, arp, vlan, 0x88cc] }";
    const STATE: StateKind = StateKind::None;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let other = Gate::out(params.types.len() as u16);
        setup.gates(params.types.iter().map(|listed| listed.name.as_str()).chain(["other"]))?;
        let mut split = Self { pages: [0; 256], gates: vec![[other; 256]], other };
        for (index, listed) in params.types.iter().enumerate() {
            for value in &listed.values {
                let gate = split.slot(*value);
                if *gate != other {
                    let wrong = format!("'{}' is EtherType {value:#06x}, which is already listed", listed.name);
                    return Err(SetupError::with_hint(format!("types[{index}]"), wrong, "list it once"));
                }
                *gate = Gate::out(index as u16);
            }
        }
        Ok(split)
    }
}

impl EtherSplit {
    /// Returns the entry of a type's gate, for writing. If its page is the shared page 0, gives the upper byte a new
    /// page first.
    fn slot(&mut self, ether_type: u16) -> &mut Gate {
        let [high, low] = ether_type.to_be_bytes();
        let page = &mut self.pages[usize::from(high)];
        if *page == 0 {
            // Types start at 0x0600, so there are at most 250 pages besides the shared one.
            *page = self.gates.len() as u8;
            self.gates.push([self.other; 256]);
        }
        &mut self.gates[usize::from(*page)][usize::from(low)]
    }
}

impl Function for EtherSplit {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        for (packet, gate) in batch.iter().zip(context.each()) {
            *gate = match packet.data().first_chunk::<{ size_of::<Ethernet>() }>() {
                Some(header) => self.gates[usize::from(self.pages[usize::from(header[12])])][usize::from(header[13])],
                None => self.other,
            };
        }
    }
}

register!(EtherSplit);

#[cfg(test)]
mod tests {
    use forebay_graph::Rig;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn frame(ether_type: u16) -> Vec<u8> {
        [&[2; 12], &ether_type.to_be_bytes()[..], &[0; 46]].concat()
    }

    #[test]
    fn each_type_has_the_gate_of_its_position() {
        let mut rig = Rig::of::<EtherSplit>(&json!({ "types": ["vlan", "ipv6", "0x88cc", "ipv4", 0x8847, "arp"] }))
            .expect("parameters");
        assert_eq!(rig.declared.gates, ["vlan", "ipv6", "0x88cc", "ipv4", "0x8847", "arp", "other"]);
        let expected = [
            (0x8100, 0),
            (0x88a8, 0),
            (0x86dd, 1),
            (0x88cc, 2),
            (0x0800, 3),
            (0x8847, 4),
            (0x0806, 5),
            (0x88cd, 6),
            (0x05dc, 6),
        ];
        for (ether_type, gate) in expected {
            assert_eq!(rig.run(&frame(ether_type)).0, Gate::out(gate), "{ether_type:#06x}");
        }
        assert_eq!(rig.run(&frame(0x0800)[..13]).0, Gate::out(6), "cut short");
        assert_eq!(rig.run(&[]).0, Gate::out(6), "empty");
    }

    #[test]
    fn frames_are_not_changed() {
        let mut rig = Rig::of::<EtherSplit>(&json!({ "types": ["ipv4"] })).expect("parameters");
        assert_eq!(rig.run(&frame(0x0800)).1, frame(0x0800));
    }

    #[test]
    fn invalid_types_are_named() {
        for wrong in ["ipx", "0x05ff", "0x10000", "-1", ""] {
            let error = Rig::of::<EtherSplit>(&json!({ "types": ["ipv4", wrong] })).err().expect("refused");
            assert_eq!(error.faults[0].path, "types[1]");
            assert!(error.to_string().contains(&format!("'{wrong}'")), "{error}");
        }
        let twice = Rig::of::<EtherSplit>(&json!({ "types": ["ipv4", "arp", "2048"] })).err().expect("refused");
        assert_eq!(twice.to_string(), "types[2]: '2048' is EtherType 0x0800, which is already listed: list it once");
    }

    proptest! {
        #[test]
        fn every_type_goes_to_the_gate_that_a_scan_of_the_list_finds(
            types in prop::collection::btree_set(0x0600u16.., 0..40),
            ether_type: u16,
            pick: prop::sample::Index,
        ) {
            let types: Vec<u16> = types.into_iter().collect();
            let mut rig = Rig::of::<EtherSplit>(&json!({ "types": types })).expect("parameters");
            let listed = types.get(pick.index(types.len().max(1))).copied().unwrap_or(ether_type);
            for ether_type in [ether_type, listed] {
                let scan = types.iter().position(|listed| *listed == ether_type).unwrap_or(types.len());
                prop_assert_eq!(rig.run(&frame(ether_type)).0, Gate::out(scan as u16));
            }
        }
    }
}

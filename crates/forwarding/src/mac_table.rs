//! Sends frames to gates by their destination address: a bridge's table, filled by the configuration.

use std::collections::BTreeMap;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_memory::{NoMemory, filled};
use forebay_packet::Packet;
use forebay_packet::wire::ethernet::{Ethernet, MacAddress};
use forebay_tables::parameters::{self, NoMatch, no_memory, numbered};
use schemars::JsonSchema;
use serde::Deserialize;

/// Parameters of `mac_table`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The gate of each address, such as `"02:00:00:00:00:01": 0`.
    addresses: BTreeMap<String, u16>,
    /// The number of gates, 1 to 16384.
    #[schemars(range(min = 1, max = 16_384))]
    gates: u16,
    /// The fate of frames whose destination is not listed: `drop` (the default) or a gate.
    #[serde(default)]
    #[schemars(extend("default" = "drop"))]
    miss: NoMatch,
    /// The fate of frames to a multicast or broadcast address that is not listed. Without it, `miss` applies to them,
    /// too.
    group: Option<NoMatch>,
}

const UNKNOWN: Gate = Gate::drop(0);
const TRUNCATED: Gate = Gate::drop(1);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason { name: "unknown_address", help: "The destination address is not listed, and 'miss' or 'group' is 'drop'." },
    Reason { name: "truncated", help: "The frame is shorter than an Ethernet header." },
];

/// The network function `mac_table`.
pub struct MacTable {
    table: Table,
    /// The gate of frames to an individual address that is not listed.
    miss: Gate,
    /// The gate of frames to a multicast or broadcast address that is not listed.
    group: Gate,
}

/// A map from addresses to gates in one array: open addressing with linear probing, at most half full. A slot is one
/// word, with the address in the upper 48 bits and the gate in the lower 16, so that a lookup is nearly always one
/// load. 100 000 addresses take 2 MiB.
struct Table {
    slots: Box<[u64]>,
    /// The right shift from a 64-bit product to the index of a slot.
    shift: u32,
}

/// The value of an empty slot: no gate has the number 65535.
const EMPTY: u64 = u64::MAX;

impl Table {
    /// Creates a table for up to `entries` addresses. Fails if there is no memory.
    fn new(entries: usize) -> Result<Self, NoMemory> {
        let slots = (entries * 2).next_power_of_two().max(2);
        Ok(Self { slots: filled(EMPTY, slots)?, shift: 64 - slots.trailing_zeros() })
    }

    /// Returns the slot at which the search for an address starts: the upper bits of a product (Knuth, volume 3,
    /// section 6.4).
    #[inline]
    fn start(&self, address: u64) -> usize {
        (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    /// Adds an address. At most `entries` addresses may be added: a full table would make searches endless. Returns
    /// false if the address is already present; its gate then stays.
    fn insert(&mut self, address: u64, gate: u16) -> bool {
        let mut at = self.start(address);
        while self.slots[at] != EMPTY {
            if self.slots[at] >> 16 == address {
                return false;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = address << 16 | u64::from(gate);
        true
    }

    /// Returns the gate of an address.
    #[inline]
    fn get(&self, address: u64) -> Option<u16> {
        let mut at = self.start(address);
        // The loop ends because half of the slots are empty.
        loop {
            let slot = self.slots[at & (self.slots.len() - 1)];
            if slot == EMPTY {
                return None;
            }
            if slot >> 16 == address {
                return Some(slot as u16);
            }
            at += 1;
        }
    }
}

/// Returns the address as a number.
#[inline]
fn word(address: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = address;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

impl Declare for MacTable {
    type Params = Params;
    const NAME: &'static str = "mac_table";
    const SUMMARY: &'static str = "sends frames to gates by destination MAC address";
    const HELP: &'static str = "\
        Gates are named by their numbers. Addresses are listed whole, without masks; a table may hold hundreds of \
        thousands of addresses. Multicast and broadcast addresses (with the group bit set, IEEE 802) can be listed \
        like any other, for example 01:80:c2:00:00:0e of LLDP. For those that are not listed, `group` decides. A frame \
        leaves by one gate only: it is not copied to several gates. The table does not learn addresses.";
    const EXAMPLE: &'static str =
        r#"{ addresses: { "02:00:00:00:00:01": 0, "02:00:00:00:00:02": 1 }, gates: 3, miss: drop, group: 2 }"#;
    const DROPS: &'static [Reason] = DROPS;
    const STATE: StateKind = StateKind::SharedReadOnly;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        setup.gates(numbered(params.gates))?;
        let mut table = Table::new(params.addresses.len())
            .map_err(no_memory("addresses", format!("the table of {} addresses", params.addresses.len())))?;
        let mut faults = SetupError::default();
        for (text, number) in &params.addresses {
            let path = || format!("addresses.{text}");
            let mut add = || {
                let address: MacAddress = text.parse().map_err(|error| SetupError::at(path(), format!("{error}")))?;
                parameters::gate(&path(), *number, params.gates)?;
                let twice = || {
                    SetupError::with_hint(path(), "the address is already listed in another spelling", "list it once")
                };
                table.insert(word(address.0), *number).then_some(()).ok_or_else(twice)
            };
            if let Err(fault) = add() {
                faults.and(fault);
            }
        }
        if !faults.faults.is_empty() {
            return Err(faults);
        }
        let miss = params.miss.resolve("miss", params.gates, UNKNOWN)?;
        let group = params.group.map_or(Ok(miss), |group| group.resolve("group", params.gates, UNKNOWN))?;
        Ok(Self { table, miss, group })
    }
}

impl Function for MacTable {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        for (packet, gate) in batch.iter().zip(context.each()) {
            *gate = match packet.data().first_chunk::<{ size_of::<Ethernet>() }>() {
                Some([a, b, c, d, e, f, ..]) => match self.table.get(word([*a, *b, *c, *d, *e, *f])) {
                    Some(number) => Gate::out(number),
                    None if a & 1 == 1 => self.group,
                    None => self.miss,
                },
                None => TRUNCATED,
            };
        }
    }
}

register!(MacTable);

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use forebay_graph::Rig;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn frame(address: &str) -> Vec<u8> {
        let address: MacAddress = address.parse().expect("an address");
        [&address.0[..], &[2; 54]].concat()
    }

    fn table(more: &serde_json::Value) -> Rig {
        let addresses = json!({ "02:00:00:00:00:01": 0, "02-00-00-00-00-0A": 1, "01:80:c2:00:00:0e": 2 });
        let mut params = json!({ "addresses": addresses, "gates": 4 });
        params.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        Rig::of::<MacTable>(&params).expect("parameters")
    }

    #[test]
    fn listed_addresses_have_their_gates() {
        let mut rig = table(&json!({}));
        assert_eq!(rig.declared.gates, ["0", "1", "2", "3"]);
        for (address, gate) in [("02:00:00:00:00:01", 0), ("02:00:00:00:00:0a", 1), ("01:80:c2:00:00:0e", 2)] {
            assert_eq!(rig.run(&frame(address)), (Gate::out(gate), frame(address)));
        }
    }

    #[test]
    fn other_addresses_go_where_miss_and_group_say() {
        let (one, all) = (frame("02:00:00:00:00:02"), frame("ff:ff:ff:ff:ff:ff"));
        for (more, miss, group) in [
            (json!({}), UNKNOWN, UNKNOWN),
            (json!({ "miss": 3 }), Gate::out(3), Gate::out(3)),
            (json!({ "miss": 3, "group": "drop" }), Gate::out(3), UNKNOWN),
            (json!({ "group": 2 }), UNKNOWN, Gate::out(2)),
        ] {
            let mut rig = table(&more);
            assert_eq!((rig.run(&one).0, rig.run(&all).0), (miss, group), "{more}");
        }
        assert_eq!(table(&json!({ "miss": 3 })).run(&one[..13]).0, TRUNCATED);
    }

    #[test]
    fn all_faults_are_named() {
        let addresses = json!({ "02:00": 0, "02:00:00:00:00:0a": 1, "02-00-00-00-00-0A": 1, "02:00:00:00:00:03": 9 });
        let params = json!({ "addresses": addresses, "gates": 2 });
        let error = Rig::of::<MacTable>(&params).err().expect("refused");
        let paths: Vec<_> = error.faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(paths, ["addresses.02:00", "addresses.02:00:00:00:00:03", "addresses.02:00:00:00:00:0a"]);
        assert!(error.to_string().contains("there is no gate 9"), "{error}");
    }

    #[test]
    fn a_hundred_thousand_addresses_are_found() {
        let mut table = Table::new(100_000).expect("memory");
        // The addresses are consecutive in the lower half, as vendors number their devices.
        let address = |n: u64| 0x0200_5e00_0000 + n;
        assert!((0..100_000).all(|n| table.insert(address(n), (n % 5) as u16)));
        assert!((0..100_000).all(|n| table.get(address(n)) == Some((n % 5) as u16)));
        assert!((100_000..200_000).all(|n| table.get(address(n)).is_none()));
    }

    proptest! {
        #[test]
        fn the_table_is_a_map(
            entries in prop::collection::vec((0u64..1 << 48, 0u16..16_384), 0..300),
            others in prop::collection::vec(0u64..1 << 48, 50),
        ) {
            let mut table = Table::new(entries.len()).expect("memory");
            let mut map = HashMap::new();
            for (address, gate) in entries {
                let new = !map.contains_key(&address);
                prop_assert_eq!(table.insert(address, gate), new);
                map.entry(address).or_insert(gate);
            }
            for address in map.keys().copied().chain(others) {
                prop_assert_eq!(table.get(address), map.get(&address).copied());
            }
        }
    }
}

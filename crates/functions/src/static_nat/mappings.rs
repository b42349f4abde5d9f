//! Pairs of IPv4 prefixes, an inside and an outside one, looked up from either side.

use std::fmt;
use std::net::Ipv4Addr;

use forebay_graph::{DeclareState, Setup, SetupError, register};
use schemars::JsonSchema;
use serde::Deserialize;

/// A mapping: two prefixes of one length.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// The addresses as they are inside, such as `10.0.0.0/24`; without a length it is one address.
    inside: Prefix,
    /// The addresses as they are seen outside, such as `192.0.2.0/24`.
    outside: Prefix,
}

/// An IPv4 prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
struct Prefix {
    start: u32,
    mask: u32,
}

impl TryFrom<String> for Prefix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (address, length) = text.split_once('/').unwrap_or((&text, "32"));
        let digits = !length.is_empty() && length.bytes().all(|digit| digit.is_ascii_digit());
        let length = length.parse::<u32>().ok().filter(|length| digits && *length <= 32);
        let (Ok(address), Some(length)) = (address.parse::<Ipv4Addr>(), length) else {
            return Err(format!(
                "'{text}' is no IPv4 prefix: write an address and a length from 0 to 32, such as 10.0.0.0/24"
            ));
        };
        let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
        let start = address.to_bits();
        if start & !mask != 0 {
            return Err(format!(
                "'{text}' has bits beyond its length: the prefix is {}/{length}",
                Ipv4Addr::from_bits(start & mask)
            ));
        }
        Ok(Self { start, mask })
    }
}

impl Prefix {
    fn length(self) -> u32 {
        self.mask.count_ones()
    }

    fn last(self) -> u32 {
        self.start | !self.mask
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.start), self.length())
    }
}

/// One side of the table: prefixes that do not overlap, in order, each with the start of the one it becomes.
#[derive(Clone, Debug, Default)]
pub(super) struct Side(Vec<(Prefix, u32)>);

impl Side {
    fn new(pairs: impl Iterator<Item = (Prefix, Prefix)>, name: &str) -> Result<Self, SetupError> {
        let mut entries: Vec<_> = pairs.map(|(from, to)| (from, to.start)).collect();
        entries.sort_unstable_by_key(|(from, _)| from.start);
        match entries.windows(2).find(|pair| pair[0].0.last() >= pair[1].0.start) {
            Some(pair) => {
                Err(SetupError::at("mappings", format!("the {name} prefixes {} and {} overlap", pair[0].0, pair[1].0)))
            }
            None => Ok(Self(entries)),
        }
    }

    /// What an address becomes: the other prefix, with the host bits kept; `None` where no mapping has it.
    #[inline]
    pub(super) fn translate(&self, address: u32) -> Option<u32> {
        let after = self.0.partition_point(|(prefix, _)| prefix.start <= address);
        let (prefix, other) = self.0.get(after.checked_sub(1)?)?;
        (address & prefix.mask == prefix.start).then_some(other | address & !prefix.mask)
    }
}

/// The mappings, from either side.
#[derive(Clone, Debug, Default)]
pub struct StaticMappings {
    pub(super) inside: Side,
    pub(super) outside: Side,
}

impl StaticMappings {
    pub(super) fn of(mappings: &[Mapping]) -> Result<Self, SetupError> {
        for (index, Mapping { inside, outside }) in mappings.iter().enumerate() {
            if inside.mask != outside.mask {
                let message =
                    format!("{inside} and {outside} are of different lengths: allowed are prefixes of one length");
                return Err(SetupError::at(format!("mappings[{index}]"), message));
            }
        }
        let inside = Side::new(mappings.iter().map(|mapping| (mapping.inside, mapping.outside)), "inside")?;
        let outside = Side::new(mappings.iter().map(|mapping| (mapping.outside, mapping.inside)), "outside")?;
        Ok(Self { inside, outside })
    }
}

/// Parameters of the state `static_mappings`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StateParams {
    /// The mappings. Prefixes of one side may not overlap.
    mappings: Vec<Mapping>,
}

impl DeclareState for StaticMappings {
    type Params = StateParams;
    const NAME: &'static str = "static_mappings";
    const SUMMARY: &'static str = "pairs of IPv4 prefixes for the two directions of a static_nat";
    const EXAMPLE: &'static str = "{ mappings: [{ inside: 10.0.0.0/24, outside: 192.0.2.0/24 }] }";

    fn new(params: StateParams, _: &mut Setup<'_>) -> Result<Self, SetupError> {
        Self::of(&params.mappings)
    }
}

register!(state StaticMappings);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn mappings(pairs: &[(&str, &str)]) -> Result<StaticMappings, String> {
        let list: Vec<_> =
            pairs.iter().map(|(inside, outside)| json!({ "inside": inside, "outside": outside })).collect();
        let list: Vec<Mapping> = serde_json::from_value(json!(list)).map_err(|error| error.to_string())?;
        StaticMappings::of(&list).map_err(|error| error.to_string())
    }

    #[test]
    fn faults_are_named() {
        for (pairs, told) in [
            (vec![("10.0.0.0/33", "192.0.2.0/24")], "'10.0.0.0/33' is no IPv4 prefix"),
            (vec![("10.0.0.0/+8", "192.0.2.0/24")], "'10.0.0.0/+8' is no IPv4 prefix"),
            (vec![("10.0.0/24", "192.0.2.0/24")], "'10.0.0/24' is no IPv4 prefix"),
            (
                vec![("10.0.0.1/24", "192.0.2.0/24")],
                "'10.0.0.1/24' has bits beyond its length: the prefix is 10.0.0.0/24",
            ),
            (
                vec![("10.0.0.0/24", "192.0.2.0/25")],
                "mappings[0]: 10.0.0.0/24 and 192.0.2.0/25 are of different lengths",
            ),
            (
                vec![("10.0.0.0/24", "1.0.0.0/24"), ("10.0.0.9", "2.0.0.1")],
                "the inside prefixes 10.0.0.0/24 and 10.0.0.9/32 overlap",
            ),
            (
                vec![("10.0.0.0/24", "1.0.0.0/24"), ("11.0.0.0/24", "1.0.0.0/24")],
                "the outside prefixes 1.0.0.0/24 and 1.0.0.0/24 overlap",
            ),
        ] {
            let error = mappings(&pairs).expect_err(told);
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn the_shortest_prefix_takes_everything() {
        let all = mappings(&[("0.0.0.0/0", "0.0.0.0/0")]).expect("well-formed");
        assert_eq!(all.inside.translate(u32::MAX), Some(u32::MAX));
        assert_eq!(mappings(&[]).expect("none is allowed").inside.translate(1), None);
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_scan_and_the_other_side_undoes_it(
            blocks in prop::collection::btree_map(0u32..64, (0u32..64, 24u32..=32), 0..20),
            address in 0x0a00_0000u32..0x0a00_4100,
        ) {
            let mut taken = std::collections::BTreeSet::new();
            let blocks: Vec<_> = blocks.into_iter().filter(|(_, (outside, _))| taken.insert(*outside)).collect();
            let prefix = |base: u32, block: u32, length: u32| {
                format!("{}/{length}", Ipv4Addr::from_bits(base + block * 256))
            };
            let pair = |(inside, (outside, length)): &(u32, (u32, u32))| {
                (prefix(0x0a00_0000, *inside, *length), prefix(0xc000_0000, *outside, *length))
            };
            let pairs: Vec<_> = blocks.iter().map(pair).collect();
            let pairs: Vec<_> = pairs.iter().map(|(inside, outside)| (inside.as_str(), outside.as_str())).collect();
            let both = mappings(&pairs).expect("blocks do not overlap");
            let scan = blocks.iter().find_map(|(inside, (outside, length))| {
                let host = address.checked_sub(0x0a00_0000 + inside * 256)?;
                (host < 1 << (32 - length)).then_some(0xc000_0000 + outside * 256 + host)
            });
            prop_assert_eq!(both.inside.translate(address), scan);
            prop_assert_eq!(scan.and_then(|outside| both.outside.translate(outside)), scan.map(|_| address));
        }
    }
}

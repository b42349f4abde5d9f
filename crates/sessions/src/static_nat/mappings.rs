//! Pairs of an inside and an outside IPv4 prefix, with lookups from either side.

use std::fmt;
use std::net::Ipv4Addr;

use forebay_graph::{SetupError, short};
use forebay_packet::host_address::check_host_prefix;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::side::Side;

/// A mapping between two prefixes of the same length.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// The inside addresses, such as `10.0.0.0/24`. Without a length it is one address.
    pub(super) inside: Prefix,
    /// The outside addresses, such as `192.0.2.0/24`.
    pub(super) outside: Prefix,
}

/// An IPv4 prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub(super) struct Prefix {
    /// The first address, in host byte order.
    pub(super) start: u32,
    /// The netmask, in host byte order.
    pub(super) mask: u32,
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.to_string()
    }
}

impl TryFrom<String> for Prefix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl Prefix {
    /// Parses a prefix. Without a length it has 32 bits.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (address, length) = text.split_once('/').unwrap_or((text, "32"));
        let digits = !length.is_empty() && length.bytes().all(|digit| digit.is_ascii_digit());
        let length = length.parse::<u32>().ok().filter(|length| digits && *length <= 32);
        let (Ok(address), Some(length)) = (address.parse::<Ipv4Addr>(), length) else {
            let text = short(text);
            return Err(format!(
                "'{text}' is not an IPv4 prefix: write an address and a length from 0 to 32, such as 10.0.0.0/24"
            ));
        };
        let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
        let start = address.to_bits();
        if start & !mask != 0 {
            return Err(format!(
                "'{text}' has bits set beyond its prefix length: the prefix is {}/{length}",
                Ipv4Addr::from_bits(start & mask)
            ));
        }
        Ok(Self { start, mask })
    }
}

impl Prefix {
    pub(super) fn length(self) -> u32 {
        self.mask.count_ones()
    }

    pub(super) fn last(self) -> u32 {
        self.start | !self.mask
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.start), self.length())
    }
}

/// The mappings, with lookups from either side.
#[derive(Clone, Debug, Default)]
pub(super) struct Mappings {
    pub(super) inside: Side,
    pub(super) outside: Side,
}

impl Mappings {
    /// Builds the mappings.
    ///
    /// # Errors
    /// A mapping is invalid, or two prefixes of one side overlap, as a fault of the parameter `mappings`.
    pub(super) fn of(mappings: &[Mapping]) -> Result<Self, SetupError> {
        for (index, mapping) in mappings.iter().enumerate() {
            mapping.check().map_err(|error| SetupError::at(format!("mappings[{index}]"), error.to_string()))?;
        }
        let side = |name: &str, pairs: &mut dyn Iterator<Item = (Prefix, Prefix)>| {
            Side::new(pairs).map_err(|(one, other)| {
                let wrong = format!("the {name} prefixes {one} and {other} overlap");
                SetupError::with_hint("mappings", wrong, "change or remove one of them")
            })
        };
        let inside = side("inside", &mut mappings.iter().map(|mapping| (mapping.inside, mapping.outside)))?;
        let outside = side("outside", &mut mappings.iter().map(|mapping| (mapping.outside, mapping.inside)))?;
        Ok(Self { inside, outside })
    }

    /// Adds a mapping.
    ///
    /// # Errors
    /// A prefix is invalid or overlaps with another mapping. Then nothing is added.
    pub(super) fn add(&mut self, mapping: &Mapping) -> Result<(), MappingError> {
        mapping.check()?;
        let Mapping { inside, outside } = *mapping;
        if let Some((other, to)) = self.inside.overlapping(inside) {
            return Err(match other == inside {
                true => MappingError::Known { inside, outside: Prefix { start: to, ..inside } },
                false => MappingError::Overlap { side: "inside", prefix: inside, other },
            });
        }
        if let Some((other, _)) = self.outside.overlapping(outside) {
            return Err(MappingError::Overlap { side: "outside", prefix: outside, other });
        }
        self.inside.insert(inside, outside.start);
        self.outside.insert(outside, inside.start);
        Ok(())
    }

    /// Removes the mapping of exactly this inside prefix. Returns its outside prefix, or `None` if there is no such
    /// mapping.
    pub(super) fn remove(&mut self, inside: Prefix) -> Option<Prefix> {
        let outside = Prefix { start: self.inside.remove(inside)?, ..inside };
        self.outside.remove(outside);
        Some(outside)
    }
}

/// Reason why a mapping cannot be added or removed.
#[derive(Debug, thiserror::Error)]
pub(super) enum MappingError {
    #[error("{0} and {1} have different lengths: allowed are prefixes of the same length")]
    Lengths(Prefix, Prefix),
    #[error("{0}: {1}")]
    NoHosts(Prefix, String),
    #[error("{inside} is already mapped to {outside}: use 'replace'")]
    Known { inside: Prefix, outside: Prefix },
    #[error(
        "the {side} prefix {prefix} overlaps with {other}, which is mapped: allowed are prefixes that do not overlap"
    )]
    Overlap { side: &'static str, prefix: Prefix, other: Prefix },
    #[error("no mapping has the inside prefix {0}: `forebay show table NAME` lists the inside prefixes")]
    Unknown(Prefix),
    #[error("{inside} is mapped to {outside}: write this outside prefix, or leave it out")]
    Other { inside: Prefix, outside: Prefix },
}

impl Mapping {
    /// Checks that both prefixes have the same length and contain only addresses that hosts may have.
    fn check(&self) -> Result<(), MappingError> {
        if self.inside.mask != self.outside.mask {
            return Err(MappingError::Lengths(self.inside, self.outside));
        }
        for prefix in [self.inside, self.outside] {
            let hosts = check_host_prefix(prefix.start.into(), prefix.last().into());
            hosts.map_err(|why| MappingError::NoHosts(prefix, why))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn mappings(pairs: &[(&str, &str)]) -> Result<Mappings, String> {
        let list: Vec<_> =
            pairs.iter().map(|(inside, outside)| json!({ "inside": inside, "outside": outside })).collect();
        let list: Vec<Mapping> = serde_json::from_value(json!(list)).map_err(|error| error.to_string())?;
        Mappings::of(&list).map_err(|error| error.to_string())
    }

    #[test]
    fn faults_are_named() {
        for (pairs, expected) in [
            (vec![("10.0.0.0/33", "192.0.2.0/24")], "'10.0.0.0/33' is not an IPv4 prefix"),
            (vec![("10.0.0.0/+8", "192.0.2.0/24")], "'10.0.0.0/+8' is not an IPv4 prefix"),
            (vec![("10.0.0/24", "192.0.2.0/24")], "'10.0.0/24' is not an IPv4 prefix"),
            (
                vec![("10.0.0.1/24", "192.0.2.0/24")],
                "'10.0.0.1/24' has bits set beyond its prefix length: the prefix is 10.0.0.0/24",
            ),
            (vec![("10.0.0.0/24", "192.0.2.0/25")], "mappings[0]: 10.0.0.0/24 and 192.0.2.0/25 have different lengths"),
            (
                vec![("10.0.0.0/24", "1.0.0.0/24"), ("10.0.0.9", "2.0.0.1")],
                "the inside prefixes 10.0.0.0/24 and 10.0.0.9/32 overlap: change or remove one of them",
            ),
            (
                vec![("10.0.0.0/24", "1.0.0.0/24"), ("11.0.0.0/24", "1.0.0.0/24")],
                "the outside prefixes 1.0.0.0/24 and 1.0.0.0/24 overlap: change or remove one of them",
            ),
        ] {
            let error = mappings(&pairs).expect_err(expected);
            assert!(error.contains(expected), "{error}");
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

//! The addresses and ports of the packets: prefixes, a routes file, ranges of port numbers.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::address::Prefix;

/// The source addresses of packets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a prefix, for example 10.0.0.0/16, or a list of prefixes")]
pub enum Origin {
    /// Addresses from one prefix.
    One(Prefix),
    /// Addresses from several prefixes.
    List(Vec<Prefix>),
}

/// The destination addresses of packets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a prefix such as 10.0.0.0/16, a list of prefixes, or { routes: FILE }")]
pub enum Destination {
    /// Addresses from one prefix.
    One(Prefix),
    /// Addresses from several prefixes.
    List(Vec<Prefix>),
    /// Addresses from the prefixes of a file.
    File(RoutesFile),
}

/// A routes file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RoutesFile {
    /// The name of the file. Each line begins with a prefix.
    pub routes: String,
}

impl Default for Destination {
    fn default() -> Self {
        Self::One("198.19.0.0/16".parse().expect("a prefix"))
    }
}

/// A range of port numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "PortText")]
#[schemars(with = "PortText")]
pub struct PortRange {
    pub(super) first: u16,
    pub(super) last: u16,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a port number, or a range such as 1024-65535")]
enum PortText {
    One(u16),
    Range(String),
}

impl TryFrom<PortText> for PortRange {
    type Error = String;

    fn try_from(text: PortText) -> Result<Self, String> {
        let text = match text {
            PortText::One(port) => return Ok(Self { first: port, last: port }),
            PortText::Range(text) => text,
        };
        let range = text.split_once('-').unwrap_or((&text, &text));
        let (Ok(first), Ok(last)) = (range.0.trim().parse(), range.1.trim().parse()) else {
            return Err(format!(
                "'{text}' is not a range of ports: write a number from 0 to 65535, or two numbers with a hyphen, for \
                 example 1024-65535"
            ));
        };
        if first > last {
            return Err(format!("the range of ports {text} ends before it starts: write the lower port first"));
        }
        Ok(Self { first, last })
    }
}

impl PortRange {
    /// Returns the `n`-th port of the range, cyclically.
    pub(in crate::generator) fn nth(self, n: usize) -> u16 {
        self.first + (n % (usize::from(self.last - self.first) + 1)) as u16
    }
}

//! The addresses that sessions get: prefixes, and the rule that spreads sessions over them.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

use forebay_graph::files::{MOST_TABLE, read_text};
use schemars::JsonSchema;
use serde::Deserialize;
use thiserror::Error;

/// An address with a prefix length, `10.0.0.0/16` or `2001:db8::/32`; without a length it is one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct Prefix {
    /// The address, bits beyond the length being zero, left-aligned for IPv4 too.
    bits: u128,
    length: u8,
    ipv6: bool,
}

/// Text that is not a prefix.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("'{0}' is not a prefix: an IPv4 or IPv6 address and a length, such as 10.0.0.0/16 or 2001:db8::/32")]
pub struct PrefixError(String);

/// Why a file of routes cannot be used.
#[derive(Debug, Error)]
pub enum RoutesError {
    /// It cannot be read.
    #[error("cannot read the routes in {path}: {source}")]
    Read {
        /// Which file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line does not begin with a prefix.
    #[error("{path}:{line}: {source}")]
    Line {
        /// Which file.
        path: String,
        /// Which line, from 1.
        line: usize,
        /// What it says.
        source: PrefixError,
    },
}

impl Prefix {
    /// Whether it is of IPv6.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        self.ipv6
    }

    /// The address of host number `host`, from which only the bits that the prefix leaves free are taken; IPv4's four
    /// bytes come first.
    #[must_use]
    pub(super) fn address(&self, host: u128) -> [u8; 16] {
        let width = if self.ipv6 { 128 } else { 32 };
        let free = width - u32::from(self.length);
        let host = if free == 128 { host } else { host & ((1 << free) - 1) };
        (self.bits | host << (128 - width)).to_be_bytes()
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let bad = || PrefixError(text.chars().take(60).collect());
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let (bits, width) = match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
            IpAddr::V6(address) => (address.to_bits(), 128),
        };
        let length = length.map_or(Ok(width), str::parse).ok().filter(|length| *length <= width).ok_or_else(bad)?;
        let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
        Ok(Self { bits: bits & mask, length, ipv6: width == 128 })
    }
}

impl TryFrom<String> for Prefix {
    type Error = PrefixError;

    fn try_from(text: String) -> Result<Self, PrefixError> {
        text.parse()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = if self.ipv6 {
            IpAddr::from(self.bits.to_be_bytes())
        } else {
            IpAddr::from(((self.bits >> 96) as u32).to_be_bytes())
        };
        write!(f, "{address}/{}", self.length)
    }
}

/// Reads a file of routes: one a line, its prefix first; what follows on a line is not looked at, nor are empty lines
/// and those that start with `#`.
///
/// # Errors
/// [`RoutesError`]: a file that cannot be read, or a line that does not begin with a prefix.
pub fn read_routes(path: &Path) -> Result<Vec<Prefix>, RoutesError> {
    let name = || path.display().to_string();
    let read = read_text(path, MOST_TABLE).and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other));
    let text = read.map_err(|source| RoutesError::Read { path: name(), source })?;
    let lines = text.lines().enumerate().filter_map(|(index, line)| Some((index + 1, line.split_whitespace().next()?)));
    let lines = lines.filter(|(_, word)| !word.starts_with('#'));
    lines.map(|(line, word)| word.parse().map_err(|source| RoutesError::Line { path: name(), line, source })).collect()
}

/// Spreads sessions over prefixes: session `i` of `k` prefixes gets the `i mod k`-th, and in it the host number
/// `(i div k)` times an odd constant. Multiplying by an odd number permutes the residues of a power of two, so that
/// addresses of one prefix are all distinct until it is used up, and neighbouring sessions lie far apart in it.
pub(super) fn spread(prefixes: &[Prefix], session: usize) -> [u8; 16] {
    /// The odd number nearest to 2⁶⁴ over the golden ratio.
    const ODD: u128 = 0x9e37_79b9_7f4a_7c15;
    let round = (session / prefixes.len()) as u128;
    prefixes[session % prefixes.len()].address(round.wrapping_mul(ODD))
}

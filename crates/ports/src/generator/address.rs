//! The addresses of sessions: prefixes, and the rule that distributes sessions over them.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

use forebay_graph::files::{MOST_TABLE, read_text};
use forebay_graph::short;
use schemars::JsonSchema;
use serde::Deserialize;
use thiserror::Error;

/// An address with a prefix length, `10.0.0.0/16` or `2001:db8::/32`. Without a length it is a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct Prefix {
    /// The address. Bits after the prefix length are 0. An IPv4 address is in the upper 32 bits.
    bits: u128,
    /// The prefix length in bits: up to 32 for IPv4.
    length: u8,
    /// True for IPv6, false for IPv4.
    ipv6: bool,
}

/// A text that is not a prefix.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("'{0}' is not a prefix: write an IPv4 or IPv6 address and a length, for example 10.0.0.0/16 or 2001:db8::/32")]
pub struct PrefixError(String);

/// An error in a routes file.
#[derive(Debug, Error)]
pub enum RoutesError {
    /// The file cannot be read.
    #[error("cannot read the routes in {path}: {source}")]
    Read {
        /// The path of the file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A line does not begin with a prefix.
    #[error("{path}:{line}: {source}")]
    Line {
        /// The path of the file.
        path: String,
        /// The number of the line, from 1.
        line: usize,
        /// The error in the line.
        source: PrefixError,
    },
}

impl Prefix {
    /// Returns true for an IPv6 prefix.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        self.ipv6
    }

    /// Returns the address of the host with the number `host` in the prefix. Upper bits of `host` that do not fit are
    /// ignored. An IPv4 address is in the first four bytes.
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
        let bad = || PrefixError(short(text));
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

/// Reads the prefixes of a routes file. Each line begins with a prefix. The rest of the line is ignored, and so are
/// empty lines and lines that start with `#`.
///
/// # Errors
/// Returns a [`RoutesError`] if the file cannot be read, or if a line does not begin with a prefix.
pub fn read_routes(path: &Path) -> Result<Vec<Prefix>, RoutesError> {
    let name = || path.display().to_string();
    let read = read_text(path, MOST_TABLE).and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other));
    let text = read.map_err(|source| RoutesError::Read { path: name(), source })?;
    let lines = text.lines().enumerate().filter_map(|(index, line)| Some((index + 1, line.split_whitespace().next()?)));
    let lines = lines.filter(|(_, word)| !word.starts_with('#'));
    lines.map(|(line, word)| word.parse().map_err(|source| RoutesError::Line { path: name(), line, source })).collect()
}

/// Distributes sessions over prefixes. With `k` prefixes, session `i` gets the prefix number `i mod k`, and in it the
/// host number `(i div k)` times an odd constant. Multiplication by an odd number permutes the residues of a power of
/// two. So the addresses of a prefix do not repeat until each address has been used, and the addresses of successive
/// sessions are far apart. `prefixes` must not be empty.
pub(super) fn spread(prefixes: &[Prefix], session: usize) -> [u8; 16] {
    /// 2⁶⁴ / φ, rounded to the nearest odd number. φ is the golden ratio.
    const ODD: u128 = 0x9e37_79b9_7f4a_7c15;
    let round = (session / prefixes.len()) as u128;
    prefixes[session % prefixes.len()].address(round.wrapping_mul(ODD))
}

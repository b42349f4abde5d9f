//! Addresses and prefixes: the keys of the longest-prefix-match table.
//!
//! An address is an integer in host order (`u32` for IPv4, `u128` for IPv6), so that the first bit of the address is
//! the highest bit of the integer and "longer prefix" is "more high bits". A [`Prefix`] is valid by construction: its
//! length fits the family and its host bits are zero, so two equal prefixes are equal values and nothing past the
//! parser has to check again.

use std::fmt;
use std::hash::Hash;
use std::net::{AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u128 {}
}

/// An IP address as an integer in host order: `u32` (IPv4) or `u128` (IPv6).
pub trait Address: sealed::Sealed + Copy + Ord + Hash + fmt::Debug + Send + Sync + 'static {
    /// Bits in an address: 32 or 128.
    const BITS: u32;
    /// The address of all zeros.
    const ZERO: Self;

    /// The first 32 bits of the address.
    fn first_word(self) -> u32;
    /// The 8 bits that follow the first `depth` bits; `depth` is at most `BITS - 8`.
    fn octet_after(self, depth: u32) -> u8;
    /// Leading bits that both addresses share, 0 to `BITS`.
    fn common_bits(self, other: Self) -> u32;
    /// The address with all bits after the first `length` cleared; `length` up to `BITS`.
    fn masked(self, length: u32) -> Self;
    /// The address with all bits after the first `length` set: the last address of the prefix.
    fn filled(self, length: u32) -> Self;
    /// The standard library's type, for printing.
    fn to_ip(self) -> IpAddr;
}

macro_rules! address {
    ($int:ty, $ip:ident, $family:ident) => {
        impl Address for $int {
            const BITS: u32 = <$int>::BITS;
            const ZERO: Self = 0;

            #[inline(always)]
            fn first_word(self) -> u32 {
                (self >> (Self::BITS - 32)) as u32
            }

            #[inline(always)]
            fn octet_after(self, depth: u32) -> u8 {
                self.wrapping_shr(Self::BITS - 8 - depth) as u8
            }

            #[inline(always)]
            fn common_bits(self, other: Self) -> u32 {
                (self ^ other).leading_zeros()
            }

            fn masked(self, length: u32) -> Self {
                self & !Self::MAX.checked_shr(length).unwrap_or(0)
            }

            fn filled(self, length: u32) -> Self {
                self | Self::MAX.checked_shr(length).unwrap_or(0)
            }

            fn to_ip(self) -> IpAddr {
                IpAddr::$family($ip::from_bits(self))
            }
        }
    };
}

address!(u32, Ipv4Addr, V4);
address!(u128, Ipv6Addr, V6);

/// A prefix whose host bits are zero and whose length fits its family.
///
/// Ordered by address, then by length: a prefix sorts before everything it covers, and what it covers follows it
/// without a gap. The table's construction rests on this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    bits: A,
    length: u8,
}

impl<A: Address> Prefix<A> {
    /// The prefix of length 0: every address.
    pub const DEFAULT: Self = Self { bits: A::ZERO, length: 0 };

    /// A prefix from its first address and its length in bits.
    ///
    /// # Errors
    /// [`PrefixError::Length`] if `length` exceeds the family's bits, [`PrefixError::HostBits`] if `bits` has a bit set
    /// after the first `length`.
    pub fn new(bits: A, length: u32) -> Result<Self, PrefixError> {
        if length > A::BITS {
            return Err(PrefixError::Length { address: bits.to_ip(), length, most: A::BITS });
        }
        let masked = Self::truncated(bits, length);
        if masked.bits != bits {
            return Err(PrefixError::HostBits { address: bits.to_ip(), length, masked: masked.bits.to_ip() });
        }
        Ok(masked)
    }

    /// The prefix of `length` bits (at most the family's) that contains `address`.
    pub fn truncated(address: A, length: u32) -> Self {
        let length = length.min(A::BITS);
        Self { bits: address.masked(length), length: length as u8 }
    }

    /// The first address.
    pub fn first(self) -> A {
        self.bits
    }

    /// The last address.
    pub fn last(self) -> A {
        self.bits.filled(self.length())
    }

    /// The length in bits.
    #[inline]
    pub fn length(self) -> u32 {
        u32::from(self.length)
    }

    /// Whether `address` lies in this prefix.
    #[inline]
    pub fn contains(self, address: A) -> bool {
        self.bits.common_bits(address) >= self.length()
    }

    /// Whether every address of `other` lies in this prefix; true for equal ones.
    pub fn covers(self, other: Self) -> bool {
        self.length <= other.length && self.contains(other.bits)
    }
}

impl<A: Address> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.bits.to_ip(), self.length)
    }
}

impl<A: Address> fmt::Debug for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A prefix of either family, as text names it: `10.0.0.0/8`, `2001:db8::/32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpPrefix {
    /// An IPv4 prefix.
    V4(Prefix<u32>),
    /// An IPv6 prefix.
    V6(Prefix<u128>),
}

impl FromStr for IpPrefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, length) = text.split_once('/').ok_or_else(|| PrefixError::NoLength(text.into()))?;
        let address: IpAddr =
            address.parse().map_err(|source| PrefixError::Address { address: address.into(), source })?;
        // `u32::from_str` takes a leading plus sign, which no prefix has.
        let length =
            Some(length).filter(|text| !text.starts_with('+')).and_then(|text| text.parse().ok()).ok_or_else(|| {
                let most = if address.is_ipv4() { 32 } else { 128 };
                PrefixError::NotALength { address, length: length.into(), most }
            })?;
        match address {
            IpAddr::V4(address) => Prefix::new(address.to_bits(), length).map(Self::V4),
            IpAddr::V6(address) => Prefix::new(address.to_bits(), length).map(Self::V6),
        }
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(prefix) => prefix.fmt(f),
            Self::V6(prefix) => prefix.fmt(f),
        }
    }
}

/// Why something is no prefix.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PrefixError {
    /// No slash.
    #[error("{0:?} has no length; write address/length, as in 10.0.0.0/8")]
    NoLength(String),
    /// The part before the slash is no address.
    #[error("{address:?} is no IPv4 or IPv6 address")]
    Address {
        /// The text given.
        address: String,
        /// What the standard library found.
        source: AddrParseError,
    },
    /// The part after the slash is no number.
    #[error("{address}/{length}: {length:?} is no prefix length; allowed is 0 to {most}")]
    NotALength {
        /// The address given.
        address: IpAddr,
        /// The text given.
        length: String,
        /// The family's longest.
        most: u32,
    },
    /// Longer than the address.
    #[error("{address}/{length}: prefix length {length} is out of range (0 to {most})")]
    Length {
        /// The address given.
        address: IpAddr,
        /// The length given.
        length: u32,
        /// The family's longest.
        most: u32,
    },
    /// Bits after the prefix are set.
    #[error("{address}/{length} has bits set after its first {length}; the prefix is {masked}/{length}")]
    HostBits {
        /// The address given.
        address: IpAddr,
        /// The length given.
        length: u32,
        /// The address with the bits cleared.
        masked: IpAddr,
    },
}

//! Addresses and prefixes, the keys of the longest-prefix-match table.
//!
//! An address is an integer in host order (`u32` for IPv4, `u128` for IPv6), so the first bit of the address is the
//! highest bit of the integer. A [`Prefix`] is valid by construction: its length fits the family and its host bits are
//! zero. Two equal prefixes are therefore equal values, and code behind the parser need not check again.

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
    /// The number of bits in an address: 32 or 128.
    const BITS: u32;
    /// The all-zero address.
    const ZERO: Self;

    /// Returns the first 32 bits of the address.
    fn first_word(self) -> u32;
    /// Returns the 8 bits that follow the first `depth` bits. `depth` is at most `BITS - 8`.
    fn octet_after(self, depth: u32) -> u8;
    /// Returns the number of leading bits that both addresses share, 0 to `BITS`.
    fn common_bits(self, other: Self) -> u32;
    /// Returns the address with all bits after the first `length` cleared. `length` is at most `BITS`.
    fn masked(self, length: u32) -> Self;
    /// Returns the address with all bits after the first `length` set: the last address of the prefix.
    fn filled(self, length: u32) -> Self;
    /// Returns the address as the standard library's type, for printing.
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
/// Prefixes are ordered by address, then by length. So the prefixes that a prefix covers follow it directly, without
/// other prefixes between them. The construction of the table relies on this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    bits: A,
    length: u8,
}

impl<A: Address> Prefix<A> {
    /// The prefix of length 0, which contains every address.
    pub const DEFAULT: Self = Self { bits: A::ZERO, length: 0 };

    /// Creates a prefix from its first address and its length in bits.
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

    /// Returns the prefix of `length` bits (at most the family's) that contains `address`.
    pub fn truncated(address: A, length: u32) -> Self {
        let length = length.min(A::BITS);
        Self { bits: address.masked(length), length: length as u8 }
    }

    /// Returns the first address.
    pub fn first(self) -> A {
        self.bits
    }

    /// Returns the last address.
    pub fn last(self) -> A {
        self.bits.filled(self.length())
    }

    /// Returns the length in bits.
    #[inline]
    pub fn length(self) -> u32 {
        u32::from(self.length)
    }

    /// Returns true if the prefix contains `address`.
    #[inline]
    pub fn contains(self, address: A) -> bool {
        self.bits.common_bits(address) >= self.length()
    }

    /// Returns true if the prefix contains every address of `other`; also for equal prefixes.
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

/// A prefix of either family. Its text form is, for example, `10.0.0.0/8` or `2001:db8::/32`.
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
        // `u32::from_str` accepts a leading plus sign, which a prefix length must not have.
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

/// The reason why a text or a pair of values is not a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PrefixError {
    /// The text has no slash.
    #[error("{0:?} has no length; write address/length, as in 10.0.0.0/8")]
    NoLength(String),
    /// The part before the slash is not an address.
    #[error("{address:?} is not an IPv4 or IPv6 address")]
    Address {
        /// The text given.
        address: String,
        /// The standard library's error.
        source: AddrParseError,
    },
    /// The part after the slash is not a number.
    #[error("{address}/{length}: {length:?} is not a prefix length; allowed are 0 to {most}")]
    NotALength {
        /// The address given.
        address: IpAddr,
        /// The text given.
        length: String,
        /// The greatest length of the family.
        most: u32,
    },
    /// The length is greater than the family's number of bits.
    #[error("{address}/{length}: prefix length {length} is out of range (0 to {most})")]
    Length {
        /// The address given.
        address: IpAddr,
        /// The length given.
        length: u32,
        /// The greatest length of the family.
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

//! The first four bytes of every ICMP (RFC 792) and ICMPv6 (RFC 4443) message.

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum;
use super::ipv6::Ipv6;

/// IP protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;

/// Types of ICMP (RFC 792).
pub mod v4 {
    /// An echo's answer.
    pub const ECHO_REPLY: u8 = 0;
    /// The destination cannot be reached; the code says why.
    pub const UNREACHABLE: u8 = 3;
    /// A better router (RFC 792).
    pub const REDIRECT: u8 = 5;
    /// A wish for an echo.
    pub const ECHO: u8 = 8;
    /// The time to live is over.
    pub const TIME_EXCEEDED: u8 = 11;
    /// A header field is wrong.
    pub const PARAMETER_PROBLEM: u8 = 12;
}

/// Types of ICMPv6 (RFC 4443).
pub mod v6 {
    /// The destination cannot be reached; the code says why.
    pub const UNREACHABLE: u8 = 1;
    /// The packet is longer than the next link takes.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// The hop limit is over.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Types below are errors.
    pub const FIRST_INFORMATIONAL: u8 = 128;
    /// A wish for an echo.
    pub const ECHO: u8 = 128;
    /// An echo's answer.
    pub const ECHO_REPLY: u8 = 129;
}

/// What every message starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Icmp {
    /// Message type.
    pub kind: u8,
    /// Message code.
    pub code: u8,
    /// Checksum over the message; in ICMPv6 over a pseudo header too.
    pub checksum: U16,
}

/// The ones' complement sum, in machine order, of an ICMPv6 message and of the pseudo header that an IPv6 header stands for
/// (RFC 4443 section 2.3): all ones where the message's checksum is right.
#[must_use]
pub fn sum_over_ipv6(header: &Ipv6, message: &[u8]) -> u16 {
    let addresses = checksum::add(checksum::sum(&header.source), checksum::sum(&header.destination));
    let length = checksum::sum(&(message.len() as u32).to_be_bytes());
    let rest = checksum::add(u16::from(ICMPV6).to_be(), length);
    checksum::add(checksum::add(addresses, rest), checksum::sum(message))
}

/// The checksum field of a message whose field is 0, for the sum of all that it covers.
#[must_use]
pub fn stored(sum: u16) -> U16 {
    U16::from_bytes((!sum).to_ne_bytes())
}

//! The first four bytes of every ICMP (RFC 792) and ICMPv6 (RFC 4443) message.

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

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

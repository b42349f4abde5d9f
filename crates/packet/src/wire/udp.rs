//! The UDP header (RFC 768).

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Udp {
    /// Source port.
    pub source: U16,
    /// Destination port.
    pub destination: U16,
    /// Length of header and data, in bytes.
    pub length: U16,
    /// Checksum over a pseudo header, this header and the data; 0 in IPv4: none was computed.
    pub checksum: U16,
}

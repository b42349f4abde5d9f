//! The TCP header (RFC 9293 section 3.1).

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The fixed 20 bytes. Options may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Tcp {
    /// Source port.
    pub source: U16,
    /// Destination port.
    pub destination: U16,
    /// Sequence number.
    pub sequence: U32,
    /// Acknowledgement number.
    pub acknowledgement: U32,
    /// Header length in 32-bit words (upper 4 bits), reserved bits.
    pub offset: u8,
    /// Control bits.
    pub flags: u8,
    /// Receive window.
    pub window: U16,
    /// Checksum over a pseudo header, this header and the data.
    pub checksum: U16,
    /// Urgent pointer.
    pub urgent: U16,
}

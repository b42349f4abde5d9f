//! The VXLAN header (RFC 7348 section 5), which carries Ethernet frames in UDP.

use thiserror::Error;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The registered UDP port (RFC 7348 section 5).
pub const PORT: u16 = 4_789;
/// The largest network identifier (24 bits).
pub const MAX_VNI: u32 = (1 << 24) - 1;
/// Flag: the network identifier is valid. It is the only flag defined.
const I: u8 = 0x08;

/// The VXLAN header: eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Vxlan {
    /// Flags. Reserved flags are sent as 0 and ignored on receipt.
    pub flags: u8,
    /// Sent as 0, ignored on receipt.
    pub reserved: [u8; 3],
    /// The network identifier.
    pub vni: [u8; 3],
    /// Sent as 0, ignored on receipt.
    pub reserved_too: u8,
}

/// The reasons why bytes are not a valid VXLAN header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum VxlanError {
    /// The header has fewer than eight bytes.
    #[error("{0} bytes are too short for a VXLAN header: at least 8 are needed")]
    Truncated(usize),
    /// The I flag is not set, so the frame belongs to no network.
    #[error("the flags {0:#04x} mark the network identifier as invalid: allowed are flags with 0x08 set")]
    NoVni(u8),
}

impl Vxlan {
    /// Creates the header of a frame in network `vni`, of which the lower 24 bits are used.
    #[inline]
    #[must_use]
    pub fn of(vni: u32) -> Self {
        let [_, vni @ ..] = vni.to_be_bytes();
        Self { flags: I, reserved: [0; 3], vni, reserved_too: 0 }
    }

    /// Returns the network identifier.
    #[inline]
    #[must_use]
    pub fn vni(&self) -> u32 {
        let [a, b, c] = self.vni;
        u32::from_be_bytes([0, a, b, c])
    }

    /// Parses a header. Returns the network identifier and the frame that follows. `bytes` is the UDP payload.
    ///
    /// # Errors
    /// Returns a [`VxlanError`] if the header is invalid.
    pub fn parse(bytes: &[u8]) -> Result<(u32, &[u8]), VxlanError> {
        let (header, frame) = Self::ref_from_prefix(bytes).map_err(|_| VxlanError::Truncated(bytes.len()))?;
        if header.flags & I == 0 {
            return Err(VxlanError::NoVni(header.flags));
        }
        Ok((header.vni(), frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_byte_by_byte() {
        let bytes = [0x08, 0, 0, 0, 0x12, 0x34, 0x56, 0, 0xee];
        assert_eq!(Vxlan::parse(&bytes), Ok((0x12_3456, &[0xee][..])));
        assert_eq!(Vxlan::of(0x12_3456).as_bytes(), &bytes[..8]);
        assert_eq!(Vxlan::of(0xff12_3456), Vxlan::of(0x12_3456), "only 24 bits are used");
    }

    #[test]
    fn reserved_bits_are_ignored() {
        assert_eq!(Vxlan::parse(&[0xff, 1, 2, 3, 0, 0, 7, 9]), Ok((7, &[][..])));
    }

    #[test]
    fn invalid_headers_are_rejected() {
        assert_eq!(Vxlan::parse(&[0x08; 7]), Err(VxlanError::Truncated(7)));
        assert_eq!(Vxlan::parse(&[0xf7, 0, 0, 0, 0, 0, 7, 0]), Err(VxlanError::NoVni(0xf7)));
    }
}

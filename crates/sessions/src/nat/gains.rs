//! Checksum differences of a translated address and port. They are computed once per session and added to the checksums
//! of each of its packets.

use forebay_packet::wire::checksum;
use forebay_packet::wire::ipv4::UDP;
use forebay_tables::plain::Plain;
use zerocopy::FromZeros;

/// An address and a port.
type End = ([u8; 4], u16);

/// The differences of the checksums when an address and a port are replaced (RFC 1624 equation 3).
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(crate) struct Gains {
    /// The difference of a checksum that covers only the address: that of the IPv4 header.
    address: u16,
    /// The difference of a checksum that covers the address and the port: that of TCP and UDP.
    both: u16,
}

impl Gains {
    /// Computes the difference for replacing `old` by `new`.
    #[inline(always)]
    pub(crate) fn new((old, old_port): End, (new, new_port): End) -> Self {
        let (from, to) = (u32::from_be_bytes(old), u32::from_be_bytes(new));
        let gain = |old: u16, new: u16| checksum::add(!old, new);
        let address = checksum::add(gain((from >> 16) as u16, (to >> 16) as u16), gain(from as u16, to as u16));
        Self { address, both: checksum::add(address, gain(old_port, new_port)) }
    }

    /// Returns the difference for the opposite direction: in one's complement arithmetic the negated value.
    #[inline(always)]
    pub(crate) fn back(self) -> Self {
        Self { address: !self.address, both: !self.both }
    }

    /// Updates the checksums of a plain packet whose address and port were replaced. The address may be the source or
    /// the destination.
    #[inline(always)]
    pub(crate) fn add_to(self, plain: &mut Plain) {
        let header = !checksum::add(!plain.ip.checksum.get(), self.address);
        plain.ip.checksum.set(header);
        let protocol = plain.ip.protocol;
        if let Some(field) = plain.checksum_mut() {
            let sum = !checksum::add(!u16::from_be_bytes(*field), self.both);
            *field = as_sent(protocol, sum).to_be_bytes();
        }
    }
}

/// Returns a transport checksum as it is sent. UDP sends a result of zero as all ones, because zero means that there is
/// no checksum (RFC 768).
#[inline(always)]
pub(super) fn as_sent(protocol: u8, sum: u16) -> u16 {
    if protocol == UDP && sum == 0 { 0xffff } else { sum }
}

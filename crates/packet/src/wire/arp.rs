//! The Address Resolution Protocol for IPv4 over Ethernet (RFC 826).

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::ethernet::{EtherType, MacAddress};

/// The hardware type of Ethernet.
const ETHERNET: u16 = 1;

/// An ARP message: 28 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Arp {
    /// Hardware type: 1 for Ethernet.
    pub hardware: U16,
    /// Protocol type: the EtherType of IPv4.
    pub protocol: U16,
    /// Length of a hardware address: 6.
    pub hardware_length: u8,
    /// Length of a protocol address: 4.
    pub protocol_length: u8,
    /// [`REQUEST`](Self::REQUEST) or [`REPLY`](Self::REPLY).
    pub operation: U16,
    /// The sender's Ethernet address.
    pub sender_mac: MacAddress,
    /// The sender's IPv4 address; all zeros in a probe (RFC 5227 section 1.1).
    pub sender: [u8; 4],
    /// The receiver's Ethernet address in a reply; ignored in a request.
    pub target_mac: MacAddress,
    /// The requested IPv4 address in a request; the receiver's IPv4 address in a reply.
    pub target: [u8; 4],
}

impl Arp {
    /// The operation code of a request.
    pub const REQUEST: u16 = 1;
    /// The operation code of a reply.
    pub const REPLY: u16 = 2;

    /// Creates a message with this operation code.
    #[must_use]
    pub fn of(
        operation: u16,
        (sender_mac, sender): (MacAddress, [u8; 4]),
        (target_mac, target): (MacAddress, [u8; 4]),
    ) -> Self {
        Self {
            hardware: ETHERNET.into(),
            protocol: EtherType::IPV4.into(),
            hardware_length: 6,
            protocol_length: 4,
            operation: operation.into(),
            sender_mac,
            sender,
            target_mac,
            target,
        }
    }

    /// Parses the bytes after the Ethernet header. Returns `None` if they are too short, name another hardware or
    /// protocol, or have another operation code than that of a request or reply.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<&Self> {
        let (arp, _) = Self::ref_from_prefix(bytes).ok()?;
        let right = arp.hardware.get() == ETHERNET
            && arp.protocol.get() == EtherType::IPV4
            && (arp.hardware_length, arp.protocol_length) == (6, 4)
            && matches!(arp.operation.get(), Self::REQUEST | Self::REPLY);
        right.then_some(arp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: [u8; 28] = [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 192, 0, 2, 9];

    #[test]
    fn a_request_byte_by_byte() {
        let mac = MacAddress([2, 0, 0, 0, 0, 1]);
        let request = Arp::of(Arp::REQUEST, (mac, [192, 0, 2, 1]), (MacAddress::default(), [192, 0, 2, 9]));
        assert_eq!(request.as_bytes(), BYTES);
        assert_eq!(Arp::parse(&BYTES), Some(&request));
    }

    #[test]
    fn invalid_messages_are_rejected() {
        assert_eq!(Arp::parse(&BYTES[..27]), None);
        for (at, value) in [(0, 1), (1, 6), (2, 0x86), (4, 8), (5, 16), (7, 3), (7, 0)] {
            let mut bytes = BYTES;
            bytes[at] = value;
            assert_eq!(Arp::parse(&bytes), None, "byte {at}");
        }
    }
}

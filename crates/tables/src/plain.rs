//! The headers of a plain packet: TCP or UDP over IPv4, without tags, options or fragments. Nearly all packets are
//! plain.
//!
//! Functions check once whether a packet is plain, and then read its fields at fixed positions.

use forebay_packet::Packet;
use forebay_packet::wire::ethernet::{EtherType, Ethernet};
use forebay_packet::wire::ipv4::{Ipv4, TCP, UDP};
use forebay_packet::wire::tcp::Tcp;
use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::sessions::Tuple4;

/// An Ethernet header, an IPv4 header without options, and the 20 bytes after it: a TCP header without options, or a
/// UDP header and 12 more bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Plain {
    ethernet: Ethernet,
    /// The IPv4 header.
    pub ip: Ipv4,
    /// Source port.
    pub source: U16,
    /// Destination port.
    pub destination: U16,
    /// The rest of the transport header.
    rest: [u8; 16],
}

/// The bits of the IPv4 field with flags and offset that are set only in fragments: "more fragments" and the offset.
pub const FRAGMENT: u16 = 0x3fff;

impl Plain {
    /// Returns the headers of a plain packet: TCP or UDP over IPv4, untagged, without IP options, not a fragment, with
    /// a complete transport header. Returns `None` for all other packets, which may also be valid.
    #[inline(always)]
    #[must_use]
    pub fn of(packet: &Packet) -> Option<&Self> {
        packet.view::<Self>(0).filter(|it| it.is_plain())
    }

    /// As [`of`](Self::of), mutable.
    #[inline(always)]
    #[must_use]
    pub fn of_mut(packet: &mut Packet) -> Option<&mut Self> {
        packet.view_mut::<Self>(0).filter(|it| it.is_plain())
    }

    /// As [`of_mut`](Self::of_mut), for a packet that is known to be plain. Checks only the length.
    #[inline(always)]
    #[must_use]
    pub fn known_mut(packet: &mut Packet) -> Option<&mut Self> {
        packet.view_mut::<Self>(0)
    }

    #[inline(always)]
    fn is_plain(&self) -> bool {
        let Self { ethernet, ip, .. } = self;
        let least = match ip.protocol {
            TCP => size_of::<Ipv4>() + size_of::<Tcp>(),
            UDP => size_of::<Ipv4>() + 8,
            _ => usize::MAX,
        };
        let whole = ip.version_ihl == 0x45 && ip.flags_fragment.get() & FRAGMENT == 0;
        ethernet.ether_type.get() == EtherType::IPV4 && whole && usize::from(ip.total_length.get()) >= least
    }

    /// Returns the 5-tuple.
    #[inline(always)]
    #[must_use]
    pub fn tuple(&self) -> Tuple4 {
        let ports = (self.source.get(), self.destination.get());
        Tuple4::new(self.ip.source, self.ip.destination, ports, self.ip.protocol)
    }

    /// Returns TCP's control bits (FIN is the lowest bit); 0 for UDP.
    #[inline(always)]
    #[must_use]
    pub fn flags(&self) -> u8 {
        // `rest` begins with the sequence number, the acknowledgement number, the offset and the flags.
        if self.ip.protocol == TCP { self.rest[9] } else { 0 }
    }

    /// Returns the transport's checksum, if there is one.
    #[inline(always)]
    pub fn checksum_mut(&mut self) -> Option<&mut [u8; 2]> {
        let field = match self.ip.protocol {
            TCP => &mut self.rest[12..14],
            _ => &mut self.rest[2..4],
        };
        // A UDP checksum of 0 means that there is none (RFC 768).
        field.first_chunk_mut::<2>().filter(|field| self.ip.protocol == TCP || **field != [0, 0])
    }
}

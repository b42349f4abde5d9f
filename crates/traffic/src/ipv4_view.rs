//! The fields of an IPv4 header that meters and shapers need, read once: the length and the addresses.

use forebay_packet::Packet;
use forebay_packet::wire::ethernet::{EtherType, Ethernet};
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// An Ethernet and an IPv4 header. Fields that are compared together are one number.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Untagged {
    macs: [u8; 12],
    /// The Ethernet type; version and header length, traffic class, total length, identification.
    start: U64,
    /// Fragmentation, time to live, protocol, checksum.
    middle: [u8; 6],
    source: U32,
    destination: U32,
}

/// Fields of an IPv4 header.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4View {
    /// Source address, as a number in host byte order.
    pub source: u32,
    /// Destination address, as a number in host byte order.
    pub destination: u32,
    /// Length of the IP packet in bytes. If the header has no length (see `Packet::network_end`), or a length beyond
    /// the frame, the number of bytes in the frame.
    pub length: usize,
}

impl Ipv4View {
    /// Reads the packet's IPv4 header, if it has one.
    #[inline(always)]
    #[must_use]
    pub fn of(packet: &mut Packet) -> Option<Self> {
        let Some(frame) = packet.view::<Untagged>(0) else { return Self::of_any(packet) };
        let (start, room) = (frame.start.get(), packet.len() - size_of::<Ethernet>());
        let length = usize::from((start >> 16) as u16);
        // Subtracting 1 turns a length of 0 into a value beyond any frame.
        if start >> 44 != u64::from(EtherType::IPV4) << 4 | 4 || length.wrapping_sub(1) >= room {
            return Self::of_any(packet);
        }
        Some(Self { source: frame.source.get(), destination: frame.destination.get(), length })
    }

    /// Reads the header like [`of`](Self::of), for any frame.
    #[cold]
    #[inline(never)]
    fn of_any(packet: &mut Packet) -> Option<Self> {
        let (header, room) = packet.ipv4_and_room()?;
        let total = usize::from(header.total_length.get());
        Some(Self {
            source: u32::from_be_bytes(header.source),
            destination: u32::from_be_bytes(header.destination),
            length: if total == 0 { room } else { total.min(room) },
        })
    }
}

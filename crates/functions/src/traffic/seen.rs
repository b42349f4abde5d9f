//! What an account needs of an IPv4 header, read once: the length and the addresses.

use forebay_packet::Packet;
use forebay_packet::wire::ethernet::{EtherType, Ethernet};
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// IPv4 straight above Ethernet. Fields that are compared together are one number.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Untagged {
    macs: [u8; 12],
    /// Ethernet's type; version and header length, traffic class, total length, identification.
    start: U64,
    /// Fragmentation, time to live, protocol, checksum.
    middle: [u8; 6],
    source: U32,
    destination: U32,
}

/// What an IPv4 header says.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The addresses' numbers.
    pub source: u32,
    /// Likewise.
    pub destination: u32,
    /// Bytes of the IP packet; where the header says none (`Packet::network_end`), or more than the frame has, those that
    /// the frame has.
    pub length: usize,
}

impl Seen {
    /// What the packet's IPv4 header says, where it has one.
    #[inline(always)]
    #[must_use]
    pub fn of(packet: &mut Packet) -> Option<Self> {
        let Some(frame) = packet.view::<Untagged>(0) else { return Self::of_any(packet) };
        let (start, room) = (frame.start.get(), packet.len() - size_of::<Ethernet>());
        let length = usize::from((start >> 16) as u16);
        // Less one, zero is more than any frame has.
        if start >> 44 != u64::from(EtherType::IPV4) << 4 | 4 || length.wrapping_sub(1) >= room {
            return Self::of_any(packet);
        }
        Some(Self { source: frame.source.get(), destination: frame.destination.get(), length })
    }

    /// The same, for any frame.
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

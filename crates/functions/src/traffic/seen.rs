//! What an account needs of an IPv4 header, read once: the length and the addresses.

use forebay_packet::Packet;

/// Fields of an IPv4 header.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The addresses' numbers.
    pub source: u32,
    /// Likewise.
    pub destination: u32,
    total_length: u16,
    /// Bytes that the frame has from the header on.
    room: usize,
}

impl Seen {
    /// What the packet's IPv4 header says, where it has one.
    #[inline(always)]
    #[must_use]
    pub fn of(packet: &mut Packet) -> Option<Self> {
        let (header, room) = packet.ipv4_and_room()?;
        Some(Self {
            source: u32::from_be_bytes(header.source),
            destination: u32::from_be_bytes(header.destination),
            total_length: header.total_length.get(),
            room,
        })
    }

    /// The IP packet's own length; a header that claims more than there is counts what there is.
    #[inline(always)]
    #[must_use]
    pub fn length(self) -> usize {
        // A length of zero is none (`Packet::network_end`): less one it is the greatest.
        usize::from(self.total_length).wrapping_sub(1).min(self.room.wrapping_sub(1)).wrapping_add(1)
    }
}

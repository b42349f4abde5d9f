//! Locates the headers and the payload of a UDP datagram in a frame, and updates the headers when the payload grows or
//! shrinks.

use forebay_packet::wire::checksum;
use forebay_packet::wire::ethernet::{EtherType, Ethernet};
use forebay_packet::wire::ipv4::{self, Ipv4};
use forebay_packet::wire::ipv6::{self, Ipv6};
use forebay_packet::wire::udp::Udp;
use forebay_packet::{Hidden, Network, Packet};
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// The number of bytes of a UDP header.
const UDP: usize = size_of::<Udp>();

/// The offsets of a datagram's parts in a frame, in bytes. The frame ends where the datagram ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Datagram {
    /// The IP header.
    pub(crate) ip: usize,
    /// The UDP header.
    pub(crate) udp: usize,
    /// True if the IP header is IPv6.
    pub(crate) six: bool,
}

/// The reason why the payload of a frame cannot be encrypted or decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// The frame is not UDP over IP.
    Other,
    /// The addresses or the protocol cannot be read in the frame, which may be UDP.
    Hidden,
    /// The packet is a fragment.
    Fragment,
    /// The lengths in the headers contradict each other or the length of the frame.
    Length,
}

/// IPv4 without options and UDP directly above Ethernet. Fields that are compared together form one number.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Plain {
    macs: [u8; 12],
    /// EtherType; version and header length, traffic class, total length, identification.
    start: U64,
    /// Flags and fragment offset, time to live, protocol.
    middle: U32,
    checksum: U16,
    addresses: [u8; 8],
    ports: [u8; 4],
    length: U16,
    udp_checksum: U16,
}

impl Datagram {
    /// The offsets in nearly all frames: IPv4 without options, directly above Ethernet.
    pub(crate) const PLAIN: Self =
        Self { ip: size_of::<Ethernet>(), udp: size_of::<Ethernet>() + size_of::<Ipv4>(), six: false };

    /// Returns true if a frame has its parts at the [usual offsets](Self::PLAIN) and no padding. If it returns false,
    /// the frame may still contain a datagram, which [`find`](Self::find) finds.
    #[inline(always)]
    pub(crate) fn is_plain(packet: &Packet) -> bool {
        const START: u64 = 0xffff_ff00_ffff_0000;
        const MIDDLE: u32 = 0x3fff_00ff;
        let Some(plain) = packet.view::<Plain>(0) else { return false };
        let len = packet.len() as u64;
        let [total, datagram] = [Self::PLAIN.ip, Self::PLAIN.udp].map(|before| len - before as u64);
        let start = (u64::from(EtherType::IPV4) << 48 | 0x4500 << 32) + (total << 16);
        plain.start.get() & START == start
            && plain.middle.get() & MIDDLE == u32::from(ipv4::UDP)
            && u64::from(plain.length.get()) == datagram
    }

    /// Finds the parts of a datagram in any frame. On success, it has also removed the padding after the datagram.
    pub(crate) fn find(packet: &mut Packet) -> Result<Self, Unfit> {
        let found = Self::locate(packet);
        let hides = |packet: &mut Packet| matches!(packet.hidden(), Some(Hidden::Network | Hidden::Protocol));
        if matches!(found, Err(Unfit::Other | Unfit::Length)) && hides(packet) { Err(Unfit::Hidden) } else { found }
    }

    /// Finds the parts as [`find`](Self::find) does, but never returns [`Unfit::Hidden`].
    fn locate(packet: &mut Packet) -> Result<Self, Unfit> {
        let (network, ip) = packet.network();
        let bytes = packet.data().get(ip..).ok_or(Unfit::Other)?;
        let (udp, end, six) = match network {
            Network::Ipv4 => {
                let (header, _) = Ipv4::ref_from_prefix(bytes).map_err(|_| Unfit::Other)?;
                if header.protocol != ipv4::UDP {
                    return Err(Unfit::Other);
                }
                if header.is_fragment() {
                    return Err(Unfit::Fragment);
                }
                let end = ip + usize::from(header.total_length.get());
                (ip + header.header_len().ok_or(Unfit::Length)?, end, false)
            }
            Network::Ipv6 => {
                if ipv6::upper_protocol(bytes, 0) != Some(ipv4::UDP) {
                    return Err(Unfit::Other);
                }
                if ipv6::is_fragment(bytes, 0) {
                    return Err(Unfit::Fragment);
                }
                let (header, _) = Ipv6::ref_from_prefix(bytes).map_err(|_| Unfit::Other)?;
                let end = ip + size_of::<Ipv6>() + usize::from(header.payload_length.get());
                let (_, above) = ipv6::upper_layer(bytes, 0).ok_or(Unfit::Length)?;
                (ip + above, end, true)
            }
            Network::Other => return Err(Unfit::Other),
        };
        // Packets with bytes after the datagram (UDP options, RFC 9868) are refused: these bytes would be in the way of
        // the tag.
        let datagram = packet.data().get(udp..end).ok_or(Unfit::Length)?;
        let (header, _) = Udp::ref_from_prefix(datagram).map_err(|_| Unfit::Length)?;
        if usize::from(header.length.get()) != datagram.len() {
            return Err(Unfit::Length);
        }
        packet.truncate(end);
        Ok(Self { ip, udp, six })
    }

    /// Returns the offset of the payload.
    #[inline(always)]
    pub(crate) fn payload(self) -> usize {
        self.udp + UDP
    }

    /// Returns true if the datagram has a checksum.
    #[inline(always)]
    pub(crate) fn is_summed(self, packet: &Packet) -> bool {
        packet.view::<Udp>(self.udp).is_some_and(|header| header.checksum.get() != 0)
    }

    /// Updates the lengths of a datagram that has become `more` bytes longer, or shorter if `more` is negative. The
    /// headers and the new payload must already be in place. `sum` returns the new UDP checksum for the old one. Both
    /// values are the two bytes of the field, read in the byte order of the machine.
    #[inline(always)]
    pub(crate) fn resize(self, packet: &mut Packet, more: i16, sum: impl FnOnce(u16) -> u16) {
        if self.six {
            if let Some(header) = packet.view_mut::<Ipv6>(self.ip) {
                let length = header.payload_length.get().wrapping_add_signed(more);
                header.payload_length.set(length);
            }
        } else if let Some(header) = packet.view_mut::<Ipv4>(self.ip) {
            let old = header.total_length.get();
            let length = old.wrapping_add_signed(more);
            header.total_length.set(length);
            header.checksum.set(checksum::replace16(header.checksum.get(), old, length));
        }
        if let Some(header) = packet.view_mut::<Udp>(self.udp) {
            let length = header.length.get().wrapping_add_signed(more);
            header.length.set(length);
            let field = sum(u16::from_ne_bytes(header.checksum.to_bytes()));
            header.checksum = U16::from_bytes(field.to_ne_bytes());
        }
    }
}

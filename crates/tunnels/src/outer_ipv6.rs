//! Writes the outer headers of tunnels over IPv6, and the mandatory UDP checksum.
//!
//! The session determines the source port, as over IPv4, and the flow label. Routers that do not read UDP use the flow
//! label to balance load (RFC 6438). Routers never fragment IPv6 packets (RFC 8200 section 5), so there are no
//! identification numbers.

use forebay_graph::SetupError;
use forebay_packet::Packet;
use forebay_packet::wire::ethernet::{EtherType, Ethernet};
use forebay_packet::wire::ipv4;
use forebay_packet::wire::ipv6::Ipv6;
use forebay_packet::wire::udp::{self, Udp};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::entropy::{CHOSEN, Shown};
use super::outer::Refusal;
use super::settings::{Dscp, SourcePort};

const ETHERNET: usize = size_of::<Ethernet>();
/// The tunnel header without options.
const TUNNEL: usize = 8;
/// The length of the outer IP packet minus the lengths of the tunnel options and of the inner packet, in bytes.
pub const OVERHEAD: usize = size_of::<Ipv6>() + size_of::<Udp>() + TUNNEL;
/// The least MTU of an IPv6 link (RFC 8200 section 5).
const LEAST_MTU: u16 = 1_280;
/// The longest packet without a jumbo payload, in bytes.
const MOST: usize = size_of::<Ipv6>() + u16::MAX as usize;

/// The configuration of the outer headers.
pub struct OuterIpv6Settings {
    /// The source address.
    pub source: [u8; 16],
    /// The UDP source port: fixed, or derived from the session.
    pub source_port: SourcePort,
    /// The UDP destination port.
    pub destination_port: u16,
    /// The code point: fixed, or copied from the inner packet.
    pub dscp: Dscp,
    /// The hop limit, 1 to 255.
    pub hop_limit: u8,
    /// The longest outer packet, in bytes: 1280 to 65535. `None` means the longest packet without a jumbo payload,
    /// 65575.
    pub mtu: Option<u16>,
}

/// Writes outer headers.
pub struct OuterIpv6 {
    settings: OuterIpv6Settings,
    /// The longest outer packet, in bytes.
    most: usize,
}

impl OuterIpv6 {
    /// Checks the settings.
    ///
    /// # Errors
    /// A hop limit or an MTU that is out of range, as a fault of the parameter `ttl` or `mtu`.
    pub fn new(settings: OuterIpv6Settings) -> Result<Self, SetupError> {
        if settings.hop_limit == 0 {
            return Err(SetupError::wrong("ttl", "0", "with 0 the first router drops the packet", "1 to 255"));
        }
        if let Some(mtu) = settings.mtu
            && mtu < LEAST_MTU
        {
            let allowed = format!("{LEAST_MTU} (RFC 8200 section 5) to 65535");
            return Err(SetupError::wrong("mtu", mtu, format!("{mtu} is too small for IPv6"), allowed));
        }
        let most = settings.mtu.map_or(MOST, usize::from);
        Ok(Self { settings, most })
    }

    /// Returns true if an outer packet of `total` bytes is allowed.
    pub fn allows(&self, total: usize) -> bool {
        total <= self.most
    }

    /// Puts the IP packet of a frame into a tunnel to `peer`, an IPv6 address in network byte order. The frame must
    /// have an Ethernet header without tags. Its Ethernet addresses become those of the outer frame. `shown` has the
    /// inner traffic class and the session hash.
    ///
    /// `tunnel` is the tunnel header as a number: the first byte in the packet is its highest byte. Bits 32 to 47 of
    /// the number must be 0: the length of the options and the inner packet is added there. `options` follow the tunnel
    /// header.
    ///
    /// # Errors
    /// [`Refusal`].
    #[inline]
    pub fn write(
        &self,
        packet: &mut Packet,
        shown: Shown,
        peer: &[u8; 16],
        tunnel: u64,
        options: &[u8],
    ) -> Result<(), Refusal> {
        let Some(inner_len) = packet.len().checked_sub(ETHERNET) else { return Err(Refusal::NoRoom) };
        let total = inner_len + OVERHEAD + options.len();
        if !self.allows(total) {
            return Err(Refusal::TooLong);
        }
        let Some(macs) = packet.data().first_chunk::<12>().copied() else { return Err(Refusal::NoRoom) };
        packet.prepend(OVERHEAD + options.len()).ok_or(Refusal::NoRoom)?;
        packet.forget_layers();
        let OuterIpv6Settings { source, source_port, destination_port, dscp, hop_limit, .. } = self.settings;
        let class = match dscp {
            Dscp::Copy => shown.class,
            // The lower two bits are congestion notification, which is always copied (RFC 6040 section 4.1).
            Dscp::Fixed(dscp) => dscp << 2 | shown.class & 0x03,
        };
        // The uppermost bits of the session hash. Some of them are also in the source port. 0 would mean that there is
        // no label (RFC 6437 section 2).
        let label = ((shown.session >> 44) as u32).max(1);
        let segment = total - size_of::<Ipv6>();
        let mut ip = Ipv6::new_zeroed();
        ip.version_class_label = (6 << 28 | u32::from(class) << 20 | label).into();
        ip.payload_length = (segment as u16).into();
        (ip.next_header, ip.hop_limit) = (ipv4::UDP, hop_limit);
        (ip.source, ip.destination) = (source, *peer);
        let port = match source_port {
            SourcePort::Fixed(port) => port,
            SourcePort::Session => !CHOSEN | (shown.session >> 48) as u16 & CHOSEN,
        };
        let datagram = Udp {
            source: port.into(),
            destination: destination_port.into(),
            length: (segment as u16).into(),
            checksum: 0.into(),
        };
        let tunnel = tunnel + (((inner_len + options.len()) as u64) << 32);
        let parts: [&[u8]; 6] =
            [&macs, &EtherType::IPV6.to_be_bytes(), ip.as_bytes(), datagram.as_bytes(), &tunnel.to_be_bytes(), options];
        let mut rest = packet.data_mut();
        for part in parts {
            let Some((slot, after)) = rest.split_at_mut_checked(part.len()) else { return Err(Refusal::NoRoom) };
            slot.copy_from_slice(part);
            rest = after;
        }
        fill_checksum(packet);
        Ok(())
    }
}

/// Computes the UDP checksum of an outer packet directly above Ethernet. It is mandatory over IPv6 (RFC 8200 section
/// 8.1).
fn fill_checksum(packet: &mut Packet) {
    let Some((_, ip)) = packet.data_mut().split_at_mut_checked(ETHERNET) else { return };
    let Ok((header, datagram)) = Ipv6::mut_from_prefix(ip) else { return };
    let sum = udp::stored(udp::sum_over_ipv6(header, datagram));
    if let Some(slot) = datagram.get_mut(6..8) {
        slot.copy_from_slice(sum.as_bytes());
    }
}

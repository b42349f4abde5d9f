//! Writes the outer headers of tunnels over IPv6, and the checksum that UDP must have there.
//!
//! The session shows in the source port as over IPv4, and in the flow label, which is what routers that do not look at
//! UDP spread load by (RFC 6438). Nobody fragments on the way (RFC 8200 section 5), so there is nothing to number.

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
/// The tunnel's own header without options.
const TUNNEL: usize = 8;
/// What the outer packet has besides tunnel options and what is inside.
pub(crate) const OVERHEAD: usize = size_of::<Ipv6>() + size_of::<Udp>() + TUNNEL;
/// The least that a link must carry (RFC 8200 section 5).
const LEAST_MTU: u16 = 1_280;
/// The longest packet without a jumbo payload.
const MOST: usize = size_of::<Ipv6>() + u16::MAX as usize;

/// What a configuration says of the outer headers.
pub(crate) struct OuterIpv6Settings {
    pub(crate) source: [u8; 16],
    pub(crate) source_port: SourcePort,
    pub(crate) destination_port: u16,
    pub(crate) dscp: Dscp,
    pub(crate) hop_limit: u8,
    pub(crate) mtu: Option<u16>,
}

/// Writes outer headers.
pub(crate) struct OuterIpv6 {
    settings: OuterIpv6Settings,
    most: usize,
}

impl OuterIpv6 {
    pub(crate) fn new(settings: OuterIpv6Settings) -> Result<Self, SetupError> {
        if settings.hop_limit == 0 {
            return Err(SetupError::at("ttl", "0 would be dropped by the first router: allowed are 1 to 255"));
        }
        if let Some(mtu) = settings.mtu
            && mtu < LEAST_MTU
        {
            let message = format!("{mtu}: over IPv6 allowed are {LEAST_MTU} (RFC 8200 section 5) to 65535");
            return Err(SetupError::at("mtu", message));
        }
        let most = settings.mtu.map_or(MOST, usize::from);
        Ok(Self { settings, most })
    }

    /// Whether an outer packet of `total` bytes is allowed.
    pub(crate) fn allows(&self, total: usize) -> bool {
        total <= self.most
    }

    /// Puts the IP packet behind an Ethernet header without tags into a tunnel to `peer`: `tunnel` is the tunnel's header
    /// without its length, which is bits 32 to 47, and `options` follow it.
    #[inline]
    pub(crate) fn write(
        &self,
        packet: &mut Packet,
        shown: Shown,
        peer: &[u8; 16],
        tunnel: u64,
        options: &[u8],
    ) -> Result<(), Refusal> {
        let Some(inside) = packet.len().checked_sub(ETHERNET) else { return Err(Refusal::NoRoom) };
        let total = inside + OVERHEAD + options.len();
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
        // Of the session the uppermost bits, of which the source port has some; 0 would be none (RFC 6437 section 2).
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
        let tunnel = tunnel + (((inside + options.len()) as u64) << 32);
        let parts: [&[u8]; 6] =
            [&macs, &EtherType::IPV6.to_be_bytes(), ip.as_bytes(), datagram.as_bytes(), &tunnel.to_be_bytes(), options];
        let mut rest = packet.data_mut();
        for part in parts {
            let Some((place, after)) = rest.split_at_mut_checked(part.len()) else { return Err(Refusal::NoRoom) };
            place.copy_from_slice(part);
            rest = after;
        }
        fill_checksum(packet);
        Ok(())
    }
}

/// Computes the UDP checksum of an outer packet straight above Ethernet: over IPv6 there must be one (RFC 8200 section
/// 8.1).
fn fill_checksum(packet: &mut Packet) {
    let Some((_, ip)) = packet.data_mut().split_at_mut_checked(ETHERNET) else { return };
    let Ok((header, datagram)) = Ipv6::mut_from_prefix(ip) else { return };
    let sum = udp::stored(udp::sum_over_ipv6(header, datagram));
    if let Some(slot) = datagram.get_mut(6..8) {
        slot.copy_from_slice(sum.as_bytes());
    }
}

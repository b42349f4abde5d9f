//! Writes the outer headers of ESP packets: IPv4 or IPv6, UDP if there is a NAT on the way, and the header of ESP.

use forebay_graph::{Setup, SetupError};
use forebay_packet::Packet;
use forebay_packet::wire::checksum;
use forebay_packet::wire::ethernet::{EtherType, Ethernet};
use forebay_packet::wire::ipv4::{self, Ipv4};
use forebay_packet::wire::ipv6::Ipv6;
use forebay_packet::wire::udp::{self, Udp};
use forebay_tunnels::identification::Identifications;
use forebay_tunnels::settings::Dscp;
use std::net::IpAddr;
use zerocopy::big_endian::U16;
use zerocopy::{FromZeros, IntoBytes};

use crate::esp::{ESP, HEADER, IV, PORT, header_of};

/// Don't fragment (RFC 791 section 3.1).
const DF: u16 = 0x4000;
const ETHERNET: usize = size_of::<Ethernet>();

/// Fields of the inner packet that determine the outer header.
#[derive(Clone, Copy)]
pub(super) struct InnerFields {
    /// The traffic class, whose lower two bits are congestion notification.
    pub(super) class: u8,
    /// True if the inner packet must not be fragmented. Always true for IPv6, which routers never fragment.
    pub(super) whole: bool,
}

/// The destination of a packet.
#[derive(Clone, Copy)]
pub(super) struct Route {
    pub(super) peer: IpAddr,
    /// The destination port of ESP in UDP; `None` for ESP directly above IP.
    pub(super) udp: Option<u16>,
}

impl Route {
    /// Returns the number of bytes between the Ethernet header and the header of ESP.
    #[inline(always)]
    pub(super) fn before(self) -> usize {
        header_of(self.peer) + if self.udp.is_some() { size_of::<Udp>() } else { 0 }
    }
}

/// The rule by which outer IPv4 packets may be fragmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fragmenting {
    /// The outer packet may be fragmented if the inner packet may be.
    Copied,
    /// The outer packet must not be fragmented.
    Never,
    /// The outer packet may be fragmented.
    Allowed,
}

/// Writes outer headers.
pub(super) struct Headers {
    source: IpAddr,
    /// The outer differentiated services code point.
    dscp: Dscp,
    /// The outer time to live or hop limit.
    ttl: u8,
    fragmenting: Fragmenting,
    /// The identification numbers of packets that may be fragmented; `None` if outer packets must not be fragmented.
    identifications: Option<Identifications>,
}

impl Headers {
    /// Creates the writer of headers. `source` is the outer source address.
    pub(super) fn new(
        source: IpAddr,
        dscp: Dscp,
        ttl: u8,
        fragmenting: Fragmenting,
        setup: &mut Setup<'_>,
    ) -> Result<Self, SetupError> {
        let identifications = match source {
            IpAddr::V4(source) if fragmenting != Fragmenting::Never => {
                Some(Identifications::of(source.to_bits(), setup)?)
            }
            _ => None,
        };
        Ok(Self { source, dscp, ttl, fragmenting, identifications })
    }

    /// Prepares for a batch of `count` packets. Must be called before [`write`](Self::write).
    #[inline(always)]
    pub(super) fn begin(&mut self, count: usize) {
        if let Some(identifications) = &mut self.identifications {
            identifications.draw(count);
        }
    }

    /// Writes the headers of Ethernet (with the addresses `macs`), outer IP, UDP and ESP (with index, sequence number
    /// and initialisation vector) at the start of the frame. The frame must already have the bytes for these headers,
    /// and after them the encrypted text and the tag up to its end. Until this call, the packet's known layers may
    /// be those of the inner packet. This call sets the layers of the new packet, or forgets them.
    #[inline(always)]
    pub(super) fn write(
        &mut self,
        packet: &mut Packet,
        macs: [u8; 12],
        inner: InnerFields,
        route: Route,
        (spi, sequence, iv): (u32, u32, [u8; IV]),
    ) {
        let class = match self.dscp {
            Dscp::Copy => inner.class,
            // The lower two bits are congestion notification, which is always copied (RFC 6040 section 4.1).
            Dscp::Fixed(dscp) => dscp << 2 | inner.class & 0x03,
        };
        let total = packet.len() - ETHERNET;
        let protocol = if route.udp.is_some() { ipv4::UDP } else { ESP };
        let data = packet.data_mut();
        let Some((addresses, rest)) = data.split_first_chunk_mut::<12>() else { return };
        *addresses = macs;
        let Some((ether_type, rest)) = rest.split_first_chunk_mut::<2>() else { return };
        let above = match (self.source, route.peer) {
            (IpAddr::V4(source), IpAddr::V4(peer)) => {
                *ether_type = EtherType::IPV4.to_be_bytes();
                let Some((ip_header, above)) = rest.split_first_chunk_mut::<{ size_of::<Ipv4>() }>() else { return };
                let mut ip = Ipv4::new_zeroed();
                (ip.version_ihl, ip.traffic_class, ip.ttl, ip.protocol) = (0x45, class, self.ttl, protocol);
                ip.total_length = (total as u16).into();
                let whole = match self.fragmenting {
                    Fragmenting::Copied => inner.whole,
                    Fragmenting::Never => true,
                    Fragmenting::Allowed => false,
                };
                if whole {
                    ip.flags_fragment = DF.into();
                } else if let Some(identifications) = &mut self.identifications {
                    ip.identification = identifications.take().into();
                }
                (ip.source, ip.destination) = (source.octets(), peer.octets());
                ip.checksum = U16::from_bytes((!checksum::sum20(ip.as_bytes())).to_ne_bytes());
                ip_header.copy_from_slice(ip.as_bytes());
                above
            }
            (IpAddr::V6(source), IpAddr::V6(peer)) => {
                *ether_type = EtherType::IPV6.to_be_bytes();
                let Some((ip_header, above)) = rest.split_first_chunk_mut::<{ size_of::<Ipv6>() }>() else { return };
                let mut ip = Ipv6::new_zeroed();
                // The flow label is 0: a label for each session would let observers distinguish the sessions inside.
                ip.version_class_label = (6 << 28 | u32::from(class) << 20).into();
                ip.payload_length = ((total - size_of::<Ipv6>()) as u16).into();
                (ip.next_header, ip.hop_limit) = (protocol, self.ttl);
                (ip.source, ip.destination) = (source.octets(), peer.octets());
                ip_header.copy_from_slice(ip.as_bytes());
                above
            }
            // This does not happen: `peer_of` has checked that both addresses have the same family.
            _ => return,
        };
        let length = above.len();
        let esp = if let Some(port) = route.udp {
            let Some((udp_header, esp)) = above.split_first_chunk_mut::<{ size_of::<Udp>() }>() else { return };
            // Over IPv4 the checksum is 0, which means none (RFC 3948 section 2.1).
            let header = Udp {
                source: PORT.into(),
                destination: port.into(),
                length: (length as u16).into(),
                checksum: 0.into(),
            };
            udp_header.copy_from_slice(header.as_bytes());
            esp
        } else {
            above
        };
        let Some((esp_header, _)) = esp.split_first_chunk_mut::<{ HEADER + IV }>() else { return };
        esp_header[..4].copy_from_slice(&spi.to_be_bytes());
        esp_header[4..8].copy_from_slice(&sequence.to_be_bytes());
        esp_header[8..].copy_from_slice(&iv);
        if route.peer.is_ipv4() {
            packet.place_ipv4(ETHERNET);
            return;
        }
        packet.forget_layers();
        if route.udp.is_some() {
            fill_checksum(packet);
        }
    }
}

/// Writes the UDP checksum of a packet over IPv6 without extension headers, where it is mandatory (RFC 8200 section
/// 8.1).
fn fill_checksum(packet: &mut Packet) {
    let Some((_, ip)) = packet.data_mut().split_at_mut_checked(ETHERNET) else { return };
    let Ok((header, datagram)) = <Ipv6 as zerocopy::FromBytes>::mut_from_prefix(ip) else { return };
    let sum = udp::stored(udp::sum_over_ipv6(header, datagram));
    if let Some(slot) = datagram.get_mut(6..8) {
        slot.copy_from_slice(sum.as_bytes());
    }
}

//! Writes the outer headers of ESP: IPv4's or IPv6's, UDP's where a translator is on the way, and ESP's own.

use forebay_graph::{Setup, SetupError};
use forebay_packet::Packet;
use forebay_packet::wire::checksum;
use forebay_packet::wire::ethernet::{EtherType, Ethernet};
use forebay_packet::wire::ipv4::{self, Ipv4};
use forebay_packet::wire::ipv6::Ipv6;
use forebay_packet::wire::udp::{self, Udp};
use std::net::IpAddr;
use zerocopy::big_endian::U16;
use zerocopy::{FromZeros, IntoBytes};

use crate::encryption::esp::{ESP, HEADER, IV, PORT, header_of};
use crate::tunnel::identification::Identifications;
use crate::tunnel::settings::Dscp;

/// Don't fragment (RFC 791 section 3.1).
const DF: u16 = 0x4000;
const ETHERNET: usize = size_of::<Ethernet>();

/// What an outer header takes from the packet inside.
#[derive(Clone, Copy)]
pub(super) struct Inside {
    pub(super) class: u8,
    /// Whether it may not be fragmented; over IPv6 nothing is, on the way.
    pub(super) whole: bool,
}

/// Where a packet goes.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub(super) peer: IpAddr,
    pub(super) udp: Option<u16>,
}

impl Way {
    /// Bytes before ESP's header, without Ethernet's.
    #[inline(always)]
    pub(super) fn before(self) -> usize {
        header_of(self.peer) + if self.udp.is_some() { size_of::<Udp>() } else { 0 }
    }
}

/// Whether outer packets of IPv4 may be fragmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fragmenting {
    /// As the inner one may.
    Copied,
    /// They may not.
    Never,
    /// They may.
    Allowed,
}

/// Writes headers.
pub(super) struct Headers {
    source: IpAddr,
    dscp: Dscp,
    ttl: u8,
    fragmenting: Fragmenting,
    /// Numbers of packets that may be fragmented; none over IPv6.
    identifications: Option<Identifications>,
}

impl Headers {
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

    /// Gets ready for a batch of `count` packets.
    #[inline(always)]
    pub(super) fn begin(&mut self, count: usize) {
        if let Some(identifications) = &mut self.identifications {
            identifications.draw(count);
        }
    }

    /// Writes the headers before the payload of ESP, which is encrypted, and after which the frame ends: Ethernet's with the
    /// addresses `macs`, and those up to ESP's, with index, sequence number and initialisation vector.
    #[inline(always)]
    pub(super) fn write(
        &mut self,
        packet: &mut Packet,
        macs: [u8; 12],
        inside: Inside,
        way: Way,
        (spi, sequence, iv): (u32, u32, [u8; IV]),
    ) {
        let class = match self.dscp {
            Dscp::Copy => inside.class,
            // The lower two bits are congestion notification, which is always copied (RFC 6040 section 4.1).
            Dscp::Fixed(dscp) => dscp << 2 | inside.class & 0x03,
        };
        let total = packet.len() - ETHERNET;
        let protocol = if way.udp.is_some() { ipv4::UDP } else { ESP };
        let data = packet.data_mut();
        let Some((addresses, rest)) = data.split_first_chunk_mut::<12>() else { return };
        *addresses = macs;
        let Some((ether_type, rest)) = rest.split_first_chunk_mut::<2>() else { return };
        let above = match (self.source, way.peer) {
            (IpAddr::V4(source), IpAddr::V4(peer)) => {
                *ether_type = EtherType::IPV4.to_be_bytes();
                let Some((place, above)) = rest.split_first_chunk_mut::<{ size_of::<Ipv4>() }>() else { return };
                let mut ip = Ipv4::new_zeroed();
                (ip.version_ihl, ip.traffic_class, ip.ttl, ip.protocol) = (0x45, class, self.ttl, protocol);
                ip.total_length = (total as u16).into();
                let whole = match self.fragmenting {
                    Fragmenting::Copied => inside.whole,
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
                place.copy_from_slice(ip.as_bytes());
                above
            }
            (IpAddr::V6(source), IpAddr::V6(peer)) => {
                *ether_type = EtherType::IPV6.to_be_bytes();
                let Some((place, above)) = rest.split_first_chunk_mut::<{ size_of::<Ipv6>() }>() else { return };
                let mut ip = Ipv6::new_zeroed();
                // No flow label: it would tell sessions apart, which nobody outside is to do.
                ip.version_class_label = (6 << 28 | u32::from(class) << 20).into();
                ip.payload_length = ((total - size_of::<Ipv6>()) as u16).into();
                (ip.next_header, ip.hop_limit) = (protocol, self.ttl);
                (ip.source, ip.destination) = (source.octets(), peer.octets());
                place.copy_from_slice(ip.as_bytes());
                above
            }
            // Peers are of the source's kind: they were asked when they were read.
            _ => return,
        };
        let length = above.len();
        let esp = if let Some(port) = way.udp {
            let Some((place, esp)) = above.split_first_chunk_mut::<{ size_of::<Udp>() }>() else { return };
            // Over IPv4 there is no checksum (RFC 3948 section 2.1).
            let header = Udp {
                source: PORT.into(),
                destination: port.into(),
                length: (length as u16).into(),
                checksum: 0.into(),
            };
            place.copy_from_slice(header.as_bytes());
            esp
        } else {
            above
        };
        let Some((place, _)) = esp.split_first_chunk_mut::<{ HEADER + IV }>() else { return };
        place[..4].copy_from_slice(&spi.to_be_bytes());
        place[4..8].copy_from_slice(&sequence.to_be_bytes());
        place[8..].copy_from_slice(&iv);
        if way.peer.is_ipv4() {
            packet.place_ipv4(ETHERNET);
            return;
        }
        packet.forget_layers();
        if way.udp.is_some() {
            fill_checksum(packet);
        }
    }
}

/// Computes the UDP checksum over IPv6, where there must be one (RFC 8200 section 8.1).
fn fill_checksum(packet: &mut Packet) {
    let Some((_, ip)) = packet.data_mut().split_at_mut_checked(ETHERNET) else { return };
    let Ok((header, datagram)) = <Ipv6 as zerocopy::FromBytes>::mut_from_prefix(ip) else { return };
    let sum = udp::stored(udp::sum_over_ipv6(header, datagram));
    if let Some(slot) = datagram.get_mut(6..8) {
        slot.copy_from_slice(sum.as_bytes());
    }
}

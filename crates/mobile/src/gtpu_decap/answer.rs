//! Messages that the end of a tunnel sends itself: echo responses and errors (TS 29.281 sections 7.2 and 7.3).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use forebay_packet::wire::ethernet::{Ethernet, VlanTag};
use forebay_packet::wire::gtpu::{LONGEST_SIGNAL, PORT, Signal};
use forebay_packet::wire::ipv4::{self, Ipv4};
use forebay_packet::wire::ipv6::Ipv6;
use forebay_packet::wire::udp::{self, Udp};
use forebay_packet::{MOST_TAGS, Packet};
use forebay_tunnels::receive::Datagram;
use forebay_tunnels::settings::is_any_host;
use zerocopy::{FromZeros, IntoBytes};

/// The lengths of the shortest and the longest link header: Ethernet without tags, and with [`MOST_TAGS`] tags.
const LINK: RangeInclusive<usize> = size_of::<Ethernet>()..=size_of::<Ethernet>() + MOST_TAGS * size_of::<VlanTag>();
/// The longest frame: link header, IPv6, UDP, message.
const LONGEST: usize = *LINK.end() + size_of::<Ipv6>() + size_of::<Udp>() + LONGEST_SIGNAL;

/// A complete frame to send back.
pub(crate) struct Answer {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Answer {
    /// Builds the answer to a frame that carries `datagram`. Ethernet and IP addresses are exchanged, tags stay. An
    /// echo response goes to the source port of the request, other messages go to the registered port (section 4.4.2).
    /// `sequence` is the sequence number of the message. `None` if the source or destination is not the address of a
    /// single host, or if the length of the link header is not in [`LINK`].
    pub(crate) fn to(packet: &Packet, datagram: &Datagram, signal: &Signal, sequence: u16) -> Option<Self> {
        let link = packet.data().get(..datagram.ip).filter(|link| LINK.contains(&link.len()))?;
        // The Ethernet addresses are exchanged as well, and a group address (lowest bit of the first byte) is not a
        // valid source.
        let hosts = [datagram.source, datagram.destination].into_iter().all(is_any_host);
        if !hosts || (link[0] | link[6]) & 1 == 1 {
            return None;
        }
        let (message, message_len) = signal.emit(sequence);
        let message = &message[..message_len];
        let to = if *signal == Signal::EchoResponse { datagram.source_port } else { PORT };
        let length = ((size_of::<Udp>() + message_len) as u16).into();
        let header = Udp { source: PORT.into(), destination: to.into(), length, checksum: 0.into() };
        let mut answer = Self { bytes: [0; LONGEST], len: 0 };
        answer.put(&link[6..12]);
        answer.put(&link[..6]);
        answer.put(&link[12..]);
        let class = datagram.class & !0x03;
        match (datagram.source, datagram.destination) {
            (IpAddr::V4(peer), IpAddr::V4(local)) => {
                let ip = ipv4_header(local, peer, class, header.length.get());
                answer.put(ip.as_bytes());
                answer.put_datagram(header, message, |datagram| udp::sum_over_ipv4(&ip, datagram));
            }
            (IpAddr::V6(peer), IpAddr::V6(local)) => {
                let ip = ipv6_header(local, peer, class, header.length.get());
                answer.put(ip.as_bytes());
                answer.put_datagram(header, message, |datagram| udp::sum_over_ipv6(&ip, datagram));
            }
            // This does not happen: both addresses of a packet have the same family.
            _ => return None,
        }
        Some(answer)
    }

    /// Appends the UDP header and payload. `sum` computes the checksum of both and of the pseudo header.
    fn put_datagram(&mut self, header: Udp, payload: &[u8], sum: impl Fn(&[u8]) -> u16) {
        let at = self.len;
        self.put(header.as_bytes());
        self.put(payload);
        let sum = udp::stored(sum(&self.bytes[at..self.len]));
        self.bytes[at + 6..at + 8].copy_from_slice(sum.as_bytes());
    }

    /// Appends bytes to the frame.
    fn put(&mut self, part: &[u8]) {
        // The array has room for the longest frame.
        if let Some(slot) = self.bytes.get_mut(self.len..self.len + part.len()) {
            slot.copy_from_slice(part);
            self.len += part.len();
        }
    }

    /// Returns the frame.
    pub(crate) fn frame(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Returns the header of an IPv4 packet with UDP. `class` is the traffic class, and `payload` the number of bytes after
/// the header.
fn ipv4_header(source: Ipv4Addr, destination: Ipv4Addr, class: u8, payload: u16) -> Ipv4 {
    let mut ip = Ipv4::new_zeroed();
    (ip.version_ihl, ip.traffic_class) = (0x45, class);
    ip.total_length = (size_of::<Ipv4>() as u16 + payload).into();
    // Fragmentation is not allowed, so the identification has no meaning (RFC 6864 section 4.1).
    ip.flags_fragment = 0x4000.into();
    (ip.ttl, ip.protocol) = (64, ipv4::UDP);
    (ip.source, ip.destination) = (source.octets(), destination.octets());
    ip.update_checksum(&[]);
    ip
}

/// Returns the header of an IPv6 packet with UDP. `class` is the traffic class, and `payload` the number of bytes after
/// the header.
fn ipv6_header(source: Ipv6Addr, destination: Ipv6Addr, class: u8, payload: u16) -> Ipv6 {
    let mut ip = Ipv6::new_zeroed();
    ip.version_class_label = (6 << 28 | u32::from(class) << 20).into();
    ip.payload_length = payload.into();
    (ip.next_header, ip.hop_limit) = (ipv4::UDP, 64);
    (ip.source, ip.destination) = (source.octets(), destination.octets());
    ip
}

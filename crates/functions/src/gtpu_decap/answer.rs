//! What a tunnel's end sends back of its own: echo responses and errors (TS 29.281 sections 7.2 and 7.3).

use forebay_packet::Packet;
use forebay_packet::wire::gtpu::{LONGEST_SIGNAL, PORT, Signal};
use forebay_packet::wire::ipv4::{self, Ipv4};
use forebay_packet::wire::udp::{self, Udp};
use zerocopy::{FromZeros, IntoBytes};

use crate::tunnel::receive::Datagram;
use crate::tunnel::settings::is_host;

/// Ethernet with two tags, IPv4, UDP, message.
const LONGEST: usize = 22 + size_of::<Ipv4>() + size_of::<Udp>() + LONGEST_SIGNAL;

/// A whole frame.
pub(super) struct Answer {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Answer {
    /// The answer to a frame that came as `datagram`: Ethernet and IPv4 addresses are exchanged, tags stay. A response
    /// goes to the port that the request came from, other messages to the registered one (section 4.4.2). `None` where
    /// the frame came from an address that nobody has, or that many have.
    pub(super) fn to(packet: &Packet, datagram: &Datagram, signal: &Signal, sequence: u16) -> Option<Self> {
        let link = packet.data().get(..datagram.ip).filter(|link| (14..=22).contains(&link.len()))?;
        // An Ethernet source with the group bit is none either.
        if !is_host(datagram.source) || link[6] & 1 == 1 {
            return None;
        }
        let response = *signal == Signal::EchoResponse;
        let (message, message_len) = signal.emit(sequence);
        let udp_len = size_of::<Udp>() + message_len;
        let mut ip = Ipv4::new_zeroed();
        ip.version_ihl = 0x45;
        ip.traffic_class = datagram.class & !0x03;
        ip.total_length = ((size_of::<Ipv4>() + udp_len) as u16).into();
        // Not to be fragmented, so that the identification means nothing (RFC 6864 section 4.1).
        ip.flags_fragment = 0x4000.into();
        (ip.ttl, ip.protocol) = (64, ipv4::UDP);
        (ip.source, ip.destination) = (datagram.destination.to_be_bytes(), datagram.source.to_be_bytes());
        ip.update_checksum(&[]);
        let to = if response { datagram.source_port } else { PORT };
        let header =
            Udp { source: PORT.into(), destination: to.into(), length: (udp_len as u16).into(), checksum: 0.into() };
        let mut answer = Self { bytes: [0; LONGEST], len: 0 };
        answer.put(&link[6..12]);
        answer.put(&link[..6]);
        answer.put(&link[12..]);
        answer.put(ip.as_bytes());
        let at = answer.len;
        answer.put(header.as_bytes());
        answer.put(&message[..message_len]);
        let sum = udp::stored(udp::sum_over_ipv4(&ip, &answer.bytes[at..answer.len]));
        answer.bytes[at + 6..at + 8].copy_from_slice(sum.as_bytes());
        Some(answer)
    }

    fn put(&mut self, part: &[u8]) {
        // The parts are as long as the array was made for.
        if let Some(slot) = self.bytes.get_mut(self.len..self.len + part.len()) {
            slot.copy_from_slice(part);
            self.len += part.len();
        }
    }

    pub(super) fn frame(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

//! Finds and names a frame's headers, for filters and traces.
//!
//! This code is for people, not for speed. It accepts any bytes, and leaves out headers that it cannot read.

mod fields;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use forebay_packet::wire::ethernet::EtherType;
use forebay_packet::wire::ipv6;

pub use fields::{Field, changes, fields};

/// The largest number of VLAN tags that are read.
const TAGS: usize = 4;

/// The protocol number of ICMP. All numbers here are from IANA, "Assigned Internet Protocol Numbers".
pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMP6: u8 = 58;

/// The positions of a frame's headers, and the values that filters use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    /// Tag control fields, outermost first.
    pub tags: Vec<u16>,
    /// The EtherType after the tags.
    pub ether_type: Option<u16>,
    /// The offset of the network layer.
    pub network: usize,
    /// The source and destination address of an IP packet, or the IPv4 addresses of the sender and the target of an ARP
    /// packet.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// The offset after the last byte of the IP packet. Ethernet padding may follow. If the frame has no IP packet,
    /// this is the length of the frame.
    pub end: usize,
    /// The protocol above IP, after IPv6 extension headers.
    pub protocol: Option<u8>,
    /// The offset of the protocol above IP. `None` in fragments other than the first, because they do not have the
    /// header of this protocol.
    pub transport: Option<usize>,
    /// The source and destination port of TCP or UDP.
    pub ports: Option<(u16, u16)>,
}

pub(crate) fn byte(frame: &[u8], at: usize) -> Option<u8> {
    frame.get(at).copied()
}

pub(crate) fn word(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(array(frame, at)?))
}

pub(crate) fn array<const N: usize>(frame: &[u8], at: usize) -> Option<[u8; N]> {
    frame.get(at..)?.first_chunk().copied()
}

impl Layers {
    /// Finds the headers of a frame. Values of headers that cannot be read are `None`.
    #[must_use]
    pub fn of(frame: &[u8]) -> Self {
        let mut layers = Self { network: 14, ether_type: word(frame, 12), end: frame.len(), ..Self::default() };
        while layers.ether_type.is_some_and(EtherType::is_vlan) && layers.tags.len() < TAGS {
            let Some(tag) = word(frame, layers.network) else { break };
            layers.tags.push(tag);
            layers.ether_type = word(frame, layers.network + 2);
            layers.network += 4;
        }
        match layers.ether_type {
            Some(EtherType::IPV4) => layers.ipv4(frame),
            Some(EtherType::IPV6) => layers.ipv6(frame),
            Some(EtherType::ARP) => layers.arp(frame),
            _ => None,
        };
        if let (Some(TCP | UDP), Some(at)) = (layers.protocol, layers.transport) {
            let packet = &frame[..layers.end];
            layers.ports = word(packet, at).zip(word(packet, at + 2));
        }
        layers
    }

    /// Reads an IPv4 header. Returns `None` if it is not complete.
    fn ipv4(&mut self, frame: &[u8]) -> Option<()> {
        let at = self.network;
        let (first, fragment) = (byte(frame, at)?, word(frame, at + 6)?);
        let header = usize::from(first & 0x0f) * 4;
        if first >> 4 != 4 || header < 20 {
            return None;
        }
        let address = |at| Some(IpAddr::V4(Ipv4Addr::from(array::<4>(frame, at)?)));
        self.addresses = Some((address(at + 12)?, address(at + 16)?));
        // A length of 0 means that the sender has left the segmentation of a long packet to its device.
        self.end = match word(frame, at + 2)? {
            0 => frame.len(),
            length => frame.len().min(at + usize::from(length)),
        };
        self.protocol = byte(frame, at + 9);
        self.transport = (fragment & 0x1fff == 0).then_some(at + header);
        Some(())
    }

    /// Reads an IPv6 header with its extension headers. Returns `None` if it is not complete.
    fn ipv6(&mut self, frame: &[u8]) -> Option<()> {
        let at = self.network;
        if byte(frame, at)? >> 4 != 6 {
            return None;
        }
        let address = |at| Some(IpAddr::V6(Ipv6Addr::from(array::<16>(frame, at)?)));
        self.addresses = Some((address(at + 8)?, address(at + 24)?));
        self.end = frame.len().min(at + 40 + usize::from(word(frame, at + 4)?));
        self.protocol = ipv6::upper_protocol(frame, at);
        self.transport = ipv6::upper_layer(frame, at).map(|(_, upper)| upper);
        Some(())
    }

    /// Reads an ARP packet for IPv4 over Ethernet (RFC 826). Returns `None` for any other packet.
    fn arp(&mut self, frame: &[u8]) -> Option<()> {
        let at = self.network;
        if array::<6>(frame, at)? != [0, 1, 8, 0, 6, 4] {
            return None;
        }
        let address = |at| Some(IpAddr::V4(Ipv4Addr::from(array::<4>(frame, at)?)));
        self.addresses = Some((address(at + 14)?, address(at + 24)?));
        Some(())
    }
}

#[cfg(test)]
mod tests;

//! A packet's session: its 5-tuple, and a hash of it that both directions share.
//!
//! For a packet in a GTP-U tunnel, the 5-tuple is that of the inner packet (`session/tunnelled.rs`).

mod icmp;
mod tunnelled;

use forebay_units::random::mix;

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::wire::ethernet::{EtherType, Ethernet};
use crate::wire::gtpu;
use crate::wire::ipv4::{DCCP, Ipv4, SCTP, TCP, UDP, UDP_LITE};
use crate::wire::ipv6::{self, Ipv6};
use crate::wire::udp::Udp;
use crate::{Network, Packet};

/// The 5-tuple of one packet. Addresses are in network order; an IPv4 address fills the first four bytes. Ports are 0
/// if the packet has none (other protocols), and in fragments. The first fragment contains the ports, but its key does
/// not. Otherwise the first fragment would belong to another session than the other fragments of its datagram, another
/// worker would get it, and no worker could reassemble the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey {
    /// The address family. Addresses of two families may have the same bytes. The family is not part of the hash.
    pub network: Network,
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// IP protocol number. 0 for a frame that is not IP; its addresses are then the MAC addresses.
    pub protocol: u8,
}

impl SessionKey {
    /// The `protocol` in the key of a tunnel itself. This key has the outer addresses, the upper half of the tunnel
    /// identifier as source port and the lower half as destination port. The number is reserved (IANA, *Assigned
    /// Internet Protocol Numbers*), so no valid packet has this protocol.
    pub const TUNNEL: u8 = 255;

    /// Returns a hash that is the same for both directions of the session and never 0.
    #[must_use]
    pub fn symmetric_hash(&self) -> u32 {
        let words = |address: &[u8; 16]| {
            let both = u128::from_be_bytes(*address);
            ((both >> 64) as u64, both as u64)
        };
        let source = side(words(&self.source), self.source_port);
        let destination = side(words(&self.destination), self.destination_port);
        symmetric(source, destination, self.protocol)
    }

    /// Returns the key of a frame's headers. `start` is the offset of the network layer, `transport` the upper layer's
    /// protocol and offset, and `end` the end of the network layer's packet.
    #[inline]
    fn of(frame: &[u8], network: Network, start: usize, transport: Option<(u8, usize)>, end: usize) -> Self {
        let mut key =
            Self { network, source: [0; 16], destination: [0; 16], source_port: 0, destination_port: 0, protocol: 0 };
        let header = frame.get(start..).unwrap_or_default();
        let fragment = match network {
            Network::Ipv4 => {
                let Ok((header, _)) = Ipv4::ref_from_prefix(header) else { return key };
                key.source[..4].copy_from_slice(&header.source);
                key.destination[..4].copy_from_slice(&header.destination);
                key.protocol = header.protocol;
                header.is_fragment()
            }
            Network::Ipv6 => {
                let Ok((header, _)) = Ipv6::ref_from_prefix(header) else { return key };
                (key.source, key.destination) = (header.source, header.destination);
                // Behind extension headers, the upper layer's protocol is the session's protocol.
                key.protocol = transport.map_or(header.next_header, |(protocol, _)| protocol);
                let plain = transport.is_some_and(|(protocol, _)| protocol == header.next_header);
                let fragment = !plain && ipv6::is_fragment(frame, start);
                // The next header may differ among the fragments of a datagram (RFC 8200 section 4.5).
                if fragment {
                    key.protocol = ipv6::FRAGMENT;
                }
                fragment
            }
            Network::Other => {
                if let Some(macs) = frame.get(..12) {
                    key.destination[..6].copy_from_slice(&macs[..6]);
                    key.source[..6].copy_from_slice(&macs[6..]);
                }
                return key;
            }
        };
        if let (false, Some((protocol, offset))) = (fragment, transport) {
            if let Some((source, destination)) = ports_at(frame, protocol, offset, end) {
                (key.source_port, key.destination_port) = (source, destination);
            } else if icmp::is_icmp(network, protocol) {
                let message = frame.get(offset..end).unwrap_or_default();
                return icmp::key(key, message).unwrap_or(key);
            }
        }
        key
    }
}

/// An IPv4 header without options directly above Ethernet, and the two ports that TCP and UDP start with.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct WithPorts {
    ethernet: Ethernet,
    ipv4: Ipv4,
    source: U16,
    destination: U16,
}

/// Returns the source and destination port if the protocol's header starts with two ports. The header is `offset` bytes
/// into a frame whose IP packet ends at `end`.
#[inline]
fn ports_at(frame: &[u8], protocol: u8, offset: usize, end: usize) -> Option<(u16, u16)> {
    if !matches!(protocol, TCP | UDP | DCCP | SCTP | UDP_LITE) {
        return None;
    }
    let ports = frame.get(..end)?.get(offset..offset + 4)?;
    Some((u16::from_be_bytes([ports[0], ports[1]]), u16::from_be_bytes([ports[2], ports[3]])))
}

/// Returns the hash of one side of a session: the high and low half of its address, and its port.
#[inline]
fn side((high, low): (u64, u64), port: u16) -> u64 {
    // The port is spread over the whole word (by the golden ratio's bits, Knuth 6.4). If it changed only a few bits,
    // sessions that count up the port and the interface identifier (the low half of an IPv6 address) in the same bits
    // would get the same word.
    mix(mix(high) ^ low ^ u64::from(port).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Returns the hash of a session from the hashes of its sides. The result is never 0.
#[inline]
fn symmetric(source: u64, destination: u64, protocol: u8) -> u32 {
    // The sum is the same for both directions. Mixing each side first keeps sides apart that differ in few bits.
    let both = source.wrapping_add(destination);
    ((mix(both ^ u64::from(protocol)) >> 32) as u32).max(1)
}

impl Packet {
    /// Returns the packet's 5-tuple. For a frame that is not IP, the MAC addresses take the place of the IP addresses.
    /// For a packet in a GTP-U tunnel, the 5-tuple is that of the inner packet, because two gateways send all their
    /// traffic between one pair of addresses and ports. Devices of mobile networks distribute such traffic in the same
    /// way. Encapsulation and decapsulation do not change the session. A tunnel payload that is not an IP packet, and
    /// an end marker, belong to the tunnel ([`TUNNEL`](SessionKey::TUNNEL)). Other GTP-U messages belong to the session
    /// of the two gateways.
    pub fn session_key(&mut self) -> SessionKey {
        // Nearly all packets have this form; their layers need not be located.
        if let Some((header, source_port, destination_port)) = self.plain_session() {
            let protocol = header.protocol;
            let (mut source, mut destination) = ([0; 16], [0; 16]);
            source[..4].copy_from_slice(&header.source);
            destination[..4].copy_from_slice(&header.destination);
            let network = Network::Ipv4;
            return SessionKey { network, source, destination, source_port, destination_port, protocol };
        }
        self.any_key()
    }

    /// Returns the session hash of a packet of any form.
    #[inline(never)]
    fn any_hash(&mut self) -> u32 {
        self.any_key().symmetric_hash()
    }

    /// Returns the session key of a packet of any form.
    #[inline(never)]
    fn any_key(&mut self) -> SessionKey {
        let key = self.outermost_key();
        if key.destination_port == gtpu::PORT && key.protocol == UDP { self.tunnelled_key(key) } else { key }
    }

    /// Returns the 5-tuple of the outermost headers, whatever they carry.
    #[inline]
    pub fn outermost_key(&mut self) -> SessionKey {
        let (network, start) = self.network();
        let (transport, end) = (self.transport(), self.network_end());
        SessionKey::of(self.data(), network, start, transport, end)
    }

    /// Returns the session key of a datagram to the GTP-U port whose outer 5-tuple is `outermost`.
    fn tunnelled_key(&mut self, outermost: SessionKey) -> SessionKey {
        let (transport, end) = (self.transport(), self.network_end());
        let start = transport.map_or(end, |(_, offset)| offset + size_of::<Udp>());
        tunnelled::key(outermost, self.data().get(start..end).unwrap_or_default())
    }

    /// Returns the protocol, source port and destination port of TCP, UDP, UDP-Lite, SCTP and DCCP. All of them start
    /// with the two ports. Returns `None` for another protocol, for a fragment other than the first, and if the IP
    /// packet ends before the ports.
    #[inline]
    pub fn ports(&mut self) -> Option<(u8, u16, u16)> {
        let (protocol, offset) = self.transport()?;
        let end = self.network_end();
        let (source, destination) = ports_at(self.data(), protocol, offset, end)?;
        Some((protocol, source, destination))
    }

    /// Returns the IPv4 header and both ports of a TCP or UDP packet. The IPv4 header must be directly above Ethernet
    /// and have no options, and the packet must not be a later fragment. Nearly all packets pass this test, which takes
    /// few instructions. `None` gives no information about the packet.
    #[inline]
    #[must_use]
    pub fn plain_ipv4_ports(&self) -> Option<(&Ipv4, u16, u16)> {
        const OFFSET: u16 = 0x1fff;
        self.plain_ports(OFFSET)
    }

    /// Does the same as [`plain_ipv4_ports`](Self::plain_ipv4_ports), but only for packets whose session key has these
    /// addresses and ports: also returns `None` for first fragments and for packets to the GTP-U port. `None` gives no
    /// information about the packet.
    #[inline]
    #[must_use]
    pub fn plain_session(&self) -> Option<(&Ipv4, u16, u16)> {
        const MORE_OR_OFFSET: u16 = 0x3fff;
        self.plain_ports(MORE_OR_OFFSET).filter(|(_, _, destination)| *destination != gtpu::PORT)
    }

    /// Returns the header and ports of a plain packet that has none of the fragmentation `flags` set.
    #[inline(always)]
    fn plain_ports(&self, flags: u16) -> Option<(&Ipv4, u16, u16)> {
        let WithPorts { ethernet, ipv4, source, destination } = self.view(0)?;
        let untagged = ethernet.ether_type.get() == EtherType::IPV4;
        // The ports must be part of the datagram, not of the padding behind it.
        let long_enough = usize::from(ipv4.total_length.get()) >= size_of::<Ipv4>() + 2 * size_of::<U16>();
        let whole = ipv4.version_ihl == 0x45 && ipv4.flags_fragment.get() & flags == 0 && long_enough;
        let plain = untagged && whole && matches!(ipv4.protocol, TCP | UDP);
        plain.then(|| (ipv4, source.get(), destination.get()))
    }

    /// Resets the session hash. A caller that rewrites an address or a port must call this.
    #[inline]
    pub fn forget_session(&mut self) {
        self.meta_mut().session = 0;
    }

    /// Returns the session's symmetric hash, which is never 0. It is computed once and kept until
    /// [`forget_session`](Self::forget_session).
    #[inline]
    pub fn session_hash(&mut self) -> u32 {
        if self.meta().session == 0 {
            // For a plain packet, no `SessionKey` is written to memory, and the zeros of an IPv4 address are known at
            // compile time. This takes fewer instructions.
            let hash = match self.plain_session() {
                Some((header, source_port, destination_port)) => {
                    let words = |address: [u8; 4]| (u64::from(u32::from_be_bytes(address)) << 32, 0);
                    let source = side(words(header.source), source_port);
                    symmetric(source, side(words(header.destination), destination_port), header.protocol)
                }
                None => self.any_hash(),
            };
            self.meta_mut().session = hash;
        }
        self.meta().session
    }
}

// Not under Miri: this module has no unsafe code, and Miri is slowest at parsing random frames.
#[cfg(all(test, not(miri)))]
mod tests;

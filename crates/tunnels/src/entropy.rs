//! Reads the fields of the inner packet on which the outer headers depend: its traffic class, and a hash of its
//! session, which determines the UDP source port. By this port, routers that balance load over equal paths keep the
//! packets of a session on one path, and spread the sessions of a tunnel over several paths (RFC 7348 section 5, TS
//! 29.281 section 4.4.2.3).

use forebay_packet::wire::ethernet::{EtherType, Ethernet};
use forebay_packet::wire::ipv4;
use forebay_packet::{Network, Packet, SessionKey};
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// The bits of a source port that the session determines. RFC 7348 recommends the dynamic ports, which have 14 free
/// bits (RFC 6335 section 6).
pub const CHOSEN: u16 = 0x3fff;

const ETHERNET: usize = size_of::<Ethernet>();

/// The fields of an inner packet on which the outer headers depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The traffic class, or 0 if the packet is not IP.
    pub class: u8,
    /// A hash of the session. Use its upper bits, because they depend on all bits of the addresses and ports.
    pub session: u64,
}

/// Returns both halves of a product, combined by XOR (Yi, *wyhash*, 2019). The upper bits of the result depend on all
/// bits of the addresses and ports.
#[inline(always)]
fn mix(addresses: u64, ports: u32) -> u64 {
    let (one, other) = (addresses ^ 0x9e37_79b9_7f4a_7c15, u64::from(ports) ^ 0xbf58_476d_1ce4_e5b9);
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

/// Returns both IPv4 addresses of a header as a number for [`mix`]. All callers must use the same byte order.
/// Little-endian order is used, because it costs nothing on little-endian processors.
#[inline(always)]
fn addresses(bytes: [u8; 8]) -> u64 {
    u64::from_le_bytes(bytes)
}

/// An IPv4 packet without options and with ports, directly above Ethernet. Fields that are compared together form one
/// number.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Inner {
    macs: [u8; 12],
    /// EtherType, version and header length, traffic class, total length, identification.
    start: U64,
    /// Flags and fragment offset, time to live, protocol.
    middle: U32,
    checksum: U16,
    addresses: [u8; 8],
    ports: [u8; 4],
}

impl Inner {
    /// Returns the headers of a usual packet: TCP or UDP over IPv4 without options, and not a fragment. With
    /// `unpadded`, the frame must have no padding after the packet. Returns `None` for all other packets, which may
    /// also be valid.
    #[inline(always)]
    pub fn of(packet: &Packet, unpadded: bool) -> Option<&Self> {
        const MIDDLE: u32 = 0x3fff_00ff;
        let inner: &Self = packet.view(0)?;
        let (start, expected) = (inner.start.get(), u64::from(EtherType::IPV4) << 48 | 0x4500 << 32);
        // `fits` is true only if the packet contains at least its ports. With `unpadded`, the total length equals the
        // length of the frame, and the frame is at least as long as `Self`.
        let fits = if unpadded {
            start & 0xffff_ff00_ffff_0000 == expected + ((packet.len() - ETHERNET) << 16) as u64
        } else {
            let total = usize::from((start >> 16) as u16);
            start & 0xffff_ff00 << 32 == expected && total >= size_of::<Self>() - ETHERNET
        };
        let protocol = inner.middle.get() & MIDDLE;
        let plain = protocol == u32::from(ipv4::UDP) || protocol == u32::from(ipv4::TCP);
        (plain && fits).then_some(inner)
    }

    /// Returns the destination address of the inner packet, as a number in host byte order.
    #[inline(always)]
    #[must_use]
    pub fn destination(&self) -> u32 {
        let [.., a, b, c, d] = self.addresses;
        u32::from_be_bytes([a, b, c, d])
    }

    /// Returns the traffic class and the session hash of the inner packet, for the outer headers. [`Shown::of`] returns
    /// the same values for the same packet.
    #[inline(always)]
    pub fn shown(&self) -> Shown {
        let session = mix(addresses(self.addresses), u32::from_le_bytes(self.ports));
        Shown { class: (self.start.get() >> 32) as u8, session }
    }
}

impl Shown {
    /// Returns the fields of any frame. They come from its outermost headers, even if the packet is itself in a tunnel.
    pub fn of(packet: &mut Packet) -> Self {
        let class = match packet.network().0 {
            Network::Ipv4 => packet.ipv4().map_or(0, |header| header.traffic_class),
            Network::Ipv6 => packet.ipv6().map_or(0, |header| (header.version_class_label.get() >> 20) as u8),
            Network::Other => 0,
        };
        let SessionKey { source, destination, source_port, destination_port, .. } = packet.outermost_key();
        // An IPv4 address is the first word of the 16 bytes. The four words of an IPv6 address are combined into one
        // word.
        let is_ipv4 = packet.network().0 == Network::Ipv4;
        let word = |address: [u8; 16]| {
            let mut words =
                address.chunks_exact(4).map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
            if is_ipv4 {
                words.next().unwrap_or(0)
            } else {
                words.fold(0u32, |folded, word| folded.rotate_left(7) ^ word)
            }
        };
        let both = u64::from(word(source)) << 32 | u64::from(word(destination));
        let ports = u32::from(source_port) << 16 | u32::from(destination_port);
        Self { class, session: mix(addresses(both.to_be_bytes()), u32::from_le_bytes(ports.to_be_bytes())) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use etherparse::PacketBuilder;
    use forebay_packet::{Pool, PoolOptions};
    use proptest::prelude::*;

    use super::*;

    fn shown(frame: &[u8]) -> (Shown, Option<Shown>) {
        let pool = Pool::new(PoolOptions { chunks: 1, ..PoolOptions::default() }).expect("a small pool");
        let mut packet = pool.take().expect("one");
        assert!(packet.write(frame));
        let plain = Inner::of(&packet, true).map(Inner::shown);
        assert_eq!(plain, Inner::of(&packet, false).map(Inner::shown), "no frame here has padding");
        (Shown::of(&mut packet), plain)
    }

    #[test]
    fn sessions_are_spread_over_the_dynamic_ports() {
        let mut ports = HashSet::new();
        for session in 0..1_000u16 {
            let mut frame = Vec::new();
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([1; 16], [2; 16], 64).udp(session, 53);
            builder.write(&mut frame, b"").expect("memory");
            ports.insert(shown(&frame).0.session >> 50);
        }
        // 1 000 balls in 16 384 bins collide about 30 times.
        assert!(ports.len() > 900, "{} ports", ports.len());
    }

    proptest! {
        #[test]
        fn the_fast_path_gives_the_same_as_the_slow_path(
            source: [u8; 4], to: [u8; 4], source_port: u16, port: u16, tcp: bool, class: u8,
        ) {
            let mut frame = Vec::new();
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(source, to, 64);
            if tcp {
                builder.tcp(source_port, port, 1, 2).write(&mut frame, b"x").expect("memory");
            } else {
                builder.udp(source_port, port).write(&mut frame, b"x").expect("memory");
            }
            frame[15] = class;
            let (slow, fast) = shown(&frame);
            prop_assert_eq!(Some(slow), fast);
            prop_assert_eq!(slow.class, class);
        }
    }
}

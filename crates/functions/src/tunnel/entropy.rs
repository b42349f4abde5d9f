//! What of the inner packet shows in the outer headers: its traffic class, and by the UDP source port its session, so
//! that routers that spread load over equal paths keep sessions together and tunnels apart (RFC 7348 section 5,
//! TS 29.281 section 4.4.2.3).

use forebay_packet::wire::ipv4::Ipv4;
use forebay_packet::{Network, Packet, SessionKey};

/// The first of the dynamic ports (RFC 6335 section 6), which RFC 7348 asks for; 14 bits are free in them.
const DYNAMIC: u16 = 0xc000;

/// What of an inner packet shows outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Its traffic class; 0 where it is not IP.
    pub(crate) class: u8,
    /// A port for its session.
    pub(crate) port: u16,
}

/// A port for a session: two multiplications whose upper bits depend on all that goes in.
#[inline(always)]
fn port(source: u32, destination: u32, ports: u32, protocol: u8) -> u16 {
    let addresses = u64::from(source) << 32 | u64::from(destination);
    let mixed = (addresses ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = mixed ^ mixed >> 32 ^ u64::from(ports) ^ u64::from(protocol) << 32;
    DYNAMIC | (mixed.wrapping_mul(0x94d0_49bb_1331_11eb) >> 50) as u16
}

impl Shown {
    /// Of a packet of IPv4 with ports: the same as [`of`](Self::of).
    #[inline(always)]
    pub(crate) fn of_ipv4(header: &Ipv4, source_port: u16, destination_port: u16) -> Self {
        let [source, destination] = [header.source, header.destination].map(u32::from_be_bytes);
        let ports = u32::from(source_port) << 16 | u32::from(destination_port);
        Self { class: header.traffic_class, port: port(source, destination, ports, header.protocol) }
    }

    /// Of any frame.
    pub(crate) fn of(packet: &mut Packet) -> Self {
        let class = match packet.network().0 {
            Network::Ipv4 => packet.ipv4().map_or(0, |header| header.traffic_class),
            Network::Ipv6 => packet.ipv6().map_or(0, |header| (header.version_class_label.get() >> 20) as u8),
            Network::Other => 0,
        };
        let SessionKey { source, destination, source_port, destination_port, protocol } = packet.session_key();
        // Addresses of IPv4 are the first word alone.
        let fold = |address: [u8; 16]| {
            address.chunks_exact(4).fold(0u32, |folded, word| {
                folded.rotate_left(7) ^ word.iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
            })
        };
        let of_ipv4 = |address: [u8; 16]| u32::from_be_bytes([address[0], address[1], address[2], address[3]]);
        let is_ipv4 = packet.network().0 == Network::Ipv4;
        let [source, destination] =
            [source, destination].map(|address| if is_ipv4 { of_ipv4(address) } else { fold(address) });
        let ports = u32::from(source_port) << 16 | u32::from(destination_port);
        Self { class, port: port(source, destination, ports, protocol) }
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
        let plain = packet.plain_ipv4_ports().map(|(header, source, to)| Shown::of_ipv4(header, source, to));
        (Shown::of(&mut packet), plain)
    }

    #[test]
    fn sessions_are_spread_over_the_dynamic_ports() {
        let mut ports = HashSet::new();
        for session in 0..1_000u16 {
            let mut frame = Vec::new();
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([1; 16], [2; 16], 64).udp(session, 53);
            builder.write(&mut frame, b"").expect("memory");
            let port = shown(&frame).0.port;
            assert!(port >= DYNAMIC);
            ports.insert(port);
        }
        // 1 000 balls in 16 384 urns meet 30 times.
        assert!(ports.len() > 900, "{} ports", ports.len());
    }

    proptest! {
        #[test]
        fn the_short_way_says_what_the_long_one_does(
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
            let (long, short) = shown(&frame);
            prop_assert_eq!(Some(long), short);
            prop_assert_eq!(long.class, class);
        }
    }
}

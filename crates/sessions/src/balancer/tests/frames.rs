//! Frames for tests, built and checked by another implementation (etherparse).

use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};

/// An address and port.
pub(super) type End = ([u8; 4], u16);

/// A UDP frame without a tag.
pub(super) fn udp(from: End, to: End, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from.0, to.0, 64).udp(from.1, to.1);
    builder.write(&mut frame, payload).expect("memory");
    frame
}

/// A UDP frame with a VLAN tag.
pub(super) fn tagged_udp(from: End, to: End, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let tag = etherparse::VlanId::try_new(7).expect("a tag");
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).single_vlan(tag).ipv4(from.0, to.0, 64).udp(from.1, to.1);
    builder.write(&mut frame, payload).expect("memory");
    frame
}

/// A TCP frame with these flags: `S`, `A`, `F`, `R`.
pub(super) fn tcp(from: End, to: End, flags: &str) -> Vec<u8> {
    let mut builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from.0, to.0, 64).tcp(from.1, to.1, 1, 1_000);
    for flag in flags.chars() {
        builder = match flag {
            'S' => builder.syn(),
            'A' => builder.ack(7),
            'F' => builder.fin(),
            _ => builder.rst(),
        };
    }
    let mut frame = Vec::new();
    builder.write(&mut frame, b"abc").expect("memory");
    frame
}

pub(super) fn echo(from: [u8; 4], to: [u8; 4], id: u16, reply: bool) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from, to, 64);
    let mut frame = Vec::new();
    let builder = if reply { builder.icmpv4_echo_reply(id, 1) } else { builder.icmpv4_echo_request(id, 1) };
    builder.write(&mut frame, b"ping").expect("memory");
    frame
}

/// An ICMP error that quotes the first `quote` bytes of a frame's packet.
pub(super) fn error(from: [u8; 4], to: [u8; 4], frame: &[u8], quote: usize) -> Vec<u8> {
    let mut error = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from, to, 64).icmpv4_raw(3, 3, [0; 4]);
    builder.write(&mut error, &frame[14..14 + quote]).expect("memory");
    error
}

/// Returns source and destination with their ports (for ICMP, the identifier in place of both). Asserts that all
/// checksums are right.
pub(super) fn ends(frame: &[u8]) -> (End, End) {
    let parsed = SlicedPacket::from_ethernet(frame).expect("well-formed");
    let Some(NetSlice::Ipv4(network)) = parsed.net else { panic!("IPv4") };
    let header = network.header();
    assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum(), "the header's checksum");
    let (source, destination) = (header.source(), header.destination());
    let ports = match parsed.transport.expect("a transport") {
        TransportSlice::Udp(udp) => {
            let sum =
                udp.to_header().calc_checksum_ipv4_raw(source, destination, udp.payload()).expect("a short packet");
            assert!(udp.checksum() == sum || udp.checksum() == 0, "UDP's checksum");
            (udp.source_port(), udp.destination_port())
        }
        TransportSlice::Tcp(tcp) => {
            let sum =
                tcp.to_header().calc_checksum_ipv4_raw(source, destination, tcp.payload()).expect("a short packet");
            assert_eq!(tcp.checksum(), sum, "TCP's checksum");
            (tcp.source_port(), tcp.destination_port())
        }
        TransportSlice::Icmpv4(icmp) => {
            assert_eq!(icmp.checksum(), icmp.icmp_type().calc_checksum(icmp.payload()), "ICMP's checksum");
            let id = u16::from_be_bytes([icmp.slice()[4], icmp.slice()[5]]);
            (id, id)
        }
        other => panic!("{other:?}"),
    };
    ((source, ports.0), (destination, ports.1))
}

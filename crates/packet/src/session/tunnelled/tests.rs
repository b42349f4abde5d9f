//! Checks that a packet has the same session inside and outside a tunnel. Other payloads have the session of the tunnel
//! or of its ends.

use std::collections::HashSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::testing::{cases, frames};
use crate::{Packet, Pool, PoolOptions};

const TEID: u32 = 0x0001_1001;
const STATION: [u8; 4] = [192, 0, 2, 10];
const GATEWAY: [u8; 4] = [192, 0, 2, 1];

fn packet(pool: &Pool, frame: &[u8]) -> Packet {
    let mut packet = pool.take().expect("one");
    assert!(packet.write(frame));
    packet
}

fn session(frame: &[u8]) -> SessionKey {
    let options = PoolOptions { chunks: 1, frame: 2_048, headroom: 64, ..PoolOptions::default() };
    packet(&Pool::new(options).expect("a small pool"), frame).session_key()
}

/// Returns an Ethernet frame with an IP packet.
fn frame(packet: &[u8]) -> Vec<u8> {
    let kind = if packet.first().is_some_and(|byte| byte >> 4 == 6) { [0x86, 0xdd] } else { [0x08, 0x00] };
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], &kind[..], packet].concat()
}

/// Returns a message with these flags and this type.
fn message(flags: u8, kind: u8, teid: u32, body: &[u8]) -> Vec<u8> {
    [&[flags, kind][..], &(body.len() as u16).to_be_bytes(), &teid.to_be_bytes(), body].concat()
}

fn udp(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() + 8) as u16;
    [&ports.0.to_be_bytes()[..], &ports.1.to_be_bytes(), &length.to_be_bytes(), &[0, 0], payload].concat()
}

fn ipv4(from: [u8; 4], to: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16 + 20).to_be_bytes();
    let fixed = [0x45, 0, length[0], length[1], 0, 0, 0, 0, 64, protocol, 0, 0];
    [&fixed[..], &from, &to, payload].concat()
}

fn ipv6(from: u8, to: u8, next: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16).to_be_bytes();
    [&[0x60, 0, 0, 0, length[0], length[1], next, 64][..], &[from; 16], &[to; 16], payload].concat()
}

/// Returns a frame from the station to the gateway with a message.
fn to_gateway(message: &[u8]) -> Vec<u8> {
    frame(&ipv4(STATION, GATEWAY, 17, &udp((40_000, 2_152), message)))
}

fn t_pdu(inner: &[u8]) -> Vec<u8> {
    to_gateway(&message(0x30, 255, TEID, inner))
}

fn reversed(key: SessionKey) -> SessionKey {
    SessionKey {
        source: key.destination,
        destination: key.source,
        source_port: key.destination_port,
        destination_port: key.source_port,
        ..key
    }
}

/// Returns the session of the two tunnel ends.
fn of_the_ends() -> SessionKey {
    let address = |four: [u8; 4]| std::array::from_fn(|at| four.get(at).copied().unwrap_or(0));
    SessionKey {
        network: Network::Ipv4,
        source: address(STATION),
        destination: address(GATEWAY),
        source_port: 40_000,
        destination_port: 2_152,
        protocol: 17,
    }
}

fn of_the_tunnel() -> SessionKey {
    SessionKey { source_port: 1, destination_port: 0x1001, protocol: 255, ..of_the_ends() }
}

#[test]
fn tunnelled_packets_and_plain_replies_share_a_session() {
    let (user, server) = ([10, 60, 0, 1], [198, 51, 100, 7]);
    let up = ipv4(user, server, 17, &udp((5_000, 53), b"question"));
    let down = frame(&ipv4(server, user, 17, &udp((53, 5_000), b"answer")));
    // Plain, with a sequence number, with the PDU Session Container of 5G, with an unknown extension header.
    let containers = [&[0, 0, 0, 0x85, 1, 0x10, 9, 0][..], &[0, 0, 0, 0xc0, 1, 0, 5, 0]];
    let mut tunnelled = vec![t_pdu(&up), to_gateway(&message(0x32, 255, TEID, &[&[0, 7, 0, 0], &up[..]].concat()))];
    tunnelled.extend(containers.map(|header| to_gateway(&message(0x34, 255, TEID, &[header, &up].concat()))));
    // Over IPv6, and with a VLAN tag and padding.
    let over6 = udp((40_000, 2_152), &message(0x30, 255, TEID, &up));
    tunnelled.push(frame(&ipv6(1, 2, 17, &over6)));
    tunnelled.push([&t_pdu(&up)[..12], &[0x81, 0, 0, 5], &t_pdu(&up)[12..], &[0xee; 7]].concat());
    for tunnelled in tunnelled {
        assert_eq!(session(&tunnelled), session(&frame(&up)), "{tunnelled:02x?}");
        assert_eq!(session(&tunnelled), reversed(session(&down)));
        assert_eq!(session(&tunnelled).symmetric_hash(), session(&down).symmetric_hash());
    }
    let up6 = ipv6(1, 2, 6, &[0x13, 0x88, 0, 80, 0, 0, 0, 0]);
    assert_eq!(session(&t_pdu(&up6)), session(&frame(&up6)));
    assert_eq!(session(&t_pdu(&up6)).destination_port, 80);
}

#[test]
fn other_payloads_have_the_session_of_the_tunnel_or_of_its_ends() {
    let inner = ipv4([10, 60, 0, 1], [198, 51, 100, 7], 17, &udp((5_000, 53), b"question"));
    let mut longer = inner.clone();
    longer.extend([0; 3]);
    // Two Ethernet PDUs. The first byte of the destination address looks like IPv4 in one, like IPv6 in the other.
    let ethernet = |first: u8| [&[first, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0], &inner[..]].concat();
    let tunnelled = [
        ("nothing", t_pdu(&[])),
        ("unstructured data", t_pdu(b"meter reading")),
        ("an Ethernet PDU", t_pdu(&ethernet(0x46))),
        ("another", t_pdu(&ethernet(0x66))),
        ("a cut IPv4 header", t_pdu(&inner[..19])),
        ("less than IP says", t_pdu(&inner[..inner.len() - 1])),
        ("more than IP says", t_pdu(&longer)),
        ("an end marker", to_gateway(&message(0x30, 254, TEID, &[]))),
        ("an end marker with a packet", to_gateway(&message(0x30, 254, TEID, &inner))),
    ];
    for (label, frame) in tunnelled {
        assert_eq!(session(&frame), of_the_tunnel(), "{label}");
    }
    let with = |at: usize, value: u8| {
        let mut frame = t_pdu(&inner);
        frame[at] = value;
        frame
    };
    let between = [
        ("an echo request", to_gateway(&message(0x32, 1, 0, &[0, 1, 0, 0]))),
        ("an error indication", to_gateway(&message(0x32, 26, 0, &[0; 16]))),
        ("a list of extensions", to_gateway(&message(0x32, 31, 0, &[0, 0, 0, 0, 141, 1, 0x85]))),
        ("another version", with(42, 0x50)),
        ("a length beyond the datagram", with(45, 200)),
        ("extension headers that do not end", with(42, 0x34)),
        ("seven bytes", to_gateway(&[0x30; 7])),
        ("no payload", to_gateway(&[])),
    ];
    for (label, frame) in between {
        assert_eq!(session(&frame), of_the_ends(), "{label}");
    }
    // The response to an echo request has the request's session.
    let response = udp((2_152, 40_000), &message(0x32, 2, 0, &[0, 1, 0, 0, 14, 0]));
    assert_eq!(session(&frame(&ipv4(GATEWAY, STATION, 17, &response))), reversed(of_the_ends()));
    // A TCP packet to this port number, and a packet from this port, belong to no tunnel.
    let tcp = frame(&ipv4(STATION, GATEWAY, 6, &udp((40_000, 2_152), &message(0x30, 255, TEID, &inner))));
    assert_eq!(session(&tcp), SessionKey { protocol: 6, ..of_the_ends() });
    let from = frame(&ipv4(STATION, GATEWAY, 17, &udp((2_152, 40_000), &message(0x30, 255, TEID, &inner))));
    let (source_port, destination_port) = (2_152, 40_000);
    assert_eq!(session(&from), SessionKey { source_port, destination_port, ..of_the_ends() });
}

/// Regression test: the first fragment's key had its ports, so its session differed from that of the later fragments.
#[test]
fn all_fragments_of_a_datagram_share_a_session() {
    let inner = ipv4([10, 60, 0, 1], [198, 51, 100, 7], 17, &udp((5_000, 53), &[7; 40]));
    let whole = t_pdu(&inner);
    let mut outer = HashSet::new();
    for (flags, offset) in [(0x20, 0), (0x20, 1), (0, 3)] {
        let mut frame = whole.clone();
        (frame[20], frame[21]) = (flags, offset);
        outer.insert(session(&frame));
        // Fragments inside the tunnel behave likewise, and have the session they have after decapsulation.
        let mut part = inner.clone();
        (part[6], part[7]) = (flags, offset);
        assert_eq!(session(&t_pdu(&part)), session(&super::tests::frame(&part)));
        let (source_port, destination_port) = (0, 0);
        assert_eq!(session(&t_pdu(&part)), SessionKey { source_port, destination_port, ..session(&t_pdu(&inner)) });
    }
    assert_eq!(outer, [SessionKey { source_port: 0, destination_port: 0, ..of_the_ends() }].into());
    // IPv6: the first, a middle and the last fragment, behind hop-by-hop options. The next header of later fragments
    // may differ from that of the first (RFC 8200 section 4.5).
    let part = |offset: u16, payload: &[u8]| {
        let [high, low] = offset.to_be_bytes();
        let next = if offset == 9 { 60 } else { 17 };
        let extensions = [44, 0, 1, 4, 0, 0, 0, 0, next, 0, high, low, 0, 0, 0, 9];
        frame(&ipv6(1, 2, 0, &[&extensions[..], payload].concat()))
    };
    let datagram = udp((40_000, 2_152), &message(0x30, 255, TEID, &inner));
    let parts: HashSet<_> =
        [(1, &datagram[..]), (9, b"middle"), (16, b"end")].map(|(offset, bytes)| session(&part(offset, bytes))).into();
    let expected = SessionKey { source_port: 0, destination_port: 0, protocol: 44, ..session(&part(1, b"")) };
    assert_eq!(parts, [expected].into());
    // A datagram in a single fragment is whole (RFC 6946).
    assert_eq!(session(&part(0, &datagram)), session(&frame(&inner)));
}

#[test]
fn nested_tunnels_are_parsed_up_to_a_depth() {
    let inner = ipv4([10, 60, 0, 1], [198, 51, 100, 7], 17, &udp((5_000, 53), b""));
    let mut packet = inner.clone();
    for depth in 1..=MAX_NESTED_TUNNELS + 1 {
        packet = ipv4(STATION, GATEWAY, 17, &udp((40_000, 2_152), &message(0x30, 255, TEID, &packet)));
        let expected = if depth <= MAX_NESTED_TUNNELS { session(&frame(&inner)) } else { of_the_ends() };
        assert_eq!(session(&frame(&packet)), expected, "{depth} tunnels");
    }
}

proptest! {
    #![proptest_config(cases(2_048))]

    #[test]
    fn decapsulation_keeps_the_session(
        inner in prop_oneof![frames::ipv4(), frames::ipv6()], extended: bool, six: bool, teid: u32,
    ) {
        let body = if extended { [&[0, 0, 0, 0x85, 1, 0x10, 9, 0], &inner[..]].concat() } else { inner.clone() };
        let datagram = udp((40_000, 2_152), &message(if extended { 0x34 } else { 0x30 }, 255, teid, &body));
        let outer = if six { ipv6(1, 2, 17, &datagram) } else { ipv4(STATION, GATEWAY, 17, &datagram) };
        prop_assert_eq!(session(&frame(&outer)), session(&frame(&inner)));
    }

    #[test]
    fn any_tunnel_payload_has_a_session(
        flags in prop_oneof![Just(0x30u8), Just(0x34), any::<u8>()], kind in prop_oneof![Just(255u8), any::<u8>()],
        body in vec(any::<u8>(), 0..120), cut in 0usize..200,
    ) {
        let mut frame = to_gateway(&message(flags, kind, TEID, &body));
        frame.truncate(cut);
        prop_assert_ne!(session(&frame).symmetric_hash(), 0);
    }
}

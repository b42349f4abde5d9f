//! Sessions and their hash: which packets share a session, that both directions have one hash, and that sessions
//! differ.

use std::collections::HashSet;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use super::*;
use crate::testing::frames::any_frame;
use crate::testing::{Numbers, cases};
use crate::{Pool, PoolOptions};

fn pool() -> Pool {
    Pool::new(PoolOptions { chunks: 2, frame: 1_024, headroom: 64, ..PoolOptions::default() }).expect("a small pool")
}

fn packet(pool: &Pool, frame: &[u8]) -> Packet {
    let mut packet = pool.take().expect("one");
    assert!(packet.write(frame));
    packet
}

fn key() -> impl Strategy<Value = SessionKey> {
    (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<u16>(), any::<u16>(), any::<u8>()).prop_map(
        |(source, destination, source_port, destination_port, protocol)| SessionKey {
            network: Network::Ipv6,
            source,
            destination,
            source_port,
            destination_port,
            protocol,
        },
    )
}

fn reversed(key: SessionKey) -> SessionKey {
    SessionKey {
        network: key.network,
        source: key.destination,
        destination: key.source,
        source_port: key.destination_port,
        destination_port: key.source_port,
        protocol: key.protocol,
    }
}

/// Returns etherparse's 5-tuple of a frame that etherparse finds complete and valid.
fn key_by_etherparse(frame: &[u8]) -> Option<SessionKey> {
    let sliced = SlicedPacket::from_ethernet(frame).ok().filter(|sliced| sliced.link_exts.len() <= 2)?;
    let v4 = matches!(sliced.net, Some(NetSlice::Ipv4(_)));
    let mut key = SessionKey {
        network: if v4 { Network::Ipv4 } else { Network::Ipv6 },
        source: [0; 16],
        destination: [0; 16],
        source_port: 0,
        destination_port: 0,
        protocol: 0,
    };
    let payload = match sliced.net.as_ref()? {
        NetSlice::Ipv4(slice) => {
            key.source[..4].copy_from_slice(&slice.header().source());
            key.destination[..4].copy_from_slice(&slice.header().destination());
            slice.payload()
        }
        NetSlice::Ipv6(slice) => {
            (key.source, key.destination) = (slice.header().source(), slice.header().destination());
            slice.payload()
        }
        NetSlice::Arp(_) => return None,
    };
    if payload.fragmented {
        return None;
    }
    key.protocol = payload.ip_number.0;
    match sliced.transport? {
        TransportSlice::Udp(udp) => {
            (key.source_port, key.destination_port) = (udp.source_port(), udp.destination_port())
        }
        TransportSlice::Tcp(tcp) => {
            (key.source_port, key.destination_port) = (tcp.source_port(), tcp.destination_port())
        }
        TransportSlice::Icmpv4(icmp) if v4 => return by_icmp(key, icmp.slice()),
        TransportSlice::Icmpv6(icmp) if !v4 => return by_icmp(key, icmp.slice()),
        // ICMP of one IP version over the other has no session of its own.
        TransportSlice::Icmpv4(_) | TransportSlice::Icmpv6(_) => {}
    }
    Some(key)
}

/// Does the same for an ICMP message. Returns `None` for an error: etherparse may find its quoted packet cut short.
fn by_icmp(key: SessionKey, message: &[u8]) -> Option<SessionKey> {
    let (queries, errors): (&[u8], &[u8]) = match key.protocol {
        1 => (&[0, 8, 13, 14, 15, 16, 17, 18, 42, 43], &[3, 4, 11, 12]),
        _ => (&[128, 129, 139, 140, 160, 161], &[]),
    };
    if errors.contains(&message[0]) || key.protocol == 58 && (1..128).contains(&message[0]) {
        return None;
    }
    let ports = if queries.contains(&message[0]) { u16::from_be_bytes([message[4], message[5]]) } else { 0 };
    Some(SessionKey { source_port: ports, destination_port: ports, ..key })
}

/// Builds a packet over IPv4 or IPv6 between two hosts, with source and destination swapped if `turned`. `transport`
/// starts with the ports or the ICMP header.
fn between(v6: bool, turned: bool, protocol: u8, transport: &[u8]) -> Vec<u8> {
    let hosts = if turned { [2u8, 1] } else { [1, 2] };
    let mut packet = if v6 {
        let mut packet = vec![0x60, 0, 0, 0, 0, transport.len() as u8, protocol, 64];
        for host in hosts {
            packet.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
        packet
    } else {
        let mut packet = vec![0x45, 0, 0, 20 + transport.len() as u8, 0, 0, 0, 0, 64, protocol, 0, 0];
        hosts.iter().for_each(|host| packet.extend([192, 0, 2, *host]));
        packet
    };
    packet.extend(transport);
    packet
}

fn framed(v6: bool, packet: &[u8]) -> Vec<u8> {
    let ether_type = if v6 { [0x86, 0xdd] } else { [8, 0] };
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &ether_type[..], packet].concat()
}

fn hash_of(frame: &[u8]) -> (SessionKey, u32) {
    let pool = pool();
    let mut packet = packet(&pool, frame);
    (packet.session_key(), packet.session_hash())
}

#[test]
fn a_ping_and_its_reply_share_a_session_that_no_other_ping_has() {
    for (v6, protocol, [echo, reply]) in [(false, 1, [8, 0]), (true, 58, [128, 129])] {
        let ping = |kind: u8, turned, number: u8| {
            hash_of(&framed(v6, &between(v6, turned, protocol, &[kind, 0, 0, 0, 7, number, 0, 1])))
        };
        let (request, reply) = (ping(echo, false, 9), ping(reply, true, 9));
        assert_eq!((request.0.source_port, request.0.destination_port), (0x709, 0x709));
        assert_eq!(request.0, reversed(reply.0));
        assert_eq!(request.1, reply.1);
        assert_ne!(request.1, ping(echo, false, 10).1);
    }
}

#[test]
fn an_error_has_the_session_of_the_packet_it_quotes() {
    let unreachable: [(bool, u8, u8); 2] = [(false, 1, 3), (true, 58, 1)];
    for (v6, icmp, kind) in unreachable {
        let echo = if v6 { 128 } else { 8 };
        for (protocol, transport) in
            [(17, [0x30, 1, 0, 53, 0, 8, 0, 0]), (6, [0x30, 1, 0, 80, 0, 0, 0, 1]), (icmp, [echo, 0, 0, 0, 1, 2, 0, 1])]
        {
            let sent = between(v6, false, protocol, &transport);
            let (session, hash) = hash_of(&framed(v6, &sent));
            let error =
                |quoted: &[u8]| framed(v6, &between(v6, true, icmp, &[&[kind, 1, 0, 0, 0, 0, 0, 0], quoted].concat()));
            let (key, same) = hash_of(&error(&sent));
            assert_eq!((key, same), (reversed(session), hash), "protocol {protocol}");
            // A quoted header that is cut short gives no session. The error then belongs to the session of the two
            // hosts.
            let short = hash_of(&error(&sent[..12])).0;
            assert_eq!((short.protocol, short.source_port), (icmp, 0));
        }
        let about_an_error = between(v6, false, icmp, &[kind, 0, 0, 0, 0, 0, 0, 0]);
        let error = framed(v6, &between(v6, true, icmp, &[&[kind, 1, 0, 0, 0, 0, 0, 0], &about_an_error[..]].concat()));
        assert_eq!(hash_of(&error).0.protocol, icmp);
    }
}

/// Regression test: an error about a first fragment reached another worker than the session of the datagram.
#[test]
fn an_error_about_a_first_fragment_has_the_session_of_its_ports() {
    for (v6, icmp, kind) in [(false, 1, 11), (true, 58, 2)] {
        let sent = between(v6, false, 17, &[0x30, 1, 0, 53, 11, 192, 0, 0]);
        let (session, hash) = hash_of(&framed(v6, &sent));
        let fragment = |offset: u16, more: bool| {
            let mut quoted = sent.clone();
            if v6 {
                let [high, low] = (offset << 3 | u16::from(more)).to_be_bytes();
                quoted.splice(40..40, [17, 0, high, low, 0, 0, 0, 9]);
                (quoted[6], quoted[5]) = (44, quoted[5] + 8);
            } else {
                quoted[6..8].copy_from_slice(&(offset | u16::from(more) << 13).to_be_bytes());
            }
            quoted
        };
        let error = |quoted: &[u8]| {
            hash_of(&framed(v6, &between(v6, true, icmp, &[&[kind, 0, 0, 0, 0, 0, 0, 0], quoted].concat())))
        };
        assert_eq!(error(&fragment(0, true)), (reversed(session), hash), "v6: {v6}");
        // A later fragment has no ports. The error then belongs to the session of the two hosts.
        assert_eq!((error(&fragment(1, true)).0.protocol, error(&fragment(1, false)).0.source_port), (icmp, 0));
        // All fragments have one session, which differs from that of whole packets.
        let (first, later) = (hash_of(&framed(v6, &fragment(0, true))), hash_of(&framed(v6, &fragment(1, false))));
        assert_eq!((first.1, first.0.source_port), (later.1, 0));
    }
}

/// Queries of both sides with one identifier reach one worker, and so do errors about messages that are not queries.
#[test]
fn queries_of_both_sides_come_to_one_worker() {
    // Request type and reply type.
    type Pair = (u8, u8);
    let queries: [(bool, u8, &[Pair]); 2] = [
        (false, 1, &[(8, 0), (13, 14), (15, 16), (17, 18), (42, 43)]),
        (true, 58, &[(128, 129), (139, 140), (160, 161)]),
    ];
    for (v6, protocol, queries) in queries {
        for (request, reply) in queries {
            let message =
                |kind: u8, turned| hash_of(&framed(v6, &between(v6, turned, protocol, &[kind, 0, 0, 0, 0, 1, 0, 1]))).1;
            let all =
                [message(*request, false), message(*request, true), message(*reply, false), message(*reply, true)];
            assert_eq!(all, [all[0]; 4], "{request}");
        }
        let other = between(v6, false, protocol, &[200, 0, 0, 0, 1, 2, 3, 4]);
        let about = [&[if v6 { 1 } else { 3 }, 1, 0, 0, 0, 0, 0, 0], &other[..]].concat();
        assert_eq!(hash_of(&framed(v6, &between(v6, true, protocol, &about))).1, hash_of(&framed(v6, &other)).1);
    }
}

proptest! {
    #![proptest_config(cases(2_048))]

    #[test]
    fn a_packets_session_equals_etherparses(bytes in any_frame()) {
        let pool = pool();
        let mut packet = packet(&pool, &bytes);
        let key = packet.session_key();
        // Chains with more extension headers than are skipped are excluded.
        if let (Some(seen), true) = (key_by_etherparse(&bytes), packet.transport().is_some()) {
            prop_assert_eq!(key, seen);
        }
        prop_assert_ne!(packet.session_hash(), 0);
        prop_assert_eq!(packet.session_hash(), key.symmetric_hash());
    }

    #[test]
    fn both_directions_share_a_hash_that_is_never_zero(key in key()) {
        prop_assert_eq!(key.symmetric_hash(), reversed(key).symmetric_hash());
        prop_assert_ne!(key.symmetric_hash(), 0);
    }

    #[test]
    fn a_reply_has_the_session_of_its_request(bytes in any_frame()) {
        let pool = pool();
        let mut request = packet(&pool, &bytes);
        let ports = request.ports().and_then(|_| request.transport()).map(|(_, offset)| offset);
        let addresses = match request.network() {
            (Network::Ipv4, offset) => Some((offset + 12, 4)),
            (Network::Ipv6, offset) => Some((offset + 8, 16)),
            (Network::Other, _) => (bytes.len() >= 12).then_some((0, 6)),
        };
        let mut turned = bytes.clone();
        for (at, len) in addresses.into_iter().chain(ports.map(|at| (at, 2))) {
            turned[at..at + 2 * len].rotate_left(len);
        }
        let mut reply = packet(&pool, &turned);
        // The packet that an ICMP error quotes was not reversed, so the error keeps its session.
        let icmp = request.transport().is_some_and(|(protocol, _)| matches!(protocol, 1 | 58));
        if !icmp {
            prop_assert_eq!(reply.session_key(), reversed(request.session_key()));
        }
        prop_assert_eq!(reply.session_hash(), request.session_hash());
    }
}

/// Returns the number of `keys` whose hash equals that of an earlier key.
fn collisions(keys: impl Iterator<Item = SessionKey>) -> usize {
    let mut seen = HashSet::new();
    keys.filter(|key| !seen.insert(key.symmetric_hash())).count()
}

/// Of n random 32-bit hashes, n²/2³³ collide: 0.5 for the 65 536 here. Eight or more occur in one run of 10⁸.
const TOLERATED: usize = 8;
const SIDE: u16 = 256;

fn grid(of: impl Fn(u16, u16) -> SessionKey) -> impl Iterator<Item = SessionKey> {
    (0..SIDE).flat_map(move |a| (0..SIDE).map(move |b| (a, b))).map(move |(a, b)| of(a, b))
}

fn tcp(source: [u8; 16], destination: [u8; 16], source_port: u16, destination_port: u16) -> SessionKey {
    SessionKey { network: Network::Ipv6, source, destination, source_port, destination_port, protocol: 6 }
}

#[test]
fn sessions_that_count_up_are_kept_apart() {
    let v4 = |a: u16, b: u16| [10, 0, a as u8, b as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let server = v4(200, 200);
    assert!(collisions(grid(|a, b| tcp(v4(1, a), server, b, 80))) <= TOLERATED, "hosts and ports");
    assert!(collisions(grid(|a, b| tcp(v4(a, b), server, 1_024, 80))) <= TOLERATED, "hosts of many networks");
    assert!(collisions(grid(|a, b| tcp(v4(1, 1), v4(1, 2), a, 256 + b))) <= TOLERATED, "ports of one pair of hosts");
    assert!(collisions(grid(|a, b| tcp(v4(1, a), v4(2, b), 1_024, 80))) <= TOLERATED, "pairs of hosts");
}

/// Regression test: the port occupied bits of the address word in which some sites number their hosts, so host 1 port 2
/// had the hash of host 2 port 1.
#[test]
fn a_port_does_not_cancel_out_against_an_interface_identifier() {
    for group in 4..8 {
        let host = |n: u16| {
            let mut address = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            address[2 * group..2 * group + 2].copy_from_slice(&n.to_be_bytes());
            address
        };
        let server = [0xfd; 16];
        assert!(collisions(grid(|a, b| tcp(host(a), server, b, 443))) <= TOLERATED, "hosts counted in group {group}");
    }
}

#[test]
fn every_bit_of_a_session_reaches_every_bit_of_its_hash() {
    let mut numbers = Numbers(0x0123_4567_89ab_cdef);
    let keys: Vec<[u8; 37]> = (0..1_000).map(|_| std::array::from_fn(|_| numbers.next() as u8)).collect();
    let hash = |bytes: &[u8; 37]| {
        let address = |at: usize| std::array::from_fn(|index| bytes[at + index]);
        let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let (source, destination) = (address(0), address(16));
        let (source_port, destination_port, protocol) = (port(32), port(34), bytes[36]);
        SessionKey { network: Network::Ipv6, source, destination, source_port, destination_port, protocol }
            .symmetric_hash()
    };
    for bit in 0..37 * 8 {
        let mut flips = [0usize; 32];
        for key in &keys {
            let mut other = *key;
            other[bit / 8] ^= 1 << (bit % 8);
            let changed = hash(key) ^ hash(&other);
            assert_ne!(changed, 0, "bit {bit} of {key:?}");
            (0..32).for_each(|out| flips[out] += (changed >> out & 1) as usize);
        }
        // Half of 1 000, plus or minus 100: more than six standard deviations.
        assert!(flips.iter().all(|flips| (400..=600).contains(flips)), "input bit {bit}: {flips:?}");
    }
}

/// Regression test: a message behind extension headers had the session of the first of them. With hop-by-hop options,
/// that was protocol 0, as for frames that are not IP.
#[test]
fn behind_extension_headers_the_upper_layers_protocol_is_the_sessions() {
    let mut frame = vec![0; 12];
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 16, 0, 1]);
    frame.extend([0xfe; 32]);
    // Hop-by-hop options with a router alert, then a multicast listener report (RFC 3810 section 5).
    frame.extend([58, 0, 5, 2, 0, 0, 1, 0]);
    frame.extend([143, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(packet(&pool(), &frame).session_key().protocol, 58);
}

/// Regression test: bytes after the datagram were read as its ports.
#[test]
fn padding_is_not_read_as_ports() {
    let pool = pool();
    let mut frame = vec![0; 60];
    frame[12..24].copy_from_slice(&[0x08, 0x00, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17]);
    frame[34..38].copy_from_slice(&[0, 22, 0, 22]);
    let mut bare = packet(&pool, &frame);
    assert_eq!((bare.plain_ipv4_ports().is_none(), bare.ports()), (true, None));
    drop(bare);
    frame[17] = 28;
    let mut whole = packet(&pool, &frame);
    assert!(whole.plain_ipv4_ports().is_some_and(|(_, source, destination)| (source, destination) == (22, 22)));
    assert_eq!(whole.ports(), Some((17, 22, 22)));
    drop(whole);
    // A sender that leaves the length to its device writes 0: the frame's end counts.
    frame[17] = 0;
    assert_eq!(packet(&pool, &frame).ports(), Some((17, 22, 22)));
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn ports_of_the_short_path_equal_those_of_the_long_path(frame in any_frame()) {
        let pool = pool();
        let mut packet = packet(&pool, &frame);
        let short = packet.plain_ipv4_ports().map(|(header, source, destination)| (*header, source, destination));
        if let Some((header, source, destination)) = short {
            prop_assert_eq!(packet.ports(), Some((header.protocol, source, destination)));
            prop_assert_eq!(packet.ipv4().copied(), Some(header));
        }
        if packet.ports().is_none_or(|(_, _, destination)| destination != gtpu::PORT) {
            prop_assert_eq!(packet.session_key(), packet.outermost_key());
        }
    }
}

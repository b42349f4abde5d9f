//! Packets through both directions of `static_nat`.

use etherparse::{Icmpv4Slice, Ipv4Slice, NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use forebay_graph::{DeclareState, Rig, SetupEnvironment};
use forebay_units::Frequency;
use proptest::prelude::*;
use serde_json::json;

use super::*;

const INSIDE: [u8; 4] = [10, 0, 0, 77];
const OUTSIDE: [u8; 4] = [192, 0, 2, 77];
const PEER: [u8; 4] = [198, 51, 100, 9];

fn nat(direction: &str) -> Rig {
    let mappings = json!([
        { "inside": "10.0.0.0/24", "outside": "192.0.2.0/24" },
        { "inside": "10.9.0.1", "outside": "203.0.113.1" },
    ]);
    Rig::of::<StaticNat>(&json!({ "direction": direction, "mappings": mappings })).expect("parameters")
}

fn udp(from: [u8; 4], to: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from, to, 64).udp(1, 2).write(&mut frame, payload).expect("memory");
    frame
}

fn tcp(from: [u8; 4], to: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4(from, to, 64)
        .tcp(1, 2, 3, 4)
        .write(&mut frame, payload)
        .expect("memory");
    frame
}

fn ipv6() -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv6([10; 16], [2; 16], 64)
        .udp(1, 2)
        .write(&mut frame, b"abc")
        .expect("memory");
    frame
}

/// An ICMP error that quotes the first `quote` bytes of the packet in `frame`.
fn error(from: [u8; 4], to: [u8; 4], kind: u8, frame: &[u8], quote: usize) -> Vec<u8> {
    let mut error = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from, to, 64).icmpv4_raw(kind, 1, [0; 4]);
    builder.write(&mut error, &frame[14..14 + quote]).expect("memory");
    error
}

/// Regression: behind a fifth tag, or with an unreadable header, a packet passed without translation.
#[test]
fn frames_that_hide_whether_they_are_ip_are_dropped_both_ways() {
    for (direction, from, to) in [("out", INSIDE, PEER), ("in", PEER, OUTSIDE)] {
        let frame = udp(from, to, b"abc");
        let tagged = |tags| [&frame[..12], &[0x81, 0, 0, 5].repeat(tags), &frame[12..]].concat();
        let mut rig = nat(direction);
        for tags in 0..=4 {
            let (gate, after) = rig.run(&tagged(tags));
            assert_eq!(gate, Gate::FIRST, "{direction}, {tags} tags");
            assert_ne!(after, tagged(tags), "{direction}, {tags} tags: translated");
        }
        for hidden in [&tagged(5)[..], &tagged(6), &frame[..33], &tagged(1)[..17]] {
            assert_eq!(rig.run(hidden).0, UNDECIDABLE, "{direction}, {} bytes", hidden.len());
        }
        for other in [ipv6(), frame[..13].to_vec(), [&frame[..12], &[8, 6], &[0; 46]].concat()] {
            assert_eq!(rig.run(&other), (Gate::FIRST, other.clone()), "{direction}: not IPv4");
        }
    }
}

/// Whether all checksums of the frame are the values that etherparse computes.
fn checksums_are_right(frame: &[u8]) -> bool {
    let parsed = SlicedPacket::from_ethernet(frame).expect("well-formed");
    let Some(NetSlice::Ipv4(network)) = parsed.net else { panic!("IPv4") };
    let header = network.header();
    let (source, destination) = (header.source(), header.destination());
    let transport = match parsed.transport {
        Some(TransportSlice::Udp(udp)) => {
            udp.checksum()
                == udp.to_header().calc_checksum_ipv4_raw(source, destination, udp.payload()).expect("a short packet")
        }
        Some(TransportSlice::Tcp(tcp)) => {
            tcp.checksum() == tcp.calc_checksum_ipv4(source, destination).expect("a short packet")
        }
        Some(TransportSlice::Icmpv4(icmp)) => icmp.is_checksum_valid(),
        _ => true,
    };
    header.header_checksum() == header.to_header().calc_header_checksum() && transport
}

/// Whether the checksum of an ICMP message is the value that etherparse computes.
trait Valid {
    fn is_checksum_valid(&self) -> bool;
}

impl Valid for Icmpv4Slice<'_> {
    fn is_checksum_valid(&self) -> bool {
        self.checksum() == self.icmp_type().calc_checksum(self.payload())
    }
}

#[test]
fn only_addresses_and_checksums_are_translated_both_ways() {
    for make in [udp, tcp] {
        for payload in [&b""[..], b"odd", b"even"] {
            assert_eq!(nat("out").run(&make(INSIDE, PEER, payload)), (Gate::FIRST, make(OUTSIDE, PEER, payload)));
            assert_eq!(nat("in").run(&make(PEER, OUTSIDE, payload)), (Gate::FIRST, make(PEER, INSIDE, payload)));
        }
    }
    assert_eq!(nat("out").run(&udp([10, 9, 0, 1], PEER, b"")).1, udp([203, 0, 113, 1], PEER, b""), "a single address");
}

#[test]
fn packets_without_a_mapping_pass_or_are_dropped() {
    let mut strict =
        json!({ "direction": "out", "mappings": [{ "inside": "10.0.0.0/24", "outside": "192.0.2.0/24" }] });
    strict["unmatched"] = json!("drop");
    let mut strict = Rig::of::<StaticNat>(&strict).expect("parameters");
    let other = udp([10, 0, 1, 77], PEER, b"abc");
    assert_eq!(nat("out").run(&other), (Gate::FIRST, other.clone()));
    assert_eq!(strict.run(&other), (UNMATCHED, other));
    for frame in [ipv6(), vec![0xff; 60], vec![1; 7], vec![]] {
        assert_eq!(strict.run(&frame), (Gate::FIRST, frame.clone()), "not IPv4");
    }
}

#[test]
fn a_udp_checksum_of_zero_stays() {
    let mut frame = udp(INSIDE, PEER, b"abc");
    frame[40..42].fill(0);
    let mut expected = udp(OUTSIDE, PEER, b"abc");
    expected[40..42].fill(0);
    assert_eq!(nat("out").run(&frame).1, expected);
}

#[test]
fn later_fragments_are_translated_in_the_header_only() {
    let fragment = |from| {
        let mut frame = udp(from, PEER, b"some payload");
        let mut header = Ipv4Slice::from_slice(&frame[14..]).expect("well-formed").header().to_header();
        header.fragment_offset = etherparse::IpFragOffset::try_new(3).expect("small");
        header.header_checksum = header.calc_header_checksum();
        frame[14..34].copy_from_slice(&header.to_bytes());
        // The bytes at the checksum's offset are payload.
        frame[34..].fill(0x55);
        frame
    };
    assert_eq!(nat("out").run(&fragment(INSIDE)), (Gate::FIRST, fragment(OUTSIDE)));
}

#[test]
fn the_packet_that_an_icmp_error_quotes_is_translated() {
    for make in [udp, tcp] {
        // The peer's packet was translated on the way in; the error about it goes out.
        let (seen_inside, seen_outside) = (make(PEER, INSIDE, b"abcd"), make(PEER, OUTSIDE, b"abcd"));
        // The inside host's packet was translated on the way out; the error about it comes in.
        let (sent_inside, sent_outside) = (make(INSIDE, PEER, b"abcd"), make(OUTSIDE, PEER, b"abcd"));
        for kind in [3, 11, 12] {
            for quote in [28, seen_inside.len() - 14] {
                let out = nat("out").run(&error(INSIDE, PEER, kind, &seen_inside, quote)).1;
                assert_eq!(out, error(OUTSIDE, PEER, kind, &seen_outside, quote), "type {kind}, {quote} quoted");
                let back = nat("in").run(&error(PEER, OUTSIDE, kind, &sent_outside, quote)).1;
                assert_eq!(back, error(PEER, INSIDE, kind, &sent_inside, quote), "type {kind}, {quote} quoted");
                assert!(checksums_are_right(&out) && checksums_are_right(&back));
            }
        }
        for kind in [0, 5, 8] {
            let frame = error(INSIDE, PEER, kind, &seen_inside, 28);
            assert_eq!(nat("out").run(&frame).1[34..], frame[34..], "type {kind} quotes nothing that is translated");
        }
    }
    let router = [10, 200, 0, 1];
    let frame = error(router, PEER, 11, &udp(PEER, INSIDE, b""), 28);
    assert_eq!(
        nat("out").run(&frame).1,
        error(router, PEER, 11, &udp(PEER, OUTSIDE, b""), 28),
        "from an address without a mapping"
    );
}

#[test]
fn replaying_its_effect_equals_processing() {
    for direction in ["out", "in"] {
        let mut rig = nat(direction);
        for frame in [udp(INSIDE, OUTSIDE, b"abc"), tcp(INSIDE, OUTSIDE, b""), udp(PEER, PEER, b""), ipv6()] {
            let mut packet = rig.packet(&frame);
            let effect = rig.function.effect(&mut packet).expect("its effect is known");
            let gate = effect.replay(&mut packet).expect("it applies");
            assert_eq!((gate, packet.data().to_vec()), rig.run(&frame));
        }
        let mut icmp = rig.packet(&error(INSIDE, OUTSIDE, 8, &udp(PEER, INSIDE, b""), 28));
        assert_eq!(rig.function.effect(&mut icmp), None, "an error of the same session would need more");
        let mut arp = rig.packet(&[3; 60]);
        assert_eq!(rig.function.effect(&mut arp), None, "a packet that hides its addresses may be of the same session");
    }
}

#[test]
fn both_directions_share_a_state() {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    let params =
        serde_json::from_value(json!({ "mappings": [{ "inside": "10.0.0.0/24", "outside": "192.0.2.0/24" }] }))
            .expect("well-formed");
    let state = <StaticMappings as DeclareState>::new(params, &mut Setup::new("customers", &mut environment))
        .expect("it builds");
    environment.objects.states.insert("customers".to_owned(), Arc::new(state));
    let mut rig = |direction| {
        Rig::within::<StaticNat>(&json!({ "direction": direction, "state": "customers" }), &mut environment)
            .expect("parameters")
    };
    assert_eq!(rig("out").run(&udp(INSIDE, PEER, b"")).1, udp(OUTSIDE, PEER, b""));
    assert_eq!(rig("in").run(&udp(PEER, OUTSIDE, b"")).1, udp(PEER, INSIDE, b""));
}

#[test]
fn mappings_are_given_once() {
    for (params, expected) in [
        (json!({ "direction": "out" }), "give either 'mappings' or the name of a 'state'"),
        (
            json!({ "direction": "out", "mappings": [], "state": "customers" }),
            "give either 'mappings' or the name of a 'state'",
        ),
        (json!({ "direction": "out", "state": "customers" }), "state: no state is called 'customers'"),
        (json!({ "direction": "up", "mappings": [] }), "direction: unknown variant `up`"),
    ] {
        let error = Rig::of::<StaticNat>(&params).err().expect("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

proptest! {
    #[test]
    fn out_and_back_in_is_the_same(
        host: u8,
        peer: [u8; 4],
        payload in prop::collection::vec(any::<u8>(), 0..60),
        over_tcp: bool,
    ) {
        let make = if over_tcp { tcp } else { udp };
        let frame = make([10, 0, 0, host], peer, &payload);
        let (gate, out) = nat("out").run(&frame);
        prop_assert_eq!(gate, Gate::FIRST);
        prop_assert!(checksums_are_right(&out), "{:02x?}", out);
        prop_assert_eq!(&out, &make([192, 0, 2, host], peer, &payload));
        // Back in as a reply: the addresses are swapped, which does not change the checksums.
        let swapped = |frame: &[u8]| [&frame[..26], &frame[30..34], &frame[26..30], &frame[34..]].concat();
        let (gate, back) = nat("in").run(&swapped(&out));
        prop_assert_eq!(gate, Gate::FIRST);
        prop_assert_eq!(swapped(&back), frame);
    }
}

/// Regression: the checksums of DCCP and UDP-Lite, which cover the addresses too, were not updated.
#[test]
fn checksums_of_the_protocols_beside_udp_stay_right() {
    use forebay_packet::wire::checksum::{add, sum};
    // The Internet checksum over pseudo header and segment. UDP-Lite covers the whole segment here.
    let right = |frame: &[u8]| {
        let length = (frame.len() - 34) as u16;
        let pseudo = [&frame[26..34], &[0, frame[23]], &length.to_be_bytes()].concat();
        add(sum(&pseudo), sum(&frame[34..]))
    };
    for protocol in [33, 136] {
        let mut frame = udp(INSIDE, PEER, b"some payload");
        frame[23] = protocol;
        frame[40..42].fill(0);
        let sum = !right(&frame);
        frame[40..42].copy_from_slice(&sum.to_ne_bytes());
        let (_, translated) = nat("out").run(&frame);
        assert_eq!((&translated[26..30], right(&translated)), (&OUTSIDE[..], 0xffff), "protocol {protocol}");
    }
}

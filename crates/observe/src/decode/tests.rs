//! Tests of decoding: known frames, hostile frames, and a comparison with etherparse.

use etherparse::{EtherType, NetSlice, PacketBuilder, SlicedPacket, TransportSlice, VlanId};
use proptest::prelude::*;

use super::*;

fn frame(vlan: Option<u16>) -> Vec<u8> {
    let mac = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let (from, to) = ([192, 0, 2, 1], [198, 51, 100, 7]);
    let ip = match vlan {
        Some(id) => mac.single_vlan(VlanId::try_new(id).expect("twelve bits")).ipv4(from, to, 64),
        None => mac.ipv4(from, to, 64),
    };
    let mut frame = Vec::new();
    ip.tcp(1_024, 443, 9, 512).syn().write(&mut frame, b"payload").expect("written to memory");
    frame
}

fn value(frame: &[u8], name: &str) -> Option<String> {
    fields(frame).into_iter().find(|field| field.name == name).map(|field| field.value)
}

#[test]
fn fields_are_named() {
    let frame = frame(Some(100));
    for (name, expected) in [
        ("length", "65"),
        ("eth.src", "02:00:00:00:00:01"),
        ("vlan.id", "100"),
        ("eth.type", "0x0800"),
        ("ipv4.dst", "198.51.100.7"),
        ("ipv4.ttl", "64"),
        ("tcp.dport", "443"),
        ("tcp.flags", "syn"),
    ] {
        assert_eq!(value(&frame, name).as_deref(), Some(expected), "{name}");
    }
}

#[test]
fn changes_are_listed_by_field() {
    let before = frame(None);
    let mut after = before.clone();
    after[22] = 63;
    assert_eq!(changes(&before, &after), ["ipv4.ttl 64 → 63"]);
    assert_eq!(changes(&before, &before), [""; 0]);
    let tagged = changes(&before, &frame(Some(7)));
    assert_eq!(tagged, ["length 61 → 65", "+ vlan.id 7", "+ vlan.priority 0"]);
    let untagged = changes(&frame(Some(7)), &before);
    assert_eq!(untagged, ["length 65 → 61", "- vlan.id 7", "- vlan.priority 0"]);
}

#[test]
fn without_a_changed_field_bytes_are_listed() {
    let before = frame(None);
    let mut after = before.clone();
    let last = after.len() - 1;
    after[last] = b'D';
    after[last - 1] = b'A';
    assert_eq!(changes(&before, &after), [format!("byte {}: 6164 → 4144", last - 1)]);
}

/// Regression: Ethernet padding after a packet was shown as ports, flags and checksums.
#[test]
fn padding_behind_a_packet_is_no_header() {
    let tagged = |frame: &[u8], tags| [&frame[..12], &[0x81, 0, 0, 5].repeat(tags), &frame[12..]].concat();
    let mut six = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([1; 16], [2; 16], 9).tcp(1_024, 443, 9, 512);
    builder.write(&mut six, b"payload").expect("written to memory");
    for (whole, length, header) in [(frame(None), 16, 20u16), (six, 18, 0)] {
        for tags in 0..=4 {
            for (above, ports, flags) in [(0, false, false), (3, false, false), (4, true, false), (14, true, true)] {
                let mut frame = whole.clone();
                frame[length..length + 2].copy_from_slice(&(header + above).to_be_bytes());
                let frame = tagged(&frame, tags);
                let layers = Layers::of(&frame);
                assert_eq!(
                    (layers.protocol, layers.ports),
                    (Some(TCP), ports.then_some((1_024, 443))),
                    "{above} bytes"
                );
                assert_eq!(value(&frame, "tcp.dport").is_some(), ports, "{above} bytes");
                assert_eq!(value(&frame, "tcp.flags").is_some(), flags, "{above} bytes");
                assert_eq!(value(&frame, "tcp.checksum"), None, "{above} bytes");
            }
        }
    }
    // In IPv4, a length of zero means that the length is unknown.
    let mut unset = frame(None);
    unset[16..18].fill(0);
    assert_eq!(Layers::of(&unset).ports, Some((1_024, 443)));
}

/// Regression: an authentication header (RFC 4302) was taken as the last header. Its length counts words of four bytes.
#[test]
fn ports_are_found_behind_an_authentication_header() {
    let mut plain = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([1; 16], [2; 16], 9).tcp(1_024, 443, 9, 512);
    builder.write(&mut plain, b"").expect("written to memory");
    let authentication = [[6, 4].as_slice(), &[7; 22]].concat();
    let mut frame = [&plain[..54], &authentication, &plain[54..]].concat();
    frame[20] = 51;
    frame[19] += 24;
    let layers = Layers::of(&frame);
    assert_eq!((layers.protocol, layers.transport, layers.ports), (Some(TCP), Some(78), Some((1_024, 443))));
    frame[18..20].copy_from_slice(&[0, 20]);
    let layers = Layers::of(&frame);
    assert_eq!((layers.transport, layers.ports), (None, None), "the packet ends within it");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        a in proptest::collection::vec(any::<u8>(), 0..200),
        b in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = changes(&a, &b);
    }

    #[test]
    fn frames_cut_anywhere_are_read_as_far_as_they_go(at in 0usize..80, flip in 0usize..60, byte in any::<u8>()) {
        let mut cut = frame(Some(100));
        cut[flip] = byte;
        cut.truncate(at);
        let found = fields(&cut);
        prop_assert_eq!(&found[0].value, &cut.len().to_string());
    }

    /// Packets that etherparse accepts completely are decoded equally.
    #[test]
    fn it_finds_what_etherparse_finds(
        v6 in any::<bool>(),
        vlan in proptest::option::of(0u16..4_096),
        tcp in any::<bool>(),
        ports in any::<(u16, u16)>(),
    ) {
        let mac = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let ip = match (vlan.map(|id| VlanId::try_new(id).expect("twelve bits")), v6) {
            (Some(id), true) => mac.single_vlan(id).ipv6([1; 16], [2; 16], 9),
            (Some(id), false) => mac.single_vlan(id).ipv4([1; 4], [2; 4], 9),
            (None, true) => mac.ipv6([1; 16], [2; 16], 9),
            (None, false) => mac.ipv4([1; 4], [2; 4], 9),
        };
        let mut frame = Vec::new();
        let written = if tcp {
            ip.tcp(ports.0, ports.1, 1, 2).write(&mut frame, &[])
        } else {
            ip.udp(ports.0, ports.1).write(&mut frame, &[])
        };
        written.expect("written to memory");
        let oracle = SlicedPacket::from_ethernet(&frame).expect("whole");
        let layers = Layers::of(&frame);
        let (kind, addresses): (_, (IpAddr, IpAddr)) = match oracle.net.expect("IP") {
            NetSlice::Ipv4(ip) => {
                (EtherType::IPV4, (ip.header().source_addr().into(), ip.header().destination_addr().into()))
            }
            NetSlice::Ipv6(ip) => {
                (EtherType::IPV6, (ip.header().source_addr().into(), ip.header().destination_addr().into()))
            }
            NetSlice::Arp(_) => unreachable!("IP was written"),
        };
        let (protocol, found) = match oracle.transport.expect("TCP or UDP") {
            TransportSlice::Tcp(tcp) => (TCP, (tcp.source_port(), tcp.destination_port())),
            TransportSlice::Udp(udp) => (UDP, (udp.source_port(), udp.destination_port())),
            other => unreachable!("{other:?} was not written"),
        };
        prop_assert_eq!(layers.ether_type, Some(kind.0));
        prop_assert_eq!(layers.tags, vlan.into_iter().collect::<Vec<_>>());
        let decoded = (layers.addresses, layers.protocol, layers.ports);
        prop_assert_eq!(decoded, (Some(addresses), Some(protocol), Some(found)));
    }
}

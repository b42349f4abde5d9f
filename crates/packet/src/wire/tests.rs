//! Compares header views and checksums with etherparse.

use etherparse::checksum::Sum16BitWords;
use etherparse::{
    EtherType, Ethernet2Header, Icmpv4Header, Icmpv4Type, IpNumber, Ipv4Header, Ipv4HeaderSlice, Ipv6FlowLabel,
    Ipv6Header, TcpHeader, UdpHeader, VlanId, VlanPcp,
};
use proptest::collection::vec;
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use super::checksum::{add, replace16, sum};
use super::ethernet::{Ethernet, MacAddress, VlanTag};
use super::icmp::Icmp;
use super::ipv4::Ipv4;
use super::ipv6::Ipv6;
use super::tcp::Tcp;
use super::udp::Udp;
use crate::testing::cases;
use crate::testing::frames::{any_frame, ipv4};

/// Returns a header's checksum by etherparse's sum over its bytes (its parsed header drops the reserved flag).
fn header_checksum(header: &[u8]) -> u16 {
    u16::from_be(Sum16BitWords::new().add_slice(&header[..10]).add_slice(&header[12..]).ones_complement())
}

/// Returns whether an IPv4 header is valid according to etherparse.
fn is_valid_by_etherparse(bytes: &[u8]) -> bool {
    let Ok(slice) = Ipv4HeaderSlice::from_slice(bytes) else {
        return false;
    };
    let total = usize::from(slice.total_len());
    let (right, stored) = (header_checksum(slice.slice()), slice.header_checksum());
    // Zero has two representations: verification by the sum (RFC 1071 section 1) accepts both.
    let checksum = right == stored || (right, stored) == (0, 0xffff);
    checksum && (slice.slice().len()..=bytes.len()).contains(&total)
}

#[test]
fn a_hop_changes_every_checksum_as_rfc_1624_says() {
    for sum in 0..=u16::MAX {
        let mut bytes = [0x45; 20];
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        let header = Ipv4::mut_from_bytes(&mut bytes).expect("20 bytes");
        assert!(header.decrement_ttl());
        assert_eq!(header.checksum.get(), replace16(sum, 0x4545, 0x4445), "{sum:#06x}");
    }
}

proptest! {
    #![proptest_config(cases(2_048))]

    #[test]
    fn an_ipv4_header_is_valid_where_etherparse_says_so(
        mut bytes in ipv4(),
        change in proptest::option::of((0usize..60, 0u8..8)),
        padding in vec(any::<u8>(), 0..8),
        cut in proptest::option::of(0usize..60),
    ) {
        bytes.extend(padding);
        prop_assert!(Ipv4::is_valid(&bytes), "built right");
        if let Some((at, bit)) = change && let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << bit;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut);
        }
        prop_assert_eq!(Ipv4::is_valid(&bytes), is_valid_by_etherparse(&bytes));
    }

    #[test]
    fn noise_is_a_valid_ipv4_header_where_etherparse_says_so(bytes in any_frame(), checksum_right: bool) {
        let mut bytes = bytes;
        if checksum_right && let Ok(slice) = Ipv4HeaderSlice::from_slice(&bytes) {
            let right = header_checksum(slice.slice());
            bytes[10..12].copy_from_slice(&right.to_be_bytes());
        }
        prop_assert_eq!(Ipv4::is_valid(&bytes), is_valid_by_etherparse(&bytes));
        let from_ip = bytes.get(14..).unwrap_or_default();
        prop_assert_eq!(Ipv4::is_valid(from_ip), is_valid_by_etherparse(from_ip));
    }

    #[test]
    fn a_written_checksum_is_etherparses(
        mut bytes in ipv4(), ttl: u8, old in prop_oneof![any::<u16>(), Just(0), Just(0xffff)],
    ) {
        let length = 4 * usize::from(bytes[0] & 0x0f);
        let (fixed, rest) = bytes.split_at_mut(20);
        let header = Ipv4::mut_from_bytes(fixed).expect("20 bytes");
        header.ttl = ttl;
        header.checksum = old.into();
        header.update_checksum(&rest[..length - 20]);
        let header = Ipv4HeaderSlice::from_slice(&bytes).expect("built right");
        prop_assert_eq!(header.header_checksum(), header_checksum(header.slice()));
        prop_assert!(Ipv4::is_valid(&bytes));
    }

    #[test]
    fn a_hop_leaves_the_checksum_right(mut bytes in ipv4()) {
        let (ttl, before) = (bytes[8], bytes.clone());
        let forwarded = Ipv4::mut_from_prefix(&mut bytes).expect("20 bytes").0.decrement_ttl();
        prop_assert_eq!(forwarded, ttl > 1);
        prop_assert_eq!(bytes[8], if forwarded { ttl - 1 } else { ttl });
        prop_assert!(Ipv4::is_valid(&bytes));
        let changed: Vec<_> = (0..bytes.len()).filter(|&at| bytes[at] != before[at]).collect();
        prop_assert!(
            changed.iter().all(|at| [8, 10, 11].contains(at)),
            "only time to live and checksum: {:?}",
            changed,
        );
    }

    #[test]
    fn sums_over_pseudo_headers_make_etherparses_checksums(
        source: [u8; 4], destination: [u8; 4], ports: [u16; 2], payload in vec(any::<u8>(), 0..100),
    ) {
        let ip = Ipv4Header::new(0, 64, IpNumber::UDP, source, destination).expect("short");
        let length = 8 + payload.len() as u16;
        let udp = UdpHeader { source_port: ports[0], destination_port: ports[1], length, checksum: 0 };
        let right = udp.calc_checksum_ipv4(&ip, &payload).expect("short");
        let pseudo = [&source[..], &destination, &[0, 17], &length.to_be_bytes()].concat();
        let ours = !u16::from_be(add(add(sum(&pseudo), sum(&udp.to_bytes())), sum(&payload)));
        // A UDP checksum of zero is sent as 0xffff (RFC 768).
        prop_assert_eq!(if ours == 0 { 0xffff } else { ours }, right);
    }

    #[test]
    fn ethernet_and_tag_are_read_as_etherparse_writes_them(
        source: [u8; 6], destination: [u8; 6], kind: u16, id in 0u16..4_096, priority in 0u8..8, drop_eligible: bool,
    ) {
        let bytes = Ethernet2Header { source, destination, ether_type: EtherType(kind) }.to_bytes();
        let header = Ethernet::ref_from_bytes(&bytes).expect("14 bytes");
        prop_assert_eq!(
            (header.source, header.destination, header.ether_type.get()),
            (MacAddress(source), MacAddress(destination), kind),
        );
        let pcp = VlanPcp::try_new(priority).expect("three bits");
        let vlan_id = VlanId::try_new(id).expect("twelve bits");
        let ether_type = EtherType(kind);
        let tag = etherparse::SingleVlanHeader { pcp, drop_eligible_indicator: drop_eligible, vlan_id, ether_type };
        let bytes = tag.to_bytes();
        let tag = VlanTag::ref_from_bytes(&bytes).expect("4 bytes");
        prop_assert_eq!((tag.id(), tag.ether_type.get()), (id, kind));
    }

    #[test]
    fn network_headers_are_read_as_etherparse_writes_them(
        bytes in ipv4(), flow in 0u32..1 << 20, class: u8, numbers: [u8; 2], length: u16, source: [u8; 16],
        destination: [u8; 16],
    ) {
        let (header, _) = Ipv4::ref_from_prefix(&bytes).expect("20 bytes");
        let theirs = Ipv4HeaderSlice::from_slice(&bytes).expect("built right");
        prop_assert_eq!(header.header_len(), Some(theirs.slice().len()));
        prop_assert_eq!(header.fragment_offset(), theirs.fragments_offset().value());
        prop_assert_eq!(
            (header.total_length.get(), header.identification.get()),
            (theirs.total_len(), theirs.identification()),
        );
        prop_assert_eq!(
            (header.ttl, header.protocol, header.checksum.get()),
            (theirs.ttl(), theirs.protocol().0, theirs.header_checksum()),
        );
        prop_assert_eq!((header.source, header.destination), (theirs.source(), theirs.destination()));
        prop_assert_eq!(header.traffic_class, theirs.dcp().value() << 2 | theirs.ecn().value());

        let theirs = Ipv6Header {
            traffic_class: class,
            flow_label: Ipv6FlowLabel::try_new(flow).expect("twenty bits"),
            payload_length: length,
            next_header: IpNumber(numbers[0]),
            hop_limit: numbers[1],
            source,
            destination,
        };
        let bytes = theirs.to_bytes();
        let header = Ipv6::ref_from_bytes(&bytes).expect("40 bytes");
        prop_assert_eq!(header.version_class_label.get(), 6 << 28 | u32::from(class) << 20 | flow);
        prop_assert_eq!(
            (header.payload_length.get(), header.next_header, header.hop_limit),
            (length, numbers[0], numbers[1]),
        );
        prop_assert_eq!((header.source, header.destination), (source, destination));
    }

    #[test]
    fn transport_headers_are_read_as_etherparse_writes_them(
        ports: [u16; 2], sequence: u32, acknowledgement: u32, window: u16, checksum: u16, urgent: u16,
        flags: [bool; 8],
    ) {
        let mut theirs = TcpHeader::new(ports[0], ports[1], sequence, window);
        (theirs.acknowledgment_number, theirs.checksum, theirs.urgent_pointer) = (acknowledgement, checksum, urgent);
        [theirs.fin, theirs.syn, theirs.rst, theirs.psh, theirs.ack, theirs.urg, theirs.ece, theirs.cwr] = flags;
        let bytes = theirs.to_bytes();
        let header = Tcp::ref_from_bytes(&bytes).expect("20 bytes");
        prop_assert_eq!((header.source.get(), header.destination.get()), (ports[0], ports[1]));
        prop_assert_eq!((header.sequence.get(), header.acknowledgement.get()), (sequence, acknowledgement));
        prop_assert_eq!((header.offset >> 4, header.window.get()), (5, window));
        prop_assert_eq!((header.checksum.get(), header.urgent.get()), (checksum, urgent));
        prop_assert_eq!(header.flags, (0..8).map(|bit| u8::from(flags[bit]) << bit).sum::<u8>());

        let theirs = UdpHeader { source_port: ports[0], destination_port: ports[1], length: window, checksum };
        let bytes = theirs.to_bytes();
        let header = Udp::ref_from_bytes(&bytes).expect("8 bytes");
        prop_assert_eq!(
            (header.source.get(), header.destination.get(), header.length.get(), header.checksum.get()),
            (ports[0], ports[1], window, checksum),
        );

        let [code, kind] = window.to_be_bytes();
        let icmp_type = Icmpv4Type::Unknown { type_u8: kind, code_u8: code, bytes5to8: [0; 4] };
        let theirs = Icmpv4Header { icmp_type, checksum };
        let bytes = theirs.to_bytes();
        let (header, _) = Icmp::ref_from_prefix(bytes.as_bytes()).expect("8 bytes");
        prop_assert_eq!((header.kind, header.code, header.checksum.get()), (kind, code, checksum));
    }
}

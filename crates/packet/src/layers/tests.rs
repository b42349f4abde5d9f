//! Compares the offsets of layers with etherparse, and checks that stored offsets stay correct while headers are added
//! and removed.

use etherparse::err::{ip_auth, ipv4};
use etherparse::{
    EtherType as Type, Ethernet2HeaderSlice, IpAuthHeaderSlice, IpNumber, Ipv4HeaderSlice, Ipv6FragmentHeaderSlice,
    Ipv6HeaderSlice, Ipv6RawExtHeaderSlice, SingleVlanHeaderSlice,
};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::testing::cases;
use crate::testing::frames::{any_frame, frame_with_tags};
use crate::{Pool, PoolOptions};

type Transport = Option<(u8, usize)>;

fn pool() -> Pool {
    Pool::new(PoolOptions { chunks: 2, frame: 1_024, headroom: 64, ..PoolOptions::default() }).expect("a small pool")
}

fn packet(pool: &Pool, frame: &[u8]) -> Packet {
    let mut packet = pool.take().expect("one");
    assert!(packet.write(frame));
    packet
}

/// Returns etherparse's result: the network layer and its offset, and the transport layer. The transport layer is
/// `None` if the two parsers differ by intent.
fn seen_by_etherparse(frame: &[u8]) -> ((Network, usize), Option<Transport>) {
    let Ok(ethernet) = Ethernet2HeaderSlice::from_slice(frame) else {
        return ((Network::Other, 0), Some(None));
    };
    let (mut ether_type, mut start) = (ethernet.ether_type(), ethernet.slice().len());
    for _ in 0..super::MOST_TAGS {
        if !matches!(ether_type.0, 0x8100 | 0x88a8 | 0x9100 | 0x9200 | 0x9300) {
            break;
        }
        let Ok(tag) = SingleVlanHeaderSlice::from_slice(&frame[start..]) else {
            return ((Network::Other, 0), Some(None));
        };
        (ether_type, start) = (tag.ether_type(), start + tag.slice().len());
    }
    let rest = &frame[start..];
    let other = ((Network::Other, start), Some(None));
    match ether_type {
        Type::IPV4 => match Ipv4HeaderSlice::from_slice(rest) {
            Ok(header) => {
                let whole = header.fragments_offset().value() == 0;
                let above = (header.protocol().0, start + header.slice().len());
                ((Network::Ipv4, start), Some(whole.then_some(above)))
            }
            // The fixed part is present. The options are missing, or their length is invalid.
            Err(ipv4::HeaderSliceError::Len(error)) if error.required_len > 20 => ((Network::Ipv4, start), Some(None)),
            Err(ipv4::HeaderSliceError::Content(ipv4::HeaderError::HeaderLengthSmallerThanHeader { .. })) => {
                ((Network::Ipv4, start), Some(None))
            }
            Err(_) => other,
        },
        Type::IPV6 => match Ipv6HeaderSlice::from_slice(rest) {
            Ok(header) => {
                // Bytes after the packet in the frame are not part of it.
                let end = frame.len().min(start + 40 + usize::from(header.payload_length()));
                ((Network::Ipv6, start), above_ipv6(header.next_header(), &frame[..end], start + 40))
            }
            Err(_) => other,
        },
        _ => other,
    }
}

/// Follows the extension headers one by one: etherparse's own iterator reads past the end of a chain that is cut short
/// (0.20.3).
fn above_ipv6(mut next: IpNumber, frame: &[u8], mut start: usize) -> Option<Transport> {
    for walked in 0.. {
        let Some(rest) = frame.get(start..) else { return Some(None) };
        let length = match next {
            IpNumber::IPV6_HEADER_HOP_BY_HOP | IpNumber::IPV6_ROUTE_HEADER | IpNumber::IPV6_DESTINATION_OPTIONS
                if walked < 8 =>
            {
                let Ok(header) = Ipv6RawExtHeaderSlice::from_slice(rest) else {
                    return Some(None);
                };
                next = header.next_header();
                header.slice().len()
            }
            // Messages of these protocols end the chain.
            IpNumber(135 | 139 | 140) if rest.len() >= 8 && rest[0] == 59 => return Some(Some((next.0, start))),
            IpNumber(135 | 139 | 140) if rest.len() < 8 => return Some(None),
            IpNumber(135 | 139 | 140) if walked < 8 => {
                next = IpNumber(rest[0]);
                (usize::from(rest[1]) + 1) * 8
            }
            IpNumber::IPV6_FRAGMENTATION_HEADER if walked < 8 => {
                let whole = |header: &Ipv6FragmentHeaderSlice| header.fragment_offset().value() == 0;
                let Some(header) = Ipv6FragmentHeaderSlice::from_slice(rest).ok().filter(whole) else {
                    return Some(None);
                };
                next = header.next_header();
                header.slice().len()
            }
            IpNumber::AUTHENTICATION_HEADER if walked < 8 => {
                match IpAuthHeaderSlice::from_slice(rest) {
                    Ok(header) => {
                        next = header.next_header();
                        header.slice().len()
                    }
                    Err(ip_auth::HeaderSliceError::Len(_)) => return Some(None),
                    // The length is too small for the fixed fields. etherparse stops; this crate only needs the next
                    // header.
                    Err(ip_auth::HeaderSliceError::Content(_)) => return None,
                }
            }
            upper => return Some((walked < 8 || !is_extension(upper)).then_some((upper.0, start))),
        };
        start += length;
    }
    unreachable!("the chain ends after eight headers")
}

fn is_extension(number: IpNumber) -> bool {
    matches!(number.0, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140)
}

/// Adds a VLAN tag as a function does: the addresses move to the front, the other bytes stay.
fn push_tag(packet: &mut Packet) {
    packet.prepend(4).expect("headroom for tags");
    let data = packet.data_mut();
    data.copy_within(4..16, 0);
    data[12..16].copy_from_slice(&[0x81, 0x00, 0x00, 0x07]);
}

/// Removes the outer VLAN tag, if there is one.
fn pop_tag(packet: &mut Packet) -> bool {
    let tagged = matches!(packet.data(), [_, _, _, _, _, _, _, _, _, _, _, _, 0x81, 0x00, _, _, _, _, ..]);
    if tagged {
        packet.data_mut().copy_within(0..12, 4);
        assert!(packet.strip(4));
    }
    tagged
}

proptest! {
    #![proptest_config(cases(4_096))]

    #[test]
    fn layers_start_where_etherparse_finds_them(bytes in any_frame(), transport_first: bool) {
        let pool = pool();
        let mut packet = packet(&pool, &bytes);
        let (network, transport) = seen_by_etherparse(&bytes);
        if transport_first {
            let _ = packet.transport();
        }
        // Two rounds: the first locates the layers, the second uses the stored offsets.
        for _ in 0..2 {
            prop_assert_eq!(packet.network(), network);
            let found = packet.transport();
            if let Some(transport) = transport {
                prop_assert_eq!(found, transport);
            }
            prop_assert!(found.is_none_or(|(_, offset)| offset <= bytes.len()));
        }
        prop_assert_eq!(packet.ipv4().is_some(), network.0 == Network::Ipv4);
        prop_assert_eq!(packet.ipv6().is_some(), network.0 == Network::Ipv6);
        prop_assert_eq!(packet.data(), &bytes[..]);
    }

    #[test]
    fn stored_layers_equal_a_new_search(bytes in frame_with_tags(2), edits in vec((0u8..5, 0usize..150), 1..12)) {
        let pool = pool();
        let mut packet = packet(&pool, &bytes);
        let tags = |packet: &Packet| (0..3).take_while(|n| {
            packet.data().get(12 + 4 * n..14 + 4 * n).is_some_and(|bytes| matches!(bytes, [0x81, 0x00] | [0x88, 0xa8]))
        }).count();
        // Never add a third tag: the search would not skip it, and removing one of three tags would reveal a layer that
        // was hidden before.
        for (edit, n) in edits {
            match edit {
                0 if tags(&packet) < 2 && packet.len() >= 14 && packet.headroom() >= 4 => push_tag(&mut packet),
                1 => _ = pop_tag(&mut packet),
                2 => packet.truncate(n),
                3 => _ = packet.network(),
                _ => _ = packet.transport(),
            }
            let mut second = pool.take().expect("two");
            prop_assert!(second.copy_from(&packet));
            let mut searched = second;
            searched.forget_layers();
            let (network, transport) = (packet.network(), packet.transport());
            prop_assert_eq!(network.0, searched.network().0);
            if network.0 != Network::Other {
                prop_assert_eq!(network.1, searched.network().1);
            }
            prop_assert_eq!(transport, searched.transport());
            prop_assert_eq!(packet.ports(), searched.ports());
        }
    }

    #[test]
    fn a_placed_header_is_the_one_that_is_found(bytes in any_frame(), offset in 0usize..150, searched_before: bool) {
        let pool = pool();
        let mut packet = packet(&pool, &bytes);
        if searched_before {
            let _ = (packet.transport(), packet.session_hash());
        }
        let fits = offset + size_of::<Ipv4>() <= bytes.len();
        prop_assert_eq!(packet.place_ipv4(offset), fits);
        if fits {
            let header: &[u8] = zerocopy::IntoBytes::as_bytes(packet.known_ipv4().expect("it was placed"));
            prop_assert_eq!(header, &bytes[offset..offset + 20]);
            prop_assert_eq!(packet.network(), (Network::Ipv4, offset));
        } else {
            prop_assert!(packet.known_ipv4().is_none());
        }
        prop_assert!(!packet.place_ipv4(usize::MAX), "no sum overflows");
    }

    #[test]
    fn wrapping_is_prepending_and_placing(bytes in vec(any::<u8>(), 0..80), n in 0usize..140, offset in 0usize..40) {
        let pool = pool();
        let (mut one, mut two) = (packet(&pool, &bytes), packet(&pool, &bytes));
        let _ = (one.session_hash(), two.session_hash());
        let fits = n <= two.headroom() && bytes.len() + n >= 50 && offset <= 30;
        let first = one.wrap_in_ipv4::<50>(n, offset).map(|first| {
            first[..n.min(50)].fill(0x45);
            first.to_vec()
        });
        prop_assert_eq!(first.is_some(), fits);
        if let Some(first) = first {
            two.prepend(n).expect("room")[..n.min(50)].fill(0x45);
            prop_assert!(two.place_ipv4(offset));
            prop_assert_eq!(&first[..], &two.data()[..50]);
        }
        prop_assert_eq!(one.data(), two.data());
        prop_assert_eq!(one.headroom(), two.headroom());
        prop_assert_eq!((one.network(), one.session_hash()), (two.network(), two.session_hash()));
        // Removes the headers again.
        let fits = n + offset + size_of::<Ipv4>() <= two.len();
        prop_assert_eq!(one.unwrap_to_ipv4(n, offset), fits);
        if fits {
            prop_assert!(two.strip(n) && two.place_ipv4(offset));
        }
        prop_assert_eq!(one.data(), two.data());
        prop_assert_eq!((one.network(), one.session_hash()), (two.network(), two.session_hash()));
        prop_assert!(!one.unwrap_to_ipv4(usize::MAX, 0) && !one.unwrap_to_ipv4(0, usize::MAX));
    }

    /// Regression test: the offset of the transport layer in an earlier frame must not be used for the current frame.
    #[test]
    fn the_transport_layer_follows_the_current_network_layer(
        bytes in any_frame(), edits in vec((0u8..9, 0usize..90), 1..16),
    ) {
        let pool = pool();
        let mut packet = packet(&pool, &bytes);
        for (edit, n) in edits {
            match edit {
                0 => _ = packet.strip(n),
                1 => if let Some(first) = packet.prepend(n) { first.fill(0x45) },
                2 => packet.truncate(2 * n),
                3 => _ = packet.place_ipv4(n),
                4 => if let Some(first) = packet.wrap_in_ipv4::<34>(34, 14) { first.fill(0x45) },
                5 => _ = packet.unwrap_to_ipv4(n, 14),
                6 => _ = packet.transport(),
                7 => _ = packet.session_hash(),
                _ => {
                    let mut copy = pool.take().expect("two");
                    prop_assert!(copy.strip(0) && copy.prepend(n % 64).is_some() && copy.copy_from(&packet));
                    packet = copy;
                }
            }
            let (network, start) = packet.network();
            let mut searched = pool.take().expect("two");
            prop_assert!(searched.write(packet.data()));
            if network == Network::Ipv4 {
                prop_assert!(searched.place_ipv4(start));
            }
            if searched.network() == (network, start) {
                let (now, expected) = (packet.transport(), searched.transport());
                prop_assert_eq!(now, expected);
                prop_assert_eq!(packet.transport(), expected, "again");
            }
        }
    }

    #[test]
    fn a_copy_has_the_layers_of_the_original(bytes in any_frame(), moved in 0usize..64, searched_before: bool) {
        let pool = pool();
        let mut from = packet(&pool, &bytes);
        if searched_before {
            let _ = (from.transport(), from.session_hash());
        }
        let mut to = pool.take().expect("two");
        prop_assert!(to.prepend(moved).is_some());
        prop_assert!(to.copy_from(&from));
        prop_assert_eq!(
            (to.network(), to.transport(), to.session_hash()),
            (from.network(), from.transport(), from.session_hash()),
        );
    }
}

/// Builds an IPv4 header over `protocol` whose fields are valid as far as the layers code reads them.
fn ipv4(protocol: u8, upper: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([
        0x08,
        0x00,
        0x45,
        0,
        0,
        20 + upper.len() as u8,
        0,
        0,
        0,
        0,
        64,
        protocol,
        0,
        0,
        10,
        0,
        0,
        1,
        10,
        0,
        0,
        2,
    ]);
    frame.extend(upper);
    frame
}

/// Regression test: stored offsets remained when the frame was cut before the layers, and pointed beyond its end.
#[test]
fn a_frame_cut_before_a_layer_no_longer_has_it() {
    let pool = pool();
    let mut packet = packet(&pool, &ipv4(17, &[0, 1, 0, 2, 0, 8, 0, 0]));
    assert_eq!((packet.network(), packet.transport()), ((Network::Ipv4, 14), Some((17, 34))));
    packet.truncate(34);
    assert_eq!((packet.transport(), packet.ports()), (Some((17, 34)), None));
    packet.truncate(33);
    assert_eq!((packet.network(), packet.transport()), ((Network::Other, 14), None));
    packet.truncate(10);
    assert_eq!((packet.network(), packet.transport()), ((Network::Other, 0), None));
}

/// Regression test: extension headers were read from the padding after the packet, so padding affected rules and
/// sessions.
#[test]
fn extension_headers_end_with_the_packet() {
    let mut frame = vec![0; 14 + 40 + 4 + 20];
    (frame[12], frame[13], frame[14]) = (0x86, 0xdd, 0x60);
    // Four bytes of destination options, which need at least eight. The padding that would complete them names UDP.
    (frame[19], frame[20]) = (4, 60);
    frame[54..58].copy_from_slice(&[17, 0, 1, 4]);
    let pool = pool();
    assert_eq!(packet(&pool, &frame).transport(), None);
    frame[19] = 24;
    assert_eq!(packet(&pool, &frame).transport(), Some((17, 62)));
}

/// Regression test: only seven extension headers were skipped instead of eight.
#[test]
fn eight_extension_headers_are_skipped_and_nine_are_not() {
    let pool = pool();
    for extensions in 0..12 {
        let mut frame = vec![0; 12];
        frame.extend([
            0x86,
            0xdd,
            0x60,
            0,
            0,
            0,
            0,
            8 * extensions as u8 + 8,
            if extensions == 0 { 17 } else { 60 },
            64,
        ]);
        frame.extend([0; 32]);
        for remaining in (0..extensions).rev() {
            frame.extend([if remaining == 0 { 17 } else { 60 }, 0, 1, 4, 0, 0, 0, 0]);
        }
        frame.extend([0, 1, 0, 2, 0, 8, 0, 0]);
        let found = packet(&pool, &frame).transport();
        assert_eq!(found, (extensions <= 8).then_some((17, 54 + 8 * extensions)), "{extensions} extension headers");
    }
}

/// The numbers that mean "unknown" and "no such layer" are also valid protocol numbers.
#[test]
fn every_protocol_number_is_found_again_and_again() {
    let pool = pool();
    for protocol in 0..=255 {
        let mut packet = packet(&pool, &ipv4(protocol, &[0; 8]));
        for _ in 0..2 {
            assert_eq!(packet.transport(), Some((protocol, 34)));
        }
        packet.data_mut()[14 + 6..][..2].copy_from_slice(&[0, 1]);
        packet.forget_layers();
        for _ in 0..2 {
            assert_eq!(packet.transport(), None, "a later fragment of {protocol}");
        }
    }
}

/// Regression test: a header check after the transport layer had been located reset its protocol but not its offset. A
/// later address translation then did not update the transport checksum.
#[test]
fn a_header_check_keeps_the_transport_layer() {
    let pool = pool();
    let mut frame = Vec::new();
    let builder = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    builder.udp(1, 2).write(&mut frame, b"payload!").expect("memory");
    let mut packet = packet(&pool, &frame);
    assert_eq!(packet.transport(), Some((17, 34)));
    assert!(packet.is_plain_ipv4(&[false; 256]));
    assert_eq!((packet.transport(), packet.ports()), (Some((17, 34)), Some((17, 1, 2))));
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn a_plain_header_is_one_that_is_valid_and_has_no_options(frame in any_frame()) {
        let pool = pool();
        let (mut one, mut other) = (packet(&pool, &frame), packet(&pool, &frame));
        let (network, start) = other.network();
        let untagged = network == Network::Ipv4 && start == 14;
        let expected = untagged && frame[start] == 0x45 && Ipv4::is_valid(&frame[start..]);
        prop_assert_eq!(one.is_plain_ipv4(&[false; 256]), expected);
        prop_assert_eq!(one.network(), (network, start), "whether or not it was stored before");
        prop_assert_eq!(one.known_ipv4().copied(), other.ipv4().copied());
    }
}

/// Regression test: hosts accept IP behind LLC and SNAP headers, but filters forwarded it as another protocol
/// (CVE-2021-27853).
#[test]
fn ip_behind_llc_and_snap_is_hidden() {
    let pool = pool();
    let hides = |tags: &[u8], llc: &[u8], length: u16| {
        let frame = [&[2; 12][..], tags, &length.to_be_bytes(), llc, &[0x45; 40]].concat();
        packet(&pool, &frame).hides_network()
    };
    for tags in [&[][..], &[0x81, 0, 0, 5], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6]] {
        for (ether_type, hidden) in
            [([8, 0], true), ([0x86, 0xdd], true), ([0x81, 0], true), ([8, 6], false), ([0x20, 0], false)]
        {
            let llc = |organisation: [u8; 3]| [&[0xaa, 0xaa, 3][..], &organisation, &ether_type].concat();
            for length in [0, 48, 1_500] {
                assert_eq!(hides(tags, &llc([0; 3]), length), hidden, "{ether_type:02x?}");
                assert_eq!(hides(tags, &llc([0, 0, 0xf8]), length), hidden, "{ether_type:02x?}");
            }
            // The number of another organisation is not an EtherType, and a number above 1500 is not a length.
            assert!(!hides(tags, &llc([0, 0, 12]), 48) && !hides(tags, &llc([0; 3]), 1_501));
        }
        // A spanning tree frame.
        assert!(!hides(tags, &[0x42, 0x42, 3, 0, 0, 0, 8, 0], 38));
    }
}

//! Tests checksums and parts against a second implementation (etherparse), for frames as senders leave them.

use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use forebay_packet::{Pool, PoolOptions};
use proptest::prelude::*;

use super::super::block::Merged;
use super::*;

fn pool() -> Pool {
    Pool::new(PoolOptions { chunks: 128, ..PoolOptions::default() }).expect("memory")
}

/// Builds a frame with correct checksums.
fn built(ipv6: bool, tcp: bool, tags: usize, payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let mut frame = Vec::new();
    let write = |to: &mut Vec<u8>| match (ipv6, tcp) {
        (false, true) => {
            let builder = builder.ipv4([192, 0, 2, 1], [192, 0, 2, 9], 64).tcp(4_000, 80, 0xffff_f000, 1_000);
            let options = [etherparse::TcpOptionElement::Timestamp(7, 9)];
            builder.ack(5).psh().fin().cwr().options(&options).expect("room").write(to, payload)
        }
        (true, true) => builder.ipv6([1; 16], [2; 16], 9).tcp(4_000, 80, 77, 1_000).psh().write(to, payload),
        (false, false) => builder.ipv4([192, 0, 2, 1], [192, 0, 2, 9], 64).udp(53, 54).write(to, payload),
        (true, false) => builder.ipv6([1; 16], [2; 16], 9).udp(53, 54).write(to, payload),
    };
    write(&mut frame).expect("memory");
    (0..tags).for_each(|_| drop(frame.splice(12..12, [0x88, 0xa8, 0, 7])));
    frame
}

/// Returns the location of the transport header, and of the checksum in it.
fn partial(ipv6: bool, tcp: bool, tags: usize) -> Partial {
    Partial { start: 14 + 4 * tags + if ipv6 { 40 } else { 20 }, offset: if tcp { 16 } else { 6 } }
}

/// Reduces the checksum field to the sum of the pseudo-header, as a sender does.
fn make_partial(frame: &mut [u8], ipv6: bool, Partial { start, offset }: Partial) {
    let at = start + offset;
    let whole = checksum::sum(&frame[start..]);
    let field = checksum::sum(&frame[at..at + 2]);
    // The sum of everything is all ones, so the pseudo-header's sum is the complement of the rest without the field
    // itself.
    let rest = checksum::add(whole, !field);
    let pseudo = !checksum::add(rest, field);
    assert!(ipv6 || pseudo != 0);
    frame[at..at + 2].copy_from_slice(&pseudo.to_ne_bytes());
}

proptest! {
    #[test]
    fn a_completed_checksum_is_the_right_one(
        ipv6: bool,
        tcp: bool,
        tags in 0..3usize,
        payload in proptest::collection::vec(any::<u8>(), 0..1_400),
    ) {
        let right = built(ipv6, tcp, tags, &payload);
        let mut frame = right.clone();
        let partial = partial(ipv6, tcp, tags);
        make_partial(&mut frame, ipv6, partial);
        prop_assert!(complete(&mut frame, partial));
        prop_assert_eq!(frame, right);
    }

    #[test]
    fn a_checksum_outside_the_frame_is_refused(
        frame in proptest::collection::vec(any::<u8>(), 0..100),
        start in 0..200usize,
        offset in 0..200usize,
    ) {
        let mut changed = frame.clone();
        let within = start + offset + if offset == SCTP_CHECKSUM { 4 } else { 2 } <= frame.len();
        prop_assert_eq!(complete(&mut changed, Partial { start, offset }), within);
        prop_assert!(within || changed == frame);
    }

    #[test]
    fn the_parts_add_up_to_the_frame_and_are_valid(
        ipv6: bool,
        tcp: bool,
        tags in 0..3usize,
        // At least one byte of payload, so that there is a part.
        length in 1..20_000usize,
        size in 1..1_400usize,
        is_partial: bool,
    ) {
        prop_assume!(length / size < 100);
        let payload: Vec<_> = (0..length).map(|at| ((at * 7) >> 2) as u8).collect();
        let bytes = built(ipv6, tcp, tags, &payload);
        let at = partial(ipv6, tcp, tags);
        let kind = if tcp { if ipv6 { SegmentType::Tcp6 } else { SegmentType::Tcp4 } } else { SegmentType::Udp };
        let partial = is_partial.then_some(at);
        let merged = Some(Merged { kind, size });
        let frame = Frame { bytes: &bytes, length: bytes.len(), tag: None, partial, merged, stamp: 0 };
        let split = Split::of(&frame).expect("it can be split");
        prop_assert_eq!(split.parts(), length.div_ceil(size));
        let pool = pool();
        let mut whole = Vec::new();
        for part in 0..split.parts() {
            let mut packet = pool.take().expect("a chunk");
            prop_assert!(split.write(&frame, part, &mut packet));
            let sliced = SlicedPacket::from_ethernet(packet.data()).expect("a right frame");
            let (first, last) = (part == 0, part + 1 == split.parts());
            let (content, sum, right) = match (sliced.net, sliced.transport) {
                (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Tcp(it))) => {
                    let (ip, header) = (ip.header().to_header(), it.to_header());
                    prop_assert_eq!(ip.calc_header_checksum(), ip.header_checksum);
                    prop_assert_eq!(usize::from(ip.identification), part);
                    prop_assert_eq!(header.sequence_number, 0xffff_f000u32.wrapping_add((part * size) as u32));
                    prop_assert_eq!((header.cwr, header.fin, header.psh, header.ack), (first, last, last, true));
                    (it.payload().to_vec(), header.checksum, header.calc_checksum_ipv4(&ip, it.payload()))
                }
                (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Tcp(it))) => {
                    let (ip, header) = (ip.header().to_header(), it.to_header());
                    prop_assert_eq!(header.sequence_number, 77 + (part * size) as u32);
                    (it.payload().to_vec(), header.checksum, header.calc_checksum_ipv6(&ip, it.payload()))
                }
                (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(it))) => {
                    let (ip, header) = (ip.header().to_header(), it.to_header());
                    prop_assert_eq!(ip.calc_header_checksum(), ip.header_checksum);
                    (it.payload().to_vec(), header.checksum, header.calc_checksum_ipv4(&ip, it.payload()))
                }
                (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Udp(it))) => {
                    let (ip, header) = (ip.header().to_header(), it.to_header());
                    (it.payload().to_vec(), header.checksum, header.calc_checksum_ipv6(&ip, it.payload()))
                }
                other => panic!("{other:?}"),
            };
            // In TCP both forms of 0 are equal.
            let right = right.expect("a length that fits");
            prop_assert!(sum == right || tcp && sum == 0xffff && right == 0, "{} {}", sum, right);
            prop_assert!(content.len() == size || last && !content.is_empty());
            whole.extend(content);
        }
        prop_assert!(whole == payload);
    }
}

#[test]
fn frames_that_cannot_be_split_are_rejected() {
    let bytes = built(false, true, 0, &[1; 3_000]);
    let merged = |kind, size| Some(Merged { kind, size });
    let right = Frame {
        bytes: &bytes,
        length: bytes.len(),
        tag: None,
        partial: None,
        merged: merged(SegmentType::Tcp4, 1_000),
        stamp: 0,
    };
    assert_eq!(Split::of(&right).map(|split| split.parts()), Some(3));
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        Split::of(&Frame { bytes: &bytes, ..right }).is_some()
    };
    assert!(with(&|_| {}));
    // Another protocol; a header that exceeds the frame or is too short; another version; only headers.
    assert!(!with(&|bytes| bytes[23] = 17));
    assert!(!with(&|bytes| bytes[14] = 0x44));
    assert!(!with(&|bytes| bytes[14] = 0x65));
    assert!(!with(&|bytes| bytes[46] = 0x10));
    assert!(!with(&|bytes| bytes.truncate(60)));
    assert!(!with(&|bytes| bytes[12] = 9));
    assert!((0..bytes.len()).all(|length| {
        let split = Split::of(&Frame { bytes: &bytes[..length], ..right });
        split.is_some() == (length > 14 + 20 + 32)
    }));
    assert_eq!(Split::of(&Frame { merged: merged(SegmentType::Tcp4, 0), ..right }), None);
    assert_eq!(Split::of(&Frame { merged: merged(SegmentType::Other, 1_000), ..right }), None);
    // In a tunnel, the checksum starts further in.
    assert_eq!(Split::of(&Frame { partial: Some(Partial { start: 84, offset: 16 }), ..right }), None);
}

/// RFC 9260 gives no test vector; this is the check value of the CRC catalogue ("CRC-32/ISCSI").
#[test]
fn crc32c_of_the_nine_digits() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    // The checksum field counts as zero, whatever its value is.
    let mut frame = vec![7; 14 + 20];
    frame.extend([1, 2, 3, 4, 5, 6, 7, 8, 0xaa, 0xbb, 0xcc, 0xdd, 9, 9]);
    assert!(complete(&mut frame, Partial { start: 34, offset: 8 }));
    let sum = crc32c(&[1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 9, 9]).to_le_bytes();
    assert_eq!(frame[42..46], sum);
}

#[test]
fn a_tag_stands_behind_the_addresses() {
    let pool = pool();
    let mut packet = pool.take().expect("a chunk");
    assert!(!put_tag(&mut packet, [0x81, 0, 0, 5]), "no frame");
    assert!(packet.write(&(0..60).collect::<Vec<_>>()));
    assert!(put_tag(&mut packet, [0x81, 0, 0, 5]));
    let expected: Vec<u8> = (0..12).chain([0x81, 0, 0, 5]).chain(12..60).collect();
    assert_eq!(packet.data(), expected);
    // Until the headroom is used up.
    while put_tag(&mut packet, [0x81, 0, 0, 6]) {}
    assert!(packet.headroom() < 4);
}

/// Regression test: a completed TCP checksum of zero was written as all ones, unlike a full recomputation.
#[test]
fn a_completed_checksum_equals_a_full_recomputation() {
    for (ipv6, tcp) in [(false, false), (false, true), (true, false), (true, true)] {
        let partial = partial(ipv6, tcp, 0);
        let (mut frame, mut zeros) = (built(ipv6, tcp, 0, &[0; 12]), 0);
        let (end, field) = (frame.len(), partial.start + partial.offset);
        let addresses = if ipv6 { 22..54 } else { 26..34 };
        let pseudo = [&frame[addresses], &[0, if tcp { 6 } else { 17 }, 0, (end - partial.start) as u8]].concat();
        for word in (0..=u16::MAX).map(u16::to_be_bytes) {
            frame[end - 2..].copy_from_slice(&word);
            frame[field..field + 2].fill(0);
            let right = !checksum::add(checksum::sum(&pseudo), checksum::sum(&frame[partial.start..]));
            zeros += u32::from(right == 0);
            let right = if right == 0 && !tcp { 0xffff } else { right };
            frame[field..field + 2].copy_from_slice(&checksum::sum(&pseudo).to_ne_bytes());
            assert!(complete(&mut frame, partial));
            assert_eq!(frame[field..field + 2], right.to_ne_bytes(), "ipv6 {ipv6}, tcp {tcp}, {word:x?}");
        }
        assert!(zeros > 0, "at least one checksum is zero");
    }
}

/// Regression test: a wrong header checksum became right in every part.
#[test]
fn a_wrong_ipv4_checksum_is_wrong_in_every_part() {
    let pool = pool();
    for tcp in [false, true] {
        let right = built(false, tcp, 0, &[3; 2_500]);
        let kind = if tcp { SegmentType::Tcp4 } else { SegmentType::Udp };
        for (at, flipped) in [(24, 0x40), (25, 1), (22, 0xff), (26, 0x80), (14, 0)] {
            let mut bytes = right.clone();
            bytes[at] ^= flipped;
            let length = bytes.len();
            let merged = Some(Merged { kind, size: 1_000 });
            let frame = Frame { bytes: &bytes, length, tag: None, partial: None, merged, stamp: 0 };
            let split = Split::of(&frame).expect("it can be split");
            let before = checksum::sum(&bytes[14..34]);
            assert_eq!(before == 0xffff, flipped == 0);
            for part in 0..3 {
                let mut packet = pool.take().expect("a chunk");
                assert!(split.write(&frame, part, &mut packet));
                assert_eq!(checksum::sum(&packet.data()[14..34]), before, "part {part}, byte {at}");
            }
        }
    }
}

//! Tests that packets of every supported link type become Ethernet frames, and that tshark reads the same packets from
//! the same captures.

use super::*;
use crate::pcap::link::{DESTINATION, SOURCE};

/// Returns an IPv4 header with UDP, to this address.
fn ipv4(to: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1];
    packet.extend(to);
    packet.extend([0x13, 0x88, 0, 9, 0, 12, 0, 0, 1, 2, 3, 4]);
    packet
}

/// Returns an IPv6 header with UDP, to an address that starts with `first` and ends with `last`.
fn ipv6(first: u8, last: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 12, 17, 64, 0x20, 1, 0x0d, 0xb8];
    packet.extend([0; 12]);
    packet.push(first);
    packet.extend([0; 11]);
    packet.extend(last);
    packet.extend([0x13, 0x88, 0, 9, 0, 12, 0, 0, 1, 2, 3, 4]);
    packet
}

fn frame(destination: [u8; 6], source: [u8; 6], kind: u16, payload: &[u8]) -> Vec<u8> {
    [&destination[..], &source, &kind.to_be_bytes(), payload].concat()
}

fn plain(kind: u16, payload: &[u8]) -> Vec<u8> {
    frame(DESTINATION, SOURCE, kind, payload)
}

fn after(header: &[u8], payload: &[u8]) -> Vec<u8> {
    [header, payload].concat()
}

/// A packet in a capture, and the Ethernet frame that it becomes.
type Pair = (Vec<u8>, Vec<u8>);

/// Returns packets of each link type, each with the frame that it becomes.
fn table() -> Vec<(u16, Vec<Pair>)> {
    let (four, six) = (ipv4([198, 51, 100, 9]), ipv6(0x20, [0, 0, 0, 9]));
    let (ip4, ip6) = (plain(0x0800, &four), plain(0x86dd, &six));
    let loopback = |header: [u8; 4], payload: &[u8], frame: &[u8]| (after(&header, payload), frame.to_vec());
    let families: Vec<_> = [10, 23, 24, 28, 30]
        .into_iter()
        .flat_map(|family| [loopback([0, 0, 0, family], &six, &ip6), loopback([family, 0, 0, 0], &six, &ip6)])
        .chain([loopback([0, 0, 0, 2], &four, &ip4), loopback([2, 0, 0, 0], &four, &ip4)])
        .collect();
    let raw = vec![(four.clone(), ip4.clone()), (six.clone(), ip6.clone())];
    let mac = [0x02, 9, 8, 7, 6, 5];
    let sll = |kind: u16, length: u8, protocol: u16, payload: &[u8]| {
        let head = [&kind.to_be_bytes()[..], &[0, 1, 0, length], &mac, &[0, 0], &protocol.to_be_bytes()].concat();
        after(&head, payload)
    };
    let sll2 = |kind: u8, length: u8, protocol: u16, payload: &[u8]| {
        let head = [&protocol.to_be_bytes()[..], &[0, 0, 0, 0, 0, 3, 0, 1, kind, length], &mac, &[0, 0]].concat();
        after(&head, payload)
    };
    let stp = [0x42, 0x42, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let all = [0xff; 6];
    let lcp = [0xc0, 0x21, 9, 1, 0, 8, 1, 2, 3, 4];
    let pppoe = |payload: &[u8]| plain(0x8864, &[&[0x11, 0, 0, 0, 0, payload.len() as u8], payload].concat());
    let ppp: Vec<_> = [&[][..], &[0xff, 3]]
        .into_iter()
        .flat_map(|head| {
            [
                (after(&after(head, &[0, 0x21]), &four), ip4.clone()),
                (after(&after(head, &[0x21]), &four), ip4.clone()),
                (after(&after(head, &[0, 0x57]), &six), ip6.clone()),
                (after(head, &lcp), pppoe(&lcp)),
            ]
        })
        .collect();
    let directed = ppp.iter().map(|(packet, frame)| (after(&[0], packet), frame.clone())).collect();
    let discovery = [0x11, 9, 0, 0, 0, 4, 1, 1, 0, 0];
    let session = after(&[0x11, 0, 0, 7, 0, 34, 0, 0x21], &four);
    let groups = vec![
        (ipv4([224, 0x85, 0, 5]), frame([1, 0, 0x5e, 5, 0, 5], SOURCE, 0x0800, &ipv4([224, 0x85, 0, 5]))),
        (ipv4([255; 4]), frame(all, SOURCE, 0x0800, &ipv4([255; 4]))),
        (ipv6(0xff, [1, 2, 3, 4]), frame([0x33, 0x33, 1, 2, 3, 4], SOURCE, 0x86dd, &ipv6(0xff, [1, 2, 3, 4]))),
    ];
    vec![
        (0, families.clone()),
        (108, families),
        (12, raw.clone()),
        (14, raw.clone()),
        (101, [raw, groups].concat()),
        (228, vec![(four.clone(), ip4.clone())]),
        (229, vec![(six.clone(), ip6.clone())]),
        (
            113,
            vec![
                (sll(0, 6, 0x0800, &four), frame(DESTINATION, mac, 0x0800, &four)),
                (sll(4, 6, 0x86dd, &six), frame(DESTINATION, mac, 0x86dd, &six)),
                (sll(1, 6, 0x0806, &[0; 28]), frame(all, mac, 0x0806, &[0; 28])),
                (sll(0, 0, 0x0800, &four), ip4.clone()),
                (sll(2, 6, 4, &stp), frame(DESTINATION, mac, 16, &stp)),
            ],
        ),
        (
            276,
            vec![
                (sll2(0, 6, 0x0800, &four), frame(DESTINATION, mac, 0x0800, &four)),
                (sll2(1, 6, 0x0806, &[0; 28]), frame(all, mac, 0x0806, &[0; 28])),
                (sll2(4, 0, 0x86dd, &six), ip6.clone()),
            ],
        ),
        (9, ppp.clone()),
        (204, directed),
        (
            50,
            [ppp, vec![(after(&[0x0f, 0, 8, 0], &four), ip4.clone()), (after(&[0x8f, 0, 0x86, 0xdd], &six), ip6)]]
                .concat(),
        ),
        (104, vec![(after(&[0x0f, 0, 8, 0], &four), ip4)]),
        (51, vec![(session.clone(), plain(0x8864, &session)), (discovery.to_vec(), plain(0x8863, &discovery))]),
    ]
}

#[test]
fn packets_of_every_link_type_become_ethernet_frames() {
    for (link, packets) in table() {
        let records: Vec<_> = packets.iter().map(|(packet, _)| (1, 0, packet.len() as u32, &packet[..])).collect();
        for (magic, big) in [(0xa1b2_c3d4, false), (0xa1b2_c3d4, true), (0xa1b2_3c4d, false), (0xa1b2_3c4d, true)] {
            let file = classic(big, magic, link.into(), &records);
            let mut reader = Reader::new(&file[..]).expect("a capture");
            for (packet, frame) in &packets {
                let read = reader.next().unwrap_or_else(|| panic!("link type {link}: {packet:02x?}")).expect("sound");
                assert_eq!(read.bytes, frame, "link type {link}: {packet:02x?}");
                assert_eq!(read.original_len as usize, frame.len(), "link type {link}");
            }
            assert!(reader.next().is_none() && reader.take_skipped().is_empty(), "link type {link}");
        }
    }
}

/// A truncated packet keeps its original length.
#[test]
fn a_synthesised_header_counts_in_the_original_length() {
    let file = classic(false, 0xa1b2_c3d4, 101, &[(1, 0, 1500, &ipv4([192, 0, 2, 9]))]);
    let mut reader = Reader::new(&file[..]).expect("a capture");
    let read = reader.next().expect("one").expect("sound");
    assert_eq!((read.bytes.len(), read.original_len), (14 + 32, 14 + 1500));
}

/// Returns what tshark reports for a capture: the captured length and the protocols of each packet. `None` if tshark is
/// not installed.
pub(super) fn tshark(path: &Path) -> Option<Vec<(usize, String)>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(path).args(["-T", "fields", "-e", "frame.cap_len", "-e", "frame.protocols"]);
    let output = command.output().ok()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tshark cannot read {}: {errors}", path.display());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = |line: &str| line.split_once('\t').map(|(len, rest)| (len.parse().expect("a number"), rest.to_owned()));
    Some(text.lines().filter_map(line).collect())
}

/// Puts all link types into one pcapng file. tshark must find the same number of packets, and the same protocols after
/// Ethernet.
#[test]
fn tshark_reads_the_same_packets() {
    let folder = Folder::new("links");
    let (mut ng, mut frames, mut lengths) = (ng_start(false, 1, &[]), Vec::new(), Vec::new());
    for (index, (link, packets)) in table().into_iter().enumerate() {
        ng.extend(ng_block(false, 1, &[halves(false, link, 0), words(false, &[0])].concat()));
        for (packet, frame) in packets {
            ng.extend(enhanced(false, index as u32 + 1, 5, packet.len() as u32, &packet));
            // tshark does not count the byte of direction.
            lengths.push(packet.len() - usize::from(link == 204));
            frames.push(frame);
        }
    }
    let read = times_and_bytes(&ng);
    assert_eq!(read.iter().map(|(_, bytes)| bytes).collect::<Vec<_>>(), frames.iter().collect::<Vec<_>>());
    let before = PathBuf::from(folder.file("links.pcapng", &ng));
    let after = folder.path("ethernet.pcap");
    let mut writer = Writer::create(&after, WhenFull::Wait).expect("writable");
    assert!(read.iter().all(|(nanos, bytes)| writer.write(*nanos, bytes.len(), bytes)));
    writer.finish().expect("written");
    let (Some(before), Some(after)) = (tshark(&before), tshark(&after)) else {
        let _ = writeln!(std::io::stderr(), "skipped: tshark is not installed");
        return;
    };
    assert_eq!(before.iter().map(|(length, _)| *length).collect::<Vec<_>>(), lengths);
    assert_eq!(
        after.iter().map(|(length, _)| *length).collect::<Vec<_>>(),
        frames.iter().map(Vec::len).collect::<Vec<_>>()
    );
    for ((_, before), (_, after)) in before.iter().zip(&after) {
        let network = |protocols: &str| {
            let known = |protocol: &&str| ["ip", "ipv6", "udp", "arp", "stp", "lcp"].contains(protocol);
            protocols.split(':').filter(known).collect::<Vec<_>>().join(":")
        };
        // tshark knows fewer address families in this header.
        if !(before.starts_with("null:") && network(before).is_empty()) {
            assert_eq!(network(before), network(after), "{before} became {after}");
        }
    }
}

/// A mixed capture is read to its end. Packets that cannot become Ethernet frames are counted by link type.
#[test]
fn packets_of_other_link_types_are_skipped_and_counted() {
    let folder = Folder::new("mixed");
    let mut ng = ng_start(false, 1, &[]);
    for link in [105, 101, 0, 113] {
        ng.extend(ng_block(false, 1, &[halves(false, link, 0), words(false, &[0])].concat()));
    }
    // This includes packets longer than any packet may be, and truncated ones.
    ng.extend(enhanced(false, 1, 1, 300_000, &vec![7; 300_000]));
    ng.extend(enhanced(false, 0, 2, 60, &[1; 60]));
    ng.extend(enhanced(false, 1, 3, 9, &[7; 9]));
    ng.extend(enhanced(false, 2, 4, 9, &[0x70; 9]));
    ng.extend(enhanced(false, 3, 5, 9, &[0, 0, 0, 77, 5, 5, 5, 5, 5]));
    ng.extend(enhanced(false, 4, 6, 99, &[0; 15]));
    ng.extend(enhanced(false, 2, 7, 32, &ipv4([192, 0, 2, 9])));
    let expected = [
        ("link type 0 (NULL, BSD loopback) with a protocol that Ethernet does not carry", 1),
        ("link type 101 (RAW, IP) with a protocol that Ethernet does not carry", 1),
        ("link type 105 (IEEE 802.11)", 2),
        ("link type 113 (SLL, Linux cooked) cut inside its header", 1),
    ];
    let file = folder.file("mixed.pcapng", &ng);
    for loops in [1, 2] {
        let mut port = open(json!({ "read": file, "speed": "fast", "loops": loops })).expect("a capture");
        let played = play(&mut port, &pool(2048));
        assert_eq!(played.len() as u64, 2 * loops);
        let counted = port.counters.skipped.get();
        let all: std::collections::BTreeMap<_, _> =
            expected.iter().map(|(reason, count)| ((*reason).to_owned(), count * loops)).collect();
        assert_eq!(counted, all);
        assert_eq!((port.counters.dropped.get(), port.counters.errors.get()), (5 * loops, 0));
        assert_eq!(port.port.close(), Ok(()), "skipped packets are not an error");
    }
}

/// A capture with a large number of link types takes little memory for the counters.
#[test]
fn skipped_packets_of_many_link_types_are_counted_together() {
    let mut skipped = Skipped::default();
    for link in 1000..9000 {
        skipped.add(Skip { link, reason: SkipReason::Link });
    }
    assert_eq!((skipped.total(), skipped.iter().count()), (8000, 65));
    assert!(skipped.to_string().ends_with("7936 of other link types"), "{skipped}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// Any packet of any link type becomes a frame or is counted.
    #[test]
    fn no_packet_is_lost_or_does_harm(
        packets in proptest::collection::vec(
            (0_u16..300, proptest::collection::vec(any::<u8>(), 0..40), 0_u32..2000), 1..20,
        ),
    ) {
        let mut ng = ng_start(true, 1, &[]);
        for link in 0..300 {
            ng.extend(ng_block(true, 1, &[halves(true, link, 0), words(true, &[0])].concat()));
        }
        for (link, bytes, original) in &packets {
            ng.extend(enhanced(true, u32::from(*link) + 1, 0, *original, bytes));
        }
        let mut reader = Reader::new(&ng[..]).expect("a capture");
        let mut count = 0;
        while let Some(read) = reader.next() {
            match read {
                Ok(record) => {
                    prop_assert!(record.original_len as usize >= record.bytes.len() || record.bytes.len() < 40);
                    count += 1;
                }
                Err(error) => {
                    let error = error.to_string();
                    prop_assert!(count == 0 && error.starts_with("no packet can be read"), "{}", error);
                }
            }
        }
        prop_assert_eq!(count + reader.take_skipped().total(), packets.len() as u64);
    }
}

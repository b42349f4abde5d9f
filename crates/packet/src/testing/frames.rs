//! Random frames for tests: valid frames of every form that the layers code knows, and frames with faults.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Returns a frame with up to three VLAN tags.
pub(crate) fn frame() -> BoxedStrategy<Vec<u8>> {
    frame_with_tags(3)
}

/// Returns a valid frame with up to `most` VLAN tags.
pub(crate) fn frame_with_tags(most: usize) -> BoxedStrategy<Vec<u8>> {
    let tag = (prop_oneof![Just(0x8100u16), Just(0x88a8)], any::<u16>());
    let other = (any::<u16>(), vec(any::<u8>(), 0..80));
    let network = prop_oneof![
        4 => ipv4().prop_map(|bytes| (0x0800, bytes)),
        4 => ipv6().prop_map(|bytes| (0x86dd, bytes)),
        1 => other,
    ];
    (any::<[u8; 12]>(), vec(tag, 0..=most), network)
        .prop_map(|(addresses, tags, (ether_type, network))| {
            let mut frame = addresses.to_vec();
            for (tag_type, control) in tags {
                frame.extend(tag_type.to_be_bytes());
                frame.extend(control.to_be_bytes());
            }
            frame.extend(u16::to_be_bytes(ether_type));
            frame.extend(network);
            frame
        })
        .boxed()
}

/// Returns a valid frame, a frame with bytes changed or cut off, or random bytes.
pub(crate) fn any_frame() -> BoxedStrategy<Vec<u8>> {
    let changed = (frame(), vec((any::<Index>(), any::<u8>()), 1..4)).prop_map(|(mut frame, changes)| {
        for (at, byte) in changes {
            // The headers are in the first 90 bytes.
            let at = at.index(frame.len().min(90));
            frame[at] = byte;
        }
        frame
    });
    let cut = (frame(), any::<Index>()).prop_map(|(mut frame, at)| {
        frame.truncate(at.index(frame.len() + 1));
        frame
    });
    prop_oneof![3 => frame(), 3 => changed, 3 => cut, 1 => vec(any::<u8>(), 0..200)].boxed()
}

/// Returns an IPv4 packet with a correct checksum: with or without options, whole or a fragment.
pub(crate) fn ipv4() -> BoxedStrategy<Vec<u8>> {
    let fragment = prop_oneof![4 => Just(0u16), 1 => Just(0x2000), 1 => any::<u16>()];
    (any::<[u8; 20]>(), vec(any::<u8>(), 0..=40), fragment, upper())
        .prop_map(|(fixed, mut options, fragment, (protocol, upper))| {
            options.truncate(options.len() / 4 * 4);
            let length = 20 + options.len();
            let mut packet = fixed.to_vec();
            packet.extend(options);
            packet[0] = 0x40 | (length / 4) as u8;
            packet[2..4].copy_from_slice(&((length + upper.len()) as u16).to_be_bytes());
            packet[6..8].copy_from_slice(&fragment.to_be_bytes());
            packet[9] = protocol;
            packet[10..12].fill(0);
            let checksum = header_checksum(&packet);
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
            packet.extend(upper);
            packet
        })
        .boxed()
}

/// Returns an IPv6 packet with or without extension headers.
pub(crate) fn ipv6() -> BoxedStrategy<Vec<u8>> {
    let extension = prop_oneof![
        (select(&[43u8, 60, 135, 139, 140][..]), 0u8..3, any::<[u8; 32]>()).prop_map(|(kind, units, body)| {
            let mut bytes = vec![0, units];
            bytes.extend(&body[..8 * (usize::from(units) + 1) - 2]);
            (kind, bytes)
        }),
        prop_oneof![3 => Just(0u16), 1 => Just(1), 1 => any::<u16>()].prop_map(|offset| {
            let mut bytes = vec![0, 0];
            bytes.extend(offset.to_be_bytes());
            bytes.extend([1, 2, 3, 4]);
            (44, bytes)
        }),
        (1u8..4, any::<[u8; 20]>()).prop_map(|(units, body)| {
            let mut bytes = vec![0, units];
            bytes.extend(&body[..4 * (usize::from(units) + 2) - 2]);
            (51, bytes)
        }),
    ];
    // Up to ten: more than are skipped.
    let extensions = prop_oneof![3 => vec(extension.clone(), 0..4), 1 => vec(extension, 0..=10)];
    (any::<[u8; 40]>(), any::<bool>(), extensions, upper())
        .prop_map(|(fixed, hop_by_hop, mut extensions, (protocol, upper))| {
            if hop_by_hop {
                extensions.insert(0, (0, vec![0, 0, 1, 4, 0, 0, 0, 0]));
            }
            let mut packet = fixed.to_vec();
            packet[0] = 0x60 | packet[0] & 0x0f;
            let mut next = 6;
            for (kind, bytes) in extensions {
                packet[next] = kind;
                next = packet.len();
                packet.extend(bytes);
            }
            packet[next] = protocol;
            packet.extend(upper);
            let length = (packet.len() - 40) as u16;
            packet[4..6].copy_from_slice(&length.to_be_bytes());
            packet
        })
        .boxed()
}

fn upper() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let protocol =
        prop_oneof![Just(1u8), Just(6), Just(17), Just(59), Just(33), Just(58), Just(132), Just(136), any::<u8>()];
    (protocol, vec(any::<u8>(), 0..60))
}

/// The header checksum of RFC 791 section 3.1, computed word by word.
pub(crate) fn header_checksum(header: &[u8]) -> u16 {
    let mut sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

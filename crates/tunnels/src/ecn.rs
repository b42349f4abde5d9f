//! Combines the congestion marks of the outer and the inner packet at the end of a tunnel, so that a mark that a router
//! on the path has set in the outer packet is not lost (RFC 6040).

use forebay_packet::Packet;
use forebay_packet::wire::checksum;

/// The two bits of a traffic class that hold the mark.
const ECN: u8 = 0x03;
/// The mark ECT(1).
const ECT_1: u8 = 0x01;
/// The mark "congestion experienced".
const CE: u8 = 0x03;

/// Returns true if the mark in an outer traffic class never changes the inner packet. There are two such marks: Not-ECT
/// (the transport does not support congestion notification) and ECT(0) (no congestion was met).
#[inline(always)]
pub fn is_neutral(outer_class: u8) -> bool {
    outer_class & 1 == 0
}

/// Returns the mark of the inner packet after decapsulation (RFC 6040 figure 4). Returns `None` if the packet must be
/// dropped, because congestion was met and the inner packet cannot be marked.
fn combined(outer: u8, inner: u8) -> Option<u8> {
    match (outer & ECN, inner & ECN) {
        (CE, 0) => None,
        (CE, _) => Some(CE),
        (ECT_1, inner @ (0 | CE)) => Some(inner),
        (ECT_1, _) => Some(ECT_1),
        (_, inner) => Some(inner),
    }
}

/// Combines the mark in `outer_class`, the traffic class of the outer packet, with the mark of the decapsulated
/// `packet`, and writes the result to `packet`. A packet that is not IP is not changed. Returns false if the packet
/// must be dropped.
pub fn pass_on(packet: &mut Packet, outer_class: u8) -> bool {
    if is_neutral(outer_class) {
        return true;
    }
    if let Some(header) = packet.ipv4() {
        let old = header.traffic_class;
        let Some(ecn) = combined(outer_class, old) else { return false };
        header.traffic_class = old & !ECN | ecn;
        let sum = checksum::replace16(header.checksum.get(), old.into(), header.traffic_class.into());
        header.checksum.set(sum);
    } else if let Some(header) = packet.ipv6() {
        // The class is bits 4 to 11 of the header.
        let word = header.version_class_label.get();
        let Some(ecn) = combined(outer_class, (word >> 20) as u8) else { return false };
        header.version_class_label.set(word & !(u32::from(ECN) << 20) | u32::from(ecn) << 20);
    }
    true
}

#[cfg(test)]
mod tests {
    use forebay_packet::wire::ipv4::Ipv4;
    use forebay_packet::{Pool, PoolOptions};
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;

    /// Tests every value of the checksum, including those at which it carries.
    #[test]
    fn the_checksum_equals_a_full_recomputation() {
        let pool = Pool::new(PoolOptions { chunks: 1, ..PoolOptions::default() }).expect("memory");
        let mut packet = pool.take().expect("one");
        for (class, identification) in [1, 2].into_iter().flat_map(|class| (0..=u16::MAX).map(move |id| (class, id))) {
            let mut header = Ipv4::new_zeroed();
            (header.version_ihl, header.traffic_class, header.total_length) = (0x45, class, 20.into());
            header.identification = identification.into();
            header.update_checksum(&[]);
            assert!(packet.write(&[&[2; 12][..], &[8, 0], header.as_bytes()].concat()));
            assert!(pass_on(&mut packet, 3));
            header.traffic_class = 3;
            header.update_checksum(&[]);
            assert_eq!(&packet.data()[14..], header.as_bytes(), "{identification:x}");
        }
    }

    #[test]
    fn the_table_of_rfc_6040() {
        const NOT: u8 = 0;
        const ECT_0: u8 = 2;
        let figure_4 = [
            (NOT, [Some(NOT), Some(NOT), Some(NOT), None]),
            (ECT_0, [Some(ECT_0), Some(ECT_0), Some(ECT_1), Some(CE)]),
            (ECT_1, [Some(ECT_1), Some(ECT_1), Some(ECT_1), Some(CE)]),
            (CE, [Some(CE); 4]),
        ];
        for (inner, row) in figure_4 {
            for (outer, expected) in [NOT, ECT_0, ECT_1, CE].into_iter().zip(row) {
                assert_eq!(combined(0xb8 | outer, 0x28 | inner), expected, "outer {outer}, inner {inner}");
                if is_neutral(outer) {
                    assert_eq!(expected, Some(inner), "outer {outer} changes nothing");
                }
            }
        }
    }
}

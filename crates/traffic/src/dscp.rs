//! The differentiated services code point (RFC 2474) of both IP versions, and the assured forwarding classes (RFC
//! 2597).

use forebay_packet::wire::checksum::replace16;
use forebay_packet::{Network, Packet};
use zerocopy::big_endian::{U16, U32};

/// Returns the packet's code point, 0 to 63; `None` if the packet is not IP.
#[inline]
pub fn read(packet: &mut Packet) -> Option<u8> {
    if let Some(header) = packet.ipv4() {
        return Some(header.traffic_class >> 2);
    }
    let header = packet.ipv6()?;
    Some((header.version_class_label.get() >> 22) as u8 & 0x3f)
}

/// Writes the packet's code point, 0 to 63. Changes nothing if the packet is not IP. The congestion notification bits
/// (RFC 3168) stay, and the IPv4 checksum is updated by the difference (RFC 1624 equation 3).
#[inline]
pub fn write(packet: &mut Packet, dscp: u8) {
    match packet.network().0 {
        Network::Ipv4 => {
            let Some(header) = packet.ipv4() else { return };
            let (old, class) = (header.traffic_class, dscp << 2 | header.traffic_class & 3);
            if class == old {
                return;
            }
            let word = |class: u8| u16::from_be_bytes([header.version_ihl, class]);
            header.checksum = U16::new(replace16(header.checksum.get(), word(old), word(class)));
            header.traffic_class = class;
        }
        Network::Ipv6 => {
            let Some(header) = packet.ipv6() else { return };
            let others = header.version_class_label.get() & !(0x3f << 22);
            header.version_class_label = U32::new(others | u32::from(dscp & 0x3f) << 22);
        }
        Network::Other => {}
    }
}

/// Returns the class, 1 to 4, and the drop precedence, 1 to 3, of an assured forwarding code point AF11 to AF43 (RFC
/// 2597 section 6). `None` for other code points.
#[inline]
#[must_use]
pub fn assured(dscp: u8) -> Option<(u8, u8)> {
    /// One bit per code point: 10, 12 and 14, and the same three in each of the other classes.
    const ASSURED: u64 = 0x54_5454_5400;
    let is_assured = ASSURED.checked_shr(u32::from(dscp)).is_some_and(|codes| codes & 1 == 1);
    is_assured.then_some((dscp >> 3, dscp >> 1 & 3))
}

/// Returns the assured forwarding code point of a class, 1 to 4, and a drop precedence, 1 to 3.
#[inline]
#[must_use]
pub fn assured_code(class: u8, precedence: u8) -> u8 {
    class << 3 | precedence << 1
}

#[cfg(test)]
mod tests {
    use etherparse::{Ipv4HeaderSlice, Ipv6HeaderSlice, PacketBuilder};
    use forebay_packet::{Pool, PoolOptions};

    use super::*;

    fn packet(pool: &Pool, frame: &[u8]) -> Packet {
        let mut packet = pool.take().expect("a chunk");
        assert!(packet.write(frame));
        packet
    }

    #[test]
    fn assured_forwarding_is_the_table_of_rfc_2597_section_6() {
        let table = [(1, [10, 12, 14]), (2, [18, 20, 22]), (3, [26, 28, 30]), (4, [34, 36, 38])];
        for (class, codes) in table {
            for (precedence, code) in (1..).zip(codes) {
                assert_eq!((assured(code), assured_code(class, precedence)), (Some((class, precedence)), code));
            }
        }
        assert_eq!((0..=u8::MAX).filter(|code| assured(*code).is_some()).count(), 12);
    }

    #[test]
    fn every_code_point_is_written_and_read_and_nothing_else_changes() {
        let pool = Pool::new(PoolOptions { chunks: 4, ..PoolOptions::default() }).expect("memory");
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        let ethernet = || PacketBuilder::ethernet2([2; 6], [4; 6]);
        ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1, 2).write(&mut v4, b"abc").expect("memory");
        ethernet().ipv6([1; 16], [2; 16], 64).udp(1, 2).write(&mut v6, b"abc").expect("memory");
        // The congestion notification bits are set and must stay.
        (v4[15], v6[15]) = (1, 0x35);
        v4[24..26].fill(0);
        let checksum = Ipv4HeaderSlice::from_slice(&v4[14..]).expect("a header").to_header().calc_header_checksum();
        v4[24..26].copy_from_slice(&checksum.to_be_bytes());
        let (mut four, mut six) = (packet(&pool, &v4), packet(&pool, &v6));
        for code in (0..64).chain([63, 0, 33]) {
            write(&mut four, code);
            write(&mut six, code);
            assert_eq!((read(&mut four), read(&mut six)), (Some(code), Some(code)));
            let header = Ipv4HeaderSlice::from_slice(&four.data()[14..]).expect("a header");
            assert_eq!((header.dcp().value(), header.ecn().value()), (code, 1));
            assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
            assert_eq!(four.data()[26..], v4[26..]);
            let header = Ipv6HeaderSlice::from_slice(&six.data()[14..]).expect("a header").to_header();
            assert_eq!((header.traffic_class, header.flow_label.value()), (code << 2 | 3, 0x5_0000));
            assert_eq!(six.data()[18..], v6[18..]);
        }
        // All values of the checksum, including values with a carry.
        for identification in 0..=u16::MAX {
            let mut header = *four.view::<forebay_packet::wire::ipv4::Ipv4>(14).expect("a header");
            (header.identification, header.traffic_class) = (identification.into(), 0xfc);
            header.update_checksum(&[]);
            assert!(four.write(&[&v4[..14], zerocopy::IntoBytes::as_bytes(&header)].concat()));
            write(&mut four, (identification % 63) as u8);
            header.traffic_class = (identification % 63) as u8 * 4;
            header.update_checksum(&[]);
            assert_eq!(&four.data()[14..], zerocopy::IntoBytes::as_bytes(&header), "{identification:x}");
        }
        let mut other = packet(&pool, &[0xff; 60]);
        write(&mut other, 5);
        assert_eq!((read(&mut other), other.data()), (None, &[0xff; 60][..]));
    }
}

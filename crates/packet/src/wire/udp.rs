//! The UDP header (RFC 768).

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum;
use super::ipv4::{self, Ipv4};
use super::ipv6::Ipv6;

/// The UDP header: eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Udp {
    /// Source port.
    pub source: U16,
    /// Destination port.
    pub destination: U16,
    /// Length of header and data, in bytes.
    pub length: U16,
    /// Checksum over a pseudo header, this header and the data. In IPv4, 0 means that no checksum was computed.
    pub checksum: U16,
}

/// Returns the ones' complement sum, in machine order, of a datagram and the pseudo header of its IPv4 header (RFC
/// 768). The sum is all ones if the datagram's checksum is correct. For a datagram whose checksum field is 0,
/// [`stored`] turns the sum into the value of that field.
#[must_use]
pub fn sum_over_ipv4(header: &Ipv4, datagram: &[u8]) -> u16 {
    let addresses = checksum::add(checksum::sum(&header.source), checksum::sum(&header.destination));
    let rest = checksum::add(u16::from(ipv4::UDP).to_be(), (datagram.len() as u16).to_be());
    checksum::add(checksum::add(addresses, rest), checksum::sum(datagram))
}

/// Returns the same sum as [`sum_over_ipv4`] for IPv6, whose pseudo header has the datagram's length in 32 bits (RFC
/// 8200 section 8.1). The destination in `header` must be the final destination: with a routing header, the last
/// address of the route.
#[must_use]
pub fn sum_over_ipv6(header: &Ipv6, datagram: &[u8]) -> u16 {
    let addresses = checksum::add(checksum::sum(&header.source), checksum::sum(&header.destination));
    let length = checksum::sum(&(datagram.len() as u32).to_be_bytes());
    let rest = checksum::add(u16::from(ipv4::UDP).to_be(), length);
    checksum::add(checksum::add(addresses, rest), checksum::sum(datagram))
}

/// Returns the checksum field for a sum: its complement, or 0xffff if the complement is 0, which would mean "no
/// checksum".
#[must_use]
pub fn stored(sum: u16) -> U16 {
    let complement = if sum == 0xffff { 0xffff } else { !sum };
    U16::from_bytes(complement.to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use etherparse::{Ipv4Header, UdpHeader};
    use zerocopy::FromZeros;

    use super::*;

    #[test]
    fn a_checksum_is_that_of_etherparse() {
        for payload in [&b""[..], b"odd", b"even", &[0xff; 1_001]] {
            let ip = Ipv4Header::new(8 + payload.len() as u16, 64, 17.into(), [10, 0, 0, 1], [192, 0, 2, 9]);
            let udp = UdpHeader::with_ipv4_checksum(7, 2_152, &ip.expect("short"), payload).expect("short");
            let mut header = Ipv4::new_zeroed();
            (header.source, header.destination) = ([10, 0, 0, 1], [192, 0, 2, 9]);
            let right = [&udp.to_bytes()[..], payload].concat();
            assert_eq!(sum_over_ipv4(&header, &right), 0xffff);
            let mut empty = right.clone();
            empty[6..8].fill(0);
            assert_eq!(stored(sum_over_ipv4(&header, &empty)).get(), udp.checksum);
        }
        for payload in [&b""[..], b"odd", b"even", &[0xff; 1_001]] {
            let (source, destination) = ([0xfd; 16], std::array::from_fn(|at| at as u8));
            let ip = etherparse::Ipv6Header { source, destination, ..Default::default() };
            let udp = UdpHeader::with_ipv6_checksum(7, 2_152, &ip, payload).expect("short");
            let mut header = Ipv6::new_zeroed();
            (header.source, header.destination) = (source, destination);
            let right = [&udp.to_bytes()[..], payload].concat();
            assert_eq!(sum_over_ipv6(&header, &right), 0xffff);
            let mut empty = right.clone();
            empty[6..8].fill(0);
            assert_eq!(stored(sum_over_ipv6(&header, &empty)).get(), udp.checksum);
        }
        assert_eq!((stored(0xffff).get(), stored(0).get()), (0xffff, 0xffff), "0 would mean no checksum");
    }
}

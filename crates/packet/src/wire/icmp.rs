//! The first four bytes of every ICMP (RFC 792) and ICMPv6 (RFC 4443) message.

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum;
use super::ipv6::Ipv6;

/// IP protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;

/// Types of ICMP (RFC 792).
pub mod v4 {
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// Destination unreachable; the code gives the reason.
    pub const UNREACHABLE: u8 = 3;
    /// Redirect to a better router (RFC 792).
    pub const REDIRECT: u8 = 5;
    /// Echo request.
    pub const ECHO: u8 = 8;
    /// Time to live exceeded.
    pub const TIME_EXCEEDED: u8 = 11;
    /// Invalid header field.
    pub const PARAMETER_PROBLEM: u8 = 12;
}

/// Types of ICMPv6 (RFC 4443).
pub mod v6 {
    /// Destination unreachable; the code gives the reason.
    pub const UNREACHABLE: u8 = 1;
    /// The packet is too long for the next link.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// Hop limit exceeded.
    pub const TIME_EXCEEDED: u8 = 3;
    /// The first informational type. Lower types are errors.
    pub const FIRST_INFORMATIONAL: u8 = 128;
    /// Echo request.
    pub const ECHO: u8 = 128;
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 129;
}

/// The bytes that every message starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Icmp {
    /// Message type.
    pub kind: u8,
    /// Message code.
    pub code: u8,
    /// Checksum over the message; in ICMPv6, also over a pseudo header.
    pub checksum: U16,
}

/// Returns the ones' complement sum, in machine order, of an ICMPv6 message and the pseudo header of its IPv6 header
/// (RFC 4443 section 2.3). The sum is all ones if the message's checksum is correct.
#[must_use]
pub fn sum_over_ipv6(header: &Ipv6, message: &[u8]) -> u16 {
    let addresses = checksum::add(checksum::sum(&header.source), checksum::sum(&header.destination));
    let length = checksum::sum(&(message.len() as u32).to_be_bytes());
    let rest = checksum::add(u16::from(ICMPV6).to_be(), length);
    checksum::add(checksum::add(addresses, rest), checksum::sum(message))
}

/// Updates the checksum of an ICMPv4 message after a word in it changed from `old` to `new`. The function adds the
/// difference, so a wrong checksum stays wrong. Returns the checksum before and after, or `None` if the message ends
/// before the checksum.
///
/// RFC 1624 equation 3 cannot distinguish a sum of words that are all zero from a sum of words that cancel out. The
/// checksums differ: 0xffff for words that are all zero, 0 for words that cancel out (RFC 1071). An ICMPv4 message has
/// no pseudo header and can be all zeros: an echo reply with identifier and sequence number 0 and no data.
pub fn replace_in_message(message: &mut [u8], old: u16, new: u16) -> Option<(u16, u16)> {
    let field: &mut [u8; 2] = message.get_mut(2..)?.first_chunk_mut()?;
    let before = u16::from_be_bytes(*field);
    let after = checksum::replace16(before, old, new);
    *field = after.to_be_bytes();
    if after != 0 || message[..2] != [0, 0] || message[4..].iter().any(|byte| *byte != 0) {
        return Some((before, after));
    }
    message[2..4].fill(0xff);
    Some((before, 0xffff))
}

/// Returns the checksum field of a message for the sum of all bytes that the checksum covers. The field must count as 0
/// in this sum.
#[must_use]
pub fn stored(sum: u16) -> U16 {
    U16::from_bytes((!sum).to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EDGES: [u16; 6] = [0, 1, 0x7fff, 0x8000, 0xfffe, 0xffff];

    /// Builds a message of words. The second word is the checksum over all of them.
    fn message(mut words: [u16; 5]) -> [u8; 10] {
        words[1] = 0;
        let mut bytes = [0; 10];
        words.iter().zip(bytes.chunks_mut(2)).for_each(|(word, slot)| slot.copy_from_slice(&word.to_be_bytes()));
        let sum = !checksum::sum(&bytes);
        bytes[2..4].copy_from_slice(&sum.to_ne_bytes());
        bytes
    }

    /// Regression test: if all other words were zero, the incremental checksum was 0 instead of 0xffff.
    #[test]
    fn a_change_by_the_difference_is_a_full_recomputation() {
        for number in 0..EDGES.len().pow(4) {
            let edge = |digit: u32| EDGES[number / EDGES.len().pow(digit) % EDGES.len()];
            let words = [edge(0), 0, edge(1), edge(2), edge(3)];
            for (at, new) in [0, 2, 3, 4].into_iter().flat_map(|at| EDGES.map(|new| (at, new))) {
                let (mut bytes, mut changed) = (message(words), words);
                changed[at] = new;
                bytes[2 * at..2 * at + 2].copy_from_slice(&new.to_be_bytes());
                let expected = message(changed);
                let changes = replace_in_message(&mut bytes, words[at], new).expect("it is long enough");
                assert_eq!(bytes, expected, "{words:x?}, {new:x} at {at}");
                assert_eq!(changes.1.to_be_bytes(), expected[2..4]);
            }
        }
        assert_eq!(replace_in_message(&mut [0, 0, 0], 1, 2), None);
    }

    /// A wrong checksum stays wrong by the same difference, even in a message of all zeros.
    #[test]
    fn a_wrong_checksum_stays_wrong() {
        for wrong in 1..0xffff_u16 {
            let mut bytes = message([0x0800, 0, 0, 0, 0]);
            let right = u16::from_be_bytes([bytes[2], bytes[3]]);
            bytes[..4].copy_from_slice(&[&[0, 0][..], &checksum::add(right, wrong).to_be_bytes()].concat());
            replace_in_message(&mut bytes, 0x0800, 0).expect("it is long enough");
            assert_ne!(checksum::sum(&bytes), 0xffff, "{wrong:x}");
        }
    }
}

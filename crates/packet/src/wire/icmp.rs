//! The first four bytes of every ICMP (RFC 792) and ICMPv6 (RFC 4443) message.

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum;
use super::ipv6::Ipv6;

/// IP protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;

/// Types of ICMP (RFC 792).
pub mod v4 {
    /// An echo's answer.
    pub const ECHO_REPLY: u8 = 0;
    /// The destination cannot be reached; the code says why.
    pub const UNREACHABLE: u8 = 3;
    /// A better router (RFC 792).
    pub const REDIRECT: u8 = 5;
    /// A wish for an echo.
    pub const ECHO: u8 = 8;
    /// The time to live is over.
    pub const TIME_EXCEEDED: u8 = 11;
    /// A header field is wrong.
    pub const PARAMETER_PROBLEM: u8 = 12;
}

/// Types of ICMPv6 (RFC 4443).
pub mod v6 {
    /// The destination cannot be reached; the code says why.
    pub const UNREACHABLE: u8 = 1;
    /// The packet is longer than the next link takes.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// The hop limit is over.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Types below are errors.
    pub const FIRST_INFORMATIONAL: u8 = 128;
    /// A wish for an echo.
    pub const ECHO: u8 = 128;
    /// An echo's answer.
    pub const ECHO_REPLY: u8 = 129;
}

/// What every message starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Icmp {
    /// Message type.
    pub kind: u8,
    /// Message code.
    pub code: u8,
    /// Checksum over the message; in ICMPv6 over a pseudo header too.
    pub checksum: U16,
}

/// The ones' complement sum, in machine order, of an ICMPv6 message and of the pseudo header that an IPv6 header stands for
/// (RFC 4443 section 2.3): all ones where the message's checksum is right.
#[must_use]
pub fn sum_over_ipv6(header: &Ipv6, message: &[u8]) -> u16 {
    let addresses = checksum::add(checksum::sum(&header.source), checksum::sum(&header.destination));
    let length = checksum::sum(&(message.len() as u32).to_be_bytes());
    let rest = checksum::add(u16::from(ICMPV6).to_be(), length);
    checksum::add(checksum::add(addresses, rest), checksum::sum(message))
}

/// Puts the checksum of an ICMP message of IPv4 right after a word in it has become `new`: by the difference, so that
/// one that was wrong stays wrong. The checksum before and after; `None` where the message ends before it.
///
/// RFC 1624 equation 3 cannot know whether a sum is zero because words cancel out or because all are zero, for which
/// the complement differs: 0 or 0xffff (RFC 1071). A message of IPv4, which has no pseudo header, can be all zero: an
/// echo reply without anything in it.
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

/// The checksum field of a message whose field is 0, for the sum of all that it covers.
#[must_use]
pub fn stored(sum: u16) -> U16 {
    U16::from_bytes((!sum).to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EDGES: [u16; 6] = [0, 1, 0x7fff, 0x8000, 0xfffe, 0xffff];

    /// A message of words, the second of them its checksum over all.
    fn message(mut words: [u16; 5]) -> [u8; 10] {
        words[1] = 0;
        let mut bytes = [0; 10];
        words.iter().zip(bytes.chunks_mut(2)).for_each(|(word, place)| place.copy_from_slice(&word.to_be_bytes()));
        let sum = !checksum::sum(&bytes);
        bytes[2..4].copy_from_slice(&sum.to_ne_bytes());
        bytes
    }

    /// Where every other word was zero, the checksum by the difference was 0 and not 0xffff.
    #[test]
    fn a_change_by_the_difference_is_a_full_recomputation() {
        for number in 0..EDGES.len().pow(4) {
            let edge = |place: u32| EDGES[number / EDGES.len().pow(place) % EDGES.len()];
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

    /// A wrong checksum stays wrong by as much, also that of a message that is all zero.
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

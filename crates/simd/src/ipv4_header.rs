//! Eight IPv4 headers checked together: whether a router may forward by them (RFC 1812 section 5.2.2).
//!
//! A header takes ten loads, comparisons and additions by itself; eight of them take little more than that each in
//! vectors, and one branch between them.

use crate::Level;

/// Frames that are checked together.
pub const EIGHT: usize = 8;

/// The start of a frame: an Ethernet header and an IPv4 header without options.
pub type Start = [u8; 34];

/// Whether each of eight frames, `lengths` bytes long (at least 34, of which `starts` are the first), is IPv4 straight
/// above Ethernet, its header without options, its total length neither less than the header's nor more than the frame
/// holds, and its checksum right (RFC 1071: the ones' complement sum of its words is all ones).
#[inline(always)]
#[must_use]
pub fn are_sound(level: Level, starts: &[&Start; EIGHT], lengths: &[u32; EIGHT]) -> bool {
    match level.0 {
        crate::level::Isa::Scalar => starts.iter().zip(lengths).all(|(start, length)| is_sound(start, *length)),
        // SAFETY: a level above scalar proves that this machine has AVX2.
        #[cfg(target_arch = "x86_64")]
        _ => unsafe { x86::are_sound(starts, lengths) },
    }
}

/// What [`are_sound`] says, of one frame.
fn is_sound(start: &Start, length: u32) -> bool {
    let [.., 0x08, 0x00, 0x45, _, high, low, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = *start else {
        return false;
    };
    let sum: u32 = start[14..].chunks_exact(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let total = u32::from(u16::from_be_bytes([high, low]));
    sum.is_multiple_of(0xffff) && (20..=length - 14).contains(&total)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::arch::x86_64::*;

    use super::{EIGHT, Start};

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn are_sound(starts: &[&Start; EIGHT], lengths: &[u32; EIGHT]) -> bool {
        let all = _mm256_and_si256(lengths_and_types(starts, lengths), checksums(starts));
        _mm256_movemask_epi8(all) == -1
    }

    /// All ones where EtherType, version, header length and total length are right.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn lengths_and_types(starts: &[&Start; EIGHT], lengths: &[u32; EIGHT]) -> __m256i {
        // Bytes 12 to 19: EtherType, version and header length, traffic class; total length, identification.
        let words = |frame: usize| i64::from_le_bytes(starts[frame][12..20].try_into().unwrap_or_default());
        let low = _mm256_castsi256_ps(_mm256_setr_epi64x(words(0), words(1), words(2), words(3)));
        let high = _mm256_castsi256_ps(_mm256_setr_epi64x(words(4), words(5), words(6), words(7)));
        // Both halves of all eight, in the order 0 1 4 5 2 3 6 7.
        let types = _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(low, high));
        let totals = _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(low, high));
        let type_mask = _mm256_set1_epi32(0x00ff_ffff);
        let right_type = _mm256_cmpeq_epi32(_mm256_and_si256(types, type_mask), _mm256_set1_epi32(0x0045_0008));
        // The upper half is dropped and the bytes of the lower swapped.
        let swap = _mm_setr_epi8(1, 0, -1, -1, 5, 4, -1, -1, 9, 8, -1, -1, 13, 12, -1, -1);
        let swap = _mm256_broadcastsi128_si256(swap);
        let totals = _mm256_shuffle_epi8(totals, swap);
        // Less than the header's own length wraps round and is more than any room.
        let payloads = _mm256_sub_epi32(totals, _mm256_set1_epi32(20));
        // SAFETY: eight words are 32 bytes, and this load needs no alignment.
        let lengths = unsafe { _mm256_loadu_si256(lengths.as_ptr().cast()) };
        let rooms = _mm256_sub_epi32(_mm256_permute4x64_epi64::<0b11_01_10_00>(lengths), _mm256_set1_epi32(34));
        let right_length = _mm256_cmpeq_epi32(_mm256_min_epu32(payloads, rooms), payloads);
        _mm256_and_si256(right_type, right_length)
    }

    /// All ones where the checksum is right.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn checksums(starts: &[&Start; EIGHT]) -> __m256i {
        // Words are added as signed ones, each less by 0x8000: ten of those are 5 modulo 0xffff. The sum does not care
        // for byte order (RFC 1071 section 2).
        let flip = _mm256_set1_epi16(i16::MIN);
        let header = _mm256_setr_epi16(0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1);
        let pairs = |frame: usize| {
            // SAFETY: bytes 2 to 33 of 34, and this load needs no alignment.
            let bytes = unsafe { _mm256_loadu_si256(starts[frame].as_ptr().add(2).cast()) };
            _mm256_madd_epi16(_mm256_xor_si256(bytes, flip), header)
        };
        let four = |frame: usize| {
            let (first, second) =
                (_mm256_hadd_epi32(pairs(frame), pairs(frame + 1)), _mm256_hadd_epi32(pairs(frame + 2), pairs(frame + 3)));
            _mm256_hadd_epi32(first, second)
        };
        let (low, high) = (four(0), four(4));
        let sums = _mm256_add_epi32(
            _mm256_permute2x128_si256::<0x20>(low, high),
            _mm256_permute2x128_si256::<0x31>(low, high),
        );
        let sums = _mm256_add_epi32(sums, _mm256_set1_epi32(10 * 0x8000));
        let ones = _mm256_set1_epi32(0xffff);
        let folded = _mm256_add_epi32(_mm256_and_si256(sums, ones), _mm256_srli_epi32::<16>(sums));
        _mm256_cmpeq_epi32(folded, ones)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A sound frame's start.
    fn sound(fields: [u8; 20], payload: u16) -> Start {
        let mut start = [0x5a; 34];
        start[14..].copy_from_slice(&fields);
        start[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        start[16..18].copy_from_slice(&(20 + payload).to_be_bytes());
        start[24..26].fill(0);
        let sum: u32 = start[14..].chunks_exact(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        start[24..26].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
        start
    }

    fn agree(starts: &[Start; EIGHT], lengths: &[u32; EIGHT]) -> bool {
        let expected = starts.iter().zip(lengths).all(|(start, length)| is_sound(start, *length));
        for level in Level::available() {
            assert_eq!(are_sound(level, &starts.each_ref(), lengths), expected, "{}: {starts:02x?}", level.name());
        }
        expected
    }

    proptest! {
        #[test]
        fn every_level_says_what_one_by_one_says(
            fields: [[u8; 20]; EIGHT], payloads in proptest::array::uniform8(0u16..1_500), spare in 0u32..3,
            which in 0..EIGHT, at in 12..34usize, value: u8,
        ) {
            let mut starts: [Start; EIGHT] = std::array::from_fn(|frame| sound(fields[frame], payloads[frame]));
            let lengths = payloads.map(|payload| 34 + u32::from(payload) + spare);
            prop_assert!(agree(&starts, &lengths));
            let mut short = lengths;
            short[which] -= spare + 1;
            if short[which] >= 34 {
                prop_assert!(!agree(&starts, &short));
            }
            starts[which][at] = value;
            agree(&starts, &lengths);
        }

        #[test]
        fn every_level_says_the_same_of_nonsense(bytes: [[u8; 34]; EIGHT], length in 34u32..2_000) {
            agree(&bytes, &[length; EIGHT]);
        }
    }

    /// A header whose words sum to the largest multiple of 0xffff there can be, and one of the smallest.
    #[test]
    fn sums_at_both_ends_are_right() {
        for fields in [[0xff; 20], [0; 20]] {
            assert!(agree(&[sound(fields, 0); EIGHT], &[34; EIGHT]));
            assert!(agree(&[sound(fields, 1_480); EIGHT], &[1_514; EIGHT]));
        }
    }
}

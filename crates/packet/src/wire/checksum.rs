//! The Internet checksum: complete (RFC 1071) and incremental (RFC 1624).
//!
//! The ones' complement sum does not depend on the byte order (RFC 1071 section 2). So complete sums read words in
//! machine order and are stored in machine order.

/// From this length in bytes, sums use vectors. Shorter data has often just been written in pieces smaller than a
/// vector, and a vector load would have to wait for those stores.
pub const LONG: usize = 512;

/// Returns the ones' complement sum of `bytes`, in machine order. An odd last byte counts as if a zero byte followed.
#[inline]
#[must_use]
pub fn sum(bytes: &[u8]) -> u16 {
    fold(unfolded(bytes))
}

/// Returns a number below 2^48 that [`fold`] reduces to the [`sum`] of `bytes`. `bytes` may have up to 2^31 bytes.
/// Callers that add several sums use it.
#[inline]
#[must_use]
pub fn unfolded(bytes: &[u8]) -> u64 {
    let (mut total, mut after) = (0u64, bytes);
    if bytes.len() >= LONG {
        // 32-bit words are added to eight 64-bit sums side by side; compilers turn this into vector instructions.
        let (blocks, few) = bytes.as_chunks::<32>();
        let mut lanes = [0u64; 8];
        for block in blocks {
            for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<4>().0) {
                *lane += u64::from(u32::from_ne_bytes(*word));
            }
        }
        (total, after) = (lanes.iter().sum(), few);
    }
    let (words, rest) = after.as_chunks::<8>();
    // Carries accumulate above 64 bits.
    let mut few = u128::from(total) + u128::from(last_bytes(bytes, rest));
    for word in words {
        few += u128::from(u64::from_ne_bytes(*word));
    }
    // 2^32 and 2^64 are 1 modulo 0xffff.
    halves(few as u64) + (few >> 64) as u64
}

/// Adds both halves of a 64-bit number.
#[inline(always)]
fn halves(word: u64) -> u64 {
    (word & 0xffff_ffff) + (word >> 32)
}

/// Returns the last bytes of `bytes` (fewer than eight, equal to `rest`) as a word filled up with zeros.
#[inline(always)]
fn last_bytes(bytes: &[u8], rest: &[u8]) -> u64 {
    if rest.is_empty() {
        return 0;
    }
    // Eight bytes are read, and the bytes before `rest` are shifted out. Copying a few bytes would be a function call.
    if let Some(word) = bytes.last_chunk::<8>() {
        let before = 8 * (8 - rest.len());
        let word = u64::from_ne_bytes(*word);
        return if cfg!(target_endian = "little") { word >> before } else { word << before };
    }
    let mut word = [0; 8];
    word.iter_mut().zip(rest).for_each(|(slot, byte)| *slot = *byte);
    u64::from_ne_bytes(word)
}

/// Returns the [`sum`] of exactly 20 bytes, the common IPv4 header. Uses the first 20 of more bytes; returns 0 for
/// fewer.
#[inline]
#[must_use]
pub fn sum20(bytes: &[u8]) -> u16 {
    fold(sum20_to_64(bytes))
}

/// Returns whether the ones' complement sum of 20 bytes, not all of them zero, is all ones, as in a valid IPv4 header.
#[inline]
#[must_use]
pub fn is_right20(bytes: &[u8]) -> bool {
    // All ones equals zero modulo 0xffff, and division by a constant is one multiplication.
    sum20_to_64(bytes).is_multiple_of(0xffff)
}

/// Returns the ones' complement sum of 20 bytes in 64 bits. 2^64 is 1 modulo 0xffff, so a carry out of the 64 bits is
/// added to the lowest bit. The third word of an IPv4 header (time to live, protocol, checksum) is read separately, as
/// 4 bytes, because `Ipv4::decrement_ttl` writes 4 bytes: a wider load of recently written data waits until the store
/// has reached the cache.
#[inline]
fn sum20_to_64(bytes: &[u8]) -> u64 {
    let Some((first, rest)) = bytes.split_first_chunk::<8>() else { return 0 };
    let Some((third, rest)) = rest.split_first_chunk::<4>() else { return 0 };
    let Some((last, _)) = rest.split_first_chunk::<8>() else { return 0 };
    let (first, last) = (u64::from_ne_bytes(*first), u64::from_ne_bytes(*last));
    let (sum, carry) = first.overflowing_add(last);
    let (sum, again) = sum.overflowing_add(u64::from(u32::from_ne_bytes(*third)) + u64::from(carry));
    sum + u64::from(again)
}

/// Returns the ones' complement sum of two sums.
#[inline]
#[must_use]
pub fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u16::from(carry)
}

/// Reduces a sum of words to a ones' complement sum of 16 bits.
#[inline]
#[must_use]
pub fn fold(total: u64) -> u16 {
    let total = (total & 0xffff_ffff) + (total >> 32);
    let total = (total & 0xffff) + (total >> 16 & 0xffff) + (total >> 32);
    let total = (total & 0xffff) + (total >> 16);
    ((total & 0xffff) + (total >> 16)) as u16
}

/// Returns the checksum after a 16-bit word that it covers changed from `old` to `new`: HC' = ~(~HC + ~m + m'), RFC
/// 1624 equation 3. All three arguments have the same byte order.
#[inline]
#[must_use]
pub fn replace16(checksum: u16, old: u16, new: u16) -> u16 {
    !add(add(!checksum, !old), new)
}

/// Returns the checksum after a 32-bit word that it covers changed from `old` to `new`, as [`replace16`].
#[inline]
#[must_use]
pub fn replace32(checksum: u16, old: u32, new: u32) -> u16 {
    let high = replace16(checksum, (old >> 16) as u16, (new >> 16) as u16);
    replace16(high, old as u16, new as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 section 4.1, word by word in network order.
    fn plain(bytes: &[u8]) -> u16 {
        let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
        let mut sum: u32 = words.sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn the_example_of_rfc_1071_section_3_sums_to_ddf2() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(u16::from_be(sum(&bytes)), 0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624_section_4_gives_zero_not_ffff() {
        // HC = 0xdd2f, m = 0x5555, m' = 0x3285: equation 2 gives 0xffff, equation 3 the right 0x0000.
        assert_eq!(replace16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    proptest! {
        #![proptest_config(crate::testing::cases(256))]

        #[test]
        fn a_sum_is_that_of_the_plain_algorithm(bytes in proptest::collection::vec(any::<u8>(), 0..1_300)) {
            prop_assert_eq!(u16::from_be(sum(&bytes)), plain(&bytes));
        }

        #[test]
        fn a_header_sum_is_the_general_sum(bytes in proptest::array::uniform20(any::<u8>())) {
            prop_assert_eq!(sum20(&bytes), sum(&bytes));
            prop_assert_eq!(is_right20(&bytes), sum(&bytes) == 0xffff || bytes == [0; 20]);
            let mut right = bytes;
            right[10..12].fill(0);
            let complement = !sum(&right);
            right[10..12].copy_from_slice(&complement.to_ne_bytes());
            prop_assert!(is_right20(&right));
        }

        #[test]
        fn replacing_words_is_recomputing(
            mut bytes in proptest::collection::vec(any::<u8>(), 8..64), at in 0usize..4, new: u32,
        ) {
            let at = at / 2 * 2;
            bytes[6] |= 1; // only all zeros have two sums
            let old = u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            let before = !u16::from_be(sum(&bytes));
            bytes[at..at + 4].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(replace32(before, old, new), !u16::from_be(sum(&bytes)));
        }
    }
}

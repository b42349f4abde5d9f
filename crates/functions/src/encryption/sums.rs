//! A UDP checksum that follows what is encrypted: changed by the difference, so that one that was wrong stays wrong, and
//! nobody on the way vouches for what somebody else has spoilt.

use forebay_aead::{NONCE, TAG};
use forebay_packet::wire::checksum;
use forebay_simd::Level;
use forebay_simd::word_sum::word_sum;

/// Sums up texts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sums(Level);

impl Sums {
    /// With what this machine offers.
    pub(crate) fn new() -> Self {
        Self(Level::detect())
    }

    /// What folds to the ones' complement sum of a text, in machine order ([`checksum::unfolded`]).
    #[inline(always)]
    pub(crate) fn of(self, text: &[u8]) -> u64 {
        if text.len() >= checksum::LONG { word_sum(text, self.0) } else { checksum::unfolded(text) }
    }

    /// The same of an encrypted text with what stands around it, from an even place on. They are summed up one by one: a
    /// wider reader of what has just been written in two waits until it has reached the cache.
    #[inline(always)]
    pub(crate) fn whole(self, nonce: &[u8; NONCE], text: &[u8], tag: &[u8; TAG]) -> u64 {
        let [a, b, c, d, number @ ..] = *nonce;
        let nonce = u64::from(u32::from_ne_bytes([a, b, c, d])) + checksum::unfolded(&number);
        // Behind an odd number of bytes every byte counts as the other one of its word (RFC 1071 section 2 (B)).
        let tag = checksum::unfolded(tag) << (8 * (text.len() % 2));
        nonce + self.of(text) + tag
    }
}

/// What is to be added to a sum in the place of what was summed up before.
#[derive(Clone, Copy)]
pub(crate) struct Change(u64);

impl Change {
    /// What is nothing in a ones' complement sum, and more than any text's.
    const NOTHING: u64 = 0xffff << 40;

    /// In the place of a text with the sum `before` there is one with the sum `after`, both from an even place on, and the
    /// datagram is longer by `more` bytes, or shorter where it is negative: that counts twice, in the header and in the
    /// pseudo header (RFC 768).
    #[inline(always)]
    pub(crate) fn new(before: u64, after: u64, more: i16) -> Self {
        let lengths = if more < 0 { !(2 * more.unsigned_abs()).to_be() } else { (2 * more.unsigned_abs()).to_be() };
        Self(Self::NOTHING - before + after + u64::from(lengths))
    }

    /// The checksum field in the place of `field`, both as the machine reads them: never 0, which means none (RFC 1624
    /// equation 3).
    #[inline(always)]
    pub(crate) fn apply(self, field: u16) -> u16 {
        match !checksum::fold(self.0 + u64::from(!field)) {
            0 => 0xffff,
            sum => sum,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EDGES: [u16; 6] = [0, 1, 0x7fff, 0x8000, 0xfffe, 0xffff];

    /// The checksum of a datagram of these ports, with a text in it: the pseudo header is one of zeros but for UDP's
    /// number.
    fn checksum_of(ports: u16, text: &[u8]) -> u16 {
        let length = (8 + text.len() as u16).to_be_bytes();
        let header = [&[0, 17][..], &length, &ports.to_be_bytes(), &ports.to_be_bytes(), &length].concat();
        match !checksum::add(checksum::sum(&header), checksum::sum(text)) {
            0 => 0xffff,
            sum => sum,
        }
    }

    #[test]
    fn a_change_of_text_is_a_full_recomputation() {
        for number in 0..EDGES.len().pow(5) {
            let edge = |place: u32| EDGES[number / EDGES.len().pow(place) % EDGES.len()];
            let bytes = |words: [u16; 2]| words.map(u16::to_be_bytes).concat();
            let (ports, text, longer) = (edge(4), bytes([edge(0), edge(1)]), bytes([edge(2), edge(3)]));
            for (before, after) in [(text.clone(), longer.clone()), (text.clone(), [&longer[..], &text].concat())] {
                let sums = Sums::new();
                let (old, new) = (checksum_of(ports, &before), checksum_of(ports, &after));
                let more = (after.len() - before.len()) as i16;
                let change = Change::new(sums.of(&before), sums.of(&after), more);
                assert_eq!(change.apply(old), new, "{ports:x}: {before:x?} to {after:x?}");
                let back = Change::new(sums.of(&after), sums.of(&before), -more);
                assert_eq!(back.apply(new), old, "{ports:x}: {after:x?} to {before:x?}");
            }
        }
    }
}

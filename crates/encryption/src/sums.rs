//! Incremental updates of a UDP checksum over encrypted text. The checksum is changed by the difference, so that a
//! wrong checksum stays wrong and corruption from before encryption is not hidden.

use forebay_aead::{NONCE, TAG};
use forebay_packet::wire::checksum;
use forebay_simd::Level;
use forebay_simd::word_sum::word_sum;

/// Computes ones' complement sums of texts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sums(Level);

impl Sums {
    /// Selects the implementation for the instructions of this machine.
    pub(crate) fn new() -> Self {
        Self(Level::detect())
    }

    /// Returns a value that folds to the ones' complement sum of a text, in machine order ([`checksum::unfolded`]).
    #[inline(always)]
    pub(crate) fn of(self, text: &[u8]) -> u64 {
        if text.len() >= checksum::LONG { word_sum(text, self.0) } else { checksum::unfolded(text) }
    }

    /// Returns a value like that of [`of`](Self::of) for a nonce, an encrypted text and its tag in sequence, from an
    /// even offset on. The parts are summed one by one: a wider load that spans two recent stores would wait until both
    /// have reached the cache.
    #[inline(always)]
    pub(crate) fn whole(self, nonce: &[u8; NONCE], text: &[u8], tag: &[u8; TAG]) -> u64 {
        let [a, b, c, d, number @ ..] = *nonce;
        let nonce = u64::from(u32::from_ne_bytes([a, b, c, d])) + checksum::unfolded(&number);
        // After an odd number of bytes every byte is the other byte of its word (RFC 1071 section 2 (B)).
        let tag = checksum::unfolded(tag) << (8 * (text.len() % 2));
        nonce + self.of(text) + tag
    }
}

/// The difference to add to a sum when a text is replaced.
#[derive(Clone, Copy)]
pub(crate) struct Change(u64);

impl Change {
    /// A value that counts as zero in a ones' complement sum. It is larger than any text's sum, so that a sum can be
    /// subtracted from it.
    const NOTHING: u64 = 0xffff << 40;

    /// Returns the difference for a text with the sum `before` that is replaced by a text with the sum `after`, both
    /// from an even offset on. The datagram becomes longer by `more` bytes, or shorter if `more` is negative. The
    /// length counts twice: in the header and in the pseudo header (RFC 768).
    #[inline(always)]
    pub(crate) fn new(before: u64, after: u64, more: i16) -> Self {
        let lengths = if more < 0 { !(2 * more.unsigned_abs()).to_be() } else { (2 * more.unsigned_abs()).to_be() };
        Self(Self::NOTHING - before + after + u64::from(lengths))
    }

    /// Returns the checksum field that replaces `field`. Both are the two bytes of the field, read in the byte order of
    /// the machine. The result is never 0, which means no checksum (RFC 1624 equation 3).
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

    /// Returns the checksum of a datagram with these ports and this text. The pseudo header is zero except for the
    /// protocol number of UDP.
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
            let edge = |digit: u32| EDGES[number / EDGES.len().pow(digit) % EDGES.len()];
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

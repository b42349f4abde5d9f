//! A UDP checksum that follows what is encrypted: changed by the difference, so that one that was wrong stays wrong, and
//! nobody on the way vouches for what somebody else has spoilt.

use forebay_packet::wire::checksum;

/// What is to be added to a sum in the place of what was summed up before.
#[derive(Clone, Copy)]
pub(crate) struct Change(u16);

impl Change {
    /// `before` is gone; it began at an even place.
    #[inline(always)]
    pub(crate) fn without(before: &[u8]) -> Self {
        Self(!checksum::sum(before))
    }

    /// `after` is there, at an even place, and the datagram is longer by `more` bytes, or shorter where it is negative: that
    /// counts twice, in the header and in the pseudo header (RFC 768).
    #[inline(always)]
    pub(crate) fn with(self, after: &[u8], more: i16) -> Self {
        let lengths = if more < 0 { !(2 * more.unsigned_abs()).to_be() } else { (2 * more.unsigned_abs()).to_be() };
        Self(checksum::add(self.0, checksum::add(checksum::sum(after), lengths)))
    }

    /// The checksum field in the place of `field`, both as the machine reads them: never 0, which means none (RFC 1624
    /// equation 3).
    #[inline(always)]
    pub(crate) fn apply(self, field: u16) -> u16 {
        match !checksum::add(!field, self.0) {
            0 => 0xffff,
            sum => sum,
        }
    }
}

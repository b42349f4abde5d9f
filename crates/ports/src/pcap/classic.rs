//! Reads classic captures (draft-ietf-opsawg-pcap): micro- and nanoseconds, both byte orders, and the "modified"
//! format.

use super::input::{Input, Order};
use super::link::{HEADROOM, Link};
use super::reader::{Frame, Packet, ReadError};
use super::writer::LONGEST;

/// The magic number of a file whose time stamps have microseconds.
const MICROSECONDS: u32 = 0xa1b2_c3d4;
/// The magic number of a file whose time stamps have nanoseconds.
const NANOSECONDS: u32 = 0xa1b2_3c4d;
/// The magic number of the format of Alexey Kuznetzov. Its records have 8 more bytes with an interface, a protocol and
/// a packet type.
const MODIFIED: u32 = 0xa1b2_cd34;

/// The order of the two lengths in a record. In versions before 2.3, the original length precedes the captured length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Swapped {
    /// The captured length precedes the original length.
    No,
    /// Version 2.3 has both orders. The captured length is the smaller length.
    Perhaps,
    /// The original length precedes the captured length.
    Yes,
}

/// A classic capture after its header.
pub(super) struct Classic {
    /// The byte order of the file.
    order: Order,
    /// The number of nanoseconds in a unit of a time stamp's fraction.
    unit: u64,
    /// The length of a record's header, in bytes.
    header: usize,
    /// The order of the two lengths in a record.
    swapped: Swapped,
    /// The link type of all packets, for the conversion to Ethernet.
    link: Link,
    /// The number of this link type, for the counts of skipped packets.
    number: u32,
}

impl Classic {
    /// Returns the byte order of a classic capture that starts with `first`. Returns `None` if the file is not a
    /// classic capture.
    pub(super) fn order(first: &[u8]) -> Option<Order> {
        let first = *first.first_chunk()?;
        [Order::Little, Order::Big]
            .into_iter()
            .find(|order| matches!(order.u32(first), MICROSECONDS | NANOSECONDS | MODIFIED))
    }

    /// Reads the header of a file. `order` is the result of [`order`](Self::order), and no byte may have been read yet.
    pub(super) fn open(order: Order, input: &mut Input<'_>) -> Result<Self, ReadError> {
        let header: [u8; 24] = input.take().map_err(|error| ReadError::of(error, 0, 0))?;
        let [magic, _, _, _, _, link] = order.words(&header);
        let half = |at: usize| order.u16([header[at], header[at + 1]]);
        // The tcpdump of DG/UX writes version 543.0, with the lengths in the order of versions before 2.3 (libpcap,
        // `sf-pcap.c`).
        let swapped = match (half(4), half(6)) {
            (2, ..3) | (543, _) => Swapped::Yes,
            (2, 3) => Swapped::Perhaps,
            (2, _) => Swapped::No,
            (major, minor) => {
                let problem = format!("version {major}.{minor}: allowed is 2");
                return Err(ReadError::Corrupt { record: 0, at: 4, what: problem });
            }
        };
        // The bits above the link type's 16 bits may be flags (draft-ietf-opsawg-pcap section 4).
        let number = link & 0xffff;
        let link = Link::of(number).ok_or(ReadError::LinkType { number })?;
        let unit = if magic == NANOSECONDS { 1 } else { 1000 };
        let header = if magic == MODIFIED { 24 } else { 16 };
        Ok(Self { order, unit, header, swapped, link, number })
    }

    /// Reads the next record into `body`, from the offset [`HEADROOM`] on. Returns `None` at the end of the file.
    /// `record` is the number of the record, for errors. After an error, no more records can be read.
    pub(super) fn next(
        &self,
        input: &mut Input<'_>,
        body: &mut Vec<u8>,
        record: u64,
    ) -> Result<Option<Packet>, ReadError> {
        let at = input.at();
        let fault = |error| ReadError::of(error, record, at);
        let mut header = [0; 24];
        let header = &mut header[..self.header];
        match input.fill(header).map_err(fault)? {
            0 => return Ok(None),
            count if count < self.header => return Err(ReadError::Truncated { record, at }),
            _ => {}
        }
        let [seconds, fraction, mut captured, mut original] = self.order.words(header);
        if self.swapped == Swapped::Yes || self.swapped == Swapped::Perhaps && captured > original {
            (captured, original) = (original, captured);
        }
        if captured as usize > LONGEST {
            let problem = format!("the captured length {captured} is out of range (0 to {LONGEST} bytes)");
            return Err(ReadError::Corrupt { record, at, what: problem });
        }
        body.resize(HEADROOM + captured as usize, 0);
        input.exact(&mut body[HEADROOM..]).map_err(fault)?;
        let nanos = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.unit;
        let frame = self.link.make_ethernet(self.number, body, original);
        Ok(Some(Packet { nanos, frame: frame.map(|(start, original)| Frame { start, original }) }))
    }
}

//! Reads pcapng captures (draft-ietf-opsawg-pcapng): the packets of every section and interface. Other blocks are
//! skipped.
//!
//! Only the time stamp options of an interface are used. Options are read one by one, so a large number or length of
//! options takes no memory. Errors in options are ignored: an option list ends at `opt_endofopt` or with its block
//! (section 3.5), reserved fields are ignored (section 4.2), and texts are never read.

use std::io;

use forebay_units::wording::counted;

use super::input::{Input, Order};
use super::link::{HEADROOM, Link};
use super::reader::{Frame, Packet, ReadError};
use super::skipped::{Skip, SkipReason};
use super::writer::LONGEST;

/// The type of a section header block. It is the same in both byte orders.
pub(super) const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// The type of an interface description block.
const INTERFACE: u32 = 1;
/// The type of the obsolete packet block (appendix A).
const PACKET: u32 = 2;
/// The type of a simple packet block.
const SIMPLE: u32 = 3;
/// The type of an enhanced packet block.
const ENHANCED: u32 = 6;

/// The largest number of interfaces in a section.
const MAX_INTERFACES: usize = 1 << 16;

/// The option of an interface that contains the unit of time stamps.
const IF_TSRESOL: u16 = 9;
/// The option of an interface that contains the number of seconds to add to time stamps.
const IF_TSOFFSET: u16 = 14;

/// An interface of a section.
#[derive(Clone, Copy, Debug)]
struct Interface {
    /// The number of the link type.
    link: u16,
    /// The length of the longest captured packet. 0 means that there is no limit.
    snap: u32,
    /// The unit of time stamps: a negative power of 10, or of 2 if the highest bit is set.
    resolution: u8,
    /// The number of seconds to add to time stamps.
    offset: i64,
}

impl Interface {
    /// Converts a time stamp to nanoseconds since 1970 (section 4.2, options 9 and 14).
    fn nanos(&self, time: u64) -> u64 {
        let scaled = u128::from(time) * 1_000_000_000;
        let power = u32::from(self.resolution & 0x7f);
        let nanos = if self.resolution & 0x80 == 0 {
            10_u128.checked_pow(power).map_or(0, |unit| scaled / unit)
        } else {
            scaled >> power
        };
        let shifted = (nanos as i128).saturating_add(i128::from(self.offset) * 1_000_000_000);
        u64::try_from(shifted.max(0)).unwrap_or(u64::MAX)
    }
}

/// A block whose body is being read. Code that reads bytes of the body must reduce `rest` by their number.
struct Body {
    /// The offset of the block in the decompressed capture.
    at: u64,
    /// The type of the block.
    kind: u32,
    /// The number of unread bytes of the body.
    rest: u64,
    /// The length of the block, as in its header.
    length: u32,
    /// The number of the next packet, for errors.
    record: u64,
}

impl Body {
    /// Returns the error for an invalid block. `what` describes the problem for the user.
    fn corrupt<T>(&self, what: String) -> Result<T, ReadError> {
        Err(ReadError::Corrupt { record: self.record, at: self.at, what })
    }

    /// Returns the error for a failed reading in the block.
    fn fault(&self, error: io::Error) -> ReadError {
        ReadError::of(error, self.record, self.at)
    }

    /// Returns the next `N` bytes of the body, or an error if the body has fewer bytes.
    fn take<const N: usize>(&mut self, input: &mut Input<'_>) -> Result<[u8; N], ReadError> {
        let Some(rest) = self.rest.checked_sub(N as u64) else {
            return self.corrupt(format!("the block of {} bytes is too short", self.length));
        };
        self.rest = rest;
        input.take().map_err(|error| self.fault(error))
    }
}

/// A pcapng capture, starting before its first section header.
pub(super) struct Ng {
    /// The byte order of the present section.
    order: Order,
    /// The interfaces of the present section, by number.
    interfaces: Vec<Interface>,
    /// The last time stamp, in nanoseconds since 1970. A simple packet has no time stamp, and gets this one. 0 before
    /// the first time stamp.
    nanos: u64,
}

impl Ng {
    pub(super) fn new() -> Self {
        Self { order: Order::Little, interfaces: Vec::new(), nanos: 0 }
    }

    /// Skips blocks up to the next packet, and reads the packet into `body`, from the offset [`HEADROOM`] on. Returns
    /// `None` at the end of the file. `record` is the number of the packet, for errors. After an error, no more packets
    /// can be read.
    pub(super) fn next(
        &mut self,
        input: &mut Input<'_>,
        body: &mut Vec<u8>,
        record: u64,
    ) -> Result<Option<Packet>, ReadError> {
        loop {
            let Some(mut block) = self.block(input, record)? else { return Ok(None) };
            let packet = match block.kind {
                INTERFACE => {
                    self.interface(&mut block, input)?;
                    None
                }
                PACKET | SIMPLE | ENHANCED => Some(self.packet(&mut block, input, body)?),
                _ => None,
            };
            input.skip(block.rest).map_err(|error| block.fault(error))?;
            block.rest = 4;
            let length = self.order.u32(block.take(input)?);
            if length != block.length {
                return block.corrupt(format!(
                    "the block has the length {} at its start and {length} at its end",
                    block.length
                ));
            }
            if packet.is_some() {
                return Ok(packet);
            }
        }
    }

    /// Reads the type and length of the next block. For a section header, also reads the byte order and the version,
    /// and forgets the interfaces. Returns `None` at the end of the file.
    fn block(&mut self, input: &mut Input<'_>, record: u64) -> Result<Option<Body>, ReadError> {
        let at = input.at();
        let mut head = [0; 8];
        match input.fill(&mut head).map_err(|error| ReadError::of(error, record, at))? {
            0 => return Ok(None),
            8 => {}
            _ => return Err(ReadError::Truncated { record, at }),
        }
        let mut block = Body { at, kind: 0, rest: 0, length: 0, record };
        let [kind, length] = [0, 4].map(|at| [head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let section = kind == SECTION;
        if section {
            block.rest = 8;
            let magic: [u8; 4] = block.take(input)?;
            self.order = match magic {
                [0x4d, 0x3c, 0x2b, 0x1a] => Order::Little,
                [0x1a, 0x2b, 0x3c, 0x4d] => Order::Big,
                _ => {
                    return block.corrupt(format!(
                        "the byte-order magic of the section is {magic:02x?}: allowed are 4d3c2b1a and 1a2b3c4d"
                    ));
                }
            };
            let version: [u8; 4] = block.take(input)?;
            let major = self.order.u16([version[0], version[1]]);
            if major != 1 {
                return block.corrupt(format!("the section has version {major}: allowed is 1"));
            }
            // Interfaces are numbered within each section.
            self.interfaces.clear();
        }
        block.length = self.order.u32(length);
        block.kind = self.order.u32(kind);
        let read = if section { 16 } else { 8 };
        // Blocks consist of whole words of four bytes, but some writers do not count the padding in the length.
        let padded = u64::from(block.length).next_multiple_of(4);
        let Some(rest) = padded.checked_sub(read + 4) else {
            return block.corrupt(format!("the block has {} bytes: allowed are {} and more", block.length, read + 4));
        };
        block.rest = rest;
        Ok(Some(block))
    }

    /// Reads an interface description, and adds the interface to the section.
    fn interface(&mut self, block: &mut Body, input: &mut Input<'_>) -> Result<(), ReadError> {
        let head: [u8; 8] = block.take(input)?;
        let link = self.order.u16([head[0], head[1]]);
        let [_, snap] = self.order.words(&head);
        let mut interface = Interface { link, snap, resolution: 6, offset: 0 };
        while block.rest >= 4 {
            let [a, b, c, d] = block.take(input)?;
            let (code, length) = (self.order.u16([a, b]), self.order.u16([c, d]));
            match (code, length) {
                (0, _) => break,
                (IF_TSRESOL, 1) if block.rest >= 4 => [interface.resolution, ..] = block.take::<4>(input)?,
                (IF_TSOFFSET, 8) if block.rest >= 8 => {
                    interface.offset = self.order.u64(block.take(input)?).cast_signed();
                }
                _ => {
                    // An option that is longer than the rest of its block is taken to end at the end of the block.
                    let length = u64::from(length).next_multiple_of(4).min(block.rest);
                    input.skip(length).map_err(|error| block.fault(error))?;
                    block.rest -= length;
                }
            }
        }
        if self.interfaces.len() == MAX_INTERFACES {
            return block.corrupt(format!("the section has more than {MAX_INTERFACES} interfaces"));
        }
        self.interfaces.push(interface);
        Ok(())
    }

    /// Reads a packet block of any type into `body`. A packet whose link type cannot be read is returned as skipped.
    fn packet(&mut self, block: &mut Body, input: &mut Input<'_>, body: &mut Vec<u8>) -> Result<Packet, ReadError> {
        let simple = block.kind == SIMPLE;
        let first: [u8; 4] = block.take(input)?;
        let number = match block.kind {
            SIMPLE => 0,
            ENHANCED => self.order.u32(first),
            // In an obsolete packet block, the first 16 bits are the interface, and the next 16 bits the number of
            // dropped packets.
            _ => u32::from(self.order.u16([first[0], first[1]])),
        };
        let Some(interface) = self.interfaces.get(number as usize).copied() else {
            return block.corrupt(format!(
                "the packet has interface {number}, but the section describes only {}",
                counted(self.interfaces.len(), "interface")
            ));
        };
        let (captured, original) = if simple {
            // A simple packet block does not contain the captured length (section 4.4).
            let original = self.order.u32(first);
            let limit = if interface.snap == 0 { u32::MAX } else { interface.snap };
            (u64::from(original.min(limit)).min(block.rest), original)
        } else {
            let head: [u8; 16] = block.take(input)?;
            let [high, low, captured, original] = self.order.words(&head);
            self.nanos = interface.nanos(u64::from(high) << 32 | u64::from(low));
            (u64::from(captured), original)
        };
        if captured > block.rest {
            return block
                .corrupt(format!("{captured} captured bytes do not fit into a block of {} bytes", block.length));
        }
        let link = u32::from(interface.link);
        let Some(known) = Link::of(link) else {
            return Ok(Packet { nanos: self.nanos, frame: Err(Skip { link, reason: SkipReason::Link }) });
        };
        if captured > LONGEST as u64 {
            return block.corrupt(format!("the captured length {captured} is out of range (0 to {LONGEST} bytes)"));
        }
        body.resize(HEADROOM + captured as usize, 0);
        input.exact(&mut body[HEADROOM..]).map_err(|error| block.fault(error))?;
        block.rest -= captured;
        let frame = known.make_ethernet(link, body, original);
        Ok(Packet { nanos: self.nanos, frame: frame.map(|(start, original)| Frame { start, original }) })
    }
}

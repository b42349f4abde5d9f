//! Reading captures: classic pcap, pcapng, and either in gzip, Zstandard or LZ4; packets come out as Ethernet frames.
//!
//! The reader is this project's own, because a capture is read as tcpdump and Wireshark read it: what does not matter
//! for packets and their times may be wrong. Memory is bounded whatever the file says: at most one packet of 256 KiB,
//! one buffer, and what unpacking takes.

use std::io::{self, Cursor, ErrorKind, Read};
use std::path::Path;

use forebay_graph::files::open_regular;
use thiserror::Error;

use super::classic::Classic;
use super::input::Input;
use super::link::{self, Link};
use super::ng::{self, Ng};
use super::skipped::{Skip, Skipped};
use super::{other, unpack};

/// Why a capture cannot be read, or not to its end.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file cannot be opened.
    #[error("cannot open the capture: {0}")]
    Open(#[source] io::Error),
    /// Reading or unpacking failed.
    #[error("cannot read the capture: {0}")]
    Io(#[source] io::Error),
    /// It is no capture.
    #[error(
        "this is no capture: it starts with the bytes {found:02x?}, allowed are pcap, pcapng, and either in gzip, \
             Zstandard or LZ4"
    )]
    Format {
        /// Up to four bytes.
        found: Vec<u8>,
    },
    /// It has another format, which is known by name.
    #[error("this is {name}: allowed are pcap, pcapng, and either in gzip, Zstandard or LZ4")]
    Named {
        /// The format, with an article.
        name: &'static str,
    },
    /// All packets are of a link type that is not read.
    #[error("link type {number} ({}): allowed are {}", link::name(*number), Link::ALLOWED)]
    LinkType {
        /// Its number (tcpdump.org/linktypes.html).
        number: u32,
    },
    /// There are packets, and none can be read.
    #[error("no packet can be read: {skipped}; allowed are {}", Link::ALLOWED)]
    NoneLeft {
        /// Which there are.
        skipped: Skipped,
    },
    /// The file ends in the middle of a record.
    #[error("the capture ends in the middle of its {}, which starts at byte {at}", place(*record))]
    Truncated {
        /// Which record, from 1; 0 for the file's header.
        record: u64,
        /// Where it starts, in the unpacked capture.
        at: u64,
    },
    /// A record makes no sense.
    #[error("the capture's {}, at byte {at}, is broken: {what}", place(*record))]
    Corrupt {
        /// Which record, from 1; 0 for the file's header.
        record: u64,
        /// Where it, or a block before it, starts in the unpacked capture.
        at: u64,
        /// What is wrong.
        what: String,
    },
}

fn place(record: u64) -> String {
    if record == 0 { "header".to_owned() } else { format!("record {record}") }
}

impl ReadError {
    /// An error while the record that starts at byte `at` was read.
    pub(super) fn of(error: io::Error, record: u64, at: u64) -> Self {
        if error.kind() == ErrorKind::UnexpectedEof { Self::Truncated { record, at } } else { Self::Io(error) }
    }
}

/// A packet of a capture, as an Ethernet frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// When it was captured, in nanoseconds after 1970.
    pub nanos: u64,
    /// How long it was on the wire, in bytes; more than there are where the capture cut it.
    pub original_len: u32,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// Bytes, packed or not.
pub(super) type Stream<'a> = Box<dyn Read + Send + 'a>;

/// A packet in the reader's buffer, up to the buffer's end.
pub(super) struct Packet {
    pub nanos: u64,
    pub frame: Result<Frame, Skip>,
}

/// An Ethernet frame in the reader's buffer.
pub(super) struct Frame {
    pub start: usize,
    pub original: u32,
}

enum Format {
    Classic(Classic),
    Ng(Ng),
}

/// Reads a capture from its start to its end.
pub struct Reader<'a> {
    input: Input<'a>,
    format: Format,
    /// The packet in hand, with room for another header in front of it.
    body: Vec<u8>,
    records: u64,
    /// Packets passed over since they were last taken, and all of them.
    skipped: Skipped,
    all_skipped: Skipped,
    ended: bool,
}

/// The first bytes of a stream, as many as magic numbers have, and the stream with them.
fn peek<'a>(mut stream: Stream<'a>) -> Result<(Vec<u8>, Stream<'a>), ReadError> {
    let mut first = Vec::with_capacity(other::LONGEST_MAGIC);
    let mut chunk = [0; 1];
    // Four bytes decide on every format that is read. A pipe may have no more for now.
    while first.len() < other::LONGEST_MAGIC {
        if first.len() >= 4 && is_read(&first) {
            break;
        }
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(_) => first.push(chunk[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // A packed stream that is cut in its first bytes.
            Err(error) => return Err(ReadError::of(error, 0, first.len() as u64)),
        }
    }
    let whole = Box::new(Cursor::new(first.clone()).chain(stream));
    Ok((first, whole))
}

fn is_read(first: &[u8]) -> bool {
    unpack::is_packed(first) || first.starts_with(&ng::SECTION) || Classic::order(first).is_some()
}

impl Reader<'static> {
    /// Opens a regular file.
    ///
    /// # Errors
    /// [`ReadError`]: it cannot be opened, or as for [`new`](Reader::new).
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        Self::new(open_regular(path).map_err(ReadError::Open)?)
    }
}

impl<'a> Reader<'a> {
    /// Reads from a stream.
    ///
    /// # Errors
    /// [`ReadError`]: it is no capture, or one of another link type (in pcapng that shows at packets only).
    pub fn new(stream: impl Read + Send + 'a) -> Result<Self, ReadError> {
        let (mut first, mut stream) = peek(Box::new(stream))?;
        if unpack::is_packed(&first) {
            (first, stream) = peek(unpack::unpack(&first, stream))?;
        }
        let mut input = Input::new(stream);
        let format = if first.starts_with(&ng::SECTION) {
            Format::Ng(Ng::new())
        } else if let Some(order) = Classic::order(&first) {
            Format::Classic(Classic::open(order, &mut input)?)
        } else if let Some(name) = other::name(&first) {
            return Err(ReadError::Named { name });
        } else {
            first.truncate(4);
            return Err(ReadError::Format { found: first });
        };
        let (skipped, all_skipped) = Default::default();
        Ok(Self { input, format, body: Vec::new(), records: 0, skipped, all_skipped, ended: false })
    }

    /// The next packet; `None` at the end, and after an error. Packets that no Ethernet frame can carry are passed over
    /// and [counted](Self::take_skipped).
    ///
    /// # Errors
    /// [`ReadError`], once: what follows cannot be read, or no packet could.
    #[expect(clippy::should_implement_trait, reason = "the record borrows from the reader, which no iterator's can")]
    pub fn next(&mut self) -> Option<Result<Record<'_>, ReadError>> {
        while !self.ended {
            let found = match &mut self.format {
                Format::Classic(classic) => classic.next(&mut self.input, &mut self.body, self.records + 1),
                Format::Ng(ng) => ng.next(&mut self.input, &mut self.body, self.records + 1),
            };
            match found {
                Ok(Some(Packet { nanos, frame })) => {
                    self.records += 1;
                    match frame {
                        Ok(Frame { start, original }) => {
                            return Some(Ok(Record { nanos, original_len: original, bytes: &self.body[start..] }));
                        }
                        Err(skip) => {
                            self.skipped.add(skip);
                            self.all_skipped.add(skip);
                        }
                    }
                }
                Ok(None) => {
                    self.ended = true;
                    if self.records > 0 && self.all_skipped.total() == self.records {
                        return Some(Err(ReadError::NoneLeft { skipped: std::mem::take(&mut self.all_skipped) }));
                    }
                }
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }

    /// How many bytes the packet in hand takes.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.body.capacity()
    }

    /// How many packets were passed over, by why, since this was last called.
    pub fn take_skipped(&mut self) -> Skipped {
        std::mem::take(&mut self.skipped)
    }
}

/// Reads a capture from memory: times and bytes of its packets, and the error that ended it, if one did. No bytes
/// make it panic, and it reads no more than 64 MiB of packets, whatever a packed stream unpacks to.
#[must_use]
pub fn read_memory(bytes: &[u8]) -> (Vec<(u64, Vec<u8>)>, Option<ReadError>) {
    let (mut packets, mut left) = (Vec::new(), 64_usize << 20);
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (packets, Some(error)),
    };
    while let Some(record) = reader.next() {
        let record = match record {
            Ok(record) => record,
            Err(error) => return (packets, Some(error)),
        };
        packets.push((record.nanos, record.bytes.to_vec()));
        // Empty packets cost memory too.
        let Some(rest) = left.checked_sub(record.bytes.len() + 64) else { break };
        left = rest;
    }
    (packets, None)
}

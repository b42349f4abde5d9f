//! Reads captures: classic pcap and pcapng, plain or compressed with gzip, Zstandard or LZ4. Packets are returned as
//! Ethernet frames.
//!
//! This project has its own reader, because it must accept the same captures as tcpdump and Wireshark. Errors that do
//! not affect packets and their times are ignored. Memory is bounded for any file: at most one packet of 256 KiB, one
//! buffer, and the memory for decompression.

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

/// An error that prevents a capture from being read, or from being read to its end.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file cannot be opened.
    #[error("cannot open the capture: {0}")]
    Open(#[source] io::Error),
    /// Reading or decompressing failed.
    #[error("cannot read the capture: {0}")]
    Io(#[source] io::Error),
    /// The file is not a capture.
    #[error(
        "this is not a capture: {}; allowed are pcap and pcapng, uncompressed or compressed with gzip, Zstandard or \
         LZ4",
        beginning(found)
    )]
    Format {
        /// The first bytes of the file, up to four.
        found: Vec<u8>,
    },
    /// The file has another known format.
    #[error("this is {name}: allowed are pcap and pcapng, uncompressed or compressed with gzip, Zstandard or LZ4")]
    Named {
        /// The name of the format, with an article.
        name: &'static str,
    },
    /// All packets have a link type that cannot be read.
    #[error("link type {number} ({}): allowed are {}", link::name(*number), Link::ALLOWED)]
    LinkType {
        /// The number of the link type (tcpdump.org/linktypes.html).
        number: u32,
    },
    /// The capture has packets, but none can be read.
    #[error("no packet can be read: {skipped}; allowed are {}", Link::ALLOWED)]
    NoneLeft {
        /// The skipped packets.
        skipped: Skipped,
    },
    /// The file ends in the middle of a record.
    #[error(
        "the capture ends in the middle of its {}, which starts at byte {at}: record or copy the capture again",
        record_name(*record)
    )]
    Truncated {
        /// The number of the record, from 1; 0 for the file's header.
        record: u64,
        /// The offset of the record in the decompressed capture, in bytes.
        at: u64,
    },
    /// A record is invalid.
    #[error("the capture's {} at byte {at} is invalid: {what}", record_name(*record))]
    Corrupt {
        /// The number of the record, from 1; 0 for the file's header.
        record: u64,
        /// The offset in bytes of the record, or of an invalid block before the record, in the decompressed capture.
        at: u64,
        /// A description of the problem for the user.
        what: String,
    },
}

/// Describes the first bytes of a file for errors.
fn beginning(found: &[u8]) -> String {
    if found.is_empty() { "it is empty".to_owned() } else { format!("it starts with the bytes {found:02x?}") }
}

/// Returns the name of a record for errors. The number 0 is the header of the file.
fn record_name(record: u64) -> String {
    if record == 0 { "header".to_owned() } else { format!("record {record}") }
}

impl ReadError {
    /// Converts an error while reading the record with this number, which starts at the byte `at`. The end of the
    /// stream becomes [`Truncated`](Self::Truncated).
    pub(super) fn of(error: io::Error, record: u64, at: u64) -> Self {
        if error.kind() == ErrorKind::UnexpectedEof { Self::Truncated { record, at } } else { Self::Io(error) }
    }
}

/// A packet of a capture, as an Ethernet frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The time of capture, in nanoseconds since 1970.
    pub nanos: u64,
    /// The original length in bytes. It exceeds the length of `bytes` if the capture truncated the packet.
    pub original_len: u32,
    /// The bytes of the packet.
    pub bytes: &'a [u8],
}

/// A stream of bytes, compressed or not.
pub(super) type Stream<'a> = Box<dyn Read + Send + 'a>;

/// A packet in the reader's buffer. It extends to the end of the buffer.
pub(super) struct Packet {
    /// The time of capture, in nanoseconds since 1970.
    pub nanos: u64,
    /// The frame, or the reason why the packet is skipped.
    pub frame: Result<Frame, Skip>,
}

/// An Ethernet frame in the reader's buffer.
pub(super) struct Frame {
    /// The offset of the frame in the buffer.
    pub start: usize,
    /// The length of the frame before truncation.
    pub original: u32,
}

/// The format of the capture, with its state.
enum Format {
    Classic(Classic),
    Ng(Ng),
}

/// Reads a capture from its start to its end, packet by packet.
pub struct Reader<'a> {
    input: Input<'a>,
    format: Format,
    /// The buffer with the present packet. It starts with [`HEADROOM`](link::HEADROOM) bytes for another header.
    body: Vec<u8>,
    /// The number of packets read so far, including skipped packets.
    records: u64,
    /// The packets skipped since the last `take_skipped`.
    skipped: Skipped,
    /// All skipped packets.
    all_skipped: Skipped,
    /// True after the end or an error.
    ended: bool,
}

/// Reads the first bytes of a stream, as many as are necessary to recognise its format. Returns these bytes, and a
/// stream that still includes them.
fn peek<'a>(mut stream: Stream<'a>) -> Result<(Vec<u8>, Stream<'a>), ReadError> {
    let mut first = Vec::with_capacity(other::LONGEST_MAGIC);
    let mut chunk = [0; 1];
    // Four bytes identify every format that can be read. A pipe may have no more bytes yet.
    while first.len() < other::LONGEST_MAGIC {
        if first.len() >= 4 && is_read(&first) {
            break;
        }
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(_) => first.push(chunk[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // For example, a compressed stream is truncated in its first bytes.
            Err(error) => return Err(ReadError::of(error, 0, first.len() as u64)),
        }
    }
    let chained = Box::new(Cursor::new(first.clone()).chain(stream));
    Ok((first, chained))
}

/// Returns true if a stream with these first bytes can be read.
fn is_read(first: &[u8]) -> bool {
    unpack::is_packed(first) || first.starts_with(&ng::SECTION) || Classic::order(first).is_some()
}

impl Reader<'static> {
    /// Opens a regular file.
    ///
    /// # Errors
    /// [`ReadError`]: the file cannot be opened, or as for [`new`](Reader::new).
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        Self::new(open_regular(path).map_err(ReadError::Open)?)
    }
}

impl<'a> Reader<'a> {
    /// Reads from a stream.
    ///
    /// # Errors
    /// [`ReadError`]: the stream is not a capture, or has a link type that cannot be read. In pcapng, the link type is
    /// not in the header of the file: [`next`](Self::next) skips packets whose link type cannot be read.
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

    /// Returns the next packet. Returns `None` at the end, and after an error. Packets that no Ethernet frame can carry
    /// are skipped and [counted](Self::take_skipped).
    ///
    /// # Errors
    /// [`ReadError`], once: the rest of the capture cannot be read, or all packets were skipped.
    #[expect(
        clippy::should_implement_trait,
        reason = "the record borrows from the reader, which an iterator's item cannot do"
    )]
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

    /// Returns the memory of the buffer for packets, in bytes.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.body.capacity()
    }

    /// Returns the packets skipped since the last call, by reason.
    pub fn take_skipped(&mut self) -> Skipped {
        std::mem::take(&mut self.skipped)
    }
}

/// Reads a capture from memory. Returns the times and bytes of its packets, and the error that ended it, if any. The
/// function does not panic for any bytes, and reads at most 64 MiB of packets, even if a decompressed stream is longer.
#[must_use]
pub fn read_memory(bytes: &[u8]) -> (Vec<(u64, Vec<u8>)>, Option<ReadError>) {
    let (mut packets, mut remaining) = (Vec::new(), 64_usize << 20);
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
        // Empty packets take memory too.
        let Some(rest) = remaining.checked_sub(record.bytes.len() + 64) else { break };
        remaining = rest;
    }
    (packets, None)
}

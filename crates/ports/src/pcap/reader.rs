//! Reading captures: classic pcap (micro- and nanoseconds, both byte orders), pcapng, and either in gzip.
//!
//! The framing is `pcap-file`'s; records are taken raw from it and interpreted here, because its own interpretation
//! refuses truncated packets (longer on the wire than the capture's limit) and takes every pcapng time stamp for
//! nanoseconds.

use std::io::{BufReader, Cursor, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use forebay_graph::files::open_regular;
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::blocks::{ENHANCED_PACKET_BLOCK, PACKET_BLOCK, SIMPLE_PACKET_BLOCK};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution, pcap, pcapng};
use thiserror::Error;

use super::writer::LONGEST;

/// Why a capture cannot be read, or not to its end.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file cannot be opened.
    #[error("cannot open the capture: {0}")]
    Open(#[source] std::io::Error),
    /// Reading or unpacking failed.
    #[error("cannot read the capture: {0}")]
    Io(#[source] std::io::Error),
    /// It is no capture.
    #[error("this is no capture: it starts with the bytes {found:02x?}, allowed are pcap, pcapng, and either in gzip")]
    Format {
        /// Up to four bytes.
        found: Vec<u8>,
    },
    /// Packets are not Ethernet frames.
    #[error("packets of link type {found:?} (number {number}): allowed is Ethernet (1)")]
    LinkType {
        /// Its name.
        found: DataLink,
        /// Its number (tcpdump.org/linktypes.html).
        number: u32,
    },
    /// The file ends in the middle of a record.
    #[error("the capture ends in the middle of its record {record}")]
    Truncated {
        /// Which record, from 1.
        record: u64,
    },
    /// A record makes no sense.
    #[error("record {record} of the capture is broken: {what}")]
    Corrupt {
        /// Which record, from 1.
        record: u64,
        /// What is wrong.
        what: String,
    },
}

/// A packet of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// When it was captured, in nanoseconds after 1970.
    pub nanos: u64,
    /// How long it was on the wire, in bytes; more than there are where the capture cut it.
    pub original_len: u32,
    /// Its bytes.
    pub bytes: &'a [u8],
}

type Stream<'a> = Box<dyn Read + Send + 'a>;

enum Format<'a> {
    Classic(pcap::PcapReader<Stream<'a>>),
    Ng(pcapng::PcapNgReader<Stream<'a>>),
}

/// Reads a capture from its start to its end.
pub struct Reader<'a> {
    format: Format<'a>,
    /// The record in hand: interpreting it needs what the framing's reader lends out meanwhile.
    body: Vec<u8>,
    records: u64,
    /// The last time stamp: records that have none share it.
    nanos: u64,
    ended: bool,
}

/// The first bytes of a stream, up to four, and the stream with them.
fn peek<'a>(mut stream: Stream<'a>) -> Result<(Vec<u8>, Stream<'a>), ReadError> {
    let mut first = Vec::with_capacity(4);
    stream.by_ref().take(4).read_to_end(&mut first).map_err(ReadError::Io)?;
    let whole = Box::new(Cursor::new(first.clone()).chain(stream));
    Ok((first, whole))
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
    /// [`ReadError`]: it is no capture, or one of another link type (in pcapng that shows at a packet only).
    pub fn new(stream: impl Read + Send + 'a) -> Result<Self, ReadError> {
        let (mut first, mut stream) = peek(Box::new(stream))?;
        if first.starts_with(&[0x1f, 0x8b]) {
            (first, stream) = peek(Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 16, stream))))?;
        }
        let refused = |error| fault(error, 0);
        let format = match first[..] {
            [0x0a, 0x0d, 0x0d, 0x0a] => Format::Ng(pcapng::PcapNgReader::new(stream).map_err(refused)?),
            [0xa1, 0xb2, 0xc3, 0xd4]
            | [0xd4, 0xc3, 0xb2, 0xa1]
            | [0xa1, 0xb2, 0x3c, 0x4d]
            | [0x4d, 0x3c, 0xb2, 0xa1] => {
                let reader = pcap::PcapReader::new(stream).map_err(refused)?;
                // Above the link type's 16 bits there may be flags (draft-ietf-opsawg-pcap section 4).
                ethernet(DataLink::from(u32::from(reader.header().datalink) & 0xffff))?;
                Format::Classic(reader)
            }
            _ => return Err(ReadError::Format { found: first }),
        };
        Ok(Self { format, body: Vec::new(), records: 0, nanos: 0, ended: false })
    }

    /// The next packet; `None` at the end, and after an error.
    ///
    /// # Errors
    /// [`ReadError`], once: what follows cannot be read.
    #[expect(clippy::should_implement_trait, reason = "the record borrows from the reader, which no iterator's can")]
    pub fn next(&mut self) -> Option<Result<Record<'_>, ReadError>> {
        if self.ended {
            return None;
        }
        let found = match self.format {
            Format::Classic(_) => self.classic(),
            Format::Ng(_) => self.ng(),
        };
        match found {
            Ok(Some((nanos, original_len, bytes))) => {
                self.nanos = nanos;
                Some(Ok(Record { nanos, original_len, bytes: &self.body[bytes] }))
            }
            Ok(None) => {
                self.ended = true;
                None
            }
            Err(error) => {
                self.ended = true;
                Some(Err(error))
            }
        }
    }

    /// Takes the next record into `self.body`: its time, original length, and which bytes are the packet.
    fn classic(&mut self) -> Found {
        let Format::Classic(reader) = &mut self.format else { return Ok(None) };
        let scale = if reader.header().ts_resolution == TsResolution::NanoSecond { 1 } else { 1000 };
        let Some(record) = reader.next_raw_packet() else { return Ok(None) };
        self.records += 1;
        let record = record.map_err(|error| fault(error, self.records))?;
        let nanos = u64::from(record.ts_sec) * 1_000_000_000 + u64::from(record.ts_frac) * scale;
        self.body.clear();
        self.body.extend_from_slice(limited(&record.data, self.records)?);
        Ok(Some((nanos, record.orig_len, 0..self.body.len())))
    }

    /// Likewise; blocks that are no packets are passed over.
    fn ng(&mut self) -> Found {
        let Format::Ng(reader) = &mut self.format else { return Ok(None) };
        loop {
            let Some(block) = reader.next_raw_block() else { return Ok(None) };
            let block = block.map_err(|error| fault(error, self.records + 1))?;
            let kind = block.type_;
            if ![ENHANCED_PACKET_BLOCK, SIMPLE_PACKET_BLOCK, PACKET_BLOCK].contains(&kind) {
                continue;
            }
            self.records += 1;
            self.body.clear();
            self.body.extend_from_slice(limited(&block.body, self.records)?);
            let little = reader.section().endianness == Endianness::Little;
            let block = Block { body: &self.body, little, record: self.records };
            return block.packet(kind, reader.interfaces(), self.nanos).map(Some);
        }
    }
}

/// A packet's time, original length and place; `None` at the end.
type Found = Result<Option<(u64, u32, std::ops::Range<usize>)>, ReadError>;

/// A block that holds a packet.
struct Block<'a> {
    body: &'a [u8],
    little: bool,
    record: u64,
}

impl Block<'_> {
    fn corrupt<T>(&self, what: String) -> Result<T, ReadError> {
        Err(ReadError::Corrupt { record: self.record, what })
    }

    /// The 32-bit word at byte `at`.
    fn word(&self, at: usize) -> Result<u32, ReadError> {
        let Some(word) = self.body.get(at..).and_then(<[u8]>::first_chunk) else {
            return self.corrupt(format!("its block of {} bytes is too short", self.body.len()));
        };
        Ok(if self.little { u32::from_le_bytes(*word) } else { u32::from_be_bytes(*word) })
    }

    fn packet(
        &self,
        kind: u32,
        interfaces: &[InterfaceDescriptionBlock<'_>],
        last: u64,
    ) -> Result<(u64, u32, std::ops::Range<usize>), ReadError> {
        let interface = match kind {
            SIMPLE_PACKET_BLOCK => 0,
            ENHANCED_PACKET_BLOCK => self.word(0)?,
            // The obsolete packet block: 16 bits of interface, 16 of drops.
            _ if self.little => self.word(0)? & 0xffff,
            _ => self.word(0)? >> 16,
        };
        let Some(interface) = interfaces.get(interface as usize) else {
            return self.corrupt(format!("it is of interface {interface}, of {} described", interfaces.len()));
        };
        ethernet(interface.linktype)?;
        if kind == SIMPLE_PACKET_BLOCK {
            let original = self.word(0)?;
            let limit = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
            let captured = (original.min(limit) as usize).min(self.body.len() - 4);
            return Ok((last, original, 4..4 + captured));
        }
        let time = u64::from(self.word(4)?) << 32 | u64::from(self.word(8)?);
        let (captured, original) = (self.word(12)? as usize, self.word(16)?);
        if captured > self.body.len() - 20 {
            return self.corrupt(format!("{captured} bytes captured do not fit a block of {}", self.body.len()));
        }
        Ok((nanos(time, interface), original, 20..20 + captured))
    }
}

/// A pcapng time stamp in nanoseconds: its unit is the interface's (microseconds unless it says otherwise), so is the
/// offset.
fn nanos(time: u64, interface: &InterfaceDescriptionBlock<'_>) -> u64 {
    let (mut resolution, mut offset) = (6, 0);
    for option in &interface.options {
        match option {
            InterfaceDescriptionOption::IfTsResol(value) => resolution = *value,
            InterfaceDescriptionOption::IfTsOffset(value) => offset = *value as i64,
            _ => {}
        }
    }
    let scaled = u128::from(time) * 1_000_000_000;
    let power = u32::from(resolution & 0x7f);
    let nanos = if resolution & 0x80 == 0 {
        10_u128.checked_pow(power).map_or(0, |unit| scaled / unit)
    } else {
        scaled >> power
    };
    let shifted = (nanos as i128).saturating_add(i128::from(offset) * 1_000_000_000);
    u64::try_from(shifted.max(0)).unwrap_or(u64::MAX)
}

/// A record's bytes, if there are no more than a packet can have (with the rest of its block).
fn limited(bytes: &[u8], record: u64) -> Result<&[u8], ReadError> {
    if bytes.len() > LONGEST + 4096 {
        let what = format!("{} bytes: allowed are up to {LONGEST}", bytes.len());
        return Err(ReadError::Corrupt { record, what });
    }
    Ok(bytes)
}

fn ethernet(found: DataLink) -> Result<(), ReadError> {
    if found == DataLink::ETHERNET { Ok(()) } else { Err(ReadError::LinkType { found, number: found.into() }) }
}

/// What the framing says, in our words.
fn fault(error: PcapError, record: u64) -> ReadError {
    match error {
        PcapError::IoError(source) if source.kind() == std::io::ErrorKind::UnexpectedEof => {
            ReadError::Truncated { record }
        }
        PcapError::IncompleteBuffer => ReadError::Truncated { record },
        PcapError::IoError(source) => ReadError::Io(source),
        other => ReadError::Corrupt { record, what: other.to_string() },
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

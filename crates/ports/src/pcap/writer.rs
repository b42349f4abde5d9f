//! Writes captures: classic pcap with nanoseconds, and pcapng, which can have a comment on each packet.

use std::path::Path;

use zerocopy::IntoBytes;

use super::format::Format;
use super::link::ETHERNET;
use super::spool::{Spool, WhenFull, WriteError};

/// The length of the longest packet that readers expect (tcpdump's MAXIMUM_SNAPLEN).
pub(super) const LONGEST: usize = 262_144;

/// Writes a file with nanosecond time stamps in this machine's byte order. The file name determines the format: pcapng
/// for `.pcapng`, otherwise classic pcap (draft-ietf-opsawg-pcap). Either is compressed with gzip if `.gz` follows.
///
/// Packets are copied into buffers, and a thread writes the buffers. The packet path makes system calls only to pass a
/// buffer to that thread, or to wait for it. An existing file is replaced when the first buffer is written. Dropping a
/// writer finishes the file. If no packet was written and [`finish`](Self::finish) was not called, an existing file
/// remains unchanged.
pub struct Writer {
    spool: Spool,
    /// True for pcapng.
    ng: bool,
}

impl Writer {
    /// Checks that the file name `path` requires a format that can be written.
    ///
    /// # Errors
    /// [`WriteError::Format`].
    pub fn check(path: &Path) -> Result<(), WriteError> {
        Format::of(path).map(|_| ())
    }

    /// Creates the file, or replaces it.
    ///
    /// # Errors
    /// [`WriteError::Create`]; [`WriteError::Format`]: the name requires a format that cannot be written.
    pub fn create(path: &Path, when_full: WhenFull) -> Result<Self, WriteError> {
        let Format { ng, gzip } = Format::of(path)?;
        if ng == Some(true) {
            let NgWriter(spool) = NgWriter::create(path, when_full)?;
            return Ok(Self { spool, ng: true });
        }
        let mut spool = Spool::create(path, gzip, when_full)?;
        if let Some(buffer) = spool.room(24) {
            buffer.extend(0xa1b2_3c4d_u32.to_ne_bytes());
            buffer.extend(2_u16.to_ne_bytes());
            buffer.extend(4_u16.to_ne_bytes());
            buffer.extend([0; 8]);
            buffer.extend((LONGEST as u32).to_ne_bytes());
            buffer.extend(ETHERNET.to_ne_bytes());
        }
        Ok(Self { spool, ng: false })
    }

    /// Adds a packet. `nanos` is its time in nanoseconds since 1970 (up to 2106 in classic pcap), and `original_len`
    /// its length in bytes before truncation. Returns `false` if there is no room ([`WhenFull::Refuse`]), or if the
    /// file cannot be written any more. A packet longer than 262 144 bytes is truncated.
    #[inline]
    pub fn write(&mut self, nanos: u64, original_len: usize, bytes: &[u8]) -> bool {
        let bytes = &bytes[..bytes.len().min(LONGEST)];
        if self.ng {
            return enhanced(&mut self.spool, nanos, original_len, bytes, "");
        }
        let Some(buffer) = self.spool.room(16 + bytes.len()) else { return false };
        let seconds = u32::try_from(nanos / 1_000_000_000).unwrap_or(u32::MAX);
        let original_len = u32::try_from(original_len.max(bytes.len())).unwrap_or(u32::MAX);
        let header = [seconds, (nanos % 1_000_000_000) as u32, bytes.len() as u32, original_len];
        buffer.extend_from_slice(header.as_bytes());
        buffer.extend_from_slice(bytes);
        true
    }

    /// Returns true if writing has failed. [`finish`](Self::finish) returns the reason.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.spool.failed()
    }

    /// Writes the rest and closes the file.
    ///
    /// # Errors
    /// [`WriteError::Write`]: an error now or earlier.
    pub fn finish(&mut self) -> Result<(), WriteError> {
        self.spool.finish()
    }
}

/// Writes a pcapng file of Ethernet packets with nanosecond time stamps and a comment on each packet
/// (draft-ietf-opsawg-pcapng), in this machine's byte order. In all other respects, it behaves like [`Writer`].
pub struct NgWriter(Spool);

/// The length of the longest comment, in bytes.
const LONGEST_COMMENT: usize = 1024;

impl NgWriter {
    /// Creates the file, or replaces it.
    ///
    /// # Errors
    /// As [`Writer::create`]; [`WriteError::Comments`]: the name requires pcap.
    pub fn create(path: &Path, when_full: WhenFull) -> Result<Self, WriteError> {
        let Format { ng, gzip } = Format::of(path)?;
        if ng == Some(false) {
            return Err(WriteError::Comments { path: path.to_owned() });
        }
        let mut spool = Spool::create(path, gzip, when_full)?;
        if let Some(buffer) = spool.room(64) {
            // Section header: byte order, version 1.0, unknown length.
            block(buffer, 0x0a0d_0d0a, |body| {
                body.extend(0x1a2b_3c4d_u32.to_ne_bytes());
                body.extend(1_u16.to_ne_bytes());
                body.extend(0_u16.to_ne_bytes());
                body.extend(u64::MAX.to_ne_bytes());
            });
            // Interface: Ethernet, no limit of length; if_tsresol (option 9): units of 10⁻⁹ seconds.
            block(buffer, 1, |body| {
                body.extend(ETHERNET.to_ne_bytes());
                body.extend(0_u32.to_ne_bytes());
                option(body, 9, &[9]);
                option(body, 0, &[]);
            });
        }
        Ok(Self(spool))
    }

    /// Adds a packet like [`Writer::write`], with a comment that is truncated to 1 024 bytes.
    #[inline]
    pub fn write(&mut self, nanos: u64, original_len: usize, bytes: &[u8], comment: &str) -> bool {
        let bytes = &bytes[..bytes.len().min(LONGEST)];
        let comment = &comment[..comment.floor_char_boundary(LONGEST_COMMENT)];
        enhanced(&mut self.0, nanos, original_len, bytes, comment)
    }

    /// Returns true if writing has failed. [`finish`](Self::finish) returns the reason.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.0.failed()
    }

    /// Writes the rest and closes the file.
    ///
    /// # Errors
    /// [`WriteError::Write`]: an error now or earlier.
    pub fn finish(&mut self) -> Result<(), WriteError> {
        self.0.finish()
    }
}

/// Adds an enhanced packet block of interface 0. Returns `false` if there is no room, or if the file cannot be written
/// any more.
#[inline]
fn enhanced(spool: &mut Spool, nanos: u64, original_len: usize, bytes: &[u8], comment: &str) -> bool {
    let Some(buffer) = spool.room(48 + bytes.len() + comment.len()) else { return false };
    block(buffer, 6, |body| {
        let original_len = u32::try_from(original_len.max(bytes.len())).unwrap_or(u32::MAX);
        let words = [0, (nanos >> 32) as u32, nanos as u32, bytes.len() as u32, original_len];
        body.extend_from_slice(words.as_bytes());
        body.extend_from_slice(bytes);
        pad(body, bytes.len());
        if !comment.is_empty() {
            option(body, 1, comment.as_bytes());
            option(body, 0, &[]);
        }
    });
    true
}

/// Adds a block: its type, its length, the body, and its length again. `fill` must append a body of whole words of four
/// bytes.
fn block(buffer: &mut Vec<u8>, kind: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = buffer.len();
    buffer.extend_from_slice(&kind.to_ne_bytes());
    buffer.extend_from_slice(&[0; 4]);
    fill(buffer);
    let length = ((buffer.len() - start + 4) as u32).to_ne_bytes();
    buffer[start + 4..start + 8].copy_from_slice(&length);
    buffer.extend_from_slice(&length);
}

/// Adds an option with its padding.
fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend_from_slice(&code.to_ne_bytes());
    body.extend_from_slice(&(value.len() as u16).to_ne_bytes());
    body.extend_from_slice(value);
    pad(body, value.len());
}

/// Pads a field of `length` bytes with zeros to whole words of four bytes.
fn pad(body: &mut Vec<u8>, length: usize) {
    body.extend_from_slice(&[0; 3][..length.next_multiple_of(4) - length]);
}

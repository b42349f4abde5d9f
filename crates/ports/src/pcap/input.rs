//! The bytes of a capture in order. Counts the bytes read, for error messages.

use std::io::{self, BufReader, ErrorKind, Read};

use super::reader::Stream;

/// The number of bytes read at a time.
const BUFFER: usize = 1 << 16;

/// A stream of bytes with a count of the bytes read. Only `new` allocates memory.
pub(super) struct Input<'a> {
    stream: BufReader<Stream<'a>>,
    /// The number of bytes read so far.
    at: u64,
}

impl<'a> Input<'a> {
    pub(super) fn new(stream: Stream<'a>) -> Self {
        Self { stream: BufReader::with_capacity(BUFFER, stream), at: 0 }
    }

    /// Returns the number of bytes read so far.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Fills `bytes`. Returns the number of bytes read, which is smaller only at the end.
    pub(super) fn fill(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        while count < bytes.len() {
            match self.stream.read(&mut bytes[count..]) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.at += count as u64;
        Ok(count)
    }

    /// Returns the next `N` bytes.
    ///
    /// # Errors
    /// `UnexpectedEof`: the stream has fewer bytes.
    pub(super) fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Fills `bytes`.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(super) fn exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        if self.fill(bytes)? < bytes.len() { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// Skips `count` bytes.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(super) fn skip(&mut self, count: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.stream.by_ref().take(count), &mut io::sink())?;
        self.at += skipped;
        if skipped < count { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

/// The byte order of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    pub(super) fn u16(self, bytes: [u8; 2]) -> u16 {
        if self == Self::Little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) }
    }

    pub(super) fn u32(self, bytes: [u8; 4]) -> u32 {
        if self == Self::Little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    }

    pub(super) fn u64(self, bytes: [u8; 8]) -> u64 {
        if self == Self::Little { u64::from_le_bytes(bytes) } else { u64::from_be_bytes(bytes) }
    }

    /// Returns the 32-bit words of `bytes`.
    pub(super) fn words<const N: usize>(self, bytes: &[u8]) -> [u32; N] {
        let (words, _) = bytes.as_chunks();
        std::array::from_fn(|index| self.u32(words[index]))
    }
}

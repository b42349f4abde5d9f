//! Decompresses gzip, Zstandard and LZ4 streams while they are read, in bounded memory.
//!
//! A compressed stream may have several frames, with skippable frames between them (RFC 8878 section 3.1, LZ4 frame
//! format 1.6.4). A gzip stream may have several members (RFC 1952 section 2.2). The decoders (flate2, ruzstd and
//! lz4_flex) decode one frame or member, and this module finds its successors. If a stream ends inside a frame, the
//! error has the kind `UnexpectedEof`, regardless of the crate that detects the end.

use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read};

use flate2::bufread::GzDecoder;
use lz4_flex::frame::FrameDecoder as Lz4;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use super::reader::Stream;

/// The largest Zstandard window, in bytes. It is the default limit of the program `zstd`.
pub(super) const WINDOW: u64 = 128 << 20;
/// The number of compressed bytes read at a time.
const BUFFER: usize = 1 << 16;

/// The magic number of a gzip member.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// The magic number of a Zstandard frame.
const ZSTD: u32 = 0xfd2f_b528;
/// The magic number of an LZ4 frame.
const LZ4: u32 = 0x184d_2204;
/// The first of the 16 magic numbers of skippable frames, in both formats.
const SKIPPABLE: u32 = 0x184d_2a50;

/// Returns true if a stream with these first bytes is compressed in a format that [`unpack`] supports.
pub(super) fn is_packed(first: &[u8]) -> bool {
    first.starts_with(&GZIP) || magic(first).is_some_and(|magic| matches!(magic, ZSTD | LZ4) || is_skippable(magic))
}

/// Returns the content of a [compressed](is_packed) stream. `first` has its first bytes, which are also in `stream`.
pub(super) fn unpack<'a>(first: &[u8], stream: Stream<'a>) -> Stream<'a> {
    let packed = BufReader::with_capacity(BUFFER, stream);
    if first.starts_with(&GZIP) {
        Box::new(Members { decoder: GzDecoder::new(packed), state: Gzip::Member })
    } else {
        Box::new(Frames { state: State::Between(Source { packed, ended: false }) })
    }
}

/// Returns the magic number of a frame, or `None` if there are fewer than four bytes.
fn magic(first: &[u8]) -> Option<u32> {
    first.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn is_skippable(magic: u32) -> bool {
    magic & 0xffff_fff0 == SKIPPABLE
}

/// The read position in a gzip stream.
enum Gzip {
    /// In a member.
    Member,
    /// After a member: another member, zeros or the end follow.
    Between,
    /// After a member and zeros: more zeros or the end follow.
    Padding,
    Ended,
}

/// The members of a gzip stream, one after the other. Zeros after the last member are ignored, as gzip(1) does. Some
/// programs add zeros to fill the last block on a tape or disk.
struct Members<'a> {
    decoder: GzDecoder<BufReader<Stream<'a>>>,
    state: Gzip,
}

impl Read for Members<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.state {
                Gzip::Member => {
                    let count = self.decoder.read(bytes)?;
                    if count > 0 || bytes.is_empty() {
                        return Ok(count);
                    }
                    self.state = Gzip::Between;
                }
                Gzip::Between => match self.decoder.get_mut().fill_buf()?.first() {
                    None => self.state = Gzip::Ended,
                    Some(0) => self.state = Gzip::Padding,
                    Some(_) => {
                        // The decoder is reused, because it takes 40 kB and a stream may have a member for each packet.
                        let empty: Stream<'_> = Box::new(io::empty());
                        let packed = self.decoder.reset(BufReader::with_capacity(0, empty));
                        self.decoder.reset(packed);
                        self.state = Gzip::Member;
                    }
                },
                Gzip::Padding => {
                    let packed = self.decoder.get_mut();
                    let rest = packed.fill_buf()?;
                    let count = rest.len();
                    if let Some(&other) = rest.iter().find(|byte| **byte != 0) {
                        self.state = Gzip::Ended;
                        let message =
                            format!("the padding after the gzip data has the byte {other:02x}: allowed are only zeros");
                        return Err(io::Error::new(ErrorKind::InvalidData, message));
                    }
                    packed.consume(count);
                    if count == 0 {
                        self.state = Gzip::Ended;
                    }
                }
                Gzip::Ended => return Ok(0),
            }
        }
    }
}

/// A compressed stream that records whether a decoder has tried to read after its end.
struct Source<'a> {
    packed: BufReader<Stream<'a>>,
    /// True if a reading has found the end. If the decoder then fails or has no more data, the frame is truncated.
    ended: bool,
}

impl Read for Source<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.packed.read(bytes)?;
        self.ended |= count == 0 && !bytes.is_empty();
        Ok(count)
    }
}

/// A source from which the magic number was already read. The four bytes of this number precede the source, so that the
/// decoder can read them.
type Rewound<'a> = io::Chain<Cursor<[u8; 4]>, Source<'a>>;

/// The read position in the sequence of frames.
enum State<'a> {
    Between(Source<'a>),
    Zstd(Box<StreamingDecoder<Rewound<'a>, FrameDecoder>>),
    Lz4(Box<Lz4<Rewound<'a>>>),
    Ended,
}

/// Frames of Zstandard or LZ4, one after the other.
struct Frames<'a> {
    state: State<'a>,
}

impl Read for Frames<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let (read, ended) = match &mut self.state {
                State::Ended => return Ok(0),
                State::Between(_) => {
                    // If `next_frame` fails, the state remains `Ended`, so later readings return no bytes.
                    let State::Between(source) = std::mem::replace(&mut self.state, State::Ended) else { return Ok(0) };
                    self.state = next_frame(source)?;
                    continue;
                }
                State::Zstd(decoder) => (decoder.read(bytes), decoder.get_ref().get_ref().1.ended),
                State::Lz4(decoder) => (decoder.read(bytes), decoder.get_ref().get_ref().1.ended),
            };
            match read {
                Ok(count) if count > 0 || bytes.is_empty() => return Ok(count),
                Ok(_) if !ended => {
                    self.state = match std::mem::replace(&mut self.state, State::Ended) {
                        State::Zstd(decoder) => State::Between(finish(*decoder)?),
                        State::Lz4(decoder) => State::Between(decoder.into_inner().into_inner().1),
                        other => other,
                    };
                }
                Ok(_) => return self.fail(io::Error::new(ErrorKind::UnexpectedEof, "the frame is not complete")),
                Err(_) if ended => {
                    return self.fail(io::Error::new(ErrorKind::UnexpectedEof, "the frame is not complete"));
                }
                Err(error) => return self.fail(error),
            }
        }
    }
}

impl Frames<'_> {
    /// Ends the stream with an error. Later readings return no bytes.
    fn fail(&mut self, error: io::Error) -> io::Result<usize> {
        self.state = State::Ended;
        Err(error)
    }
}

/// Skips skippable frames, and opens the next frame. Returns [`State::Ended`] if there are no more frames.
fn next_frame(mut source: Source<'_>) -> io::Result<State<'_>> {
    loop {
        let mut first = [0; 4];
        let found = io::copy(&mut source.by_ref().take(4), &mut &mut first[..])?;
        if found == 0 {
            return Ok(State::Ended);
        }
        let first = &first[..found as usize];
        let Some(magic) = magic(first) else {
            return Err(if may_begin(first) { ErrorKind::UnexpectedEof.into() } else { no_frame(first) });
        };
        if is_skippable(magic) {
            let mut length = [0; 4];
            source.read_exact(&mut length)?;
            let length = u64::from(u32::from_le_bytes(length));
            if io::copy(&mut source.by_ref().take(length), &mut io::sink())? < length {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            continue;
        }
        let rewound = Cursor::new(magic.to_le_bytes()).chain(source);
        return match magic {
            LZ4 => Ok(State::Lz4(Box::new(Lz4::new(rewound)))),
            ZSTD => {
                let decoder = StreamingDecoder::new_with_max_window_size(rewound, WINDOW).map_err(io::Error::other)?;
                Ok(State::Zstd(Box::new(decoder)))
            }
            _ => Err(no_frame(first)),
        };
    }
}

/// Returns true if these bytes, fewer than four, may be the start of a magic number.
fn may_begin(first: &[u8]) -> bool {
    [ZSTD, LZ4].iter().any(|magic| magic.to_le_bytes().starts_with(first))
        || (0..16).any(|which| (SKIPPABLE | which).to_le_bytes().starts_with(first))
}

/// Returns the error for bytes that do not begin a frame. Zeros after the last frame are also an error, because
/// zstd(1), lz4(1) and Wireshark reject them.
fn no_frame(first: &[u8]) -> io::Error {
    let message = format!("expected a frame of Zstandard or LZ4, but found the bytes {first:02x?}");
    io::Error::new(ErrorKind::InvalidData, message)
}

/// Verifies the checksum at the end of a Zstandard frame, if the frame has one (RFC 8878 section 3.1.1). Returns the
/// source after the frame.
fn finish<'a>(decoder: StreamingDecoder<Rewound<'a>, FrameDecoder>) -> io::Result<Source<'a>> {
    let (stream, decoder) = decoder.into_parts();
    if let Some(found) = decoder.get_checksum_from_data()
        && decoder.get_calculated_checksum().is_some_and(|right| right != found)
    {
        return Err(io::Error::new(ErrorKind::InvalidData, "the checksum of a Zstandard frame is wrong"));
    }
    Ok(stream.into_inner().1)
}

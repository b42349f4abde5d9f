//! Captures of numbered packets. Checks a written capture for packets that are missing or have overtaken others.

use std::collections::BTreeMap;
use std::path::Path;

use forebay_packet::wire::checksum;
use forebay_ports::pcap::read_memory;

/// A stream of packets of several sessions to one UDP port.
#[derive(Clone, Copy)]
pub(crate) struct Stream {
    pub(crate) port: u16,
    pub(crate) sessions: u32,
    /// The time between packets, in microseconds.
    pub(crate) every_us: u64,
    /// The end of the stream, in milliseconds.
    pub(crate) until_ms: u64,
}

impl Stream {
    fn packets(self) -> impl Iterator<Item = (u64, Self, u32)> {
        (0..self.count()).map(move |number| (number * self.every_us, self, number as u32))
    }

    pub(crate) fn count(self) -> u64 {
        self.until_ms * 1_000 / self.every_us
    }
}

/// Returns a frame of Ethernet, IPv4 and UDP. Its payload is the packet's number in its session.
fn frame(stream: Stream, number: u32) -> [u8; 60] {
    let (session, number) = (number % stream.sessions, number / stream.sessions);
    let mut frame = [0; 60];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17]);
    frame[26..30].copy_from_slice(&[192, 0, 2, session as u8]);
    frame[30..34].copy_from_slice(&[10, 0, 0, 1]);
    frame[34..36].copy_from_slice(&1_024u16.to_be_bytes());
    frame[36..38].copy_from_slice(&stream.port.to_be_bytes());
    frame[38..40].copy_from_slice(&26u16.to_be_bytes());
    frame[42..46].copy_from_slice(&number.to_be_bytes());
    let sum = !checksum::sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_ne_bytes());
    frame
}

/// Writes the packets of the streams in the order of their times.
pub(crate) fn write(path: &Path, streams: &[Stream]) {
    let mut all: Vec<_> = streams.iter().flat_map(|stream| stream.packets()).collect();
    all.sort_by_key(|(at, stream, _)| (*at, stream.port));
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for (at, stream, number) in all {
        let frame = frame(stream, number);
        let words = [at / 1_000_000, at % 1_000_000, frame.len() as u64, frame.len() as u64];
        words.into_iter().for_each(|word| bytes.extend((word as u32).to_le_bytes()));
        bytes.extend(frame);
    }
    std::fs::write(path, bytes).expect("a writable folder");
}

/// Returns the number of output packets by UDP port. Asserts that no packet of a session is missing or has overtaken
/// another.
pub(crate) fn left_in_order(path: &Path) -> BTreeMap<u16, u64> {
    left_without_overtaking(path, &[])
}

/// Returns the number of output packets by UDP port. Packets of the `lossy` ports may be missing, but must be in order.
pub(crate) fn left_without_overtaking(path: &Path, lossy: &[u16]) -> BTreeMap<u16, u64> {
    let capture = std::fs::read(path).expect("the file was written");
    let (frames, error) = read_memory(&capture);
    assert!(error.is_none(), "{error:?}");
    let (mut next, mut counts) = (BTreeMap::new(), BTreeMap::new());
    for (_, frame) in frames {
        let port = u16::from_be_bytes([frame[36], frame[37]]);
        let number = u32::from_be_bytes([frame[42], frame[43], frame[44], frame[45]]);
        let expected = next.entry((port, frame[29])).or_insert(0);
        let sound = if lossy.contains(&port) { number >= *expected } else { number == *expected };
        assert!(sound, "port {port}, session {}: {number}, not {expected}", frame[29]);
        *expected = number + 1;
        *counts.entry(port).or_insert(0) += 1;
    }
    counts
}

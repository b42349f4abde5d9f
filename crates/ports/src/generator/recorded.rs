//! Recorded traffic: the arrival times, lengths and sessions of the packets of a capture.
//!
//! The addresses are not taken from the capture: the generator's parameters determine them. So a pipeline that was
//! configured for these addresses receives packets with the bursts and pauses of real traffic.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use forebay_packet::{Pool, PoolOptions};
use thiserror::Error;

use super::sessions::Sessions;
use super::sizes::{Sizes, Weighted};
use crate::pcap::{ReadError, Reader, Skipped};

/// The largest number of packets in a capture. This number of packets takes several hundred megabytes of memory.
const MAX_PACKETS: usize = 1 << 22;
/// The longest frame, in bytes. A longer frame in a capture was merged by the recording device, or was not yet split.
/// Its length is limited to this number.
const MAX_LENGTH: u32 = 1514;
/// Lengths are rounded down to multiples of this number of bytes, so that there are at most 256 different lengths.
const LENGTH_STEP: u32 = 8;
/// The number of bytes of a frame that are used to identify its session.
const HEADERS: usize = 256;

/// An error in a capture that is used as traffic.
#[derive(Debug, Error)]
pub(super) enum RecordedError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the capture has no packets: at least one is needed")]
    Empty,
    #[error("the capture has more than {MAX_PACKETS} packets: use a shorter capture")]
    Long,
    #[error("some packets of the capture cannot be read: {skipped}; use a capture with a supported link type")]
    Skipped { skipped: Skipped },
    #[error("cannot allocate memory for a packet: {0}")]
    Memory(#[from] forebay_packet::pool::PoolError),
}

/// A packet of a capture.
#[derive(Clone, Copy, Debug)]
struct Recorded {
    /// The time until the next packet, in nanoseconds. For the last packet, it is the mean of all gaps.
    gap: u64,
    /// The original length in bytes, rounded down and limited.
    len: usize,
    /// The number of the session in the generator.
    session: u32,
}

/// The packets of a capture in order.
#[derive(Clone, Debug)]
pub(super) struct Recording {
    /// The packets in order.
    packets: Vec<Recorded>,
    /// The number of packets of each session, over all workers.
    weights: Vec<u32>,
}

impl Recording {
    /// Reads a capture of at least one packet. Sessions are numbered in the order of their first packets, modulo
    /// `sessions`.
    ///
    /// # Errors
    /// [`RecordedError`].
    pub(super) fn read(path: &Path, sessions: usize) -> Result<Self, RecordedError> {
        let pool = Pool::new(PoolOptions { chunks: 1, frame: HEADERS, ..PoolOptions::default() })?;
        let (mut reader, mut known, mut last) = (Reader::open(path)?, HashMap::new(), 0);
        let (mut packets, mut weights) = (Vec::<Recorded>::new(), vec![0; sessions]);
        while let Some(record) = reader.next() {
            let record = record?;
            if packets.len() == MAX_PACKETS {
                return Err(RecordedError::Long);
            }
            let mut packet = pool.take().expect("the previous packet was returned");
            packet.write(&record.bytes[..record.bytes.len().min(HEADERS)]);
            let next_number = known.len();
            let session = *known.entry(packet.session_hash()).or_insert(next_number) % sessions;
            weights[session] += 1;
            // If the clock was set back, the gap is 0.
            if let Some(before) = packets.last_mut() {
                before.gap = record.nanos.saturating_sub(last);
            }
            last = record.nanos;
            let len = (record.original_len.min(MAX_LENGTH) / LENGTH_STEP * LENGTH_STEP) as usize;
            packets.push(Recorded { gap: 0, len, session: session as u32 });
        }
        let skipped = reader.take_skipped();
        if !skipped.is_empty() {
            return Err(RecordedError::Skipped { skipped });
        }
        let span = packets.iter().fold(0, |span: u64, packet| span.saturating_add(packet.gap));
        let mean = span / (packets.len() as u64).saturating_sub(1).max(1);
        packets.last_mut().ok_or(RecordedError::Empty)?.gap = mean;
        Ok(Self { packets, weights })
    }

    /// Returns the part of the recording with the packets of these sessions, which must be in ascending order. The gaps
    /// of other packets are added to the gap of the packet before them. Gaps before the first packet of the part are
    /// added to the gap of its last packet. The result may be empty.
    pub(super) fn of(&self, sessions: &[u32]) -> Self {
        let (mut packets, mut before) = (Vec::<Recorded>::new(), 0);
        for packet in &self.packets {
            match packets.last_mut() {
                _ if sessions.binary_search(&packet.session).is_ok() => packets.push(*packet),
                Some(last) => last.gap = last.gap.saturating_add(packet.gap),
                None => before += packet.gap,
            }
        }
        if let Some(last) = packets.last_mut() {
            last.gap = last.gap.saturating_add(before);
        }
        Self { packets, weights: self.weights.clone() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns the number of packets of a session.
    pub(super) fn weight(&self, session: u32) -> f64 {
        f64::from(self.weights[session as usize])
    }

    /// Returns the different lengths of frames in ascending order. Lengths below `least` are raised to `least`.
    pub(super) fn lengths(&self, least: usize) -> Vec<Weighted> {
        let lengths: BTreeSet<usize> = self.packets.iter().map(|packet| packet.len.max(least)).collect();
        lengths.into_iter().map(|size| Weighted { size, weight: 1, payload: String::new() }).collect()
    }

    /// Returns for each packet the index of its length in `lengths`, which must be in ascending order and not empty. If
    /// `lengths` does not contain the length of a packet, returns the index of the next longer length, or of the
    /// longest length if there is none.
    pub(super) fn sizes(&self, lengths: &[usize]) -> Sizes {
        let number = |packet: &Recorded| lengths.partition_point(|len| *len < packet.len).min(lengths.len() - 1) as u8;
        Sizes::of(self.packets.iter().map(number).collect())
    }

    /// Returns the sessions in the order of the packets.
    pub(super) fn sessions(&self) -> Sessions {
        Sessions::in_order(self.packets.iter().map(|packet| packet.session).collect())
    }

    /// Returns for each packet the time until the next packet, in seconds. The recorded gaps are scaled to the mean
    /// rate of the generator. `by_size` has the mean gap after a packet of each size, in seconds, in the traffic of all
    /// workers together. `part` is this worker's fraction of the traffic, above 0 and up to 1.
    pub(super) fn seconds(&self, sizes: &Sizes, by_size: &[f64], part: f64) -> Vec<f64> {
        let round = sizes.order().iter().map(|size| by_size[usize::from(*size)]).sum::<f64>() / part;
        let span: f64 = self.packets.iter().map(|packet| packet.gap as f64).sum();
        let even = round / self.packets.len() as f64;
        let seconds = |packet: &Recorded| if span > 0.0 { packet.gap as f64 / span * round } else { even };
        self.packets.iter().map(seconds).collect()
    }
}

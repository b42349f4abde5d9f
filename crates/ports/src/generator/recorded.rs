//! Recorded traffic: the arrival times, lengths and sessions of the packets of a capture.
//!
//! Nothing else is taken from the capture. The addresses are the generator's. So a pipeline that was made for these
//! addresses receives packets that come in bursts and pauses like real ones.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use forebay_packet::{Pool, PoolOptions};
use thiserror::Error;

use super::sessions::Sessions;
use super::sizes::{Sizes, Weighted};
use crate::pcap::{ReadError, Reader, Skipped};

/// The largest number of packets that are remembered, which takes some hundred megabytes.
const MAX_PACKETS: usize = 1 << 22;
/// The longest frame, in bytes. Longer frames were merged, or not yet split, by the recording device.
const MAX_LENGTH: u32 = 1514;
/// Lengths are multiples of this, so that there are at most 256 different lengths.
const LENGTH_STEP: u32 = 8;
/// The number of bytes of a frame that are used to identify its session.
const HEADERS: usize = 256;

/// Why a capture cannot be used as traffic.
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
    /// The nanoseconds until the next packet; after the last packet, the mean.
    gap: u64,
    len: usize,
    session: u32,
}

/// The packets of a capture in order.
#[derive(Clone, Debug)]
pub(super) struct Recording {
    packets: Vec<Recorded>,
    /// By session: the number of its packets.
    weights: Vec<u32>,
}

impl Recording {
    /// Reads a capture of at least one packet. Sessions are numbered in the order of their first packets. Sessions
    /// beyond the first `sessions` are mapped to these.
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

    /// Returns the part of the recording that belongs to these sessions, in ascending order. The gaps of other packets
    /// are added to the gap before them.
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

    /// Returns a session's weight relative to the others.
    pub(super) fn weight(&self, session: u32) -> f64 {
        f64::from(self.weights[session as usize])
    }

    /// Returns the lengths of frames, at least `least` bytes, in ascending order.
    pub(super) fn lengths(&self, least: usize) -> Vec<Weighted> {
        let lengths: BTreeSet<usize> = self.packets.iter().map(|packet| packet.len.max(least)).collect();
        lengths.into_iter().map(|size| Weighted { size, weight: 1, payload: String::new() }).collect()
    }

    /// By packet: returns the index of its length in `lengths`, which are in ascending order, or of the nearest one.
    pub(super) fn sizes(&self, lengths: &[usize]) -> Sizes {
        let number = |packet: &Recorded| lengths.partition_point(|len| *len < packet.len).min(lengths.len() - 1) as u8;
        Sizes::of(self.packets.iter().map(number).collect())
    }

    /// Returns the sessions in the order of the packets.
    pub(super) fn sessions(&self) -> Sessions {
        Sessions::in_order(self.packets.iter().map(|packet| packet.session).collect())
    }

    /// By packet: returns the seconds until the next one. `by_size` has the mean time that a frame of each size takes,
    /// in `part` of all packets.
    pub(super) fn seconds(&self, sizes: &Sizes, by_size: &[f64], part: f64) -> Vec<f64> {
        let round = sizes.order().iter().map(|size| by_size[usize::from(*size)]).sum::<f64>() / part;
        let span: f64 = self.packets.iter().map(|packet| packet.gap as f64).sum();
        let even = round / self.packets.len() as f64;
        let seconds = |packet: &Recorded| if span > 0.0 { packet.gap as f64 / span * round } else { even };
        self.packets.iter().map(seconds).collect()
    }
}

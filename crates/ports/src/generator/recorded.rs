//! Traffic as it was recorded: when packets came, how long they were, and whose they were.
//!
//! Only that is taken from a capture. Addresses are the generator's, so that a pipeline made for these sees packets
//! that come together,
//! follow each other and pause as real ones do.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use forebay_packet::{Pool, PoolOptions};
use thiserror::Error;

use super::sessions::Sessions;
use super::sizes::{Sizes, Weighted};
use crate::pcap::{ReadError, Reader, Skipped};

/// The most packets that are remembered: some hundred megabytes.
const MOST: usize = 1 << 22;
/// The longest frame, in bytes: longer ones were put together, or not yet cut, by the device that recorded them.
const LONGEST: u32 = 1514;
/// What lengths are multiples of: there are at most 256 of them.
const STEP: u32 = 8;
/// Bytes of a frame, as many as sessions can be told by.
const HEADERS: usize = 256;

/// Why a capture is no traffic.
#[derive(Debug, Error)]
pub(super) enum RecordedError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("there are no packets in it: at least one is needed")]
    Empty,
    #[error("there are more than {MOST} packets in it: allowed are so many")]
    Long,
    #[error("not all packets in it can be read: {skipped}; allowed are captures of link types that are read")]
    Skipped { skipped: Skipped },
    #[error("no memory for a packet: {0}")]
    Memory(#[from] forebay_packet::pool::PoolError),
}

/// A packet of a capture.
#[derive(Clone, Copy, Debug)]
struct Recorded {
    /// Nanoseconds until the next one came; after the last, as many as in the mean.
    gap: u64,
    len: usize,
    session: u32,
}

/// The packets of a capture in their order.
#[derive(Clone, Debug)]
pub(super) struct Recording {
    packets: Vec<Recorded>,
    /// By session: how many packets it has.
    weights: Vec<u32>,
}

impl Recording {
    /// Reads a capture of at least one packet. Sessions are numbered as they begin, and those beyond the first
    /// `sessions` are taken for
    /// these again.
    ///
    /// # Errors
    /// [`RecordedError`].
    pub(super) fn read(path: &Path, sessions: usize) -> Result<Self, RecordedError> {
        let pool = Pool::new(PoolOptions { chunks: 1, frame: HEADERS, ..PoolOptions::default() })?;
        let (mut reader, mut known, mut last) = (Reader::open(path)?, HashMap::new(), 0);
        let (mut packets, mut weights) = (Vec::<Recorded>::new(), vec![0; sessions]);
        while let Some(record) = reader.next() {
            let record = record?;
            if packets.len() == MOST {
                return Err(RecordedError::Long);
            }
            let mut packet = pool.take().expect("the last one is back");
            packet.write(&record.bytes[..record.bytes.len().min(HEADERS)]);
            let begun = known.len();
            let session = *known.entry(packet.session_hash()).or_insert(begun) % sessions;
            weights[session] += 1;
            // Where a clock was set back, packets came together.
            if let Some(before) = packets.last_mut() {
                before.gap = record.nanos.saturating_sub(last);
            }
            last = record.nanos;
            let len = (record.original_len.min(LONGEST) / STEP * STEP) as usize;
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

    /// What only these sessions have of it, in ascending order: packets of others are time that passes.
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

    /// A session's share, by comparison with the others.
    pub(super) fn weight(&self, session: u32) -> f64 {
        f64::from(self.weights[session as usize])
    }

    /// The lengths that frames have, at least `least` bytes, shortest first.
    pub(super) fn lengths(&self, least: usize) -> Vec<Weighted> {
        let lengths: BTreeSet<usize> = self.packets.iter().map(|packet| packet.len.max(least)).collect();
        lengths.into_iter().map(|size| Weighted { size, weight: 1, payload: String::new() }).collect()
    }

    /// By packet: the number of its length among these, in ascending order, or the nearest.
    pub(super) fn sizes(&self, lengths: &[usize]) -> Sizes {
        let number = |packet: &Recorded| lengths.partition_point(|len| *len < packet.len).min(lengths.len() - 1) as u8;
        Sizes::of(self.packets.iter().map(number).collect())
    }

    /// Whose turn it is, packet by packet.
    pub(super) fn sessions(&self) -> Sessions {
        Sessions::in_order(self.packets.iter().map(|packet| packet.session).collect())
    }

    /// By packet: the seconds until the next one, where each of these sizes takes so many in the mean of `part` of all
    /// packets.
    pub(super) fn seconds(&self, sizes: &Sizes, by_size: &[f64], part: f64) -> Vec<f64> {
        let round = sizes.order().iter().map(|size| by_size[usize::from(*size)]).sum::<f64>() / part;
        let span: f64 = self.packets.iter().map(|packet| packet.gap as f64).sum();
        let even = round / self.packets.len() as f64;
        let seconds = |packet: &Recorded| if span > 0.0 { packet.gap as f64 / span * round } else { even };
        self.packets.iter().map(seconds).collect()
    }
}

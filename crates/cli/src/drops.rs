//! Dropped packets to a pcapng file, each with the reason as its comment.
//!
//! The worker of a run that loses packets by waiting never waits for the disk: a packet that finds the buffers full is
//! counted and not written. In simulated time, and where all packets come from captures with `speed: fast`, it waits.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_graph::Place;
use forebay_measure::Frequency;
use forebay_packet::{Packet, Ticks};
use forebay_ports::pcap::{NgWriter, WhenFull};

use crate::story::Names;

/// What became of the dropped packets.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) written: AtomicU64,
    pub(crate) lost: AtomicU64,
    /// Why the file is not complete.
    pub(crate) trouble: Mutex<Option<String>>,
}

/// Writes dropped packets; belongs to the worker's thread. Dropping it finishes the file.
pub(crate) struct DropSender {
    writer: NgWriter,
    /// The instant that is at `wall` nanoseconds after 1970.
    start: Ticks,
    wall: u64,
    frequency: Frequency,
    tally: Arc<Tally>,
}

impl DropSender {
    /// Creates the file. `start` is the present instant. `waits`: whether the worker may wait for the disk.
    pub(crate) fn create(
        path: &Path,
        start: Ticks,
        frequency: Frequency,
        simulated: bool,
        waits: bool,
    ) -> anyhow::Result<(Self, Arc<Tally>)> {
        let when_full = if waits { WhenFull::Wait } else { WhenFull::Refuse };
        let writer = NgWriter::create(path, when_full).map_err(|error| anyhow::anyhow!("--drops: {error}"))?;
        // Simulated time begins in 1970, so that every run of one seed is the same.
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let wall = if simulated { 0 } else { now() };
        let tally = Arc::new(Tally::default());
        Ok((Self { writer, start, wall, frequency, tally: Arc::clone(&tally) }, tally))
    }

    /// Writes a packet that was dropped where things are called by these names.
    pub(crate) fn send(&mut self, names: &Names, place: Place, reason: &'static str, packet: &Packet) {
        let since = self.frequency.nanos(packet.arrival().since(self.start)).0;
        let comment = names.reason(place, reason);
        let at = self.wall.saturating_add(since);
        let written = self.writer.write(at, packet.original_len(), packet.data(), &comment);
        let count = if written { &self.tally.written } else { &self.tally.lost };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for DropSender {
    fn drop(&mut self) {
        if let Err(error) = self.writer.finish() {
            *self.tally.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("--drops: {error}"));
        }
    }
}

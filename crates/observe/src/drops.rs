//! Writes dropped packets to a pcapng file, each with the drop reason as its comment, or sends them to a client.
//!
//! A worker that receives live packets never waits for the disk, because packets that arrive during the wait would be
//! lost. If the buffers are full, a dropped packet is counted and not written. The worker waits for the disk in two
//! cases: time is simulated, or all packets come from captures with `speed: fast`.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_graph::DropSite;
use forebay_measure::{Clock, Tsc};
use forebay_packet::Packet;
use forebay_ports::pcap::{NgWriter, WhenFull, WriteError};
use forebay_protocol::response::DroppedPacket;
use forebay_units::{Frequency, Ticks};

use crate::filter::Filter;
use crate::story::Names;

/// Counts of the dropped packets that were to be written.
#[derive(Debug, Default)]
pub struct Tally {
    /// The number of packets that were passed to the writer. If `trouble` has an error at the end, some of them are not
    /// in the file.
    pub written: AtomicU64,
    /// The number of packets that were lost, because the buffers of the writer were full or the file could not be
    /// written any more.
    pub lost: AtomicU64,
    /// The error because of which the file is incomplete. `None` until the file is completed, and if there was no
    /// error.
    pub trouble: Mutex<Option<String>>,
}

/// Writes dropped packets on the worker's thread. Dropping this value completes the file.
pub struct DropSender {
    writer: NgWriter,
    /// An instant on the workers' clock: the time at which the file was created.
    start: Ticks,
    /// The system time at `start`, in nanoseconds since 1970. 0 in simulated time.
    wall: u64,
    frequency: Frequency,
    tally: Arc<Tally>,
}

impl DropSender {
    /// Creates the file. Returns the writer and its counts. `start` is the present instant of the workers' clock.
    /// `waits` is true if the worker may wait for the disk.
    ///
    /// # Errors
    /// The errors of creating the file.
    pub fn create(
        path: &Path,
        start: Ticks,
        frequency: Frequency,
        simulated: bool,
        waits: bool,
    ) -> Result<(Self, Arc<Tally>), WriteError> {
        let when_full = if waits { WhenFull::Wait } else { WhenFull::Refuse };
        let writer = NgWriter::create(path, when_full)?;
        // Simulated time begins in 1970, so that runs with the same seed are equal.
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let wall = if simulated { 0 } else { now() };
        let tally = Arc::new(Tally::default());
        Ok((Self { writer, start, wall, frequency, tally: Arc::clone(&tally) }, tally))
    }

    /// Writes a dropped packet. `names` are the names of modules and ports at the time of the drop.
    pub fn send(&mut self, names: &Names, site: DropSite, reason: &'static str, packet: &Packet) {
        let since = self.frequency.nanos(packet.arrival().since(self.start)).0;
        let comment = names.reason(site, reason);
        let at = self.wall.saturating_add(since);
        let written = self.writer.write(at, packet.original_len(), packet.data(), &comment);
        let count = if written { &self.tally.written } else { &self.tally.lost };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// The largest number of packets in the queue to a client.
const MOST_PACKETS: usize = 4_096;
/// The largest number of bytes of a packet that are sent to a client.
const MOST_BYTES: usize = 2_048;

/// Passes dropped packets to a thread that sends them to a client. The worker never waits. If the queue is full, a
/// packet is counted and not sent.
pub struct DropQueue {
    /// The filter of the packets to send. `None` for all dropped packets.
    filter: Option<Filter>,
    packets: SyncSender<RawDrop>,
    lost: Arc<AtomicU64>,
}

/// A dropped packet as the worker copies it.
pub struct RawDrop {
    names: Arc<Names>,
    site: DropSite,
    reason: &'static str,
    arrival: Ticks,
    /// The first bytes of the packet, at most [`MOST_BYTES`].
    bytes: Vec<u8>,
    /// The length of the packet in bytes.
    length: usize,
}

impl DropQueue {
    /// Returns a queue for packets that match `filter`, its receiver, and the counter of the packets that are lost
    /// because the queue is full.
    pub fn new(filter: Option<Filter>) -> (Self, Receiver<RawDrop>, Arc<AtomicU64>) {
        let (packets, out) = sync_channel(MOST_PACKETS);
        let lost = Arc::new(AtomicU64::new(0));
        (Self { filter, packets, lost: Arc::clone(&lost) }, out, lost)
    }

    /// Queues a dropped packet. `names` are the names of modules and ports at the time of the drop.
    pub fn send(&mut self, names: &Arc<Names>, site: DropSite, reason: &'static str, packet: &Packet) {
        let data = packet.data();
        if self.filter.as_ref().is_some_and(|filter| !filter.matches(data)) {
            return;
        }
        let (bytes, length) = (data[..data.len().min(MOST_BYTES)].to_vec(), packet.original_len().max(data.len()));
        let raw = RawDrop { names: Arc::clone(names), site, reason, arrival: packet.arrival(), bytes, length };
        if let Err(TrySendError::Full(_)) = self.packets.try_send(raw) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Converts queued packets and sends them to `out`. Returns when the sender of `raw` or the receiver of `out` has gone
/// away. Must run on a separate thread, because it waits.
pub fn report_drops(raw: &Receiver<RawDrop>, out: &SyncSender<DroppedPacket>) {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let start = Tsc.now();
    let nanos = |from: Ticks, to: Ticks| Tsc.frequency().nanos(to.since(from)).0;
    while let Ok(RawDrop { names, site, reason, arrival, bytes, length }) = raw.recv() {
        // The packet may have arrived before this function was called.
        let at_ns = if arrival >= start {
            wall.saturating_add(nanos(start, arrival))
        } else {
            wall.saturating_sub(nanos(arrival, start))
        };
        let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
        let frame = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
        if out.send(DroppedPacket { at_ns, reason: names.reason(site, reason), frame, length }).is_err() {
            return;
        }
    }
}

impl Drop for DropSender {
    fn drop(&mut self) {
        if let Err(error) = self.writer.finish() {
            *self.tally.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("--drops: {error}"));
        }
    }
}

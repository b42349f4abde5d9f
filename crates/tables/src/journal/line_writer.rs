//! A worker's end of a journal.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_graph::report::LINE_COUNTERS;
use forebay_measure::Counter;
use forebay_units::Ticks;
use rtrb::Producer;

use super::{Journal, Record};

/// The names of the counters of lines. The following constants are indices in this list.
pub const COUNTERS: [&str; 4] = LINE_COUNTERS;
/// The counter of records that were put into the ring.
pub(super) const WRITTEN: usize = 0;
/// The counter of records that were dropped because of the rate limit.
const OVER_RATE: usize = 1;
/// The counter of records that were dropped because the ring was full: records come faster than the thread writes
/// lines.
pub(super) const LOST: usize = 2;
/// The counter of lines that could not be written, for example because the disk is full. Their records are counted
/// under [`WRITTEN`], too. The journal's thread counts these lines.
pub(super) const UNWRITTEN: usize = 3;

/// Puts a worker's records into its ring.
pub struct LineWriter<R: Record> {
    /// The worker's end of its ring.
    ring: Producer<R>,
    journal: Arc<Journal<R>>,
    /// The counters ([`COUNTERS`]).
    counts: Arc<[Counter]>,
    /// The largest number of records per second, if there is a limit.
    rate: Option<u32>,
    /// The second of the last record on the worker's clock, and the number of records in this second. Only used with
    /// `rate`.
    second: (u64, u32),
    /// True if the worker runs in simulated time. Then tick 0 is the start of 1970.
    simulated: bool,
    /// True if the worker waits for the thread when the ring is full.
    waits: bool,
    /// The latest time of a record. If the system's clock is set back, the times of a line writer stay constant and do
    /// not decrease.
    last: u64,
}

impl<R: Record> LineWriter<R> {
    pub(super) fn new(
        ring: Producer<R>,
        journal: Arc<Journal<R>>,
        counts: Arc<[Counter]>,
        rate: Option<u32>,
        simulated: bool,
    ) -> Self {
        Self { ring, journal, counts, rate, second: (0, 0), simulated, waits: false, last: 0 }
    }

    /// Sets whether the worker waits for room in the ring. The default is that it does not wait.
    #[must_use]
    pub fn waiting(self, waits: bool) -> Self {
        Self { waits, ..self }
    }

    /// Returns the journal to which this line writer writes.
    pub fn journal(&self) -> &Journal<R> {
        &self.journal
    }

    /// Returns the time of `now` in nanoseconds after 1970. Simulated time starts in 1970.
    pub(super) fn stamp(&self, now: Ticks) -> u64 {
        let origin = if self.simulated { 0 } else { self.journal.shared.origin.load(Ordering::Relaxed) };
        origin.wrapping_add(self.journal.shared.frequency.nanos(now).0)
    }

    /// Puts the record that `make` returns into the ring. `make` gets the time of the record, in nanoseconds after
    /// 1970. If the ring is full or the rate limit is reached, the record is only counted, and `make` is not called.
    pub fn write(&mut self, now: Ticks, make: impl FnOnce(u64) -> R) {
        if let Some(rate) = self.rate {
            let second = self.journal.shared.frequency.seconds(now) as u64;
            if self.second.0 != second {
                self.second = (second, 0);
            }
            if self.second.1 >= rate {
                return self.count(OVER_RATE);
            }
            self.second.1 += 1;
        }
        // The ring is checked before the clock is read, so that a full ring costs little.
        if self.ring.is_full() && !self.has_waited() {
            return self.count(LOST);
        }
        self.last = self.stamp(now).max(self.last);
        let record = make(self.last);
        let pushed = self.ring.push(record).is_ok();
        self.count(if pushed { WRITTEN } else { LOST });
    }

    /// Waits for room if the worker may wait. Returns true if there is room.
    #[cold]
    fn has_waited(&self) -> bool {
        if self.waits {
            // Errors are reported at the end of the run.
            let _ = self.journal.flush();
        }
        !self.ring.is_full()
    }

    /// Adds one to the counter with an index.
    fn count(&self, which: usize) {
        self.counts.get(which).into_iter().for_each(|count| count.add(1));
    }
}

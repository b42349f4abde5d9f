//! A worker's way to a file of lines.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_graph::report::LINE_COUNTERS;
use forebay_measure::Counter;
use forebay_units::Ticks;
use rtrb::Producer;

use super::{Journal, Record};

/// What is counted of lines, in this order.
pub(crate) const COUNTERS: [&str; 4] = LINE_COUNTERS;
/// Put on their way to the file.
pub(super) const WRITTEN: usize = 0;
/// More than the rate allows.
const OVER_RATE: usize = 1;
/// Those that found the ring full: lines come faster than they are written.
pub(super) const LOST: usize = 2;
/// Of those on their way, what could not be written: the disk is full, say. The journal's thread counts it.
pub(super) const UNWRITTEN: usize = 3;

/// What a worker writes with.
pub(crate) struct Pen<R: Record> {
    ring: Producer<R>,
    journal: Arc<Journal<R>>,
    /// What is counted ([`COUNTERS`]).
    counts: Arc<[Counter]>,
    rate: Option<u32>,
    /// The second that is counted, and records in it.
    second: (u64, u32),
    simulated: bool,
    /// Whether the worker waits for room in the ring.
    waits: bool,
    /// The latest time of a record: when the system's clock is set back, a pen's times stand still and do not fall.
    last: u64,
}

impl<R: Record> Pen<R> {
    pub(super) fn new(
        ring: Producer<R>,
        journal: Arc<Journal<R>>,
        counts: Arc<[Counter]>,
        rate: Option<u32>,
        simulated: bool,
    ) -> Self {
        Self { ring, journal, counts, rate, second: (0, 0), simulated, waits: false, last: 0 }
    }

    /// The same pen, whose worker waits for room in the ring where it may.
    #[must_use]
    pub(crate) fn waiting(self, waits: bool) -> Self {
        Self { waits, ..self }
    }

    /// The file that it writes to.
    pub(crate) fn journal(&self) -> &Journal<R> {
        &self.journal
    }

    /// Nanoseconds from 1970 to `now`; where time is simulated it begins there.
    pub(super) fn stamp(&self, now: Ticks) -> u64 {
        let origin = if self.simulated { 0 } else { self.journal.shared.origin.load(Ordering::Relaxed) };
        origin.wrapping_add(self.journal.shared.frequency.nanos(now).0)
    }

    /// Puts the record on its way that `make` makes of a time, where there is room and it is not too much.
    pub(crate) fn write(&mut self, now: Ticks, make: impl FnOnce(u64) -> R) {
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
        // Looked at before the time is asked for: a full ring costs no more than this.
        if self.ring.is_full() && !self.has_waited() {
            return self.count(LOST);
        }
        self.last = self.stamp(now).max(self.last);
        let record = make(self.last);
        let pushed = self.ring.push(record).is_ok();
        self.count(if pushed { WRITTEN } else { LOST });
    }

    /// Waits for room where the worker may wait; whether there is any now.
    #[cold]
    fn has_waited(&self) -> bool {
        if self.waits {
            // The end of the run reports what could not be written.
            let _ = self.journal.flush();
        }
        !self.ring.is_full()
    }

    fn count(&self, which: usize) {
        self.counts.get(which).into_iter().for_each(|count| count.add(1));
    }
}

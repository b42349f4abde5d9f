//! Accounts a metered turn's instructions and core cycles to the parts of the turn, as [`stopwatch`](super::stopwatch)
//! accounts its ticks.
//!
//! Turns are metered in separate series, in which the clock does not time the parts of turns. A reading of the meter
//! takes longer than a reading of the clock, so metering would distort the times. The counts are those of the thread:
//! they do not increase while the machine runs something else. So, unlike long stretches, no span is ignored.

use forebay_measure::Clock;
use forebay_measure::clock::work;

use super::Worker;
use super::stopwatch::{EVERY, SERIES};
use crate::meter::Meter;
use crate::scheduler::Scheduler;
use crate::telemetry::MeterAccount;

/// The distance, in busy turns, from the last turn of a timed series to the first turn of the next metered series.
const TO_METER: u32 = 500;
/// The distance, in busy turns, from the last turn of a metered series to the first turn of the next timed series. With
/// this value, the distance between timed series is [`EVERY`], so a meter does not change which turns are timed.
const FROM_METER: u32 = EVERY - TO_METER - (SERIES - 1);

/// The number of parts of work in a run that measures the cost of a reading of the meter.
const PARTS: u64 = 200;
/// The number of tries. A try has one run without readings, and one run with a reading after each part. The least
/// counts of all tries are used.
const TRIES: usize = 5;

/// The part of a turn that a span belongs to.
#[derive(Clone, Copy)]
pub(super) enum Span {
    /// A call of this module, or its wake-up.
    Module(usize),
    /// This port gave packets.
    Receive(usize),
    /// This port took packets.
    Send(usize),
    /// Packets went to other workers or came from them.
    HandOver,
    /// All other work, for example scheduling, and polls of ports without packets.
    Residue,
}

/// A meter, and its last reading. Each array has the instructions and then the core cycles.
pub(super) struct Metering {
    meter: Box<dyn Meter>,
    /// Whether the meter has stopped working.
    has_failed: bool,
    /// True while counts are discarded ([`Stopwatch::warms_up`](super::stopwatch::Stopwatch)).
    warms_up: bool,
    /// The account for counts that are discarded.
    discarded: MeterAccount,
    /// The last reading.
    last: [u64; 2],
    /// The cost of reading the meter and noting the result.
    reading: [u64; 2],
    /// The counts of this turn's residue.
    residue: [u64; 2],
    /// All counts of this turn.
    all: [u64; 2],
}

impl Metering {
    /// Returns the distance, in busy turns, from the last turn of a series to the first turn of the next series, and
    /// whether the next series is metered. `was_metered`: the series that ended was metered.
    pub(super) fn next_series(metering: Option<&Self>, was_metered: bool) -> (u32, bool) {
        match metering {
            _ if was_metered => (FROM_METER, false),
            Some(metering) if !metering.has_failed => (TO_METER, true),
            _ => (EVERY, false),
        }
    }

    /// Reads the meter. After the first failure it returns `None` and does not read the meter again.
    #[inline]
    fn read(&mut self) -> Option<[u64; 2]> {
        if self.has_failed {
            return None;
        }
        let now = self.meter.read();
        self.has_failed = now.is_none();
        now
    }

    /// Returns the instructions and cycles since the last reading, without the cost of the reading. The result for a
    /// short span may be negative, so it wraps. `None` if the meter has failed.
    #[inline]
    fn span(&mut self) -> Option<[u64; 2]> {
        let now = self.read()?;
        let spent = less(less(now, self.last), self.reading);
        self.last = now;
        Some(spent)
    }
}

/// Returns the wrapping difference.
fn less(these: [u64; 2], those: [u64; 2]) -> [u64; 2] {
    [these[0].wrapping_sub(those[0]), these[1].wrapping_sub(those[1])]
}

fn add(sum: &mut [u64; 2], more: [u64; 2]) {
    *sum = [sum[0].wrapping_add(more[0]), sum[1].wrapping_add(more[1])];
}

impl MeterAccount {
    /// Adds the counts of a span on `packets` packets.
    fn note(&self, [instructions, cycles]: [u64; 2], packets: usize) {
        self.instructions.add(instructions);
        self.cycles.add(cycles);
        self.packets.add(packets as u64);
    }
}

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// Takes a meter, and measures the cost of its readings. Called on the thread that runs the worker. If the meter
    /// fails, the worker runs without a meter, and the telemetry reports the failure.
    pub(super) fn take_meter(&mut self, meter: Box<dyn Meter>) {
        let nothing = [0; 2];
        self.stopwatch.metering = Some(Box::new(Metering {
            meter,
            has_failed: false,
            warms_up: true,
            discarded: MeterAccount::default(),
            last: nothing,
            reading: nothing,
            residue: nothing,
            all: nothing,
        }));
        let reading = self.learn_reading();
        if let (Some(metering), Some(reading)) = (&mut self.stopwatch.metering, reading) {
            metering.reading = reading;
            return;
        }
        self.stopwatch.metering = None;
        if let Some(metered) = &self.telemetry.metered {
            metered.failed.set(1);
        }
    }

    /// Learns the cost of a reading: the difference, per reading, between work whose parts end with a reading, and the
    /// same work without readings. The cost of the clock's reading is learnt the same way. Readings without work
    /// between them would seem to cost too much, because a processor does other work during a reading. The result is
    /// the least of several tries. `None` if the meter fails.
    fn learn_reading(&mut self) -> Option<[u64; 2]> {
        let mut words = [1; 64];
        let mut least = [[u64::MAX; 2]; 2];
        for _ in 0..TRIES {
            for (reads, least) in least.iter_mut().enumerate() {
                let before = self.stopwatch.metering.as_mut()?.read()?;
                for _ in 0..PARTS {
                    work(&mut words);
                    if reads > 0 {
                        self.meter(Span::HandOver, 1);
                    }
                }
                let after = self.stopwatch.metering.as_mut()?.read()?;
                let spent = less(after, before);
                *least = [least[0].min(spent[0]), least[1].min(spent[1])];
            }
        }
        Some(std::array::from_fn(|which| (least[1][which].saturating_sub(least[0][which]) + PARTS / 2) / PARTS))
    }

    /// Begins a metered turn.
    #[inline(never)]
    pub(super) fn start_meter(&mut self) {
        let warms_up = self.stopwatch.warms_up;
        let Some((metering, metered)) = self.stopwatch.metering.as_mut().zip(self.telemetry.metered.as_ref()) else {
            return;
        };
        (metering.warms_up, metering.residue, metering.all) = (warms_up, [0; 2], [0; 2]);
        match metering.read() {
            Some(now) => metering.last = now,
            None => metered.failed.set(1),
        }
    }

    /// Ends a span on `packets` packets. The instructions and cycles since the last reading are accounted to this span.
    #[inline(never)]
    pub(super) fn meter(&mut self, span: Span, packets: usize) {
        let Some((metering, metered)) = self.stopwatch.metering.as_mut().zip(self.telemetry.metered.as_ref()) else {
            return;
        };
        let Some(spent) = metering.span() else { return metered.failed.set(1) };
        add(&mut metering.all, spent);
        let account = match span {
            _ if metering.warms_up => &metering.discarded,
            Span::Residue => return add(&mut metering.residue, spent),
            Span::Module(module) => &metered.modules[module],
            Span::Receive(port) => &metered.ports[port][0],
            Span::Send(port) => &metered.ports[port][1],
            Span::HandOver => &metered.handover,
        };
        account.note(spent, packets);
    }

    /// Ends a metered turn, and accounts its residue and its sum. `was_warm_up`: the turn's counts are discarded.
    pub(super) fn end_metered(&mut self, was_warm_up: bool) {
        let Some((metering, metered)) = self.stopwatch.metering.as_mut().zip(self.telemetry.metered.as_ref()) else {
            return;
        };
        if !was_warm_up && !metering.has_failed {
            metered.residue.note(metering.residue, 0);
            metered.all.note(metering.all, 0);
            metered.turns.add(1);
        }
    }
}

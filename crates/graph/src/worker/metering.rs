//! Where a metered turn's instructions and core cycles go: as its ticks in [`stopwatch`](super::stopwatch), part by part.
//!
//! Turns are metered in series of their own, which the clock does not time: a reading of the meter takes longer than
//! one of the clock, and whatever is timed stays what it is without. The counts are the thread's own, so that no span
//! is too long to be believed: the machine may be elsewhere, and nothing is counted.

use forebay_measure::Clock;
use forebay_measure::clock::work;

use super::Worker;
use super::stopwatch::{EVERY, SERIES};
use crate::meter::Meter;
use crate::scheduler::Scheduler;
use crate::telemetry::MeterAccount;

/// Busy turns from a series that is timed to the next one that is metered, the last of the one included.
const TO_METER: u32 = 500;
/// The same from there to the next that is timed: those are the same turns as without a meter.
const FROM_METER: u32 = EVERY - TO_METER - (SERIES - 1);

/// Parts of work between which a reading is made to learn what it takes, and how often that is tried.
const PARTS: u64 = 200;
const TRIES: usize = 5;

/// What a span of a metered turn was.
#[derive(Clone, Copy)]
pub(super) enum Span {
    Module(usize),
    Receive(usize),
    Send(usize),
    HandOver,
    Residue,
}

/// A meter, and how far it has been read.
pub(super) struct Metering {
    meter: Box<dyn Meter>,
    /// Whether it has nothing to tell any more.
    has_failed: bool,
    /// Whether what is counted does not count ([`Stopwatch::rehearses`](super::stopwatch::Stopwatch)).
    rehearses: bool,
    /// Where it goes then.
    rehearsal: MeterAccount,
    /// What it said last.
    last: [u64; 2],
    /// What reading it takes, with noting down what was read.
    reading: [u64; 2],
    /// What was counted in this turn: of nobody, and in all.
    residue: [u64; 2],
    all: [u64; 2],
}

impl Metering {
    /// Busy turns from a series that is over, and was metered or not, to the next; and whether that is to be metered.
    pub(super) fn next_series(metering: Option<&Self>, was_metered: bool) -> (u32, bool) {
        match metering {
            _ if was_metered => (FROM_METER, false),
            Some(metering) if !metering.has_failed => (TO_METER, true),
            _ => (EVERY, false),
        }
    }

    #[inline]
    fn read(&mut self) -> Option<[u64; 2]> {
        if self.has_failed {
            return None;
        }
        let now = self.meter.read();
        self.has_failed = now.is_none();
        now
    }

    /// Instructions and cycles since it was last read, less what that takes: short spans may be negative, as their ticks may.
    #[inline]
    fn span(&mut self) -> Option<[u64; 2]> {
        let now = self.read()?;
        let spent = less(less(now, self.last), self.reading);
        self.last = now;
        Some(spent)
    }
}

fn less(these: [u64; 2], those: [u64; 2]) -> [u64; 2] {
    [these[0].wrapping_sub(those[0]), these[1].wrapping_sub(those[1])]
}

fn add(sum: &mut [u64; 2], more: [u64; 2]) {
    *sum = [sum[0].wrapping_add(more[0]), sum[1].wrapping_add(more[1])];
}

impl MeterAccount {
    fn note(&self, [instructions, cycles]: [u64; 2], packets: usize) {
        self.instructions.add(instructions);
        self.cycles.add(cycles);
        self.packets.add(packets as u64);
    }
}

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// Is given a meter, on the thread that runs the worker.
    pub(super) fn take_meter(&mut self, meter: Box<dyn Meter>) {
        let nothing = [0; 2];
        self.stopwatch.metering = Some(Box::new(Metering {
            meter,
            has_failed: false,
            rehearses: true,
            rehearsal: MeterAccount::default(),
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
        if let Some(told) = &self.telemetry.metered {
            told.failed.set(1);
        }
    }

    /// By how much more work takes between the parts of which the meter is read, and noted down, as the clock's reading is found:
    /// readings in a row say too much, since a processor does other things meanwhile. The least of several tries.
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

    /// A metered turn begins.
    #[inline(never)]
    pub(super) fn start_meter(&mut self) {
        let rehearses = self.stopwatch.rehearses;
        let Some((metering, told)) = self.stopwatch.metering.as_mut().zip(self.telemetry.metered.as_ref()) else {
            return;
        };
        (metering.rehearses, metering.residue, metering.all) = (rehearses, [0; 2], [0; 2]);
        match metering.read() {
            Some(now) => metering.last = now,
            None => told.failed.set(1),
        }
    }

    /// What has passed of a metered turn was this, on so many packets.
    #[inline(never)]
    pub(super) fn meter(&mut self, span: Span, packets: usize) {
        let Some((metering, told)) = self.stopwatch.metering.as_mut().zip(self.telemetry.metered.as_ref()) else {
            return;
        };
        let Some(spent) = metering.span() else { return told.failed.set(1) };
        add(&mut metering.all, spent);
        let account = match span {
            _ if metering.rehearses => &metering.rehearsal,
            Span::Residue => return add(&mut metering.residue, spent),
            Span::Module(module) => &told.modules[module],
            Span::Receive(port) => &told.ports[port][0],
            Span::Send(port) => &told.ports[port][1],
            Span::HandOver => &told.handover,
        };
        account.note(spent, packets);
    }

    /// The metered turn is over; whether it does not count.
    pub(super) fn end_metered(&mut self, was_rehearsed: bool) {
        let Some((metering, told)) = self.stopwatch.metering.as_mut().zip(self.telemetry.metered.as_ref()) else {
            return;
        };
        if !was_rehearsed && !metering.has_failed {
            told.residue.note(metering.residue, 0);
            told.all.note(metering.all, 0);
            told.turns.add(1);
        }
    }
}

//! Adds up the ticks of each stretch of a timed turn. A stretch belongs to a module, a port, a hand-over to another
//! worker, or the residue: all other work, for example scheduling. The residue is measured like the others.
//! [`windows`](super::windows) finds the ticks that readings of the clock add. With a meter, other turns are metered
//! part by part ([`metering`](super::metering)).

use forebay_measure::Clock;
use forebay_protocol::snapshot::LONG;
use forebay_units::Ticks;

use super::Worker;
use super::metering::{Metering, Span};
use super::windows::Windows;
use crate::scheduler::Scheduler;
use crate::telemetry::{Account, LongTurns};

/// The distance, in busy turns, from the last turn of a timed series to the first turn of the next one. With the other
/// 31 turns of a series, the distance between the starts of two series is 1031, a prime number. With a power of 2, an
/// event in every 2ⁿ-th turn could always, or never, fall into a timed turn.
pub(super) const EVERY: u32 = 1000;
/// The number of busy turns in a timed series.
pub(super) const SERIES: u32 = 32;
/// The number of turns at the start of a series that are discarded. The timing code has not run for a while, and caches
/// and branch prediction must warm up.
pub(super) const WARM_UP: u32 = 8;
/// The number of turns that are timed when a worker begins. None of them is discarded. So the first times are known
/// after a few packets.
const AT_FIRST: u32 = 4;
/// A long stretch that takes more than this many times the mean is ignored: the machine ran something else.
const UNUSUAL: u64 = 16;
/// The mean of timed calls is used to find unusual stretches as soon as there are this many timed calls.
const KNOWN: u64 = 16;

/// Times the stretches of a turn.
pub(super) struct Stopwatch {
    /// The number of busy turns until the next series. 0 during a series.
    remaining: u32,
    /// The number of turns of this series that have been timed, or metered.
    timed: u32,
    /// True while times are discarded ([`WARM_UP`]).
    pub(super) warms_up: bool,
    /// The account for times that are discarded.
    discarded: Account,
    /// Whether the present turn, or the last one, is timed.
    pub(super) runs: bool,
    /// The last reading of the clock. Used if the cost of a reading is known
    /// ([`KNOWS_READING`](Worker::KNOWS_READING)).
    last: Ticks,
    /// The cost of a reading, in ticks, as measured before the run.
    reading: u64,
    /// The cost of a reading within turns, which is learnt during the run. Used if the cost is not known.
    pub(super) windows: Windows,
    /// The residue of this turn.
    pub(super) residue: Residue,
    /// The number of ticks from which on a turn or stretch is long.
    long: u64,
    /// The meter of instructions and core cycles, if there is one.
    pub(super) metering: Option<Box<Metering>>,
    /// Whether this series, or the next one, is metered instead of timed.
    is_metered: bool,
    /// Whether the worker parked after this turn. Then the span until the next turn is not the length of a turn.
    pub(super) parked: bool,
}

/// The stretches of a turn that belong to no module, port or hand-over. The fields have the names of the fields of the
/// [`Account`] to which they are added.
#[derive(Clone, Copy, Default)]
pub(super) struct Residue {
    /// The number of stretches.
    pub(super) packets: u64,
    /// The number of stretches that were not long. Long stretches are not timed.
    pub(super) calls: u64,
    /// The ticks of the stretches that were not long. The sum wraps, because it may be negative.
    pub(super) ticks: u64,
}

impl Stopwatch {
    pub(super) fn new(clock: &impl Clock) -> Self {
        Self {
            remaining: 0,
            timed: SERIES - AT_FIRST,
            warms_up: false,
            discarded: Account::default(),
            runs: false,
            last: Ticks::ZERO,
            reading: clock.reading().0,
            windows: Windows::new(clock.reading()),
            residue: Residue::default(),
            long: clock.frequency().ticks(LONG).0,
            metering: None,
            is_metered: false,
            parked: false,
        }
    }

    /// Returns whether the turn that begins is to be timed. Call it once a turn. `was_busy`: the last turn was busy.
    #[inline]
    pub(super) fn is_due(&mut self, was_busy: bool) -> bool {
        self.remaining = self.remaining.saturating_sub(u32::from(was_busy));
        self.remaining == 0
    }

    /// Returns whether a stretch is long. `ticks` does not contain the cost of a reading.
    #[inline]
    pub(super) fn is_long(&self, ticks: u64) -> bool {
        ticks.cast_signed() > self.long.cast_signed()
    }
}

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// Begins a timed or metered turn that starts at `now`. [`stop_watch`](Self::stop_watch) ends it when the next turn
    /// begins.
    pub(super) fn start_watch(&mut self, now: Ticks) {
        let stopwatch = &mut self.stopwatch;
        (stopwatch.runs, stopwatch.last, stopwatch.residue) = (true, now, Residue::default());
        if self.is_metered() {
            self.start_meter();
        } else if !Self::KNOWS_READING {
            let first = self.stopwatch.timed == 0;
            self.begin_windows(now, first);
        }
    }

    /// Returns whether this turn is metered instead of timed. With a scheduler that shares time, no turn is metered,
    /// because the scheduler needs the ticks of these turns.
    #[inline]
    fn is_metered(&self) -> bool {
        !S::SHARES && self.stopwatch.is_metered
    }

    /// Returns the ticks since the last reading of the clock, without the cost of a reading. If the clock moves in
    /// steps, the result for a short stretch may be negative, and only the sum of many stretches is right. So the value
    /// wraps, and counters wrap, too.
    #[inline]
    fn stretch(&mut self) -> u64 {
        let now = self.clock.now();
        let ticks = now.since(self.stopwatch.last).0.wrapping_sub(self.stopwatch.reading);
        self.stopwatch.last = now;
        ticks
    }

    /// Ends a stretch on `packets` packets. Returns its ticks if the cost of a reading is known
    /// ([`KNOWS_READING`](Self::KNOWS_READING)), otherwise 0.
    #[inline]
    fn time(&mut self, span: Span, packets: usize) -> Ticks {
        if self.is_metered() {
            self.meter(span, packets);
            return Ticks::ZERO;
        }
        if !Self::KNOWS_READING {
            self.pass_stretch(span, packets);
            return Ticks::ZERO;
        }
        let ticks = self.stretch();
        self.note_span(span, ticks, packets);
        Ticks(ticks.cast_signed().max(0).cast_unsigned())
    }

    /// Ends a stretch of the residue.
    #[inline]
    pub(super) fn time_residue(&mut self) {
        self.time(Span::Residue, 0);
    }

    /// Ends a module's call on `packets` packets. Returns its ticks if the cost of a reading is known, otherwise 0.
    #[inline]
    pub(super) fn time_module(&mut self, module: usize, packets: usize) -> Ticks {
        self.time(Span::Module(module), packets)
    }

    /// Ends a stretch in which a module was woken by its timer.
    pub(super) fn time_wake(&mut self, module: usize) {
        // The times of modules are those of busy turns only. In an idle turn, a wake-up is residue.
        self.time(if self.was_busy { Span::Module(module) } else { Span::Residue }, 0);
    }

    /// Ends a stretch in which a port gave `packets` packets. If there are none, the stretch is residue.
    #[inline]
    pub(super) fn time_receive(&mut self, port: usize, packets: usize) {
        self.time(if packets == 0 { Span::Residue } else { Span::Receive(port) }, packets);
    }

    /// Ends a stretch in which a port took `packets` packets. If there are none, the stretch is residue.
    #[inline]
    pub(super) fn time_send(&mut self, port: usize, packets: usize) {
        self.time(if packets == 0 { Span::Residue } else { Span::Send(port) }, packets);
    }

    /// Ends a stretch in which other workers gave or took `packets` packets. If there are none, the stretch is residue.
    #[inline]
    pub(super) fn time_handover(&mut self, packets: usize) {
        self.time(if packets == 0 { Span::Residue } else { Span::HandOver }, packets);
    }

    /// Returns the account of a stretch. `None` if the stretch is residue.
    #[inline]
    pub(super) fn account_of(&self, span: Span) -> Option<&Account> {
        Some(match span {
            Span::Module(module) => &self.counters[module].timed,
            Span::Receive(port) => &self.telemetry.ports[port].receiving,
            Span::Send(port) => &self.telemetry.ports[port].sending,
            Span::HandOver => &self.telemetry.worker.handover,
            Span::Residue => return None,
        })
    }

    /// Accounts a stretch's ticks. A stretch is ignored if it is so long that the machine must have run something else.
    /// If `packets` is 0, the stretch is the wake-up of a module, which does not count as a call.
    #[inline]
    pub(super) fn note_span(&mut self, span: Span, ticks: u64, packets: usize) {
        let stopwatch = &mut self.stopwatch;
        let is_long = stopwatch.is_long(ticks);
        if matches!(span, Span::Residue) {
            stopwatch.residue.packets += 1;
            if !is_long {
                stopwatch.residue.ticks = stopwatch.residue.ticks.wrapping_add(ticks);
                stopwatch.residue.calls += 1;
            }
            return;
        }
        let Some(account) = self.account_of(span) else { return };
        let account = if self.stopwatch.warms_up { &self.stopwatch.discarded } else { account };
        if is_long {
            std::hint::cold_path();
            let calls = account.calls.get();
            if packets == 0 || calls >= KNOWN && ticks > account.ticks.get() / calls * UNUSUAL {
                return;
            }
        }
        account.ticks.add(ticks);
        account.packets.add(packets as u64);
        account.calls.add(u64::from(packets > 0));
    }

    /// Ends the timed or metered turn, because the next turn begins at `now`. Decides whether the next turn is timed.
    /// Idle turns do not count for the series.
    #[cold]
    pub(super) fn stop_watch(&mut self, now: Ticks) {
        let was_metered = self.is_metered();
        if !Self::KNOWS_READING {
            self.resume_windows();
        }
        if was_metered {
            self.meter(Span::Residue, 0);
        } else if Self::KNOWS_READING {
            let ticks = now.since(self.stopwatch.last).0.wrapping_sub(self.stopwatch.reading);
            self.note_span(Span::Residue, ticks, 0);
        } else {
            self.end_windows(now);
        }
        let stopwatch = &mut self.stopwatch;
        stopwatch.runs = false;
        if !self.was_busy {
            return;
        }
        let was_warm_up = stopwatch.warms_up;
        stopwatch.timed += 1;
        if stopwatch.timed >= SERIES {
            stopwatch.timed = 0;
            (stopwatch.remaining, stopwatch.is_metered) =
                Metering::next_series(stopwatch.metering.as_deref(), stopwatch.is_metered);
        }
        let reads_each = Self::KNOWS_READING || stopwatch.windows.reads_each();
        let is_last = stopwatch.timed == 0;
        if is_last {
            stopwatch.windows.next_series();
        }
        // A scheduler that shares time decides itself which calls are timed, and needs all of these times.
        stopwatch.warms_up = stopwatch.timed < WARM_UP && !S::SHARES;
        if is_last && !Self::KNOWS_READING {
            self.leave_windows();
        }
        if was_metered {
            return self.end_metered(was_warm_up);
        }
        if was_warm_up || !reads_each {
            return;
        }
        let (worker, residue) = (&self.telemetry.worker, self.stopwatch.residue);
        worker.residue.ticks.add(residue.ticks);
        worker.residue.packets.add(residue.packets);
        worker.residue.calls.add(residue.calls);
        worker.timed_turns.add(1);
    }

    /// Counts the last turn, which took `span` ticks, if it was long. Turns without work count, too, except if the
    /// worker parked after them.
    #[inline]
    pub(super) fn look_at(&self, span: u64) {
        if span > self.stopwatch.long && !C::SIMULATED {
            std::hint::cold_path();
            if self.was_busy || !self.stopwatch.parked {
                self.telemetry.worker.long.add(LongTurns::class(span / self.stopwatch.long), span, self.was_busy);
            }
        }
    }
}

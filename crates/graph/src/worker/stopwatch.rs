//! Adds up the ticks of each stretch of a timed turn: of a module, a port, a hand-over to another worker, or the
//! residue, which is measured like the others. [`windows`](super::windows) finds what reading the clock adds. With a
//! meter, other turns are counted part by part ([`metering`](super::metering)).

use forebay_measure::Clock;
use forebay_protocol::snapshot::LONG;
use forebay_units::Ticks;

use super::Worker;
use super::metering::{Metering, Span};
use super::windows::Windows;
use crate::scheduler::Scheduler;
use crate::telemetry::{Account, LongTurns};

/// Busy turns from a series that is timed to the next, the last of the one included: with the other 31 of it they are a
/// prime number, 1031. What happens every 2ⁿ turns must not always, or never, fall into one.
pub(super) const EVERY: u32 = 1000;
/// Busy turns that are timed one after the other.
pub(super) const SERIES: u32 = 32;
/// The first of them, which do not count: the code that times them has not run for long, and the processor must find
/// its way in it.
pub(super) const REHEARSED: u32 = 8;
/// How many are timed when a worker begins, and all count: of a few packets at least something is known.
const AT_FIRST: u32 = 4;
/// A stretch that is long and takes so many times what is usual is no work.
const UNUSUAL: u64 = 16;
/// Calls after which it is known what is usual.
const KNOWN: u64 = 16;

/// Takes the times of a turn.
pub(super) struct Stopwatch {
    /// Busy turns until one is timed.
    left: u32,
    /// How many of this series have been timed.
    timed: u32,
    /// Whether what is timed does not count ([`REHEARSED`]).
    pub(super) rehearses: bool,
    /// Where it goes then.
    rehearsal: Account,
    /// Whether the present turn, or the last, is timed.
    pub(super) runs: bool,
    /// When the clock was last read, where what reading it takes is known.
    last: Ticks,
    /// The cost of a reading.
    reading: u64,
    /// The cost of a reading within turns.
    pub(super) windows: Windows,
    /// The residue of this turn.
    pub(super) residue: Residue,
    /// What is long.
    long: u64,
    /// What counts instructions and core cycles, if anything does.
    pub(super) metering: Option<Box<Metering>>,
    /// Whether this series, or the next, is metered and not timed.
    is_metered: bool,
    /// Whether the worker sleeps until somebody wakes it, so that a turn's length says nothing.
    pub(super) sleeps: bool,
}

/// Stretches of a turn that are nobody's, those of them that were timed, and their ticks.
#[derive(Clone, Copy, Default)]
pub(super) struct Residue {
    pub(super) packets: u64,
    pub(super) calls: u64,
    pub(super) ticks: u64,
}

impl Stopwatch {
    pub(super) fn new(clock: &impl Clock) -> Self {
        Self {
            left: 0,
            timed: SERIES - AT_FIRST,
            rehearses: false,
            rehearsal: Account::default(),
            runs: false,
            last: Ticks::ZERO,
            reading: clock.reading().0,
            windows: Windows::new(clock.reading()),
            residue: Residue::default(),
            long: clock.frequency().ticks(LONG).0,
            metering: None,
            is_metered: false,
            sleeps: false,
        }
    }

    /// Whether the turn that begins is to be timed, the last having been busy or not.
    #[inline]
    pub(super) fn is_due(&mut self, was_busy: bool) -> bool {
        self.left = self.left.saturating_sub(u32::from(was_busy));
        self.left == 0
    }

    /// Whether so many ticks, less a reading's, are many.
    #[inline]
    pub(super) fn is_long(&self, ticks: u64) -> bool {
        ticks.cast_signed() > self.long.cast_signed()
    }
}

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// A timed turn begins.
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

    /// Whether this turn, being one of those that are timed, is metered instead. Who shares time out needs the ticks of each.
    #[inline]
    fn is_metered(&self) -> bool {
        !S::SHARES && self.stopwatch.is_metered
    }

    /// Ticks since the clock was last read for this, less what reading it takes. A counter that moves in steps may make a
    /// short one negative, which only their sum puts right: so it is, wrapping, and counters wrap too.
    #[inline]
    fn stretch(&mut self) -> u64 {
        let now = self.clock.now();
        let ticks = now.since(self.stopwatch.last).0.wrapping_sub(self.stopwatch.reading);
        self.stopwatch.last = now;
        ticks
    }

    /// Ends a stretch on so many packets. Returns its ticks where each stretch is timed.
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

    /// Ends a module's call on so many packets. Returns its ticks where each call is timed.
    #[inline]
    pub(super) fn time_module(&mut self, module: usize, packets: usize) -> Ticks {
        self.time(Span::Module(module), packets)
    }

    /// What has passed was a module's, woken by its timer.
    pub(super) fn time_wake(&mut self, module: usize) {
        // As all that is timed: of busy turns.
        self.time(if self.was_busy { Span::Module(module) } else { Span::Residue }, 0);
    }

    /// What has passed was a port's, which gave so many packets; nobody's, if none.
    #[inline]
    pub(super) fn time_receive(&mut self, port: usize, packets: usize) {
        self.time(if packets == 0 { Span::Residue } else { Span::Receive(port) }, packets);
    }

    /// What has passed was a port's, which took so many packets.
    #[inline]
    pub(super) fn time_send(&mut self, port: usize, packets: usize) {
        self.time(Span::Send(port), packets);
    }

    /// What has passed was giving so many packets to other workers, or taking them; nobody's, if none.
    #[inline]
    pub(super) fn time_handover(&mut self, packets: usize) {
        self.time(if packets == 0 { Span::Residue } else { Span::HandOver }, packets);
    }

    /// Where what was timed of this goes; nowhere, where it is nobody's.
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

    /// Notes what a stretch took, on so many packets: with none of them, a module was woken, which is no call.
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
        let account = if self.stopwatch.rehearses { &self.stopwatch.rehearsal } else { account };
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

    /// The timed turn is over, and the next begins.
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
        let rehearsed = stopwatch.rehearses;
        stopwatch.timed += 1;
        if stopwatch.timed >= SERIES {
            stopwatch.timed = 0;
            (stopwatch.left, stopwatch.is_metered) =
                Metering::next_series(stopwatch.metering.as_deref(), stopwatch.is_metered);
        }
        let tells = Self::KNOWS_READING || stopwatch.windows.tells();
        let is_last = stopwatch.timed == 0;
        if is_last {
            stopwatch.windows.next_series();
        }
        // Who shares time out says when calls are timed, and needs them all.
        stopwatch.rehearses = stopwatch.timed < REHEARSED && !S::SHARES;
        if is_last && !Self::KNOWS_READING {
            self.leave_windows();
        }
        if was_metered {
            return self.end_metered(rehearsed);
        }
        if rehearsed || !tells {
            return;
        }
        let (worker, residue) = (&self.telemetry.worker, self.stopwatch.residue);
        worker.residue.ticks.add(residue.ticks);
        worker.residue.packets.add(residue.packets);
        worker.residue.calls.add(residue.calls);
        worker.timed_turns.add(1);
    }

    /// A turn has taken `span`, reading ports and calling modules or finding nothing.
    #[inline]
    pub(super) fn look_at(&self, span: u64) {
        if span > self.stopwatch.long && !C::SIMULATED {
            std::hint::cold_path();
            if self.was_busy || !self.stopwatch.sleeps {
                self.telemetry.worker.long.add(LongTurns::class(span / self.stopwatch.long), span, self.was_busy);
            }
        }
    }
}

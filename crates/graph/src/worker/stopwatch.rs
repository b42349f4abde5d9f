//! Where a timed turn's ticks go. Each stretch between two readings of the clock is a module's, a port's, the hand-over's or
//! the residue, which is so measured by itself and is no difference; what reading the clock takes is left out of all. Where there
//! is a meter, other turns are metered in the same way ([`metering`](super::metering)).

use forebay_measure::Clock;
use forebay_packet::Ticks;

use super::Worker;
use super::metering::{Metering, Span};
use crate::scheduler::Scheduler;
use crate::telemetry::{Account, LONG, LongTurns};

/// Busy turns from a stretch that is timed to the next, the last of the one included: with the other three of it they are a
/// prime number, 131. What happens every 2ⁿ turns must not always, or never, fall into one.
pub(super) const EVERY: u32 = 128;
/// Busy turns that are timed one after the other.
pub(super) const STRETCH: u32 = 4;
/// A stretch that is long and takes so many times what is usual is no work.
const UNUSUAL: u64 = 16;
/// Calls after which it is known what is usual.
const KNOWN: u64 = 16;

/// Takes the times of a turn.
pub(super) struct Stopwatch {
    /// Busy turns until one is timed.
    left: u32,
    /// How many of this stretch have been timed.
    timed: u32,
    /// Whether what is timed does not count: the code that does it has not run for long, and the processor must find its
    /// way in it first.
    pub(super) rehearses: bool,
    /// Where it goes then.
    rehearsal: Account,
    /// Whether the present turn, or the last, is timed.
    pub(super) runs: bool,
    /// When the clock was last read.
    last: Ticks,
    /// What reading it takes.
    reading: u64,
    /// Ticks of this turn that are nobody's.
    residue: u64,
    /// What is long.
    long: u64,
    /// What counts instructions and core cycles, if anything does.
    pub(super) metering: Option<Box<Metering>>,
    /// Whether this stretch, or the next, is metered and not timed.
    is_metered: bool,
    /// Whether the worker sleeps until somebody wakes it, so that a turn's length says nothing.
    pub(super) sleeps: bool,
}

impl Stopwatch {
    pub(super) fn new(clock: &impl Clock) -> Self {
        Self {
            left: 0,
            timed: 0,
            rehearses: false,
            rehearsal: Account::default(),
            runs: false,
            last: Ticks::ZERO,
            reading: clock.reading().0,
            residue: 0,
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
    fn is_long(&self, ticks: u64) -> bool {
        ticks.cast_signed() > self.long.cast_signed()
    }
}

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// A timed turn begins.
    pub(super) fn start_watch(&mut self, now: Ticks) {
        let stopwatch = &mut self.stopwatch;
        (stopwatch.runs, stopwatch.last, stopwatch.residue) = (true, now, 0);
        if self.is_metered() {
            self.start_meter();
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

    /// What has passed was nobody's.
    #[inline]
    pub(super) fn time_residue(&mut self) {
        if self.is_metered() {
            return self.meter(Span::Residue, 0);
        }
        let ticks = self.stretch();
        if !self.stopwatch.is_long(ticks) {
            self.stopwatch.residue = self.stopwatch.residue.wrapping_add(ticks);
        }
    }

    /// What has passed was a module's, on so many packets. Says what it took; of a metered turn nobody asks.
    #[inline]
    pub(super) fn time_module(&mut self, module: usize, packets: usize) -> Ticks {
        if self.is_metered() {
            self.meter(Span::Module(module), packets);
            return Ticks::ZERO;
        }
        let ticks = self.stretch();
        self.note(&self.counters[module].timed, ticks, packets);
        Ticks(ticks.cast_signed().max(0).cast_unsigned())
    }

    /// What has passed was a module's, woken by its timer.
    pub(super) fn time_wake(&mut self, module: usize) {
        if self.is_metered() {
            return self.meter_wake(module);
        }
        let ticks = self.stretch();
        // As all that is timed: of busy turns, not rehearsed, and with the machine there.
        if self.was_busy && !self.stopwatch.rehearses && !self.stopwatch.is_long(ticks) {
            self.counters[module].timed.ticks.add(ticks);
        }
    }

    /// What has passed was a port's, which gave so many packets; nobody's, if none.
    #[inline]
    pub(super) fn time_receive(&mut self, port: usize, packets: usize) {
        if packets == 0 {
            return self.time_residue();
        }
        if self.is_metered() {
            return self.meter(Span::Receive(port), packets);
        }
        let ticks = self.stretch();
        self.note(&self.telemetry.ports[port].receiving, ticks, packets);
    }

    /// What has passed was a port's, which took so many packets.
    #[inline]
    pub(super) fn time_send(&mut self, port: usize, packets: usize) {
        if self.is_metered() {
            return self.meter(Span::Send(port), packets);
        }
        let ticks = self.stretch();
        self.note(&self.telemetry.ports[port].sending, ticks, packets);
    }

    /// What has passed was giving so many packets to other workers, or taking them; nobody's, if none.
    #[inline]
    pub(super) fn time_handover(&mut self, packets: usize) {
        if packets == 0 {
            return self.time_residue();
        }
        if self.is_metered() {
            return self.meter(Span::HandOver, packets);
        }
        let ticks = self.stretch();
        self.note(&self.telemetry.worker.handover, ticks, packets);
    }

    #[inline]
    fn note(&self, account: &Account, ticks: u64, packets: usize) {
        let account = if self.stopwatch.rehearses { &self.stopwatch.rehearsal } else { account };
        if self.stopwatch.is_long(ticks) {
            std::hint::cold_path();
            let calls = account.calls.get();
            if calls >= KNOWN && ticks > account.ticks.get() / calls * UNUSUAL {
                return;
            }
        }
        account.ticks.add(ticks);
        account.packets.add(packets as u64);
        account.calls.add(1);
    }

    /// The timed turn is over, and the next begins.
    #[cold]
    pub(super) fn stop_watch(&mut self, now: Ticks) {
        let was_metered = self.is_metered();
        if was_metered {
            self.meter(Span::Residue, 0);
        }
        let stopwatch = &mut self.stopwatch;
        stopwatch.runs = false;
        if !self.was_busy {
            return;
        }
        let rehearsed = stopwatch.rehearses;
        stopwatch.timed += 1;
        if stopwatch.timed >= STRETCH {
            stopwatch.timed = 0;
            (stopwatch.left, stopwatch.is_metered) =
                Metering::next_stretch(stopwatch.metering.as_deref(), stopwatch.is_metered);
        }
        // Who shares time out says when calls are timed, and needs them all.
        stopwatch.rehearses = stopwatch.timed == 0 && !S::SHARES;
        if was_metered {
            return self.end_metered(rehearsed);
        }
        if rehearsed {
            return;
        }
        let ticks = now.since(stopwatch.last).0.wrapping_sub(stopwatch.reading);
        let worker = &self.telemetry.worker;
        worker.residue.add(stopwatch.residue);
        if !stopwatch.is_long(ticks) {
            worker.residue.add(ticks);
        }
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

//! How many ticks a reading of the clock adds to what it measures, learnt while the worker runs.
//!
//! A reading takes time, and it keeps the processor from beginning what follows. How much depends on the code around
//! it, so it cannot be learnt before the run. A timed turn is a row of stretches, and turns are timed in series:
//!
//! - in one series the clock is read after every stretch, in the next after every second one. Two stretches with a
//!   reading between them take longer than two without: by so much a reading lengthens the stretch after it;
//! - the timer's own code takes ticks at each stretch, read or not. They are found from the untimed turns between two
//!   series, and each stretch has the same.
//!
//! Both are taken off each stretch. Which stretches are read does not change within a series: the processor's branch
//! prediction would fail where it changes.

use forebay_measure::{Clock, Counter};
use forebay_units::Ticks;

use super::Worker;
use super::metering::Span;
use crate::scheduler::Scheduler;
use crate::telemetry::Pairs;

/// Pairs of one kind after which their mean is known.
const KNOWN: u64 = 16;
/// Pairs that take so many times their mean say nothing of a reading: there was an interrupt.
const UNUSUAL: u64 = 4;
/// Longer ones say little of it, and neither does one by more than so much.
const SHORT: u64 = 8_192;
const MUCH: f64 = 1_024.0;
/// The cost that was known before the run counts as so many pairs, and all pairs seen count as no more than `MOST`.
const PRIOR: f64 = 16.0;
const MOST: f64 = 65_536.0;
/// The first guess, that passing a stretch takes nothing, counts as so many stretches.
const PASSED: f64 = 256.0;
/// All stretches seen count as no more than so many.
const MOST_PASSED: f64 = 1_048_576.0;
/// Ticks that are still to be taken off are spread over so many stretches.
const OVER: f64 = 4_096.0;
/// The least and the most ticks that passing a stretch is believed to take.
const PASSING: [f64; 2] = [-32.0, 32.0];
/// Untimed turns after which their mean is known.
const UNTIMED: u64 = 64;

/// Of which stretches the clock is read in a series of turns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// After each.
    Each,
    /// After each second one, from the second of the turn on, or from the first.
    Second,
    First,
}

/// Ticks that a reading adds to the stretch after it.
struct Adds {
    ticks: f64,
    seen: f64,
    /// Ticks not yet taken off, as ticks are whole numbers.
    owed: f64,
}

impl Adds {
    fn new(ticks: Ticks) -> Self {
        Self { ticks: ticks.0 as f64, seen: PRIOR, owed: 0.0 }
    }

    fn learn(&mut self, ticks: f64) {
        self.seen = (self.seen + 1.0).min(MOST);
        self.ticks += (ticks - self.ticks) / self.seen;
    }

    /// Returns the ticks to take off a stretch, the passing of which takes `passing` besides.
    fn off(&mut self, passing: f64) -> u64 {
        let all = (self.ticks + passing).max(0.0) + self.owed;
        self.owed = all - all.floor();
        all as u64
    }
}

/// The cost of passing the end of a stretch in a timed turn, whether the clock is read there or not.
struct Passing {
    /// Ticks by which turns with all readings were longer than untimed ones, without those that readings add.
    more: f64,
    /// Stretches in these turns.
    stretches: f64,
    /// Ticks still to be taken off: an earlier estimate was too low. Below 0, it was too high.
    owed: f64,
}

impl Passing {
    fn ticks(&self) -> f64 {
        (self.more / self.stretches + self.owed / OVER).clamp(PASSING[0], PASSING[1])
    }

    fn learn(&mut self, more: f64, stretches: u32) {
        let owed = self.owed + more - self.ticks() * f64::from(stretches);
        self.owed = owed.clamp(PASSING[0] * OVER, PASSING[1] * OVER);
        self.more += more;
        self.stretches += f64::from(stretches);
        if self.stretches > MOST_PASSED {
            self.more /= 2.0;
            self.stretches /= 2.0;
        }
    }
}

/// The present turn, where it is timed.
#[derive(Clone, Copy, Default)]
struct Turn {
    /// When it began, moved on by the ticks of the timer's own work between two turns.
    began: Ticks,
    stretches: u32,
    /// Ticks that its readings have added, by the estimates.
    added: f64,
}

/// How the present series of turns is read.
pub(super) struct Windows {
    reads: Reads,
    /// Series until now.
    series: u32,
    last: Ticks,
    /// Whether the next stretch is the second of a pair.
    second: bool,
    /// The stretch before the present one, in the same turn; what it took, where it was read.
    before: Option<(Span, u64)>,
    /// Ticks that a reading adds to a part, and to the residue.
    part: Adds,
    nobody: Adds,
    passing: Passing,
    turn: Turn,
    /// When the timer's own work at the end of the last timed turn began.
    resumed: Ticks,
    /// Ticks and number of the busy turns that were not long, at the end of the last series.
    since: [u64; 2],
    /// The mean ticks of such turns between the last series and this one.
    untimed: Option<f64>,
}

impl Windows {
    pub(super) fn new(reading: Ticks) -> Self {
        Self {
            reads: Reads::Each,
            series: 0,
            last: Ticks::ZERO,
            second: false,
            before: None,
            part: Adds::new(reading),
            nobody: Adds::new(reading),
            passing: Passing { more: 0.0, stretches: PASSED, owed: 0.0 },
            turn: Turn::default(),
            resumed: Ticks::ZERO,
            since: [0; 2],
            untimed: None,
        }
    }

    /// Another series begins.
    pub(super) fn next_series(&mut self) {
        self.series = self.series.wrapping_add(1);
        self.reads = [Reads::Each, Reads::Second, Reads::Each, Reads::First][self.series as usize % 4];
    }

    /// Whether parts are told of this turn.
    pub(super) fn tells(&self) -> bool {
        self.reads == Reads::Each
    }
}

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// Whether what a reading takes is known: simulated clocks take nothing, and where time is shared out each call
    /// must be timed.
    pub(super) const KNOWS_READING: bool = C::SIMULATED || S::SHARES;

    /// Begins a timed turn, the start of which is `now`. `first`: it is the first of its series.
    pub(super) fn begin_windows(&mut self, now: Ticks, first: bool) {
        if first {
            let ([ticks, turns], since) = (self.usual_turns(), self.stopwatch.windows.since);
            let [ticks, turns] = [ticks.wrapping_sub(since[0]), turns.wrapping_sub(since[1])];
            self.stopwatch.windows.untimed = (turns >= UNTIMED).then(|| ticks as f64 / turns as f64);
        }
        let resumed = self.stopwatch.windows.resumed;
        let resumed = if resumed >= now { resumed } else { self.clock.now() };
        let ready = self.clock.now();
        let windows = &mut self.stopwatch.windows;
        // The first of these readings has cost something before its value was taken.
        let began = Ticks(now.0 + ready.since(resumed).0 + windows.nobody.ticks.max(0.0) as u64);
        windows.turn = Turn { began, ..Turn::default() };
        (windows.last, windows.before, windows.second) = (began, None, windows.reads == Reads::First);
    }

    /// Begins the timer's own work at the end of a timed turn.
    pub(super) fn resume_windows(&mut self) {
        self.stopwatch.windows.resumed = self.clock.now();
    }

    /// Ends a series.
    pub(super) fn leave_windows(&mut self) {
        self.stopwatch.windows.since = self.usual_turns();
    }

    /// Ticks and number of all busy turns that were not long.
    fn usual_turns(&self) -> [u64; 2] {
        let worker = &self.telemetry.worker;
        let all = |of: &[Counter]| of.iter().map(Counter::get).sum::<u64>();
        [
            worker.busy.get().wrapping_sub(all(&worker.long.busy)),
            worker.busy_turns.get().wrapping_sub(all(&worker.long.busy_turns)),
        ]
    }

    /// A stretch of the turn is over, and was this.
    #[inline]
    pub(super) fn pass_stretch(&mut self, span: Span, packets: usize) {
        let windows = &mut self.stopwatch.windows;
        if windows.tells() {
            let now = self.clock.now();
            return self.end_stretch(now, span, packets);
        }
        windows.second = !windows.second;
        if windows.second {
            windows.before = Some((span, 0));
            return;
        }
        let now = self.clock.now();
        self.end_pair(now, span);
    }

    /// A turn ends at `now`.
    pub(super) fn end_windows(&mut self, now: Ticks) {
        self.note_timing(now);
        if self.stopwatch.windows.tells() {
            self.end_stretch(now, Span::Residue, 0);
            self.learn_passing(now);
        } else if self.stopwatch.windows.second {
            self.end_pair(now, Span::Residue);
        }
    }

    /// Notes what timing has added to a turn that ends at `now`.
    fn note_timing(&mut self, now: Ticks) {
        let span = now.since(self.began).0;
        if let Some(untimed) = self.stopwatch.windows.untimed
            && self.was_busy
            && !self.stopwatch.is_long(span)
        {
            self.telemetry.worker.timing.add(span.wrapping_sub(untimed as u64));
        }
    }

    /// Learns what passing a stretch takes from a turn that ends at `now`.
    fn learn_passing(&mut self, now: Ticks) {
        let Turn { began, stretches, added } = self.stopwatch.windows.turn;
        let took = now.since(began).0;
        if let Some(untimed) = self.stopwatch.windows.untimed
            && self.was_busy
            && !self.stopwatch.rehearses
            && !self.stopwatch.is_long(took)
        {
            self.stopwatch.windows.passing.learn(took as f64 - added - untimed, stretches);
        }
    }

    fn end_stretch(&mut self, now: Ticks, span: Span, packets: usize) {
        let windows = &mut self.stopwatch.windows;
        let ticks = now.since(windows.last).0;
        windows.last = now;
        let before = windows.before.replace((span, ticks));
        let adds = if matches!(span, Span::Residue) { &mut windows.nobody } else { &mut windows.part };
        windows.turn.stretches += 1;
        windows.turn.added += adds.ticks.max(0.0);
        let net = ticks.wrapping_sub(adds.off(windows.passing.ticks()));
        self.note_span(span, net, packets);
        if let Some((first, took)) = before {
            self.learn_reading_from(first, span, took + ticks, true);
        }
    }

    fn end_pair(&mut self, now: Ticks, span: Span) {
        let windows = &mut self.stopwatch.windows;
        let ticks = now.since(windows.last).0;
        windows.last = now;
        if let Some((first, _)) = windows.before.take() {
            self.learn_reading_from(first, span, ticks, false);
        }
    }

    /// Learns what a reading adds from two stretches, one of which says what kind of pair it is. What is nobody's is of
    /// several kinds and says little.
    fn learn_reading_from(&mut self, first: Span, second: Span, ticks: u64, split: bool) {
        if self.stopwatch.rehearses {
            return;
        }
        let (by, nobody) = match (first, second) {
            (Span::Residue, Span::Residue) => return,
            (first, Span::Residue) => (first, true),
            (_, second) => (second, false),
        };
        let Some(account) = self.account_of(by) else { return };
        let pairs = if nobody { &account.then_nobody } else { &account.after_any };
        let Some(seen) = pairs.note(ticks, split) else { return };
        let windows = &mut self.stopwatch.windows;
        if nobody { windows.nobody.learn(seen) } else { windows.part.learn(seen) }
    }
}

impl Pairs {
    /// Notes two stretches, with a reading between them or without. What that reading took, by the mean of the others.
    fn note(&self, ticks: u64, split: bool) -> Option<f64> {
        if ticks > SHORT {
            return None;
        }
        let (same, other) = if split { (&self.split, &self.whole) } else { (&self.whole, &self.split) };
        let mean = |of: &[Counter; 2]| {
            let [all, times] = [of[0].get(), of[1].get()];
            (times >= KNOWN).then(|| all as f64 / times as f64)
        };
        if let Some(mean) = mean(&self.whole)
            && ticks as f64 > mean * UNUSUAL as f64
        {
            return None;
        }
        same[0].add(ticks);
        same[1].add(1);
        let other = mean(other)?;
        let seen = if split { ticks as f64 - other } else { other - ticks as f64 };
        Some(seen.clamp(-MUCH, MUCH))
    }
}

//! Learns, while the worker runs, how many ticks a reading of the clock adds to the stretches that it measures.
//!
//! A reading takes time, and it keeps the processor from starting the code that follows. This cost depends on the code
//! around the reading, so it cannot be learnt before the run. A timed turn is a sequence of stretches, and turns are
//! timed in series:
//!
//! - In one series the clock is read after every stretch, in the next one after every second stretch. Two stretches
//!   with a reading between them take longer than two without. The difference is the time that a reading adds to the
//!   stretch after it.
//! - The timer's own code takes ticks at the end of each stretch, whether the clock is read there or not. These ticks
//!   are learnt from a comparison with the untimed turns between two series. They are assumed to be the same for each
//!   stretch.
//!
//! Both costs are subtracted from each stretch. Within a series, the clock is read after the same stretches in each
//! turn, because a change would defeat the processor's branch prediction.

use forebay_measure::{Clock, Counter};
use forebay_units::Ticks;

use super::Worker;
use super::metering::Span;
use crate::scheduler::Scheduler;
use crate::telemetry::Pairs;

/// The mean of the pairs of one kind is used as soon as there are this many pairs of this kind.
const KNOWN: u64 = 16;
/// A pair is ignored if it takes more than this many times the mean of the pairs without a reading between their
/// stretches. The pair was interrupted.
const UNUSUAL: u64 = 4;
/// A pair is ignored if it takes more than this number of ticks. The ticks of long pairs vary by more than the cost of
/// a reading.
const SHORT: u64 = 8_192;
/// The cost of a reading that is learnt from one pair is limited to this number of ticks, positive or negative.
const MUCH: f64 = 1_024.0;
/// The weight, in pairs, of the cost of a reading that was measured before the run.
const PRIOR: f64 = 16.0;
/// The largest weight, in pairs, of the present estimate of the cost of a reading.
const MOST: f64 = 65_536.0;
/// The first estimate is that passing the end of a stretch takes no ticks. This is its weight, in stretches.
const PASSED: f64 = 256.0;
/// The largest weight, in stretches, of all stretches seen. When it is exceeded, the weight is halved.
const MOST_PASSED: f64 = 1_048_576.0;
/// Ticks that remain to be subtracted are spread over this number of stretches.
const OVER: f64 = 4_096.0;
/// The range of plausible ticks for passing a stretch.
const PASSING: [f64; 2] = [-32.0, 32.0];
/// The mean of the untimed turns between two series is used if there are at least this many.
const UNTIMED: u64 = 64;

/// The stretches after which the clock is read in a series of turns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// Each stretch.
    Each,
    /// The second stretch of the turn, the fourth, and so on.
    Second,
    /// The first stretch of the turn, the third, and so on.
    First,
}

/// The ticks that a reading adds to the stretch after it.
struct ReadingCost {
    /// The estimate.
    ticks: f64,
    /// The weight of the estimate, in pairs.
    seen: f64,
    /// The fraction of a tick that has not been subtracted yet, because only whole ticks are subtracted.
    owed: f64,
}

impl ReadingCost {
    fn new(ticks: Ticks) -> Self {
        Self { ticks: ticks.0 as f64, seen: PRIOR, owed: 0.0 }
    }

    /// Learns from one pair of stretches, from which a cost of `ticks` was computed.
    fn learn(&mut self, ticks: f64) {
        self.seen = (self.seen + 1.0).min(MOST);
        self.ticks += (ticks - self.ticks) / self.seen;
    }

    /// Returns the ticks to subtract from a stretch: the cost of the reading and `passing`, the ticks for passing the
    /// stretch.
    fn off(&mut self, passing: f64) -> u64 {
        let all = (self.ticks + passing).max(0.0) + self.owed;
        self.owed = all - all.floor();
        all as u64
    }
}

/// The cost of passing the end of a stretch in a timed turn, whether the clock is read there or not.
struct Passing {
    /// The sum of the ticks by which turns with a reading after each stretch were longer than untimed turns, without
    /// the ticks that readings add.
    more: f64,
    /// The number of stretches in these turns.
    stretches: f64,
    /// The ticks that remain to be subtracted because an earlier estimate was too low. Negative if it was too high.
    owed: f64,
}

impl Passing {
    /// Returns the ticks to subtract for passing a stretch: the estimate, and a part of the ticks owed.
    fn ticks(&self) -> f64 {
        (self.more / self.stretches + self.owed / OVER).clamp(PASSING[0], PASSING[1])
    }

    /// Learns from a turn of `stretches` stretches. `more` are the ticks by which it was longer than an untimed turn,
    /// without the ticks that readings added.
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

/// The present turn, if it is timed.
#[derive(Clone, Copy, Default)]
struct Turn {
    /// When the turn began, plus the ticks of the timer's own work between two turns.
    began: Ticks,
    /// The number of stretches so far.
    stretches: u32,
    /// The ticks that the readings in this turn have added, by the estimates.
    added: f64,
}

/// The stretches after which the present series of turns reads the clock, and the estimates.
pub(super) struct Windows {
    reads: Reads,
    /// The number of series so far.
    series: u32,
    /// The last reading of the clock.
    last: Ticks,
    /// Whether the next stretch is the second of a pair.
    second: bool,
    /// The previous stretch of the same turn, and its ticks. The ticks are 0 if the clock was not read after this
    /// stretch.
    before: Option<(Span, u64)>,
    /// The ticks that a reading adds to a stretch of a module, a port or a hand-over.
    part: ReadingCost,
    /// The ticks that a reading adds to a stretch of the residue.
    residue: ReadingCost,
    passing: Passing,
    turn: Turn,
    /// When the timer's own work at the end of the last timed turn began.
    resumed: Ticks,
    /// The ticks and the number of all busy turns that were not long, at the end of the last series.
    since: [u64; 2],
    /// The mean ticks of the busy turns between the last series and this one, without long turns. `None` if there were
    /// too few of these turns.
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
            part: ReadingCost::new(reading),
            residue: ReadingCost::new(reading),
            passing: Passing { more: 0.0, stretches: PASSED, owed: 0.0 },
            turn: Turn::default(),
            resumed: Ticks::ZERO,
            since: [0; 2],
            untimed: None,
        }
    }

    /// Begins another series.
    pub(super) fn next_series(&mut self) {
        self.series = self.series.wrapping_add(1);
        self.reads = [Reads::Each, Reads::Second, Reads::Each, Reads::First][self.series as usize % 4];
    }

    /// Returns whether the clock is read after each stretch. Only then are the parts of this turn accounted.
    pub(super) fn reads_each(&self) -> bool {
        self.reads == Reads::Each
    }
}

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// Whether the known cost of a reading is used, and nothing is learnt here. In simulated time, a reading costs
    /// nothing. A scheduler that shares time needs the ticks of each call in a timed turn. So the clock is read after
    /// each stretch, and the cost that was measured before the run is used.
    pub(super) const KNOWS_READING: bool = C::SIMULATED || S::SHARES;

    /// Begins a timed turn that started at `now`. `first`: the turn is the first one of its series. The methods here
    /// are used only if the cost of a reading is not [known](Self::KNOWS_READING).
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
        // `resumed` and `ready` measure the timer's work between two turns. The reading of `resumed` also took ticks
        // before it returned its value.
        let began = Ticks(now.0 + ready.since(resumed).0 + windows.residue.ticks.max(0.0) as u64);
        windows.turn = Turn { began, ..Turn::default() };
        (windows.last, windows.before, windows.second) = (began, None, windows.reads == Reads::First);
    }

    /// Begins the timer's own work at the end of a timed turn.
    pub(super) fn resume_windows(&mut self) {
        self.stopwatch.windows.resumed = self.clock.now();
    }

    /// Ends a series. The untimed turns until the next series are counted from here on.
    pub(super) fn leave_windows(&mut self) {
        self.stopwatch.windows.since = self.usual_turns();
    }

    /// Returns the ticks and the number of all busy turns that were not long.
    fn usual_turns(&self) -> [u64; 2] {
        let worker = &self.telemetry.worker;
        let all = |of: &[Counter]| of.iter().map(Counter::get).sum::<u64>();
        [
            worker.busy.get().wrapping_sub(all(&worker.long.busy)),
            worker.busy_turns.get().wrapping_sub(all(&worker.long.busy_turns)),
        ]
    }

    /// Ends a stretch of the turn. The stretch belongs to `span` and had `packets` packets. Reads the clock if this
    /// series reads it after this stretch.
    #[inline]
    pub(super) fn pass_stretch(&mut self, span: Span, packets: usize) {
        let windows = &mut self.stopwatch.windows;
        if windows.reads_each() {
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

    /// Ends a turn at `now`.
    pub(super) fn end_windows(&mut self, now: Ticks) {
        self.note_timing(now);
        if self.stopwatch.windows.reads_each() {
            self.end_stretch(now, Span::Residue, 0);
            self.learn_passing(now);
        } else if self.stopwatch.windows.second {
            self.end_pair(now, Span::Residue);
        }
    }

    /// Counts the ticks that timing has added to a turn that ends at `now`.
    fn note_timing(&mut self, now: Ticks) {
        let span = now.since(self.began).0;
        if let Some(untimed) = self.stopwatch.windows.untimed
            && self.was_busy
            && !self.stopwatch.is_long(span)
        {
            self.telemetry.worker.timing.add(span.wrapping_sub(untimed as u64));
        }
    }

    /// Learns the cost of passing a stretch from a turn that ends at `now`.
    fn learn_passing(&mut self, now: Ticks) {
        let Turn { began, stretches, added } = self.stopwatch.windows.turn;
        let took = now.since(began).0;
        if let Some(untimed) = self.stopwatch.windows.untimed
            && self.was_busy
            && !self.stopwatch.warms_up
            && !self.stopwatch.is_long(took)
        {
            self.stopwatch.windows.passing.learn(took as f64 - added - untimed, stretches);
        }
    }

    /// Ends a stretch after a reading at `now`: accounts its ticks without the cost of timing, and learns from it and
    /// the stretch before it.
    fn end_stretch(&mut self, now: Ticks, span: Span, packets: usize) {
        let windows = &mut self.stopwatch.windows;
        let ticks = now.since(windows.last).0;
        windows.last = now;
        let before = windows.before.replace((span, ticks));
        let cost = if matches!(span, Span::Residue) { &mut windows.residue } else { &mut windows.part };
        windows.turn.stretches += 1;
        windows.turn.added += cost.ticks.max(0.0);
        let net = ticks.wrapping_sub(cost.off(windows.passing.ticks()));
        self.note_span(span, net, packets);
        if let Some((first, took)) = before {
            self.learn_reading_from(first, span, took + ticks, true);
        }
    }

    /// Ends two stretches with one reading at `now`, and learns from them. `span` is the second one. Their ticks are
    /// not accounted.
    fn end_pair(&mut self, now: Ticks, span: Span) {
        let windows = &mut self.stopwatch.windows;
        let ticks = now.since(windows.last).0;
        windows.last = now;
        if let Some((first, _)) = windows.before.take() {
            self.learn_reading_from(first, span, ticks, false);
        }
    }

    /// Learns the ticks that a reading adds from a pair of stretches that took `ticks`. The pair is noted in the
    /// account of the second stretch, or of the first stretch if the second one is residue. A pair of two stretches of
    /// residue is ignored, because stretches of residue differ too much from each other. `split`: the clock was read
    /// between the two.
    fn learn_reading_from(&mut self, first: Span, second: Span, ticks: u64, split: bool) {
        if self.stopwatch.warms_up {
            return;
        }
        let (kind, residue) = match (first, second) {
            (Span::Residue, Span::Residue) => return,
            (first, Span::Residue) => (first, true),
            (_, second) => (second, false),
        };
        let Some(account) = self.account_of(kind) else { return };
        let pairs = if residue { &account.then_residue } else { &account.after_any };
        let Some(seen) = pairs.note(ticks, split) else { return };
        let windows = &mut self.stopwatch.windows;
        if residue { windows.residue.learn(seen) } else { windows.part.learn(seen) }
    }
}

impl Pairs {
    /// Notes a pair of stretches that took `ticks`. `split`: the clock was read between them. Returns the cost of a
    /// reading in ticks: the difference between this pair and the mean of the pairs of the other kind. `None` if there
    /// are too few pairs of the other kind, or if this pair is too long.
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

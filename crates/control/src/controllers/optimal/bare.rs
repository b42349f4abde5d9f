//! Tries to run without any waiting for batches if, according to the model, no triggers keep all objectives. Objectives
//! may then be kept because of effects that the model does not include. For example, short calls make turns short. The
//! controller continues without waiting as long as flows are less late than with triggers.

use crate::period::is_another;

/// A trial begins after this number of successive periods with missed objectives. If flows can be split to another
/// worker, the split usually comes before a trial, because it needs fewer periods.
const ENOUGH: u32 = 6;
/// The length of a trial, in periods.
const TRIED: u32 = 3;
/// A trial succeeds if the longest delay, as a fraction of the flow's objective, falls by more than this fraction.
const BETTER: f64 = 0.05;
/// The number of periods between the first failed trial and the next trial. The number doubles with each failed trial.
/// It returns to this value when a change of the traffic ends a time without waiting.
const FIRST: u32 = 64;
/// The number of periods without waiting after the first successful trial. Then triggers are tried again. The number
/// doubles with each successful trial. It returns to this value when a change of the traffic ends a time without
/// waiting.
const STAYS: u32 = 512;
/// A time without waiting ends after this number of successive periods in which the traffic differs from the traffic at
/// the start of the trial. With few packets, chance alone may make one period look different.
const OTHER: u32 = 8;
/// The largest number to which `FIRST` and `STAYS` are doubled.
const LONGEST: u32 = 4096;

/// Decides whether to run without any waiting for batches.
#[derive(Clone, Debug)]
pub(super) struct Bare {
    state: State,
    /// The longest delay of a flow, as a fraction of its objective, in the last period with triggers before the last
    /// trial.
    before: f64,
    /// The packets per second at the start of the last trial.
    came: f64,
    /// The number of successive periods whose traffic differs from the traffic at the start of the last trial.
    other: u32,
    /// The number of periods until the next trial is allowed.
    pause: u32,
    /// The length of the last pause, in periods.
    paused: u32,
    /// The length of the last time without waiting, in periods.
    stayed: u32,
}

/// The present mode.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Triggers are set. The value is the number of successive periods with missed objectives.
    Triggers(u32),
    /// A trial without waiting. The value is the number of its periods so far.
    Tries(u32),
    /// No packet waits. The value is the number of remaining periods.
    Stays(u32),
}

impl Default for Bare {
    fn default() -> Self {
        Self {
            state: State::Triggers(0),
            before: 0.0,
            came: 0.0,
            other: 0,
            pause: 0,
            paused: FIRST / 2,
            stayed: STAYS / 2,
        }
    }
}

impl Bare {
    /// Returns true if no packet is to wait in the next period. `worst` is the longest delay of a flow, as a fraction
    /// of its objective, and `came` is the number of packets per second. `unkept` is true if the model knows no
    /// triggers that keep the objectives. `carries` returns whether the workers can process all packets without
    /// waiting. Must be called once per period.
    pub(super) fn pass(&mut self, (worst, came): (f64, f64), unkept: bool, carries: impl FnOnce() -> bool) -> bool {
        self.pause = self.pause.saturating_sub(1);
        self.other = if is_another(self.came, came) { self.other.saturating_add(1) } else { 0 };
        self.state = match self.state {
            State::Triggers(_) if !unkept => State::Triggers(0),
            State::Triggers(ENOUGH..) if self.pause == 0 && carries() => {
                (self.before, self.came) = (worst, came);
                State::Tries(0)
            }
            State::Triggers(periods) => State::Triggers(periods.saturating_add(1)),
            State::Tries(periods) if periods + 1 < TRIED => State::Tries(periods + 1),
            State::Tries(_) if worst < self.before * (1.0 - BETTER) => {
                self.stayed = (2 * self.stayed).min(LONGEST);
                State::Stays(self.stayed)
            }
            State::Tries(_) => {
                self.paused = (2 * self.paused).min(LONGEST);
                self.pause = self.paused;
                State::Triggers(0)
            }
            // If the traffic has changed, triggers may keep the objectives again.
            State::Stays(_) if self.other >= OTHER => {
                (self.stayed, self.paused) = (STAYS / 2, FIRST / 2);
                State::Triggers(0)
            }
            State::Stays(remaining) if remaining == 0 || worst >= self.before => State::Triggers(0),
            State::Stays(remaining) => State::Stays(remaining - 1),
        };
        !matches!(self.state, State::Triggers(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of periods without waiting, out of `periods`, if flows take these parts of their objectives
    /// with and without triggers.
    fn bare(periods: u32, with: f64, without: f64, carries: bool) -> u32 {
        let (mut bare, mut is) = (Bare::default(), false);
        let mut pass = |_| {
            let worst = if is { without } else { with };
            is = bare.pass((worst, 1e6), worst > 1.0, || carries);
            u32::from(is)
        };
        (0..periods).map(&mut pass).sum()
    }

    /// Regression test: after most of the packets stopped, no packet was held for thousands of further periods.
    #[test]
    fn with_other_traffic_triggers_are_tried_again() {
        let mut bare = Bare::default();
        let mut pass = |worst: f64, came: f64| bare.pass((worst, came), worst > 1.0, || true);
        while !pass(1.2, 1e6) {}
        assert!((0..20).all(|_| pass(0.9, 1e6)));
        assert!(pass(0.9, 0.9e6));
        // Small numbers of packets vary strongly by chance.
        assert!((0..100).all(|at| pass(0.9, if at % 3 == 0 { 0.9e6 } else { 1.4e6 })));
        assert!(pass(0.9, 1e6) && (1..OTHER).all(|_| pass(0.1, 0.5e6)) && !pass(0.1, 0.5e6));
    }

    #[test]
    fn the_better_mode_continues_and_the_other_is_tried_less_often() {
        assert!(bare(1_000, 1.2, 0.9, true) > 960);
        assert!(bare(1_000, 2.0, 1.5, true) > 960, "missed, but less late");
        assert!((3..=15).contains(&bare(1_000, 1.2, 1.5, true)));
        assert_eq!((bare(1_000, 1.2, 0.9, false), bare(1_000, 0.9, 0.1, true)), (0, 0));
    }
}

//! Objectives that no trigger keeps, according to the model. Running without any waiting may still keep them, because
//! of effects that the model does not include; for example, short calls make turns short. This module tries that, and
//! continues as long as it is better.

use crate::period::is_another;

/// Periods in a row with missed objectives before it is tried, and the length of a trial. Flows that can be split to
/// another worker are split before.
const ENOUGH: u32 = 6;
const TRIED: u32 = 3;
/// The relative reduction of lateness that counts as better.
const BETTER: f64 = 0.05;
/// Periods until it is tried again, and until triggers are tried again, with the same traffic. Both double each time.
const FIRST: u32 = 64;
const STAYS: u32 = 512;
/// Periods in a row with other traffic that end it. With few packets, chance alone may make one period look different.
const OTHER: u32 = 8;
const LONGEST: u32 = 4096;

/// Decides whether no packet is to wait.
#[derive(Clone, Debug)]
pub(super) struct Bare {
    state: State,
    /// Lateness of flows with triggers, as a part of their objectives, and packets per second at that time.
    before: f64,
    came: f64,
    /// Number of periods in a row with other traffic.
    other: u32,
    /// Number of periods until the next trial.
    pause: u32,
    /// Length of the last pause, and length of the last time without waiting, in periods.
    paused: u32,
    stayed: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Triggers are set; they have missed objectives for this number of periods.
    Triggers(u32),
    /// Trial without waiting, for this number of periods so far.
    Tries(u32),
    /// No packet waits, for this number of remaining periods.
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
    /// Returns whether no packet is to wait after a period. `worst` is the largest part of its objective that a flow
    /// took, `came` the packets per second. `unkept` means that no triggers are known to keep the objectives. `carries`
    /// returns whether the workers can process all packets without waiting.
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
            // With triggers, flows may not be late any more.
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

//! Objectives that no trigger is known to keep, with nothing waiting at all: what the model does not know, such as that short calls make
//! turns short, may keep them. It is tried, and kept up as long as it is better.

use crate::period::is_another;

/// Periods in a row in which objectives are not kept before it is tried, and for which it is. Flows that may part do so before.
const ENOUGH: u32 = 6;
const TRIED: u32 = 3;
/// By what part flows are to be less late.
const BETTER: f64 = 0.05;
/// Periods after which it is tried again, and after which triggers are, with the same traffic; twice as many each further time.
const FIRST: u32 = 64;
const STAYS: u32 = 512;
/// For how many periods in a row other traffic has to come: chance makes one of few packets look so.
const OTHER: u32 = 8;
const LONGEST: u32 = 4096;

/// Whether nothing is to wait.
#[derive(Clone, Debug)]
pub(super) struct Bare {
    state: State,
    /// How late flows are with triggers, in parts of objectives, and how many packets came a second.
    before: f64,
    came: f64,
    /// For how many periods in a row other traffic has come.
    other: u32,
    /// For how many periods it is not tried any more.
    pause: u32,
    /// For how many it was not the last time, and for how many it was kept up.
    paused: u32,
    stayed: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Triggers are set, for so many periods in vain.
    Triggers(u32),
    /// Nothing waits, for so many periods.
    Tries(u32),
    /// Nothing waits, for so many periods to come.
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
    /// Whether nothing is to wait after a period in which the latest flow took `worst` of its objective, and so many packets came a second;
    /// `unkept`: no trigger is known to do better; `carries`: workers can do all that comes so.
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
            // Not so late with triggers any more, perhaps.
            State::Stays(_) if self.other >= OTHER => {
                (self.stayed, self.paused) = (STAYS / 2, FIRST / 2);
                State::Triggers(0)
            }
            State::Stays(left) if left == 0 || worst >= self.before => State::Triggers(0),
            State::Stays(left) => State::Stays(left - 1),
        };
        !matches!(self.state, State::Triggers(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For how many of so many periods nothing waits, where flows take so much of their objectives with triggers and without.
    fn bare(periods: u32, with: f64, without: f64, carries: bool) -> u32 {
        let (mut bare, mut is) = (Bare::default(), false);
        let mut pass = |_| {
            let worst = if is { without } else { with };
            is = bare.pass((worst, 1e6), worst > 1.0, || carries);
            u32::from(is)
        };
        (0..periods).map(&mut pass).sum()
    }

    /// Where most of the packets stopped coming, nothing was held for thousands of periods more.
    #[test]
    fn with_other_traffic_triggers_are_tried_again() {
        let mut bare = Bare::default();
        let mut pass = |worst: f64, came: f64| bare.pass((worst, came), worst > 1.0, || true);
        while !pass(1.2, 1e6) {}
        assert!((0..20).all(|_| pass(0.9, 1e6)));
        assert!(pass(0.9, 0.9e6));
        // Few packets come in very different numbers by chance.
        assert!((0..100).all(|at| pass(0.9, if at % 3 == 0 { 0.9e6 } else { 1.4e6 })));
        assert!(pass(0.9, 1e6) && (1..OTHER).all(|_| pass(0.1, 0.5e6)) && !pass(0.1, 0.5e6));
    }

    #[test]
    fn what_keeps_objectives_better_is_kept_up_and_the_other_is_tried_ever_less() {
        assert!(bare(1_000, 1.2, 0.9, true) > 960);
        assert!(bare(1_000, 2.0, 1.5, true) > 960, "not kept, and less late");
        assert!((3..=15).contains(&bare(1_000, 1.2, 1.5, true)));
        assert_eq!((bare(1_000, 1.2, 0.9, false), bare(1_000, 0.9, 0.1, true)), (0, 0));
    }
}

//! The states that a controller brings about, and what is known of each.

use crate::stretch::Stretch;
use crate::tally::Tally;

/// Hold limits that differ by less than this part, or by less than so much of the tightest objective, make no other state. How long packets
/// wait differs by less.
const SAME_HOLD: f64 = 0.05;
const SAME_DELAY: f64 = 0.002;

/// What a state is told by.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Key {
    /// By module: trigger and weight.
    pub(crate) modules: Vec<(usize, u32)>,
    /// By module: the hold limit, in seconds; 0 without a trigger.
    pub(crate) holds: Vec<f64>,
    /// How many times their configured rate sources offer.
    pub(crate) offer: f64,
    /// The tightest objective, in seconds; 0 without any.
    pub(crate) objective: f64,
}

impl Key {
    /// Whether what is known of the one holds for the other.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let same =
            |(one, other): (&f64, &f64)| (one - other).abs() <= (SAME_HOLD * other).max(SAME_DELAY * self.objective);
        self.offer == other.offer && self.modules == other.modules && self.holds.iter().zip(&other.holds).all(same)
    }
}

/// A state.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) key: Key,
    pub(crate) stretch: Stretch,
    /// By worker: what had been counted when the stretch began.
    pub(crate) began: Vec<Tally>,
    /// What was counted in it, once that is enough.
    pub(crate) known: Option<Known>,
}

/// The figures of a state.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// By worker: what was counted.
    pub(crate) counted: Vec<Tally>,
    /// How long a time that is what happens in, in seconds.
    pub(crate) worth: f64,
    /// For how many seconds it has stood in for what was not simulated.
    pub(crate) stood_in: f64,
}

impl Known {
    /// Of a stretch of so many seconds in which sources offered so many packets a second, where that is known.
    pub(crate) fn new(counted: Vec<Tally>, seconds: f64, offered: Option<f64>) -> Self {
        let sum = |of: fn(&Tally) -> u64| counted.iter().map(of).sum::<u64>();
        let ended =
            sum(|tally| tally.left + tally.gone) + sum(|tally| tally.modules.iter().map(|it| it.turned_away).sum());
        // By chance a little more or less came and went than does on average. Where all of it is carried, as much goes as comes in
        // the long run.
        let carried =
            offered.filter(|offered| *offered > 0.0 && ended > 0 && sum(|tally| tally.lost.iter().sum()) == 0);
        Self { counted, worth: carried.map_or(seconds, |offered| ended as f64 / offered), stood_in: 0.0 }
    }

    /// Adds what happens in so many seconds.
    pub(crate) fn add_to(&self, counted: &mut [Tally], seconds: f64) {
        counted.iter_mut().zip(&self.counted).for_each(|(counted, more)| counted.add_times(more, seconds / self.worth));
    }
}

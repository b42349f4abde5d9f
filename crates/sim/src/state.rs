//! The states that a controller brings about, and the figures of each.

use crate::stretch::Stretch;
use crate::tally::Tally;

/// Hold limits belong to the same state if they differ by at most this fraction of the limit. The effect on the waiting
/// time is smaller than this difference.
const SAME_HOLD: f64 = 0.05;
/// Hold limits also belong to the same state if they differ by at most this fraction of the tightest objective.
const SAME_DELAY: f64 = 0.002;

/// Identifies a state.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StateKey {
    /// By module: trigger and weight.
    pub(crate) modules: Vec<(usize, u32)>,
    /// By module: the hold limit, in seconds; 0 without a trigger.
    pub(crate) holds: Vec<f64>,
    /// The offered rate of the sources as a multiple of their configured rate.
    pub(crate) offer: f64,
    /// The tightest objective, in seconds; 0 without objectives.
    pub(crate) objective: f64,
}

impl StateKey {
    /// Returns true if the two keys belong to the same state: the figures of one are then valid for the other.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let same =
            |(one, other): (&f64, &f64)| (one - other).abs() <= (SAME_HOLD * other).max(SAME_DELAY * self.objective);
        self.offer == other.offer && self.modules == other.modules && self.holds.iter().zip(&other.holds).all(same)
    }
}

/// A state.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) key: StateKey,
    /// The measurement of the state.
    pub(crate) stretch: Stretch,
    /// By worker: the counts when the stretch began.
    pub(crate) began: Vec<Tally>,
    /// The figures of the state, once they are known.
    pub(crate) known: Option<StateFigures>,
}

/// The figures of a state.
#[derive(Clone, Debug)]
pub(crate) struct StateFigures {
    /// By worker: the counts of the stretch.
    pub(crate) counted: Vec<Tally>,
    /// The time in which these counts occur on average, in seconds.
    pub(crate) span_s: f64,
    /// The time that has been extrapolated with these figures, in seconds.
    pub(crate) extrapolated_s: f64,
}

impl StateFigures {
    /// Builds the figures of a stretch of `seconds`. `offered` is the rate of all sources in packets per second, or
    /// `None` if a source saturates.
    pub(crate) fn new(counted: Vec<Tally>, seconds: f64, offered: Option<f64>) -> Self {
        let sum = |of: fn(&Tally) -> u64| counted.iter().map(of).sum::<u64>();
        let ended =
            sum(|tally| tally.left + tally.gone) + sum(|tally| tally.modules.iter().map(|it| it.turned_away).sum());
        // By chance, slightly more or fewer packets than average have passed. If the workers carry the whole offered
        // rate, the mean output rate equals the offered rate, and this determines the span more precisely.
        let carried =
            offered.filter(|offered| *offered > 0.0 && ended > 0 && sum(|tally| tally.lost.iter().sum()) == 0);
        Self { counted, span_s: carried.map_or(seconds, |offered| ended as f64 / offered), extrapolated_s: 0.0 }
    }

    /// Adds the expected counts of `seconds` to `counted`.
    pub(crate) fn add_to(&self, counted: &mut [Tally], seconds: f64) {
        counted
            .iter_mut()
            .zip(&self.counted)
            .for_each(|(counted, more)| counted.add_times(more, seconds / self.span_s));
    }
}

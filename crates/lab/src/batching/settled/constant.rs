//! Finds the best constant trigger: first coarsely, then around the best one.

use crate::batching::figures::Figures;

/// The largest share of periods in which a constant may miss its objective.
const KEPT: f64 = 0.05;
/// The number of steps into which a gap next to the best constant is divided.
const STEPS: usize = 4;

/// A constant trigger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Constant {
    /// The trigger, in packets.
    pub(super) trigger: usize,
    /// Whether it keeps the objective. If false, no constant that was tried keeps the objective, and this one misses it
    /// in the fewest periods. `None` if all runs were void.
    pub(super) kept: Option<bool>,
}

/// Returns the constant that carries the most packets while it keeps the objective. If none keeps it, returns the
/// constant that misses it in the fewest periods. Void runs do not count.
pub(super) fn best(tried: &[(usize, Figures)]) -> Constant {
    let keeps = |run: &Figures| !run.is_void() && run.tally.violated() <= KEPT;
    let kept = tried.iter().filter(|(_, run)| keeps(run));
    let most = kept.max_by(|(_, one), (_, other)| one.rate_pps.total_cmp(&other.rate_pps));
    if let Some((trigger, _)) = most {
        return Constant { trigger: *trigger, kept: Some(true) };
    }
    let sound = tried.iter().filter(|(_, run)| !run.is_void());
    let least = sound.min_by(|(_, one), (_, other)| one.tally.violated().total_cmp(&other.tally.violated()));
    Constant { trigger: least.map_or(0, |(trigger, _)| *trigger), kept: least.map(|_| false) }
}

/// Returns the triggers to try around the trigger `best`: values between `best` and its neighbours in `tried`. `tried`
/// must be sorted. Empty if `best` is not in `tried`.
pub(super) fn around(tried: &[usize], best: usize) -> Vec<usize> {
    let Some(at) = tried.iter().position(|trigger| *trigger == best) else { return Vec::new() };
    let near = &tried[at.saturating_sub(1)..(at + 2).min(tried.len())];
    let gaps = near.windows(2).flat_map(|gap| (gap[0]..gap[1]).step_by((gap[1] - gap[0]).div_ceil(STEPS)).skip(1));
    gaps.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batching::figures::Tally;

    fn run(rate_pps: f64, violated: u32, void_runs: usize) -> Figures {
        let tally = Tally { all: 100, stalled: 0, violated };
        Figures { rate_pps, tally, whole: tally, runs: 1, void_runs, ..Figures::default() }
    }

    #[test]
    fn the_best_constant_carries_most_of_those_that_keep_the_objective() {
        let tried = [(0, run(1.0, 0, 0)), (8, run(2.0, 5, 0)), (16, run(3.0, 6, 0)), (24, run(4.0, 0, 1))];
        assert_eq!(best(&tried), Constant { trigger: 8, kept: Some(true) }, "a void run does not count");
        assert_eq!(best(&tried[2..]), Constant { trigger: 16, kept: Some(false) });
        assert_eq!(best(&tried[3..]), Constant { trigger: 0, kept: None });
        assert_eq!(best(&[(0, run(1.0, 90, 0)), (4, run(2.0, 80, 0))]), Constant { trigger: 4, kept: Some(false) });
    }

    #[test]
    fn triggers_around_the_best_are_tried() {
        let tried = [0, 1, 2, 4, 8, 16];
        assert_eq!(around(&tried, 1), [0; 0]);
        assert_eq!(around(&tried, 4), [3, 5, 6, 7]);
        assert_eq!(around(&tried, 8), [5, 6, 7, 10, 12, 14]);
        assert_eq!(around(&tried, 16), [10, 12, 14]);
    }
}

//! The best constant trigger: found by trying, coarsely and then around the best.

use crate::batching::figures::Figures;

/// The share of periods that it may miss its objective in.
const KEPT: f64 = 0.05;
/// Around the best, a gap between those that were tried is looked at in so many steps.
const STEPS: usize = 4;

/// A constant trigger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Constant {
    pub(super) trigger: usize,
    /// Whether it keeps the objective. If not, no other does, and this one misses it in the fewest periods; `None` where all runs were
    /// void, and nothing is known.
    pub(super) kept: Option<bool>,
}

/// The best of those that were tried: the most packets, the objective kept. What a void run kept says nothing.
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

/// What is to be tried around the best of these, which are in order.
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
        assert_eq!(best(&tried), Constant { trigger: 8, kept: Some(true) }, "a void run keeps nothing");
        assert_eq!(best(&tried[2..]), Constant { trigger: 16, kept: Some(false) });
        assert_eq!(best(&tried[3..]), Constant { trigger: 0, kept: None });
        assert_eq!(best(&[(0, run(1.0, 90, 0)), (4, run(2.0, 80, 0))]), Constant { trigger: 4, kept: Some(false) });
    }

    #[test]
    fn around_the_best_all_is_tried_that_lies_near() {
        let tried = [0, 1, 2, 4, 8, 16];
        assert_eq!(around(&tried, 1), [0; 0]);
        assert_eq!(around(&tried, 4), [3, 5, 6, 7]);
        assert_eq!(around(&tried, 8), [5, 6, 7, 10, 12, 14]);
        assert_eq!(around(&tried, 16), [10, 12, 14]);
    }
}

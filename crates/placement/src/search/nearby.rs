//! Of the placements that are worth the most, the one to which the fewest functions move.

use forebay_models::placement::{From, Problem, Way};

use super::{Algorithm, Outcome, SearchEffort, SearchError, search};
use crate::problem::Objective;

/// Values that differ by less than this part are the same.
const SAME: f64 = 1e-9;

/// Searches as [`search`] does, and then for a placement that is worth the same with fewer moves from how chains run
/// now. Like domains may change places without one. Only the exact search knows what is worth the same.
///
/// # Errors
/// As [`search`].
pub fn search_nearby(
    problem: &Problem,
    effort: &SearchEffort<'_>,
    ways: &[Option<Way>],
) -> Result<Outcome, SearchError> {
    let mut best = search(problem, effort)?;
    if effort.algorithm != Algorithm::Exact {
        return Ok(best);
    }
    let is_as_good = |other: &Outcome, best: &Outcome| {
        let is_worth_it = match effort.objective {
            Objective::Cores => other.value <= best.value,
            _ => other.value >= best.value * (1.0 - SAME),
        };
        other.kept == best.kept && is_worth_it
    };
    // No placement moves more.
    let all = problem.chains.iter().map(|chain| chain.functions.len().max(chain.copies)).sum::<usize>();
    let (mut least, mut most) = (0, 2 * all);
    while least < most && !(effort.is_over)() {
        let middle = usize::midpoint(least, most);
        let from = Some(From { ways, most: middle });
        let near = search(problem, &SearchEffort { from, ..*effort })?;
        if is_as_good(&near, &best) {
            // The bound of the whole search holds for it, too, and the last one would be of few moves alone.
            best.placement = near.placement;
            most = middle;
        } else {
            least = middle + 1;
        }
    }
    Ok(best)
}

//! Of the placements with the best value, selects the one to which the fewest functions move.

use forebay_models::placement::{From, Problem, Way};

use super::{Algorithm, Outcome, SearchEffort, SearchError, search};
use crate::problem::Objective;

/// Two values are equal if their relative difference is at most this.
const SAME: f64 = 1e-9;

/// Searches like [`search`], and then for a placement with the same value that needs fewer moves from the current
/// placement `ways`, for example by exchanging equivalent domains. Only the exact search can determine whether a value
/// is the same, so other methods return their first result.
///
/// # Errors
/// Returns the errors of [`search`].
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
    // No placement needs more than `all` moves. The first middle is `all`, so the first search excludes none.
    let all = problem.chains.iter().map(|chain| chain.functions.len().max(chain.copies)).sum::<usize>();
    let (mut least, mut most) = (0, 2 * all);
    while least < most && !(effort.is_over)() {
        let middle = usize::midpoint(least, most);
        let from = Some(From { ways, most: middle });
        let near = search(problem, &SearchEffort { from, ..*effort })?;
        if is_as_good(&near, &best) {
            // The bound of the first search also holds for this placement. The bound of the last search covers
            // placements with few moves only.
            best.placement = near.placement;
            most = middle;
        } else {
            least = middle + 1;
        }
    }
    Ok(best)
}

//! What further runs rest on: delays that objectives are made of, capacities that loads are parts of.
//!
//! A single run on a machine's clock may have had stalls, and whatever is made of it would have them as well: there it is the median of
//! several runs that are not void. In simulated time one run says it all.

use super::figures::Tally;
use super::place::{Place, Run};
use super::scenario::Scenario;
use crate::trial::median;
use crate::{LabError, Progress};

/// Runs that are not void, on a machine's clock.
const RUNS: usize = 3;
/// How many more are made where some are void.
const AGAIN: usize = 2;

/// What a run came to: whether it is void, and its values.
type Made<const N: usize> = (bool, [f64; N]);

/// Values of each scenario.
pub(super) fn measure<const N: usize>(
    place: &Place,
    scenarios: &[Scenario],
    progress: &mut dyn Progress,
    value: impl Fn(&Run) -> [f64; N] + Sync,
) -> Result<Vec<[f64; N]>, LabError> {
    let wanted = if place.simulated { 1 } else { RUNS };
    let mut made: Vec<Vec<Made<N>>> = vec![Vec::new(); scenarios.len()];
    for _ in 0..wanted + AGAIN {
        let lacking: Vec<usize> = (0..made.len()).filter(|at| sound(&made[*at]).count() < wanted).collect();
        if lacking.is_empty() {
            break;
        }
        let again: Vec<_> = lacking.iter().map(|at| scenarios[*at].clone()).collect();
        let keep = |run: Run| (Tally::of(run.settled()).is_void(), value(&run));
        for (at, run) in lacking.into_iter().zip(place.all(&again, progress, keep)?) {
            made[at].push(run);
        }
    }
    Ok(made.iter().map(|made| middle(made)).collect())
}

fn sound<const N: usize>(made: &[Made<N>]) -> impl Iterator<Item = &[f64; N]> {
    made.iter().filter(|(void, _)| !void).map(|(_, values)| values)
}

/// Medians of the runs that are not void; of all, where all are.
fn middle<const N: usize>(made: &[Made<N>]) -> [f64; N] {
    let mut counted: Vec<_> = sound(made).collect();
    if counted.is_empty() {
        counted = made.iter().map(|(_, values)| values).collect();
    }
    std::array::from_fn(|at| median(counted.iter().map(|values| values[at]).collect()).unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_disturbed_run_decides_nothing() {
        let runs = [(false, [10.0, 1.0]), (false, [90.0, 9.0]), (true, [900.0, 0.0]), (false, [11.0, 2.0])];
        assert_eq!(middle(&runs), [11.0, 2.0]);
        assert_eq!(middle(&[(true, [3.0]), (true, [5.0])]), [4.0], "void runs, where there are no others");
    }
}

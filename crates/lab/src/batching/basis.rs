//! Measures the values on which further runs depend: delays, from which objectives are derived, and capacities, from
//! which loads are derived.
//!
//! On a machine's clock, a single run may contain stalls, and every value derived from the run would be wrong. So the
//! value on a machine's clock is the median of several runs that are not void, or of all runs if all are void. In
//! simulated time one run is enough.

use super::figures::Tally;
use super::scenario::Scenario;
use super::testbed::{Run, Testbed};
use crate::trial::median;
use crate::{LabError, Progress};

/// The required number of runs that are not void, on a machine's clock.
const RUNS: usize = 3;
/// The number of additional runs that may replace void runs.
const AGAIN: usize = 2;

/// The outcome of a run: whether it is void, and its values.
type Outcome<const N: usize> = (bool, [f64; N]);

/// Returns the values of each scenario, in the order of the scenarios. `value` reads them from a run.
pub(super) fn measure<const N: usize>(
    testbed: &Testbed,
    scenarios: &[Scenario],
    progress: &mut dyn Progress,
    value: impl Fn(&Run) -> [f64; N] + Sync,
) -> Result<Vec<[f64; N]>, LabError> {
    let wanted = if testbed.simulated { 1 } else { RUNS };
    let mut outcomes: Vec<Vec<Outcome<N>>> = vec![Vec::new(); scenarios.len()];
    for _ in 0..wanted + AGAIN {
        let incomplete: Vec<usize> = (0..outcomes.len()).filter(|at| sound(&outcomes[*at]).count() < wanted).collect();
        if incomplete.is_empty() {
            break;
        }
        let missing: Vec<_> = incomplete.iter().map(|at| scenarios[*at].clone()).collect();
        let keep = |run: Run| (Tally::of(run.settled()).is_void(), value(&run));
        for (at, run) in incomplete.into_iter().zip(testbed.all(&missing, progress, keep)?) {
            outcomes[at].push(run);
        }
    }
    Ok(outcomes.iter().map(|outcomes| middle(outcomes)).collect())
}

/// Returns the values of the runs that are not void.
fn sound<const N: usize>(outcomes: &[Outcome<N>]) -> impl Iterator<Item = &[f64; N]> {
    outcomes.iter().filter(|(void, _)| !void).map(|(_, values)| values)
}

/// Returns the medians of the runs that are not void, or of all runs if all are void.
fn middle<const N: usize>(outcomes: &[Outcome<N>]) -> [f64; N] {
    let mut counted: Vec<_> = sound(outcomes).collect();
    if counted.is_empty() {
        counted = outcomes.iter().map(|(_, values)| values).collect();
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
        assert_eq!(middle(&[(true, [3.0]), (true, [5.0])]), [4.0], "if all runs are void, they all count");
    }
}

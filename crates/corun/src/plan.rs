//! Selects the competitors of each function.

use crate::record::Competitor;
use crate::synthetic::Demand;

/// The number of sets of other functions that compete with each function.
const OTHERS: usize = 3;

/// The extent of the measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effort {
    /// The number of passes over all functions. Several passes are useful, because a disturbance of a few seconds
    /// affects only one of them.
    pub passes: usize,
    /// The length of a span, in nanoseconds.
    pub span_ns: u64,
}

/// Returns the competitors of function `index` of `keys`: one set for each run of a pass.
///
/// Each of `demands` gives two sets of synthetic competitors: on one core, and on all `cores`. Other functions of
/// `keys` form sets on one core, on half of the cores and on all cores. The functions take turns in these sets, so that
/// all of them compete equally often.
#[must_use]
pub fn competitors(keys: &[String], index: usize, demands: &[Demand], cores: usize) -> Vec<Vec<Competitor>> {
    let mut sets = Vec::new();
    for demand in demands {
        for count in if cores > 1 { vec![1, cores] } else { vec![1; cores.min(1)] } {
            sets.push(vec![Competitor::Synthetic(*demand); count]);
        }
    }
    let others = keys.len().saturating_sub(1);
    for turn in 0..OTHERS.min(others) {
        let size = [1, cores.div_ceil(2), cores][turn % 3].min(cores);
        // The sets are a third of the list apart, because neighbours in a list are often similar.
        let other = |at: usize| keys[(index + 1 + (turn * others / OTHERS + at) % others) % keys.len()].clone();
        sets.push((0..size).map(|at| Competitor::Function(other(at))).collect());
    }
    let mut unique: Vec<Vec<Competitor>> = Vec::new();
    for set in sets {
        if !set.is_empty() && !unique.contains(&set) {
            unique.push(set);
        }
    }
    unique
}

/// Returns the number of runs of all functions in all passes.
#[must_use]
pub fn runs(keys: &[String], demands: &[Demand], cores: usize, passes: usize) -> usize {
    (0..keys.len()).map(|index| competitors(keys, index, demands, cores).len()).sum::<usize>() * passes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sets_fit_on_the_cores_and_never_have_the_function_itself(count in 1usize..20, cores in 0usize..9) {
            let keys: Vec<_> = (0..count).map(|at| format!("f{at}")).collect();
            let demands = crate::synthetic::levels(1 << 14, 1 << 18);
            let mut competes = vec![0; count];
            for (index, own) in keys.iter().enumerate() {
                let sets = competitors(&keys, index, &demands, cores);
                for (at, set) in sets.iter().enumerate() {
                    prop_assert!((1..=cores).contains(&set.len()));
                    prop_assert!(!set.contains(&Competitor::Function(own.clone())));
                    prop_assert!(!sets[..at].contains(set), "{set:?} occurs twice");
                    for (other, times) in keys.iter().zip(&mut competes) {
                        *times += usize::from(set.contains(&Competitor::Function(other.clone())));
                    }
                }
            }
            // With one core of competitors all functions compete equally often.
            if cores == 1 {
                prop_assert!(competes.iter().all(|times| *times == competes[0]), "{competes:?}");
            }
            let sets: usize = (0..count).map(|index| competitors(&keys, index, &demands, cores).len()).sum();
            prop_assert_eq!(runs(&keys, &demands, cores, 3), 3 * sets);
        }
    }
}

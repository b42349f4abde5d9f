//! Ratios of paired runs: their median, and a confidence interval of the true ratio.
//!
//! The interval is based on order statistics. It makes no assumption about the distribution of the ratios, and a single
//! disturbed pair does not move it.

use serde::Serialize;

use crate::trial::median;

/// The confidence of an interval.
const CONFIDENCE: f64 = 0.95;

/// The ratio of runs that were made in turn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The median over all pairs.
    pub median: f64,
    /// The 95 % interval of the median. `None` if there are too few pairs for an interval (fewer than six).
    pub interval: Option<(f64, f64)>,
    /// The number of pairs. A pair with a void run does not count.
    pub pairs: usize,
}

impl Ratio {
    /// Compares the runs with the same index: the values of `these` divided by those of `those`. The value of a void
    /// run is `None`. Returns `None` if there is no valid pair.
    pub(super) fn of(these: &[Option<f64>], those: &[Option<f64>]) -> Option<Self> {
        let pairs = these.iter().zip(those).filter_map(|(this, that)| (*this).zip(that.filter(|that| *that > 0.0)));
        let ratios = pairs.map(|(this, that)| this / that);
        let mut ratios: Vec<f64> = ratios.collect();
        ratios.sort_by(f64::total_cmp);
        let interval = rank(ratios.len()).map(|rank| (ratios[rank], ratios[ratios.len() - 1 - rank]));
        Some(Self { pairs: ratios.len(), median: median(ratios)?, interval })
    }
}

/// Compares runs that may be copies of each other. In simulated time, all runs of a pipeline without randomness are
/// copies. Copies count as one pair without an interval.
pub(super) fn of_runs(these: &[Option<f64>], those: &[Option<f64>]) -> Option<Ratio> {
    let copies = |runs: &[Option<f64>]| runs.windows(2).all(|pair| pair[0] == pair[1]);
    let ratio = Ratio::of(these, those)?;
    Some(if copies(these) && copies(those) { Ratio { interval: None, pairs: 1, ..ratio } } else { ratio })
}

/// Returns the number of sorted values that may be left out at each end. The range of the remaining values contains the
/// true median with the required confidence. Returns `None` if there are too few values.
fn rank(count: usize) -> Option<usize> {
    // The probability that at most `below` of `count` values lie on one side of the median.
    let (mut chance, mut sum, mut found) = (0.5_f64.powi(i32::try_from(count).ok()?), 0.0, None);
    for below in 0..count.div_ceil(2) {
        sum += chance;
        if 2.0 * sum > 1.0 - CONFIDENCE {
            break;
        }
        found = Some(below);
        chance *= (count - below) as f64 / (below + 1) as f64;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Conover, Practical Nonparametric Statistics: the interval has at least 95 % from the 1st of 6, the 6th of 20,
    /// and the 40th of 100 values on.
    #[test]
    fn ranks_match_published_tables() {
        assert_eq!([0, 1, 5, 6, 20, 100].map(rank), [None, None, None, Some(0), Some(5), Some(39)]);
    }

    #[test]
    fn one_bad_pair_moves_neither_the_median_nor_the_interval() {
        let null = vec![Some(1.0); 20];
        let mut these: Vec<_> = (0..20).map(|run| Some(2.0 + f64::from(run) / 100.0)).collect();
        let sound = Ratio::of(&these, &null).expect("pairs");
        these[19] = Some(1e9);
        assert_eq!(Ratio::of(&these, &null), Some(sound));
        assert!((sound.median - 2.095).abs() < 1e-12, "{sound:?}");
        assert_eq!(sound.interval, Some((2.05, 2.14)));
    }

    #[test]
    fn pairs_without_a_reference_give_no_ratio() {
        assert_eq!(Ratio::of(&[Some(1.0)], &[Some(0.0)]), None);
        let few = Ratio::of(&[Some(3.0), Some(1.0)], &[Some(1.0), Some(1.0)]).expect("pairs");
        assert_eq!((few.median, few.interval, few.pairs), (2.0, None, 2));
    }

    /// Regression: twenty equal runs gave an interval of zero width.
    #[test]
    fn copies_of_a_run_have_no_interval() {
        let (these, mut those) = (vec![Some(3.0); 20], vec![Some(2.0); 20]);
        assert_eq!(of_runs(&these, &those), Some(Ratio { median: 1.5, interval: None, pairs: 1 }));
        those[3] = Some(2.5);
        assert_eq!(of_runs(&these, &those), Ratio::of(&these, &those));
    }

    #[test]
    fn a_void_run_forms_no_pair() {
        let ratio = Ratio::of(&[Some(2.0), None, Some(9.0)], &[Some(1.0), Some(1.0), None]).expect("a pair");
        assert_eq!((ratio.median, ratio.pairs), (2.0, 1));
        assert_eq!(Ratio::of(&[None], &[Some(1.0)]), None);
    }
}

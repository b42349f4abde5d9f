//! Estimates the centre of repeated measurements and its uncertainty. Outliers have little influence.

use serde::Serialize;

/// The share of the values that is left out at each end.
const TRIMMED: f64 = 0.2;
/// The number of standard errors that an interval extends to each side. A comparison examines many figures many times
/// (for example forty modules after each of ten rounds), and none of them may be reported as changed by chance. With
/// forty pairs, the true value is outside of the interval with a probability of 6 in 100 000 (Student's distribution).
/// So about one comparison in fifty is wrong if the 400 examinations are independent. If they depend on each other, far
/// fewer comparisons are wrong.
const ERRORS: f64 = 4.5;

/// The least number of values for a useful interval.
pub(crate) const LEAST: usize = 10;

/// A centre, with an interval that contains the true value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The trimmed mean.
    pub middle: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

impl Interval {
    /// Returns the interval of the trimmed mean of these values (Yuen 1974: from the winsorised variance). `None` if
    /// there are fewer than [`LEAST`] values, or if one of them is not finite.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        let count = values.len();
        if count < LEAST || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        values.sort_by(f64::total_cmp);
        let cut = (count as f64 * TRIMMED) as usize;
        let inner = &values[cut..count - cut];
        let middle = inner.iter().sum::<f64>() / inner.len() as f64;
        let (first, last) = (inner[0], inner[inner.len() - 1]);
        values.iter_mut().for_each(|value| *value = value.clamp(first, last));
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let kept = inner_share(count, cut);
        let error = (squares / (count - 1) as f64).sqrt() / (kept * (count as f64).sqrt());
        Some(Self { middle, low: middle - ERRORS * error, high: middle + ERRORS * error })
    }

    /// Returns half of the width of the interval.
    #[must_use]
    pub fn reach(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Converts an interval of logarithms into an interval of relative changes.
    pub(crate) fn exponentiated(self) -> Self {
        Self { middle: self.middle.exp_m1(), low: self.low.exp_m1(), high: self.high.exp_m1() }
    }
}

/// Returns the share of `count` values that remains if `cut` values are left out at each end.
fn inner_share(count: usize, cut: usize) -> f64 {
    (count - 2 * cut) as f64 / count as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pseudo-random numbers, the same in every run. The sum of twelve uniform numbers is nearly normal.
    fn noise(seed: u64, count: usize) -> Vec<f64> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..count).map(|_| (0..12).map(|_| next()).sum::<f64>() - 6.0).collect()
    }

    #[test]
    fn too_few_values_say_nothing() {
        assert_eq!(Interval::of(vec![1.0; LEAST - 1]), None);
        assert_eq!(Interval::of([vec![1.0; LEAST], vec![f64::NAN]].concat()), None);
        assert_eq!(Interval::of(vec![1.5; LEAST]), Some(Interval { middle: 1.5, low: 1.5, high: 1.5 }));
    }

    /// Returns whether the whole interval is further from 0 than `least`.
    fn is_beyond(interval: &Interval, least: f64) -> bool {
        interval.low > least || interval.high < -least
    }

    #[test]
    fn false_alarms_are_very_rare_and_true_changes_are_nearly_always_found() {
        let (mut false_alarms, mut found) = (0, 0);
        for seed in 1..=2_000 {
            // Noise of 3.7 % in a hundred pairs, a change of 3 %.
            let values = |shift: f64| noise(seed, 100).into_iter().map(|value| value * 0.037 + shift).collect();
            false_alarms += usize::from(Interval::of(values(0.0)).is_some_and(|interval| is_beyond(&interval, 0.0)));
            found += usize::from(Interval::of(values(0.03)).is_some_and(|interval| is_beyond(&interval, 0.005)));
        }
        assert!(false_alarms <= 1 && found >= 1_850, "{false_alarms} false alarms, {found} found of 2000");
    }

    proptest! {
        #[test]
        fn the_interval_moves_with_its_values_and_ignores_some_outliers(
            seed in 1u64..1_000, shift in -5.0..5.0f64, scale in 0.1..10.0f64, outliers in 0usize..15,
        ) {
            let values = noise(seed, 100);
            let plain = Interval::of(values.clone()).expect("many");
            let moved = Interval::of(values.iter().map(|value| value * scale + shift).collect()).expect("many");
            prop_assert!((moved.middle - (plain.middle * scale + shift)).abs() < 1e-9);
            prop_assert!((moved.reach() - plain.reach() * scale).abs() < 1e-9);
            let mut spoilt = values;
            spoilt.iter_mut().take(outliers).for_each(|value| *value += 1e6);
            prop_assert!(Interval::of(spoilt).expect("many").middle.abs() < 1.5);
        }
    }
}

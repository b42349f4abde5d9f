//! Fits a straight line to costs: least squares, with 95 % intervals and R².

/// The 97.5 % quantile of Student's t distribution by degrees of freedom, from 1. It gives two-sided 95 % intervals. If
/// there are more degrees of freedom, the last value is used, and the intervals are slightly too wide.
const STUDENT: [f64; 8] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306];

/// A cost with a fixed part and a part for each unit of x. Neither part is negative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    /// The cost at x = 0.
    pub(super) fixed: f64,
    /// The additional cost for each unit of x.
    pub(super) each: f64,
    /// Half the width of the 95 % interval of `fixed`, before negative values are set to 0.
    pub(super) fixed_within: f64,
    /// Half the width of the 95 % interval of `each`, before negative values are set to 0.
    pub(super) each_within: f64,
    /// The 95 % interval of `fixed`, cut off at 0.
    pub(super) fixed_95: [f64; 2],
    /// The 95 % interval of `each`, cut off at 0.
    pub(super) each_95: [f64; 2],
    /// The share of the costs' variance that the line explains; `None` if there is no variance.
    pub(super) r2: Option<f64>,
}

/// Fits a line to `points` of (x, cost). Returns `None` if there are fewer than three points, if all x are equal, or if
/// no cost is above 0.
pub(super) fn line(points: &[(f64, f64)]) -> Option<Line> {
    let student = STUDENT[points.len().checked_sub(3)?.min(STUDENT.len() - 1)];
    let largest = points.iter().map(|(_, y)| *y).fold(0.0, f64::max);
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|&(x, y)| of(x, y)).sum::<f64>();
    let all = points.len() as f64;
    let (x_mean, y_mean) = (sum(&|x, _| x) / all, sum(&|_, y| y) / all);
    let spread = sum(&|x, _| (x - x_mean).powi(2));
    let usable = largest > 0.0 && y_mean.is_finite() && spread > all * x_mean.powi(2) * 1e-12;
    if !usable {
        return None;
    }
    let each = sum(&|x, y| (x - x_mean) * (y - y_mean)) / spread;
    let fixed = y_mean - each * x_mean;
    let residual = sum(&|x, y| (y - fixed - each * x).powi(2));
    let variance = residual / (points.len() - 2) as f64;
    let each_within = student * (variance / spread).sqrt();
    let fixed_within = student * (variance * (1.0 / all + x_mean.powi(2) / spread)).sqrt();
    let (fixed, each, [fixed_95, each_95]) = {
        let intervals = [(fixed, fixed_within), (each, each_within)]
            .map(|(value, within)| [value - within, value + within].map(|end| end.max(0.0)));
        // If one part would be negative, this is the best line with this part set to 0.
        match (fixed < 0.0, each < 0.0) {
            (true, _) => (0.0, sum(&|x, y| x * y) / sum(&|x, _| x * x), intervals),
            (_, true) => (y_mean, 0.0, intervals),
            _ => (fixed, each, intervals),
        }
    };
    let (residual, varied) = (sum(&|x, y| (y - fixed - each * x).powi(2)), sum(&|_, y| (y - y_mean).powi(2)));
    let r2 = (varied > all * y_mean.powi(2) * 1e-24).then(|| (1.0 - residual / varied).clamp(0.0, 1.0));
    Some(Line { fixed, each, fixed_within, each_within, fixed_95, each_95, r2 })
}

/// Returns the lower quartile, or `None` if there are no figures.
pub(super) fn quartile(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len().checked_sub(1)? / 4).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZES: [f64; 6] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];

    #[test]
    fn a_planted_line_is_found_exactly() {
        let fitted = line(&SIZES.map(|x| (x, 50.0 + 7.0 * x))).expect("six sizes");
        assert!((fitted.fixed - 50.0).abs() < 1e-9 && (fitted.each - 7.0).abs() < 1e-9, "{fitted:?}");
        assert!(fitted.fixed_within < 1e-6 && fitted.each_within < 1e-6, "{fitted:?}");
        assert!(fitted.r2.is_some_and(|r2| r2 > 1.0 - 1e-12), "{fitted:?}");
    }

    #[test]
    fn equal_costs_give_a_flat_line_without_a_share_of_variance() {
        let fitted = line(&SIZES.map(|x| (x, 40.0))).expect("six sizes");
        assert!((fitted.fixed - 40.0).abs() < 1e-9 && fitted.each.abs() < 1e-9, "{fitted:?}");
        assert_eq!(fitted.r2, None);
    }

    /// A fixed cost below 0 would make the controller treat small batches as cheaper.
    #[test]
    fn a_negative_part_becomes_zero_and_keeps_its_interval() {
        let fitted = line(&SIZES.map(|x| (x, if x < 2.0 { 9.0 } else { 10.0 * x }))).expect("six sizes");
        assert_eq!(fitted.fixed, 0.0);
        assert!(fitted.each > 9.0 && fitted.each < 11.0, "{fitted:?}");
        assert!(fitted.fixed_95[0] == 0.0 && fitted.fixed_95[1] >= 0.0 && fitted.fixed_within > 0.0, "{fitted:?}");
        let falling = line(&SIZES.map(|x| (x, 100.0 - x / 100.0))).expect("six sizes");
        assert!(falling.each == 0.0 && (falling.fixed - 100.0).abs() < 0.5, "{falling:?}");
    }

    #[test]
    fn too_few_or_equal_sizes_make_no_line() {
        assert_eq!(line(&[(1.0, 10.0), (2.0, 12.0)]), None);
        assert_eq!(line(&[(4.0, 10.0), (4.0, 12.0), (4.0, 11.0)]), None);
        assert_eq!(line(&[(1.0, 0.0), (2.0, 0.0), (3.0, 0.0)]), None);
        let quartiles = [vec![], vec![3.0], vec![5.0, 1.0, 2.0, 3.0, 9.0]].map(quartile);
        assert_eq!(quartiles, [None, Some(3.0), Some(2.0)]);
    }

    proptest! {
        /// With noise, the fitted line is at most twice the noise away from the true line.
        #[test]
        fn a_noisy_line_is_found(
            fixed in 5.0..500.0f64,
            each in 1.0..100.0f64,
            noise in prop::array::uniform6(-3.0..3.0f64),
        ) {
            let points: Vec<_> = SIZES.iter().zip(noise).map(|(x, noise)| (*x, fixed + each * x + noise)).collect();
            let fitted = line(&points).expect("six sizes");
            for (x, y) in SIZES.map(|x| (x, fixed + each * x)) {
                let is = fitted.fixed + fitted.each * x;
                prop_assert!((is - y).abs() < 6.0, "{x}: {is} for {y}: {fitted:?}");
            }
            prop_assert!(fitted.fixed >= 0.0 && fitted.each >= 0.0);
            let [low, high] = fitted.fixed_95;
            prop_assert!(low <= fitted.fixed && fitted.fixed <= high || fitted.fixed == 0.0);
        }

        /// The unit of the costs does not change the line.
        #[test]
        fn units_do_not_matter(scale in 1e-10..1e3f64) {
            let points = SIZES.map(|x| (x, 30.0 + 4.0 * x + if x == 8.0 { 1.0 } else { 0.0 }));
            let (one, other) = (line(&points), line(&points.map(|(x, y)| (x, y * scale))));
            let (one, other) = one.zip(other).expect("six sizes");
            prop_assert!((other.fixed / scale / one.fixed - 1.0).abs() < 1e-9);
            prop_assert!((other.each_within / scale / one.each_within - 1.0).abs() < 1e-6);
            prop_assert!((one.r2.expect("it varies") - other.r2.expect("it varies")).abs() < 1e-9);
        }
    }
}

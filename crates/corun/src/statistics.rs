//! Medians, deviations, correlation, and the quantiles of Student's t.

/// Returns the median, or `None` without values.
#[must_use]
pub fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let last = figures.len().checked_sub(1)?;
    Some(f64::midpoint(figures[last / 2], figures[last - last / 2]))
}

/// Returns the mean, or 0 without values.
#[must_use]
pub fn mean(figures: &[f64]) -> f64 {
    if figures.is_empty() { 0.0 } else { figures.iter().sum::<f64>() / figures.len() as f64 }
}

/// Returns the population variance, as in (5): the sum of squares is divided by the number of values.
#[must_use]
pub fn variance(figures: &[f64]) -> f64 {
    let mean = mean(figures);
    self::mean(&figures.iter().map(|figure| (figure - mean).powi(2)).collect::<Vec<_>>())
}

/// Returns Pearson's correlation (6) of the first and the second values of pairs. `None` if one of the two does not
/// vary.
#[must_use]
pub fn correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    let (x, y): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
    let (x_mean, y_mean) = (mean(&x), mean(&y));
    let together: Vec<_> = pairs.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).collect();
    let spread = (variance(&x) * variance(&y)).sqrt();
    let varies = |of: f64, mean: f64| of > (mean * 1e-9).powi(2);
    let is_known = varies(variance(&x), x_mean) && varies(variance(&y), y_mean) && spread.is_finite();
    is_known.then(|| (mean(&together) / spread).clamp(-1.0, 1.0))
}

/// Returns the 97.5 % quantile of Student's t, which is the upper end of a 95 % interval. Infinite for 0 degrees of
/// freedom.
#[must_use]
pub fn student(degrees: usize) -> f64 {
    const FIRST: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    match degrees {
        0 => f64::INFINITY,
        1..=10 => FIRST[degrees - 1],
        // The error is at most 0.3 % from here on (Cornish and Fisher 1937, first term).
        _ => 1.96 + 2.372 / degrees as f64 + 2.8 / (degrees * degrees) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_few() {
        assert_eq!([median(vec![]), median(vec![3.0]), median(vec![4.0, 1.0])], [None, Some(3.0), Some(2.5)]);
        assert_eq!(median(vec![5.0, 1.0, 2.0]), Some(2.0));
        assert_eq!((variance(&[1.0, 3.0]), variance(&[])), (1.0, 0.0));
        assert_eq!(correlation(&[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]).map(|r| r > 0.999_999), Some(true));
        assert_eq!(correlation(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(correlation(&[]), None);
    }

    /// Values of published tables: 2.201 for 11, 2.086 for 20, 1.984 for 100.
    #[test]
    fn quantiles_are_those_of_tables() {
        for (degrees, table) in [(1, 12.706), (11, 2.201), (20, 2.086), (100, 1.984)] {
            assert!((student(degrees) / table - 1.0).abs() < 0.004, "{degrees}: {}", student(degrees));
        }
    }
}

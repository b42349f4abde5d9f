//! Fits a function's drop parameters to co-runs, in which its slowdown and the strength of its competitors were
//! measured.
//!
//! `λ = α·a + β·b + C`, where a is the competing level of the cache (1 if the function reads packets from another
//! domain) and b is the competing level of the memory controller or of the link. By default, the squared errors are
//! minimised with `α, β, C ≥ 0` and `α + β + C ≤ 1`. Under these constraints, more load never increases a rate, and λ
//! is from 0 to 1. The bounds of the exact search depend on both facts. The paper's least mean squares has no
//! constraints.

use super::model::{Sensitivity, Shape};

/// A co-run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoRun {
    /// The competing level of the last-level cache, 0 to 1.
    pub cache: f64,
    /// The competing level of the memory controller or the link, 0 to 1.
    pub memory: f64,
    /// The drop of the rate relative to running alone: `(P − φ) / P`.
    pub drop: f64,
}

/// Fitted parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fitted {
    /// α, β and C.
    pub drop: Sensitivity,
    /// The shape in which they apply.
    pub shape: Shape,
    /// The root mean squared error of λ over the co-runs of the fit.
    pub error: f64,
}

impl Fitted {
    /// Returns the predicted λ.
    #[must_use]
    pub fn predict(&self, run: &CoRun) -> f64 {
        let Sensitivity { cache, memory, constant } = self.drop;
        cache * self.shape.of(run.cache) + memory * self.shape.of(run.memory) + constant
    }
}

/// Fits by least squares under the constraints, with terms of this shape. Returns `None` without co-runs.
///
/// The constraints are four planes in the space of the three parameters. For each of the sixteen sets of planes, the
/// least squares on the intersection of its planes are calculated, and are used if they are on the allowed side of the
/// other planes. The best of these results is the optimum.
#[must_use]
pub fn non_negative(runs: &[CoRun], shape: Shape) -> Option<Fitted> {
    if runs.is_empty() {
        return None;
    }
    let rows: Vec<[f64; 4]> =
        runs.iter().map(|run| [shape.of(run.cache), shape.of(run.memory), 1.0, run.drop]).collect();
    let mut best: Option<Fitted> = None;
    for set in 0..16_usize {
        let free: Vec<usize> = (0..3).filter(|at| set >> at & 1 == 0).collect();
        let Some(found) = on_planes(&rows, &free, set >> 3 == 1) else { continue };
        let is_inside = found.iter().all(|part| *part >= -1e-12) && found.iter().sum::<f64>() <= 1.0 + 1e-12;
        let [cache, memory, constant] = found.map(|part| part.max(0.0));
        let fitted = of(Sensitivity { cache, memory, constant }, shape, runs);
        if is_inside && best.is_none_or(|best| fitted.error < best.error - 1e-15) {
            best = Some(fitted);
        }
    }
    best
}

/// Fits the saturating shape, with the best `h` of 101 values between 0.01 and 100.
#[must_use]
pub fn saturating(runs: &[CoRun]) -> Option<Fitted> {
    let halves = (0..=100).map(|at| 10_f64.powf(-2.0 + 0.04 * f64::from(at)));
    let fits = halves.filter_map(|half| non_negative(runs, Shape::Saturating(half)));
    fits.min_by(|a, b| a.error.total_cmp(&b.error))
}

/// Fits both shapes, and returns the fit whose shape predicts left-out co-runs better (five-fold cross-validation),
/// with the mean absolute error of λ for the left-out co-runs. `None` without co-runs.
#[must_use]
pub fn by_held_out_error(runs: &[CoRun]) -> Option<(Fitted, f64)> {
    const GROUPS: usize = 5;
    type Fit = fn(&[CoRun]) -> Option<Fitted>;
    let linear: Fit = |runs| non_negative(runs, Shape::Linear);
    let error = |fit: Fit| {
        let mut errors = Vec::new();
        for group in 0..GROUPS.min(runs.len()) {
            let is_out = |at: usize| at % GROUPS == group;
            let (out, rest): (Vec<_>, Vec<_>) = runs.iter().enumerate().partition(|(at, _)| is_out(*at));
            let fitted = fit(&rest.into_iter().map(|(_, run)| *run).collect::<Vec<_>>())?;
            errors.extend(out.into_iter().map(|(_, run)| (fitted.predict(run) - run.drop).abs()));
        }
        Some(errors.iter().sum::<f64>() / errors.len().max(1) as f64)
    };
    let forms: [Fit; 2] = [linear, saturating];
    let found = forms.into_iter().filter_map(|fit| Some((fit(runs)?, error(fit)?)));
    found.min_by(|a, b| a.1.total_cmp(&b.1))
}

/// Fits by the paper's least mean squares (Widrow and Hoff 1960, normalised): after each co-run, the parameters change
/// by `step` times the correction for its error. All co-runs are used `passes` times. Parameters may become negative.
/// Returns `None` without co-runs.
#[must_use]
pub fn least_mean_squares(runs: &[CoRun], step: f64, passes: usize) -> Option<Fitted> {
    let mut parts = [0.0; 3];
    for run in (0..passes).flat_map(|_| runs) {
        let row = [run.cache, run.memory, 1.0];
        let predicted: f64 = parts.iter().zip(row).map(|(part, x)| part * x).sum();
        let norm: f64 = row.iter().map(|x| x * x).sum();
        parts.iter_mut().zip(row).for_each(|(part, x)| *part += step * (run.drop - predicted) * x / norm);
    }
    let [cache, memory, constant] = parts;
    (!runs.is_empty()).then(|| of(Sensitivity { cache, memory, constant }, Shape::Linear, runs))
}

/// Returns these parameters with their error over `runs`.
fn of(drop: Sensitivity, shape: Shape, runs: &[CoRun]) -> Fitted {
    let fitted = Fitted { drop, shape, error: 0.0 };
    let squares: f64 = runs.iter().map(|run| (fitted.predict(run) - run.drop).powi(2)).sum();
    Fitted { error: (squares / runs.len() as f64).sqrt(), ..fitted }
}

/// Fits by least squares with only the `free` parameters; the others are 0. If `is_full` is set, the sum of the
/// parameters is 1. Each of `rows` has the three factors of the parameters and the measured λ. `None` if the co-runs do
/// not separate the parameters.
fn on_planes(rows: &[[f64; 4]], free: &[usize], is_full: bool) -> Option<[f64; 3]> {
    let mut found = [0.0; 3];
    // On the plane of the sum, the last parameter is 1 minus the others and is eliminated.
    let (free, last) = match (is_full, free) {
        (false, free) => (free, None),
        (true, [rest @ .., last]) => (rest, Some(*last)),
        (true, []) => return None,
    };
    let x = |row: &[f64; 4], at: usize| row[at] - last.map_or(0.0, |last| row[last]);
    let y = |row: &[f64; 4]| row[3] - last.map_or(0.0, |last| row[last]);
    let count = free.len();
    let mut normal = [[0.0; 4]; 3];
    for (i, &a) in free.iter().enumerate() {
        for (j, &b) in free.iter().enumerate() {
            normal[i][j] = rows.iter().map(|row| x(row, a) * x(row, b)).sum();
        }
        normal[i][3] = rows.iter().map(|row| x(row, a) * y(row)).sum();
    }
    // Gaussian elimination with pivoting.
    for column in 0..count {
        let pivot = (column..count).max_by(|&a, &b| normal[a][column].abs().total_cmp(&normal[b][column].abs()))?;
        normal.swap(column, pivot);
        if normal[column][column].abs() <= 1e-12 * rows.len() as f64 {
            return None;
        }
        for row in (0..count).filter(|row| *row != column) {
            let factor = normal[row][column] / normal[column][column];
            let above = normal[column];
            normal[row].iter_mut().zip(above).for_each(|(cell, above)| *cell -= factor * above);
        }
    }
    free.iter().enumerate().for_each(|(at, part)| found[*part] = normal[at][3] / normal[at][at]);
    if let Some(last) = last {
        found[last] = 1.0 - found.iter().sum::<f64>();
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn runs(drop: Sensitivity, shape: Shape, noise: &[f64]) -> Vec<CoRun> {
        let truth = Fitted { drop, shape, error: 0.0 };
        let run = |(at, noise): (usize, &f64)| {
            let (cache, memory) = ((at % 5) as f64 / 4.0, (at / 5 % 4) as f64 / 3.0);
            let run = CoRun { cache, memory, drop: 0.0 };
            CoRun { drop: truth.predict(&run) + noise, ..run }
        };
        noise.iter().enumerate().map(run).collect()
    }

    proptest! {
        #[test]
        fn planted_parameters_are_found(cuts in prop::array::uniform3(0.0_f64..0.33)) {
            let [cache, memory, constant] = cuts;
            let drop = Sensitivity { cache, memory, constant };
            let found = non_negative(&runs(drop, Shape::Linear, &[0.0; 40]), Shape::Linear).expect("co-runs");
            let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
            prop_assert!(near(found.drop.cache, cache) && near(found.drop.constant, constant), "{found:?}");
            let lms = least_mean_squares(&runs(drop, Shape::Linear, &[0.0; 40]), 0.5, 2_000).expect("co-runs");
            prop_assert!((lms.drop.memory - memory).abs() < 1e-6, "{lms:?}");
        }

        /// For any measurements, the parameters satisfy the constraints, and no grid point is better.
        #[test]
        fn the_optimum_is_inside_the_constraints(noise in prop::collection::vec(-0.5_f64..1.5, 1..40)) {
            let runs = runs(Sensitivity::default(), Shape::Linear, &noise);
            let found = non_negative(&runs, Shape::Linear).expect("co-runs");
            let Sensitivity { cache, memory, constant } = found.drop;
            prop_assert!(cache >= 0.0 && memory >= 0.0 && constant >= 0.0 && cache + memory + constant <= 1.0 + 1e-9);
            for (a, b) in (0..=10).flat_map(|a| (0..=10 - a).map(move |b| (a, b))) {
                for c in 0..=10 - a - b {
                    let [cache, memory, constant] = [a, b, c].map(|part: i32| f64::from(part) / 10.0);
                    let other = of(Sensitivity { cache, memory, constant }, Shape::Linear, &runs);
                    prop_assert!(found.error <= other.error + 1e-9, "{found:?} {other:?}");
                }
            }
        }
    }

    /// The first competitors have the largest effect: cross-validation chooses the saturating shape.
    #[test]
    fn the_form_that_predicts_better_is_chosen() {
        let drop = Sensitivity { cache: 0.3, memory: 0.4, constant: 0.05 };
        let noise: Vec<_> = (0..60).map(|at| 0.004 * f64::from(at % 7 - 3)).collect();
        let (found, error) = by_held_out_error(&runs(drop, Shape::Saturating(0.2), &noise)).expect("co-runs");
        assert!(
            matches!(found.shape, Shape::Saturating(half) if (0.1..0.4).contains(&half)) && error < 0.02,
            "{found:?} {error}"
        );
        let (found, error) = by_held_out_error(&runs(drop, Shape::Linear, &noise)).expect("co-runs");
        assert!(
            error < 0.02 && (found.predict(&CoRun { cache: 0.5, memory: 0.5, drop: 0.0 }) - 0.4).abs() < 0.01,
            "{found:?}"
        );
        assert_eq!((by_held_out_error(&[]), non_negative(&[], Shape::Linear)), (None, None));
    }

    /// Co-runs with equal levels cannot separate α from β, but their sum is found.
    #[test]
    fn the_sum_is_found_where_levels_go_together() {
        let same: Vec<_> = (0..20)
            .map(|at| f64::from(at) / 19.0)
            .map(|f| CoRun { cache: f, memory: f, drop: 0.5 * f + 0.1 })
            .collect();
        let found = non_negative(&same, Shape::Linear).expect("co-runs");
        assert!((found.drop.cache + found.drop.memory - 0.5).abs() < 1e-9 && found.error < 1e-9, "{found:?}");
    }
}

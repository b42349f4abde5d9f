//! Finds the steps in a series of figures, by minimum description length. No threshold is needed.
//!
//! A series is described as segments with one level each. With more segments, the remaining deviations of the values
//! need fewer bits, but the segments themselves need more. The shortest description decides how many segments there are
//! and where they begin. A description contains:
//!
//! - the number of segments, in the universal code of whole numbers (Rissanen 1983);
//! - their beginnings: one of `C(n-1, k-1)` choices;
//! - the levels and the remaining deviations, whose spread is unknown: in the mixture code gMDL of Hansen and Yu,
//!   *Model selection and the principle of minimum description length* (JASA 2001), with `g = n`. Compared with one
//!   segment, `k` segments that leave the share `1 - R²` of the squares save `(n-k)/2 · log2(1+n) − (n−1)/2 · log2(1 +
//!   n(1−R²))` bits. Only shares appear, so the result does not depend on the scale or the offset of the values.
//!
//! For a given number of segments, the least squares are found exactly (Bellman 1961). The best description is found
//! exactly, too: a number of segments is skipped only if a bound shows that it cannot be the best.
//!
//! Counted figures have no noise: each change is a step.

/// The type of figures in a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// Counted: the same in each measurement, except if the counted program or pipeline has changed.
    Counted,
    /// Measured: different in each measurement.
    Measured,
}

/// A step of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DetectedStep {
    /// The index of the first value of the new level.
    pub at: usize,
    /// The mean of the values since the previous step.
    pub from: f64,
    /// The mean of the values up to the next step.
    pub to: f64,
}

/// Counted figures count as equal if their relative difference is at most this value: it is due to rounding.
const ROUNDING: f64 = 1e-9;

/// Returns the steps of a series of finite values, in ascending order. Empty if there is no step.
#[must_use]
pub fn steps(values: &[f64], nature: Nature) -> Vec<DetectedStep> {
    let starts = match nature {
        Nature::Counted => runs(values),
        Nature::Measured => shortest(values).starts,
    };
    let ends = starts.iter().skip(1).copied().chain([values.len()]);
    let levels: Vec<f64> = starts.iter().zip(ends).map(|(start, end)| mean(&values[*start..end])).collect();
    let pairs = levels.windows(2).zip(starts.iter().skip(1));
    pairs.map(|(levels, at)| DetectedStep { at: *at, from: levels[0], to: levels[1] }).collect()
}

fn mean(values: &[f64]) -> f64 {
    // Relative to the first value, so that the mean of equal values is exactly this value.
    values[0] + values.iter().map(|value| value - values[0]).sum::<f64>() / values.len() as f64
}

/// Returns the indices at which runs of equal values begin.
fn runs(values: &[f64]) -> Vec<usize> {
    let changes = |at: &usize| *at == 0 || (values[*at] - values[at - 1]).abs() > ROUNDING * values[*at].abs();
    (0..values.len()).filter(changes).collect()
}

/// A division of a series into segments.
#[derive(Clone, Debug, PartialEq)]
struct Segmentation {
    /// The index of the first value of each segment.
    starts: Vec<usize>,
    /// The number of bits that it saves, compared with one segment.
    saved: f64,
}

/// If two descriptions differ by less than this number of bits, the one with fewer segments is used: rounding causes
/// such differences between equal descriptions.
const TIE: f64 = 1e-6;

/// Returns the shortest description.
fn shortest(values: &[f64]) -> Segmentation {
    let count = values.len();
    let mut best = Segmentation { starts: (0..count.min(1)).collect(), saved: 0.0 };
    let Some(squares) = Squares::of(values) else { return best };
    // An upper bound of the savings for each number of segments.
    let bounds = squares.bounds();
    let potential: Vec<f64> =
        (0..=count).map(|parts| if parts < 2 { 0.0 } else { saved(count, parts, bounds[parts]) }).collect();
    let mut rows = Rows::first(&squares);
    while let Some(more) = (rows.parts() + 1..=count).rev().find(|parts| potential[*parts] > best.saved + TIE) {
        debug_assert!(more > rows.parts(), "each row is made once");
        rows.next(&squares);
        let saved = saved(count, rows.parts(), rows.least());
        if saved > best.saved + TIE {
            best = Segmentation { starts: rows.starts(), saved };
        }
    }
    best
}

/// Returns the number of bits that `parts` segments save, compared with one, if they leave the share `residual` of the
/// squares.
fn saved(count: usize, parts: usize, residual: f64) -> f64 {
    let (n, k) = (count as f64, parts as f64);
    let levels = (n - k) / 2.0 * (1.0 + n).log2() - (n - 1.0) / 2.0 * (1.0 + n * residual).log2();
    levels - choices(count - 1, parts - 1) - (whole(parts) - whole(1))
}

/// `log2 C(n, k)`.
fn choices(n: usize, k: usize) -> f64 {
    (0..k.min(n - k)).map(|at| ((n - at) as f64 / (at + 1) as f64).log2()).sum()
}

/// The length of a whole number from 1 in the universal code, without a constant: `log2 n + log2 log2 n + …`.
fn whole(number: usize) -> f64 {
    let mut length = 0.0;
    let mut rest = (number as f64).log2();
    while rest > 0.0 {
        length += rest;
        rest = rest.log2();
    }
    length
}

/// Prefix sums of a series that is scaled to mean 0 and a sum of squares of 1.
struct Squares {
    /// Sums of the values before each index.
    sums: Vec<f64>,
    /// Sums of the squares of the values before each index.
    squares: Vec<f64>,
}

impl Squares {
    /// Returns `None` if all values are equal.
    fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count < 2 {
            return None;
        }
        let middle = mean(values);
        let size = values.iter().map(|value| (value - middle).abs()).fold(0.0, f64::max);
        // A range as small as rounding errors counts as 0.
        if size <= values.iter().map(|value| value.abs()).fold(0.0, f64::max) * 1e-12 {
            return None;
        }
        let all: f64 = values.iter().map(|value| ((value - middle) / size).powi(2)).sum();
        let (mut sums, mut squares) = (vec![0.0], vec![0.0]);
        for (at, value) in values.iter().enumerate() {
            let value = (value - middle) / size / all.sqrt();
            sums.push(sums[at] + value);
            squares.push(squares[at] + value * value);
        }
        Some(Self { sums, squares })
    }

    fn count(&self) -> usize {
        self.sums.len() - 1
    }

    /// Returns the sum of squares about the mean of the values from `start` to before `end`.
    fn residual(&self, start: usize, end: usize) -> f64 {
        let (sum, squares) = (self.sums[end] - self.sums[start], self.squares[end] - self.squares[start]);
        (squares - sum * sum / (end - start) as f64).max(0.0)
    }

    /// Returns, for each number of segments, a lower bound of the squares that they leave. For any price `p`, such a
    /// bound is the least `squares + p · segments` over all descriptions, minus `p` times this number of segments.
    fn bounds(&self) -> Vec<f64> {
        let mut bounds = vec![0.0f64; self.count() + 1];
        let mut price = 1.0;
        while price * self.count() as f64 > 0.01 {
            let least = self.priced(price);
            for (parts, bound) in bounds.iter_mut().enumerate() {
                *bound = bound.max(least - price * parts as f64);
            }
            price /= 2.0;
        }
        bounds
    }

    /// Returns the least `squares + price · segments`.
    fn priced(&self, price: f64) -> f64 {
        let mut least = vec![0.0];
        for end in 1..=self.count() {
            let of = |start: usize| least[start] + self.residual(start, end) + price;
            least.push((0..end).map(of).fold(f64::INFINITY, f64::min));
        }
        least[self.count()]
    }
}

/// The least squares for an increasing number of segments, and the beginnings of the segments.
struct Rows {
    /// For each end: the least squares of the values before this end, in as many segments as there are rows.
    least: Vec<f64>,
    /// For each row (number of segments, from 1) and each end: the beginning of the last segment.
    last: Vec<Vec<u32>>,
}

impl Rows {
    /// Returns the row of one segment.
    fn first(squares: &Squares) -> Self {
        let least = (0..=squares.count()).map(|end| if end == 0 { 0.0 } else { squares.residual(0, end) }).collect();
        Self { least, last: vec![vec![0; squares.count() + 1]] }
    }

    /// Returns the number of segments of the last row.
    fn parts(&self) -> usize {
        self.last.len()
    }

    /// Adds one segment.
    fn next(&mut self, squares: &Squares) {
        let (parts, count) = (self.parts() + 1, squares.count());
        let (mut least, mut last) = (vec![f64::INFINITY; count + 1], vec![0; count + 1]);
        for end in parts..=count {
            for start in parts - 1..end {
                let sum = self.least[start] + squares.residual(start, end);
                if sum < least[end] {
                    (least[end], last[end]) = (sum, start as u32);
                }
            }
        }
        self.least = least;
        self.last.push(last);
    }

    /// Returns the squares that remain for the whole series.
    fn least(&self) -> f64 {
        self.least[self.least.len() - 1]
    }

    /// Returns the beginnings of the segments.
    fn starts(&self) -> Vec<usize> {
        let mut end = self.least.len() - 1;
        let starts = self.last.iter().rev().map(|last| {
            end = last[end] as usize;
            end
        });
        let mut starts: Vec<usize> = starts.collect();
        starts.reverse();
        starts
    }
}

#[cfg(test)]
mod tests;

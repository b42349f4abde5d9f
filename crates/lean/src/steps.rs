//! Where a series of figures takes a step, by minimum description length: no threshold is set, none has to be.
//!
//! A series is told as segments, in each of which it has one level. More segments leave less to be told of each value, and
//! have to be told themselves; the shortest description decides how many there are and where they begin. What is told:
//!
//! - how many segments, by the universal code of whole numbers (Rissanen 1983);
//! - where they begin: one of `C(n-1, k-1)` choices;
//! - levels and what is left of the values, whose spread is not known either: by the mixture code gMDL of Hansen and Yu,
//!   *Model selection and the principle of minimum description length* (JASA 2001), with `g = n`. Against one segment, `k`
//!   of them that leave the share `1 - R²` of the squares save
//!   `(n-k)/2 · log2(1+n) − (n−1)/2 · log2(1 + n(1−R²))` bits. It is of shares only, so that neither a scale nor an offset
//!   changes anything.
//!
//! For so many segments the least squares are found exactly (Bellman 1961), and so is the whole: numbers of segments are left
//! out only where a bound shows that they cannot be best.
//!
//! Figures that are counted, not measured, have no noise: there each change is a step.

/// What kind of figures a series has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// The same each time, unless something has changed.
    Counted,
    /// Never twice the same.
    Measured,
}

/// Where a series takes a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The first value of the new level, by its number in the series.
    pub at: usize,
    /// The mean before, back to the step before.
    pub from: f64,
    /// The mean from here on, to the next step.
    pub to: f64,
}

/// What rounding may make of a figure that is counted, in parts of it.
const ROUNDING: f64 = 1e-9;

/// The steps of a series of finite values.
#[must_use]
pub fn steps(values: &[f64], nature: Nature) -> Vec<Step> {
    let starts = match nature {
        Nature::Counted => runs(values),
        Nature::Measured => shortest(values).starts,
    };
    let ends = starts.iter().skip(1).copied().chain([values.len()]);
    let levels: Vec<f64> = starts.iter().zip(ends).map(|(start, end)| mean(&values[*start..end])).collect();
    let pairs = levels.windows(2).zip(starts.iter().skip(1));
    pairs.map(|(levels, at)| Step { at: *at, from: levels[0], to: levels[1] }).collect()
}

fn mean(values: &[f64]) -> f64 {
    // From the first one on, so that equal values have just that mean.
    values[0] + values.iter().map(|value| value - values[0]).sum::<f64>() / values.len() as f64
}

/// Where runs of one value begin.
fn runs(values: &[f64]) -> Vec<usize> {
    let changes = |at: &usize| *at == 0 || (values[*at] - values[at - 1]).abs() > ROUNDING * values[*at].abs();
    (0..values.len()).filter(changes).collect()
}

/// A way to tell a series.
#[derive(Clone, Debug, PartialEq)]
struct Told {
    /// The first value of each segment.
    starts: Vec<usize>,
    /// Bits that it saves against one segment.
    saved: f64,
}

/// Of two descriptions that differ by less, the one with fewer segments is taken: that is what rounding makes of equal ones.
const TIE: f64 = 1e-6;

/// The shortest description.
fn shortest(values: &[f64]) -> Told {
    let count = values.len();
    let mut best = Told { starts: (0..count.min(1)).collect(), saved: 0.0 };
    let Some(squares) = Squares::of(values) else { return best };
    // What each number of segments could save at most.
    let bounds = squares.bounds();
    let potential: Vec<f64> =
        (0..=count).map(|parts| if parts < 2 { 0.0 } else { saved(count, parts, bounds[parts]) }).collect();
    let mut rows = Rows::first(&squares);
    while let Some(more) = (rows.parts() + 1..=count).rev().find(|parts| potential[*parts] > best.saved + TIE) {
        debug_assert!(more > rows.parts(), "each row is made once");
        rows.next(&squares);
        let saved = saved(count, rows.parts(), rows.least());
        if saved > best.saved + TIE {
            best = Told { starts: rows.starts(), saved };
        }
    }
    best
}

/// Bits that `parts` segments save against one, where they leave this share of the squares.
fn saved(count: usize, parts: usize, left: f64) -> f64 {
    let (n, k) = (count as f64, parts as f64);
    let levels = (n - k) / 2.0 * (1.0 + n).log2() - (n - 1.0) / 2.0 * (1.0 + n * left).log2();
    levels - choices(count - 1, parts - 1) - (whole(parts) - whole(1))
}

/// `log2 C(n, k)`.
fn choices(n: usize, k: usize) -> f64 {
    (0..k.min(n - k)).map(|at| ((n - at) as f64 / (at + 1) as f64).log2()).sum()
}

/// The length of a whole number from 1 in the universal code, but for a constant: `log2 n + log2 log2 n + …`.
fn whole(number: usize) -> f64 {
    let mut length = 0.0;
    let mut rest = (number as f64).log2();
    while rest > 0.0 {
        length += rest;
        rest = rest.log2();
    }
    length
}

/// Sums of a series that has been brought to mean 0 and squares that sum up to 1.
struct Squares {
    /// Of the values before each.
    sums: Vec<f64>,
    /// Of their squares.
    squares: Vec<f64>,
}

impl Squares {
    /// `None` where all values are one, so that there is nothing to tell apart.
    fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count < 2 {
            return None;
        }
        let middle = mean(values);
        let size = values.iter().map(|value| (value - middle).abs()).fold(0.0, f64::max);
        // Less than what rounding makes of one value is nothing.
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

    /// What values from `start` to before `end` leave of the squares, about their mean.
    fn left(&self, start: usize, end: usize) -> f64 {
        let (sum, squares) = (self.sums[end] - self.sums[start], self.squares[end] - self.squares[start]);
        (squares - sum * sum / (end - start) as f64).max(0.0)
    }

    /// Squares that so many segments leave at least: for any price `p`, the least of `squares + p · segments` over all
    /// descriptions is a bound for those of each number of segments.
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

    /// The least of `squares + price · segments`.
    fn priced(&self, price: f64) -> f64 {
        let mut least = vec![0.0];
        for end in 1..=self.count() {
            let of = |start: usize| least[start] + self.left(start, end) + price;
            least.push((0..end).map(of).fold(f64::INFINITY, f64::min));
        }
        least[self.count()]
    }
}

/// The least squares of ever more segments, and where these begin.
struct Rows {
    /// Of the values before each end, in as many segments as there are rows.
    least: Vec<f64>,
    /// By row and end: where the last segment begins.
    last: Vec<Vec<u32>>,
}

impl Rows {
    fn first(squares: &Squares) -> Self {
        let least = (0..=squares.count()).map(|end| if end == 0 { 0.0 } else { squares.left(0, end) }).collect();
        Self { least, last: vec![vec![0; squares.count() + 1]] }
    }

    fn parts(&self) -> usize {
        self.last.len()
    }

    /// One segment more.
    fn next(&mut self, squares: &Squares) {
        let (parts, count) = (self.parts() + 1, squares.count());
        let (mut least, mut last) = (vec![f64::INFINITY; count + 1], vec![0; count + 1]);
        for end in parts..=count {
            for start in parts - 1..end {
                let left = self.least[start] + squares.left(start, end);
                if left < least[end] {
                    (least[end], last[end]) = (left, start as u32);
                }
            }
        }
        self.least = least;
        self.last.push(last);
    }

    /// What all values leave.
    fn least(&self) -> f64 {
        self.least[self.least.len() - 1]
    }

    /// Where segments begin.
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

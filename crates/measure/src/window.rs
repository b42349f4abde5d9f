//! Reads the values that a histogram has recorded since the last reading. A reading makes one pass over the buckets in
//! use and allocates memory only when new buckets come into use.
//!
//! Most buckets are below the lowest bucket that has values. A reading tests these buckets for new values in groups. If
//! a core with cold caches tested them one after the other, it would wait for memory many times.

use std::ops::Range;

use crate::Counter;
use crate::histogram::{Histogram, upper_bound};

/// The state of one reader of a histogram. A window must always be used with the same histogram.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// The counts at the last reading, by bucket.
    before: Vec<u64>,
    /// The sum at the last reading.
    sum: u64,
    /// The lowest bucket that has had values at a reading so far, or `None` if there is no such bucket.
    first: Option<usize>,
}

/// Values of several histograms together.
#[derive(Clone, Debug, Default)]
pub struct Values {
    /// The counts by bucket.
    counts: Vec<u64>,
    /// A range that contains all non-empty buckets.
    among: Range<usize>,
    /// The number of values.
    samples: u64,
    /// The sum of the values, minus values that were taken back after an earlier reading. Therefore the sum is signed,
    /// in two's complement. It may be negative, and it may differ from 0 if there are no values.
    sum: u64,
    /// The largest value that the histograms have ever recorded, which may be older than these values.
    max: u64,
}

impl Window {
    /// Adds to `values` all values that `histogram` has recorded since the last reading. Returns the number of added
    /// values.
    pub fn take(&mut self, histogram: &Histogram, values: &mut Values) -> u64 {
        let used = histogram.used();
        let end = used.len();
        let known = self.first.map_or(end, |first| first.min(end));
        let lower = lowest(&used[..known]);
        let first = lower.unwrap_or(known);
        self.first = lower.or(self.first);
        if self.before.len() < end {
            self.before.resize(end, 0);
        }
        if values.counts.len() < end {
            values.counts.resize(end, 0);
        }
        let (mut samples, mut lowest, mut above) = (0, end, first);
        let kept = self.before[first..end].iter_mut().zip(&mut values.counts[first..end]);
        for (bucket, (used, (before, count))) in (first..).zip(used[first..].iter().zip(kept)) {
            let now = used.get();
            // If the count has decreased, values were taken back after they had been read. Then `before` is not
            // reduced: the same number of later values does not count as new, to make up for the values that were
            // counted and then taken back.
            let more = now.saturating_sub(*before);
            if more > 0 {
                *before = now;
                *count += more;
                samples += more;
                (lowest, above) = (lowest.min(bucket), bucket + 1);
            }
        }
        values.widen(lowest..above);
        let sum = histogram.sum();
        values.sum = values.sum.wrapping_add(sum.wrapping_sub(std::mem::replace(&mut self.sum, sum)));
        values.max = values.max.max(histogram.max());
        values.samples += samples;
        samples
    }
}

/// Returns the index of the lowest non-empty bucket.
fn lowest(buckets: &[Counter]) -> Option<usize> {
    const TOGETHER: usize = 16;
    let has = |some: &[Counter]| some.iter().fold(0, |all, count| all | count.get()) > 0;
    let some = buckets.chunks(TOGETHER).position(has)?;
    let from = some * TOGETHER;
    buckets[from..].iter().position(|count| count.get() > 0).map(|at| from + at)
}

impl Values {
    /// Removes all values and keeps the memory.
    pub fn clear(&mut self) {
        self.counts[self.among.clone()].fill(0);
        (self.among, self.samples, self.sum, self.max) = (0..0, 0, 0, 0);
    }

    /// Adds the values of `other`, which keeps them. If `other` has no values, only its sum is added, which is not 0 if
    /// values were taken back.
    pub fn add(&mut self, other: &Self) {
        self.sum = self.sum.wrapping_add(other.sum);
        if other.samples == 0 {
            return;
        }
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        let counts = self.counts[other.among.clone()].iter_mut().zip(&other.counts[other.among.clone()]);
        counts.for_each(|(count, more)| *count += more);
        self.widen(other.among.clone());
        self.samples += other.samples;
        self.max = self.max.max(other.max);
    }

    /// Extends the range of possibly non-empty buckets.
    fn widen(&mut self, by: Range<usize>) {
        if self.among.is_empty() && !by.is_empty() {
            self.among = by;
        } else if !by.is_empty() {
            self.among = self.among.start.min(by.start)..self.among.end.max(by.end);
        }
    }

    /// Returns the number of values.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the mean, or `None` without values.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        // The sum is negative if values of earlier readings were taken back, and if the sum of those values is larger
        // than the sum of the new values. Then the mean is 0.
        (self.samples > 0).then(|| self.sum.cast_signed().max(0) as f64 / self.samples as f64)
    }

    /// Returns a value for each of `quantiles`, which are fractions (0 to 1) in ascending order. At least this fraction
    /// of the values does not exceed the returned value. Each is at most 1/16 too high and never too low, as in
    /// [`quantile`](crate::Distribution::quantile). Returns `None` without values.
    #[must_use]
    pub fn quantiles<const N: usize>(&self, quantiles: [f64; N]) -> Option<[u64; N]> {
        if self.samples == 0 {
            return None;
        }
        let ranks = quantiles.map(|quantile| ((quantile.clamp(0.0, 1.0) * self.samples as f64).ceil() as u64).max(1));
        let (mut values, mut found, mut seen) = ([self.max; N], 0, 0);
        for (bucket, count) in self.among.clone().zip(&self.counts[self.among.clone()]) {
            seen += count;
            while found < N && seen >= ranks[found] {
                values[found] = upper_bound(bucket).min(self.max);
                found += 1;
            }
            if found == N {
                break;
            }
        }
        Some(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Regression test: a snapshot between the sending of packets and their refusal by the port gave nearly 2⁶⁴
    /// packets.
    #[test]
    fn values_taken_back_after_a_reading_are_not_counted_again() {
        let (histogram, mut window) = (Histogram::new(), Window::default());
        let mut seen = |times: u64| {
            let mut values = Values::default();
            histogram.record(100, times);
            (window.take(&histogram, &mut values), values.mean())
        };
        assert_eq!(seen(32), (32, Some(100.0)));
        assert_eq!(seen(8u64.wrapping_neg()), (0, None));
        assert_eq!(seen(8), (0, None));
        assert_eq!(seen(3), (3, Some(100.0)));
    }

    /// Regression test: if no value was recorded between two readings, the sum of the values that were taken back in
    /// this time was lost. Later values that replaced them did not count, but were in the sum. So the mean was too
    /// high.
    #[test]
    fn values_taken_back_without_other_values_reduce_the_sum() {
        let (histogram, mut window) = (Histogram::new(), Window::default());
        let (mut seen, mut all) = (Values::default(), Values::default());
        histogram.record(100, 32);
        window.take(&histogram, &mut seen);
        let mut add = |times: u64| {
            histogram.record(100, times);
            seen.clear();
            window.take(&histogram, &mut seen);
            all.add(&seen);
            (all.samples(), all.mean())
        };
        assert_eq!(add(8u64.wrapping_neg()), (0, None));
        assert_eq!(add(11), (3, Some(100.0)));
    }

    proptest! {
        #[test]
        fn a_window_has_the_values_since_the_last_reading(
            parts in proptest::collection::vec(proptest::collection::vec(0u64..1 << 30, 0..30), 1..40),
        ) {
            let histogram = Histogram::new();
            let (mut window, mut seen, mut all) = (Window::default(), Values::default(), Values::default());
            let mut total = 0;
            for part in &parts {
                part.iter().for_each(|value| histogram.record(*value, 1));
                total += part.len() as u64;
                seen.clear();
                window.take(&histogram, &mut seen);
                all.add(&seen);
                prop_assert_eq!(all.samples(), total);
                prop_assert_eq!(seen.quantiles([0.5, 0.99]).is_some(), seen.samples() > 0);
            }
            let whole = histogram.read();
            prop_assert_eq!((all.samples(), all.mean()), (whole.samples(), whole.mean()));
            for quantile in [0.5, 0.99] {
                prop_assert_eq!(all.quantiles([quantile]).map(|[value]| value), whole.quantile(quantile));
            }
        }
    }
}

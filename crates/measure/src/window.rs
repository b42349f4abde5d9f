//! What a histogram has recorded since it was looked at last: one pass over the buckets that it has used, and no allocation once
//! there was something in each.
//!
//! Below the lowest bucket that has had something it is only asked whether there is something now, several buckets at a time: that is most
//! of the memory, and a core whose caches are cold waits for it.

use std::ops::Range;

use crate::Counter;
use crate::histogram::{Histogram, upper_bound};

/// Where a reader of a histogram has come to.
#[derive(Clone, Debug, Default)]
pub struct Window {
    before: Vec<u64>,
    sum: u64,
    /// The lowest bucket that has had something.
    first: Option<usize>,
}

/// Values of several histograms together.
#[derive(Clone, Debug, Default)]
pub struct Values {
    counts: Vec<u64>,
    /// The buckets that have something are among these.
    among: Range<usize>,
    samples: u64,
    sum: u64,
    max: u64,
}

impl Window {
    /// Adds to `values` what `histogram` has recorded since it was looked at last; how many values that is.
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
            // Less than before: values were taken back that had been seen. As many more are not new then.
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

/// The lowest bucket that has something.
fn lowest(buckets: &[Counter]) -> Option<usize> {
    const TOGETHER: usize = 16;
    let has = |some: &[Counter]| some.iter().fold(0, |all, count| all | count.get()) > 0;
    let some = buckets.chunks(TOGETHER).position(has)?;
    let from = some * TOGETHER;
    buckets[from..].iter().position(|count| count.get() > 0).map(|at| from + at)
}

impl Values {
    /// Forgets everything, and keeps the memory.
    pub fn clear(&mut self) {
        self.counts[self.among.clone()].fill(0);
        (self.among, self.samples, self.sum, self.max) = (0..0, 0, 0, 0);
    }

    /// Adds another's values.
    pub fn add(&mut self, other: &Self) {
        if other.samples == 0 {
            return;
        }
        self.sum = self.sum.wrapping_add(other.sum);
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        let counts = self.counts[other.among.clone()].iter_mut().zip(&other.counts[other.among.clone()]);
        counts.for_each(|(count, more)| *count += more);
        self.widen(other.among.clone());
        self.samples += other.samples;
        self.max = self.max.max(other.max);
    }

    /// Tells that these buckets may have something, too.
    fn widen(&mut self, by: Range<usize>) {
        if self.among.is_empty() && !by.is_empty() {
            self.among = by;
        } else if !by.is_empty() {
            self.among = self.among.start.min(by.start)..self.among.end.max(by.end);
        }
    }

    /// How many values.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Their mean; `None` without any.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        // What was taken back may have been another window's.
        (self.samples > 0).then(|| self.sum.cast_signed().max(0) as f64 / self.samples as f64)
    }

    /// The values that these shares of them (0..=1, ascending) do not exceed, each at most 1/16 too high and never too low, as
    /// [`quantile`](crate::Distribution::quantile); `None` without any.
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

    /// A snapshot between packets' being sent and the port's refusing them once ended in 2⁶⁴ packets less some.
    #[test]
    fn what_is_taken_back_after_it_was_seen_is_not_seen_again() {
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

    proptest! {
        #[test]
        fn a_window_has_what_was_recorded_since_it_was_looked_at(parts in proptest::collection::vec(proptest::collection::vec(0u64..1 << 30, 0..30), 1..40)) {
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

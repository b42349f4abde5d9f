//! Log-linear histograms that one thread records and any thread reads.
//!
//! Each value below 16 has its own bucket. Above, every power of two is divided into 16 buckets, so a reported quantile
//! is at most 1/16 (6.25 %) above the true one and never below it. The layout is that of HDR histograms (Tene) with one
//! significant hexadecimal digit. Recording takes a shift, an index and an addition.

use crate::Counter;

/// A value's bucket is selected by its highest bit and by this number of bits after the highest bit.
const SUB_BITS: u32 = 4;
/// The number of buckets for each power of two.
const SUB: usize = 1 << SUB_BITS;
/// Values from 2^44 up share the last bucket (2^44 ticks are more than an hour). A quantile in this bucket is reported
/// as less than 2^44.
const TOP_BITS: u32 = 44;
/// The number of buckets.
const BUCKETS: usize = SUB + (TOP_BITS - SUB_BITS) as usize * SUB;

/// A histogram of values in any one unit. Counts and sum wrap around at 2^64.
#[derive(Debug)]
#[repr(C)]
pub struct Histogram {
    /// The sum of all values. Values that were taken back are subtracted.
    sum: Counter,
    /// The largest value that was ever recorded, even if it was taken back.
    max: Counter,
    /// The counts by bucket. All buckets above the one of `max` are empty.
    buckets: [Counter; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// Returns an empty histogram.
    #[must_use]
    pub fn new() -> Self {
        Self { sum: Counter::new(), max: Counter::new(), buckets: [const { Counter::new() }; BUCKETS] }
    }

    /// Records `value` `n` times. Only the histogram's one writer may call this. To take values back, the writer passes
    /// a negative `n` in two's complement to this function or to another recording function. The maximum remains.
    #[inline]
    pub fn record(&self, value: u64, n: u64) {
        self.record_sample(Sample::new(value), n);
    }

    /// Records a value with a known bucket `n` times.
    #[inline]
    pub fn record_sample(&self, sample: Sample, n: u64) {
        let mut tally = Tally::default();
        self.count(sample, n, &mut tally);
        self.settle(tally);
    }

    /// Records a value `n` times. The caller must know that the value does not exceed the [`max`](Self::max) so far. A
    /// larger value would be missing in the maximum, and possibly in windows.
    #[inline]
    pub fn record_within(&self, sample: Sample, n: u64) {
        if let Some(bucket) = self.buckets.get(sample.bucket) {
            bucket.add(n);
        }
        self.sum.add(sample.value.wrapping_mul(n));
    }

    /// Adds a value `n` times to its bucket and to `tally`. After several values, the caller must record the tally with
    /// [`settle`](Self::settle). Until then, the sum and the maximum lack these values.
    #[inline]
    pub fn count(&self, sample: Sample, n: u64, tally: &mut Tally) {
        // The bucket is always below BUCKETS, but the compiler does not know this.
        if let Some(bucket) = self.buckets.get(sample.bucket) {
            bucket.add(n);
        }
        tally.sum = tally.sum.wrapping_add(sample.value.wrapping_mul(n));
        tally.max = tally.max.max(sample.value);
    }

    /// Records the sum and the maximum of the counted values.
    #[inline]
    pub fn settle(&self, tally: Tally) {
        self.sum.add(tally.sum);
        if tally.max > self.max.get() {
            self.max.set(tally.max);
        }
    }

    /// Returns the buckets from the first one up to the bucket of the maximum. Without values, this is one bucket.
    pub(crate) fn used(&self) -> &[Counter] {
        &self.buckets[..=bucket_of(self.max.get())]
    }

    /// Returns the sum of all values, modulo 2^64.
    pub(crate) fn sum(&self) -> u64 {
        self.sum.get()
    }

    /// Returns the largest value so far, or 0 without values.
    #[inline]
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max.get()
    }

    /// Returns a copy of the current content.
    #[must_use]
    pub fn read(&self) -> Distribution {
        Distribution {
            counts: self.buckets.iter().map(Counter::get).collect(),
            sum: self.sum.get(),
            max: self.max.get(),
        }
    }
}

/// A value and its bucket.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    value: u64,
    bucket: usize,
}

impl Sample {
    /// Computes the bucket of a value.
    #[inline]
    #[must_use]
    pub fn new(value: u64) -> Self {
        Self { value, bucket: bucket_of(value) }
    }

    /// Returns the value.
    #[inline]
    #[must_use]
    pub fn value(self) -> u64 {
        self.value
    }
}

/// The sum and the maximum of values that [`count`](Histogram::count) has added to their buckets, and that are not yet
/// in the histogram's sum and maximum.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    sum: u64,
    max: u64,
}

/// Returns the bucket of a value.
#[inline]
fn bucket_of(value: u64) -> usize {
    let value = value.min((1 << TOP_BITS) - 1);
    let bits = 63 - (value | 1).leading_zeros();
    let shift = bits.saturating_sub(SUB_BITS);
    // Below 16, the value itself. Above, 16 buckets per power of two, after the buckets of the smaller powers.
    (shift as usize) * SUB + (value >> shift) as usize
}

/// Returns the largest value of a bucket.
pub(crate) fn upper_bound(bucket: usize) -> u64 {
    if bucket < 2 * SUB {
        return bucket as u64;
    }
    let shift = bucket / SUB - 1;
    let sub = (bucket % SUB + SUB) as u64;
    ((sub + 1) << shift) - 1
}

/// The content of a histogram at one moment, or values that were added one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// The counts by bucket. Buckets beyond the end are empty.
    counts: Vec<u64>,
    /// The sum of the values, modulo 2^64.
    sum: u64,
    /// The largest value, exactly; 0 without values.
    max: u64,
}

impl Distribution {
    /// Returns the number of values.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the mean, or `None` without samples.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let samples = self.samples();
        (samples > 0).then(|| self.sum as f64 / samples as f64)
    }

    /// Returns the largest value, exactly, or `None` without samples.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        (self.samples() > 0).then_some(self.max)
    }

    /// Returns the value that the fraction `quantile` (0 to 1) of the samples does not exceed. It is at most 1/16 too
    /// high and never too low. Returns `None` without samples.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        let samples = self.samples();
        let rank = ((quantile.clamp(0.0, 1.0) * samples as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(upper_bound(bucket).min(self.max))
    }

    /// Returns the number of values that are certainly above `limit`: the values in buckets that begin above it.
    #[must_use]
    pub fn above(&self, limit: u64) -> u64 {
        let first = bucket_of(limit) + 1;
        self.counts.iter().skip(first).sum()
    }

    /// Returns the buckets that have values, ascending: the largest value of the bucket, and the number of values in
    /// it. Values from 2^44 up are in the bucket whose largest value is 2^44 - 1.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let counted = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.map(|(bucket, count)| (upper_bound(bucket), *count))
    }

    /// Returns the sum of the values, modulo 2^64.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Adds a value `n` times.
    #[inline]
    pub fn add(&mut self, sample: Sample, n: u64) {
        if self.counts.len() <= sample.bucket {
            self.counts.resize(sample.bucket + 1, 0);
        }
        self.counts[sample.bucket] += n;
        self.sum = self.sum.wrapping_add(sample.value.wrapping_mul(n));
        self.max = self.max.max(sample.value);
    }

    /// Adds each value of another distribution `times` times, rounded to a whole number of values in each bucket. The
    /// added values estimate a period that is `times` as long as the period of the other distribution.
    pub fn add_times(&mut self, other: &Self, times: f64) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        let (mut expected, mut added) = (0.0, 0);
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            // The rounding error of a bucket is carried to the next one, so that the total is exact.
            expected += *more as f64 * times;
            let some = (expected.round() as u64).saturating_sub(added);
            *count += some;
            added += some;
        }
        self.sum = self.sum.wrapping_add((other.sum as f64 * times).round() as u64);
        self.max = self.max.max(other.max);
    }

    /// Adds another distribution's values.
    pub fn merge(&mut self, other: &Self) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum = self.sum.wrapping_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// Returns the values recorded after `earlier`, an earlier reading of the same histogram. The maximum is still the
    /// maximum of all values. If values were taken back after `earlier`, and if their sum is larger than the sum of the
    /// returned values, the sum and the mean are upper bounds from the buckets.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |at: usize| earlier.counts.get(at).copied().unwrap_or(0);
        let counts: Vec<u64> =
            self.counts.iter().enumerate().map(|(at, count)| count.saturating_sub(before(at))).collect();
        let sum = self.sum.wrapping_sub(earlier.sum);
        // A negative sum looks like a sum of at least 2^63. A real sum is at most the number of values times the
        // maximum.
        let most = u128::from(counts.iter().sum::<u64>()) * u128::from(self.max);
        let is_negative = sum.cast_signed() < 0 && u128::from(sum) > most;
        let at_most = |(at, count): (usize, &u64)| upper_bound(at).min(self.max).saturating_mul(*count);
        let sum = if is_negative { counts.iter().enumerate().map(at_most).fold(0, u64::saturating_add) } else { sum };
        Self { counts, sum, max: self.max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_histogram_has_no_statistics() {
        let empty = Histogram::new().read();
        assert_eq!((empty.samples(), empty.mean(), empty.quantile(0.5), empty.max()), (0, None, None, None));
    }

    #[test]
    fn every_value_lies_in_its_bucket() {
        for value in (0..=70_000).chain((0..44).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1])) {
            let bucket = bucket_of(value);
            assert!(upper_bound(bucket) >= value, "{value}");
            assert!(bucket == 0 || upper_bound(bucket - 1) < value, "{value}");
        }
        assert!(bucket_of(u64::MAX) < BUCKETS);
    }

    /// Regression test: a reading between the sending of packets and their refusal by the port gave a mean of nearly
    /// 2⁶⁴.
    #[test]
    fn values_taken_back_after_the_earlier_reading_do_not_make_the_mean_wrap() {
        let histogram = Histogram::new();
        histogram.record(1_000_000, 32);
        let earlier = histogram.read();
        histogram.record(1_000_000, 32u64.wrapping_neg());
        histogram.record(100, 1);
        let since = histogram.read().since(&earlier);
        assert_eq!(since.samples(), 1);
        assert!(since.mean().is_some_and(|mean| (100.0..110.0).contains(&mean)), "{:?}", since.mean());
        // A sum of 2^63 is not negative.
        let long = Histogram::new();
        long.record(1 << 43, 1 << 20);
        assert_eq!(long.read().since(&Histogram::new().read()).mean(), Some((1u64 << 43) as f64));
    }

    proptest! {
        #[test]
        fn multiplied_values_keep_their_total_and_quantiles(
            values in proptest::collection::vec(0u64..1 << 30, 1..200), times in 0.0f64..50.0,
        ) {
            let mut one = Distribution::default();
            values.iter().for_each(|value| one.add(Sample::new(*value), 1));
            let histogram = Histogram::new();
            values.iter().for_each(|value| histogram.record(*value, 1));
            let quantiles = |of: &Distribution| [0.1, 0.5, 0.99].map(|quantile| of.quantile(quantile));
            prop_assert_eq!(quantiles(&one), quantiles(&histogram.read()));
            let mut many = Distribution::default();
            many.add_times(&one, times);
            prop_assert_eq!(many.samples(), (values.len() as f64 * times).round() as u64);
            let mut twice = Distribution::default();
            twice.add_times(&one, 2.0);
            prop_assert_eq!(
                (twice.mean(), twice.quantile(0.5), twice.max()),
                (one.mean(), one.quantile(0.5), one.max()),
            );
        }

        #[test]
        fn quantiles_are_at_most_a_sixteenth_too_high(
            mut values in proptest::collection::vec(0u64..1 << 40, 1..300), quantile in 0.0f64..=1.0,
        ) {
            let histogram = Histogram::new();
            for &value in &values {
                histogram.record(value, 1);
            }
            values.sort_unstable();
            let rank = ((quantile * values.len() as f64).ceil() as usize).max(1);
            let truth = values[rank - 1];
            let reported = histogram.read().quantile(quantile).expect("there are samples");
            prop_assert!(reported >= truth && reported <= truth + truth / 16, "{} reported as {}", truth, reported);
        }

        #[test]
        fn buckets_have_each_value_once_below_their_bound(
            values in proptest::collection::vec(0u64..1 << 40, 0..100),
        ) {
            let histogram = Histogram::new();
            values.iter().for_each(|&value| histogram.record(value, 1));
            let read = histogram.read();
            let buckets: Vec<_> = read.buckets().collect();
            prop_assert!(buckets.is_sorted_by(|(before, _), (bound, _)| before < bound));
            let mut below = 0;
            for (bound, count) in &buckets {
                below += count;
                prop_assert!(*count > 0);
                prop_assert_eq!(values.iter().filter(|value| **value <= *bound).count() as u64, below);
            }
            prop_assert_eq!((below, read.sum()), (values.len() as u64, values.iter().sum::<u64>()));
        }

        #[test]
        fn a_difference_and_a_merge_undo_each_other(
            first in proptest::collection::vec(0u64..1 << 30, 0..50),
            second in proptest::collection::vec(0u64..1 << 30, 0..50),
        ) {
            let histogram = Histogram::new();
            first.iter().for_each(|&value| histogram.record(value, 2));
            let before = histogram.read();
            second.iter().for_each(|&value| histogram.record(value, 1));
            let mut both = histogram.read().since(&before);
            prop_assert_eq!(both.samples(), second.len() as u64);
            both.merge(&before);
            prop_assert_eq!(both, histogram.read());
        }
    }
}

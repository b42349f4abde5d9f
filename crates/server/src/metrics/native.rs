//! Native histograms: buckets whose bounds are powers of a base, of which only those with values are written.
//!
//! The format is that of Prometheus: a schema of 3 divides each power of two into 8 buckets, so a bucket's upper bound
//! is at most 9.1 % above its lower bound.

use std::collections::BTreeMap;

/// The schema: bucket `i` contains the values above `2^((i - 1) / 8)` up to `2^(i / 8)`.
pub const SCHEMA: i32 = 3;

/// The number of buckets for each power of two: `2^SCHEMA`.
const PER_DOUBLING: f64 = 8.0;

/// Values up to this one are in the zero bucket: 2^-30 seconds, just below a nanosecond. Prometheus merges the zero
/// buckets of two histograms exactly, because a power of two is a bound in every schema.
pub const ZERO_THRESHOLD: f64 = 1.0 / (1_u64 << 30) as f64;

/// The buckets of a native histogram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NativeBuckets {
    /// The number of values in the zero bucket.
    pub zero: u64,
    /// Runs of successive buckets: the gap to the run before (for the first run, the index of its first bucket), and
    /// the number of buckets.
    pub spans: Vec<(i32, u32)>,
    /// For each bucket of all runs, the difference to the count of the bucket before.
    pub deltas: Vec<i64>,
}

impl NativeBuckets {
    /// Returns the buckets of fine buckets, each with its upper bound and its number of values. A fine bucket counts in
    /// the bucket that contains its upper bound.
    #[must_use]
    pub fn of(fine: &[(f64, u64)]) -> Self {
        let mut native = Self::default();
        let mut counts: BTreeMap<i32, u64> = BTreeMap::new();
        for (upper, count) in fine.iter().filter(|(_, count)| *count > 0) {
            if *upper <= ZERO_THRESHOLD {
                native.zero = native.zero.saturating_add(*count);
            } else {
                let sum = counts.entry(bucket_of(*upper)).or_default();
                *sum = sum.saturating_add(*count);
            }
        }
        let (mut next, mut before) = (0_i32, 0_i64);
        for (index, count) in counts {
            match native.spans.last_mut() {
                Some((_, length)) if index == next => *length += 1,
                _ => native.spans.push((index - next, 1)),
            }
            let count = count.cast_signed();
            native.deltas.push(count.wrapping_sub(before));
            (next, before) = (index + 1, count);
        }
        native
    }
}

/// Returns the index of the bucket that contains a value above 0.
fn bucket_of(value: f64) -> i32 {
    // At most 2^10 powers of two with 8 buckets each.
    (value.log2() * PER_DOUBLING).ceil() as i32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads the buckets back: the index and the count of each, as Prometheus does.
    fn read(native: &NativeBuckets) -> Vec<(i32, u64)> {
        let (mut index, mut count, mut deltas) = (0, 0, native.deltas.iter());
        let mut buckets = Vec::new();
        for (offset, length) in &native.spans {
            index += offset;
            for _ in 0..*length {
                count += deltas.next().expect("a delta for each bucket");
                buckets.push((index, u64::try_from(count).expect("a count")));
                index += 1;
            }
        }
        assert_eq!(deltas.next(), None);
        buckets
    }

    #[test]
    fn buckets_end_at_powers_of_the_base() {
        assert_eq!([1.0, 2.0, 0.5, 1.09, 1.091].map(bucket_of), [0, 8, -8, 1, 2]);
        let native = NativeBuckets::of(&[(0.0, 3), (1e-9, 2), (0.5, 5), (0.501, 4), (1.0, 0), (2.0, 7)]);
        assert_eq!(native.zero, 3);
        assert_eq!(read(&native), [(-239, 2), (-8, 5), (-7, 4), (8, 7)]);
        assert_eq!(native.spans, [(-239, 1), (230, 2), (14, 1)]);
        assert_eq!(native.deltas, [2, 3, -1, 3]);
        assert_eq!(NativeBuckets::of(&[]), NativeBuckets::default());
    }

    proptest! {
        #[test]
        fn every_value_is_in_one_bucket_that_contains_it(
            fine in prop::collection::vec((1e-12_f64..1e3, 0_u64..1_000_000), 0..60),
        ) {
            let native = NativeBuckets::of(&fine);
            let buckets = read(&native);
            prop_assert!(buckets.windows(2).all(|pair| pair[0].0 < pair[1].0));
            prop_assert!(buckets.iter().all(|(_, count)| *count > 0));
            let sum: u64 = buckets.iter().map(|(_, count)| count).sum();
            prop_assert_eq!(native.zero + sum, fine.iter().map(|(_, count)| count).sum::<u64>());
            for (index, count) in buckets {
                let bound = |index: i32| (f64::from(index) / PER_DOUBLING).exp2();
                // A value on a bound may be on either side of it, because the logarithm is rounded.
                let (low, high) = (bound(index - 1) * (1.0 - 1e-12), bound(index) * (1.0 + 1e-12));
                let within = fine.iter().filter(|(value, _)| *value > ZERO_THRESHOLD && *value > low && *value <= high);
                prop_assert_eq!(count, within.map(|(_, count)| count).sum::<u64>());
            }
        }
    }
}

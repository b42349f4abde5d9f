//! Families of samples, independent of the format in which they are written.

use super::table::FamilyId;

/// A label of a sample: name and value. A label that does not exist is left out.
pub type Label = (&'static str, String);

/// The kind of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricType {
    /// A count that only increases while the instance or the server runs.
    Counter,
    /// A value that increases and decreases.
    Gauge,
    /// A distribution.
    Histogram,
    /// Labels only: the value is 1. Formats without this kind write a gauge.
    Info,
}

/// The unit of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of the things that the family's name states.
    None,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// A share, 0 to 1.
    Ratio,
}

impl Unit {
    /// Returns the unit's name, with which the family's name ends.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Seconds => Some("seconds"),
            Self::Bytes => Some("bytes"),
            Self::Ratio => Some("ratio"),
        }
    }
}

/// A family: samples of one quantity with different labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// The identifier.
    pub id: FamilyId,
    /// The name, including the `_total` of a counter and the `_info` of an info.
    pub name: &'static str,
    /// One sentence on the meaning.
    pub help: &'static str,
    /// The unit.
    pub unit: Unit,
    /// The kind.
    pub kind: MetricType,
    /// The samples. A family without samples is not written.
    pub samples: Vec<Sample>,
}

impl Family {
    /// Returns the name without the `_total` of a counter and the `_info` of an info: the name in OpenMetrics.
    #[must_use]
    pub fn base(&self) -> &'static str {
        let suffix = match self.kind {
            MetricType::Counter => "_total",
            MetricType::Info => "_info",
            MetricType::Gauge | MetricType::Histogram => "",
        };
        self.name.strip_suffix(suffix).unwrap_or(self.name)
    }
}

/// A sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The labels, in the order in which they are written.
    pub labels: Vec<Label>,
    /// The value.
    pub value: Value,
}

/// The value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A count.
    Count(u64),
    /// A finite number.
    Number(f64),
    /// A distribution.
    Distribution(Histogram),
}

/// A distribution in fine buckets. Formats write coarser buckets.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// The bounds of the classic buckets, ascending, without infinity.
    pub bounds: &'static [f64],
    /// The fine buckets: upper bound (inclusive, finite) and number of values, ascending.
    pub fine: Vec<(f64, u64)>,
    /// The sum of the values.
    pub sum: f64,
    /// Whether formats with native histograms write one.
    pub is_native: bool,
}

impl Histogram {
    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        sum(self.fine.iter().map(|(_, count)| *count))
    }

    /// Returns the classic buckets: each bound, and the number of values up to it. A fine bucket counts under the first
    /// bound that is not below its own upper bound. Values above the last bound are in no bucket.
    #[must_use]
    pub fn classic(&self) -> Vec<(f64, u64)> {
        let mut fine = self.fine.iter().peekable();
        let mut total = 0_u64;
        let up_to = |bound: &f64| {
            while let Some((_, count)) = fine.next_if(|(upper, _)| upper <= bound) {
                total = total.saturating_add(*count);
            }
            (*bound, total)
        };
        self.bounds.iter().map(up_to).collect()
    }

    /// Adds the values of `other`, which has the same bounds.
    pub fn add(&mut self, other: &Self) {
        self.sum += other.sum;
        for (upper, count) in &other.fine {
            match self.fine.binary_search_by(|(known, _)| known.total_cmp(upper)) {
                Ok(at) => self.fine[at].1 = self.fine[at].1.saturating_add(*count),
                Err(at) => self.fine.insert(at, (*upper, *count)),
            }
        }
    }
}

/// Returns the sum of counts. An instance may count a packet before it takes the packet back, so that a count may be
/// close to 2^64 for a moment.
pub(super) fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: &[f64] = &[1.0, 2.0, 5.0, 10.0];

    /// Adds the values one by one, each with its upper bound in sixteenths.
    fn histogram(values: &[(u16, u64)]) -> Histogram {
        let mut histogram = Histogram { bounds: BOUNDS, fine: Vec::new(), sum: 0.0, is_native: false };
        for (sixteenths, count) in values {
            let fine = vec![(f64::from(*sixteenths) / 16.0, *count)];
            histogram.add(&Histogram { bounds: BOUNDS, fine, sum: 0.0, is_native: false });
        }
        histogram
    }

    #[test]
    fn a_fine_bucket_counts_under_the_first_bound_that_is_not_below_it() {
        let histogram = histogram(&[(16, 1), (17, 2), (32, 4), (80, 8), (161, 16)]);
        assert_eq!(histogram.classic(), [(1.0, 1), (2.0, 7), (5.0, 15), (10.0, 15)]);
        assert_eq!(histogram.count(), 31);
    }

    proptest! {
        /// The model counts every value in every bucket by itself.
        #[test]
        fn classic_buckets_agree_with_the_fine_ones(values in prop::collection::vec((0u16..400, 0u64..1_000), 0..40)) {
            let histogram = histogram(&values);
            prop_assert!(histogram.fine.windows(2).all(|pair| pair[0].0 < pair[1].0));
            prop_assert_eq!(histogram.count(), values.iter().map(|(_, count)| count).sum::<u64>());
            let classic = histogram.classic();
            prop_assert!(classic.windows(2).all(|pair| pair[0].1 <= pair[1].1));
            for (bound, total) in classic {
                let within = values.iter().filter(|(upper, _)| f64::from(*upper) / 16.0 <= bound);
                prop_assert_eq!(total, within.map(|(_, count)| count).sum::<u64>());
            }
        }
    }
}

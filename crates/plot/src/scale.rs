//! Axis scales: the position of a value between the two ends, and the values that have a mark.

use crate::number::tick;

/// The scale of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scale {
    /// The value at the low end.
    low: f64,
    /// The value at the high end, above `low`.
    high: f64,
    /// True for a logarithmic scale, whose ends are above 0.
    log: bool,
}

impl Scale {
    /// Returns a scale that contains all `values`, which must be finite, and above 0 if `log` is set. An axis has no
    /// given end, the low end `from`, or both ends, where `from` must be less than `to`. Given ends are not changed. An
    /// end that is not given is free: on a linear axis, it is moved outwards to a mark. If all values are equal and
    /// both ends are free, the axis is widened around the values, so that they lie in the middle. `marks` is the
    /// approximate number of marks.
    pub(crate) fn around(
        values: impl Iterator<Item = f64>,
        log: bool,
        (from, to): (Option<f64>, Option<f64>),
        marks: usize,
    ) -> Self {
        let (mut low, mut high) =
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        if low > high {
            (low, high) = (1.0, 1.0);
        }
        low = from.unwrap_or(low);
        high = to.unwrap_or(high).max(low);
        if log {
            if low == high {
                (low, high) = (low / 2.0, high * 2.0);
            }
            return Self { low, high, log };
        }
        if high - low <= low.abs().max(high.abs()) * 1e-9 {
            let around = if low == 0.0 { 1.0 } else { low.abs() * 0.05 };
            (low, high) = (if from.is_some() { low } else { low - around }, high + around);
        }
        // The margin keeps the values at a distance from the free ends.
        let margin = (high - low) * 0.04;
        let step = step(high - low, marks);
        let (low, high) =
            (if from.is_some() { low } else { low - margin }, if to.is_some() { high } else { high + margin });
        let low = if from.is_some() { low } else { (low / step + 1e-9).floor() * step };
        let high = if to.is_some() { high } else { (high / step - 1e-9).ceil() * step };
        Self { low, high, log }
    }

    /// Returns a linear scale with exactly these ends.
    pub(crate) fn between(low: f64, high: f64) -> Self {
        Self { low, high, log: false }
    }

    /// Returns both ends.
    pub(crate) fn ends(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Returns the position of a value as a fraction of the axis: 0 at the low end, 1 at the high end.
    pub(crate) fn place(&self, value: f64) -> f64 {
        if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    /// Returns the values that have a mark, with their names. There are about `most` marks or fewer.
    pub(crate) fn marks(&self, most: usize) -> Vec<(f64, String)> {
        if self.log {
            return self.powers(most);
        }
        let step = step(self.high - self.low, most);
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        let largest = self.low.abs().max(self.high.abs());
        (first..=last).map(|number| number as f64 * step).map(|value| (value, tick(value, step, largest))).collect()
    }

    /// Returns the marks of a logarithmic axis: powers of ten. If there is room, there are also marks at 2 and 5 times,
    /// or at 3 times, each power of ten. If there is too little room, only every n-th power of ten has a mark.
    fn powers(&self, most: usize) -> Vec<(f64, String)> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let between: [&[f64]; 3] = [&[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];
        let held = |value: &f64| *value >= self.low * (1.0 - 1e-9) && *value <= self.high * (1.0 + 1e-9);
        let of = |factors: &[f64], skip: usize| -> Vec<f64> {
            let powers = (first..=last).step_by(skip).map(|power| 10f64.powi(power));
            powers.flat_map(|power| factors.iter().map(move |factor| power * factor)).filter(held).collect()
        };
        let fits = between.iter().map(|factors| of(factors, 1)).find(|marks| marks.len() <= most);
        let marks = fits.unwrap_or_else(|| of(&[1.0], (last - first) as usize / most.max(1) + 1));
        marks.into_iter().map(|value| (value, crate::engineering(value))).collect()
    }
}

/// Returns the distance between marks: the smallest number that is 1, 2 or 5 times a power of ten and fits into `span`
/// at most `most` times.
fn step(span: f64, most: usize) -> f64 {
    let least = span / most.max(1) as f64;
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= least * (1.0 - 1e-9))
        .unwrap_or(power * 10.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(scale: &Scale, most: usize) -> Vec<String> {
        scale.marks(most).into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn marks_are_round() {
        let scale = Scale::around([0.0, 1_830_000.0].into_iter(), false, (Some(0.0), None), 5);
        assert_eq!(names(&scale, 5), ["0", "0.5M", "1M", "1.5M", "2M"]);
        let scale = Scale::around([3.0, 2_000.0].into_iter(), true, (None, None), 9);
        assert_eq!(names(&scale, 9), ["5", "10", "20", "50", "100", "200", "500", "1k", "2k"]);
        let scale = Scale::around([1.0, 1e12].into_iter(), true, (None, None), 4);
        assert_eq!(names(&scale, 4), ["1", "10k", "100M", "1T"]);
    }

    #[test]
    fn one_value_lies_in_the_middle() {
        let scale = Scale::around([41.0, 41.0].into_iter(), false, (None, None), 5);
        assert!((0.2..0.8).contains(&scale.place(41.0)), "{scale:?}");
        assert!(Scale::around(std::iter::empty(), false, (Some(0.0), None), 5).place(0.5).is_finite());
    }

    proptest! {
        #[test]
        fn every_value_has_a_place_and_marks_rise(
            values in proptest::collection::vec(-1e12f64..1e12, 1..20), zero: bool, most in 2usize..12,
        ) {
            let from = zero.then_some(values.iter().copied().fold(0.0, f64::min));
            let scale = Scale::around(values.iter().copied(), false, (from, None), most);
            for value in values {
                prop_assert!((-1e-6..=1.0 + 1e-6).contains(&scale.place(value)), "{} in {:?}", value, scale);
            }
            let marks = scale.marks(most);
            prop_assert!(marks.len() <= most + 2, "{:?}", marks);
            prop_assert!(marks.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 != pair[1].1), "{:?}", marks);
        }

        #[test]
        fn logarithmic_marks_lie_on_the_axis(low in 1e-9f64..1e9, times in 1.0f64..1e9, most in 2usize..12) {
            let scale = Scale::around([low, low * times].into_iter(), true, (None, None), most);
            for (value, _) in scale.marks(most) {
                prop_assert!((-1e-6..=1.0 + 1e-6).contains(&scale.place(value)));
            }
            prop_assert!(scale.marks(most).len() <= most + 1);
        }
    }
}

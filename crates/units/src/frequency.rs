//! The frequency of a clock: converts its ticks to spans of time and back.

use crate::{Nanos, Ticks};

/// The number of ticks per second.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Frequency {
    hertz: f64,
}

impl Frequency {
    /// Creates a frequency of `hertz` ticks per second. Values below 1 become 1.
    #[must_use]
    pub fn new(hertz: f64) -> Self {
        Self { hertz: if hertz >= 1.0 { hertz } else { 1.0 } }
    }

    /// Returns the ticks per second.
    #[must_use]
    pub fn hertz(self) -> f64 {
        self.hertz
    }

    /// Returns the number of ticks in a span, rounded down. Exact if a tick is a nanosecond.
    #[must_use]
    pub fn ticks(self, span: Nanos) -> Ticks {
        if self.is_nano() { Ticks(span.0) } else { Ticks((span.0 as f64 * self.hertz / 1e9) as u64) }
    }

    /// Returns the length of a span of ticks, rounded to the nearest nanosecond. Exact if a tick is a nanosecond.
    #[must_use]
    pub fn nanos(self, span: Ticks) -> Nanos {
        if self.is_nano() { Nanos(span.0) } else { Nanos((span.0 as f64 / self.hertz * 1e9).round() as u64) }
    }

    /// Returns whether a tick is a nanosecond. Ticks of a nanosecond are not converted, because a floating-point
    /// quotient could differ by one.
    #[expect(clippy::float_cmp, reason = "the number is exactly the one passed to `new`")]
    fn is_nano(self) -> bool {
        self.hertz == 1e9
    }

    /// Returns the length of a span of ticks in microseconds.
    #[must_use]
    pub fn micros(self, span: f64) -> f64 {
        span / self.hertz * 1e6
    }

    /// Returns the length of a span of ticks in seconds.
    #[must_use]
    pub fn seconds(self, span: Ticks) -> f64 {
        span.0 as f64 / self.hertz
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: 3 ticks of a nanosecond became 2 ns, because the quotient was rounded down.
    #[test]
    fn ticks_of_a_nanosecond_are_nanoseconds_and_back() {
        let nano = Frequency::new(1e9);
        let steps = (0..200_000).chain((0..20_000).map(|step| step * 922_337_203_685_477));
        for span in steps.chain([1_700_000_000_123_456_789, (1 << 53) + 1, u64::MAX]) {
            assert_eq!((nano.nanos(Ticks(span)), nano.ticks(Nanos(span))), (Nanos(span), Ticks(span)));
        }
        // For another clock, the nearest nanosecond.
        let fast = Frequency::new(3e9);
        assert_eq!([1, 2, 3, 3_000_000_001].map(|ticks| fast.nanos(Ticks(ticks)).0), [0, 1, 1, 1_000_000_000]);
    }
}

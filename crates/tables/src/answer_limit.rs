//! A rate limiter for answers that other hosts can make this host send.
//!
//! It is a token bucket that stores only the instant at which the bucket would be full again (the generic cell rate
//! algorithm, ITU-T I.371 annex A): it takes one word, is exact, and needs no refilling.

use forebay_units::{Frequency, Ticks};

/// Allows a number of answers per second on average. All answers of a second may be sent at once.
pub struct AnswerLimit {
    /// The time in which the bucket gains one token, in ticks. If it is 0, no answer is allowed.
    each: u64,
    /// The largest distance from now to `full_at` at which an answer is allowed, in ticks.
    burst: u64,
    /// The instant at which the bucket is full again, in ticks.
    full_at: u64,
}

impl AnswerLimit {
    /// Returns a limit of `per_second` answers; 0 allows none. `frequency` is the frequency of the clock whose time
    /// [`take`](Self::take) gets.
    #[must_use]
    pub fn new(per_second: u32, frequency: Frequency) -> Self {
        let second = frequency.ticks(forebay_units::Nanos(1_000_000_000)).0.max(1);
        let each = second.checked_div(per_second.into()).map_or(0, |each| each.max(1));
        Self { each, burst: each * u64::from(per_second.max(1) - 1), full_at: 0 }
    }

    /// If one more answer is allowed now, takes a token and returns true. Otherwise returns false.
    pub fn take(&mut self, now: Ticks) -> bool {
        let full_at = self.full_at.max(now.0);
        if self.each == 0 || full_at - now.0 > self.burst {
            return false;
        }
        self.full_at = full_at.saturating_add(self.each);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bucket_with_rate_0_allows_nothing() {
        let mut bucket = AnswerLimit::new(0, Frequency::new(1e9));
        assert!((0..10).all(|second| !bucket.take(Ticks(second * 1_000_000_000))));
    }

    #[test]
    fn a_second_allows_exactly_its_rate() {
        let mut bucket = AnswerLimit::new(100, Frequency::new(1e9));
        assert_eq!((0..1_000).filter(|_| bucket.take(Ticks(5))).count(), 100, "all at once");
        let later = |after: u64| Ticks(5 + after);
        assert!(!bucket.take(later(9_999_999)));
        assert!(
            bucket.take(later(10_000_000)) && !bucket.take(later(10_000_000)),
            "one more every hundredth of a second"
        );
    }

    proptest! {
        #[test]
        fn it_equals_a_bucket_that_fills_continuously(
            rate in 1u32..1_000, steps in prop::collection::vec(0u64..20_000_000, 1..300),
        ) {
            let mut bucket = AnswerLimit::new(rate, Frequency::new(1e9));
            let each = 1_000_000_000 / u64::from(rate);
            // The model: fractions of tokens, in ticks, that accumulate with time up to the bucket's size.
            let (mut level, mut now, size) = (each * u64::from(rate), 0, each * u64::from(rate));
            for step in steps {
                now += step;
                level = (level + step).min(size);
                let passes = level >= each;
                if passes {
                    level -= each;
                }
                prop_assert_eq!(bucket.take(Ticks(now)), passes, "at {}", now);
            }
        }
    }
}

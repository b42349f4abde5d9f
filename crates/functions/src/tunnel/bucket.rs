//! A token bucket without tokens: how many answers a second strangers can make us send.
//!
//! What is kept is the instant at which the bucket would be full again (the generic cell rate algorithm, ITU-T I.371
//! annex A): one word, exact, nothing to refill.

use forebay_measure::Frequency;
use forebay_packet::Ticks;

/// Lets through so many a second on average, and at once as many as a second's worth.
pub(crate) struct Bucket {
    /// A token's worth; 0: nothing passes.
    each: u64,
    /// How far ahead of the time the bucket's instant may be.
    burst: u64,
    full_at: u64,
}

impl Bucket {
    pub(crate) fn new(per_second: u32, frequency: Frequency) -> Self {
        let second = frequency.ticks(forebay_measure::Nanos(1_000_000_000)).0.max(1);
        let each = second.checked_div(per_second.into()).map_or(0, |each| each.max(1));
        Self { each, burst: each * u64::from(per_second.max(1) - 1), full_at: 0 }
    }

    /// Whether one more may pass now; it is taken where so.
    pub(crate) fn take(&mut self, now: Ticks) -> bool {
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
    fn a_bucket_of_none_lets_none_through() {
        let mut bucket = Bucket::new(0, Frequency::new(1e9));
        assert!((0..10).all(|second| !bucket.take(Ticks(second * 1_000_000_000))));
    }

    #[test]
    fn a_second_has_its_rate_and_no_more() {
        let mut bucket = Bucket::new(100, Frequency::new(1e9));
        assert_eq!((0..1_000).filter(|_| bucket.take(Ticks(5))).count(), 100, "all at once");
        let later = |after: u64| Ticks(5 + after);
        assert!(!bucket.take(later(9_999_999)));
        assert!(bucket.take(later(10_000_000)) && !bucket.take(later(10_000_000)), "one more each hundredth");
    }

    proptest! {
        #[test]
        fn it_is_a_bucket_that_fills_drop_by_drop(
            rate in 1u32..1_000, steps in prop::collection::vec(0u64..20_000_000, 1..300),
        ) {
            let mut bucket = Bucket::new(rate, Frequency::new(1e9));
            let each = 1_000_000_000 / u64::from(rate);
            // The model: fractions of tokens, in ticks, that come in with the time up to the bucket's size.
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

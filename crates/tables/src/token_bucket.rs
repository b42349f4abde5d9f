//! Token buckets with exact arithmetic, for meters and shapers.
//!
//! A tick adds as many tokens as the rate has bits per second. A byte costs eight times as many tokens as a second has
//! ticks. Both are whole numbers, so nothing is ever rounded and a bucket is exact to a fraction of a byte after any
//! time. A packet takes one multiplication and no division. An elapsed time that is longer than the time to fill the
//! bucket is shortened to that time before the multiplication, so that no product overflows.

use forebay_units::{BitRate, Bytes, Frequency, Ticks};

/// The allowed rates, in bits per second.
const RATES: std::ops::RangeInclusive<f64> = 1e3..=1e12;

/// A rate or a burst out of range. The message gives the value and the allowed range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// The rate is out of range.
    #[error("{0}: allowed are 1kbps to 1Tbps")]
    Rate(String),
    /// The burst is 0 or more than [`Scale::most`]. The second text is that limit.
    #[error("{0}: allowed are 1B to {1}")]
    Burst(String, String),
}

/// The unit of tokens, the same for all buckets on one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The number of tokens that a byte costs: eight times the number of ticks per second.
    per_byte: u64,
}

impl Scale {
    /// Creates the scale of a clock. Its frequency is rounded to whole hertz.
    #[must_use]
    pub fn new(frequency: Frequency) -> Self {
        // With a faster clock, the largest burst ([`most`](Self::most)) would be less than 8 MiB. No real clock is that
        // fast.
        Self { per_byte: 8 * (frequency.hertz().round() as u64).clamp(1, 1 << 36) }
    }

    /// Returns the cost of `bytes` bytes, in tokens.
    #[inline]
    #[must_use]
    pub fn cost(self, bytes: usize) -> u64 {
        bytes as u64 * self.per_byte
    }

    /// Returns the largest burst, in whole mebibytes. Three such bursts and a tick's tokens fit into 64 bits.
    #[must_use]
    pub fn most(self) -> Bytes {
        Bytes(((1 << 62) / self.per_byte) >> 20 << 20)
    }

    /// Returns the number of tokens of a burst.
    ///
    /// # Errors
    /// The burst is 0 or more than [`most`](Self::most).
    pub fn burst(self, burst: Bytes) -> Result<u64, RateError> {
        if burst.0 == 0 || burst > self.most() {
            return Err(RateError::Burst(burst.to_string(), self.most().to_string()));
        }
        Ok(burst.0 * self.per_byte)
    }
}

/// The fill rate and the size of a bucket. Buckets with the same limits can share one value, because the caller keeps
/// the tokens of each bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The number of tokens that a tick adds, equal to the rate in bits per second.
    pub per_tick: u64,
    /// The number of tokens of a full bucket.
    pub full: u64,
    /// The number of ticks that it takes to fill an empty bucket, rounded up.
    pub fill: u64,
}

impl Rate {
    /// Creates the limits of a bucket that holds `full` tokens ([`Scale::burst`]) and fills at this rate. The rate is
    /// rounded to whole bits per second.
    ///
    /// # Errors
    /// The rate is below 1 kbit/s or above 1 Tbit/s.
    pub fn new(rate: BitRate, full: u64) -> Result<Self, RateError> {
        if !RATES.contains(&rate.0) {
            return Err(RateError::Rate(rate.to_string()));
        }
        let per_tick = rate.0.round() as u64;
        Ok(Self { per_tick, full, fill: full.div_ceil(per_tick) })
    }

    /// Returns the number of tokens that a bucket will have after `span`, if it has `tokens` now (at most `full`).
    #[inline]
    #[must_use]
    pub fn after(self, tokens: u64, span: Ticks) -> u64 {
        // The product is at most a full bucket plus the tokens of one tick, and `tokens` is at most a full bucket. So
        // the sum cannot overflow ([`Scale::most`]).
        (tokens + span.0.min(self.fill) * self.per_tick).min(self.full)
    }

    /// Returns the number of ticks, rounded up, in which a bucket fills from `tokens` to `wanted`. Returns
    /// [`Ticks::NEVER`] if the bucket cannot hold `wanted`.
    #[inline]
    #[must_use]
    pub fn until(self, tokens: u64, wanted: u64) -> Ticks {
        if wanted > self.full {
            return Ticks::NEVER;
        }
        Ticks(wanted.saturating_sub(tokens).div_ceil(self.per_tick))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(hertz: f64, bits: f64, burst: u64) -> (Scale, Rate) {
        let scale = Scale::new(Frequency::new(hertz));
        let full = scale.burst(Bytes(burst)).expect("a burst");
        (scale, Rate::new(BitRate(bits), full).expect("a rate"))
    }

    #[test]
    fn an_hour_in_steps_is_an_hour_at_once_to_the_last_token() {
        // 2 100 000 011 Hz: a clock whose ticks no rate divides.
        for bits in [1e3, 64_001.0, 1e9 + 7.0, 400e9] {
            let (scale, rate) = rate(2_100_000_011.0, bits, 100_000_000);
            let hour = 3_600 * 2_100_000_011u64;
            // The tokens that an ever-empty bucket gains in steps of many sizes.
            let (mut now, mut taken, mut step) = (0u64, 0u128, 1u64);
            while now < hour {
                let span = step.min(hour - now).min(rate.fill - 1);
                taken += u128::from(rate.after(0, Ticks(span)));
                (now, step) = (now + span, step % 9_973_001 + 104_729);
            }
            assert_eq!(taken, u128::from(rate.per_tick) * u128::from(hour), "{bits} bit/s");
            let bytes = taken / u128::from(scale.cost(1));
            assert_eq!(bytes, bits as u128 * 3_600 / 8, "{bits} bit/s, in bytes");
        }
    }

    #[test]
    fn years_of_silence_fill_a_bucket_and_no_more() {
        for (hertz, bits) in [(1e9, 1e12), (5e9, 1e3), (1.0, 1e12), (1e9, 1e3)] {
            let scale = Scale::new(Frequency::new(hertz));
            let full = scale.burst(scale.most()).expect("the largest burst");
            let rate = Rate::new(BitRate(bits), full).expect("a rate");
            for span in [rate.fill, rate.fill + 1, 1 << 63, u64::MAX] {
                assert_eq!(rate.after(0, Ticks(span)), full);
                assert_eq!(rate.after(full, Ticks(span)), full);
            }
        }
    }

    #[test]
    fn values_out_of_range_are_refused_and_the_error_has_the_range() {
        let scale = Scale::new(Frequency::new(1e9));
        let error = |bits| Rate::new(BitRate(bits), 1).expect_err("refused").to_string();
        assert_eq!(error(999.0), "999bps: allowed are 1kbps to 1Tbps");
        assert_eq!(error(2e12), "2Tbps: allowed are 1kbps to 1Tbps");
        let error = scale.burst(Bytes(0)).expect_err("refused").to_string();
        assert_eq!(error, "0B: allowed are 1B to 549MiB");
        assert!(scale.burst(Bytes(1 << 40)).is_err());
    }

    proptest! {
        #[test]
        fn a_wait_is_the_shortest_that_does(
            hertz in 1_000u64..6_000_000_000,
            bits in 1_000u64..1_000_000_000_000,
            burst in 1u64..10_000_000,
            tokens: u64,
            wanted: u64,
        ) {
            let (_, rate) = rate(hertz as f64, bits as f64, burst);
            let (tokens, wanted) = (tokens % (rate.full + 1), wanted % (rate.full + 1));
            let wait = rate.until(tokens, wanted);
            prop_assert!(rate.after(tokens, wait) >= wanted);
            if wait > Ticks::ZERO {
                prop_assert!(rate.after(tokens, Ticks(wait.0 - 1)) < wanted);
            }
            prop_assert_eq!(rate.until(tokens, rate.full + 1), Ticks::NEVER);
        }
    }
}

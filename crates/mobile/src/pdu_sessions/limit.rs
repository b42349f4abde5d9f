//! Rate limits of users and bearers, kept in one word each, so that several workers can share them.
//!
//! This is the virtual scheduling algorithm (ITU-T I.371 annex A), which is equivalent to a token bucket. The word is
//! the instant at which the bucket will be full again. A packet that passes moves the instant by the time that its
//! bytes take at the rate. A packet does not pass if the distance from now to the moved instant would be longer than
//! the time that a full bucket lasts.
//!
//! Instants are counted in units of 1/256 tick and wrap around at the end of a word. The time of a byte is rounded to
//! 2^-24 ticks, and the time of a packet is rounded down to a unit. For a packet of up to 65 536 bytes, the counted
//! time is therefore less than 1.5 units too short, or at most 0.5 units too long.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_graph::short;
use forebay_units::{BitRate, Bytes, Frequency, Nanos, Ticks};

/// The binary logarithm of 256, the number of parts of a tick. Instants are counted in parts.
const PARTS: u32 = 8;
/// The fraction bits of the time of one byte, in addition to [`PARTS`]: that time is in units of 2^-24 ticks.
const FINER: u32 = 16;
/// The greatest difference between workers' clocks that is expected, in parts of a tick. Packets move the instant of a
/// bucket at most a burst ahead of now. An instant that appears to be ahead by more than a burst and this difference is
/// an instant in the past.
const SKEW: u64 = 1 << (32 + PARTS);
/// The longest time that a full bucket may last, in parts of a tick.
const MOST: u64 = 1 << 60;
/// The least size of a bucket without a stated burst, in bytes. A packet of any length that interfaces support fits in
/// it.
const LEAST_BURST: f64 = 16_384.0;
/// The least and the greatest rate, in bits per second.
const RATES: std::ops::RangeInclusive<f64> = 1e3..=1e12;

/// A rate, and the burst that may be sent at once. The default has no rate and does not limit packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limit {
    /// The time of a byte in 2^-24 ticks; 0 without a rate.
    per_byte: u64,
    /// The time that a full bucket lasts, in parts of a tick.
    burst: u64,
}

/// The settings with which a rate in a text is converted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) frequency: Frequency,
    /// The time that buckets without a stated burst last.
    pub(super) burst: Nanos,
}

impl Limit {
    /// Parses a limit: a rate such as `50Mbps`, or a rate and a burst such as `50Mbps/64KiB`.
    pub(super) fn parse(text: &str, clock: Clock) -> Result<Self, String> {
        let shown = short(text);
        let (rate, burst) = text.split_once('/').map_or((text, None), |(rate, burst)| (rate, Some(burst)));
        let bits = rate.parse::<BitRate>().map_err(|error| format!("{error}: allowed are 1kbps to 1Tbps"))?.0;
        if !RATES.contains(&bits) {
            return Err(format!("'{shown}': allowed are 1kbps to 1Tbps"));
        }
        let bytes = match burst {
            Some(burst) => burst.parse::<Bytes>().map_err(|error| error.to_string())?.0 as f64,
            None => (bits / 8.0 * clock.burst.0 as f64 / 1e9).max(LEAST_BURST),
        };
        let ticks_a_byte = 8.0 * clock.frequency.hertz() / bits;
        let (per_byte, burst) = (ticks_a_byte * 2f64.powi((PARTS + FINER) as i32), bytes * ticks_a_byte * 256.0);
        if bytes < 1.0 || burst > MOST as f64 || per_byte > 2f64.powi(62) {
            let most = Bytes((MOST as f64 / 256.0 / ticks_a_byte) as u64);
            return Err(format!("'{shown}': allowed are bursts of 1B to {most} at this rate"));
        }
        Ok(Self { per_byte: (per_byte.round() as u64).max(1), burst: burst.round() as u64 })
    }

    /// Returns the time that this number of bytes takes at the rate, in parts of a tick.
    #[inline(always)]
    fn cost(self, bytes: u32) -> u64 {
        // No overflow: there are at most 2^16 bytes, and the time of each is at most 2^62.
        ((u128::from(bytes) * u128::from(self.per_byte)) >> FINER) as u64
    }

    /// Returns true, and counts the bytes, if this number of bytes may pass now. `bucket` is the instant at which the
    /// bucket will be full again (see the top of this file). 0 is a full bucket, so a new bucket starts with 0. With
    /// `alone`, no other worker may change `bucket` during the call.
    #[inline(always)]
    pub(super) fn take(self, bucket: &AtomicU64, now: Ticks, bytes: u32, alone: bool) -> bool {
        if self.per_byte == 0 {
            return true;
        }
        let (now, cost) = (now.0 << PARTS, self.cost(bytes));
        let mut seen = bucket.load(Ordering::Relaxed);
        loop {
            let ahead = seen.wrapping_sub(now);
            // `ahead` is also this large if `seen` is in the past: the subtraction wraps around. The bucket is full
            // then.
            let ahead = if ahead > self.burst + SKEW { 0 } else { ahead };
            let after = ahead + cost;
            if after > self.burst {
                return false;
            }
            let next = now.wrapping_add(after);
            if alone {
                bucket.store(next, Ordering::Relaxed);
                return true;
            }
            match bucket.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => seen = other,
            }
        }
    }

    /// Removes a packet from the count. [`take`](Self::take) has counted the packet, but another limit refuses it.
    #[inline]
    pub(super) fn give_back(self, bucket: &AtomicU64, bytes: u32) {
        if self.per_byte != 0 {
            bucket.fetch_sub(self.cost(bytes), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use forebay_tables::token_bucket::{Rate, Scale};

    fn clock(hertz: f64) -> Clock {
        Clock { frequency: Frequency::new(hertz), burst: Nanos(100_000_000) }
    }

    #[test]
    fn limits_are_read() {
        let limit = Limit::parse("8Mbps/1000B", clock(1e9)).expect("well-formed");
        assert_eq!((limit.cost(1), limit.burst), (1_000 * 256, 1_000_000 * 256));
        assert_eq!(Limit::parse("800Mbps", clock(1e9)).map(|limit| limit.burst), Ok(100_000_000 * 256));
        assert_eq!(Limit::parse("8kbps", clock(1e9)).map(|limit| limit.burst), Ok(16_384 * 1_000_000 * 256));
        for (wrong, part) in [
            ("", "allowed are"),
            ("10", "allowed are"),
            ("1bps", "allowed are 1kbps"),
            ("2Tbps", "allowed are 1kbps"),
            ("1Mbps/", "''"),
            ("1Mbps/0B", "allowed are bursts of 1B"),
            ("1kbps/900GiB", "allowed are bursts of 1B"),
        ] {
            let error = Limit::parse(wrong, clock(3e9)).expect_err(wrong);
            assert!(error.contains(part), "{wrong}: {error}");
        }
    }

    #[test]
    fn an_instant_before_a_clock_wrap_is_ignored() {
        let limit = Limit::parse("8Mbps/1000B", clock(1e9)).expect("well-formed");
        // This is half of a wrap-around ahead of now: 138 days at 1 GHz.
        let bucket = AtomicU64::new(1 << 63);
        assert!(limit.take(&bucket, Ticks(5), 1_000, true));
        assert!(!limit.take(&bucket, Ticks(5), 1, true));
    }

    #[test]
    fn several_workers_take_no_more_than_the_bucket_has() {
        let limit = Limit::parse("8Mbps/10000B", clock(1e9)).expect("well-formed");
        let bucket = AtomicU64::new(0);
        let taken: usize = std::thread::scope(|scope| {
            let taker = || (0..5_000).filter(|_| limit.take(&bucket, Ticks(1 << 40), 1, false)).count();
            let all: Vec<_> = (0..4).map(|_| scope.spawn(taker)).collect();
            all.into_iter().map(|one| one.join().expect("the thread does not panic")).sum()
        });
        assert_eq!(taken, 10_000);
    }

    proptest! {
        /// Compares the limit with the exact token bucket, at rates at which a byte takes whole parts of a tick.
        #[test]
        fn it_is_a_token_bucket(
            rate in prop::sample::select(vec!["8kbps", "1Mbps", "64Mbps", "1Gbps", "8Gbps"]),
            burst in 100u64..5_000,
            steps in prop::collection::vec(
                (prop_oneof![0u64..200_000, 0u64..10_000_000_000], 1u32..1_500, any::<bool>()), 1..100,
            ),
        ) {
            let limit = Limit::parse(&format!("{rate}/{burst}B"), clock(1e9)).expect("well-formed");
            let scale = Scale::new(Frequency::new(1e9));
            let full = scale.burst(Bytes(burst)).expect("a burst");
            let exact = Rate::new(rate.parse().expect("a rate"), full).expect("a rate");
            let (bucket, mut tokens, mut now) = (AtomicU64::new(0), full, 1u64 << 50);
            for (wait, bytes, back) in steps {
                now += wait;
                tokens = exact.after(tokens, Ticks(wait));
                let cost = scale.cost(bytes as usize);
                let passes = cost <= tokens;
                prop_assert_eq!(limit.take(&bucket, Ticks(now), bytes, true), passes);
                if passes && back {
                    limit.give_back(&bucket, bytes);
                } else if passes {
                    tokens -= cost;
                }
            }
        }
    }
}

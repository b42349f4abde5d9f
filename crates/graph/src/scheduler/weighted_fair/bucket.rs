//! A token bucket that may go into debt: a batch runs whole, and the module waits afterwards until the excess is paid.
//!
//! RFC 2697's bucket, filled continuously. Because debts are paid, the long-run rate is exactly the configured one.

use forebay_packet::Batch;
use forebay_units::{Frequency, Rate, Ticks};

use forebay_protocol::RateLimit;

/// A module's bucket.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    /// Tokens per tick: packets or bytes.
    per_tick: f64,
    /// Whether tokens are bytes. Otherwise they are packets.
    bytes: bool,
    /// The largest level: the tokens of the configured burst.
    depth: f64,
    /// The tokens at the instant `at`. Negative if the module is in debt.
    level: f64,
    /// The time of `level`.
    at: Ticks,
    /// The instant that [`not_before`](Self::not_before) returned as the end of the debt. From this instant on the
    /// module may run, even if a rounding error leaves a small debt. [`Ticks::NEVER`] if no instant was returned.
    promised: Ticks,
}

impl Bucket {
    /// Creates a full bucket.
    pub(super) fn new(limit: &RateLimit, frequency: Frequency, now: Ticks) -> Self {
        let (per_second, bytes) = match limit.rate {
            Rate::Packets(rate) => (rate.0, false),
            Rate::Bits(rate) => (rate.0 / 8.0, true),
        };
        let depth = per_second * limit.burst.0 as f64 / 1e9;
        Self { per_tick: per_second / frequency.hertz(), bytes, depth, level: depth, at: now, promised: Ticks::NEVER }
    }

    /// Adds the tokens of the time from `at` to `now`.
    fn fill(&mut self, now: Ticks) {
        self.level = (self.level + now.since(self.at).0 as f64 * self.per_tick).min(self.depth);
        self.at = self.at.max(now);
    }

    /// Returns when the module may run. `None` if it may run now.
    pub(super) fn not_before(&mut self, now: Ticks) -> Option<Ticks> {
        self.fill(now);
        if self.level >= 0.0 || now >= self.promised {
            return None;
        }
        // The module waits at least one tick. Otherwise, with a debt below the rounding error, it would wait for no
        // ticks again and again.
        self.promised = now + Ticks(((-self.level / self.per_tick).ceil() as u64).max(1));
        Some(self.promised)
    }

    /// Charges the bucket for a run on `batch`.
    pub(super) fn take(&mut self, batch: &Batch) {
        let tokens = if self.bytes { batch.iter().map(|packet| packet.len()).sum() } else { batch.len() };
        self.level -= tokens as f64;
        self.promised = Ticks::NEVER;
    }

    /// Changes the limit at `now`. The level is kept, but cut to the new depth. If the limit changes between packets
    /// and bytes, the bucket is full afterwards.
    pub(super) fn change(&mut self, limit: &RateLimit, frequency: Frequency, now: Ticks) {
        self.fill(now);
        let (level, bytes) = (self.level, self.bytes);
        *self = Self::new(limit, frequency, now);
        if bytes == self.bytes {
            self.level = level.min(self.depth);
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_packet::{Pool, PoolOptions};
    use forebay_units::{BitRate, Nanos, PacketRate};
    use proptest::prelude::*;

    use super::*;

    fn batch(pool: &Pool, packets: usize, bytes: usize) -> Batch {
        let mut batch = Batch::with_capacity(packets.max(1));
        for _ in 0..packets {
            let mut packet = pool.take().expect("a free chunk");
            assert!(packet.write(&vec![0; bytes]));
            batch.push(packet).expect("room");
        }
        batch
    }

    #[test]
    fn bytes_are_counted_if_the_rate_is_in_bits() {
        let pool = Pool::new(PoolOptions { chunks: 64, ..PoolOptions::default() }).expect("memory");
        let limit = RateLimit { rate: Rate::Bits(BitRate(8e9)), burst: Nanos(0) };
        let mut bucket = Bucket::new(&limit, Frequency::new(1e9), Ticks::ZERO);
        assert_eq!(bucket.not_before(Ticks(5)), None, "an empty bucket is not in debt");
        bucket.take(&batch(&pool, 3, 100));
        // One byte per nanosecond.
        assert_eq!(bucket.not_before(Ticks(5)), Some(Ticks(305)));
        assert_eq!(bucket.not_before(Ticks(304)), Some(Ticks(305)));
        assert_eq!(bucket.not_before(Ticks(305)), None);
    }

    /// Once, at 164 kpps, the debt of a batch was a rounding error short of paid at the promised instant.
    #[test]
    fn a_promise_is_kept_whatever_the_rounding() {
        let pool = Pool::new(PoolOptions { chunks: 64, ..PoolOptions::default() }).expect("memory");
        for kpps in 1..2_000 {
            let limit = RateLimit { rate: Rate::Packets(PacketRate(f64::from(kpps) * 1e3)), burst: Nanos(4_875) };
            let mut bucket = Bucket::new(&limit, Frequency::new(1e9), Ticks::ZERO);
            let mut now = Ticks::ZERO;
            for size in (1..24).chain(1..24) {
                bucket.take(&batch(&pool, size, 60));
                // The burst is not a debt.
                now = bucket.not_before(now).unwrap_or(now);
                assert_eq!(bucket.not_before(now), None, "{kpps} kpps, {size} packets");
            }
        }
    }

    proptest! {
        /// In any interval, at most the rate, the burst and one batch pass. A module that always runs as soon as the
        /// bucket allows it gets the rate.
        #[test]
        fn no_more_than_rate_and_burst_and_no_less_than_the_rate(
            kpps in 1u32..20_000,
            burst in 0u64..1_000_000,
            sizes in proptest::collection::vec((1usize..32, 0u64..20_000), 1..200),
        ) {
            let pool = Pool::new(PoolOptions { chunks: 64, ..PoolOptions::default() }).expect("memory");
            let per_second = f64::from(kpps) * 1e3;
            let limit = RateLimit { rate: Rate::Packets(PacketRate(per_second)), burst: Nanos(burst) };
            let mut bucket = Bucket::new(&limit, Frequency::new(1e9), Ticks::ZERO);
            let (mut now, mut taken, mut idle) = (Ticks::ZERO, 0usize, 0u64);
            for (size, pause) in sizes {
                now += Ticks(pause);
                match bucket.not_before(now) {
                    None => idle += pause,
                    Some(at) => {
                        prop_assert!(at > now);
                        now = at;
                        prop_assert_eq!(bucket.not_before(now), None, "the promise is kept");
                    }
                }
                let before = taken as f64;
                let allowed = (now.0 as f64 / 1e9) * per_second + per_second * burst as f64 / 1e9;
                prop_assert!(before <= allowed + 1e-3, "{before} of {allowed}");
                bucket.take(&batch(&pool, size, 60));
                taken += size;
            }
            let due = now.0.saturating_sub(idle) as f64 / 1e9 * per_second;
            prop_assert!(taken as f64 >= due - 33.0, "{taken} where {due} were due");
        }
    }
}

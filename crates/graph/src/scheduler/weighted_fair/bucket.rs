//! A token bucket that may go into debt: a batch runs whole, and what it took too much is waited for afterwards.
//!
//! RFC 2697's bucket, filled continuously. Because debts are paid, the long-run rate is exactly the one stated.

use forebay_packet::Batch;
use forebay_units::{Frequency, Rate, Ticks};

use forebay_protocol::RateLimit;

/// A module's bucket.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    /// Tokens a tick: packets, or bytes.
    per_tick: f64,
    bytes: bool,
    depth: f64,
    level: f64,
    /// When `level` was right.
    at: Ticks,
    /// When it was said that the debt would be paid; a promise is kept, however it was rounded.
    promised: Ticks,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn new(limit: &RateLimit, frequency: Frequency, now: Ticks) -> Self {
        let (per_second, bytes) = match limit.rate {
            Rate::Packets(rate) => (rate.0, false),
            Rate::Bits(rate) => (rate.0 / 8.0, true),
        };
        let depth = per_second * limit.burst.0 as f64 / 1e9;
        Self { per_tick: per_second / frequency.hertz(), bytes, depth, level: depth, at: now, promised: Ticks::NEVER }
    }

    fn fill(&mut self, now: Ticks) {
        self.level = (self.level + now.since(self.at).0 as f64 * self.per_tick).min(self.depth);
        self.at = self.at.max(now);
    }

    /// When the module may run, where that is not now.
    pub(super) fn not_before(&mut self, now: Ticks) -> Option<Ticks> {
        self.fill(now);
        if self.level >= 0.0 || now >= self.promised {
            return None;
        }
        // At least one tick: a debt too small to be told apart would be waited for no time, for ever.
        self.promised = now + Ticks(((-self.level / self.per_tick).ceil() as u64).max(1));
        Some(self.promised)
    }

    /// The module runs on `batch`.
    pub(super) fn take(&mut self, batch: &Batch) {
        let tokens = if self.bytes { batch.iter().map(|packet| packet.len()).sum() } else { batch.len() };
        self.level -= tokens as f64;
        self.promised = Ticks::NEVER;
    }

    /// The same for a bucket whose limit has changed: what was saved or owed is kept as far as it fits.
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
            let mut packet = pool.take().expect("fewer than there are");
            assert!(packet.write(&vec![0; bytes]));
            batch.push(packet).expect("room");
        }
        batch
    }

    #[test]
    fn bytes_are_counted_where_the_rate_is_of_bits() {
        let pool = Pool::new(PoolOptions { chunks: 64, ..PoolOptions::default() }).expect("memory");
        let limit = RateLimit { rate: Rate::Bits(BitRate(8e9)), burst: Nanos(0) };
        let mut bucket = Bucket::new(&limit, Frequency::new(1e9), Ticks::ZERO);
        assert_eq!(bucket.not_before(Ticks(5)), None, "an empty bucket is not in debt");
        bucket.take(&batch(&pool, 3, 100));
        // A byte a nanosecond.
        assert_eq!(bucket.not_before(Ticks(5)), Some(Ticks(305)));
        assert_eq!(bucket.not_before(Ticks(304)), Some(Ticks(305)));
        assert_eq!(bucket.not_before(Ticks(305)), None);
    }

    /// At 164 kpps the debt of a batch was a rounding error less than paid when it was said to be.
    #[test]
    fn a_promise_is_kept_however_it_was_rounded() {
        let pool = Pool::new(PoolOptions { chunks: 64, ..PoolOptions::default() }).expect("memory");
        for kpps in 1..2_000 {
            let limit = RateLimit { rate: Rate::Packets(PacketRate(f64::from(kpps) * 1e3)), burst: Nanos(4_875) };
            let mut bucket = Bucket::new(&limit, Frequency::new(1e9), Ticks::ZERO);
            let mut now = Ticks::ZERO;
            for size in (1..24).chain(1..24) {
                bucket.take(&batch(&pool, size, 60));
                // What the burst allows is no debt.
                now = bucket.not_before(now).unwrap_or(now);
                assert_eq!(bucket.not_before(now), None, "{kpps} kpps, {size} packets");
            }
        }
    }

    proptest! {
        /// Over any stretch, at most what the rate and the burst allow, and one batch; and whoever runs whenever it may
        /// gets the rate.
        #[test]
        fn no_more_than_rate_and_burst_and_no_less_than_the_rate(
            kpps in 1u32..20_000, burst in 0u64..1_000_000, sizes in proptest::collection::vec((1usize..32, 0u64..20_000), 1..200),
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
                        prop_assert_eq!(bucket.not_before(now), None, "what was promised is kept");
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

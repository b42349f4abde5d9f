//! The cost of a module's calls, learnt from the few timed ones: `T(b) = T0 + T1·b` (Batchy section 3).
//!
//! Least squares over decayed sums, so older calls have less weight. If all batches have the same size, the two parts
//! cannot be separated. Then the slope tends to the value at which half of the cost is per packet.

/// The factor by which the sums shrink with each further call, so that older calls have less weight.
const KEPT: f64 = 31.0 / 32.0;
/// The weight, in packets², of the slope at which half of the cost is per packet. If the variation of the batch sizes
/// is larger than this, the measured slope has more weight.
const LEAN: f64 = 1.0;
/// A call that takes more than this many times the expected cost was interrupted. It counts as a call that takes this
/// many times the expected cost.
const OUTLIER: f64 = 64.0;
/// The assumed `T0` and `T1`, in ticks, before any call was timed.
const UNKNOWN: (f64, f64) = (100.0, 10.0);

/// The cost of a module's calls.
#[derive(Clone, Debug)]
pub(super) struct Estimate {
    /// The decayed number of timed calls. The sums below have the same weights. A call has b packets and t ticks.
    calls: f64,
    /// The sum of b.
    packets: f64,
    /// The sum of b².
    squares: f64,
    /// The sum of t.
    ticks: f64,
    /// The sum of b·t.
    products: f64,
    /// `T0`, in ticks.
    pub(super) per_call: f64,
    /// `T1`, in ticks.
    pub(super) per_packet: f64,
}

impl Estimate {
    /// Creates an estimate without timed calls.
    pub(super) fn new() -> Self {
        let (per_call, per_packet) = UNKNOWN;
        Self { calls: 0.0, packets: 0.0, squares: 0.0, ticks: 0.0, products: 0.0, per_call, per_packet }
    }

    /// Returns the expected cost of a call on `packets` packets, in ticks.
    pub(super) fn of(&self, packets: usize) -> f64 {
        self.per_call + self.per_packet * packets as f64
    }

    /// Learns from a call on `packets` packets that took `ticks`. Returns the ticks to charge, which are fewer if the
    /// call was interrupted.
    pub(super) fn learn(&mut self, packets: usize, ticks: u64) -> f64 {
        let (b, mut t) = (packets as f64, ticks as f64);
        if self.calls > 0.0 {
            t = t.min(self.of(packets) * OUTLIER);
        }
        for (sum, term) in [
            (&mut self.calls, 1.0),
            (&mut self.packets, b),
            (&mut self.squares, b * b),
            (&mut self.ticks, t),
            (&mut self.products, b * t),
        ] {
            *sum = *sum * KEPT + term;
        }
        let mean = self.packets / self.calls;
        let covariation = self.products - mean * self.ticks;
        let variation = self.squares - mean * self.packets;
        // The largest possible slope: the whole cost is per packet.
        let steepest = self.ticks / self.packets.max(1.0);
        let slope = (covariation + LEAN * steepest / 2.0) / (variation + LEAN);
        // Both parts must be at least 0.
        self.per_packet = slope.clamp(0.0, steepest);
        self.per_call = (self.ticks / self.calls - self.per_packet * mean).max(0.0);
        t
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_interrupted_call_counts_only_in_part() {
        let mut estimate = Estimate::new();
        estimate.learn(32, 1_000);
        assert!((estimate.learn(32, 10_000_000) - 64_000.0).abs() < 1e-6);
        for _ in 0..400 {
            estimate.learn(32, 1_000);
        }
        assert!((estimate.of(32) - 1_000.0).abs() < 1.0, "{estimate:?}");
    }

    proptest! {
        /// Both parts are found from calls on batches of several sizes.
        #[test]
        fn both_parts_are_found(per_call in 0u32..100_000, per_packet in 0u32..1_000, step in 1usize..8) {
            let mut estimate = Estimate::new();
            for call in 0..400 {
                let packets = 1 + call * step % 32;
                let ticks = u64::from(per_call) + u64::from(per_packet) * packets as u64;
                estimate.learn(packets, ticks);
            }
            for packets in [1, 16, 32] {
                let truth = f64::from(per_call) + f64::from(per_packet) * packets as f64;
                prop_assert!((estimate.of(packets) - truth).abs() <= truth * 0.02 + 1.0, "{estimate:?}");
            }
        }

        /// With one batch size only, the cost of that size is right.
        #[test]
        fn one_size_is_right_at_that_size(ticks in 0u64..1_000_000, packets in 1usize..256) {
            let mut estimate = Estimate::new();
            for _ in 0..400 {
                estimate.learn(packets, ticks);
            }
            prop_assert!((estimate.of(packets) - ticks as f64).abs() <= ticks as f64 * 1e-3 + 1.0, "{estimate:?}");
        }
    }
}

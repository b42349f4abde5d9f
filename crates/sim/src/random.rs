//! Random numbers from a seed: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014, figure 17).

#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Returns the sequence number `stream` of a seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut mixed = Self(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        Self(mixed.bits())
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns an exponentially distributed number with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        // The argument is uniform in (0, 1], so that its logarithm is finite.
        -(((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64).ln()
    }

    /// Returns a uniformly distributed number in `0..n`, or 0 if `n` is 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }
}

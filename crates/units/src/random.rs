//! The random generator for all code that needs numbers without a pattern: SplitMix64 (Steele, Lea and Flood, "Fast
//! splittable pseudorandom number generators", OOPSLA 2014, figure 17).
//!
//! It is fast, has a state of one word, and gives the same numbers for the same seed on every machine. It must not be
//! used for secrets, because two outputs are enough to find the state.

/// The step of the generator's state: the odd number nearest to 2⁶⁴ divided by the golden ratio.
pub const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns `x` mixed: every input bit changes every output bit with a probability of about one half.
#[inline]
#[must_use]
pub const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A sequence of random numbers, the same for the same seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates a generator that starts from `seed`.
    #[inline]
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Creates the generator number `stream` of a seed. The numbers of two streams have no visible relation.
    #[must_use]
    pub const fn stream(seed: u64, stream: u64) -> Self {
        let start = seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95);
        Self { state: mix(start.wrapping_add(GAMMA)) }
    }

    /// Returns the state. It is not a random number, because it increases by [`GAMMA`] with each number.
    #[must_use]
    pub const fn state(&self) -> u64 {
        self.state
    }

    /// Returns the next 64 bits.
    #[inline]
    pub const fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        mix(self.state)
    }

    /// Returns the result of the `n`-th call of [`bits`](Self::bits) from now on, without changing the state. 1 means
    /// the next call.
    #[inline]
    #[must_use]
    pub const fn peek(&self, n: u64) -> u64 {
        mix(self.state.wrapping_add(GAMMA.wrapping_mul(n)))
    }

    /// Skips the next `n` numbers.
    #[inline]
    pub const fn skip(&mut self, n: u64) {
        self.state = self.state.wrapping_add(GAMMA.wrapping_mul(n));
    }

    /// Returns a number in `0..end`; 0 if `end` is 0. The bias is below `end` / 2⁶⁴ (Lemire 2019, without rejection).
    #[inline]
    pub const fn below(&mut self, end: u64) -> u64 {
        ((self.bits() as u128 * end as u128) >> 64) as u64
    }

    /// Returns a number in `0..end`; 0 if `end` is 0.
    #[inline]
    pub const fn index(&mut self, end: usize) -> usize {
        self.below(end as u64) as usize
    }

    /// Returns a uniformly distributed number from 0 to below 1, in steps of 2⁻⁵³.
    #[inline]
    pub const fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns an exponentially distributed number with mean 1. It is finite.
    pub fn exponential(&mut self) -> f64 {
        // The argument of the logarithm is uniform in (0, 1], so the result is finite.
        -(((self.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64).ln()
    }

    /// Returns an approximately normally distributed number (mean 0, variance 1): the sum of twelve uniform numbers
    /// minus 6. It is between −6 and 6.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The first outputs of the reference implementation for the seed 1234567.
    #[test]
    fn it_is_splitmix64() {
        let mut random = Random::new(1_234_567);
        let first = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(first.map(|_| random.bits()), first);
    }

    #[test]
    fn means_are_those_of_the_distributions() {
        let mut random = Random::new(7);
        let mut mean = |draw: fn(&mut Random) -> f64| (0..100_000).map(|_| draw(&mut random)).sum::<f64>() / 1e5;
        assert!((mean(Random::unit) - 0.5).abs() < 0.01);
        assert!((mean(Random::exponential) - 1.0).abs() < 0.02);
        assert!(mean(Random::normal).abs() < 0.02);
        assert!((mean(|random| random.normal().powi(2)) - 1.0).abs() < 0.03);
    }

    #[test]
    fn numbers_below_a_limit_are_equally_frequent() {
        let (mut random, mut counts) = (Random::new(7), [0; 10]);
        (0..100_000).for_each(|_| counts[random.index(10)] += 1);
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    #[test]
    fn the_smallest_bits_give_the_largest_exponential_number() {
        let mut random = Random::new(0_u64.wrapping_sub(GAMMA));
        assert_eq!(random.peek(1), 0);
        assert!((random.exponential() - 53.0 * std::f64::consts::LN_2).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn numbers_ahead_are_the_numbers_that_come(seed: u64, n in 1u64..100) {
            let random = Random::new(seed);
            let mut drawn = random.clone();
            let last = (0..n).map(|_| drawn.bits()).last();
            prop_assert_eq!(last, Some(random.peek(n)));
            let mut skipped = random.clone();
            skipped.skip(n);
            prop_assert_eq!(skipped, drawn);
        }

        #[test]
        fn numbers_are_in_their_range(seed: u64, end in 0u64..1_000) {
            let mut random = Random::new(seed);
            for _ in 0..20 {
                prop_assert!(random.below(end) < end.max(1));
                prop_assert!((0.0..1.0).contains(&random.unit()));
                prop_assert!(random.exponential().is_finite());
            }
        }

        #[test]
        fn streams_of_a_seed_differ(seed: u64, stream in 0u64..1_000) {
            let [mut one, mut next] = [Random::stream(seed, stream), Random::stream(seed, stream + 1)];
            prop_assert_ne!([one.bits(), one.bits()], [next.bits(), next.bits()]);
        }
    }
}

//! Test support: the number of cases, a device driver's memory, frames.

pub(crate) mod driver_memory;
pub(crate) mod frames;

use proptest::prelude::ProptestConfig;

/// Configures `cases` cases of a property. Under Miri, which is a thousand times slower, only a few run. Failures are
/// not stored in files: each becomes a named test.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    let cases = if cfg!(miri) { (cases / 512).max(4) } else { cases };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// A simple random number generator for tests that need many numbers and no shrinking (xorshift64, Marsaglia 2003).
pub(crate) struct Numbers(pub u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        ((self.next() >> 32) as usize) % limit
    }
}

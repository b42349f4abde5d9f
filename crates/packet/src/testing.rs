//! What this crate's tests share: how many cases to try, a device driver's memory, frames.

pub(crate) mod driver_memory;
pub(crate) mod frames;

use proptest::prelude::ProptestConfig;

/// Runs `cases` cases of a property; few under the interpreter that checks the unsafe code, a thousand times slower.
/// Failures are not kept in files: one that is found becomes a named test.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    let cases = if cfg!(miri) { (cases / 512).max(4) } else { cases };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// A plain generator of numbers for tests that need many and no shrinking (xorshift64, Marsaglia 2003).
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

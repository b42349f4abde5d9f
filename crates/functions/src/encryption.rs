//! What functions that encrypt share: keys as configurations give them, who counts, and where a datagram's parts are.

pub(crate) mod datagram;
pub mod esp;
pub mod keys;
pub mod settings;
pub(crate) mod sums;
#[cfg(test)]
pub(crate) mod testing;

use std::sync::Arc;

use forebay_aead::{Material, Numbers, Source, Usage};
use forebay_graph::{Setup, SetupError};

/// How many packets may be encrypted under a key where the configuration does not say. At 1500 bytes each, whoever sees
/// all of them can tell them from random bytes with a chance of 2^-32 (the square of all blocks over 2^129: McGrew and Viega
/// 2004, theorem 1).
pub(crate) const PACKETS: u64 = 1 << 42;

/// Where the numbers of packets come from: the process's one counter; where time is simulated, one that starts at 0 with
/// the pipeline, so that what happened happens again.
pub(crate) fn source(setup: &mut Setup<'_>) -> Result<Arc<Source>, SetupError> {
    if setup.simulated() {
        return setup.lasting("numbers of encrypted packets", |_| Ok(Source::new(0, [0; 3])));
    }
    Ok(Source::of_the_process())
}

/// The numbers for a key, of which `limit` may be used by all modules that have the key, on all workers and in all
/// configurations that follow each other.
pub(crate) fn numbers(key: &Material, limit: u64, setup: &mut Setup<'_>) -> Result<Numbers, SetupError> {
    let usage = setup.lasting(&format!("usage of key {}", key.fingerprint()), |_| Ok(Usage::default()))?;
    Ok(Numbers::new(source(setup)?, usage, limit))
}

//! Functions that encrypt and decrypt packets: AES-GCM payloads, ESP tunnels.
//!
//! The network functions are `aes_gcm_encrypt`, `aes_gcm_decrypt`, `esp_encrypt` and `esp_decrypt`. The shared modules
//! are for keys in configurations (`keys`, `settings`), the layout of encrypted datagrams (`datagram`, `sums`) and the
//! layout of ESP (`esp`). This file has the packet numbers.
//!
//! The comments of parameters become the descriptions in `schema/`: run `make schema` after a change.

#![forbid(unsafe_code)]

use std::sync::Arc;

use forebay_aead::{Material, Numbers, Source, Usage};
use forebay_graph::{Setup, SetupError};

automod::dir!(pub "src");

/// The number of packets that may be encrypted with one key if the configuration does not set it. At 1500 bytes each,
/// an observer of all these packets can distinguish them from random bytes with an advantage of 2^-32 (the square of
/// the number of blocks over 2^129: McGrew and Viega 2004, theorem 1).
pub(crate) const PACKETS: u64 = 1 << 42;

/// Returns the source of packet numbers, which all modules of the process share. In simulated time, it is a counter
/// that starts at 0 with the pipeline, so that a run can be repeated exactly.
pub(crate) fn source(setup: &mut Setup<'_>) -> Result<Arc<Source>, SetupError> {
    if setup.simulated() {
        return setup.lasting("numbers of encrypted packets", |_| Ok(Source::new(0, [0; 3])));
    }
    Ok(Source::of_the_process())
}

/// Returns the numbers for a key. All modules that have the key, on all workers and in all successive configurations,
/// together get at most `limit` numbers: the same number twice with one key would break the encryption.
pub(crate) fn numbers(key: &Material, limit: u64, setup: &mut Setup<'_>) -> Result<Numbers, SetupError> {
    let usage = setup.lasting(&format!("usage of key {}", key.fingerprint()), |_| Ok(Usage::default()))?;
    Ok(Numbers::new(source(setup)?, usage, limit))
}

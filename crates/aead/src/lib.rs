//! Authenticated encryption: AES-GCM by the processor's own instructions or without them, keys, and numbers used once.
//!
//! A leaf: it knows nothing of packets. The ciphers are others' (`ring`, and RustCrypto's `aes-gcm` for software alone);
//! what is here makes both look alike, keeps keys out of sight, and sees to it that no number is used twice.
//!
//! ```
//! use forebay_aead::{Aead, Backend, Key, Material};
//!
//! let material = Material::from_hex("feffe9928665731c6d6a8f9467308308")?;
//! let key = Key::new(&material, Backend::Auto)?;
//! let (nonce, mut text) = ([7; 12], *b"attack at dawn");
//! let tag = key.seal(&nonce, b"header", &mut text);
//! assert_ne!(&text, b"attack at dawn");
//! key.open(&nonce, b"header", &mut text, &tag)?;
//! assert_eq!(&text, b"attack at dawn");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod backend;
mod hardware;
mod key;
mod material;
mod numbers;
mod software;
#[cfg(test)]
mod tests;

pub use backend::{Backend, NoHardware};
pub use key::{Key, KeyError};
pub use material::{Fingerprint, Material, MaterialError};
pub use numbers::{Numbers, Source, Usage};

/// Bytes of a number used once.
pub const NONCE: usize = 12;
/// Bytes of an authentication tag.
pub const TAG: usize = 16;

/// A cipher under one key that encrypts in place and says whether what it decrypts is what was encrypted (RFC 5116).
pub trait Aead {
    /// Encrypts `text` in place and gives the tag over it and over `associated`, which stays as it is. A `nonce` may be used
    /// once under a key, ever: two texts under one give both away, and with them the power to forge.
    fn seal(&self, nonce: &[u8; NONCE], associated: &[u8], text: &mut [u8]) -> [u8; TAG];

    /// Decrypts `text` in place.
    ///
    /// # Errors
    /// Text, associated bytes, nonce or tag are not those of one call of [`seal`](Self::seal) under this key; what `text` is
    /// then must not be used.
    fn open(&self, nonce: &[u8; NONCE], associated: &[u8], text: &mut [u8], tag: &[u8; TAG]) -> Result<(), Forged>;
}

/// What was to be decrypted is not what was encrypted under this key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it was not encrypted under this key, or has been changed since")]
pub struct Forged;

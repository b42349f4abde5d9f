//! Authenticated encryption: AES-GCM with or without the processor's instructions, keys, and numbers used once.
//!
//! This crate knows nothing about packets. The ciphers come from other crates (`ring`, and RustCrypto's `aes-gcm` for
//! software). This crate gives both the same interface, keeps keys out of logs, and ensures that no number is used
//! twice.
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

/// Length of a number used once, in bytes.
pub const NONCE: usize = 12;
/// Length of an authentication tag, in bytes.
pub const TAG: usize = 16;

/// A cipher with one key. It encrypts in place, and checks that decrypted text is authentic (RFC 5116).
pub trait Aead {
    /// Encrypts `text` in place and returns the tag over it and over `associated`, which is not changed. A `nonce` must
    /// never be used twice with the same key: two texts with one nonce reveal both texts and allow forgery.
    fn seal(&self, nonce: &[u8; NONCE], associated: &[u8], text: &mut [u8]) -> [u8; TAG];

    /// Decrypts `text` in place.
    ///
    /// # Errors
    /// Returns [`Forged`] if text, associated bytes, nonce and tag do not come from one call of [`seal`](Self::seal)
    /// with this key. The content of `text` must then not be used.
    fn open(&self, nonce: &[u8; NONCE], associated: &[u8], text: &mut [u8], tag: &[u8; TAG]) -> Result<(), Forged>;
}

/// The error for text that was not encrypted with this key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the text was not encrypted under this key, or it was changed afterwards")]
pub struct Forged;

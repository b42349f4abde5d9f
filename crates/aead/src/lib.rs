//! Authenticated encryption: AES-GCM with or without the processor's instructions, keys, and numbers used once.
//!
//! This crate does not depend on the format of packets. The ciphers come from other crates (`ring`, and RustCrypto's
//! `aes-gcm` for software). This crate has the same interface for both, keeps keys out of logs, and provides numbers
//! that are not used twice with a key ([`Numbers`]).
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

/// The length of a nonce (a number used once), in bytes.
pub const NONCE: usize = 12;
/// The length of an authentication tag, in bytes.
pub const TAG: usize = 16;

/// A cipher with one key. It encrypts in place, and checks that decrypted text is authentic (RFC 5116).
pub trait Aead {
    /// Encrypts `text` in place. Returns the tag of `text` and `associated`. `associated` is authenticated, but not
    /// encrypted. A `nonce` must never be used twice with the same key: two texts with one nonce reveal both texts and
    /// allow forgery.
    ///
    /// # Panics
    /// Panics if `text` is longer than AES-GCM allows, about 64 GiB.
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

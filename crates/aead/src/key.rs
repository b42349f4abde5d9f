//! A key, expanded for one of the implementations.

use std::fmt;

use crate::hardware::Hardware;
use crate::software::Software;
use crate::{Aead, Backend, Forged, Material, NONCE, NoHardware, TAG};

/// An expanded key of AES-128-GCM or AES-256-GCM.
///
/// For each packet, the code tests which implementation the key has. This branch always has the same result, so it
/// costs less than the indirect call of a trait object. [`Material`] wipes its bytes, but the implementations do not
/// wipe the expanded keys.
pub struct Key(Cipher);

/// The expanded key of an implementation.
enum Cipher {
    Hardware(Box<Hardware>),
    Software(Software),
}

/// The reason why a key cannot be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The key has this wrong length, in bytes.
    #[error("{0} bytes: allowed are 16 (AES-128) and 32 (AES-256)")]
    Length(usize),
    /// The requested implementation is unavailable.
    #[error(transparent)]
    NoHardware(#[from] NoHardware),
}

impl Key {
    /// Creates a key of 16 bytes (AES-128) or 32 bytes (AES-256).
    ///
    /// # Errors
    /// Returns a [`KeyError`] if the length is wrong or the implementation is unavailable.
    pub fn new(material: &Material, backend: Backend) -> Result<Self, KeyError> {
        let bytes = material.bytes();
        let key = match backend.resolve()? {
            Backend::Software => Software::new(bytes).map(Cipher::Software),
            Backend::Hardware | Backend::Auto => Hardware::new(bytes).map(|key| Cipher::Hardware(Box::new(key))),
        };
        key.map(Self).ok_or(KeyError::Length(bytes.len()))
    }

    /// Returns the implementation of the key: never [`Backend::Auto`].
    #[must_use]
    pub fn backend(&self) -> Backend {
        match self.0 {
            Cipher::Hardware(_) => Backend::Hardware,
            Cipher::Software(_) => Backend::Software,
        }
    }
}

impl Aead for Key {
    #[inline(always)]
    fn seal(&self, nonce: &[u8; NONCE], associated: &[u8], text: &mut [u8]) -> [u8; TAG] {
        match &self.0 {
            Cipher::Hardware(key) => key.seal(nonce, associated, text),
            Cipher::Software(key) => key.seal(nonce, associated, text),
        }
    }

    #[inline(always)]
    fn open(&self, nonce: &[u8; NONCE], associated: &[u8], text: &mut [u8], tag: &[u8; TAG]) -> Result<(), Forged> {
        match &self.0 {
            Cipher::Hardware(key) => key.open(nonce, associated, text, tag),
            Cipher::Software(key) => key.open(nonce, associated, text, tag),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.backend())
    }
}

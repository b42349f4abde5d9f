//! A key made ready for one of the implementations.

use std::fmt;

use crate::hardware::Hardware;
use crate::software::Software;
use crate::{Aead, Backend, Forged, Material, NONCE, NoHardware, TAG};

/// A key of AES-128-GCM or AES-256-GCM, made ready.
///
/// Which implementation has it is asked for each packet: one branch that always goes the same way, where a trait object
/// would be a call through memory. Neither wipes what it makes of a key, other than [`Material`] does its bytes.
pub struct Key(Of);

enum Of {
    Hardware(Box<Hardware>),
    Software(Software),
}

/// Why a key cannot be made ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It is of another length.
    #[error("{0} bytes: allowed are 16 (AES-128) and 32 (AES-256)")]
    Length(usize),
    /// The back end is not there.
    #[error(transparent)]
    NoHardware(#[from] NoHardware),
}

impl Key {
    /// A key of 16 bytes (AES-128) or 32 (AES-256).
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn new(material: &Material, backend: Backend) -> Result<Self, KeyError> {
        let bytes = material.bytes();
        let key = match backend.resolve()? {
            Backend::Software => Software::new(bytes).map(Of::Software),
            Backend::Hardware | Backend::Auto => Hardware::new(bytes).map(|key| Of::Hardware(Box::new(key))),
        };
        key.map(Self).ok_or(KeyError::Length(bytes.len()))
    }

    /// Which implementation has it.
    #[must_use]
    pub fn backend(&self) -> Backend {
        match self.0 {
            Of::Hardware(_) => Backend::Hardware,
            Of::Software(_) => Backend::Software,
        }
    }
}

impl Aead for Key {
    #[inline(always)]
    fn seal(&self, nonce: &[u8; NONCE], associated: &[u8], text: &mut [u8]) -> [u8; TAG] {
        match &self.0 {
            Of::Hardware(key) => key.seal(nonce, associated, text),
            Of::Software(key) => key.seal(nonce, associated, text),
        }
    }

    #[inline(always)]
    fn open(&self, nonce: &[u8; NONCE], associated: &[u8], text: &mut [u8], tag: &[u8; TAG]) -> Result<(), Forged> {
        match &self.0 {
            Of::Hardware(key) => key.open(nonce, associated, text, tag),
            Of::Software(key) => key.open(nonce, associated, text, tag),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.backend())
    }
}

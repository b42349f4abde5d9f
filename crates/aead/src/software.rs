//! AES-GCM without the processor's instructions. The implementation of RustCrypto is bit-sliced ("fixsliced", Adomnicai
//! and Peyrin 2020), with constant-time multiplications. It uses no look-up tables, so cache timing reveals nothing
//! about keys.
//!
//! A feature of the library forces the software implementation on every processor. Expanded keys are not wiped when
//! they are dropped. The library's feature `zeroize` would wipe the hash key on the stack, but not the round keys, and
//! it requires versions of the `zeroize` crate before 1.4.

use aes_gcm::aead::{AeadInPlace, NewAead};
use aes_gcm::{Aes128Gcm, Aes256Gcm};

use crate::{Aead, Forged, NONCE, TAG};

/// The expanded key, by the length of the key.
pub(crate) enum Software {
    Aes128(Box<Aes128Gcm>),
    Aes256(Box<Aes256Gcm>),
}

impl Software {
    /// Creates a key of AES-128-GCM or AES-256-GCM. Returns `None` if the length is not 16 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        if let Ok(key) = <&[u8; 16]>::try_from(key) {
            return Some(Self::Aes128(Box::new(Aes128Gcm::new(key.into()))));
        }
        let key = <&[u8; 32]>::try_from(key).ok()?;
        Some(Self::Aes256(Box::new(Aes256Gcm::new(key.into()))))
    }
}

impl Aead for Software {
    fn seal(&self, nonce: &[u8; NONCE], associated: &[u8], text: &mut [u8]) -> [u8; TAG] {
        let nonce = nonce.into();
        let tag = match self {
            Self::Aes128(key) => key.encrypt_in_place_detached(nonce, associated, text),
            Self::Aes256(key) => key.encrypt_in_place_detached(nonce, associated, text),
        };
        tag.expect("a text is shorter than 64 GiB (NIST SP 800-38D section 5.2.1.1)").into()
    }

    fn open(&self, nonce: &[u8; NONCE], associated: &[u8], text: &mut [u8], tag: &[u8; TAG]) -> Result<(), Forged> {
        let (nonce, tag) = (nonce.into(), tag.into());
        let opened = match self {
            Self::Aes128(key) => key.decrypt_in_place_detached(nonce, associated, text, tag),
            Self::Aes256(key) => key.decrypt_in_place_detached(nonce, associated, text, tag),
        };
        opened.map_err(|_| Forged)
    }
}

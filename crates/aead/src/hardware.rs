//! AES-GCM by the processor's instructions, through `ring`, whose assembly processes several blocks at a time.
//!
//! Round keys and powers of the hash key are computed once, when the key is created. Text is encrypted in place, and
//! the tag is returned separately, so nothing is copied or allocated.

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};

use crate::{Aead, Forged, NONCE, TAG};

/// A key of `ring`. `ring` calls this type "less safe", because the caller provides the nonces.
/// [`Numbers`](crate::Numbers) provides them.
pub(crate) struct Hardware(LessSafeKey);

impl Hardware {
    /// Creates a key of AES-128-GCM or AES-256-GCM. Returns `None` if the length is not 16 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        let algorithm = match key.len() {
            16 => &AES_128_GCM,
            32 => &AES_256_GCM,
            _ => return None,
        };
        UnboundKey::new(algorithm, key).ok().map(|key| Self(LessSafeKey::new(key)))
    }
}

impl Aead for Hardware {
    #[inline(always)]
    fn seal(&self, nonce: &[u8; NONCE], associated: &[u8], text: &mut [u8]) -> [u8; TAG] {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let tag = self.0.seal_in_place_separate_tag(nonce, Aad::from(associated), text);
        let tag = tag.expect("a text is shorter than 64 GiB (NIST SP 800-38D section 5.2.1.1)");
        tag.as_ref().try_into().expect("a tag of GCM has 16 bytes")
    }

    #[inline(always)]
    fn open(&self, nonce: &[u8; NONCE], associated: &[u8], text: &mut [u8], tag: &[u8; TAG]) -> Result<(), Forged> {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.0.open_in_place_separate_tag(nonce, Aad::from(associated), Tag::from(*tag), text, 0..);
        opened.map(drop).map_err(|_| Forged)
    }
}

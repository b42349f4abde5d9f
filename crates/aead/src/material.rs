//! Bytes that are nobody's business: read from hexadecimal digits, never shown, wiped when they are no longer needed.

use std::fmt;

use ring::digest;
use zeroize::Zeroizing;

/// A key's bytes, or a key's and a salt's.
#[derive(Clone, PartialEq, Eq)]
pub struct Material(Zeroizing<Vec<u8>>);

/// What names a key without giving it away: SHA-256 of it (FIPS 180-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

/// Why a text is no key. It says nothing of what the text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MaterialError {
    /// Something else than digits.
    #[error("byte {0} of the key is no hexadecimal digit (the key itself is not shown)")]
    Digit(usize),
    /// Half a byte too many.
    #[error("the key has an odd number of hexadecimal digits, {0}")]
    Odd(usize),
}

impl Material {
    /// The bytes of a text of hexadecimal digits; space around it does not count.
    ///
    /// # Errors
    /// [`MaterialError`].
    pub fn from_hex(text: &str) -> Result<Self, MaterialError> {
        let digits = text.trim_ascii();
        let digits = digits.strip_prefix("0x").unwrap_or(digits);
        if let Some(at) = digits.bytes().position(|digit| !digit.is_ascii_hexdigit()) {
            return Err(MaterialError::Digit(at + 1));
        }
        if !digits.len().is_multiple_of(2) {
            return Err(MaterialError::Odd(digits.len()));
        }
        let value = |digit: u8| (digit as char).to_digit(16).unwrap_or(0) as u8;
        let bytes = digits.as_bytes().chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect();
        Ok(Self(Zeroizing::new(bytes)))
    }

    /// Parts the last `n` bytes off; `None` where there are fewer.
    #[must_use]
    pub fn split_last(&self, n: usize) -> Option<(Self, Self)> {
        let (first, last) = self.0.split_at(self.0.len().checked_sub(n)?);
        Some((Self(Zeroizing::new(first.to_vec())), Self(Zeroizing::new(last.to_vec()))))
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// What names it.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.0)
    }
}

impl Fingerprint {
    /// That of any bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let digest = digest::digest(&digest::SHA256, bytes);
        Self(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Material({} bytes)", self.0.len())
    }
}

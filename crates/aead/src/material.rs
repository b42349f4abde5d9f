//! Secret bytes. They are read from hexadecimal digits, never shown, and wiped when they are dropped.

use std::fmt;

use ring::digest;
use zeroize::Zeroizing;

/// The bytes of a key, or of a key and a salt.
#[derive(Clone, PartialEq, Eq)]
pub struct Material(Zeroizing<Vec<u8>>);

/// The SHA-256 digest of a key (FIPS 180-4). It identifies the key without revealing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

/// The reason why a text is not a key. The messages do not quote the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MaterialError {
    /// A character is not a hexadecimal digit. The value is its position in bytes, counted from 1. White space and `0x`
    /// before the digits are not counted.
    #[error("byte {0} of the key is not a hexadecimal digit (the key itself is not shown)")]
    Digit(usize),
    /// The number of digits, which is odd.
    #[error("the key has {0} hexadecimal digits: expected an even number")]
    Odd(usize),
}

impl Material {
    /// Parses a text of hexadecimal digits. White space around the text, and `0x` at its start, are ignored. The number
    /// of bytes is not checked.
    ///
    /// # Errors
    /// Returns a [`MaterialError`] if the text has another character or an odd number of digits.
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

    /// Splits off the last `n` bytes. Returns both parts, or `None` if there are fewer than `n` bytes.
    #[must_use]
    pub fn split_last(&self, n: usize) -> Option<(Self, Self)> {
        let (first, last) = self.0.split_at(self.0.len().checked_sub(n)?);
        Some((Self(Zeroizing::new(first.to_vec())), Self(Zeroizing::new(last.to_vec()))))
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the fingerprint of the bytes.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.0)
    }
}

impl Fingerprint {
    /// Returns the fingerprint of any bytes.
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
